//! Trivial submissions: they use the answer distribution, and no knowledge about single items.
//! A ladder starts at the best one's value, because only a better value says something about a
//! model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use super::answer_table::{AnswerTable, Item, Right};
use super::distributions::scores_distributions;
use super::ranking::overlap;
use super::result::{Failure, Score};
use super::scorer::{Progress, Scorer};
use crate::metric::{Family, Metric};
use crate::prediction::{Prediction, PredictionSink as _, Value};
use crate::stats::compensated_sum::Sum;

/// Ids in the constant ranking.
const RANKING_LENGTH_MAX: usize = 100;

/// A submission that uses no knowledge about single items.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trivial {
    /// Describes the predictions, such as `most frequent label`.
    pub name: &'static str,
    /// The value of the metric.
    pub value: f64,
    /// The squared ratio of the value's standard error to that of independent items, if the table's
    /// items are in clusters. `None` also if there is no such error.
    pub design_effect: Option<f64>,
}

impl Trivial {
    /// Returns a submission that is known by its expected value alone.
    fn expected(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            design_effect: None,
        }
    }
}

/// Returns the trivial submissions for a suite with these answers:
///
/// - rankings: the most frequent answers, for every item; for metrics of sets as many of them, 1 to
///   100, as have the best value;
/// - labels: the most frequent label, for every item; for f1_macro also labels at random, each with
///   its frequency among the answers, by their expected value;
/// - numbers: the mean, and the median, for every item; for correlations and ccc, numbers at random, by
///   their expected value 0; for r2, the mean alone, whose value is 0;
/// - probabilities: each label's frequency, for every item;
/// - distributions, and suites that name their options: each option with the same probability
///   (`uniform`), and the mean of the answers (`marginal`), which needs options that all items share.
/// - quantiles: those of the answers, for every item.
///
/// A submission for which the metric is not defined is left out. An answer counts as much as its item
/// does in the value: less in a larger cluster if the value is an average over clusters.
pub fn trivial_submissions(table: &AnswerTable, metric: Metric) -> Vec<Trivial> {
    let known = score_trivial(table, None, metric);
    let mut submissions: Vec<Trivial> = known
        .into_iter()
        .map(|(name, Score { figures, .. })| Trivial {
            name,
            value: figures.value,
            design_effect: figures.clusters.and_then(|clusters| clusters.design_effect),
        })
        .collect();
    match metric {
        Metric::F1Macro => {
            // A label with frequency p that is predicted with frequency p has an expected F1 of
            // p.
            let value = 1.0 / table.n_labels().max(1) as f64;
            submissions.push(Trivial::expected("labels at random", value));
        }
        _ if metric.is_correlation() && metric.family() == Family::Numbers => {
            submissions.push(Trivial::expected("numbers at random", 0.0));
        }
        // That of the mean is 0 by definition; its computed value has a rounding error.
        Metric::R2 => submissions.push(Trivial::expected("mean", 0.0)),
        _ => {}
    }
    submissions
}

/// Scores those of the [`trivial_submissions`] that have predictions, by name. They follow from the
/// open answers, so that they disclose nothing about sealed ones.
pub fn score_trivial(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
) -> Vec<(&'static str, Score)> {
    let constants = constants(open, metric);
    let scored = constants.iter().map(|(name, constant)| {
        let score = score_constant(open, sealed, metric, constant);
        score.ok().map(|score| (*name, score))
    });
    scored.flatten().collect()
}

