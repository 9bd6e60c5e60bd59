//! The interval for a submission's total score that a disclosed value implies, and an interval's
//! likelihood if the score is normal.

use std::borrow::Cow;
use std::f64::consts::{PI, SQRT_2};

use assay_eval::prediction::{Prediction, PredictionSink as _, Value};
use assay_eval::score::{AnswerTable, Progress, Scorer};
use assay_eval::{DisclosurePolicy, Metric};

use super::distances::{quantile_loss, quantiles_by_guess};
use super::guesses::{bold, confidence, mean_answer};
use super::rounding;
use crate::platform::Disclosed;
use crate::suite::{Candidate, Public};

/// Returns an item's score, higher is better, by guess and by answer. Empty if all scores are
/// equal.
pub(super) fn scores(public: &Public, numbers: &[f64]) -> Vec<Vec<f64>> {
    bold_scores(public, numbers, 1.0)
}

/// Returns the scores of predictions with this boldness, see [`super::guesses::predict_boldly`].
pub(super) fn bold_scores(public: &Public, numbers: &[f64], boldness: f64) -> Vec<Vec<f64>> {
    let n = public.candidates.len();
    let clipped = |loss: f64| public.clip.map_or(loss, |clip| clip.apply(loss));
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0.0);
    let mean = mean_answer(public, numbers);
    let square: f64 = (0..n)
        .map(|at| public.frequencies[at] * number(at).powi(2))
        .sum();
    let quantiles_by_guess = quantiles_by_guess(public, numbers);
    let bold_number = |guess: usize| bold(number(guess), mean, boldness);
    let [right, wrong] = confidence(n).map(|share| bold(share, 1.0 / n.max(1) as f64, boldness));
    // The guess comes first, then all other candidates in their order.
    let rank = |guess: usize, answer: usize| {
        1 + if guess == answer {
            0
        } else {
            answer + usize::from(answer < guess)
        }
    };
    if let Some(table) = &public.by_answer {
        let shares = |guess: usize| {
            (0..n)
                .map(|at| if at == guess { right } else { wrong })
                .collect::<Vec<f64>>()
        };
        let table: Vec<Vec<f64>> = (0..n)
            .map(|guess| scored_by_answer(public, table, &shares(guess)))
            .collect();
        return table;
    }
    let score = |guess: usize, answer: usize| -> f64 {
        let hit = f64::from(u8::from(guess == answer));
        let at = rank(guess, answer) as f64;
        let within = |k: usize, score: f64| if at <= k as f64 { score } else { 0.0 };
        match public.metric {
            Metric::HitRate(k) | Metric::Recall(k) => within(k.get(), 1.0),
            Metric::Precision(k) => within(k.get(), 1.0 / k.get() as f64),
            Metric::Ndcg(k) => within(k.get(), 1.0 / (at + 1.0).log2()),
            Metric::Mrr(k) | Metric::Map(k) => within(k.get(), 1.0 / at),
            Metric::Rmse => -clipped((bold_number(guess) - number(answer)).abs()).powi(2),
            Metric::Mae => -clipped((bold_number(guess) - number(answer)).abs()),
            Metric::Spearman | Metric::Pearson | Metric::Kendall | Metric::Ccc => {
                (number(guess) - mean) * (number(answer) - mean)
                    / (square - mean * mean).max(1e-300)
            }
            Metric::R2 => {
                1.0 - (number(guess) - number(answer)).powi(2) / (square - mean * mean).max(1e-300)
            }
            Metric::Pinball | Metric::Wis => public.levels.as_ref().map_or(0.0, |levels| {
                let quantiles = &quantiles_by_guess[guess];
                -clipped(quantile_loss(
                    public.metric,
                    levels,
                    quantiles,
                    number(answer),
                ))
            }),
            Metric::LogLoss => -clipped(-(if hit == 1.0 { right } else { wrong }).ln()),
            Metric::Brier => {
                let others = (n as f64 - 1.0) * wrong * wrong;
                let right_score = if hit == 1.0 {
                    (1.0 - right).powi(2)
                } else {
                    (1.0 - wrong).powi(2) + right * right - wrong * wrong
                };
                -(others + right_score) * if n <= 2 { 0.5 } else { 1.0 }
            }
            _ => hit,
        }
    };
    let table: Vec<Vec<f64>> = (0..n)
        .map(|guess| (0..n).map(|answer| score(guess, answer)).collect())
        .collect();
    let is_constant = table.iter().flatten().all(|score| *score == table[0][0]);
    if is_constant { Vec::new() } else { table }
}

