//! Quantile figures. The losses agree with scikit-learn's `mean_pinball_loss`, scoringrules'
//! `quantile_score` and the interval scores of Bracher et al. (2021).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::prediction::Quantiles;
use crate::quantile_levels::{CentralPair, QuantileLevels};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{estimate_within, stderr_of_mean};

use super::answer_table::{AnswerTable, Item};
use super::part::{Part, PartFigure};
use super::result::Figures;

/// Accumulates quantile losses.
pub(super) struct QuantileLosses<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    /// For each pair of central levels, how many answers are between its numbers.
    covered: Vec<(CentralPair, u64)>,
    /// The place of the level 0.5, if it is one.
    median: Option<usize>,
    /// The summed absolute errors of the level 0.5.
    median_errors: Sum,
    /// The largest answer minus the smallest.
    spread: f64,
}

impl<'t> QuantileLosses<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let answers = table.numbers().iter().copied();
        let least = answers.clone().fold(f64::INFINITY, f64::min);
        let most = answers.fold(f64::NEG_INFINITY, f64::max);
        let spread = if table.is_empty() { 0.0 } else { most - least };
        // An item without a prediction has this loss.
        let worst = table.clip().map_or(spread, |clip| clip.high);
        let pairs = table.levels().map(QuantileLevels::central_pairs);
        let losses = Self {
            table,
            metric,
            covered: pairs.into_iter().flatten().map(|pair| (pair, 0)).collect(),
            median: table.levels().and_then(QuantileLevels::median),
            median_errors: Sum::default(),
            spread,
        };
        let items = ItemScoresBuilder::new(Kind::Scores, table.len(), worst, false);
        (losses, items)
    }

    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        object: &[(Cow<'_, str>, f64)],
        items: &mut ItemScoresBuilder,
    ) {
        // The rules have accepted the prediction, so it has the table's levels.
        let Some((levels, quantiles)) = self
            .table
            .levels()
            .and_then(|levels| Some((levels, Quantiles::read(levels, object).ok()?)))
        else {
            return;
        };
        let numbers = quantiles.numbers();
        let answer = item.number();
        for (pair, n) in &mut self.covered {
            let is_covered = (numbers[pair.lower]..=numbers[pair.upper]).contains(&answer);
            *n += u64::from(is_covered);
        }
        if let Some(median) = self.median {
            self.median_errors.add((numbers[median] - answer).abs());
        }
        let loss = loss(self.metric, levels, numbers.iter().copied(), answer);
        items.set(item.ordinal, self.table.clipped(loss));
    }

    /// Returns the figure of some items.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        part.mean_figure(self.metric.range(self.table.clip(), self.table.n_labels()))
    }

    pub(super) fn finish(self, items: &mut ItemScoresBuilder, n_missing: usize) -> Figures {
        let Self {
            table,
            metric,
            covered,
            median,
            mut median_errors,
            spread,
        } = self;
        let n = table.len();
        let n_items = n.max(1) as f64;
        let losses = || (0..n).map(|item| items.value(item));
        let value = losses().collect::<Sum>().total() / n_items;
        let stderr = stderr_of_mean(value, n, losses());
        let range = metric.range(table.clip(), table.n_labels());
        let mut metrics: BTreeMap<String, f64> = covered
            .into_iter()
            .map(|(pair, n_covered)| {
                let name = format!("coverage@{}", pair.coverage);
                (name, n_covered as f64 / n_items)
            })
            .collect();
        if median.is_some() {
            median_errors.add(spread * n_missing as f64);
            metrics.insert("mae".to_owned(), median_errors.total() / n_items);
        }
        let estimate = stderr.map(|stderr| estimate_within(range, value, stderr, "normal"));
        Figures::new(value, estimate, metrics)
    }
}

/// Returns the loss of one item's predicted numbers, which are in the order of the levels: the mean
/// over the levels τ of (y − x)(τ − [y < x]), for the answer y and the number x at τ (R. Koenker and
/// G. Bassett 1978). `wis` is twice that: with K pairs of central levels and the median, it is the
/// interval scores weighted by half of α, plus half of the median's error, over K + ½ (J. Bracher et al.
/// 2021).
pub(super) fn loss(
    metric: Metric,
    levels: &QuantileLevels,
    numbers: impl Iterator<Item = f64>,
    answer: f64,
) -> f64 {
    let at_level = |(level, number): (f64, f64)| {
        if answer < number {
            (number - answer) * (1.0 - level)
        } else {
            (answer - number) * level
        }
    };
    let sum: f64 = levels.values().zip(numbers).map(at_level).sum();
    let pinball = sum / levels.len() as f64;
    if metric == Metric::Wis {
        2.0 * pinball
    } else {
        pinball
    }
}
