//! The test between two board entries.

use super::sign_flip;
use crate::compare::{Aggregate, Contribution, Pairs, StoredItems};
use crate::item_scores::ItemScores;
use crate::metric::{Metric, SignificanceTest};

/// The largest evidence. No threshold is near it, and its p-value is still above 0.
const EVIDENCE_MAX: f64 = 700.0;

/// An entry's item contributions to its value.
pub struct EntryItems {
    items: StoredItems,
    contribution: Contribution,
    value: f64,
    has_estimate: bool,
}

impl EntryItems {
    /// Creates the contributions from the item values. `value` is the metric over these
    /// items, and `has_estimate` says whether its standard error can be estimated.
    pub fn new(metric: Metric, items: &ItemScores, value: f64, has_estimate: bool) -> Self {
        let stored = StoredItems {
            values: (0..items.len()).map(|item| items.value(item)).collect(),
            rights: if items.kind().has_right() {
                (0..items.len()).map(|item| items.is_right(item)).collect()
            } else {
                Vec::new()
            },
        };
        let mut aggregate = Aggregate::new(metric);
        aggregate.add(&stored);
        Self {
            items: stored,
            contribution: aggregate.contribution(),
            value,
            has_estimate,
        }
    }

    /// Returns the size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        8 * self.items.values.len() + self.items.rights.len()
    }
}

/// The result of the test between two entries: the p-value's negative natural logarithm, at most
/// 700. It is negative if the second entry is the better one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence(pub f32);

impl Evidence {
    fn new(p_value: f64, first_is_better: bool) -> Self {
        let size = (-p_value.ln()).clamp(0.0, EVIDENCE_MAX) as f32;
        Self(if first_is_better { size } else { -size })
    }
}

/// Tests the hypothesis that two entries are equally good, by their values for the same items.
/// Metrics that are a mean over items, and RMSE by its squared errors, get the sign-flip test,
/// which is McNemar's for contributions that are 0 or 1. Others get the comparison test.
pub fn test_pair(metric: Metric, first: &EntryItems, second: &EntryItems) -> Evidence {
    if metric.significance_test() == SignificanceTest::Wald {
        let mut pairs = Pairs::new(metric);
        pairs.add(
            (&first.items, &first.contribution),
            (&second.items, &second.contribution),
        );
        let difference = first.value - second.value;
        let has_estimates = first.has_estimate && second.has_estimate;
        let found = pairs.finish(difference, 0.0, has_estimates);
        return Evidence::new(
            found.p_value,
            (difference > 0.0) != metric.lower_is_better(),
        );
    }
    let items = first.items.values.iter().zip(&second.items.values);
    let mut differences: Vec<f64> = items
        .filter(|(one, other)| one != other)
        .map(|(one, other)| match metric {
            // Larger for the larger error, and independent from all other items.
            Metric::Rmse => one * one - other * other,
            _ => one - other,
        })
        .collect();
    let p_value = sign_flip::p_value(&mut differences);
    let sum: f64 = differences.iter().sum();
    Evidence::new(p_value, (sum > 0.0) != metric.lower_is_better())
}
