//! Losses of numbers: their distances to the answer, and those of quantiles.

use assay_eval::{Family, Metric, QuantileLevels};

use crate::suite::Public;

/// A figure that is the mean over the items of the distance between a predicted number and the answer,
/// times one of two slopes. With quantiles, the number is predicted at each level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// The name of the figure.
    pub figure: &'static str,
    /// The loss per unit if the answer is above the number.
    pub above: f64,
    /// The loss per unit if the answer is below the number.
    pub below: f64,
    /// `true` if the bounds of the suite change the losses.
    pub is_clipped: bool,
}

impl Distance {
    /// Returns the figure with the most digits. `None` if the suite has no numbers.
    pub fn of(public: &Public) -> Option<Self> {
        let mae = |is_clipped: bool| Self {
            figure: "mae",
            above: 1.0,
            below: 1.0,
            is_clipped,
        };
        match (public.metric.family(), &public.levels) {
            (Family::Numbers, _) => Some(mae(public.clip.is_some())),
            // The median's error has no bounds.
            (Family::Quantiles, Some(levels)) if levels.values().any(|level| level == 0.5) => {
                Some(mae(false))
            }
            _ => Self::for_quantiles(public),
        }
    }

    /// Returns the suite's own metric as such a figure. `None` if it does not score quantiles.
    pub fn for_quantiles(public: &Public) -> Option<Self> {
        let (figure, factor) = match public.metric {
            Metric::Pinball => ("pinball", 1.0),
            Metric::Wis => ("wis", 2.0),
            _ => return None,
        };
        let levels = public.levels.as_ref()?;
        let mean = levels.values().sum::<f64>() / levels.len() as f64;
        Some(Self {
            figure,
            above: factor * mean,
            below: factor * (1.0 - mean),
            is_clipped: public.clip.is_some(),
        })
    }

    /// Returns the loss of a number.
    pub fn loss(self, number: f64, answer: f64) -> f64 {
        if answer < number {
            (number - answer) * self.below
        } else {
            (answer - number) * self.above
        }
    }

    /// Returns the number that has the same loss for two answers.
    pub fn neutral(self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.above / (self.above + self.below)
    }
}

/// Returns the loss of predicted quantiles in a suite with this metric, without bounds.
pub fn quantile_loss(
    metric: Metric,
    levels: &QuantileLevels,
    quantiles: &[f64],
    answer: f64,
) -> f64 {
    let at_level = |(level, number): (f64, &f64)| {
        let is_below = f64::from(u8::from(answer < *number));
        (answer - number) * (level - is_below)
    };
    let sum: f64 = levels.values().zip(quantiles).map(at_level).sum();
    let factor = if metric == Metric::Wis { 2.0 } else { 1.0 };
    factor * sum / levels.len() as f64
}

/// The weights of a guess in a distribution over the candidates, which is otherwise that of all answers.
const TILTS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// Returns the quantiles that express each candidate as a guess. They hedge: as many levels as possible
/// have the quantiles of all answers, because a bold wrong guess costs more than a right one gains. Empty
/// without levels.
pub fn quantiles_by_guess(public: &Public, numbers: &[f64]) -> Vec<Vec<f64>> {
    let Some(levels) = &public.levels else {
        return Vec::new();
    };
    let tilted = |tilt: f64| -> Vec<Vec<f64>> {
        (0..numbers.len())
            .map(|guess| quantiles(levels, numbers, &tilted_shares(public, guess, tilt)))
            .collect()
    };
    let are_different = |by_guess: &Vec<Vec<f64>>| {
        let mut pairs = (0..by_guess.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs.all(|(one, other)| by_guess[one] != by_guess[other])
    };
    let mut all = TILTS.into_iter().map(tilted);
    all.find(are_different).unwrap_or_else(|| tilted(1.0))
}

/// Returns the frequencies of the candidates, where the guess has this additional weight.
fn tilted_shares(public: &Public, guess: usize, tilt: f64) -> Vec<f64> {
    let frequencies = public.frequencies.iter().enumerate();
    frequencies
        .map(|(at, share)| (1.0 - tilt) * share + tilt * f64::from(u8::from(at == guess)))
        .collect()
}

/// Returns the quantiles of a distribution over these numbers.
fn quantiles(levels: &QuantileLevels, numbers: &[f64], shares: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<(f64, f64)> = numbers
        .iter()
        .copied()
        .zip(shares.iter().copied())
        .collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
    let quantile = |level: f64| {
        let mut below = 0.0;
        let found = sorted.iter().find(|(_, share)| {
            below += share;
            below >= level
        });
        found.or(sorted.last()).map_or(0.0, |(number, _)| *number)
    };
    levels.values().map(quantile).collect()
}
