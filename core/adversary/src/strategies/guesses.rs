//! Guesses, and the predictions that express them.

use assay_eval::Family;

use crate::platform::Predicted;
use crate::random::Random;
use crate::suite::Public;

/// One candidate for each item, in the suite's order.
pub type Guesses = Vec<u8>;

/// Draws a random candidate for every item, weighted by the frequencies.
pub fn draw_guesses(public: &Public, random: &mut Random) -> Guesses {
    (0..public.n)
        .map(|_| random.index(&public.frequencies) as u8)
        .collect()
}

/// Returns a prediction whose losses do not depend on the answer, for a suite with numbers and two
/// candidates or a suite with probabilities.
pub fn neutral(public: &Public, numbers: &[f64]) -> Predicted {
    let n = public.candidates.len();
    match public.metric.family() {
        Family::Numbers => Predicted::Number(f64::midpoint(numbers[0], numbers[1])),
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

/// Returns the predictions that express these guesses.
pub fn predict(public: &Public, numbers: &[f64], guesses: &[u8]) -> Vec<Predicted> {
    let n = public.candidates.len();
    let family = public.metric.family();
    let [right, wrong] = confidence(n);
    let of = |guess: &u8| {
        let guess = *guess;
        match family {
            Family::Rankings => Predicted::Ranking(
                std::iter::once(guess)
                    .chain((0..n as u8).filter(|other| *other != guess))
                    .collect(),
            ),
            Family::Labels => Predicted::Label(guess),
            Family::Numbers => {
                Predicted::Number(numbers.get(usize::from(guess)).copied().unwrap_or(0.0))
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
