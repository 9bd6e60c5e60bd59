//! Noise ceilings: the value that a second set of human answers reaches.

use assay_eval::score as eval;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The noise ceiling: the value that a second set of human answers reaches, or the noise floor if answers
/// are few people's shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ceiling {
    /// The source of the ceiling. `retest`: further answers of people to the same items. `sampling`: the
    /// number of people behind each answer.
    pub kind: String,
    /// The metric over the items with retest answers, which count as predictions. With `sampling`, the
    /// expected loss of a perfect model.
    pub value: f64,
    /// The standard error of `value`. Null if it cannot be estimated, with `sampling`, and if `release` is
    /// a ladder.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The number of items with retest answers, at least 50; with `sampling`, of all items.
    #[schema(minimum = 1)]
    pub n: i64,
}

impl From<eval::Ceiling> for Ceiling {
    fn from(ceiling: eval::Ceiling) -> Self {
        let eval::Ceiling {
            kind,
            value,
            stderr,
            ci95,
            n,
        } = ceiling;
        Self {
            kind: kind.to_owned(),
            value,
            stderr,
            ci95,
            n,
        }
    }
}

/// The share of the noise ceiling that a job reaches. It is not cut: it can be negative or above 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShareOfCeiling {
    /// The value divided by the ceiling; if a smaller value of the metric is better, the share of the
    /// way from the best trivial submission to the ceiling.
    pub value: f64,
    /// The standard error of `value`, which contains the error of the ceiling. Null if it cannot be
    /// estimated.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
}

impl From<eval::ShareOfCeiling> for ShareOfCeiling {
    fn from(share: eval::ShareOfCeiling) -> Self {
        Self {
            value: share.value,
            stderr: share.stderr,
            ci95: share.ci95,
        }
    }
}
