//! Guesses, and the predictions that express them.

use assay_eval::Family;

use super::distances::{Distance, quantiles_by_guess};
use crate::platform::Predicted;
use crate::random::Random;
use crate::suite::Public;

/// One candidate for each item, in the suite's order.
pub type Guesses = Vec<u8>;

/// Guesses with the scores of their predictions.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'s> {
    guesses: &'s [u8],
    scores: &'s [Vec<f64>],
}

impl<'s> Submission<'s> {
    /// Creates a submission. `scores` has an item's score by guess and by answer.
    pub fn new(guesses: &'s [u8], scores: &'s [Vec<f64>]) -> Self {
        Self { guesses, scores }
    }

    /// Returns an item's score by answer.
    pub fn scores(self, item: usize) -> &'s [f64] {
        &self.scores[usize::from(self.guesses[item])]
    }
}

/// Draws a random candidate for every item, weighted by the frequencies.
pub fn draw_guesses(public: &Public, random: &mut Random) -> Guesses {
    (0..public.n)
        .map(|_| random.index(&public.frequencies) as u8)
        .collect()
}

/// Returns a prediction whose losses do not depend on the answer, for a suite with numbers or quantiles
/// and two candidates, or a suite with probabilities.
pub fn neutral(public: &Public, numbers: &[f64]) -> Predicted {
    let n = public.candidates.len();
    match (public.metric.family(), Distance::of(public)) {
        (Family::Numbers, _) => Predicted::Number(f64::midpoint(numbers[0], numbers[1])),
        (Family::Quantiles, Some(distance)) => {
            let low = numbers[0].min(numbers[1]);
            let high = numbers[0].max(numbers[1]);
            Predicted::Number(distance.neutral(low, high))
        }
        _ => Predicted::Probabilities(vec![1.0 / n as f64; n]),
    }
}

/// Returns a prediction's losses if this candidate is the answer, computed like the scorer
/// does: `log_loss` and `brier`, or the absolute and the squared error.
pub fn losses(predicted: &Predicted, answer: usize, numbers: &[f64]) -> [f64; 2] {
    match predicted {
        Predicted::Probabilities(shares) => {
            let squares: f64 = shares
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != answer)
                .map(|(_, share)| share * share)
                .sum();
            let brier = squares + (1.0 - shares[answer]).powi(2);
            [
                -shares[answer].clamp(1e-15, 1.0).ln(),
                if shares.len() == 2 {
                    brier / 2.0
                } else {
                    brier
                },
            ]
        }
        Predicted::Number(number) => {
            let error = (number - numbers[answer]).abs();
            [error, error * error]
        }
        _ => [0.0; 2],
    }
}

/// Returns the probabilities for a guessed label and for each other one in a suite with `n`
/// candidates. They keep a distance from 0 and 1.
pub fn confidence(n: usize) -> [f64; 2] {
    let wrong = 0.25 / n.max(2) as f64;
    [1.0 - wrong * (n as f64 - 1.0), wrong]
}

/// Returns a figure between a neutral one, with boldness 0, and itself, with boldness 1.
pub fn bold(figure: f64, neutral: f64, boldness: f64) -> f64 {
    figure + (1.0 - boldness) * (neutral - figure)
}

/// Returns the mean answer in a suite with numbers.
pub fn mean_answer(public: &Public, numbers: &[f64]) -> f64 {
    let shares = public.frequencies.iter().zip(numbers);
    shares.map(|(share, number)| share * number).sum()
}

/// Returns the predictions that express these guesses.
pub fn predict(public: &Public, numbers: &[f64], guesses: &[u8]) -> Vec<Predicted> {
    predict_boldly(public, numbers, guesses, 1.0)
}

/// Returns predictions between the ones for which nothing is known, with boldness 0, and those of
/// [`predict`], with boldness 1. Labels, rankings and quantiles have no boldness.
pub fn predict_boldly(
    public: &Public,
    numbers: &[f64],
    guesses: &[u8],
    boldness: f64,
) -> Vec<Predicted> {
    let n = public.candidates.len();
    let family = public.metric.family();
    let [right, wrong] = confidence(n).map(|share| bold(share, 1.0 / n.max(1) as f64, boldness));
    let mean = mean_answer(public, numbers);
    let by_guess = quantiles_by_guess(public, numbers);
    let of = |guess: &u8| {
        let guess = *guess;
        match family {
            // A set of all candidates would have the same score for every guess.
            Family::Rankings if public.metric.compares_sets() => Predicted::Ranking(vec![guess]),
            Family::Rankings => Predicted::Ranking(
                std::iter::once(guess)
                    .chain((0..n as u8).filter(|other| *other != guess))
                    .collect(),
            ),
            Family::Labels => Predicted::Label(guess),
            Family::Numbers => {
                let number = numbers.get(usize::from(guess)).copied().unwrap_or(0.0);
                Predicted::Number(bold(number, mean, boldness))
            }
            Family::Quantiles => {
                let quantiles = by_guess.get(usize::from(guess)).cloned();
                quantiles.map_or(Predicted::Missing, Predicted::Quantiles)
            }
            Family::Probabilities => Predicted::Probabilities(
                (0..n)
                    .map(|at| {
                        if at == usize::from(guess) {
                            right
                        } else {
                            wrong
                        }
                    })
                    .collect(),
            ),
        }
    };
    guesses.iter().map(of).collect()
}
