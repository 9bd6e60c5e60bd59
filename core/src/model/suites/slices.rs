//! Slices: the items of a suite with one value of a group field, such as those of one age group.

use assay_eval::Ladder;
use assay_eval::score as eval;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A suite's slices by one group field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteSlices {
    /// The group field, such as `age_group` or `input.age_group`.
    pub field: String,
    /// The slices. Empty if the field's values are hidden, like the answers.
    #[schema(max_items = 20)]
    pub groups: Vec<SuiteSlice>,
}

/// A suite's slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteSlice {
    /// The group field's value, or `_other` for all values that are too rare for slices of their own.
    #[schema(max_length = 200)]
    pub group: String,
    /// The number of items, open and sealed.
    #[schema(minimum = 50)]
    pub n: i64,
}

/// The figures by one group field: the metric over each slice's items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldSlices {
    /// The group field, such as `age_group` or `input.age_group`.
    pub field: String,
    /// The slices.
    #[schema(min_items = 2, max_items = 20)]
    pub groups: Vec<SliceFigures>,
    /// The slice with the worst value.
    #[schema(max_length = 200)]
    pub worst: String,
    /// The difference between the best and the worst slice. Absent if `release` is a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub gap: Option<SliceGap>,
}

/// The figures of a slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SliceFigures {
    /// The group field's value, or `_other` for all values that are too rare for slices of their own.
    #[schema(max_length = 200)]
    pub group: String,
    /// The number of items.
    #[schema(minimum = 50)]
    pub n: i64,
    /// The number of clusters. Absent if the items are independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 10)]
    pub n_clusters: Option<i64>,
    /// The number of items without a prediction. 0 if `release` is a ladder, which does not disclose it.
    #[schema(minimum = 0)]
    pub n_missing: i64,
    /// The value of the metric over the items of the slice. A correlation is 0 if all predictions of
    /// the slice are the same number.
    pub value: f64,
    /// The standard error of `value`. Null if it cannot be estimated, and if `release` is a ladder.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
}

/// The difference between a field's best and worst slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SliceGap {
    /// The best slice.
    #[schema(max_length = 200)]
    pub best: String,
    /// The worst slice.
    #[schema(max_length = 200)]
    pub worst: String,
    /// The largest value minus the smallest value.
    #[schema(minimum = 0)]
    pub value: f64,
    /// The 95 % confidence interval of `value`, simultaneous for all pairs: its low end, at least 0,
    /// then its high end. Null if a standard error is not known.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The p-value for equal slices, corrected for the number of pairs.
    /// Null if no standard error is known.
    #[schema(minimum = 0, maximum = 1)]
    pub p_value: Option<f64>,
    /// The number of slice pairs.
    #[schema(minimum = 1)]
    pub n_pairs: i64,
}

impl From<eval::SlicedField> for FieldSlices {
    fn from(of_field: eval::SlicedField) -> Self {
        Self {
            field: of_field.field,
            groups: of_field
                .groups
                .into_iter()
                .map(SliceFigures::from)
                .collect(),
            worst: of_field.worst,
            gap: of_field.gap.map(SliceGap::from),
        }
    }
}

impl From<eval::SliceFigures> for SliceFigures {
    fn from(figures: eval::SliceFigures) -> Self {
        let eval::SliceFigures {
            group,
            n,
            n_clusters,
            n_missing,
            value,
            stderr,
            ci95,
        } = figures;
        Self {
            group,
            n,
            n_clusters,
            n_missing,
            value,
            stderr,
            ci95,
        }
    }
}

impl From<eval::Gap> for SliceGap {
    fn from(gap: eval::Gap) -> Self {
        let eval::Gap {
            best,
            worst,
            value,
            ci95,
            p_value,
            n_pairs,
        } = gap;
        Self {
            best,
            worst,
            value,
            ci95,
            p_value,
            n_pairs,
        }
    }
}

/// A suite's slices by one group field, as they are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSlices {
    /// The field's name.
    pub field: String,
    /// Set if the field is in the lines of answers.
    pub is_hidden: bool,
    /// The slices. Where callers can read, those of a hidden field are left out.
    pub groups: Vec<StoredSlice>,
}

/// A suite's slice, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSlice {
    /// The value of the group field, or `_other`.
    pub group: String,
    /// The number of items, open and sealed.
    pub n: i64,
    /// The slice's grid under a ladder: its start, step and level count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<(f64, f64, u32)>,
}

impl StoredSlice {
    /// Returns the slice's grid, if the disclosure policy is a ladder.
    pub fn grid(&self) -> Option<Ladder> {
        self.ladder.map(|(start, step, levels)| Ladder {
            start,
            step,
            levels,
        })
    }
}

impl From<StoredSlices> for SuiteSlices {
    fn from(stored: StoredSlices) -> Self {
        let slice = |StoredSlice { group, n, .. }| SuiteSlice { group, n };
        Self {
            field: stored.field,
            groups: stored.groups.into_iter().map(slice).collect(),
        }
    }
}
