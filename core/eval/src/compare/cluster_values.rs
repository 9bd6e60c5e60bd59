//! The values of clusters, for suites whose value is the mean over clusters of the metric within the
//! cluster.
//!
//! Two jobs that are exchangeable within each person may swap their predictions for one person. That
//! swaps their values v_g for this person and changes no other value, so the sign-flip test needs D_g =
//! v_g of the one minus v_g of the other job, which has the weight 1/G in the difference. The sum over
//! the differences of the contributions is different if persons have different numbers of items: it
//! contains the difference of the whole values, which a swap for one person changes for all persons.
//! With `rmse`, D_g is a difference of two roots. Sums over squared errors would weight persons with
//! large errors more than the value does.

use super::cluster_differences::ClusterDifferences;
use crate::clusters::{ClusterSizes, Clusters};
use crate::metric::Metric;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;

/// Values that differ by at most this part of the larger one are equal but for rounding.
const ROUNDING: f64 = 1e-12;

/// Returns the term of an item in its cluster's value.
fn term(metric: Metric, stored: f64) -> f64 {
    if metric.is_root() {
        stored * stored
    } else {
        stored
    }
}

/// Returns the value of a cluster with this many items from the sum over their terms. It is NaN if the
/// cluster is left out.
fn value(metric: Metric, sum: f64, size: f64) -> f64 {
    let mean = sum / size;
    if metric.is_root() { mean.sqrt() } else { mean }
}

/// Returns the value of each cluster that is not left out, from the stored values of all items.
pub(crate) fn cluster_values(
    metric: Metric,
    stored: impl Iterator<Item = f64>,
    clusters: &Clusters,
) -> Vec<f64> {
    let sums = clustered::sums(clusters, stored.map(|stored| term(metric, stored)));
    let sums = sums.into_iter().zip(clusters.sizes().iter());
    let values = sums.map(|(sum, size)| value(metric, sum, size));
    values.filter(|value| !value.is_nan()).collect()
}

/// Two jobs' stored values, summed by cluster.
#[derive(Default)]
pub(super) struct ClusterValues {
    sizes: ClusterSizes,
    sums: Vec<[Sum; 2]>,
}

impl ClusterValues {
    /// Adds an item of this cluster with the stored values of both jobs.
    pub(super) fn add(&mut self, metric: Metric, cluster: usize, stored: [f64; 2]) {
        self.sizes.add(cluster);
        if cluster >= self.sums.len() {
            self.sums.resize(cluster + 1, Default::default());
        }
        let sums = self.sums[cluster].iter_mut();
        sums.zip(stored)
            .for_each(|(sum, stored)| sum.add(term(metric, stored)));
    }

    /// Returns the differences between the values of the clusters that are not left out. Each counts
    /// as one item.
    pub(super) fn differences(self, metric: Metric) -> ClusterDifferences {
        let mut differences = ClusterDifferences::default();
        let mut n = 0;
        for (sums, size) in self.sums.into_iter().zip(self.sizes.iter()) {
            let [one, other] = sums.map(|sum| value(metric, sum.total(), size));
            if one.is_nan() || other.is_nan() {
                continue;
            }
            let difference = match one - other {
                rest if rest.abs() <= ROUNDING * one.abs().max(other.abs()) => 0.0,
                difference => difference,
            };
            differences.add(n, difference, difference);
            n += 1;
        }
        differences
    }
}
