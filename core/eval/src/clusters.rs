//! Clusters: the items of one person, for example. Items of different clusters are independent;
//! items of one cluster are not.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::error::Corrupt;

/// The fewest clusters for which a standard error is estimated.
pub const CLUSTERS_MIN: usize = 10;

/// The most clusters of a suite: a comparison keeps 44 bytes for each.
pub const CLUSTERS_MAX: usize = 1 << 20;

/// The unit that has equal weights in a suite's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Average {
    /// The value is the metric over all items: each item has the same weight.
    #[default]
    Item,
    /// The value is the mean over the clusters of the metric within the cluster: each cluster has the
    /// same weight. A cluster whose answers leave the metric undefined is left out.
    Cluster,
}

impl Average {
    /// Reads a published suite's average, which was checked when it was published.
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown average"))
    }

    /// Returns the name in `suite.toml`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Average {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "item" => Ok(Self::Item),
            "cluster" => Ok(Self::Cluster),
            _ => Err("must be \"item\" or \"cluster\""),
        }
    }
}

/// The item count of each cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSizes(Vec<u32>);

impl ClusterSizes {
    /// Returns the sizes of `n` clusters with one item each.
    pub(crate) fn single_items(n: usize) -> Self {
        Self(vec![1; n])
    }

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

    /// Returns a cluster's item count.
    pub fn of(&self, cluster: usize) -> f64 {
        f64::from(self.0[cluster])
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
    average: Average,
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

    /// Sets the unit that has equal weights in a value over the items.
    #[must_use]
    pub fn with_average(mut self, average: Average) -> Self {
        self.average = average;
        self
    }

    /// Returns the unit that has equal weights in a value over the items.
    pub fn average(&self) -> Average {
        self.average
    }

    /// Returns the places of each cluster's items, ascending.
    pub(crate) fn places(&self) -> ClusterPlaces {
        let mut ends = Vec::with_capacity(self.sizes.len());
        let mut next = Vec::with_capacity(self.sizes.len());
        let mut end = 0;
        for size in &self.sizes.0 {
            next.push(end);
            end += *size as usize;
            ends.push(end);
        }
        let mut places = vec![0; end];
        for (place, cluster) in self.item_clusters.iter().enumerate() {
            let next = &mut next[*cluster as usize];
            places[*next] = place as u32;
            *next += 1;
        }
        ClusterPlaces { places, ends }
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

/// The items of each cluster.
pub(crate) struct ClusterPlaces {
    /// The places of the items, by cluster.
    places: Vec<u32>,
    /// The end of each cluster's places.
    ends: Vec<usize>,
}

impl ClusterPlaces {
    /// Returns the places of each cluster's items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, end)| &self.places[*start..*end])
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

    #[test]
    fn places_are_grouped_by_cluster() {
        let places = Clusters::from_labels([7, 7, 3, 7, 9]).places();
        let expected: [&[u32]; 3] = [&[0, 1, 3], &[2], &[4]];
        assert!(places.iter().eq(expected));
    }

    #[test]
    fn average_round_trips_through_its_name() {
        for average in [Average::Item, Average::Cluster] {
            assert_eq!(average.as_str().parse(), Ok(average));
        }
        assert!("Cluster".parse::<Average>().is_err());
    }
}
