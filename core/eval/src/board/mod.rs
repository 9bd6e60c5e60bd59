//! Leaderboards that rank only what the data separate: a test for each pair of entries, a
//! correction for all tests together, and the tiers and rank intervals that follow.
//!
//! `docs/metrics.md` defines every number.

mod pair_test;
mod sign_flip;
mod standings;

pub use pair_test::{EntryItems, Evidence, test_pair};
pub use standings::{Standing, VsBaseline, standings, vs_baselines};

/// The most entries on a board that each allowance holder can have, with those that were withdrawn or
/// removed.
pub const ENTRIES_MAX: i64 = 3;

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
