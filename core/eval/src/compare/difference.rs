//! The difference of two jobs, and its uncertainty.

use statrs::distribution::{ContinuousCDF as _, Normal};

use crate::metric::SignificanceTest;
use crate::stats::clustered;
use crate::stats::confidence::Z;

/// The normal distribution's 80 % quantile, for 80 % power.
const Z_POWER: f64 = 0.841_621_233_572_914_3;

/// The uncertainty of the difference between two jobs' values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The standard error, in metric units; `None` if it cannot be estimated.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval; `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The name of the interval's method: `bonett_price`, `normal`, `delta` or `cluster_t`.
    pub ci_method: &'static str,
    /// The p-value for the hypothesis that the two jobs are equally good.
    pub p_value: f64,
    /// The test's name: `mcnemar`, `permutation`, `wald`, `cluster_sign_flip` or `cluster_wald`.
    pub p_method: &'static str,
    /// Items whose scores differ; `None` if the items have no scores.
    pub n_differ: Option<u64>,
    /// The item count with which a one-[`point`](super::point) difference would be found in four
    /// out of five comparisons; `None` if it cannot be estimated.
    pub n_needed: Option<u64>,
    /// Present if the items are in clusters.
    pub clusters: Option<DifferenceByCluster>,
}

/// The counts of a difference between two jobs whose items are in clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DifferenceByCluster {
    /// The number of clusters.
    pub n: u64,
    /// The number of clusters in which the jobs differ; `None` if the suite does not disclose it.
    pub n_differ: Option<u64>,
    /// The number of clusters with which a one-[`point`](super::point) difference would be found in
    /// four out of five comparisons; `None` if it cannot be estimated.
    pub n_needed: Option<u64>,
    /// Student's degrees of freedom.
    pub degrees: f64,
}

impl Difference {
    /// Returns the uncertainty for a suite that discloses rounded figures. It depends on the
    /// rounded values' difference and the rounded standard error only, so that it discloses nothing
    /// else.
    pub fn rounded(self, difference: f64, round: impl Fn(f64) -> f64) -> Self {
        let stderr = self.stderr.map(&round);
        let (half_width, ci_method, p_value, p_method) = match self.clusters {
            None => (
                Z,
                "normal",
                wald(difference, stderr),
                SignificanceTest::Wald.as_str(),
            ),
            Some(DifferenceByCluster { degrees, .. }) => {
                let p_value = |stderr| clustered::p_value(difference, stderr, degrees);
                (
                    clustered::half_width(degrees),
                    "cluster_t",
                    stderr.map_or(1.0, p_value),
                    "cluster_wald",
                )
            }
        };
        Self {
            stderr,
            ci95: self.stderr.map(|stderr| {
                let half = half_width * stderr;
                [difference - half, difference + half].map(&round)
            }),
            ci_method,
            p_value,
            p_method,
            n_differ: None,
            n_needed: None,
            clusters: self.clusters.map(|clusters| DifferenceByCluster {
                n_differ: None,
                n_needed: None,
                ..clusters
            }),
        }
    }
}

/// Returns the two-sided p-value for a normal difference with this standard error (A. Wald 1943).
pub(super) fn wald(difference: f64, stderr: Option<f64>) -> f64 {
    match stderr {
        Some(stderr) if difference != 0.0 => 2.0 * Normal::standard().sf(difference.abs() / stderr),
        _ => 1.0,
    }
}

/// Returns how many independent differences with this variance find a difference of one point in
/// four out of five comparisons.
pub(super) fn needed(variance: f64, point: f64) -> u64 {
    ((Z + Z_POWER).powi(2) * variance / (point * point))
        .ceil()
        .max(1.0) as u64
}
