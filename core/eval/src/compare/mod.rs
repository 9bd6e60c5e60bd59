//! The comparison between two jobs over the same items, item by item.
//!
//! A comparison reads both jobs' stored values twice, some items at a time: first each job
//! for its [`Aggregate`], then both together for their [`Pairs`]. `docs/metrics.md` defines every
//! number.

mod cluster_differences;
mod cluster_values;
mod contribution;
mod difference;
mod mcnemar;
mod pairs;
mod permutation_test;
mod verdict;

pub(crate) use cluster_values::cluster_values;
pub(crate) use contribution::StoredItem;
pub use contribution::{Aggregate, Contribution, StoredItems};
pub use difference::{Difference, DifferenceByCluster};
pub(crate) use mcnemar::mcnemar;
pub use pairs::{Pairs, point};
pub(crate) use permutation_test::seeded_generator;
pub use verdict::{Side, Verdict, direction};

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
