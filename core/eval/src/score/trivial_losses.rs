//! The losses of the best trivial submission, item by item.

use std::borrow::Cow;

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, Item};
use super::trivial::{Trivial, constant_numbers, label_shares};
use crate::compare::{Contribution, StoredItem};
use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::{Family, Metric};
use crate::prediction::Value;

/// The losses of the best trivial submission. They follow from the answers, so no loss is stored for an
/// item.
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
            Family::Probabilities => {
                Losses::ByLabel(losses_by_label(table, metric, &label_shares(table)))
            }
            Family::Rankings | Family::Labels => return None,
        };
        let contribution = match metric {
            Metric::Rmse => Contribution::OfRoot(best.value),
            _ => Contribution::Stored,
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
        };
        self.contribution.of(StoredItem {
            value: loss,
            is_right: false,
        })
    }
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
