//! The test between two board entries.

use super::sign_flip;
use crate::clusters::{Average, Clusters};
use crate::compare::{Contribution, Pairs, StoredItem, StoredItems, cluster_values};
use crate::item_scores::ItemScores;
use crate::metric::{Metric, SignificanceTest};
use crate::stats::clustered;

/// Sums over a cluster that differ by at most this part of the larger one are equal but for rounding.
const ROUNDING: f64 = 1e-12;

/// The largest evidence. No threshold is near it, and its p-value is still above 0.
const EVIDENCE_MAX: f64 = 700.0;

/// An entry's items, reduced to the terms of the tests.
pub struct EntryItems {
    terms: Terms,
    value: f64,
    has_estimate: bool,
}

enum Terms {
    /// For the sign-flip test: each item's contribution, or with clusters the sum over each cluster;
    /// squared errors for `rmse`, which do not depend on other items. If the value is a mean over
    /// clusters, the value of each cluster that is not left out. Two terms are equal if they
    /// differ by at most the part `rounding` of the larger one.
    Flipped { terms: Vec<f64>, rounding: f64 },
    /// For the comparison test: each item's stored value, with the rule for its contribution.
    Compared(StoredItems, Contribution),
}

impl EntryItems {
    /// Creates the terms from the item values. `value` is the metric over these items,
    /// `has_estimate` says whether its standard error can be estimated, and `clusters` are those of
    /// the items, if these are not independent.
    pub fn new(
        metric: Metric,
        items: &ItemScores,
        value: f64,
        has_estimate: bool,
        clusters: Option<&Clusters>,
    ) -> Self {
        let stored = StoredItems {
            values: (0..items.len()).map(|item| items.value(item)).collect(),
            rights: if items.kind().has_right() {
                (0..items.len()).map(|item| items.is_right(item)).collect()
            } else {
                Vec::new()
            },
        };
        let contribution = Contribution::for_items(metric, stored.items());
        let term = |item: StoredItem| {
            if metric.is_root() {
                item.value * item.value
            } else {
                contribution.of(item)
            }
        };
        let terms = match clusters {
            Some(clusters) if clusters.average() == Average::Cluster => Terms::Flipped {
                terms: cluster_values(metric, stored.values.into_iter(), clusters),
                rounding: ROUNDING,
            },
            Some(clusters) => Terms::Flipped {
                terms: clustered::sums(clusters, stored.items().map(term)),
                rounding: ROUNDING,
            },
            None if metric.significance_test() != SignificanceTest::Wald => Terms::Flipped {
                terms: stored.items().map(term).collect(),
                rounding: 0.0,
            },
            None => Terms::Compared(stored, contribution),
        };
        Self {
            terms,
            value,
            has_estimate,
        }
    }

    /// Returns the size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.terms {
            Terms::Flipped { terms, .. } => 8 * terms.len(),
            Terms::Compared(items, _) => 8 * items.values.len() + items.rights.len(),
        }
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
/// which is McNemar's for contributions that are 0 or 1. Others get the comparison test. With
/// clusters, every metric gets the sign-flip test over clusters.
pub fn test_pair(metric: Metric, first: &EntryItems, second: &EntryItems) -> Evidence {
    match (&first.terms, &second.terms) {
        (
            Terms::Flipped {
                terms: one,
                rounding,
            },
            Terms::Flipped { terms: other, .. },
        ) => {
            let differs =
                |one: f64, other: f64| (one - other).abs() > rounding * one.abs().max(other.abs());
            let mut differences: Vec<f64> = one
                .iter()
                .zip(other)
                .filter(|(one, other)| differs(**one, **other))
                .map(|(one, other)| one - other)
                .collect();
            let p_value = sign_flip::p_value(&mut differences);
            let sum: f64 = differences.iter().sum();
            Evidence::new(p_value, (sum > 0.0) != metric.lower_is_better())
        }
        (Terms::Compared(one, of_one), Terms::Compared(other, of_other)) => {
            let mut pairs = Pairs::new(metric);
            pairs.add((one, of_one), (other, of_other), None);
            let difference = first.value - second.value;
            let has_estimates = first.has_estimate && second.has_estimate;
            let found = pairs.finish(difference, 0.0, has_estimates);
            Evidence::new(
                found.p_value,
                (difference > 0.0) != metric.lower_is_better(),
            )
        }
        // The entries of one board have one metric and the same items.
        (Terms::Flipped { .. }, Terms::Compared(..))
        | (Terms::Compared(..), Terms::Flipped { .. }) => Evidence(0.0),
    }
}
