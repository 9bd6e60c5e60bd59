//! The items' contributions to a job's figure.

use crate::metric::Metric;
use crate::stats::calibration::{self, BINS};
use crate::stats::compensated_sum::Sum;

/// The stored values for some items in a job.
pub struct StoredItems {
    /// One value per item: a score, contribution or confidence.
    pub values: Vec<f64>,
    /// One entry per item: the predicted label is right. Empty if the metric does not store it.
    pub rights: Vec<bool>,
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
        matches!(metric, Metric::Rmse | Metric::Ece)
    }

    /// Adds the next items.
    pub fn add(&mut self, StoredItems { values, rights }: &StoredItems) {
        self.n += values.len();
        match self.metric {
            Metric::Rmse => values.iter().for_each(|error| self.sum.add(error * error)),
            Metric::Ece => {
                for (value, right) in values.iter().zip(rights) {
                    let (bin, gap) = calibration::gap(*value, *right);
                    self.bins[bin].add(gap);
                }
            }
            _ => {}
        }
    }

    /// Returns the rule for each item's contribution to the figure.
    pub fn contribution(self) -> Contribution {
        match self.metric {
            Metric::Rmse => Contribution::OfRoot((self.sum.total() / self.n.max(1) as f64).sqrt()),
            Metric::Ece => Contribution::OfGaps(self.bins.map(|bin| {
                bin.total()
                    .partial_cmp(&0.0)
                    .map_or(0.0, |sign| f64::from(sign as i8))
            })),
            _ => Contribution::Stored,
        }
    }
}

/// Each item's contribution to a job's figure. The mean of the contributions is the figure.
pub enum Contribution {
    /// The stored value itself.
    Stored,
    /// The item's part of the root of a mean of squares, by the delta method. Contains the root.
    OfRoot(f64),
    /// The item's gap, times the sign of the sum of the gaps in its bin. Contains the signs.
    OfGaps([f64; BINS + 1]),
}

impl Contribution {
    pub(super) fn of(&self, StoredItems { values, rights }: &StoredItems, item: usize) -> f64 {
        let value = values[item];
        match self {
            Self::Stored => value,
            Self::OfRoot(0.0) => 0.0,
            Self::OfRoot(root) => root + (value * value - root * root) / (2.0 * root),
            Self::OfGaps(signs) => {
                let (bin, gap) = calibration::gap(value, rights[item]);
                signs[bin] * gap
            }
        }
    }
}
