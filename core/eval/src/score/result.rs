//! The result of scoring.

use std::collections::BTreeMap;

use crate::item_scores::ItemScores;
use crate::stats::confidence::Estimate;

/// The score of one submission.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Number of items that `figures` cover: those of the open table.
    pub n: i64,
    /// Number of predictions in the submission.
    pub n_submitted: i64,
    /// Number of predictions for items that the suite does not have, neither open nor sealed.
    pub n_unmatched: i64,
    /// Number of open items without a prediction.
    pub n_missing: i64,
    /// The figures of the open items.
    pub figures: Figures,
    /// The values of the open items, for comparisons.
    pub items: ItemScores,
    /// The figures of the sealed items, if there are any.
    pub sealed: Option<Sealed>,
}

/// The figures of one set of items.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The metric over all items. An item without a prediction counts as the worst possible one.
    pub value: f64,
    /// The uncertainty of the value; `None` if there are too few items to estimate it.
    pub estimate: Option<Estimate>,
    /// The other figures of the metric's family, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// The figures of the sealed items of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// Number of sealed items.
    pub n: i64,
    /// Number of sealed items without a prediction.
    pub n_missing: i64,
    /// The figures of the sealed items alone.
    pub figures: Figures,
    /// The values of the sealed items, for the board.
    pub items: ItemScores,
}

/// The reason why there is no score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The predictions are invalid. The message names the prediction and the error.
    InvalidPredictions(String),
    /// Scoring was cancelled by [`Progress::stop`](super::Progress::stop).
    Stopped,
}
