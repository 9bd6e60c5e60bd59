//! Scores a table's slices.

use super::by_cluster::estimate_by_cluster;
use super::cluster_average::ClusterAverage;
use super::part::{Part, PartFigure};
use super::scored_items::ScoredItems;
use super::slice_figures::{SliceFigures, SlicedField, Uncertainty};
use crate::clusters::{ClusterSizes, Clusters};
use crate::slices::FieldSlices;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::Estimate;

/// Returns the figures of each field's slices.
pub(super) fn figures(scored: &ScoredItems<'_, '_>) -> Vec<SlicedField> {
    let fields = scored.table.slices().iter();
    fields.map(|field| field_figures(scored, field)).collect()
}

/// A slice's part in the uncertainty of differences.
enum Spread {
    /// Items are independent: the standard error, and the number of items.
    Independent(f64, usize),
    /// Each cluster with items of the slice, ascending, with the sum over its items' contributions
    /// minus the value, divided by the number of the slice's items. Then the degrees of freedom.
    Clusters(Vec<(u32, f64)>, f64),
}

fn field_figures(scored: &ScoredItems<'_, '_>, field: &FieldSlices) -> SlicedField {
    let mut numbering = Numbering::default();
    let (slices, spreads): (Vec<_>, Vec<_>) = field
        .items()
        .iter()
        .zip(&field.groups)
        .map(|(places, group)| {
            let part = scored.part(places);
            let found = slice_figure(scored, part, &mut numbering);
            let slice = SliceFigures {
                group: group.to_owned(),
                n: part.len() as i64,
                n_clusters: found.n_clusters.map(|n| n as i64),
                n_missing: part.n_missing() as i64,
                value: found.value,
                stderr: found.estimate.map(|estimate| estimate.stderr),
                ci95: found.estimate.map(|estimate| estimate.ci95),
            };
            (slice, found.spread)
        })
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
        scored.metric,
    )
}

/// A slice's figure with its uncertainty.
struct SliceFigure {
    value: f64,
    estimate: Option<Estimate>,
    /// `None` if items are independent.
    n_clusters: Option<usize>,
    /// `None` without an estimate.
    spread: Option<Spread>,
}

fn slice_figure(
    scored: &ScoredItems<'_, '_>,
    part: Part<'_>,
    numbering: &mut Numbering,
) -> SliceFigure {
    let Some(all) = scored.table.clusters() else {
        let PartFigure {
            value, estimate, ..
        } = scored.accumulator.part(part);
        return SliceFigure {
            value,
            estimate,
            n_clusters: None,
            spread: estimate.map(|estimate| Spread::Independent(estimate.stderr, part.len())),
        };
    };
    let (clusters, numbers) = numbering.part(all, part.places);
    if scored.table.averages_clusters() {
        let average = ClusterAverage::of(scored, part, &clusters);
        let influences = numbers.into_iter().zip(average.influences());
        let influences = influences.filter_map(|(number, influence)| Some((number, influence?)));
        let degrees = ClusterSizes::single_items(average.n).degrees();
        return SliceFigure {
            value: average.value,
            estimate: average.estimate,
            n_clusters: Some(average.n),
            spread: average
                .estimate
                .map(|_| Spread::by_cluster(influences.collect(), degrees)),
        };
    }
    let figure = scored.accumulator.part(part);
    let estimate = figure.estimate.and_then(|independent| {
        let scorer = (scored.table, scored.metric);
        let value = (figure.value, &independent);
        let contributions = figure.contributions.iter().copied();
        estimate_by_cluster(&clusters, scorer, value, contributions, part.stored())
    });
    SliceFigure {
        value: figure.value,
        estimate,
        n_clusters: Some(clusters.sizes().len()),
        spread: estimate.map(|_| spread(&figure, &clusters, numbers)),
    }
}

/// Returns the spread of a slice by its clusters, which have these numbers among all clusters.
fn spread(figure: &PartFigure, clusters: &Clusters, numbers: Vec<u32>) -> Spread {
    let deviations = figure.contributions.iter().map(|one| one - figure.value);
    let sums = clustered::sums(clusters, deviations);
    let n = clusters.sizes().n_items();
    let influences = numbers.into_iter().zip(sums.into_iter().map(|sum| sum / n));
    Spread::by_cluster(influences.collect(), clusters.sizes().degrees())
}

impl Spread {
    /// Returns the spread of a slice whose clusters have these numbers and influences.
    fn by_cluster(mut influences: Vec<(u32, f64)>, degrees: f64) -> Self {
        influences.sort_unstable_by_key(|(number, _)| *number);
        Self::Clusters(influences, degrees)
    }

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
