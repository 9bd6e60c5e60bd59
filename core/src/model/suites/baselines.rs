//! Baselines: submissions that a suite's publisher pins, such as what people reach.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::text_enum::text_enum;
use assay_eval::board as board_eval;
use assay_eval::suite as eval;

text_enum! {
    /// The source of a baseline's predictions.
    pub enum BaselineKind {
        /// People.
        Human = "human",
        /// A model.
        Model = "model",
        /// The distribution of the answers, without knowledge about single items.
        Trivial = "trivial",
    }
}

impl From<eval::BaselineKind> for BaselineKind {
    fn from(kind: eval::BaselineKind) -> Self {
        match kind {
            eval::BaselineKind::Human => Self::Human,
            eval::BaselineKind::Model => Self::Model,
            eval::BaselineKind::Trivial => Self::Trivial,
        }
    }
}

/// A suite's baseline: a submission that its publisher pins, or a trivial one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SuiteBaseline {
    /// The name, by which jobs are compared with it.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// The source of its predictions.
    pub kind: BaselineKind,
    /// A page about it. Null if there is none.
    #[schema(max_length = 512, format = "uri")]
    pub url: Option<String>,
    /// The value of the metric over the open items, as the suite discloses it.
    pub value: f64,
    /// The standard error of `value`. Null if it cannot be estimated or is not disclosed.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The number of open items without a prediction.
    #[schema(minimum = 0)]
    pub n_missing: i64,
    /// The figures over the sealed items. Absent before the suite has closed, and without sealed
    /// items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sealed: Option<SealedBaseline>,
}

/// A baseline's figures over the sealed items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SealedBaseline {
    /// The value of the metric.
    pub value: f64,
    /// The standard error of `value`. Null if it cannot be estimated.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The number of sealed items without a prediction.
    #[schema(minimum = 0)]
    pub n_missing: i64,
}

/// A baseline on a board. It has no tier and no rank, and changes nothing about the entries.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BoardBaseline {
    /// The name.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// The source of its predictions.
    pub kind: BaselineKind,
    /// A page about it. Null if there is none.
    #[schema(max_length = 512, format = "uri")]
    pub url: Option<String>,
    /// The value of the metric over the items in the tests, as the suite discloses it.
    pub value: f64,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if the suite
    /// does not disclose it or it cannot be estimated.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
}

text_enum! {
    /// The result of an entry's test against a baseline.
    pub enum VsBaselineResult {
        /// The entry is significantly better.
        Better = "better",
        /// The entry is significantly worse.
        Worse = "worse",
        /// The data do not separate them.
        NotSeparated = "not_separated",
    }
}

impl From<board_eval::VsBaseline> for VsBaselineResult {
    fn from(result: board_eval::VsBaseline) -> Self {
        match result {
            board_eval::VsBaseline::Better => Self::Better,
            board_eval::VsBaseline::Worse => Self::Worse,
            board_eval::VsBaseline::NotSeparated => Self::NotSeparated,
        }
    }
}

/// An entry's test against a baseline. All these tests of a board are corrected together (Holm) at
/// a level of 0.05 of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VsBaseline {
    /// The name of the baseline.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// The result.
    pub result: VsBaselineResult,
}
