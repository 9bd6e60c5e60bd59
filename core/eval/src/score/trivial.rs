//! Submissions that know nothing of single items: what anybody reaches who knows how answers are distributed. A ladder starts
//! at the best of them, because a better value is the first that says something of a model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use super::answer_table::{AnswerTable, Right};
use super::{Failure, Prefetch, Progress, Scorer};
use crate::metric::{Family, Metric};
use crate::prediction::{Prediction, Value};

/// The longest constant ranking.
const RANKING_MAX: usize = 100;

/// A submission that knows nothing of single items, and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trivial {
    /// What it predicts.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// The values of the trivial submissions of a suite with these answers:
///
/// - rankings: the most frequent answers, for every item;
/// - labels: the most frequent label, for every item; and labels at random, each as often as it is an answer, by their expected
///   value, which is the better one for f1_macro;
/// - numbers: the mean, and the median, for every item; for spearman, numbers at random, by their expected value 0;
/// - probabilities: the frequency of each label, for every item.
///
/// Those that the metric is not defined for are left out.
pub fn trivial_submissions(table: &AnswerTable, metric: Metric) -> Vec<Trivial> {
    let mut found = Vec::new();
    let mut add = |name, value: Result<f64, Failure>| {
        found.extend(value.ok().map(|value| Trivial { name, value }));
    };
    match metric.family() {
        Family::Rankings => {
            let ranking = most_frequent(table, RANKING_MAX);
            add(
                "most frequent answers",
                value_of(table, metric, |_| Value::Ranking(&ranking)),
            );
        }
        Family::Labels => {
            let label = most_frequent(table, 1);
            add(
                "most frequent label",
                value_of(table, metric, |_| Value::Label(&label[0])),
            );
            if metric == Metric::F1Macro {
                // A label that is an answer with the frequency p, and is predicted as often, has an F1 of p.
                add("labels at random", Ok(1.0 / table.n_labels().max(1) as f64));
            }
        }
        Family::Numbers if metric == Metric::Spearman => add("numbers at random", Ok(0.0)),
        Family::Numbers => {
            let mut sorted = table.numbers().to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            let mean = sorted
                .iter()
                .map(|number| number / sorted.len() as f64)
                .sum();
            add("mean", value_of(table, metric, |_| Value::Number(mean)));
            add(
                "median",
                value_of(table, metric, |_| Value::Number(sorted[sorted.len() / 2])),
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
                value_of(table, metric, |_| Value::Probabilities(&shares)),
            );
        }
    }
    found
}

/// The best of these trivial submissions.
pub fn best_trivial(trivial: &[Trivial], metric: Metric) -> Option<Trivial> {
    let sign = if metric.lower_is_better() { -1.0 } else { 1.0 };
    trivial
        .iter()
        .copied()
        .max_by(|one, other| (sign * one.value).total_cmp(&(sign * other.value)))
}

fn value_of<'v>(
    table: &AnswerTable,
    metric: Metric,
    predict: impl Fn(usize) -> Value<'v, 'v>,
) -> Result<f64, Failure> {
    let (progress, prefetch) = (Progress::default(), Prefetch::default());
    let mut tally = Scorer::new(table, metric, &progress, &prefetch);
    for (index, item_id) in table.item_ids().enumerate() {
        let prediction = Prediction {
            index,
            line: None,
            item_id: String::from_utf8_lossy(item_id),
            value: predict(index),
        };
        if let ControlFlow::Break(failure) = tally.add(Ok(prediction)) {
            return Err(failure);
        }
    }
    Ok(tally.finish()?.figures.value)
}

/// Each answer with the sum of its gains over all items, the most frequent first; of equally frequent ones, the first by name.
fn frequencies(table: &AnswerTable) -> Vec<(Cow<'_, str>, f64)> {
    let mut counts: HashMap<&[u8], f64> = HashMap::new();
    for item in table.items() {
        match item.right() {
            Right::Label(label) => *counts.entry(table.label(label)).or_default() += 1.0,
            Right::Text(text) => *counts.entry(text).or_default() += 1.0,
            Right::List(list) => list
                .answers()
                .for_each(|(id, gain)| *counts.entry(id).or_default() += gain),
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

fn most_frequent(table: &AnswerTable, most: usize) -> Vec<Cow<'_, str>> {
    frequencies(table)
        .into_iter()
        .take(most)
        .map(|(answer, _)| answer)
        .collect()
}