/// Returns the score of these probabilities of the candidates, higher is better, by answer. The real
/// scorer computes it.
fn scored_by_answer(public: &Public, table: &AnswerTable, shares: &[f64]) -> Vec<f64> {
    let label = |candidate: &Candidate| match candidate {
        Candidate::Label(label) => label.clone(),
        Candidate::Number(number) => Cow::Owned(number.to_string()),
    };
    let labels = public.candidates.iter().map(label);
    let predicted: Vec<(Cow<'_, str>, f64)> = labels.zip(shares.iter().copied()).collect();
    let progress = Progress::default();
    let mut scorer = Scorer::new(table, public.metric, &progress);
    for index in 0..table.len() {
        let prediction = Prediction {
            index,
            line: None,
            item_id: Cow::Owned(index.to_string()),
            value: Value::Probabilities(&predicted),
        };
        if scorer.take(Ok(prediction)).is_break() {
            return vec![0.0; table.len()];
        }
    }
    let sign = if public.metric.lower_is_better() {
        -1.0
    } else {
        1.0
    };
    scorer.finish().map_or_else(
        |_| vec![0.0; table.len()],
        |score| {
            let items = 0..table.len();
            items.map(|item| sign * score.items.value(item)).collect()
        },
    )
}

/// Returns the total score of `n` items, higher is better, for a metric value.
pub(super) fn sum_of(metric: Metric, value: f64, n: usize) -> f64 {
    let mean = match metric {
        Metric::Rmse => -value * value.abs(),
        metric if metric.lower_is_better() => -value,
        _ => value,
    };
    mean * n as f64
}

/// An interval that contains the total item score, higher is better.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// One organization's level, and the conversion from a value to a total score.
pub(super) struct Reading<'p> {
    public: &'p Public,
    level: u32,
    /// The interval's half width for a value that is disclosed exactly.
    exact: f64,
    /// A correct guess's score in a suite with two candidates.
    right: f64,
    /// A wrong guess's score in a suite with two candidates.
    wrong: f64,
}

