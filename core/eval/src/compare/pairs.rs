//! Two jobs' item pairs, and what follows from them.

use super::cluster_differences::ClusterDifferences;
use super::cluster_values::ClusterValues;
use super::contribution::{Contribution, StoredItems};
use super::difference::{Difference, needed, wald};
use super::mcnemar::{bonett_price, mcnemar};
use super::permutation_test::PermutationTest;
use crate::clusters::Average;
use crate::metric::{Form, Metric, SignificanceTest};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::around;

/// Two jobs' items, pair by pair.
pub struct Pairs {
    metric: Metric,
    average: Average,
    /// The sums by cluster; empty if items are independent.
    clusters: Option<SumsByCluster>,
    test: SignificanceTest,
    n: u64,
    /// Item counts at which the first job and the second job is better, for McNemar's test.
    more: u64,
    less: u64,
    n_differ: u64,
    /// The sum over the contributions' differences, and over their squares.
    sum: Sum,
    squares: Sum,
    /// The sum over the permutation test's differences.
    permuted_sum: Sum,
    permutation_test: PermutationTest,
}

/// Two jobs' sums by cluster.
enum SumsByCluster {
    /// For the metric over all items.
    Differences(ClusterDifferences),
    /// For the mean over clusters.
    Values(ClusterValues),
}

impl SumsByCluster {
    fn new(average: Average) -> Self {
        match average {
            Average::Item => Self::Differences(ClusterDifferences::default()),
            Average::Cluster => Self::Values(ClusterValues::default()),
        }
    }
}

impl Pairs {
    /// Creates a comparison without items.
    pub fn new(metric: Metric) -> Self {
        Self {
            metric,
            average: Average::Item,
            clusters: None,
            test: metric.significance_test(),
            n: 0,
            more: 0,
            less: 0,
            n_differ: 0,
            sum: Sum::default(),
            squares: Sum::default(),
            permuted_sum: Sum::default(),
            permutation_test: PermutationTest::default(),
        }
    }

    /// Sets the unit that has equal weights in the jobs' values. With [`Average::Cluster`], each item needs its
    /// cluster.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.average = average;
        self
    }

    /// Adds both jobs' next items, each with the contributions to its job's figure. `clusters` has
    /// the cluster of each, if items are not independent: numbers from 0 without gaps, by the first
    /// item of all.
    pub fn add(
        &mut self,
        (one, of_one): (&StoredItems, &Contribution),
        (other, of_other): (&StoredItems, &Contribution),
        clusters: Option<&[u32]>,
    ) {
        let form = self.metric.form();
        for item in 0..one.values.len().min(other.values.len()) {
            self.n += 1;
            let difference = of_one.of(one.item(item)) - of_other.of(other.item(item));
            self.n_differ += u64::from(match form {
                Form::Counts => one.rights[item] != other.rights[item],
                Form::Gaps => {
                    one.values[item] != other.values[item] || one.rights[item] != other.rights[item]
                }
                _ => one.values[item] != other.values[item],
            });
            let permuted = match form {
                // The contribution depends on all items. The squared error does not, and RMSE grows
                // with the squared errors' sum.
                Form::Root => one.values[item].powi(2) - other.values[item].powi(2),
                _ => difference,
            };
            if let Some(clusters) = clusters {
                let cluster = clusters[item] as usize;
                let sums = || SumsByCluster::new(self.average);
                match self.clusters.get_or_insert_with(sums) {
                    SumsByCluster::Differences(sums) => sums.add(cluster, difference, permuted),
                    SumsByCluster::Values(sums) => {
                        let stored = [one.values[item], other.values[item]];
                        sums.add(self.metric, cluster, stored);
                    }
                }
                continue;
            }
            if difference == 0.0 {
                continue;
            }
            self.sum.add(difference);
            self.squares.add(difference * difference);
            match self.test {
                SignificanceTest::McNemar if difference > 0.0 => self.more += 1,
                SignificanceTest::McNemar => self.less += 1,
                SignificanceTest::Permutation => {
                    self.permuted_sum.add(permuted);
                    self.permutation_test.add(permuted.abs());
                }
                SignificanceTest::Wald => {}
            }
        }
    }

    /// Returns the uncertainty of the difference between the two values. `point` is the difference
    /// that the suite should be able to find. If a value has no estimate, `has_estimates` is
    /// `false`, and the difference has no standard error either.
    pub fn finish(self, difference: f64, point: f64, has_estimates: bool) -> Difference {
        let n_differ = self.metric.has_item_scores().then_some(self.n_differ);
        if let Some(clusters) = self.clusters {
            let differences = match clusters {
                SumsByCluster::Differences(sums) => sums,
                SumsByCluster::Values(sums) => sums.differences(self.metric),
            };
            return differences.finish(self.n, difference, point, has_estimates, n_differ);
        }
        let Self {
            metric,
            average: _,
            clusters: _,
            test,
            n,
            more,
            less,
            n_differ: n_items_differ,
            sum,
            squares,
            permuted_sum,
            permutation_test,
        } = self;
        let items = n as f64;
        let mean = sum.total() / n.max(1) as f64;
        let variance = (n > 1 && has_estimates)
            .then(|| ((squares.total() - items * mean * mean) / (items - 1.0)).max(0.0));
        let stderr = variance.map(|variance| (variance / items).sqrt());
        let ci95 = match stderr {
            Some(_) if test == SignificanceTest::McNemar => Some(bonett_price(more, less, n)),
            _ => stderr.map(|stderr| around(difference, stderr)),
        };
        Difference {
            stderr,
            ci95,
            ci_method: match test {
                SignificanceTest::McNemar => "bonett_price",
                SignificanceTest::Permutation if !metric.is_root() => "normal",
                SignificanceTest::Permutation | SignificanceTest::Wald => "delta",
            },
            p_value: match test {
                SignificanceTest::McNemar => mcnemar(more, less),
                SignificanceTest::Permutation => {
                    permutation_test.p_value(permuted_sum.total().abs())
                }
                // With few differing items the normal approximation claims more than any exact test
                // could.
                SignificanceTest::Wald if metric.has_item_scores() => wald(difference, stderr)
                    .max(0.5_f64.powf(n_items_differ as f64 - 1.0))
                    .min(1.0),
                SignificanceTest::Wald => wald(difference, stderr),
            },
            p_method: test.as_str(),
            n_differ,
            n_needed: variance
                .filter(|variance| *variance > 0.0 && point > 0.0)
                .map(|variance| needed(variance, point)),
            clusters: None,
        }
    }
}

/// Returns one point's size: 0.01 for metrics with a largest value, otherwise a hundredth of the
/// larger value.
pub fn point(metric: Metric, value_a: f64, value_b: f64) -> f64 {
    if metric.takes_clip() {
        value_a.max(value_b) / 100.0
    } else {
        0.01
    }
}
