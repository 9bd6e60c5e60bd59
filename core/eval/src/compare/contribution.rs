//! The items' contributions to a job's figure.

use crate::metric::{Form, Metric};
use crate::stats::calibration::{self, BINS};
use crate::stats::compensated_sum::Sum;

/// The stored values for some items in a job.
pub struct StoredItems {
    /// One value per item: a score, contribution or confidence.
    pub values: Vec<f64>,
    /// One entry per item: the predicted label is right. Empty if the metric does not store it.
    pub rights: Vec<bool>,
}

/// The stored value of one item.
#[derive(Clone, Copy)]
pub(crate) struct StoredItem {
    pub(crate) value: f64,
    /// The predicted label is right; `false` if the metric does not store it.
    pub(crate) is_right: bool,
}

impl StoredItems {
    /// Returns all items, in their order.
    pub(crate) fn items(&self) -> impl Iterator<Item = StoredItem> + Clone {
        (0..self.values.len()).map(|item| self.item(item))
    }

    pub(crate) fn item(&self, item: usize) -> StoredItem {
        StoredItem {
            value: self.values[item],
            is_right: self.rights.get(item).copied().unwrap_or_default(),
        }
    }
}

/// A job's figure, accumulated over all its items.
pub struct Aggregate {
    metric: Metric,
    n: usize,
    sum: Sum,
    bins: [Sum; BINS + 1],
}

impl Aggregate {
    /// Creates the empty aggregate.
    pub fn new(metric: Metric) -> Self {
        Self {
            metric,
            n: 0,
            sum: Sum::default(),
            bins: [Sum::default(); BINS + 1],
        }
    }

    /// Returns `true` if the items' contributions depend on the aggregate. Otherwise no items
    /// need to be added.
    pub const fn is_needed(metric: Metric) -> bool {
        matches!(metric.form(), Form::Root | Form::Gaps)
    }

    /// Adds the next items.
    pub fn add(&mut self, items: &StoredItems) {
        items.items().for_each(|item| self.add_item(item));
    }

    fn add_item(&mut self, item: StoredItem) {
        self.n += 1;
        match self.metric.form() {
            Form::Root => self.sum.add(item.value * item.value),
            Form::Gaps => {
                let (bin, gap) = calibration::gap(item.value, item.is_right);
                self.bins[bin].add(gap);
            }
            _ => {}
        }
    }

    /// Returns the rule for each item's contribution to the figure.
    pub fn contribution(self) -> Contribution {
        match self.metric.form() {
            Form::Root => Contribution::OfRoot((self.sum.total() / self.n.max(1) as f64).sqrt()),
            Form::Gaps => Contribution::OfGaps(self.bins.map(|bin| {
                bin.total()
                    .partial_cmp(&0.0)
                    .map_or(0.0, |sign| f64::from(sign as i8))
            })),
            _ => Contribution::Stored,
        }
    }
}

/// Each item's contribution to a job's figure. The mean of the contributions is the figure.
#[derive(Debug)]
pub enum Contribution {
    /// The stored value itself.
    Stored,
    /// The item's part of the root of a mean of squares, by the delta method. Contains the root.
    OfRoot(f64),
    /// The item's gap, times the sign of the sum of the gaps in its bin. Contains the signs.
    OfGaps([f64; BINS + 1]),
}

impl Contribution {
    /// Returns the rule for a job with these items. Reads them only if the rule depends on them.
    pub(crate) fn for_items(metric: Metric, items: impl Iterator<Item = StoredItem>) -> Self {
        let mut aggregate = Aggregate::new(metric);
        if Aggregate::is_needed(metric) {
            items.for_each(|item| aggregate.add_item(item));
        }
        aggregate.contribution()
    }

    /// Returns the contribution of an item.
    pub(crate) fn of(&self, StoredItem { value, is_right }: StoredItem) -> f64 {
        match self {
            Self::Stored => value,
            Self::OfRoot(0.0) => 0.0,
            Self::OfRoot(root) => root + (value * value - root * root) / (2.0 * root),
            Self::OfGaps(signs) => {
                let (bin, gap) = calibration::gap(value, is_right);
                signs[bin] * gap
            }
        }
    }
}
