//! The uncertainty of figures whose items are in clusters.

use super::answer_table::AnswerTable;
use super::probabilities::stderr_of_ece_by_cluster;
use super::result::{ClusterFigures, Figures};
use crate::clusters::Clusters;
use crate::compare::{Contribution, StoredItem};
use crate::item_scores::ItemScoresBuilder;
use crate::metric::{Metric, Scale};
use crate::stats::clustered;
use crate::stats::confidence::Estimate;

/// Replaces the estimate for independent items by that for items in clusters. `items` have their
/// final values.
pub(super) fn by_cluster(
    figures: &mut Figures,
    clusters: &Clusters,
    table: &AnswerTable,
    metric: Metric,
    items: &ItemScoresBuilder,
) {
    let independent = figures.estimate.take();
    let contribution = Contribution::for_items(metric, items.stored());
    let contributions = items.stored().map(|item| contribution.of(item));
    figures.estimate = independent.and_then(|independent| {
        let value = (figures.value, &independent);
        estimate_by_cluster(
            clusters,
            (table, metric),
            value,
            contributions,
            items.stored(),
        )
    });
    let ratio = figures
        .estimate
        .zip(independent)
        .map(|(by_cluster, independent)| by_cluster.stderr / independent.stderr);
    figures.clusters = Some(ClusterFigures {
        n: clusters.sizes().len() as i64,
        design_effect: ratio
            .map(|ratio| ratio * ratio)
            .filter(|effect| effect.is_finite()),
    });
}

/// Returns the estimate for a value by its items' contributions, of which it is the mean. The value
/// comes with the estimate for independent items. The calibration error has its standard error from the
/// `stored` confidences.
pub(super) fn estimate_by_cluster(
    clusters: &Clusters,
    (table, metric): (&AnswerTable, Metric),
    (value, independent): (f64, &Estimate),
    contributions: impl Iterator<Item = f64> + Clone,
    stored: impl Iterator<Item = StoredItem>,
) -> Option<Estimate> {
    let range = metric.range(table.clip(), table.n_options());
    if metric.scale() == Scale::Logit {
        // A mean of areas has the interval of an area.
        let independent = Estimate {
            method: "delong",
            ..*independent
        };
        return clustered::estimate(clusters, &independent, value, range, contributions);
    }
    if independent.method != "bootstrap" {
        return clustered::estimate(clusters, independent, value, range, contributions);
    }
    let stderr = stderr_of_ece_by_cluster(stored, clusters)?;
    let sizes = clusters.sizes();
    Some(clustered::around(
        sizes,
        independent.method,
        value,
        stderr,
        range,
    ))
}
