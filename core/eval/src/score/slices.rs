//! Scores a table's slices.

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, Item};
use super::by_cluster::estimate_by_cluster;
use super::part::{Part, PartFigure, needs_labels};
use super::slice_figures::{SliceFigures, SlicedField, Uncertainty};
use crate::clusters::Clusters;
use crate::item_scores::ItemScoresBuilder;
use crate::metric::Metric;
use crate::slices::FieldSlices;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;

/// Returns the figures of each field's slices. `items` have their values before the accumulator
/// finishes them.
pub(super) fn figures(
    table: &AnswerTable,
    metric: Metric,
    accumulator: &Accumulator<'_>,
    items: &ItemScoresBuilder,
) -> Vec<SlicedField> {
    let labels: Vec<u32> = if needs_labels(metric) && !table.slices().is_empty() {
        table.items().map(Item::label).collect()
    } else {
        Vec::new()
    };
    let scored = ScoredItems {
        table,
        metric,
        accumulator,
        items,
        labels: &labels,
    };
    let fields = table.slices().iter();
    fields.map(|field| scored.field(field)).collect()
}

struct ScoredItems<'s, 't> {
    table: &'t AnswerTable,
    metric: Metric,
    accumulator: &'s Accumulator<'t>,
    items: &'s ItemScoresBuilder,
    labels: &'s [u32],
}

/// A slice's part in the uncertainty of differences.
enum Spread {
    /// Items are independent: the standard error, and the number of items.
    Independent(f64, usize),
    /// Each cluster with items of the slice, ascending, with the sum over its items' contributions
    /// minus the value, divided by the number of the slice's items. Then the degrees of freedom.
    Clusters(Vec<(u32, f64)>, f64),
}

impl ScoredItems<'_, '_> {
    fn field(&self, field: &FieldSlices) -> SlicedField {
        let mut numbering = Numbering::default();
        let (slices, spreads): (Vec<_>, Vec<_>) = field
            .items()
            .iter()
            .zip(&field.groups)
            .map(|(places, group)| self.slice(group, places, &mut numbering))
            .unzip();
        let differences = (0..spreads.len()).map(|one| {
            let others = spreads[..one].iter();
            let difference = |other: &Option<Spread>| -> Option<Uncertainty> {
                spreads[one].as_ref()?.difference(other.as_ref()?)
            };
            others.map(difference).collect()
        });
        SlicedField::new(
            field.field.clone(),
            slices,
            differences.collect(),
            self.metric,
        )
    }

    fn slice(
        &self,
        group: &str,
        places: &[u32],
        numbering: &mut Numbering,
    ) -> (SliceFigures, Option<Spread>) {
        let part = Part {
            places,
            items: self.items,
            labels: self.labels,
        };
        let figure = self.accumulator.part(part);
        let mut estimate = figure.estimate;
        let n = part.len();
        let (n_clusters, spread) = match self.table.clusters() {
            None => {
                let spread = estimate.map(|estimate| Spread::Independent(estimate.stderr, n));
                (None, spread)
            }
            Some(all) => {
                let (clusters, numbers) = numbering.part(all, places);
                let range = self.metric.range(self.table.clip(), self.table.n_labels());
                estimate = estimate.and_then(|independent| {
                    let with_range = (figure.value, &independent, range);
                    let contributions = figure.contributions.iter().copied();
                    estimate_by_cluster(&clusters, with_range, contributions, part.stored())
                });
                let n_clusters = clusters.sizes().len() as i64;
                let spread = estimate.map(|_| spread(&figure, &clusters, numbers));
                (Some(n_clusters), spread)
            }
        };
        let slice = SliceFigures {
            group: group.to_owned(),
            n: n as i64,
            n_clusters,
            n_missing: part.n_missing() as i64,
            value: figure.value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
        };
        (slice, spread)
    }
}

/// Returns the spread of a slice by its clusters, which have these numbers among all clusters.
fn spread(figure: &PartFigure, clusters: &Clusters, numbers: Vec<u32>) -> Spread {
    let deviations = figure.contributions.iter().map(|one| one - figure.value);
    let sums = clustered::sums(clusters, deviations);
    let n = clusters.sizes().n_items();
    let mut deviations: Vec<(u32, f64)> = numbers
        .into_iter()
        .zip(sums)
        .map(|(number, sum)| (number, sum / n))
        .collect();
    deviations.sort_unstable_by_key(|(number, _)| *number);
    Spread::Clusters(deviations, clusters.sizes().degrees())
}

impl Spread {
    /// Returns the uncertainty of the difference between two slices. With clusters, one can have items
    /// in both.
    fn difference(&self, other: &Self) -> Option<Uncertainty> {
        match (self, other) {
            (Self::Independent(one, n_one), Self::Independent(other, n_other)) => {
                Some(Uncertainty {
                    stderr: one.hypot(*other),
                    degrees: ((*n_one).min(*n_other) as f64 - 1.0).max(1.0),
                })
            }
            (Self::Clusters(one, degrees_one), Self::Clusters(other, degrees_other)) => {
                let (squares, n) = squared_differences(one, other);
                Some(Uncertainty {
                    stderr: (n / (n - 1.0) * squares).sqrt(),
                    degrees: degrees_one.min(*degrees_other),
                })
            }
            // All slices of a suite are by cluster, or none is.
            (Self::Independent(..), Self::Clusters(..))
            | (Self::Clusters(..), Self::Independent(..)) => None,
        }
    }
}

/// Returns the sum over the squared differences between the clusters of two slices, and the number of
/// clusters in either slice.
fn squared_differences(one: &[(u32, f64)], other: &[(u32, f64)]) -> (f64, f64) {
    let mut squares = Sum::default();
    let mut n = 0.0;
    let (mut one, mut other) = (one, other);
    loop {
        let difference = match (one, other) {
            ([(a, of_one), rest_one @ ..], [(b, of_other), rest_other @ ..]) if a == b => {
                (one, other) = (rest_one, rest_other);
                of_one - of_other
            }
            ([(a, of_one), rest @ ..], [(b, _), ..]) if a < b => {
                one = rest;
                *of_one
            }
            ([(_, of_one), rest @ ..], []) => {
                one = rest;
                *of_one
            }
            (_, [(_, of_other), rest @ ..]) => {
                other = rest;
                *of_other
            }
            ([], []) => return (squares.total(), n),
        };
        squares.add(difference * difference);
        n += 1.0;
    }
}

/// Numbers the clusters of a part, without a table of all clusters for each part.
#[derive(Default)]
struct Numbering {
    /// Each cluster's number in the current part, or `u32::MAX`.
    in_part: Vec<u32>,
}

impl Numbering {
    /// Returns the clusters of a part's items, and the number of each among all clusters.
    fn part(&mut self, all: &Clusters, places: &[u32]) -> (Clusters, Vec<u32>) {
        self.in_part.resize(all.sizes().len(), u32::MAX);
        let mut numbers = Vec::new();
        let item_clusters = places.iter().map(|place| {
            let cluster = all.of(*place as usize);
            let number = &mut self.in_part[cluster];
            if *number == u32::MAX {
                *number = numbers.len() as u32;
                numbers.push(cluster as u32);
            }
            *number
        });
        let clusters = Clusters::numbered(item_clusters);
        numbers
            .iter()
            .for_each(|cluster| self.in_part[*cluster as usize] = u32::MAX);
        (clusters, numbers)
    }
}
