//! The clusters of a folder's items.

use std::collections::{HashMap, HashSet};

use super::answers::{Answer, AnswersCheck};
use super::bad_suite::BadSuite;
use super::groups::{GroupField, GroupLabels, Groups};
use super::lines::{FolderItem, missing_field};
use super::names::{ITEMS, SUITE};
use crate::clusters::{Average, CLUSTERS_MAX, CLUSTERS_MIN, ClusterSizes, Clusters};
use crate::metric::Metric;

/// With fewer clusters, an interval covers less than 95 % for some metrics.
const CLUSTERS_ENOUGH: usize = 30;

/// A cluster with a larger share of the items dominates the standard error.
const SHARE_MAX: f64 = 0.2;

/// Checks that no group field is in the lines of items and in those of answers.
pub(super) fn check_places(items: &[FolderItem]) -> Result<(), BadSuite> {
    let names = |of: fn(&FolderItem) -> Option<&Groups>| -> HashSet<&str> {
        items
            .iter()
            .filter_map(of)
            .flat_map(Groups::names)
            .collect()
    };
    let hidden = names(|item| item.hidden_groups.as_ref());
    for item in items {
        let mut public = item.groups.iter().flat_map(Groups::names);
        if let Some(name) = public.find(|name| hidden.contains(name)) {
            let reason = format!(
                "groups.{name} is in lines of answers too; a group field is public for all items or hidden for all"
            );
            return Err(BadSuite::new(ITEMS, item.line, reason));
        }
    }
    Ok(())
}

/// Sets each item's cluster, and returns the values of the field.
pub(super) fn assign(
    items: &mut [FolderItem],
    field: &GroupField,
) -> Result<GroupLabels, BadSuite> {
    let mut labels = GroupLabels::default();
    for item in items {
        let label = item
            .label(field, &mut labels)
            .map_err(|reason| BadSuite::new(ITEMS, item.line, missing_field(&reason, "cluster")))?;
        item.cluster = Some(label);
    }
    if labels.len() < 2 {
        let reason = format!(
            "cluster: all items have the same {field}, so nothing is independent; name another field, or write \
             cluster = \"none\""
        );
        return Err(BadSuite::new(SUITE, 0, reason));
    }
    if labels.len() > CLUSTERS_MAX {
        let reason = format!(
            "cluster: the items have {} values of {field}; at most {CLUSTERS_MAX} are possible",
            labels.len()
        );
        return Err(BadSuite::new(SUITE, 0, reason));
    }
    Ok(labels)
}

/// Checks that the open items and the sealed ones have enough clusters each.
pub(super) fn check_sealed(items: &[FolderItem]) -> Result<(), BadSuite> {
    for (name, is_sealed) in [("open", false), ("sealed", true)] {
        let clusters = sizes_of(items.iter().filter(|item| item.is_sealed == is_sealed));
        if clusters.len() < CLUSTERS_MIN {
            let reason = format!(
                "release: the {name} items have {} clusters, but need {CLUSTERS_MIN}; choose another fraction",
                clusters.len()
            );
            return Err(BadSuite::new(SUITE, 0, reason));
        }
    }
    Ok(())
}

/// The clusters of a folder that can be published.
pub(super) struct FoundClusters {
    /// The number of clusters, open and sealed, that are not left out.
    pub(super) n_clusters: usize,
    /// The warnings about the clusters, for the publisher.
    pub(super) warnings: Vec<String>,
}

/// Checks the clusters of the open items and of the sealed ones: an average needs enough of them.
pub(super) fn check(
    items: &[FolderItem],
    field: &GroupField,
    metric: Metric,
    average: Average,
) -> Result<FoundClusters, BadSuite> {
    let mut found = FoundClusters {
        n_clusters: 0,
        warnings: Vec::new(),
    };
    for (name, is_sealed) in [("open ", false), ("sealed ", true)] {
        let part: Vec<&FolderItem> = items
            .iter()
            .filter(|item| item.is_sealed == is_sealed)
            .collect();
        if part.is_empty() {
            continue;
        }
        let name = if part.len() == items.len() { "" } else { name };
        let clusters = sizes_of(part.iter().copied());
        let (n, warning) = match average {
            Average::Item => (clusters.len(), size_warning(name, field, &clusters)),
            Average::Cluster => {
                let n = averaged_clusters(part.into_iter(), metric)
                    .map_err(|reason| {
                        let reason = format!(
                            "average: of the {name}items alone: {reason}; write average = \"item\""
                        );
                        BadSuite::new(SUITE, 0, reason)
                    })?
                    .len();
                (n, average_warning(name, metric, n, clusters.len()))
            }
        };
        found.n_clusters += n;
        found.warnings.extend(warning);
    }
    Ok(found)
}

fn size_warning(name: &str, field: &GroupField, clusters: &ClusterSizes) -> Option<String> {
    let n = clusters.len();
    let effective = clusters.effective();
    let share = clusters.iter().fold(0.0, f64::max) / clusters.n_items();
    if n < CLUSTERS_MIN {
        return Some(format!(
            "the {name}items have {n} clusters by {field}; with fewer than {CLUSTERS_MIN}, results have no standard error and \
             no interval"
        ));
    }
    (n < CLUSTERS_ENOUGH || share > SHARE_MAX).then(|| {
        format!(
            "the {name}items have {n} clusters by {field}, which are worth {effective:.1} equal ones, and the largest has {:.0} % \
             of the items; intervals are wide, and those of unbounded losses cover less than 95 %",
            100.0 * share
        )
    })
}

/// Returns the warning for an average over `n` of `n_all` clusters.
fn average_warning(name: &str, metric: Metric, n: usize, n_all: usize) -> Option<String> {
    if n == n_all && n >= CLUSTERS_ENOUGH {
        return None;
    }
    let mut warning =
        format!("the value is an average over {n} of {n_all} clusters of the {name}items");
    if n < n_all {
        warning += &format!("; {metric} is not defined for the answers of the others");
    }
    if n < CLUSTERS_ENOUGH {
        warning += "; intervals are wide, and those of unbounded losses cover less than 95 %";
    }
    Some(warning)
}

/// Returns the sizes of the clusters that these items have.
pub(super) fn sizes_of<'a>(items: impl Iterator<Item = &'a FolderItem>) -> ClusterSizes {
    let clusters = Clusters::from_labels(items.filter_map(|item| item.cluster));
    clusters.sizes().clone()
}

/// Returns the clusters of these items that are not left out of an average: their answers leave the
/// metric defined.
///
/// # Errors
/// Returns the reason if there are too few, or if the metric does not take an answer.
pub(super) fn averaged_clusters<'a>(
    items: impl Iterator<Item = &'a FolderItem>,
    metric: Metric,
) -> Result<HashSet<u32>, String> {
    let mut checks: HashMap<u32, AnswersCheck> = HashMap::new();
    for item in items {
        let Some(cluster) = item.cluster else {
            continue;
        };
        let new = || AnswersCheck::new(metric);
        let check = checks.entry(cluster).or_insert_with(new);
        if !metric.has_item_scores() {
            check.add(&Answer::parse(item.answer.get(), &metric)?)?;
        }
    }
    let is_defined = |check: AnswersCheck| metric.has_item_scores() || check.finish().is_ok();
    let defined: HashSet<u32> = checks
        .into_iter()
        .filter_map(|(cluster, check)| is_defined(check).then_some(cluster))
        .collect();
    if defined.len() < CLUSTERS_MIN {
        return Err(format!(
            "{metric} is defined in {} clusters, but an average needs {CLUSTERS_MIN}",
            defined.len()
        ));
    }
    Ok(defined)
}
