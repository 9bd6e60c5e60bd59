//! Tiers and rank intervals from all pairs' tests.

use super::pair_test::Evidence;

/// The level for all tests together: the probability that at least one decision is wrong, at most.
const LEVEL: f64 = 0.05;

/// An entry's place on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The tier, from 1. A tier's entries are not significantly worse than its best one.
    pub tier: u32,
    /// The best rank that the tests do not exclude, from 1.
    pub rank_low: u32,
    /// The worst rank that the tests do not exclude.
    pub rank_high: u32,
}

/// Returns the standings for `m` entries in the given order, which must be by value, the best
/// first. `evidence(i, j)` is the test result for entry `i` against the later entry `j`.
///
/// The tests are corrected together (S. Holm 1979) at a 5 % level, so with 95 % probability all
/// rank intervals contain the true ranks (M. Mogstad et al. 2023).
pub fn standings(m: usize, evidence: impl Fn(usize, usize) -> Evidence) -> Vec<Standing> {
    let pairs = || (0..m).flat_map(|i| (i + 1..m).map(move |j| (i, j)));
    let n_pairs = m * m.saturating_sub(1) / 2;
    let threshold = significant_from(n_pairs, pairs().map(|(i, j)| evidence(i, j).0.abs()));
    let mut standings = vec![
        Standing {
            tier: 1,
            rank_low: 1,
            rank_high: m as u32,
        };
        m
    ];
    for (i, j) in pairs() {
        let (better, worse) = match evidence(i, j).0 {
            found if found >= threshold => (i, j),
            found if found <= -threshold => (j, i),
            _ => continue,
        };
        standings[worse].rank_low += 1;
        standings[better].rank_high -= 1;
    }
    let mut tier = 1;
    let mut first_of_tier = 0;
    for (at, standing) in standings.iter_mut().enumerate().skip(1) {
        // A later entry has a smaller value, but the test may see the earlier one as the worse.
        if evidence(first_of_tier, at).0 >= threshold {
            tier += 1;
            first_of_tier = at;
        }
        standing.tier = tier;
    }
    standings
}

/// The result of an entry's test against a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VsBaseline {
    /// The entry is significantly better.
    Better,
    /// The entry is significantly worse.
    Worse,
    /// The data do not separate them.
    NotSeparated,
}

/// Returns the results of `n_entries` entries against `n_baselines` baselines, entry by entry.
/// `evidence(i, b)` is the result of entry `i`'s test against baseline `b`.
///
/// These tests are corrected together (S. Holm 1979) at a 5 % level of their own, so that baselines
/// change nothing about the entries' [`standings`].
pub fn vs_baselines(
    n_entries: usize,
    n_baselines: usize,
    evidence: impl Fn(usize, usize) -> Evidence,
) -> Vec<Vec<VsBaseline>> {
    let tests = (0..n_entries).flat_map(|i| (0..n_baselines).map(move |b| (i, b)));
    let sizes = tests.map(|(i, b)| evidence(i, b).0.abs());
    let threshold = significant_from(n_entries * n_baselines, sizes);
    let result = |i: usize, b: usize| match evidence(i, b).0 {
        found if found >= threshold => VsBaseline::Better,
        found if found <= -threshold => VsBaseline::Worse,
        _ => VsBaseline::NotSeparated,
    };
    let entry_results = |i: usize| (0..n_baselines).map(|b| result(i, b)).collect();
    (0..n_entries).map(entry_results).collect()
}

/// Returns the smallest evidence that is significant among this many tests by Holm's correction;
/// infinite if none is.
fn significant_from(n_tests: usize, evidence: impl Iterator<Item = f32>) -> f32 {
    let needed = |n_larger: usize| -(LEVEL / (n_tests as f64 - n_larger as f64)).ln();
    // No threshold is above the first one or below the last one, so only the evidence between them
    // has to be sorted.
    let first = needed(0);
    let last = -LEVEL.ln();
    let mut n_significant = 0_usize;
    let mut threshold = f32::INFINITY;
    let mut between = Vec::new();
    for found in evidence {
        if f64::from(found) >= first {
            n_significant += 1;
            threshold = threshold.min(found);
        } else if f64::from(found) >= last {
            between.push(found);
        }
    }
    between.sort_unstable_by(|a, b| b.total_cmp(a));
    for found in between {
        if f64::from(found) < needed(n_significant) {
            break;
        }
        n_significant += 1;
        threshold = found;
    }
    threshold
}
