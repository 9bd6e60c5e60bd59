//! Decoding numbers from unbounded losses: two submissions differ at some items by so much that
//! their losses differ by a linear function of those items' answers.

use assay_eval::{DisclosurePolicy, Family, Sum};

use super::distances::Distance;
use super::guesses::Guesses;
use crate::platform::{Platform, Predicted};
use crate::random::Random;
use crate::suite::Public;

/// Returns `true` if numbers can be decoded one by one.
pub fn applies(public: &Public, _: &[f64]) -> bool {
    let allowed = matches!(
        public.policy,
        DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_)
    );
    allowed && Distance::of(public).is_some_and(|distance| !distance.is_clipped)
}

/// Returns `true` if numbers with few distinct values can be decoded from squared errors.
pub fn squares_apply(public: &Public, numbers: &[f64]) -> bool {
    applies(public, numbers)
        && public.metric.family() == Family::Numbers
        && public.policy == DisclosurePolicy::Exact
        && public.is_complete
        && numbers.len() >= 2
}

/// Returns `true` if the staircase strategy can be tried.
pub fn staircase_applies(public: &Public, _: &[f64]) -> bool {
    public.ladder.is_some() && public.metric.family() == Family::Numbers
}

/// Returns the smallest and the largest candidate.
fn ends(numbers: &[f64]) -> (f64, f64) {
    numbers
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(*number), high.max(*number))
        })
}

fn nearest(numbers: &[f64], number: f64) -> u8 {
    let distances = numbers
        .iter()
        .map(|candidate| (candidate - number).abs())
        .enumerate();
    distances
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map_or(0, |(at, _)| at as u8)
}

/// Returns how many submissions disclose every answer.
pub fn submissions_needed(public: &Public, numbers: &[f64]) -> Option<u32> {
    let by_squares = squares_apply(public, numbers).then(|| {
        public
            .n
            .div_ceil(Squares::new(public, numbers).distances.len())
    });
    let one_by_one = applies(public, numbers).then_some(public.n);
    by_squares
        .into_iter()
        .chain(one_by_one)
        .min()
        .map(|submissions| submissions as u32 + 1)
}

/// Moves the predictions, one item after the other, from far above all answers to far below. The
/// losses' sum changes by a multiple of the answer plus a constant: twice the answer for absolute errors. If it does not change, the
/// item is sealed.
pub fn one_by_one(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let mut guesses = public.most_frequent();
    let Some(distance) = Distance::of(public) else {
        return guesses;
    };
    let both = distance.above + distance.below;
    let (low, high) = ends(&numbers);
    let unit = high - low + 1.0;
    // So far below that every answer changes the sum. The predictions must differ, as equal
    // predictions have no correlation.
    let above = high + 4.0 * unit;
    let below = low - 9.0 * unit * (distance.below / distance.above).max(1.0);
    let base: Vec<f64> = (0..public.n)
        .map(|item| above + unit * item as f64 / public.n as f64)
        .collect();
    let mut sum_of = |moved: Option<usize>| {
        let number = |(item, number): (usize, &f64)| {
            Predicted::Number(if moved == Some(item) { below } else { *number })
        };
        let predictions: Vec<Predicted> = base.iter().enumerate().map(number).collect();
        let disclosed = platform.submit_from_any(&predictions)?;
        Some(disclosed.figure(public, distance.figure)? * disclosed.n as f64)
    };
    let Some(first) = sum_of(None) else {
        return guesses;
    };
    for item in 0..public.n {
        let Some(sum) = sum_of(Some(item)) else { break };
        let difference = sum - first;
        if difference.abs() > unit / 4.0 * both {
            let constant = distance.below * base[item] + distance.above * below;
            guesses[item] = nearest(&numbers, (difference + constant) / both);
        }
    }
    guesses
}

/// The distances by which a group's items are moved.
struct Squares {
    /// The distances, the largest first.
    distances: Vec<f64>,
}

