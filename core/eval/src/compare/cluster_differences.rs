//! Two jobs' differences by cluster, and what follows from them.

use super::difference::{Difference, DifferenceByCluster, needed};
use super::permutation_test::PermutationTest;
use crate::clusters::ClusterSizes;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;

/// A cluster's difference that is at most this part of its items' absolute differences is 0 but for
/// rounding.
const ROUNDING: f64 = 1e-12;

/// Two jobs' differences, summed by cluster.
#[derive(Default)]
pub(super) struct ClusterDifferences {
    sizes: ClusterSizes,
    sums: Vec<ClusterSum>,
}

/// The sums over the items of a cluster.
#[derive(Clone, Copy, Default)]
struct ClusterSum {
    /// Over the differences of the contributions.
    differences: Sum,
    /// Over the absolute differences that change their sign in the test.
    absolute: f64,
    /// Over the differences that change their sign in the test.
    permuted: Sum,
}

impl ClusterDifferences {
    /// Adds the difference at an item of this cluster. `permuted` is the difference that changes
    /// its sign in the test.
    pub(super) fn add(&mut self, cluster: usize, difference: f64, permuted: f64) {
        self.sizes.add(cluster);
        if cluster >= self.sums.len() {
            self.sums.resize(cluster + 1, ClusterSum::default());
        }
        let sum = &mut self.sums[cluster];
        sum.differences.add(difference);
        sum.absolute += permuted.abs();
        sum.permuted.add(permuted);
    }

    /// Returns the uncertainty of the difference between the two values over this many items.
    pub(super) fn finish(
        self,
        n_items: u64,
        difference: f64,
        point: f64,
        has_estimates: bool,
        n_differ: Option<u64>,
    ) -> Difference {
        let Self { sizes, sums } = self;
        let n = sizes.n_items();
        let total: Sum = sums.iter().map(|sum| sum.differences.total()).collect();
        let mean = total.total() / n.max(1.0);
        let deviations = sums
            .iter()
            .zip(sizes.iter())
            .map(|(sum, size)| sum.differences.total() - size * mean);
        let stderr = clustered::stderr(&sizes, deviations).filter(|_| has_estimates);
        let degrees = sizes.degrees();
        let ci95 = stderr.map(|stderr| {
            let half = clustered::half_width(degrees) * stderr;
            [difference - half, difference + half]
        });
        let mut test = PermutationTest::default();
        let mut permuted = Sum::default();
        let mut n_clusters_differ = 0;
        for sum in &sums {
            let absolute = sum.absolute;
            let sum = sum.permuted.total();
            if sum.abs() > ROUNDING * absolute {
                n_clusters_differ += 1;
                permuted.add(sum);
                test.add(sum.abs());
            }
        }
        let n_clusters = sizes.len() as f64;
        let n_clusters_needed = stderr
            .filter(|stderr| *stderr > 0.0 && point > 0.0)
            .map(|stderr| needed(n_clusters * stderr * stderr, point));
        Difference {
            stderr,
            ci95,
            ci_method: "cluster_t",
            p_value: test.p_value(permuted.total().abs()),
            p_method: "cluster_sign_flip",
            n_differ,
            n_needed: n_clusters_needed
                .map(|needed| (needed as f64 * n_items as f64 / n_clusters).ceil() as u64),
            clusters: Some(DifferenceByCluster {
                n: sizes.len() as u64,
                n_differ: Some(n_clusters_differ),
                n_needed: n_clusters_needed,
                degrees,
            }),
        }
    }
}
