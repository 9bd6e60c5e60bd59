//! Simulated boards, whose true ranks are known.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::item_scores::{ItemScores, ItemScoresBuilder, Kind};
use crate::metric::Metric;

/// Simulated boards for each kind: `TEST_BOARDS`, or 100.
pub(super) fn n_boards() -> u64 {
    std::env::var("TEST_BOARDS").map_or(100, |number| number.parse().unwrap())
}

/// Checks that at least 95 % of the boards have a property. With fewer than 1,000 boards, the share may
/// be smaller by two standard errors.
fn assert_on_most(property: &str, count: u64) {
    let boards = n_boards();
    println!("{property}: {count} of {boards} boards");
    let n = boards as f64;
    let error = if boards < 1_000 {
        2.0 * (n * 0.95 * 0.05).sqrt()
    } else {
        0.0
    };
    assert!(count as f64 >= 0.95 * n - error, "{property}: {count}");
}

/// Simulated entries' contributions.
#[derive(Debug, Clone, Copy)]
enum Contributions {
    RightOrWrong,
    Graded,
    Clipped,
}

impl Contributions {
    fn metric(self) -> Metric {
        match self {
            Self::RightOrWrong => "accuracy",
            Self::Graded => "ndcg@10",
            Self::Clipped => "mae",
        }
        .parse()
        .unwrap()
    }

    /// Draws an item's contribution that the entry gets right with the given probability. Easy
    /// items are easy for all entries.
    fn draw(self, random: &mut Xoshiro256PlusPlus, right: f64) -> f64 {
        let is_right = random.random_bool(right);
        match self {
            Self::RightOrWrong => f64::from(is_right),
            // The one right item's gain by its place.
            Self::Graded if is_right => 1.0 / f64::from(random.random_range(2..=11_u32)).log2(),
            Self::Graded => 0.0,
            // A loss with a heavy tail, bounded to 0 to 2.
            Self::Clipped if is_right => random.random_range(0.0..0.5),
            Self::Clipped => (0.2 / random.random_range(0.001..1.0_f64)).min(2.0),
        }
    }
}

fn items(metric: Metric, values: &[f64]) -> EntryItems {
    let mut builder = ItemScoresBuilder::new(Kind::Scores, values.len(), 0.0, false);
    for (item, value) in values.iter().enumerate() {
        builder.set(item, *value);
    }
    let scores: ItemScores = builder.finish();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    EntryItems::new(metric, &scores, mean, true, None)
}

/// Simulates a board with entries that get each item right with these probabilities on average.
/// Returns the entries by value, the best first, each with its number and standing.
fn simulate(
    contributions: Contributions,
    shares: &[f64],
    n_items: usize,
    seed: u64,
) -> Vec<(usize, Standing)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ease: Vec<f64> = (0..n_items)
        .map(|_| random.random_range(-0.15..0.15))
        .collect();
    let metric = contributions.metric();
    let mut entries: Vec<(usize, f64, EntryItems)> = shares
        .iter()
        .enumerate()
        .map(|(number, share)| {
            let draw = |ease: &f64| contributions.draw(&mut random, share + ease);
            let values: Vec<f64> = ease.iter().map(draw).collect();
            let mean = values.iter().sum::<f64>() / n_items as f64;
            let mean = if metric.lower_is_better() {
                -mean
            } else {
                mean
            };
            (number, mean, items(metric, &values))
        })
        .collect();
    entries.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
    let evidence: Vec<Vec<Evidence>> = (0..entries.len())
        .map(|later| {
            (0..later)
                .map(|earlier| test_pair(metric, &entries[earlier].2, &entries[later].2))
                .collect()
        })
        .collect();
    let standings = standings(entries.len(), |earlier, later| evidence[later][earlier]);
    entries
        .into_iter()
        .zip(standings)
        .map(|((number, ..), standing)| (number, standing))
        .collect()
}

#[test]
fn equal_entries_are_one_tier() {
    for contributions in [
        Contributions::RightOrWrong,
        Contributions::Graded,
        Contributions::Clipped,
    ] {
        let one_tier = (0..n_boards())
            .filter(|seed| {
                simulate(contributions, &[0.6; 30], 500, *seed)
                    .iter()
                    .all(|(_, standing)| standing.tier == 1)
            })
            .count() as u64;
        assert_on_most(&format!("{contributions:?}, one tier"), one_tier);
    }
}

