//! Rounded figures as code words. The predictions for a small item group give every combination of
//! their answers different rounded figures. The predictions for all other items do not depend on
//! their answers. The same predictions serve one group after the other.
//!
//! Large losses change a mean by more than its last decimal: a log loss by up to 34.5 per item, an
//! rmse by up to 1/√n per answer unit, for a prediction at any distance; a quantile loss by its level over n. The rounded figures
//! `stderr` and `ci95` are additional digits, and so is the skill.

use assay_eval::score::Figures;
use assay_eval::stats::confidence::Z;
use assay_eval::{DisclosurePolicy, Family, Metric};

use super::distances::Distance;
use super::guesses::{self, Guesses};
use crate::platform::{Platform, Predicted};
use crate::random::Random;
use crate::suite::Public;

/// The maximum count of answer combinations in one group.
const COMBINATIONS_MAX: usize = 512;

/// The most random prediction draws for each group size.
const DRAWS_MAX: usize = 3000;

/// Returns `true` if the strategy applies.
pub fn applies(public: &Public, _: &[f64]) -> bool {
    let neutral = match public.metric.family() {
        Family::Numbers | Family::Quantiles => public.candidates.len() == 2,
        Family::Probabilities => public.candidates.len() >= 2,
        Family::Rankings | Family::Labels => false,
    };
    matches!(public.policy, DisclosurePolicy::Rounded(_))
        && public.is_complete
        && public.clip.is_none()
        && neutral
}

/// The predictions for an item group, and each answer combination's figures.
struct Code {
    predictions: Vec<Predicted>,
    /// Sorted by the figures. A combination is a number whose digits, the lowest first, are the
    /// answers.
    words: Vec<(Vec<i64>, usize)>,
}

/// Returns a prediction whose losses do not depend on the answer.
fn neutral(public: &Public, numbers: &[f64]) -> Predicted {
    match Distance::for_quantiles(public) {
        Some(own) => {
            let low = numbers[0].min(numbers[1]);
            let high = numbers[0].max(numbers[1]);
            Predicted::Number(own.neutral(low, high))
        }
        None => guesses::neutral(public, numbers),
    }
}

/// Returns a prediction's losses for the two figures of [`names`], or twice that for the only one.
fn losses(public: &Public, predicted: &Predicted, answer: usize, numbers: &[f64]) -> [f64; 2] {
    match (Distance::for_quantiles(public), predicted) {
        (Some(own), Predicted::Number(number)) => [own.loss(*number, numbers[answer]); 2],
        _ => guesses::losses(predicted, answer, numbers),
    }
}

/// Draws a prediction whose losses are far apart.
fn draw(public: &Public, numbers: &[f64], random: &mut Random) -> Predicted {
    let n = public.candidates.len();
    if public.metric.has_number_answers() {
        let spread = (numbers[0] - numbers[1]).abs();
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        return Predicted::Number(
            f64::midpoint(numbers[0], numbers[1])
                + sign * spread * 1000.0 * (-4.0 * random.unit()).exp(),
        );
    }
    // The most probable label has a loss near 0, the least probable one up to 34.5.
    let odds: Vec<f64> = (0..n).map(|_| (-34.5 * random.unit()).exp()).collect();
    let sum: f64 = odds.iter().sum();
    Predicted::Probabilities(odds.into_iter().map(|odds| odds / sum).collect())
}

/// Returns the figures that follow from all items' losses, in a fixed order, in units of the last
/// decimal.
fn word(public: &Public, unit: f64, sums: [f64; 2], squares: [f64; 2]) -> Vec<i64> {
    let n = public.n as f64;
    let means = sums.map(|sum| sum / n);
    let figures = if public.metric.family() == Family::Numbers {
        [means[0], means[1].sqrt()]
    } else {
        means
    };
    let own = match public.metric {
        Metric::LogLoss | Metric::Mae | Metric::Pinball | Metric::Wis => Some(0),
        Metric::Brier | Metric::Rmse => Some(1),
        _ => None,
    };
    let mut word = figures.map(|figure| rounded(figure, unit)).to_vec();
    if let Some(own) = own {
        let variance = (squares[own] - n * means[own] * means[own]).max(0.0) / (n - 1.0) / n;
        let stderr = if public.metric == Metric::Rmse {
            variance.sqrt() / (2.0 * figures[1])
        } else {
            variance.sqrt()
        };
        let most = match public.metric {
            Metric::LogLoss => -1e-15_f64.ln(),
            Metric::Brier if public.candidates.len() == 2 => 1.0,
            Metric::Brier => 2.0,
            _ => f64::INFINITY,
        };
        let ends = [
            (figures[own] - Z * stderr).max(0.0),
            (figures[own] + Z * stderr).min(most),
        ];
        word.extend([stderr, ends[0], ends[1]].map(|figure| rounded(figure, unit)));
        // The skill has another last decimal than the value.
        let skill = public
            .skill_distance
            .map(|distance| 1.0 - figures[own] / distance);
        word.extend(skill.map(|skill| rounded(skill, unit)));
    }
    word
}

