//! Values that are the mean over the clusters of the metric within the cluster.

use super::part::Part;
use super::result::{ClusterFigures, Figures};
use super::scored_items::ScoredItems;
use crate::clusters::{ClusterSizes, Clusters};
use crate::item_scores::ItemScoresBuilder;
use crate::metric::{Metric, Scale};
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, stderr_of_mean};

/// The metric within each cluster, and the mean.
pub(super) struct ClusterAverage {
    metric: Metric,
    /// Each cluster's value. `None` if the answers of its items leave the metric undefined: then the
    /// cluster is left out. Predictions decide nothing, so all jobs have the same clusters.
    values: Vec<Option<f64>>,
    /// The number of clusters that are not left out.
    pub(super) n: usize,
    /// The mean over these clusters; 0 without one.
    pub(super) value: f64,
    /// The uncertainty of the mean. `None` with fewer than
    /// [`CLUSTERS_MIN`](crate::clusters::CLUSTERS_MIN) clusters.
    pub(super) estimate: Option<Estimate>,
}

impl ClusterAverage {
    /// Returns the average over the clusters of a part's items, which are in the order of the part.
    pub(super) fn of(scored: &ScoredItems<'_, '_>, part: Part<'_>, clusters: &Clusters) -> Self {
        let ScoredItems {
            table,
            metric,
            accumulator,
            ..
        } = *scored;
        let mut places = Vec::new();
        let mut value_of = |in_part: &[u32]| {
            places.clear();
            places.extend(in_part.iter().map(|at| part.places[*at as usize]));
            let cluster = Part {
                places: &places,
                ..part
            };
            let is_defined = accumulator.is_defined(cluster);
            // Constant predictions within a cluster count as a correlation of 0.
            is_defined.then(|| accumulator.part(cluster).value)
        };
        let values: Vec<Option<f64>> = clusters.places().iter().map(&mut value_of).collect();
        let defined = || values.iter().flatten().copied();
        let n = defined().count();
        let value = defined().collect::<Sum>().total() / n.max(1) as f64;
        // The value is a mean over clusters, so it has the error of a mean over as many items.
        let sizes = ClusterSizes::single_items(n);
        let stderr = clustered::stderr(&sizes, defined().map(|one| one - value));
        let range = metric.range(table.clip(), table.n_options());
        let scale = match metric.scale() {
            Scale::Fisher => "fisher",
            Scale::Logit => "delong",
            // A cluster's share of right items is not 0 or 1.
            Scale::Linear => "normal",
        };
        let estimate = stderr.map(|stderr| clustered::around(&sizes, scale, value, stderr, range));
        Self {
            metric,
            values,
            n,
            value,
            estimate,
        }
    }

    /// Returns each cluster's influence on the mean: they sum to 0. `None` for a cluster that is left
    /// out.
    pub(super) fn influences(&self) -> impl Iterator<Item = Option<f64>> {
        let influence = |value: f64| (value - self.value) / self.n as f64;
        self.values.iter().map(move |value| value.map(influence))
    }

    /// Replaces the value over all items. An item without a score of its own gets the value of its
    /// cluster, or NaN if the cluster is left out, so that a comparison needs no answers.
    pub(super) fn replace_value(
        self,
        figures: &mut Figures,
        items: &mut ItemScoresBuilder,
        clusters: &Clusters,
    ) {
        if !self.metric.has_item_scores() {
            for (item, cluster) in clusters.item_clusters().iter().enumerate() {
                items.set(item, self.values[*cluster as usize].unwrap_or(f64::NAN));
            }
        }
        figures.value = self.value;
        figures.estimate = self.estimate;
        figures.clusters = Some(ClusterFigures {
            n: self.n as i64,
            design_effect: self.design_effect(items, clusters),
        });
    }

    /// Returns the squared ratio of the standard error to that of independent items. Only a mean over
    /// scores has contributions of single items: n/(G·n_g) times the score's distance to the value,
    /// plus the value.
    fn design_effect(&self, items: &ItemScoresBuilder, clusters: &Clusters) -> Option<f64> {
        if !self.metric.is_mean() {
            return None;
        }
        let n = items.len();
        let contributions = clusters.item_clusters().iter().enumerate();
        let contributions = contributions.map(|(item, cluster)| {
            let size = clusters.sizes().of(*cluster as usize);
            let weight = n as f64 / (self.n as f64 * size);
            self.value + weight * (items.value(item) - self.value)
        });
        let independent = stderr_of_mean(self.value, n, contributions)?;
        let ratio = self.estimate?.stderr / independent;
        Some(ratio * ratio).filter(|effect| effect.is_finite())
    }
}
