//! The scores of the baseline whose skill is 0, item by item.

use std::borrow::Cow;

use super::answer_table::{AnswerTable, Right};
use super::skill::SkillScores;
use super::trivial::{Constant, constants, has_uniform, label_shares};
use super::trivial_losses::{constant_scores, losses_by_label};
use crate::clusters::Average;
use crate::metric::{Family, Metric};
use crate::skill::SkillBaseline;

/// The groups of a table's items, within which its skill is computed.
#[derive(Debug, Clone, Copy, Default)]
pub struct SkillGroups<'g> {
    /// The name of the group field; `None` if all items are one group.
    pub field: Option<&'g str>,
    /// Each item's label, in the order of the table; empty without a field.
    pub labels: &'g [u32],
    /// The value of each label, for messages; empty if they are not known.
    pub values: &'g [String],
}

/// Scores the baseline for a table's items, for [`AnswerTable::set_skill`].
///
/// # Errors
/// Returns the reason if no skill is defined: for the metric, or because the baseline has the best score
/// for all items of a group.
pub fn score_skill_baseline(
    table: &AnswerTable,
    metric: Metric,
    baseline: SkillBaseline,
    groups: SkillGroups<'_>,
) -> Result<SkillScores, String> {
    let average = if table.averages_clusters() {
        Average::Cluster
    } else {
        Average::Item
    };
    baseline.check(metric, average)?;
    let SkillGroups {
        field,
        labels,
        values,
    } = groups;
    if labels.len() != field.map_or(0, |_| table.len()) {
        return Err("some items have no group of the field within".into());
    }
    let scores = baseline_scores(table, metric, baseline)?;
    let within = field.map(str::to_owned);
    let best = metric.best(table.clip());
    SkillScores::new((baseline, within), best, &scores, labels).map_err(|label| {
        let group = field.map_or_else(String::new, |field| {
            let value = values.get(label as usize);
            let value = value.map_or_else(String::new, |value| format!(" {value:?}"));
            format!(" with one value{value} of {field}")
        });
        format!(
            "the {baseline} baseline has the best score for all items{group}, so nothing can be better; leave these items out, or \
             choose another baseline"
        )
    })
}

/// Returns the baseline's score of each item, by ordinal.
fn baseline_scores(
    table: &AnswerTable,
    metric: Metric,
    baseline: SkillBaseline,
) -> Result<Vec<f64>, String> {
    match (baseline, metric.family()) {
        (_, Family::Probabilities) => probability_scores(table, metric, baseline),
        (SkillBaseline::Uniform, _) => Ok(random_label_scores(table)),
        (SkillBaseline::Marginal, _) => {
            let constants = constants(table, metric);
            let (_, constant) = constants
                .first()
                .ok_or_else(|| format!("{metric} has no trivial submission"))?;
            Ok(constant_scores(table, metric, constant))
        }
    }
}

fn probability_scores(
    table: &AnswerTable,
    metric: Metric,
    baseline: SkillBaseline,
) -> Result<Vec<f64>, String> {
    if baseline == SkillBaseline::Marginal && !table.has_common_options() {
        return Err(
            "the items have different options, so their answers have no mean; write baseline = \"uniform\", or name the options of \
             all items with labels"
                .into(),
        );
    }
    if has_uniform(table, metric) {
        let constant = match baseline {
            SkillBaseline::Uniform => Constant::Uniform,
            SkillBaseline::Marginal => Constant::Shares(label_shares(table)),
        };
        return Ok(constant_scores(table, metric, &constant));
    }
    let shares = match baseline {
        SkillBaseline::Uniform => uniform_shares(table),
        SkillBaseline::Marginal => label_shares(table),
    };
    let losses = losses_by_label(table, metric, &shares);
    let items = table.items();
    Ok(items.map(|item| losses[item.label() as usize]).collect())
}

/// Returns each label of the answers with the same probability.
fn uniform_shares(table: &AnswerTable) -> Vec<(Cow<'_, str>, f64)> {
    let n = table.n_labels();
    let labels = (0..n as u32).map(|label| String::from_utf8_lossy(table.label(label)));
    labels.map(|label| (label, 1.0 / n as f64)).collect()
}

/// Returns for each item the probability that a label at random is right.
fn random_label_scores(table: &AnswerTable) -> Vec<f64> {
    let n = table.n_labels() as f64;
    let n_right = |right: Right<'_>| match right {
        Right::Label(_) | Right::Text(_) => 1,
        Right::List(list) => list.len(),
    };
    let items = table.items();
    items.map(|item| n_right(item.right()) as f64 / n).collect()
}
