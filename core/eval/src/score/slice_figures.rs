//! The figures of slices, and the gap between the best and the worst one.

use serde::Serialize;

use crate::metric::Metric;
use crate::stats::clustered;

/// The figures of one group field's slices: at least two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlicedField {
    /// The field's name.
    pub field: String,
    /// The slices, in the suite's order.
    pub groups: Vec<SliceFigures>,
    /// The name of the slice with the worst value.
    pub worst: String,
    /// The difference between the best and the worst slice. `None` if only values are disclosed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    #[serde(skip)]
    metric: Metric,
    /// For each slice, the uncertainty of its difference to each earlier one.
    #[serde(skip)]
    differences: Vec<Vec<Option<Uncertainty>>>,
}

/// One slice's figures: those of the metric over its items alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SliceFigures {
    /// The value of the group field, or `_other`.
    pub group: String,
    /// The number of items.
    pub n: i64,
    /// The number of clusters; `None` if items are independent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_clusters: Option<i64>,
    /// The number of items without a prediction.
    pub n_missing: i64,
    /// The metric. A correlation is 0 if all predictions of the slice are the same number.
    pub value: f64,
    /// The standard error; `None` if it cannot be estimated.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
}

/// The difference between the best and the worst slice of a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// The name of the best slice.
    pub best: String,
    /// The name of the worst slice.
    pub worst: String,
    /// The largest value minus the smallest one.
    pub value: f64,
    /// The gap's interval among simultaneous 95 % intervals for all pairs of slices (O. J. Dunn 1961),
    /// at least 0. `None` if a standard error is not known.
    pub ci95: Option<[f64; 2]>,
    /// The p-value of the hypothesis that all slices are equal: that of the most different pair, times
    /// the number of pairs, at most 1. `None` if no standard error is known.
    pub p_value: Option<f64>,
    /// The number of pairs.
    pub n_pairs: i64,
}

/// The uncertainty of a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Uncertainty {
    pub(super) stderr: f64,
    /// Student's degrees of freedom.
    pub(super) degrees: f64,
}

impl SlicedField {
    pub(super) fn new(
        field: String,
        groups: Vec<SliceFigures>,
        differences: Vec<Vec<Option<Uncertainty>>>,
        metric: Metric,
    ) -> Self {
        let gap = gap(&groups, &differences, metric);
        Self {
            field,
            worst: gap.worst.clone(),
            groups,
            gap: Some(gap),
            metric,
            differences,
        }
    }

    /// Returns the figures with a rounding: the gap is that of the rounded values and standard errors.
    #[must_use]
    pub fn rounded(self, round: impl Fn(f64) -> f64) -> Self {
        let groups = self.groups.into_iter().map(|slice| SliceFigures {
            value: round(slice.value),
            stderr: slice.stderr.map(&round),
            ci95: slice.ci95.map(|ends| ends.map(&round)),
            ..slice
        });
        let round_each = |row: Vec<Option<Uncertainty>>| {
            let rounded = |of: Uncertainty| Uncertainty {
                stderr: round(of.stderr),
                ..of
            };
            row.into_iter().map(|each| each.map(rounded)).collect()
        };
        let differences = self.differences.into_iter().map(round_each).collect();
        let field = Self::new(self.field, groups.collect(), differences, self.metric);
        Self {
            gap: field.gap.map(|gap| Gap {
                value: round(gap.value),
                ci95: gap.ci95.map(|ends| ends.map(&round)),
                ..gap
            }),
            ..field
        }
    }

    /// Returns the values alone, each changed by `disclose`, which gets the place of its slice. The
    /// numbers of missing predictions are 0: by leaving single items out, a caller would learn in
    /// which slices they are.
    #[must_use]
    pub fn values_only(self, disclose: impl Fn(usize, f64) -> f64) -> Self {
        let groups = self.groups.into_iter().enumerate();
        let groups: Vec<SliceFigures> = groups
            .map(|(place, slice)| SliceFigures {
                value: disclose(place, slice.value),
                n_missing: 0,
                stderr: None,
                ci95: None,
                ..slice
            })
            .collect();
        let (_, worst) = extremes(&groups, self.metric);
        Self {
            worst: groups[worst].group.clone(),
            groups,
            gap: None,
            ..self
        }
    }
}

/// Returns the places of the best and the worst slice. Equal slices have the first as the best and the
/// last as the worst.
fn extremes(groups: &[SliceFigures], metric: Metric) -> (usize, usize) {
    let goodness = |place: usize| {
        let value = groups[place].value;
        if metric.lower_is_better() {
            -value
        } else {
            value
        }
    };
    let (mut best, mut worst) = (0, 0);
    for place in 1..groups.len() {
        if goodness(place) > goodness(best) {
            best = place;
        }
        if goodness(place) <= goodness(worst) {
            worst = place;
        }
    }
    (best, worst)
}

fn gap(groups: &[SliceFigures], differences: &[Vec<Option<Uncertainty>>], metric: Metric) -> Gap {
    let n_pairs = groups.len() * groups.len().saturating_sub(1) / 2;
    let (best, worst) = extremes(groups, metric);
    let value = (groups[best].value - groups[worst].value).abs();
    let gap_error = differences[best.max(worst)][best.min(worst)];
    let p_values = differences.iter().enumerate().flat_map(|(one, row)| {
        let p_value = move |(other, of): (usize, &Option<Uncertainty>)| {
            let difference = groups[one].value - groups[other].value;
            of.map(|of| clustered::p_value(difference, of.stderr, of.degrees))
        };
        row.iter().enumerate().filter_map(p_value)
    });
    Gap {
        best: groups[best].group.clone(),
        worst: groups[worst].group.clone(),
        value,
        ci95: gap_error.map(|of| {
            let half = clustered::simultaneous_half_width(n_pairs, of.degrees) * of.stderr;
            [(value - half).max(0.0), value + half]
        }),
        p_value: p_values
            .reduce(f64::min)
            .map(|least| (least * n_pairs as f64).min(1.0)),
        n_pairs: n_pairs as i64,
    }
}
