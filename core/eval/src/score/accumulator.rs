//! The figures of all metric families behind one type.

use super::answer_table::{AnswerTable, Item};
use super::labels::Labels;
use super::numbers::Numbers;
use super::part::{Part, PartFigure};
use super::probabilities::Probabilities;
use super::ranking::Rankings;
use super::result::{Failure, Figures};
use crate::item_scores::ItemScoresBuilder;
use crate::metric::{Family, Metric};
use crate::prediction::Value;

/// The accumulator for the metric's family.
pub(super) enum Accumulator<'t> {
    Rankings(Rankings<'t>),
    Labels(Labels<'t>),
    Numbers(Numbers<'t>),
    Probabilities(Probabilities<'t>),
}

impl<'t> Accumulator<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        match metric.family() {
            Family::Rankings => {
                let (rankings, items) = Rankings::new(table, metric);
                (Self::Rankings(rankings), items)
            }
            Family::Labels => {
                let (labels, items) = Labels::new(table, metric);
                (Self::Labels(labels), items)
            }
            Family::Numbers => {
                let (numbers, items) = Numbers::new(table, metric);
                (Self::Numbers(numbers), items)
            }
            Family::Probabilities => {
                let (probabilities, items) = Probabilities::new(table, metric);
                (Self::Probabilities(probabilities), items)
            }
        }
    }

    /// Adds a value that [`check_value`] has accepted for the metric.
    #[inline]
    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        value: Value<'_, '_>,
        items: &mut ItemScoresBuilder,
    ) {
        match (self, value) {
            (Self::Rankings(rankings), Value::Ranking(ids)) => rankings.add(item, ids, items),
            (Self::Rankings(rankings), Value::Label(label)) => {
                rankings.add(item, std::slice::from_ref(label), items);
            }
            (Self::Labels(labels), Value::Label(label)) => labels.add(item, label, items),
            (Self::Numbers(numbers), Value::Number(number)) => numbers.add(item, number, items),
            (Self::Probabilities(family), Value::Probabilities(probabilities)) => {
                family.add(item, probabilities, items);
            }
            // `check_value` has rejected these.
            (
                Self::Rankings(_) | Self::Labels(_) | Self::Numbers(_) | Self::Probabilities(_),
                _,
            ) => {}
        }
    }

    /// Returns the figure of some items, whose values are not finished.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        match self {
            Self::Rankings(rankings) => rankings.part(part),
            Self::Labels(labels) => labels.part(part),
            Self::Numbers(numbers) => numbers.part(part),
            Self::Probabilities(probabilities) => probabilities.part(part),
        }
    }

    /// Returns `true` if the answers of some items leave the metric defined.
    pub(super) fn is_defined(&self, part: Part<'_>) -> bool {
        match self {
            Self::Rankings(_) | Self::Labels(_) => true,
            Self::Numbers(numbers) => numbers.is_defined(part),
            Self::Probabilities(probabilities) => probabilities.is_defined(part),
        }
    }

    /// Returns the figures, and sets the items' final values: their mean is the metric.
    pub(super) fn finish(
        self,
        items: &mut ItemScoresBuilder,
        n_missing: usize,
    ) -> Result<Figures, Failure> {
        match self {
            Self::Rankings(rankings) => Ok(rankings.finish(items)),
            Self::Labels(labels) => Ok(labels.finish(items, n_missing)),
            Self::Numbers(numbers) => numbers.finish(items, n_missing),
            Self::Probabilities(probabilities) => probabilities.finish(items, n_missing),
        }
    }
}
