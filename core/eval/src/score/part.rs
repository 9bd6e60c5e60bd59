//! The figure over a part: some items alone, by the definitions for all items.

use crate::compare::{Contribution, StoredItem};
use crate::item_scores::ItemScoresBuilder;
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, estimate_within, stderr_of_mean, wilson};

/// The figure of some items.
pub(super) struct PartFigure {
    pub(super) value: f64,
    /// The uncertainty, if items are independent. `None` with too few items.
    pub(super) estimate: Option<Estimate>,
    /// Each item's contribution, in the order of the part. Their mean is the value.
    pub(super) contributions: Vec<f64>,
}

/// A part: the places of some items, ascending.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) places: &'p [u32],
    /// The whole table's stored values, before the accumulator finishes them.
    pub(super) items: &'p ItemScoresBuilder,
    /// The whole table's right labels; empty unless the metric [needs them](Metric::needs_labels).
    pub(super) labels: &'p [u32],
}

impl Part<'_> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> + Clone {
        self.places.iter().map(|place| *place as usize)
    }

    /// Returns the items' stored values.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.places().map(|item| self.items.value(item))
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = StoredItem> + Clone {
        self.places().map(|item| self.items.stored_item(item))
    }

    pub(super) fn n_missing(&self) -> usize {
        let is_missing = |item: &usize| !self.items.is_predicted(*item);
        self.places().filter(is_missing).count()
    }

    /// Returns the mean over stored scores, each 0 or 1.
    pub(super) fn share(&self) -> PartFigure {
        let value = self.mean();
        PartFigure {
            value,
            estimate: wilson(value, self.len()),
            contributions: self.values().collect(),
        }
    }

    /// Returns the mean over stored scores. `range` is its smallest and largest value.
    pub(super) fn mean_figure(&self, range: [f64; 2]) -> PartFigure {
        let value = self.mean();
        let stderr = stderr_of_mean(value, self.len(), self.values());
        PartFigure {
            value,
            estimate: stderr.map(|stderr| estimate_within(range, value, stderr, "normal")),
            contributions: self.values().collect(),
        }
    }

    fn mean(&self) -> f64 {
        self.values().collect::<Sum>().total() / self.len().max(1) as f64
    }

    /// Returns the items' contributions to the metric, whose stored values are scores or confidences.
    pub(super) fn contributions(&self, metric: Metric) -> Vec<f64> {
        let contribution = Contribution::for_items(metric, self.stored());
        self.stored().map(|item| contribution.of(item)).collect()
    }
}

impl PartFigure {
    /// Returns the figure 0 without an uncertainty, for predictions for which the metric is not
    /// defined.
    pub(super) fn undefined(n: usize) -> Self {
        Self {
            value: 0.0,
            estimate: None,
            contributions: vec![0.0; n],
        }
    }
}
