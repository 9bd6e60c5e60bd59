//! Trivial submissions: they use the answer distribution, and no knowledge about single items.
//! A ladder starts at the best one's value, because only a better value says something about a
//! model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use super::answer_table::{AnswerTable, Right};
use super::result::{Failure, Figures};
use super::scorer::{Progress, Scorer};
use crate::metric::{Family, Metric};
use crate::prediction::{Prediction, PredictionSink as _, Value};

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
/// - rankings: the most frequent answers, for every item;
/// - labels: the most frequent label, for every item; for f1_macro also labels at random, each with
///   its frequency among the answers, by their expected value;
/// - numbers: the mean, and the median, for every item; for spearman, numbers at random, by their
///   expected value 0;
/// - probabilities: each label's frequency, for every item.
///
/// A submission for which the metric is not defined is left out. An answer counts as much as its item
/// does in the value: less in a larger cluster if the value is an average over clusters.
pub fn trivial_submissions(table: &AnswerTable, metric: Metric) -> Vec<Trivial> {
    let mut submissions = Vec::new();
    let mut add = |name, figures: Result<Figures, Failure>| {
        submissions.extend(figures.ok().map(|figures| Trivial {
            name,
            value: figures.value,
            design_effect: figures.clusters.and_then(|clusters| clusters.design_effect),
        }));
    };
    match metric.family() {
        Family::Rankings => {
            let ranking = most_frequent(table, RANKING_LENGTH_MAX);
            add(
                "most frequent answers",
                figures_of(table, metric, |_| Value::Ranking(&ranking)),
            );
        }
        Family::Labels => {
            let label = most_frequent(table, 1);
            add(
                "most frequent label",
                figures_of(table, metric, |_| Value::Label(&label[0])),
            );
            if metric == Metric::F1Macro {
                // A label with frequency p that is predicted with frequency p has an expected F1 of
                // p.
                let value = 1.0 / table.n_labels().max(1) as f64;
                submissions.push(Trivial::expected("labels at random", value));
            }
        }
        Family::Numbers if metric == Metric::Spearman => {
            submissions.push(Trivial::expected("numbers at random", 0.0));
        }
        Family::Numbers => {
            let [mean, median] = centers(table);
            add("mean", figures_of(table, metric, |_| Value::Number(mean)));
            add(
                "median",
                figures_of(table, metric, |_| Value::Number(median)),
            );
        }
        Family::Probabilities => {
            let frequencies = frequencies(table);
            let n: f64 = frequencies.iter().map(|(_, count)| count).sum();
            let shares: Vec<_> = frequencies
                .into_iter()
                .map(|(label, count)| (label, count / n))
                .collect();
            add(
                "label frequencies",
                figures_of(table, metric, |_| Value::Probabilities(&shares)),
            );
        }
    }
    submissions
}

/// Returns the trivial submission with the best value.
pub fn best_trivial(trivial: &[Trivial], metric: Metric) -> Option<Trivial> {
    let sign = if metric.lower_is_better() { -1.0 } else { 1.0 };
    trivial
        .iter()
        .copied()
        .max_by(|one, other| (sign * one.value).total_cmp(&(sign * other.value)))
}

fn figures_of<'v>(
    table: &AnswerTable,
    metric: Metric,
    predict: impl Fn(usize) -> Value<'v, 'v>,
) -> Result<Figures, Failure> {
    let progress = Progress::default();
    let mut scorer = Scorer::new(table, metric, &progress).without_slices();
    for (index, item_id) in table.item_ids().enumerate() {
        let prediction = Prediction {
            index,
            line: None,
            item_id: String::from_utf8_lossy(item_id),
            value: predict(index),
        };
        if let ControlFlow::Break(failure) = scorer.take(Ok(prediction)) {
            return Err(failure);
        }
    }
    Ok(scorer.finish()?.figures)
}

/// Returns an item's weight by its ordinal, up to a common factor: its share of its cluster if the
/// value is an average over clusters, otherwise 1.
fn weight_of(table: &AnswerTable) -> impl Fn(usize) -> f64 {
    let clusters = table.clusters().filter(|_| table.averages_clusters());
    move |item| clusters.map_or(1.0, |clusters| 1.0 / clusters.sizes().of(clusters.of(item)))
}

/// Returns the mean and the median of the answers, which are numbers.
fn centers(table: &AnswerTable) -> [f64; 2] {
    let weight_of = weight_of(table);
    let numbers = table.numbers().iter().enumerate();
    let mut sorted: Vec<(f64, f64)> = numbers
        .map(|(item, number)| (*number, weight_of(item)))
        .collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
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
/// in byte order.
fn frequencies(table: &AnswerTable) -> Vec<(Cow<'_, str>, f64)> {
    let mut counts: HashMap<&[u8], f64> = HashMap::new();
    let weight_of = weight_of(table);
    for item in table.items() {
        let weight = weight_of(item.ordinal);
        match item.right() {
            Right::Label(label) => *counts.entry(table.label(label)).or_default() += weight,
            Right::Text(text) => *counts.entry(text).or_default() += weight,
            Right::List(list) => list
                .answers()
                .for_each(|(id, gain)| *counts.entry(id).or_default() += weight * gain),
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

fn most_frequent(table: &AnswerTable, n: usize) -> Vec<Cow<'_, str>> {
    frequencies(table)
        .into_iter()
        .take(n)
        .map(|(answer, _)| answer)
        .collect()
}
