//! A model's published version, as the engine client needs it.

use serde::{Deserialize, Serialize};

use crate::model::catalog::Codebook;
use crate::model::text_enum::text_enum;

text_enum! {
    /// `predict`'s output for a model that reads codes.
    pub enum PredictOutput {
        /// `items` and `scores`: the most probable items, as many as the model returns.
        TopK = "topk",
        /// `logits`: one number for each code on the only level.
        Logits = "logits",
    }
}

/// A model's published version: its engine, and its properties that decide about calls. Jobs store
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedModel {
    /// The id of the model.
    pub id: String,
    /// The model's version, which every call contains.
    pub version: String,
    /// The engine's name in `ASSAY_ENGINES`.
    pub engine: String,
    /// The package's name in the artifact store: its object prefix.
    pub package: String,
    /// The tensors that the engine reads and returns.
    pub profile: Profile,
    /// The number of events that the model looks back on.
    pub context_length: u32,
    /// The number of dimensions of an embedding.
    pub embedding_dim: u32,
    /// The codebook of the model.
    pub codebook: Codebook,
    /// `true` if the package has an item table.
    pub has_item_table: bool,
    /// `true` if the model can return items that a request does not name.
    pub returns_items: bool,
}

/// The tensors that a model's engine reads and returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Item ids; the engine knows the model by its package's name. For the embedded engine.
    Embedded,
    /// Item ids, for external engines.
    Ids {
        /// The model's name in the engine.
        name: String,
        /// `true` if the engine continues sequences. Otherwise the client continues them with one
        /// prediction for each event.
        generates: bool,
    },
    /// Item codes, for external engines. The client encodes items by the package's item table.
    Codes {
        /// The model's name in the engine.
        name: String,
        /// The tensors that the model returns.
        outputs: CodeOutputs,
    },
}

/// The outputs for a model that reads codes, as in `serving.operations` in `model.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeOutputs {
    /// `predict`'s output. `None` if the model does not predict.
    pub predict: Option<PredictOutput>,
    /// `true` if the model returns `continuations`. Otherwise the client continues sequences with
    /// one prediction for each event.
    pub continuations: bool,
    /// `true` if the model returns `embedding`.
    pub embedding: bool,
}

impl ServedModel {
    /// Returns each level's code count. A package with an item table is published only if
    /// each level's code count is an integer.
    pub fn level_sizes(&self) -> Vec<usize> {
        self.codebook.level_sizes().unwrap_or_default()
    }

    /// Returns `true` if the model can rank options. A model that only returns its most probable
    /// items cannot.
    pub const fn ranks_options(&self) -> bool {
        match &self.profile {
            Profile::Embedded | Profile::Ids { .. } => true,
            Profile::Codes { outputs, .. } => {
                matches!(outputs.predict, Some(PredictOutput::Logits))
            }
        }
    }

    /// Returns `true` if the model can return the mean over all positions as embedding. A model
    /// that reads codes returns one vector, for the last position.
    pub const fn pools_mean(&self) -> bool {
        !matches!(self.profile, Profile::Codes { .. })
    }

    /// Returns `true` if the model can draw continuations and leave out items. A model that
    /// reads codes and does not predict can only return the most probable continuations.
    pub const fn samples(&self) -> bool {
        match &self.profile {
            Profile::Embedded | Profile::Ids { .. } => true,
            Profile::Codes { outputs, .. } => outputs.predict.is_some(),
        }
    }
}