fn rounded(figure: f64, unit: f64) -> i64 {
    (figure / unit).round() as i64
}

/// Returns the names of the two figures that depend on single items' losses. A suite with quantiles has
/// one: with equal slopes, the median's error is a multiple of it.
fn names(public: &Public) -> [&'static str; 2] {
    match (Distance::for_quantiles(public), public.metric.family()) {
        (Some(own), _) => [own.figure; 2],
        (None, Family::Numbers) => ["mae", "rmse"],
        _ => ["log_loss", "brier"],
    }
}

/// Returns the same figures from a disclosed result.
fn disclosed_word(public: &Public, unit: f64, figures: &Figures) -> Option<Vec<i64>> {
    let names = names(public);
    let metric = public.metric.to_string();
    let figure = |name: &str| {
        if name == metric {
            Some(figures.value)
        } else {
            figures.metrics.get(name).copied()
        }
    };
    let mut word: Vec<i64> = names
        .iter()
        .map(|name| figure(name).map(|figure| rounded(figure, unit)))
        .collect::<Option<_>>()?;
    if names.contains(&metric.as_str()) {
        let estimate = figures.estimate?;
        word.extend(
            [estimate.stderr, estimate.ci95[0], estimate.ci95[1]]
                .map(|figure| rounded(figure, unit)),
        );
        let skill = figures.skill.as_ref();
        word.extend(skill.map(|skill| rounded(skill.value, unit)));
    }
    Some(word)
}

impl Code {
    /// Builds these predictions' code. Returns `None` if two combinations have the same
    /// figures.
    fn of(
        public: &Public,
        numbers: &[f64],
        unit: f64,
        predictions: Vec<Predicted>,
    ) -> Option<Self> {
        let n = public.candidates.len();
        let by_answer = |predicted: &Predicted| {
            (0..n)
                .map(|answer| losses(public, predicted, answer, numbers))
                .collect()
        };
        let tables: Vec<Vec<[f64; 2]>> = predictions.iter().map(by_answer).collect();
        let rest = losses(public, &neutral(public, numbers), 0, numbers);
        let others = (public.n - predictions.len()) as f64;
        let mut words = Vec::new();
        for combination in 0..n.pow(predictions.len() as u32) {
            let mut sums = rest.map(|loss| loss * others);
            let mut squares = rest.map(|loss| loss * loss * others);
            let mut digits = combination;
            for table in &tables {
                let loss = table[digits % n];
                digits /= n;
                for at in 0..2 {
                    sums[at] += loss[at];
                    squares[at] += loss[at] * loss[at];
                }
            }
            words.push((word(public, unit, sums, squares), combination));
        }
        words.sort_unstable();
        words
            .windows(2)
            .all(|pair| pair[0].0 != pair[1].0)
            .then_some(Self { predictions, words })
    }

    /// Searches at random for the code with the largest group.
    fn best(public: &Public, numbers: &[f64], unit: f64, random: &mut Random) -> Option<Self> {
        let mut best = None;
        for size in 1..=public.n {
            if public.candidates.len().pow(size as u32) > COMBINATIONS_MAX {
                break;
            }
            let mut draws =
                (0..DRAWS_MAX).map(|_| (0..size).map(|_| draw(public, numbers, random)).collect());
            let Some(found) =
                draws.find_map(|predictions| Self::of(public, numbers, unit, predictions))
            else {
                break;
            };
            best = Some(found);
        }
        best
    }
}

/// The seed for the prediction search, which does not depend on the suite.
const SEED: u64 = 1;

fn code(public: &Public, numbers: &[f64]) -> Option<(Code, f64)> {
    let unit = super::rounding::unit(public.policy)?;
    Some((
        Code::best(public, numbers, unit, &mut Random::new(SEED))?,
        unit,
    ))
}

/// Returns how many submissions disclose every answer.
pub fn submissions_needed(public: &Public, numbers: &[f64]) -> Option<u32> {
    if !applies(public, numbers) {
        return None;
    }
    let (code, _) = code(public, numbers)?;
    Some(public.n.div_ceil(code.predictions.len()) as u32)
}

/// Decodes the answers, one item group after the other.
pub fn run(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let mut guesses = public.most_frequent();
    let Some((code, unit)) = code(public, &numbers) else {
        return guesses;
    };
    let size = code.predictions.len();
    let n = public.candidates.len();
    for start in (0..public.n).step_by(size) {
        // The last group overlaps the group before, to have the full size.
        let start = start.min(public.n - size);
        let mut predictions = vec![neutral(public, &numbers); public.n];
        predictions[start..start + size].clone_from_slice(&code.predictions);
        let Some(disclosed) = platform.submit_from_any(&predictions) else {
            break;
        };
        let Some(word) = disclosed_word(public, unit, &disclosed.figures) else {
            continue;
        };
        let Ok(at) = code.words.binary_search_by(|(other, _)| other.cmp(&word)) else {
            continue;
        };
        let mut digits = code.words[at].1;
        for guess in &mut guesses[start..start + size] {
            *guess = (digits % n) as u8;
            digits /= n;
        }
    }
    guesses
}
