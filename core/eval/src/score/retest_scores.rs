//! The scores of a retest: the noise ceiling, and the share of it that a job reaches.

use serde::Serialize;

use crate::clusters::Clusters;
use crate::item_scores::Bits;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Z, stderr_of_influences};

/// The value that a second set of human answers reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceiling {
    /// The source of the ceiling: `retest`, or `sampling` for a noise floor.
    pub kind: &'static str,
    /// The metric over the items with retest answers, which count as predictions; or the expected loss of
    /// a perfect model.
    pub value: f64,
    /// The standard error. `None` if it is not disclosed.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The number of items with retest answers, or with a number of people.
    pub n: i64,
}

impl Ceiling {
    /// Returns the ceiling with rounded figures.
    #[must_use]
    pub(crate) fn rounded(self, round: impl Fn(f64) -> f64) -> Self {
        Self {
            value: round(self.value),
            stderr: self.stderr.map(&round),
            ci95: self.ci95.map(|ends| ends.map(&round)),
            ..self
        }
    }

    /// Returns the value alone, changed by `disclose`.
    #[must_use]
    pub(crate) fn value_only(self, disclose: impl Fn(f64) -> f64) -> Self {
        Self {
            value: disclose(self.value),
            stderr: None,
            ci95: None,
            ..self
        }
    }
}

/// The share of the ceiling that a job's value reaches. It is not cut: it can be negative or above 1.
///
/// With the value a and the ceiling κ, it is a/κ if higher is better (the center of Brain-Score's
/// `ceil_score`), and (u − a)/(u − κ) if lower is better, where u is the value of the best trivial
/// submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShareOfCeiling {
    /// The share.
    pub value: f64,
    /// The standard error, with the error of the ceiling. `None` if it cannot be estimated.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The value whose share is 0.
    #[serde(skip)]
    origin: f64,
}

/// Returns the share of the way from the origin to the ceiling at which a value is.
fn share_between(value: f64, ceiling: f64, origin: f64) -> f64 {
    (value - origin) / (ceiling - origin)
}

impl ShareOfCeiling {
    /// Returns the share of a rounded value and a rounded ceiling, itself rounded. `None` if the ceiling
    /// is rounded to the value whose share is 0.
    pub(crate) fn rounded(
        self,
        value: f64,
        ceiling: f64,
        round: impl Fn(f64) -> f64,
    ) -> Option<Self> {
        let origin = round(self.origin);
        (ceiling != origin).then(|| Self {
            value: round(share_between(value, ceiling, origin)),
            stderr: self.stderr.map(&round),
            ci95: self.ci95.map(|ends| ends.map(&round)),
            origin,
        })
    }
}

/// The scores of a table's retest: the ceiling, and the contributions to it.
#[derive(Debug)]
pub struct RetestScores {
    pub(super) ceiling: Ceiling,
    /// The publisher's warning about the ceiling.
    pub(super) warning: Option<String>,
    pub(super) is_retested: Bits,
    /// The contribution of each retested item, in the suite's order. Their mean is the ceiling.
    pub(super) contributions: Vec<f64>,
    /// `None` if the ceiling is not better than the best trivial submission.
    pub(super) origin: Option<Origin>,
}

/// The figure whose share of the ceiling is 0.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) value: f64,
    /// Each item's contribution to the value. Empty if the value is the number 0.
    pub(super) contributions: Vec<f64>,
}

impl RetestScores {
    /// Returns the ceiling.
    pub fn ceiling(&self) -> Ceiling {
        self.ceiling
    }

    /// Returns what the publisher should know about the ceiling: no job has a share of one that is not
    /// better than the best trivial submission.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the share of the ceiling that a job reaches. The mean of its items' contributions is
    /// `value`. The standard error is that of the delta method, and contains the error of the ceiling.
    pub(super) fn share(
        &self,
        clusters: Option<&Clusters>,
        value: f64,
        contributions: impl Iterator<Item = f64>,
        n: usize,
    ) -> Option<ShareOfCeiling> {
        let origin = self.origin.as_ref()?;
        let zero = origin.value;
        let ceiling = self.ceiling.value;
        let share = share_between(value, ceiling, zero);
        let weight = n as f64 / self.contributions.len() as f64;
        let mut retested = self.contributions.iter();
        let influences = contributions.enumerate().map(|(item, contribution)| {
            let retest_influence = if self.is_retested.get(item) {
                retested
                    .next()
                    .map_or(0.0, |of_item| weight * (of_item - ceiling))
            } else {
                0.0
            };
            let from_origin = origin.contributions.get(item).copied();
            let origin_influence = from_origin.map_or(0.0, |of_item| of_item - zero);
            contribution - value - share * retest_influence - (1.0 - share) * origin_influence
        });
        let (stderr, half_width) = match clusters {
            Some(clusters) => {
                let sums = clustered::sums(clusters, influences);
                let sizes = clusters.sizes();
                (
                    clustered::stderr(sizes, sums.into_iter()),
                    clustered::half_width(sizes.degrees()),
                )
            }
            None => {
                let squares: Sum = influences.map(|influence| influence * influence).collect();
                let squares = squares.total() / n as f64 / n as f64;
                (stderr_of_influences(squares, n), Z)
            }
        };
        let stderr = stderr.map(|stderr| stderr / (ceiling - zero).abs());
        Some(ShareOfCeiling {
            value: share,
            stderr,
            ci95: stderr.map(|stderr| [share - half_width * stderr, share + half_width * stderr]),
            origin: zero,
        })
    }

    /// Returns the heap memory in bytes: 8 for each retested item, a bit for each item of the table, and
    /// 8 for each item if the metric is a loss.
    pub fn bytes(&self) -> usize {
        let origin = self
            .origin
            .as_ref()
            .map_or(0, |origin| origin.contributions.capacity());
        self.is_retested.bytes() + size_of::<f64>() * (self.contributions.capacity() + origin)
    }
}
