//! The model catalog, with its cards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::error_details::Endpoint;
use crate::model::ids::is_version;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::FieldError;

text_enum! {
    /// A codebook's level layout.
    pub enum Resolution {
        /// Every level has `base_size` codes.
        Uniform = "uniform",
        /// Level l has `base_size` / 2^(l−1) codes.
        Multi = "multi",
    }
}

/// The encoding of items as codes, such as `12-4-9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Codebook {
    /// The number of levels.
    #[schema(minimum = 1, maximum = 32)]
    pub levels: i64,
    /// The layout of the levels.
    pub resolution: Resolution,
    /// The number of codes of the first level.
    #[schema(minimum = 1)]
    pub base_size: i64,
}

impl Codebook {
    /// Returns each level's code count, or `None` if a level would have a fraction of a
    /// code.
    pub fn level_sizes(&self) -> Option<Vec<usize>> {
        let size = |level: i64| {
            let size = match self.resolution {
                Resolution::Uniform => self.base_size,
                Resolution::Multi => {
                    let divisor = 1_i64.checked_shl(u32::try_from(level).ok()?)?;
                    (self.base_size % divisor == 0).then_some(self.base_size / divisor)?
                }
            };
            usize::try_from(size).ok().filter(|size| *size > 0)
        };
        (0..self.levels).map(size).collect()
    }
}

/// An entry of the catalog of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Model {
    /// The id of the model. It is stable: a change that breaks clients gets a new id.
    pub id: String,
    /// The task of the model, such as `next-event`.
    pub task: String,
    /// The release status of the model, such as `beta`.
    pub status: String,
    /// The number of events that the model looks back on.
    #[schema(minimum = 1)]
    pub context_length: i64,
    /// `true` if the model needs a fitted tokenizer before it can return catalog items.
    pub requires_tokenizer: bool,
    /// The operations of the model.
    pub endpoints: Vec<Endpoint>,
}

/// The models of the catalog, by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Models {
    /// All models, each in the version that was published last.
    pub models: Vec<Model>,
}

/// The card of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelCard {
    /// The id of the model. It is stable: a change that breaks clients gets a new id.
    pub id: String,
    /// The task of the model, such as `next-event`.
    pub task: String,
    /// The release status of the model, such as `beta`.
    pub status: String,
    /// The version of the model. A retrain that changes its behaviour changes the version.
    pub version: String,
    /// The number of events that the model looks back on.
    #[schema(minimum = 1)]
    pub context_length: i64,
    /// The number of dimensions of an embedding.
    #[schema(minimum = 1)]
    pub embedding_dim: i64,
    /// The codebook of the model.
    pub codebook: Codebook,
    /// `true` if the model was fine-tuned with supervision on the caller's sequences.
    pub adapted: bool,
    /// The time of the fine-tuning. Null unless `adapted` is `true`.
    pub adapted_at: Option<Timestamp>,
    /// The domains of the data that the backbone was pretrained on.
    pub pretrain_domains: Vec<String>,
}

/// The file that the operator publishes: the catalog entry and a model's card.
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

/// Returns `true` for 1 to 64 characters that a model's id may have.
pub fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl ModelFile {
    /// Validates the file and returns its field errors, possibly none.
    pub fn field_errors(&self) -> Vec<FieldError> {
        let checks = [
            (
                "id",
                is_id(&self.id),
                "must be 1 to 64 letters, digits, '.', '_' or '-'",
            ),
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
            .filter(|(_, is_valid, _)| !is_valid)
            .map(|(field, _, message)| FieldError::new(field, "range", message))
            .collect()
    }

    /// Returns the model's catalog entry.
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

    /// Returns the model's card.
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
    fn level_sizes_follow_resolution() {
        let sizes = |resolution, base_size| {
            let codebook = Codebook {
                levels: 3,
                resolution,
                base_size,
            };
            codebook.level_sizes()
        };
        assert_eq!(sizes(Resolution::Uniform, 7), Some(vec![7, 7, 7]));
        assert_eq!(sizes(Resolution::Multi, 8), Some(vec![8, 4, 2]));
        assert_eq!(sizes(Resolution::Multi, 6), None);
    }

    #[test]
    fn model_file_errors_name_their_fields() {
        let good: ModelFile = serde_json::from_str(GOOD).unwrap();
        assert_eq!(good.field_errors(), []);
        let bad = ModelFile {
            id: "a b".into(),
            adapted: true,
            context_length: 0,
            ..good
        };
        let fields: Vec<_> = bad
            .field_errors()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(fields, ["id", "context_length", "adapted_at"]);
        assert!(serde_json::from_str::<ModelFile>(&GOOD.replace("\"task\"", "\"tasks\"")).is_err());
    }
}
