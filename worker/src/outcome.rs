//! An attempt's outcome, before it is written.

use assay_core::Error;
use assay_core::model::error_details::Details;
use assay_core::model::job::{ATTEMPTS_MAX, EvalResult, FailureCode};
use assay_core::model::receipt::NewReceipt;
use assay_core::store::item_scores::ItemScoresIn;
use assay_core::store::work::{Claim, Output};
use assay_eval::Scoring;
use assay_eval::score::{Figures, Sealed};

/// An attempt's outcome.
pub enum Outcome {
    /// The submission was scored.
    Scored(Box<Scored>),
    /// The output is written.
    Predicted(Box<Predicted>),
    /// The submission is invalid or missing: another attempt would fail in the same way.
    Rejected(FailureCode, String),
    /// An internal error, with its cause: another attempt may succeed.
    Failed(String),
    /// The attempt took too long.
    TimedOut,
    /// The job no longer belongs to this attempt: it was cancelled or reclaimed.
    Lost,
}

/// A job's score before it is disclosed.
pub struct Scored {
    /// The result without its figures.
    pub result: EvalResult,
    /// The open items' figures.
    pub figures: Figures,
    /// The sealed items' figures, if there are some.
    pub sealed: Option<Sealed>,
    /// The suite's rules.
    pub scoring: Scoring,
    /// The stored item scores, if they are stored.
    pub item_scores: Option<ItemScoresIn>,
    /// The job's receipt.
    pub receipt: NewReceipt,
}

/// A prediction job's output, and the counts in its result.
pub struct Predicted {
    /// The output.
    pub output: Output,
    /// The size of the output, in bytes.
    pub output_bytes: i64,
    /// The SHA-256 of the output, 64 lower-case hex digits.
    pub output_sha256: String,
    /// The sequence counts, by their fate.
    pub counts: PredictedCounts,
}

/// Sequence and event counts, as in a prediction job's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PredictedCounts {
    /// Sequences.
    pub n: i64,
    /// Sequences without a prediction.
    pub n_failed: i64,
    /// Sequences whose most recent events entered the model.
    pub n_truncated: i64,
    /// Events that were left out because the model does not know their item.
    pub n_unknown: i64,
    /// Predicted sequences without an event that entered the model.
    pub n_cold: i64,
}

impl Outcome {
    /// Returns the outcome for an attempt whose input is no longer stored.
    pub fn input_missing() -> Self {
        Self::Rejected(
            FailureCode::InputUnavailable,
            "The submission is no longer stored.".into(),
        )
    }

    /// Returns the outcome for an attempt at a job whose suite the operator has removed.
    pub fn suite_removed() -> Self {
        Self::Rejected(
            FailureCode::SuiteRemoved,
            "The operator has deleted the items and answers of the suite.".into(),
        )
    }

    /// Returns the outcome for an attempt with this error.
    pub fn from_error(error: &Error) -> Self {
        match error.details {
            Some(Details::SuiteRemoved) => Self::suite_removed(),
            _ => Self::Failed(error.log_text()),
        }
    }

    /// Returns the outcome's name in metrics, logs and spans.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Scored(_) | Self::Predicted(_) => "succeeded",
            Self::Rejected(..) => "failed",
            Self::Failed(_) => "requeued",
            Self::TimedOut => "timeout",
            Self::Lost => "lost",
        }
    }

    /// Returns the job's final outcome, if this attempt finishes it.
    pub fn for_claim(&self, claim: &Claim) -> Option<&'static str> {
        let is_last = claim.attempt >= ATTEMPTS_MAX;
        match self {
            Self::Scored(_) | Self::Predicted(_) => Some("succeeded"),
            Self::Rejected(code, _) => Some(code.as_str()),
            Self::Failed(_) => is_last.then_some(FailureCode::Internal.as_str()),
            Self::TimedOut => is_last.then_some(FailureCode::Timeout.as_str()),
            Self::Lost => None,
        }
    }
}