/// One prediction, for every item.
pub(super) enum Constant<'t> {
    Ranking(Vec<Cow<'t, str>>),
    Label(Cow<'t, str>),
    Number(f64),
    Shares(Vec<(Cow<'t, str>, f64)>),
    /// The same probability for each option of the item.
    Uniform,
    Quantiles(Vec<(Cow<'t, str>, f64)>),
}

impl<'t> Constant<'t> {
    /// Returns the predicted value for an item. `memory` holds it if it is the item's own.
    pub(super) fn value<'v>(
        &'v self,
        item: Item<'t>,
        memory: &'v mut Vec<(Cow<'t, str>, f64)>,
    ) -> Value<'v, 't> {
        match self {
            Self::Ranking(ids) => Value::Ranking(ids),
            Self::Label(label) => Value::Label(label),
            Self::Number(number) => Value::Number(*number),
            Self::Shares(object) | Self::Quantiles(object) => Value::Probabilities(object),
            Self::Uniform => {
                memory.clear();
                let n = item.distribution().len();
                let options = item.options().map(String::from_utf8_lossy);
                memory.extend(options.map(|option| (option, 1.0 / n as f64)));
                Value::Probabilities(memory)
            }
        }
    }
}

/// Returns the constant predictions for these answers. The metric may be undefined for them.
pub(super) fn constants(table: &AnswerTable, metric: Metric) -> Vec<(&'static str, Constant<'_>)> {
    match metric.family() {
        Family::Rankings => {
            let mut ranking = most_frequent(table, metric, RANKING_LENGTH_MAX);
            if metric.compares_sets() {
                ranking.truncate(best_set_size(table, metric, &ranking));
            }
            vec![("most frequent answers", Constant::Ranking(ranking))]
        }
        Family::Labels => most_frequent(table, metric, 1)
            .into_iter()
            .map(|label| ("most frequent label", Constant::Label(label)))
            .collect(),
        Family::Numbers if metric.needs_all_predictions() => Vec::new(),
        Family::Numbers => {
            let numbers = constant_numbers(table).into_iter();
            let constant = |(name, number)| (name, Constant::Number(number));
            numbers.map(constant).collect()
        }
        Family::Probabilities if has_uniform(table, metric) => {
            let marginal = table
                .has_common_options()
                .then(|| ("marginal", Constant::Shares(label_shares(table))));
            let uniform = ("uniform", Constant::Uniform);
            std::iter::once(uniform).chain(marginal).collect()
        }
        Family::Probabilities => {
            vec![("label frequencies", Constant::Shares(label_shares(table)))]
        }
        Family::Quantiles => {
            let quantiles = answer_quantiles(table);
            vec![("quantiles of the answers", Constant::Quantiles(quantiles))]
        }
    }
}

/// Returns `true` if the options of an item are known without its answer, so that each can have the same
/// probability.
pub(super) fn has_uniform(table: &AnswerTable, metric: Metric) -> bool {
    let names_options = table.n_named_options() > 0 && metric.takes_distributions();
    scores_distributions(table, metric) || names_options
}

/// Returns the constant prediction with this name.
pub(super) fn constant_named<'t>(
    table: &'t AnswerTable,
    metric: Metric,
    name: &str,
) -> Option<Constant<'t>> {
    let mut constants = constants(table, metric).into_iter();
    let (_, constant) = constants.find(|(found, _)| *found == name)?;
    Some(constant)
}

/// Returns the trivial submission with the best value.
pub fn best_trivial(trivial: &[Trivial], metric: Metric) -> Option<Trivial> {
    let sign = if metric.lower_is_better() { -1.0 } else { 1.0 };
    trivial
        .iter()
        .copied()
        .max_by(|one, other| (sign * one.value).total_cmp(&(sign * other.value)))
}

/// Returns the mean and the median of the answers, each with its name.
pub(super) fn constant_numbers(table: &AnswerTable) -> [(&'static str, f64); 2] {
    let [mean, median] = centers(table);
    [("mean", mean), ("median", median)]
}

/// Returns each label with its share among the answers.
pub(super) fn label_shares(table: &AnswerTable) -> Vec<(Cow<'_, str>, f64)> {
    let frequencies = frequencies(table, |gain| gain);
    let n: f64 = frequencies.iter().map(|(_, count)| count).sum();
    frequencies
        .into_iter()
        .map(|(label, count)| (label, count / n))
        .collect()
}

fn score_constant(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
    constant: &Constant<'_>,
) -> Result<Score, Failure> {
    let progress = Progress::default();
    let mut scorer = Scorer::new(open, metric, &progress)
        .without_slices()
        .with_sealed(sealed);
    let mut memory = Vec::new();
    let tables = std::iter::once(open).chain(sealed);
    let items = tables.flat_map(|table| table.items().zip(table.item_ids()));
    for (index, (item, item_id)) in items.enumerate() {
        let prediction = Prediction {
            index,
            line: None,
            item_id: String::from_utf8_lossy(item_id),
            value: constant.value(item, &mut memory),
        };
        if let ControlFlow::Break(failure) = scorer.take(Ok(prediction)) {
            return Err(failure);
        }
    }
    scorer.finish()
}

/// Returns an item's weight by its ordinal, up to a common factor: its share of its cluster if the
/// value is an average over clusters, otherwise 1.
fn weight_of(table: &AnswerTable) -> impl Fn(usize) -> f64 {
    let clusters = table.clusters().filter(|_| table.averages_clusters());
    move |item| clusters.map_or(1.0, |clusters| 1.0 / clusters.sizes().of(clusters.of(item)))
}

/// Returns the answers, which are numbers, with their weights, ascending.
fn sorted_numbers(table: &AnswerTable) -> Vec<(f64, f64)> {
    let weight_of = weight_of(table);
    let numbers = table.numbers().iter().enumerate();
    let mut sorted: Vec<(f64, f64)> = numbers
        .map(|(item, number)| (*number, weight_of(item)))
        .collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
    sorted
}

/// Returns the quantile of the answers at each level: the smallest answer up to which their weights
/// have at least this share of all. No other constant prediction has a smaller loss without bounds.
fn answer_quantiles(table: &AnswerTable) -> Vec<(Cow<'_, str>, f64)> {
    let sorted = sorted_numbers(table);
    let total: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut rest = sorted.iter();
    let (mut number, mut share) = (0.0, 0.0);
    let levels = table.levels().into_iter();
    levels
        .flat_map(|levels| levels.names().zip(levels.values()))
        .map(|(name, level)| {
            while share < level * total
                && let Some((next, weight)) = rest.next()
            {
                number = *next;
                share += weight;
            }
            (Cow::Borrowed(name), number)
        })
        .collect()
}

/// Returns the mean and the median of the answers, which are numbers.
fn centers(table: &AnswerTable) -> [f64; 2] {
    let sorted = sorted_numbers(table);
    let total: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mean = sorted
        .iter()
        .map(|(number, weight)| number * weight / total)
        .sum();
    let mut below = 0.0;
    let is_middle = |(_, weight): &&(f64, f64)| {
        below += weight;
        below > total / 2.0
    };
    let median = sorted.iter().find(is_middle).or(sorted.last());
    [mean, median.map_or(0.0, |(number, _)| *number)]
}

/// Returns each answer with its total weighted gain over all items, the most frequent first; ties are
/// in byte order. `gain_of` changes the gain of an answer.
fn frequencies(table: &AnswerTable, gain_of: fn(f64) -> f64) -> Vec<(Cow<'_, str>, f64)> {
    let mut counts: HashMap<&[u8], f64> = HashMap::new();
    let weight_of = weight_of(table);
    for item in table.items() {
        let weight = weight_of(item.ordinal);
        if table.has_distributions() {
            let answer = item.distribution();
            for place in 0..answer.len() {
                let option = table.label(answer.option(place));
                *counts.entry(option).or_default() += weight * answer.share(place);
            }
            continue;
        }
        match item.right() {
            Right::Label(label) => *counts.entry(table.label(label)).or_default() += weight,
            Right::Text(text) => *counts.entry(text).or_default() += weight,
            Right::List(list) => list
                .answers()
                .for_each(|(id, gain)| *counts.entry(id).or_default() += weight * gain_of(gain)),
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by(|(one, of_one), (other, of_other)| {
        of_other.total_cmp(of_one).then(one.cmp(other))
    });
    counts
        .into_iter()
        .map(|(answer, count)| (String::from_utf8_lossy(answer), count))
        .collect()
}

/// Returns how many of the most frequent answers, predicted as a set for every item, have the largest
/// value: the smallest such number.
fn best_set_size(table: &AnswerTable, metric: Metric, ranking: &[Cow<'_, str>]) -> usize {
    let ranks = ranking.iter().enumerate();
    let ranks: HashMap<&[u8], usize> = ranks.map(|(rank, id)| (id.as_bytes(), rank)).collect();
    let weight_of = weight_of(table);
    let mut sums = vec![Sum::default(); ranking.len()];
    for item in table.items() {
        let mut is_right = vec![false; ranking.len()];
        let mut mark = |id: &[u8]| {
            if let Some(rank) = ranks.get(id) {
                is_right[*rank] = true;
            }
        };
        let n_right = match item.right() {
            Right::Label(label) => {
                mark(table.label(label));
                1
            }
            Right::Text(text) => {
                mark(text);
                1
            }
            Right::List(list) => {
                list.answers().for_each(|(id, _)| mark(id));
                list.len()
            }
        };
        let weight = weight_of(item.ordinal);
        let mut n_common = 0;
        for (at, is_right) in is_right.into_iter().enumerate() {
            n_common += usize::from(is_right);
            sums[at].add(weight * overlap(metric, n_common, [n_right, at + 1]));
        }
    }
    let mut best = 0;
    for (at, sum) in sums.iter().enumerate() {
        if sum.total() > sums[best].total() {
            best = at;
        }
    }
    best + 1
}

fn most_frequent(table: &AnswerTable, metric: Metric, n: usize) -> Vec<Cow<'_, str>> {
    // In a set, each gain counts the same.
    let gain_of: fn(f64) -> f64 = if metric.compares_sets() {
        |_| 1.0
    } else {
        |gain| gain
    };
    frequencies(table, gain_of)
        .into_iter()
        .take(n)
        .map(|(answer, _)| answer)
        .collect()
}
