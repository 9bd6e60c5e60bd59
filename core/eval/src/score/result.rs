//! The scoring result.

use std::collections::BTreeMap;

use super::retest_scores::{Ceiling, ShareOfCeiling};
use super::skill::Skill;
use super::slice_figures::SlicedField;
use crate::item_scores::ItemScores;
use crate::stats::confidence::Estimate;

/// One submission's score.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Items that `figures` cover: the open table's.
    pub n: i64,
    /// Predictions in the submission.
    pub n_submitted: i64,
    /// Predictions for items that the suite does not have, neither open nor sealed.
    pub n_unmatched: i64,
    /// Open items without a prediction.
    pub n_missing: i64,
    /// The open items' figures.
    pub figures: Figures,
    /// The open items' values, for comparisons.
    pub items: ItemScores,
    /// The sealed items' figures, if there are any.
    pub sealed: Option<Sealed>,
}

/// One item set's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The metric over all items, or its mean over clusters. An item without a prediction counts as the
    /// worst possible one.
    pub value: f64,
    /// The value's uncertainty; `None` if there are too few items to estimate it.
    pub estimate: Option<Estimate>,
    /// The other figures of the metric's family over all items, by name.
    pub metrics: BTreeMap<String, f64>,
    /// The figures of the catalog's ids that the predictions for open and sealed items show, by name. They
    /// do not depend on any answer, so each disclosure policy puts them among the `metrics`.
    pub public_metrics: BTreeMap<String, f64>,
    /// Present if the items are in clusters; `estimate` is then by cluster.
    pub clusters: Option<ClusterFigures>,
    /// The figures of the slices, by field.
    pub slices: Vec<SlicedField>,
    /// The value that a second set of human answers reaches, if the suite has a retest.
    pub ceiling: Option<Ceiling>,
    /// The share of the ceiling that the value reaches. `None` also if the ceiling is not better than
    /// the best trivial submission.
    pub share_of_ceiling: Option<ShareOfCeiling>,
    /// The share of the way from a baseline to the best value, if the suite has a skill.
    pub skill: Option<Skill>,
}

impl Figures {
    /// Creates figures of independent items without slices, ceiling and skill.
    pub(super) fn new(
        value: f64,
        estimate: Option<Estimate>,
        metrics: BTreeMap<String, f64>,
    ) -> Self {
        Self {
            value,
            estimate,
            metrics,
            public_metrics: BTreeMap::new(),
            clusters: None,
            slices: Vec::new(),
            ceiling: None,
            share_of_ceiling: None,
            skill: None,
        }
    }
}

/// The effect of clusters on a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterFigures {
    /// The number of clusters that are not left out of an average.
    pub n: i64,
    /// The squared ratio of the standard error to that of independent items. `None` without a
    /// standard error, if that of independent items is 0, or for an average of `rmse`, `auc` or
    /// `spearman`, to which single items do not contribute.
    pub design_effect: Option<f64>,
}

/// The figures of a suite's sealed items.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// Sealed item count.
    pub n: i64,
    /// Sealed items without a prediction.
    pub n_missing: i64,
    /// The sealed items' figures alone.
    pub figures: Figures,
    /// The sealed items' values, for the board.
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
