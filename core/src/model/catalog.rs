//! The catalog of models, and their cards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::suite::is_version;
use crate::model::timestamp::Timestamp;
use crate::text_enum;
use assay_eval::FieldError;

text_enum! {
    /// What a model can be asked for.
    pub enum Endpoint {
        /// Sequences to come.
        Generate = "generate",
        /// The next event.
        Predict = "predict",
        /// A vector of a sequence.
        Embed = "embed",
    }
}

text_enum! {
    /// How the codes of a level of the codebook are laid out.
    pub enum Resolution {
        /// Every level has `base_size` codes.
        Uniform = "uniform",
        /// Level l has `base_size` / 2^(l−1) codes.
        Multi = "multi",
    }
}

/// How items are written as codes, such as `12-4-9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Codebook {
    /// Number of levels.
    #[schema(minimum = 1, maximum = 32)]
    pub levels: i64,
    /// How the levels are laid out.
    pub resolution: Resolution,
    /// Number of codes of the first level.
    #[schema(minimum = 1)]
    pub base_size: i64,
}

/// A model, as the catalog lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Model {
    /// Stable: what breaks a client is a new id.
    pub id: String,
    /// What it is for.
    pub task: String,
    /// Such as `beta`.
    pub status: String,
    /// Events that it looks back on.
    #[schema(minimum = 1)]
    pub context_length: i64,
    /// Whether a fitted tokenizer is needed before catalog items can be returned.
    pub requires_tokenizer: bool,
    /// What it can be asked for.
    pub endpoints: Vec<Endpoint>,
}

/// Answer of the listing of models, by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Models {
    /// All that are published, each in its version published last.
    pub models: Vec<Model>,
}

/// A model's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelCard {
    /// Stable: what breaks a client is a new id.
    pub id: String,
    /// What it is for.
    pub task: String,
    /// Such as `beta`.
    pub status: String,
    /// What a retrain changes.
    pub version: String,
    /// Events that it looks back on.
    #[schema(minimum = 1)]
    pub context_length: i64,
    /// Length of an embedding.
    #[schema(minimum = 1)]
    pub embedding_dim: i64,
    /// How items are written as codes.
    pub codebook: Codebook,
    /// Whether supervised fine-tuning on the caller's sequences has landed.
    pub adapted: bool,
    /// When it has.
    pub adapted_at: Option<Timestamp>,
    /// What the backbone was pretrained on.
    pub pretrain_domains: Vec<String>,
}

/// What the operator publishes: the card and the catalog's entry in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of Model and ModelCard")]
pub struct ModelFile {
    pub id: String,
    pub task: String,
    pub status: String,
    pub version: String,
    pub context_length: i64,
    pub requires_tokenizer: bool,
    pub endpoints: Vec<Endpoint>,
    pub embedding_dim: i64,
    pub codebook: Codebook,
    #[serde(default)]
    pub adapted: bool,
    #[serde(default)]
    pub adapted_at: Option<Timestamp>,
    #[serde(default)]
    pub pretrain_domains: Vec<String>,
}

impl ModelFile {
    /// What is wrong with it, if anything is.
    pub fn faults(&self) -> Vec<FieldError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let id = (1..=64).contains(&self.id.len()) && self.id.bytes().all(word);
        let checks = [
            ("id", id, "must be 1 to 64 letters, digits, '.', '_' or '-'"),
            (
                "version",
                is_version(&self.version),
                "must be 1 to 64 letters, digits, '.', '_', '-' or '+'",
            ),
            ("task", !self.task.trim().is_empty(), "must not be empty"),
            (
                "status",
                !self.status.trim().is_empty(),
                "must not be empty",
            ),
            (
                "context_length",
                self.context_length > 0,
                "must be at least 1",
            ),
            (
                "embedding_dim",
                self.embedding_dim > 0,
                "must be at least 1",
            ),
            (
                "codebook.levels",
                (1..=32).contains(&self.codebook.levels),
                "must be from 1 to 32",
            ),
            (
                "codebook.base_size",
                self.codebook.base_size > 0,
                "must be at least 1",
            ),
            (
                "adapted_at",
                self.adapted == self.adapted_at.is_some(),
                "must be given when adapted is true, and only then",
            ),
        ];
        checks
            .into_iter()
            .filter(|(_, fine, _)| !fine)
            .map(|(field, _, message)| FieldError::new(field, "range", message))
            .collect()
    }

    /// The catalog's entry.
    pub fn into_model(self) -> Model {
        let Self {
            id,
            task,
            status,
            context_length,
            requires_tokenizer,
            endpoints,
            ..
        } = self;
        Model {
            id,
            task,
            status,
            context_length,
            requires_tokenizer,
            endpoints,
        }
    }

    /// The card.
    pub fn into_card(self) -> ModelCard {
        let Self {
            id,
            task,
            status,
            version,
            context_length,
            embedding_dim,
            codebook,
            adapted,
            adapted_at,
            pretrain_domains,
            ..
        } = self;
        ModelCard {
            id,
            task,
            status,
            version,
            context_length,
            embedding_dim,
            codebook,
            adapted,
            adapted_at,
            pretrain_domains,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"id": "next-1", "task": "next-event", "status": "beta", "version": "1", "context_length": 512, "requires_tokenizer": true,
        "endpoints": ["generate", "predict"], "embedding_dim": 256, "codebook": {"levels": 3, "resolution": "multi", "base_size": 256}}"#;

    #[test]
    fn a_file_is_read_and_its_faults_are_told_by_field() {
        let good: ModelFile = serde_json::from_str(GOOD).unwrap();
        assert_eq!(good.faults(), []);
        let bad = ModelFile {
            id: "a b".into(),
            adapted: true,
            context_length: 0,
            ..good
        };
        let fields: Vec<_> = bad.faults().into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["id", "context_length", "adapted_at"]);
        assert!(serde_json::from_str::<ModelFile>(&GOOD.replace("\"task\"", "\"tasks\"")).is_err());
    }
}
