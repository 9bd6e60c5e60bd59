//! Comparisons of two jobs, item by item.

use assay_eval::compare::Side;
use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::{JobId, SuiteId};

/// A job of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComparisonSide {
    /// The first job.
    A,
    /// The second job.
    B,
}

impl ComparisonSide {
    /// Returns the value in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl From<ComparisonSide> for String {
    fn from(side: ComparisonSide) -> Self {
        side.as_str().to_owned()
    }
}

impl From<Side> for ComparisonSide {
    fn from(side: Side) -> Self {
        match side {
            Side::A => Self::A,
            Side::B => Self::B,
        }
    }
}

/// The difference of two jobs, and its uncertainty. The scores of single items are not disclosed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Comparison {
    /// The id of the first job.
    pub job_a: JobId,
    /// The id of the second job. Empty if the first job was compared with a baseline.
    pub job_b: String,
    /// The name of the baseline that takes the place of the second job. Absent if two jobs were
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 100)]
    pub baseline: Option<String>,
    /// The id of the suite of both jobs.
    pub suite_id: SuiteId,
    /// The version of the suite that both jobs were scored against.
    pub suite_version: String,
    /// The metric of the suite, such as `accuracy` or `ndcg@10`.
    pub metric: String,
    /// The number of items that are compared pair by pair: all items of the suite, or its open
    /// items.
    #[schema(minimum = 1)]
    pub n: i64,
    /// The value of the first job, in units of the metric.
    pub value_a: f64,
    /// The value of the second job, in units of the metric.
    pub value_b: f64,
    /// `value_a` minus `value_b`.
    pub difference: f64,
    /// The standard error of the difference, from the differences of the items. Null if one of the
    /// two values has no standard error.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of the difference: its low end, then its high end. Null if
    /// `stderr` is null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The method of `ci95`: `bonett_price`, `normal`, `delta` or `cluster_t`. Null if `ci95` is null.
    pub ci_method: Option<String>,
    /// The two-sided p-value of the hypothesis that the two jobs are equally good: the probability
    /// of a difference at least as large. It is 1 if the data do not allow a test.
    #[schema(minimum = 0, maximum = 1)]
    pub p_value: f64,
    /// The method of `p_value`: `mcnemar`, `permutation`, `wald`, `cluster_sign_flip` or
    /// `cluster_wald`.
    pub p_method: String,
    /// The number of items whose two scores differ. Null if the items have no scores of their own,
    /// or if the suite rounds its figures.
    #[schema(minimum = 0)]
    pub n_differ: Option<i64>,
    /// The size of one point of this metric: 0.01, or a hundredth of the larger of the two values
    /// for metrics with `clip`: `rmse`, `mae`, `log_loss`, `kl`, `pinball` and `wis`.
    #[schema(minimum = 0)]
    pub point: f64,
    /// The number of items that a suite needs to show a difference of one point between two such
    /// jobs, at a level of 5 % and with a power of 80 %. Null if no item differs, or if the suite
    /// rounds its figures.
    #[schema(minimum = 1)]
    pub n_needed: Option<i64>,
    /// True if a smaller value of the metric is better.
    pub lower_is_better: bool,
    /// The job with the better value in the direction of the metric. Null if the difference is 0.
    pub better: Option<ComparisonSide>,
    /// True if `p_value` is below 0.05.
    pub is_significant: bool,
    /// The number of clusters among the `n` items. Absent if the items are independent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub n_clusters: Option<i64>,
    /// The number of clusters in which the two jobs differ. Absent if the items are independent, or
    /// if the suite rounds its figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub n_clusters_differ: Option<i64>,
    /// The number of clusters that a suite needs to show a difference of one point between two such
    /// jobs, at a level of 5 % and with a power of 80 %. Absent if the items are independent, if no
    /// cluster differs, or if the suite rounds its figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub n_clusters_needed: Option<i64>,
}
