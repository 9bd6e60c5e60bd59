//! The test between two board entries.

use super::sign_flip;
use crate::clusters::Clusters;
use crate::compare::{Aggregate, Contribution, Pairs, StoredItems};
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
    /// Each item's stored value, with the rule for its contribution to the value.
    Items(StoredItems, Contribution),
    /// With clusters, the sum over each cluster's contributions; for `rmse`, over its squared
    /// errors.
    Clusters(Vec<f64>),
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
        let mut aggregate = Aggregate::new(metric);
        aggregate.add(&stored);
        let contribution = aggregate.contribution();
        let terms = match clusters {
            None => Terms::Items(stored, contribution),
            Some(clusters) => {
                let term = |item: usize| match metric {
                    Metric::Rmse => stored.values[item].powi(2),
                    _ => contribution.of(stored.item(item)),
                };
                let terms = (0..stored.values.len()).map(term);
                Terms::Clusters(clustered::sums(clusters, terms))
            }
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
            Terms::Items(items, _) => 8 * items.values.len() + items.rights.len(),
            Terms::Clusters(sums) => 8 * sums.len(),
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
        (Terms::Items(one, of_one), Terms::Items(other, of_other)) => {
            if metric.significance_test() != SignificanceTest::Wald {
                let items = one.values.iter().zip(&other.values);
                let differences = items
                    .filter(|(one, other)| one != other)
                    .map(|(one, other)| match metric {
                        // Larger for the larger error, and independent from all other items.
                        Metric::Rmse => one * one - other * other,
                        _ => one - other,
                    })
                    .collect();
                return sign_flip(metric, differences);
            }
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
        (Terms::Clusters(one), Terms::Clusters(other)) => {
            let differences = one.iter().zip(other);
            let differences = differences
                .filter(|(one, other)| {
                    (*one - *other).abs() > ROUNDING * one.abs().max(other.abs())
                })
                .map(|(one, other)| one - other)
                .collect();
            sign_flip(metric, differences)
        }
        // The entries of one board have the same items.
        (Terms::Items(..), Terms::Clusters(_)) | (Terms::Clusters(_), Terms::Items(..)) => {
            Evidence(0.0)
        }
    }
}

fn sign_flip(metric: Metric, mut differences: Vec<f64>) -> Evidence {
    let p_value = sign_flip::p_value(&mut differences);
    let sum: f64 = differences.iter().sum();
    Evidence::new(p_value, (sum > 0.0) != metric.lower_is_better())
}
