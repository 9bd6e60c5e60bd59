//! What numbers are worth: the figures of scikit-learn's `root_mean_squared_error` and `mean_absolute_error` and of SciPy's
//! `spearmanr`.

use assay_core::Metric;
use assay_core::item_scores::{ItemScores, Kind};

use super::estimate::{Estimate, around, fisher, stderr_of_mean};
use super::sum::Sum;
use super::table::{AnswerTable, Item};
use super::{Failure, Figures, RANKED_BESIDE_MAX, needs_all};

/// Compares numbers one after the other.
pub(super) struct Numbers<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    absolute: Sum,
    squared: Sum,
    /// By ordinal, for the correlation beside another metric; empty for large suites.
    predictions: Vec<f64>,
    /// What is counted as the error of an item without a prediction: how far the suite's answers are from each other.
    spread: f64,
}

impl<'t> Numbers<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        let answers = table.numbers();
        let least = answers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = answers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (spread, n) = (if answers.is_empty() { 0.0 } else { most - least }, table.len());
        let (kind, worst) = if metric == Metric::Spearman { (Kind::Numbers, 0.0) } else { (Kind::Scores, spread) };
        let beside = if metric != Metric::Spearman && n <= RANKED_BESIDE_MAX { n } else { 0 };
        let numbers = Self { table, metric, absolute: Sum::default(), squared: Sum::default(), predictions: vec![0.0; beside], spread };
        (numbers, ItemScores::new(kind, n, worst, false))
    }

    pub(super) fn add(&mut self, item: Item<'t>, number: f64, items: &mut ItemScores) {
        let error = (number - item.number()).abs();
        self.absolute.add(error);
        self.squared.add(error * error);
        if let Some(prediction) = self.predictions.get_mut(item.ordinal) {
            *prediction = number;
        }
        items.set(item.ordinal, if self.metric == Metric::Spearman { number } else { error });
    }

    pub(super) fn finish(mut self, items: &ItemScores, n_missing: usize) -> Result<Figures, Failure> {
        let n = self.table.len();
        self.absolute.add(self.spread * n_missing as f64);
        self.squared.add(self.spread * self.spread * n_missing as f64);
        let mean = |sum: Sum| sum.total() / n.max(1) as f64;
        let (mae, mse) = (mean(self.absolute), mean(self.squared));
        let rmse = mse.sqrt();
        let beside = |name: &str, figure| (name.to_owned(), figure);
        if self.metric == Metric::Spearman {
            needs_all(self.metric, n_missing)?;
            let predictions: Vec<f64> = (0..n).map(|item| items.value(item)).collect();
            let same = || Failure::InvalidPredictions("all predictions are the same number: spearman is not defined".into());
            let rho = spearman(&predictions, self.table.numbers()).ok_or_else(same)?;
            return Ok(Figures { value: rho, estimate: fisher(rho, n), metrics: [beside("rmse", rmse), beside("mae", mae)].into() });
        }
        let errors = (0..n).map(|item| items.value(item));
        let range = [0.0, f64::INFINITY];
        let (value, estimate, other): (_, Option<Estimate>, _) = if self.metric == Metric::Rmse {
            let of_squares = stderr_of_mean(mse, n, errors.map(|error| error * error));
            let stderr = of_squares.map(|stderr| if rmse > 0.0 { stderr / (2.0 * rmse) } else { 0.0 });
            (rmse, stderr.map(|stderr| around(rmse, stderr, range, "delta")), beside("mae", mae))
        } else {
            let stderr = stderr_of_mean(mae, n, errors);
            (mae, stderr.map(|stderr| around(mae, stderr, range, "normal")), beside("rmse", rmse))
        };
        let correlation = if n_missing == 0 { spearman(&self.predictions, self.table.numbers()) } else { None };
        let metrics = [other].into_iter().chain(correlation.map(|rho| beside("spearman", rho))).collect();
        Ok(Figures { value, estimate, metrics })
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
        order[start..end].iter().for_each(|at| ranks[*at as usize] = rank);
        start = end;
    }
    ranks
}

/// The correlation of the ranks. `None`: all are the same on one side, or nothing is asked.
fn spearman(predictions: &[f64], answers: &[f64]) -> Option<f64> {
    if predictions.len() != answers.len() {
        return None;
    }
    let (predictions, answers) = (ranks(predictions), ranks(answers));
    let middle = (predictions.len() as f64 + 1.0) / 2.0;
    let moment =
        |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(one, other)| (one - middle) * (other - middle)).collect::<Sum>().total();
    let (theirs, ours) = (moment(&predictions, &predictions), moment(&answers, &answers));
    // The root of each, for the product of both may be too large.
    (theirs > 0.0 && ours > 0.0).then(|| (moment(&predictions, &answers) / theirs.sqrt() / ours.sqrt()).clamp(-1.0, 1.0))
}
