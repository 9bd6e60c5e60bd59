//! What numbers are worth: the figures of scikit-learn's `root_mean_squared_error` and `mean_absolute_error` and of SciPy's
//! `spearmanr`.

use crate::item_scores::{ItemScores, Kind};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;

use super::answer_table::{AnswerTable, Item};
use super::{Failure, Figures, RANKED_BESIDE_MAX};
use crate::stats::confidence::{Estimate, around, fisher, stderr_of_mean};

/// Compares numbers one after the other.
pub(super) struct Numbers<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    absolute: Sum,
    squared: Sum,
    /// By ordinal, for the correlation beside another metric; empty for large suites.
    predictions: Vec<f64>,
    /// The error of an item without a prediction: the suite's largest loss, or the range of its answers.
    spread: f64,
}

impl<'t> Numbers<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        let answers = table.numbers();
        let least = answers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = answers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let n = table.len();
        let spread = match table.clip() {
            Some(clip) => clip.high,
            None if answers.is_empty() => 0.0,
            None => most - least,
        };
        let (kind, worst) = if metric == Metric::Spearman {
            (Kind::Parts, 0.0)
        } else {
            (Kind::Scores, spread)
        };
        let beside = if metric != Metric::Spearman && n <= RANKED_BESIDE_MAX {
            n
        } else {
            0
        };
        let numbers = Self {
            table,
            metric,
            absolute: Sum::default(),
            squared: Sum::default(),
            predictions: vec![0.0; beside],
            spread,
        };
        (numbers, ItemScores::new(kind, n, worst, false))
    }

    pub(super) fn add(&mut self, item: Item<'t>, number: f64, items: &mut ItemScores) {
        let error = self.table.clipped((number - item.number()).abs());
        self.absolute.add(error);
        self.squared.add(error * error);
        if let Some(prediction) = self.predictions.get_mut(item.ordinal) {
            *prediction = number;
        }
        items.set(
            item.ordinal,
            if self.metric == Metric::Spearman {
                number
            } else {
                error
            },
        );
    }

    pub(super) fn finish(
        mut self,
        items: &mut ItemScores,
        n_missing: usize,
    ) -> Result<Figures, Failure> {
        let n = self.table.len();
        self.absolute.add(self.spread * n_missing as f64);
        self.squared
            .add(self.spread * self.spread * n_missing as f64);
        let mean = |sum: Sum| sum.total() / n.max(1) as f64;
        let (mae, mse) = (mean(self.absolute), mean(self.squared));
        let rmse = mse.sqrt();
        let beside = |name: &str, figure| (name.to_owned(), figure);
        if self.metric == Metric::Spearman {
            let predictions: Vec<f64> = (0..n).map(|item| items.value(item)).collect();
            let same = || {
                Failure::InvalidPredictions(
                    "all predictions are the same number: spearman is not defined".into(),
                )
            };
            let ranked = Ranked::of(&predictions, self.table.numbers()).ok_or_else(same)?;
            let rho = ranked.rho();
            ranked
                .influences()
                .into_iter()
                .enumerate()
                .for_each(|(item, influence)| items.set(item, rho + influence));
            return Ok(Figures {
                value: rho,
                estimate: fisher(rho, n),
                metrics: [beside("rmse", rmse), beside("mae", mae)].into(),
            });
        }
        let errors = (0..n).map(|item| items.value(item));
        let range = self
            .table
            .clip()
            .map_or([0.0, f64::INFINITY], |clip| [clip.low, clip.high]);
        let (value, estimate, other): (_, Option<Estimate>, _) = if self.metric == Metric::Rmse {
            let of_squares = stderr_of_mean(mse, n, errors.map(|error| error * error));
            let stderr = of_squares.map(|stderr| {
                if rmse > 0.0 {
                    stderr / (2.0 * rmse)
                } else {
                    0.0
                }
            });
            (
                rmse,
                stderr.map(|stderr| around(rmse, stderr, range, "delta")),
                beside("mae", mae),
            )
        } else {
            let stderr = stderr_of_mean(mae, n, errors);
            (
                mae,
                stderr.map(|stderr| around(mae, stderr, range, "normal")),
                beside("rmse", rmse),
            )
        };
        let correlation = if n_missing == 0 {
            Ranked::of(&self.predictions, self.table.numbers())
        } else {
            None
        };
        let metrics = [other]
            .into_iter()
            .chain(correlation.map(|ranked| beside("spearman", ranked.rho())))
            .collect();
        Ok(Figures {
            value,
            estimate,
            metrics,
        })
    }
}

