//! Comparisons of two jobs over the same hidden items.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::JobId;
use crate::model::suite::SuiteId;

/// Which two jobs to compare.
#[derive(ToSchema)]
pub struct ComparisonCreate {
    /// A succeeded job of the organization.
    #[schema(value_type = JobId)]
    pub job_a: String,
    /// Another one, on the same version of the same suite.
    #[schema(value_type = JobId)]
    pub job_b: String,
}

/// How two jobs differ, and how sure that is. What an item's two scores are is never told.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Comparison {
    /// The one.
    pub job_a: JobId,
    /// The other.
    pub job_b: JobId,
    /// The suite of both.
    pub suite_id: SuiteId,
    /// The version that both were scored against.
    pub suite_version: String,
    /// The suite's metric.
    pub metric: String,
    /// Number of items in the suite, which are compared pair by pair.
    #[schema(minimum = 1)]
    pub n: i64,
    /// Job a's value.
    pub value_a: f64,
    /// Job b's value.
    pub value_b: f64,
    /// `value_a` less `value_b`.
    pub difference: f64,
    /// Standard error of the difference, from the differences of the items; null where there is none of one of the values.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The difference's interval of 95 % confidence: low, high. Null where `stderr` is.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// How it was found: `bonett_price`, `normal` or `delta`.
    pub ci_method: Option<String>,
    /// How likely a difference at least as large is, either way, if the two are equally good; 1 where nothing can be said.
    #[schema(minimum = 0, maximum = 1)]
    pub p_value: f64,
    /// How it was found: `mcnemar`, `permutation` or `wald`.
    pub p_method: String,
    /// Number of items whose two scores differ; null where an item has no score of its own, or scores are released rounded.
    #[schema(minimum = 0)]
    pub n_differ: Option<i64>,
    /// What counts as one point of this metric: 0.01, or a hundredth of the larger value where there is no largest.
    #[schema(minimum = 0)]
    pub point: f64,
    /// How many items a suite would need for a difference of one point between such two to be found four times of five; null
    /// where nothing differs, or scores are released rounded.
    #[schema(minimum = 1)]
    pub n_needed: Option<i64>,
}
