//! The losses of the best trivial submission, item by item.

use std::borrow::Cow;

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, Item};
use super::trivial::{
    Constant, Trivial, constant_named, constant_numbers, has_uniform, label_shares,
};
use crate::compare::{Contribution, StoredItem};
use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::{Family, Metric};
use crate::prediction::Value;

/// The losses of the best trivial submission. They follow from the answers, so no loss is stored for an
/// item, except where answers are distributions.
#[derive(Debug)]
pub(super) struct TrivialLosses {
    losses: Losses,
    contribution: Contribution,
}

#[derive(Debug)]
enum Losses {
    /// This number is predicted for every item.
    OfNumber(f64),
    /// The loss of an item with each right label.
    ByLabel(Vec<f64>),
    /// The loss of each item.
    ByItem(Vec<f64>),
}

impl TrivialLosses {
    /// Returns the losses of the trivial submission `best`. `None` if the metric is no loss of numbers or
    /// probabilities.
    pub(super) fn new(table: &AnswerTable, metric: Metric, best: Trivial) -> Option<Self> {
        let losses = match metric.family() {
            Family::Numbers => {
                let mut constants = constant_numbers(table).into_iter();
                let (_, number) = constants.find(|(name, _)| *name == best.name)?;
                Losses::OfNumber(number)
            }
            Family::Probabilities if has_uniform(table, metric) => {
                let constant = constant_named(table, metric, best.name)?;
                Losses::ByItem(constant_scores(table, metric, &constant))
            }
            Family::Probabilities => {
                Losses::ByLabel(losses_by_label(table, metric, &label_shares(table)))
            }
            // A suite with quantiles has no ceiling, of which a result could have a share.
            Family::Rankings | Family::Labels | Family::Quantiles => return None,
        };
        let contribution = if metric.is_root() {
            Contribution::OfRoot(best.value)
        } else {
            Contribution::Stored
        };
        Some(Self {
            losses,
            contribution,
        })
    }

    /// Returns an item's contribution to the value.
    pub(super) fn contribution(&self, item: Item<'_>) -> f64 {
        let loss = match &self.losses {
            Losses::OfNumber(number) => item.error(*number),
            Losses::ByLabel(losses) => losses[item.label() as usize],
            Losses::ByItem(losses) => losses[item.ordinal],
        };
        self.contribution.of(StoredItem {
            value: loss,
            is_right: false,
        })
    }
}

/// Returns the score of each item, by ordinal, if the constant is predicted for all.
pub(super) fn constant_scores<'t>(
    table: &'t AnswerTable,
    metric: Metric,
    constant: &Constant<'t>,
) -> Vec<f64> {
    let (mut accumulator, _) = Accumulator::new(table, metric);
    // Keeps any score in 64 bits.
    let mut scores = ItemScoresBuilder::new(Kind::Parts, table.len(), 0.0, false);
    let mut memory = Vec::new();
    for item in table.items() {
        accumulator.add(item, constant.value(item, &mut memory), &mut scores);
    }
    (0..table.len()).map(|item| scores.value(item)).collect()
}

/// Returns for each label the loss of an item with this right label, if these shares are predicted.
pub(super) fn losses_by_label(
    table: &AnswerTable,
    metric: Metric,
    shares: &[(Cow<'_, str>, f64)],
) -> Vec<f64> {
    let (mut accumulator, _) = Accumulator::new(table, metric);
    let mut scores = ItemScoresBuilder::new(Kind::Parts, table.len(), 0.0, false);
    let mut losses = vec![None; table.n_labels()];
    for item in table.items() {
        losses[item.label() as usize].get_or_insert_with(|| {
            accumulator.add(item, Value::Probabilities(shares), &mut scores);
            scores.value(item.ordinal)
        });
    }
    // A label without an item is never looked up.
    losses.into_iter().map(Option::unwrap_or_default).collect()
}