impl Squares {
    fn new(public: &Public, numbers: &[f64]) -> Self {
        let (low, high) = ends(numbers);
        let gap = smallest_gap(numbers);
        let range = high - low;
        let n = public.n as f64;
        // A digit's gap exceeds all later digits together.
        let base = range / gap + 1.0;
        // The largest distance makes the moved items' loss equal to all others'. The
        // last digit must exceed the sum's rounding error.
        let digits = (gap / range * 2_f64.powi(48) / n.sqrt())
            .log(base)
            .floor()
            .max(1.0) as i32;
        Self {
            distances: (0..digits)
                .map(|at| range * n.sqrt() / base.powi(at))
                .collect(),
        }
    }
}

/// Moves an item group's predictions by distances that are powers of a base. The squared errors'
/// sum changes by twice the answers' sum, each times its distance.
pub fn squares(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let mut guesses = public.most_frequent();
    let Squares { distances } = Squares::new(public, &numbers);
    let (low, high) = ends(&numbers);
    // The predictions must differ, as equal predictions have no correlation.
    let base: Vec<f64> = (0..public.n)
        .map(|item| if item.is_multiple_of(2) { low } else { high })
        .collect();
    let mut sum_of = |moved: &[f64]| {
        let predictions: Vec<Predicted> = moved
            .iter()
            .map(|number| Predicted::Number(*number))
            .collect();
        let disclosed = platform.submit_from_any(&predictions)?;
        Some(disclosed.figure(public, "rmse")?.powi(2) * disclosed.n as f64)
    };
    let Some(first) = sum_of(&base) else {
        return guesses;
    };
    let gap = distances.last().copied().unwrap_or(1.0);
    for start in (0..public.n).step_by(distances.len()) {
        let group = start..(start + distances.len()).min(public.n);
        let mut moved = base.clone();
        let mut rest = Sum::default();
        rest.add(first);
        for (item, distance) in group.clone().zip(&distances) {
            moved[item] += distance;
            // The squared predictions, and the smallest reduction by the answers.
            rest.add(moved[item] * moved[item] - base[item] * base[item]);
            rest.add(-2.0 * distance * low);
        }
        let Some(sum) = sum_of(&moved) else { break };
        rest.add(-sum);
        for (item, distance) in group.zip(&distances) {
            let share = rest.total() / (2.0 * distance);
            // Half of the last digit's gap, scaled by this digit's ratio to the last one.
            let slack = smallest_gap(&numbers) / 2.0 * gap / distance;
            let fitting = numbers
                .iter()
                .enumerate()
                .filter(|(_, number)| **number - low <= share + slack);
            let found = fitting.max_by(|(_, one), (_, other)| one.total_cmp(other));
            let (answer, number) = found.map_or((0, low), |(at, number)| (at, *number));
            guesses[item] = answer as u8;
            rest.add(-2.0 * distance * (number - low));
        }
    }
    guesses
}

fn smallest_gap(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(f64::INFINITY, f64::min)
}

/// Starts with a very bad submission, improves each one by more than a step, and decodes one number
/// from each value. The values carry no information if losses are bounded.
pub fn staircase(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let mut guesses = public.most_frequent();
    let Some(ladder) = public.ladder else {
        return guesses;
    };
    let (low, high) = ends(&numbers);
    let mut item = 0;
    for organization in 0..platform.caps().organizations as usize {
        let mut far = high + 1e7 * (high - low);
        let mut before = ladder.value(0);
        while item < public.n {
            let number = |at: usize| {
                if at == item {
                    far
                } else if at.is_multiple_of(2) {
                    low
                } else {
                    high
                }
            };
            let predictions: Vec<Predicted> = (0..public.n)
                .map(|at| Predicted::Number(number(at)))
                .collect();
            let Some(disclosed) = platform.submit(organization, &predictions) else {
                break;
            };
            let value = disclosed.figures.value;
            if value != before {
                guesses[item] = nearest(&numbers, far - value * (public.n as f64).sqrt());
            }
            before = value;
            far -= 1000.0 * (high - low);
            item += 1;
        }
    }
    guesses
}
