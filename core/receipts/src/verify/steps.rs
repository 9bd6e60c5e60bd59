//! The verification steps and their results.

use std::fmt;

/// A verification step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The signature is by the key that it names.
    Signature,
    /// The readable statement is the signed one.
    Statement,
    /// The log contains the signature.
    Inclusion,
    /// The log key signed the proof's tree.
    Checkpoint,
    /// The receipt key was valid, and a key chain leads from the log's first entry to it.
    Key,
    /// The tree continues an earlier checkpoint's.
    Consistency,
    /// The receipt is about these predictions.
    Predictions,
    /// The answers are those to which the suite was committed.
    Commitment,
    /// Scoring the predictions again gives the figures.
    Score,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signature => "signature",
            Self::Statement => "statement",
            Self::Inclusion => "inclusion",
            Self::Checkpoint => "checkpoint",
            Self::Key => "key",
            Self::Consistency => "consistency",
            Self::Predictions => "predictions",
            Self::Commitment => "commitment",
            Self::Score => "score",
        })
    }
}

/// A step's result that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// The check succeeded.
    Ok,
    /// The step had nothing to check, for this reason.
    Skipped(String),
}