/// The ranks of values, from 1; those that are equal share the mean of theirs.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by(|one, other| values[*one as usize].total_cmp(&values[*other as usize]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let value = values[order[start] as usize];
        let mut end = start + 1;
        // By value: -0 is 0.
        while end < order.len() && values[order[end] as usize] == value {
            end += 1;
        }
        let rank = (start + 1 + end) as f64 / 2.0;
        order[start..end]
            .iter()
            .for_each(|at| ranks[*at as usize] = rank);
        start = end;
    }
    ranks
}

/// The ranks of both sides, less their mean.
struct Ranked {
    predictions: Vec<f64>,
    answers: Vec<f64>,
    /// The sums of their squares.
    squares: [f64; 2],
}

fn product(one: &[f64], other: &[f64]) -> f64 {
    one.iter()
        .zip(other)
        .map(|(one, other)| one * other)
        .collect::<Sum>()
        .total()
}

impl Ranked {
    /// `None`: all are the same on one side, or nothing is asked.
    fn of(predictions: &[f64], answers: &[f64]) -> Option<Self> {
        if predictions.len() != answers.len() {
            return None;
        }
        let middle = (predictions.len() as f64 + 1.0) / 2.0;
        let centred = |values: &[f64]| -> Vec<f64> {
            ranks(values)
                .into_iter()
                .map(|rank| rank - middle)
                .collect()
        };
        let (predictions, answers) = (centred(predictions), centred(answers));
        let squares = [
            product(&predictions, &predictions),
            product(&answers, &answers),
        ];
        (squares[0] > 0.0 && squares[1] > 0.0).then_some(Self {
            predictions,
            answers,
            squares,
        })
    }

    /// The correlation.
    fn rho(&self) -> f64 {
        let [theirs, ours] = self.squares;
        // The root of each, for the product of both may be too large.
        (product(&self.predictions, &self.answers) / theirs.sqrt() / ours.sqrt()).clamp(-1.0, 1.0)
    }

    /// How much each item moves the correlation, n times: these sum to 0. By the delta method, for an item moves the ranks of
    /// the others, too. (C. Croux and C. Dehon 2010.)
    fn influences(&self) -> Vec<f64> {
        let n = self.predictions.len();
        let (rho, [theirs, ours]) = (self.rho(), self.squares.map(|squares| squares / n as f64));
        let (one, other) = (&self.predictions, &self.answers);
        let (ones, others) = (behind(one, one), behind(other, other));
        let (others_behind_one, ones_behind_other) = (behind(one, other), behind(other, one));
        let of_item = |item: usize| {
            let moved = one[item] * other[item] + others_behind_one[item] + ones_behind_other[item];
            let spread = (one[item] * one[item] + 2.0 * ones[item]) / theirs
                + (other[item] * other[item] + 2.0 * others[item]) / ours;
            moved / (theirs.sqrt() * ours.sqrt()) - 3.0 * rho - rho / 2.0 * (spread - 6.0)
        };
        (0..n).map(of_item).collect()
    }
}

/// Of each item, the sum of what those have whose rank is higher, and half of what those have that share it.
fn behind(ranks: &[f64], values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..ranks.len() as u32).collect();
    order.sort_unstable_by(|one, other| ranks[*other as usize].total_cmp(&ranks[*one as usize]));
    let (mut sums, mut higher, mut start) = (vec![0.0; ranks.len()], Sum::default(), 0);
    while start < order.len() {
        let rank = ranks[order[start] as usize];
        let end = start
            + order[start..]
                .iter()
                .take_while(|at| ranks[**at as usize] == rank)
                .count();
        let shared = order[start..end]
            .iter()
            .map(|at| values[*at as usize])
            .collect::<Sum>()
            .total();
        order[start..end]
            .iter()
            .for_each(|at| sums[*at as usize] = higher.total() + shared / 2.0);
        higher.add(shared);
        start = end;
    }
    sums
}
