//! The difference of two jobs, and its uncertainty.

use statrs::distribution::{ContinuousCDF as _, Normal};

use crate::metric::SignificanceTest;
use crate::stats::confidence::around;

/// The uncertainty of the difference between two jobs' values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The standard error, in metric units; `None` if it cannot be estimated.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval; `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The name of the interval's method: `bonett_price`, `normal` or `delta`.
    pub ci_method: &'static str,
    /// The p-value for the hypothesis that the two jobs are equally good.
    pub p_value: f64,
    /// The test's name: `mcnemar`, `permutation` or `wald`.
    pub p_method: &'static str,
    /// Items whose scores differ; `None` if the items have no scores.
    pub n_differ: Option<u64>,
    /// The item count with which a one-[`point`](super::point) difference would be found in four
    /// out of five comparisons; `None` if it cannot be estimated.
    pub n_needed: Option<u64>,
}

impl Difference {
    /// Returns the uncertainty for a suite that discloses rounded figures. It depends on the
    /// rounded values' difference and the rounded standard error only, so that it discloses nothing
    /// else.
    pub fn rounded(self, difference: f64, round: impl Fn(f64) -> f64) -> Self {
        Self {
            stderr: self.stderr.map(&round),
            ci95: self
                .stderr
                .map(|stderr| around(difference, stderr).map(&round)),
            ci_method: "normal",
            p_value: wald(difference, self.stderr.map(&round)),
            p_method: SignificanceTest::Wald.as_str(),
            n_differ: None,
            n_needed: None,
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