impl<'p> Reading<'p> {
    /// Creates the state before the first submission.
    pub(super) fn new(public: &'p Public, scores: &[Vec<f64>]) -> Self {
        let all = || scores.iter().flatten().copied();
        let spread = all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min);
        Self {
            public,
            level: 0,
            exact: spread / 2.0,
            right: scores[0][0],
            wrong: scores[0][1],
        }
    }

    /// Returns the total item score for a metric value.
    fn sum(&self, value: f64) -> f64 {
        sum_of(self.public.metric, value, self.public.n_open)
    }

    /// Returns the total score at which the next level starts. `None` at the last level.
    pub(super) fn next_level(&self) -> Option<f64> {
        let ladder = self.public.ladder?;
        (self.level < ladder.levels).then(|| self.sum(ladder.value(self.level + 1)))
    }

    /// Returns the sum's interval for a value between these two.
    fn between(&self, one: f64, other: f64) -> Interval {
        let [one, other] = [one, other].map(|value| self.sum(value));
        Interval {
            low: one.min(other),
            high: one.max(other),
        }
    }

    /// Returns the sum's interval that a disclosed result implies.
    pub(super) fn observe(&mut self, disclosed: &Disclosed) -> Interval {
        let by_value = self.observe_value(disclosed);
        match self.observe_skill(disclosed) {
            Some(by_skill) if by_skill.low < by_value.high && by_value.low < by_skill.high => {
                Interval {
                    low: by_value.low.max(by_skill.low),
                    high: by_value.high.min(by_skill.high),
                }
            }
            _ => by_value,
        }
    }

    /// Returns the sum's interval that a rounded skill implies. It can be narrower than the value's: the
    /// skill divides by the distance of the baseline.
    fn observe_skill(&self, disclosed: &Disclosed) -> Option<Interval> {
        let skill = disclosed.figures.skill.as_ref()?.value;
        let half = rounding::unit(self.public.policy)? / 2.0;
        let distance = self.public.skill_distance?;
        let value = |skill: f64| {
            let away = distance * (1.0 - skill);
            if self.public.metric.lower_is_better() {
                away
            } else {
                1.0 - away
            }
        };
        Some(self.between(value(skill - half), value(skill + half)))
    }

    fn observe_value(&mut self, disclosed: &Disclosed) -> Interval {
        let value = disclosed.figures.value;
        match self.public.policy {
            DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_) => Interval {
                low: self.sum(value) - self.exact,
                high: self.sum(value) + self.exact,
            },
            DisclosurePolicy::Rounded(_) => match rounding::right_guesses(self.public, disclosed) {
                Some((low, high)) => {
                    let sum = |right: f64| {
                        right * self.right + (self.public.n_open as f64 - right) * self.wrong
                    };
                    Interval {
                        low: sum(low - 0.5),
                        high: sum(high + 0.5),
                    }
                }
                None => {
                    let unit = rounding::unit(self.public.policy).unwrap_or(0.1);
                    self.between(value - unit / 2.0, value + unit / 2.0)
                }
            },
            DisclosurePolicy::Ladder(_) => {
                let before = self.level;
                let (step, start) = self
                    .public
                    .ladder
                    .map_or((1.0, 0.0), |ladder| (ladder.step, ladder.start));
                self.level = ((value - start) / step).round().max(0.0) as u32;
                let high = self.next_level().unwrap_or(f64::INFINITY);
                let low = if self.level > before {
                    self.sum(value)
                } else {
                    f64::NEG_INFINITY
                };
                Interval { low, high }
            }
        }
    }
}

/// Returns the standard normal density.
fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * PI).sqrt()
}

/// Returns the standard normal probability above z. (M. Abramowitz and I. A.
/// Stegun 1964, 7.1.26; in the far tail the asymptotic series 7.1.23.)
pub(super) fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    if z > 4.0 {
        return if z > 35.0 {
            0.0
        } else {
            density(z) / z * (1.0 - 1.0 / (z * z) + 3.0 / z.powi(4))
        };
    }
    let t = 1.0 / (1.0 + 0.327_591_1 * (z / SQRT_2));
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    0.5 * series * (-z * z / 2.0).exp()
}

/// Returns the z for which [`above`] is this probability.
pub(super) fn quantile_above(probability: f64) -> f64 {
    let mut low = -6.0;
    let mut high = 6.0;
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if above(middle) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the first and the second derivative, with respect to the mean, of an interval's
/// log-probability.
pub(super) fn derivatives(interval: Interval, mean: f64, deviation: f64) -> [f64; 2] {
    let low = (interval.low - mean) / deviation;
    let high = (interval.high - mean) / deviation;
    let probability = if low > 0.0 {
        above(low) - above(high)
    } else {
        above(-high) - above(-low)
    };
    if probability < 1e-9 {
        // For a distant or narrow interval, use its nearest point as the observation.
        let nearest = if low > 0.0 { low } else { high.min(0.0) };
        return [
            nearest.clamp(-6.0, 6.0) / deviation,
            -1.0 / (deviation * deviation),
        ];
    }
    let at = |z: f64| {
        if z.is_finite() {
            (density(z), z * density(z))
        } else {
            (0.0, 0.0)
        }
    };
    let at_low = at(low);
    let at_high = at(high);
    let first = (at_low.0 - at_high.0) / probability;
    let second = (at_low.1 - at_high.1) / probability - first * first;
    [first / deviation, second / (deviation * deviation)]
}
