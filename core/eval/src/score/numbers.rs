//! Number figures. They agree with scikit-learn's `root_mean_squared_error`,
//! `mean_absolute_error` and `r2_score`, and with SciPy's `spearmanr`, `pearsonr` and `kendalltau`.

use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, estimate_within, stderr_of_mean};

use super::answer_table::{AnswerTable, Item};
use super::joint::JointFigure;
use super::part::{Part, PartFigure};
use super::ranks::{RANKED_ITEMS_MAX, RankCorrelation};
use super::result::{Failure, Figures};

/// Accumulates number errors.
pub(super) struct Numbers<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    absolute: Sum,
    squared: Sum,
    /// The predictions by ordinal, for `spearman` as an additional figure; empty for large suites.
    predictions: Vec<f64>,
    /// The error for an item without a prediction: the loss's upper bound, or the answers'
    /// range.
    largest_error: f64,
}

impl<'t> Numbers<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let answers = table.numbers();
        let least = answers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = answers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let n = table.len();
        let largest_error = match table.clip() {
            Some(clip) => clip.high,
            None if answers.is_empty() => 0.0,
            None => most - least,
        };
        let (kind, worst) = if metric.needs_all_predictions() {
            (Kind::Parts, 0.0)
        } else {
            (Kind::Scores, largest_error)
        };
        let n_kept = if !metric.needs_all_predictions() && n <= RANKED_ITEMS_MAX {
            n
        } else {
            0
        };
        let numbers = Self {
            table,
            metric,
            absolute: Sum::default(),
            squared: Sum::default(),
            predictions: vec![0.0; n_kept],
            largest_error,
        };
        (numbers, ItemScoresBuilder::new(kind, n, worst, false))
    }

    pub(super) fn add(&mut self, item: Item<'t>, number: f64, items: &mut ItemScoresBuilder) {
        let error = item.error(number);
        self.absolute.add(error);
        self.squared.add(error * error);
        if let Some(prediction) = self.predictions.get_mut(item.ordinal) {
            *prediction = number;
        }
        items.set(
            item.ordinal,
            if self.metric.needs_all_predictions() {
                number
            } else {
                error
            },
        );
    }

    /// Returns the figure of some items. A correlation for which all predictions are the same number
    /// counts as 0.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        let range = self.metric.range(self.table.clip(), self.table.n_options());
        match self.metric {
            metric if metric.needs_all_predictions() => {
                let predictions: Vec<f64> = part.values().collect();
                let answers = self.table.numbers();
                let answers: Vec<f64> = part.places().map(|place| answers[place]).collect();
                let Some(figure) = JointFigure::of(metric, &predictions, &answers) else {
                    return PartFigure::undefined(part.len());
                };
                PartFigure {
                    value: figure.value,
                    estimate: figure.estimate(metric, range),
                    contributions: figure.contributions().collect(),
                }
            }
            metric if metric.is_root() => {
                let squares = part.values().map(|error| error * error);
                let mse = squares.clone().collect::<Sum>().total() / part.len().max(1) as f64;
                PartFigure {
                    value: mse.sqrt(),
                    estimate: estimate_of_root(mse, part.len(), squares, range),
                    contributions: part.contributions(self.metric),
                }
            }
            _ => part.mean_figure(range),
        }
    }

    /// Returns `true` if the answers of some items leave the metric defined: a figure of all items
    /// together needs two different numbers.
    pub(super) fn is_defined(&self, part: Part<'_>) -> bool {
        let answers = self.table.numbers();
        let mut answers = part.places().map(|place| answers[place]);
        let first = answers.next();
        !self.metric.needs_all_predictions() || answers.any(|answer| Some(answer) != first)
    }

    pub(super) fn finish(
        mut self,
        items: &mut ItemScoresBuilder,
        n_missing: usize,
    ) -> Result<Figures, Failure> {
        let n = self.table.len();
        self.absolute.add(self.largest_error * n_missing as f64);
        self.squared
            .add(self.largest_error * self.largest_error * n_missing as f64);
        let mean = |sum: Sum| sum.total() / n.max(1) as f64;
        let mae = mean(self.absolute);
        let mse = mean(self.squared);
        let rmse = mse.sqrt();
        let named = |name: &str, figure| (name.to_owned(), figure);
        if self.metric.needs_all_predictions() {
            let (value, estimate) = if self.table.averages_clusters() {
                // The average over clusters takes their place.
                (0.0, None)
            } else {
                let figure = self.joint_figure(items)?;
                let range = self.metric.range(self.table.clip(), self.table.n_options());
                (figure.value, figure.estimate(self.metric, range))
            };
            return Ok(Figures::new(
                value,
                estimate,
                [named("rmse", rmse), named("mae", mae)].into(),
            ));
        }
        let errors = (0..n).map(|item| items.value(item));
        let range = self.metric.range(self.table.clip(), self.table.n_options());
        let (value, estimate, other): (_, Option<Estimate>, _) = if self.metric.is_root() {
            let squares = errors.map(|error| error * error);
            (
                rmse,
                estimate_of_root(mse, n, squares, range),
                named("mae", mae),
            )
        } else {
            let stderr = stderr_of_mean(mae, n, errors);
            (
                mae,
                stderr.map(|stderr| estimate_within(range, mae, stderr, "normal")),
                named("rmse", rmse),
            )
        };
        let correlation = if n_missing == 0 {
            RankCorrelation::of(&self.predictions, self.table.numbers())
        } else {
            None
        };
        let metrics = [other]
            .into_iter()
            .chain(correlation.map(|correlation| named("spearman", correlation.rho())))
            .collect();
        Ok(Figures::new(value, estimate, metrics))
    }
}

impl Numbers<'_> {
    /// Returns the figure over all items together, and sets their contributions.
    fn joint_figure(&self, items: &mut ItemScoresBuilder) -> Result<JointFigure, Failure> {
        let n = self.table.len();
        let predictions: Vec<f64> = (0..n).map(|item| items.value(item)).collect();
        let undefined = || {
            Failure::InvalidPredictions(format!(
                "all predictions are the same number: {} is not defined",
                self.metric
            ))
        };
        let figure = JointFigure::of(self.metric, &predictions, self.table.numbers())
            .ok_or_else(undefined)?;
        figure
            .contributions()
            .enumerate()
            .for_each(|(item, contribution)| items.set(item, contribution));
        Ok(figure)
    }
}

/// Returns the estimate for the root of a mean over `n` squares, by the delta method.
fn estimate_of_root(
    mean: f64,
    n: usize,
    squares: impl Iterator<Item = f64>,
    range: [f64; 2],
) -> Option<Estimate> {
    let root = mean.sqrt();
    let stderr = stderr_of_mean(mean, n, squares)?;
    let stderr = if root > 0.0 {
        stderr / (2.0 * root)
    } else {
        0.0
    };
    Some(estimate_within(range, root, stderr, "delta"))
}
