//! Prediction jobs: the request, the result, and the output lines.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{RefOr, Schema};

use crate::model::error::Code;
use crate::model::error_details::Endpoint;
use crate::model::ids::{JobId, UploadId};
use crate::model::sequence::Sequence;
use crate::model::serving::{OnLong, OnUnknown, Ranking};
use crate::model::timestamp::Timestamp;

/// The longest time for one engine call for a job, with the wait for a permit.
pub const CHUNK_DEADLINE: Duration = Duration::from_secs(60);

/// Days after which a job's output is deleted.
pub const OUTPUT_DAYS: i32 = 7;

/// Returns the schema of the operations that jobs have.
pub fn only_predict() -> RefOr<Schema> {
    Object::builder()
        .schema_type(Type::String)
        .enum_values(Some([Endpoint::Predict.as_str()]))
        .into()
}

/// The options of `predict`, for all sequences of a job.
#[derive(ToSchema)]
pub struct PredictionParameters {
    /// The number of items to return for a sequence. The default is 10, or all options of a sequence
    /// that has some. A value above the number of catalog items returns all of them.
    #[schema(minimum = 1, maximum = 500)]
    pub top_k: Option<i64>,
    /// `true` leaves out items that occur in the events of the sequence. The default is `false`.
    pub exclude_seen: Option<bool>,
    /// The handling of a sequence that is longer than the model's context. The default is
    /// `truncate`.
    pub on_long: Option<OnLong>,
    /// The handling of events whose item the model does not know. The default is `skip`.
    pub on_unknown: Option<OnUnknown>,
}

/// The result of a prediction job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredictResult {
    /// The id of the model.
    pub model_id: String,
    /// The version of the model.
    pub model_version: String,
    /// The operation, which is always `predict`.
    pub operation: Endpoint,
    /// The name of the engine that computed the output.
    pub engine: String,
    /// The build of the model library.
    pub hfm_sha: String,
    /// The number of sequences, and of lines of the output.
    #[schema(minimum = 1)]
    pub n: i64,
    /// The number of sequences without a prediction. Their lines have `error`.
    #[schema(minimum = 0)]
    pub n_failed: i64,
    /// The number of sequences of which only the most recent events entered the model.
    #[schema(minimum = 0)]
    pub n_truncated: i64,
    /// The number of events, over all sequences, that were left out because the model does not know
    /// their item.
    #[schema(minimum = 0)]
    pub n_unknown: i64,
    /// The number of predicted sequences of which no event entered the model.
    #[schema(minimum = 0)]
    pub n_cold: i64,
    /// The units that the job is charged for.
    pub usage: PredictionUsage,
    /// The id of the output, an upload of the kind `predictions` that is ready. It is the `input_ref`
    /// of an eval.
    #[schema(value_type = UploadId)]
    pub output_ref: String,
    /// The size of the output, in bytes.
    #[schema(minimum = 1)]
    pub output_bytes: i64,
    /// The SHA-256 of the output, 64 lower-case hex digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub output_sha256: String,
    /// The time at which the output is deleted.
    pub expires_at: Timestamp,
    /// The id of the eval of the output. Present if the request had `evaluate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<JobId>)]
    pub eval_job_id: Option<String>,
}

/// The units that a prediction job is charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PredictionUsage {
    /// The number of sequences with a prediction.
    #[schema(minimum = 0)]
    pub predict_items: i64,
}

/// An output line's id: an item's if the job predicts a suite, otherwise a sequence's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputId {
    /// The line has `item_id`.
    Item,
    /// The line has `sequence_id`.
    Sequence,
}

/// An output line, with its id under the job's [`OutputId`] name.
#[derive(Serialize)]
struct OutputLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_id: Option<&'a str>,
    #[serde(flatten)]
    outcome: OutputOutcome<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutputOutcome<'a> {
    Predicted {
        prediction: &'a [String],
        scores: &'a [Option<f64>],
    },
    Failed {
        error: OutputError<'a>,
    },
}

#[derive(Serialize)]
struct OutputError<'a> {
    code: &'static str,
    message: &'a str,
}

impl OutputId {
    /// Appends a sequence's line to `output`: its ranking, or the reason why it has none.
    ///
    /// # Errors
    /// Never for valid rankings: their scores are finite.
    pub fn write_line(
        self,
        sequence: &Sequence<'_>,
        ranking: Result<&Ranking, &str>,
        output: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let id = &*sequence.sequence_id;
        let line = OutputLine {
            item_id: (self == Self::Item).then_some(id),
            sequence_id: (self == Self::Sequence).then_some(id),
            outcome: match ranking {
                Ok(ranking) => OutputOutcome::Predicted {
                    prediction: &ranking.item_ids,
                    scores: &ranking.scores,
                },
                Err(message) => OutputOutcome::Failed {
                    error: OutputError {
                        code: Code::ValidationFailed.as_str(),
                        message,
                    },
                },
            },
        };
        serde_json::to_writer(&mut *output, &line)?;
        output.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::serving::EventCounts;

    #[test]
    fn lines_have_ranking_or_error() {
        let sequence = Sequence {
            sequence_id: "p\"7".into(),
            events: Vec::new(),
            options: None,
        };
        let ranking = Ranking {
            counts: EventCounts {
                n_used: 0,
                n_unknown: 0,
            },
            item_ids: vec!["a".into(), "b".into()],
            scores: vec![Some(-0.5), None],
            is_exact: Some(true),
        };
        let mut output = Vec::new();
        OutputId::Item
            .write_line(&sequence, Ok(&ranking), &mut output)
            .unwrap();
        OutputId::Sequence
            .write_line(&sequence, Err("is too long"), &mut output)
            .unwrap();
        let expected = concat!(
            r#"{"item_id":"p\"7","prediction":["a","b"],"scores":[-0.5,null]}"#,
            "\n",
            r#"{"sequence_id":"p\"7","error":{"code":"validation_failed","message":"is too long"}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }
}
