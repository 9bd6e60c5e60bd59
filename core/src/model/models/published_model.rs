//! Published model versions: the card, and how its package is served.

use serde::{Deserialize, Serialize};

use crate::model::catalog::ModelFile;
use crate::model::error::{Error, Result};
use crate::model::package::ManifestFile;
use crate::model::served_model::{CodeOutputs, PredictOutput, Profile, ServedModel};
use crate::model::text_enum::text_enum;

/// A published package, as it is stored with its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package's name in the artifact store.
    pub name: String,
    /// The files, by name.
    pub files: Vec<ManifestFile>,
    /// The engine that serves the model, and how it is called.
    pub serving: Serving,
    /// The catalog item count. `None`: the package has no item table, because no tokenizer is
    /// fitted.
    pub n_items: Option<i64>,
    /// The time that the engine takes to rank items for one sequence with the context's full
    /// length, in microseconds, as measured at publication.
    pub sequence_us: i64,
}

/// The model version that an organization sees.
#[derive(Debug, Clone, PartialEq)]
pub struct VisibleVersion {
    /// The version.
    pub published: ServedVersion,
    /// `true` if the model is the organization's own.
    pub is_own: bool,
}

text_enum! {
    /// The tensors that an external engine reads.
    pub enum Tensors {
        /// Item ids. The engine has the item table.
        Ids = "ids",
        /// Item codes. The client has the item table.
        Codes = "codes",
    }
}

/// The object `serving` in `model.json`: the engine, and how it is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Serving {
    /// An external engine, which has the model under its own name.
    External {
        /// The engine's name in `ASSAY_ENGINES`.
        engine: String,
        /// The model's name in the engine.
        name: String,
        /// The tensors that the engine reads.
        tensors: Tensors,
        /// Each operation's output that the engine computes, such as `logits`.
        operations: Operations,
    },
    /// The embedded engine, which loads the package from the artifact store.
    Embedded {
        /// The engine's name in `ASSAY_ENGINES`.
        engine: String,
        /// The network's architecture.
        architecture: String,
    },
}

/// An external engine's outputs, by operation. An operation without an output is not computed
/// by the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Operations {
    /// `predict`'s output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predict: Option<PredictOutput>,
    /// `generate`'s output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<GenerateOutput>,
    /// `embed`'s output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embed: Option<EmbedOutput>,
}

text_enum! {
    /// `generate`'s output at an external engine.
    pub enum GenerateOutput {
        /// `continuations` and `scores`.
        Continuations = "continuations",
    }
}

text_enum! {
    /// `embed`'s output at an external engine.
    pub enum EmbedOutput {
        /// `embedding`.
        Embedding = "embedding",
    }
}

impl Serving {
    /// Returns the engine's name in `ASSAY_ENGINES`.
    pub fn engine(&self) -> &str {
        match self {
            Self::External { engine, .. } | Self::Embedded { engine, .. } => engine,
        }
    }
}

/// A model version that an organization can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// The version's card.
    pub file: ModelFile,
    /// The package. `None`: the version was published as a card alone.
    pub package: Option<Package>,
}

impl Package {
    /// Returns the model as the engine client needs it.
    ///
    /// # Errors
    /// If a size on the card is larger than 32 bits, which publication refuses.
    pub fn served_model(&self, file: &ModelFile) -> Result<ServedModel> {
        let profile = match &self.serving {
            Serving::Embedded { .. } => Profile::Embedded,
            Serving::External {
                name,
                tensors,
                operations:
                    Operations {
                        predict,
                        generate,
                        embed,
                    },
                ..
            } => match tensors {
                Tensors::Ids => Profile::Ids {
                    name: name.clone(),
                    generates: generate.is_some(),
                },
                Tensors::Codes => Profile::Codes {
                    name: name.clone(),
                    outputs: CodeOutputs {
                        predict: *predict,
                        continuations: generate.is_some(),
                        embedding: embed.is_some(),
                    },
                },
            },
        };
        // An external engine that reads item ids can have its own catalog.
        let knows_items = matches!(profile, Profile::Ids { .. });
        Ok(ServedModel {
            id: file.id.clone(),
            version: file.version.clone(),
            engine: self.serving.engine().to_owned(),
            package: self.name.clone(),
            profile,
            context_length: u32::try_from(file.context_length).map_err(Error::internal)?,
            embedding_dim: u32::try_from(file.embedding_dim).map_err(Error::internal)?,
            codebook: file.codebook,
            has_item_table: self.n_items.is_some(),
            returns_items: self.n_items.is_some() || (knows_items && !file.requires_tokenizer),
        })
    }
}
