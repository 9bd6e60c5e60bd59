//! Clusters: the items of one person, for example. Items of different clusters are independent;
//! items of one cluster are not.

use std::collections::HashMap;

/// The fewest clusters for which a standard error is estimated.
pub const CLUSTERS_MIN: usize = 10;

/// The most clusters of a suite: a comparison keeps 44 bytes for each.
pub const CLUSTERS_MAX: usize = 1 << 20;

/// The item count of each cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSizes(Vec<u32>);

impl ClusterSizes {
    /// Adds an item to a cluster. Clusters are numbered from 0 without gaps, by their first item.
    pub(crate) fn add(&mut self, cluster: usize) {
        if cluster >= self.0.len() {
            self.0.resize(cluster + 1, 0);
        }
        self.0[cluster] += 1;
    }

    /// Returns the number of clusters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no clusters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each cluster's item count.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied().map(f64::from)
    }

    /// Returns the number of items.
    pub fn n_items(&self) -> f64 {
        self.iter().sum()
    }

    /// Returns the effective number of clusters: 1/Σ w², where w is a cluster's share of the items.
    /// It is the number of clusters if all have as many items, and less otherwise.
    pub fn effective(&self) -> f64 {
        let squares: f64 = self.iter().map(|size| size * size).sum();
        let n = self.n_items();
        n * n / squares
    }

    /// Returns Student's degrees of freedom for an estimate over these clusters: the effective number
    /// minus 1, and at least 1. The number of clusters minus 1 would be too large
    /// where clusters are unequal.
    pub fn degrees(&self) -> f64 {
        (self.effective() - 1.0).max(1.0)
    }

    /// Returns `true` if there are enough clusters to estimate a standard error.
    pub fn are_enough(&self) -> bool {
        self.len() >= CLUSTERS_MIN
    }
}

/// An item set's clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clusters {
    /// Each item's cluster, by place. Clusters are numbered from 0 by their first item.
    item_clusters: Vec<u32>,
    sizes: ClusterSizes,
}

impl Clusters {
    /// Creates the clusters from each item's label, in the suite's order. Items with one label are
    /// one cluster.
    pub fn from_labels(labels: impl IntoIterator<Item = u32>) -> Self {
        let mut numbers = HashMap::new();
        Self::numbered(labels.into_iter().map(|label| {
            let next = numbers.len() as u32;
            *numbers.entry(label).or_insert(next)
        }))
    }

    /// Creates the clusters from each item's cluster: numbers from 0 without gaps, by their first
    /// item.
    pub(crate) fn numbered(item_clusters: impl Iterator<Item = u32>) -> Self {
        let mut clusters = Self::default();
        for cluster in item_clusters {
            clusters.sizes.add(cluster as usize);
            clusters.item_clusters.push(cluster);
        }
        clusters.item_clusters.shrink_to_fit();
        clusters.sizes.0.shrink_to_fit();
        clusters
    }

    /// Returns the cluster of the item at this place.
    #[inline]
    pub fn of(&self, item: usize) -> usize {
        self.item_clusters[item] as usize
    }

    /// Returns each item's cluster, in the suite's order.
    pub fn item_clusters(&self) -> &[u32] {
        &self.item_clusters
    }

    /// Returns each cluster's item count.
    pub fn sizes(&self) -> &ClusterSizes {
        &self.sizes
    }

    /// Returns the heap memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<u32>() * (self.item_clusters.capacity() + self.sizes.0.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_numbered_by_first_item() {
        let clusters = Clusters::from_labels([7, 7, 3, 7, 9]);
        assert_eq!(clusters.item_clusters(), [0, 0, 1, 0, 2]);
        let sizes = clusters.sizes();
        assert!(sizes.iter().eq([3.0, 1.0, 1.0]));
        assert!((sizes.effective() - 25.0 / 11.0).abs() < 1e-15);
        assert!((sizes.degrees() - 14.0 / 11.0).abs() < 1e-15);
        assert_eq!(Clusters::from_labels([1; 4]).sizes().degrees(), 1.0);
        assert_eq!(Clusters::from_labels(0..20).sizes().effective(), 20.0);
    }
}
