//! The figures of all metric families behind one type.

use super::answer_table::{AnswerTable, Item};
use super::distributions::{Distributions, scores_distributions};
use super::labels::Labels;
use super::numbers::Numbers;
use super::part::{Part, PartFigure};
use super::probabilities::Probabilities;
use super::quantiles::QuantileLosses;
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
    Distributions(Box<Distributions<'t>>),
    Quantiles(QuantileLosses<'t>),
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
            Family::Probabilities if scores_distributions(table, metric) => {
                let (distributions, items) = Distributions::new(table, metric);
                (Self::Distributions(Box::new(distributions)), items)
            }
            Family::Probabilities => {
                let (probabilities, items) = Probabilities::new(table, metric);
                (Self::Probabilities(probabilities), items)
            }
            Family::Quantiles => {
                let (quantiles, items) = QuantileLosses::new(table, metric);
                (Self::Quantiles(quantiles), items)
            }
        }
    }

    /// Adds a value that [`PredictionRules`](crate::prediction::PredictionRules) have accepted.
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
            (Self::Distributions(family), Value::Probabilities(probabilities)) => {
                family.add(item, probabilities, items);
            }
            // One person's label, from a retest.
            (Self::Distributions(family), Value::Label(label)) => {
                family.add(item, &[(label.clone(), 1.0)], items);
            }
            (Self::Quantiles(quantiles), Value::Probabilities(object)) => {
                quantiles.add(item, object, items);
            }
            // The rules have rejected these.
            (
                Self::Rankings(_)
                | Self::Labels(_)
                | Self::Numbers(_)
                | Self::Probabilities(_)
                | Self::Distributions(_)
                | Self::Quantiles(_),
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
            Self::Distributions(distributions) => distributions.part(part),
            Self::Quantiles(quantiles) => quantiles.part(part),
        }
    }

    /// Returns `true` if the answers of some items leave the metric defined.
    pub(super) fn is_defined(&self, part: Part<'_>) -> bool {
        match self {
            Self::Rankings(_) | Self::Labels(_) | Self::Distributions(_) | Self::Quantiles(_) => {
                true
            }
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
            Self::Distributions(distributions) => Ok(distributions.finish(items)),
            Self::Quantiles(quantiles) => Ok(quantiles.finish(items, n_missing)),
        }
    }
}
