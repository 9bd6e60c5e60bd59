//! The noise floor: a perfect model's loss against answers by few people.

use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Binomial, Distribution as _};

use super::answer_table::AnswerTable;
use super::ceiling::{origin, warning};
use super::distributions::ItemLoss;
use super::retest_scores::{Ceiling, RetestScores};
use super::trivial::{best_trivial, trivial_submissions};
use crate::compare::seeded_generator;
use crate::item_scores::Bits;
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;

/// Draws for each item.
const DRAWS: u32 = 200;

/// Returns the noise floor: the mean over the items of the expected loss if the published answer is
/// predicted, and the answer is that of as many people, drawn from it. `None` if the number of people
/// is unknown for some item, if the metric has no floor, or if the value averages clusters.
///
/// The expectation is the mean of 200 draws for each item. They are always the same ones. This takes
/// about 10 µs for each option of an item, so the floor is computed once, when a suite is published.
pub fn noise_floor(table: &AnswerTable, metric: Metric) -> Option<f64> {
    if !has_floor(table, metric) {
        return None;
    }
    let mut loss = ItemLoss::new(table, metric);
    let mut random = seeded_generator();
    let mut published = Vec::new();
    let mut drawn = Vec::new();
    let mut total = Sum::default();
    for (item, people) in table.items().zip(table.people()) {
        let answer = item.distribution();
        published.clear();
        published.extend((0..answer.len()).map(|place| answer.share(place)));
        for _ in 0..DRAWS {
            draw(&published, *people, &mut random, &mut drawn);
            total.add(loss.of(&drawn, &published));
        }
    }
    Some(total.total() / f64::from(DRAWS) / table.len() as f64)
}

/// Returns the scores of a suite whose ceiling is this noise floor, for [`AnswerTable::set_retest`]. A
/// job's share of the ceiling uses the floor as a constant, without an error. `None` if the suite has
/// no floor.
pub fn noise_floor_scores(table: &AnswerTable, metric: Metric, floor: f64) -> Option<RetestScores> {
    if !has_floor(table, metric) {
        return None;
    }
    let trivial = best_trivial(&trivial_submissions(table, metric), metric);
    let origin = trivial.and_then(|trivial| origin(table, metric, floor, trivial));
    let warning = origin
        .is_none()
        .then(|| warning(floor, trivial, "n: too few people are behind the answers"));
    Some(RetestScores {
        ceiling: Ceiling {
            kind: "sampling",
            value: floor,
            stderr: None,
            ci95: None,
            n: table.len() as i64,
        },
        warning,
        is_retested: Bits::new(table.len()),
        contributions: Vec::new(),
        origin,
    })
}

fn has_floor(table: &AnswerTable, metric: Metric) -> bool {
    metric.has_noise_floor()
        && !table.is_empty()
        && !table.averages_clusters()
        && table.people().len() == table.len()
}

/// Draws the answers of so many people, and sets their shares.
fn draw(shares: &[f64], people: u32, random: &mut Xoshiro256PlusPlus, drawn: &mut Vec<f64>) {
    drawn.clear();
    let (mut left, mut rest) = (u64::from(people), 1.0);
    for share in shares {
        // The people who have not chosen an earlier option choose this one with its part of the rest.
        let probability = if *share < rest { share / rest } else { 1.0 };
        let chosen = Binomial::new(left, probability.clamp(0.0, 1.0));
        let n = if *share > 0.0 {
            chosen.map_or(0, |chosen| chosen.sample(random))
        } else {
            0
        };
        drawn.push(n as f64 / f64::from(people));
        left -= n;
        rest -= share;
    }
}
