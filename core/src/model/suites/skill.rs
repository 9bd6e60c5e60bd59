//! Skill: the share of a baseline's loss that a job avoids.

use assay_eval::score as eval;
use assay_eval::suite::{GroupField, SkillKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The baseline against which skill is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuiteSkill {
    /// The baseline: `uniform` predicts the same probability for each option of an item, `marginal` the
    /// mean of all answers.
    pub baseline: String,
    /// The group field within whose values skill is computed. Absent if all items are one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 206)]
    pub within: Option<String>,
}

/// The skill: the share of a simple baseline's loss that a job avoids. 1 is perfect, and 0 as good as the
/// baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skill {
    /// The baseline: `uniform` or `marginal`.
    pub baseline: String,
    /// The group field within whose values skill is computed. Absent if all items are one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 206)]
    pub within: Option<String>,
    /// The skill.
    pub value: f64,
    /// The standard error of `value`. Null if it cannot be estimated.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The method of `stderr` and `ci95`: `delta`, or `cluster_t` by cluster. Null if `stderr` is null.
    #[schema(max_length = 40)]
    pub ci_method: Option<String>,
}

impl From<&SkillKey> for SuiteSkill {
    fn from(key: &SkillKey) -> Self {
        Self {
            baseline: key.baseline.as_str().to_owned(),
            within: key
                .within
                .as_ref()
                .map(GroupField::as_str)
                .map(str::to_owned),
        }
    }
}

impl From<eval::Skill> for Skill {
    fn from(skill: eval::Skill) -> Self {
        let eval::Skill {
            baseline,
            within,
            value,
            stderr,
            ci95,
            ci_method,
        } = skill;
        Self {
            baseline: baseline.as_str().to_owned(),
            within,
            value,
            stderr,
            ci95,
            ci_method: ci_method.map(str::to_owned),
        }
    }
}
