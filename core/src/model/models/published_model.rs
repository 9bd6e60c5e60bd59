//! Published versions of models: the card, and how its package is served.

use serde::{Deserialize, Serialize};

use crate::model::catalog::ModelFile;
use crate::model::error::{Error, Result};
use crate::model::package::ManifestFile;
use crate::model::served_model::{CodeOutputs, PredictOutput, Profile, ServedModel};
use crate::model::text_enum::text_enum;

/// A published package, as it is stored with its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The name of the package in the artifact store.
    pub name: String,
    /// The files, by name.
    pub files: Vec<ManifestFile>,
    /// The engine that serves the model, and how it is called.
    pub serving: Serving,
    /// The number of catalog items. `None`: the package has no item table, because no tokenizer is
    /// fitted.
    pub n_items: Option<i64>,
    /// The time that the engine takes to rank items for one sequence of the context's full length,
    /// in microseconds, as measured at publication.
    pub sequence_us: i64,
}

/// The version of a model that an organization sees.
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
        /// Codes of items. The client has the item table.
        Codes = "codes",
    }
}

/// The object `serving` of `model.json`: the engine, and how it is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Serving {
    /// An external engine, which has the model under a name of its own.
    External {
        /// The name of the engine in `ASSAY_ENGINES`.
        engine: String,
        /// The name of the model in the engine.
        name: String,
        /// The tensors that the engine reads.
        tensors: Tensors,
        /// The output of each operation that the engine computes, such as `logits`.
        operations: Operations,
    },
    /// The embedded engine, which loads the package from the artifact store.
    Embedded {
        /// The name of the engine in `ASSAY_ENGINES`.
        engine: String,
        /// The architecture of the network.
        architecture: String,
    },
}

/// The outputs of an external engine, by operation. An operation without an output is not computed
/// by the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Operations {
    /// The output of `predict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predict: Option<PredictOutput>,
    /// The output of `generate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<GenerateOutput>,
    /// The output of `embed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embed: Option<EmbedOutput>,
}

text_enum! {
    /// The output of `generate` of an external engine.
    pub enum GenerateOutput {
        /// `continuations` and `scores`.
        Continuations = "continuations",
    }
}

text_enum! {
    /// The output of `embed` of an external engine.
    pub enum EmbedOutput {
        /// `embedding`.
        Embedding = "embedding",
    }
}

impl Serving {
    /// Returns the name of the engine in `ASSAY_ENGINES`.
    pub fn engine(&self) -> &str {
        match self {
            Self::External { engine, .. } | Self::Embedded { engine, .. } => engine,
        }
    }
}

/// A version of a model that an organization can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// The card of the version.
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
        // An external engine that reads item ids can have a catalog of its own.
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