#[test]
fn rank_intervals_contain_true_ranks() {
    // The first entry is the best.
    let shares: Vec<f64> = (0..30).map(|at| 0.8 - 0.3 * f64::from(at) / 29.0).collect();
    for contributions in [
        Contributions::RightOrWrong,
        Contributions::Graded,
        Contributions::Clipped,
    ] {
        let right = (0..n_boards())
            .filter(|seed| {
                simulate(contributions, &shares, 1_000, *seed)
                    .iter()
                    .all(|(number, standing)| {
                        (standing.rank_low..=standing.rank_high).contains(&(*number as u32 + 1))
                    })
            })
            .count() as u64;
        assert_on_most(&format!("{contributions:?}, all intervals right"), right);
    }
}

#[test]
fn groups_become_tiers() {
    let shares: Vec<f64> = (0..30).map(|at| [0.8, 0.7, 0.6][at / 10]).collect();
    let right = (0..n_boards())
        .filter(|seed| {
            simulate(Contributions::RightOrWrong, &shares, 2_000, *seed)
                .iter()
                .all(|(number, standing)| standing.tier == *number as u32 / 10 + 1)
        })
        .count() as u64;
    assert_on_most("three tiers", right);
}

#[test]
fn direction_follows_the_metric() {
    let low = vec![0.1; 60];
    let high: Vec<f64> = (0..60)
        .map(|item| 0.5 + f64::from(item) / 1_000.0)
        .collect();
    for (name, first_is_better) in [("ndcg@10", false), ("mae", true), ("rmse", true)] {
        let metric: Metric = name.parse().unwrap();
        let evidence = test_pair(metric, &items(metric, &low), &items(metric, &high));
        assert_eq!(evidence.0 > 0.0, first_is_better, "{name} {evidence:?}");
        let same = test_pair(metric, &items(metric, &low), &items(metric, &low));
        assert_eq!(same.0.abs(), 0.0, "{name}");
    }
}

#[test]
fn holm_stops_at_the_first_pair_that_fails() {
    // Three pairs at 5 %: thresholds 0.0167, 0.025 and 0.05.
    let standing = |tier, rank_low, rank_high| Standing {
        tier,
        rank_low,
        rank_high,
    };
    let board = |p_values: [f64; 3]| {
        let evidence = p_values.map(|p| Evidence(-p.ln() as f32));
        standings(3, |i, j| evidence[i + j - 1])
    };
    assert_eq!(
        board([0.016, 0.024, 0.049]),
        [standing(1, 1, 1), standing(2, 2, 2), standing(3, 3, 3)]
    );
    // The smallest p-value fails, so none is significant.
    assert_eq!(board([0.017, 0.018, 0.019]), [standing(1, 1, 3); 3]);
    // The second one fails.
    assert_eq!(
        board([0.026, 0.016, 0.03]),
        [standing(1, 1, 2), standing(1, 1, 3), standing(2, 2, 3)]
    );
    assert_eq!(standings(0, |_, _| Evidence(0.0)), []);
    assert_eq!(standings(1, |_, _| Evidence(0.0)), [standing(1, 1, 1)]);
}

#[test]
fn baselines_have_a_correction_of_their_own() {
    use VsBaseline::{Better, NotSeparated, Worse};
    // Two entries and two baselines: thresholds 0.0125, 0.0167, 0.025 and 0.05.
    let results = |p_values: [[f64; 2]; 2]| {
        vs_baselines(2, 2, |i, b| {
            let p = p_values[i][b];
            let size = -p.abs().ln() as f32;
            Evidence(if p < 0.0 { -size } else { size })
        })
    };
    assert_eq!(
        results([[0.012, -0.016], [0.024, -0.049]]),
        [vec![Better, Worse], vec![Better, Worse]]
    );
    // The second smallest p-value fails, and so do those after it.
    assert_eq!(
        results([[0.012, -0.02], [0.021, 0.04]]),
        [vec![Better, NotSeparated], vec![NotSeparated, NotSeparated]]
    );
    assert_eq!(vs_baselines(2, 0, |_, _| Evidence(0.0)), [vec![], vec![]]);
}
