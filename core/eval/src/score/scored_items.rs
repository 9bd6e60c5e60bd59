//! The items of a table with their scores, whose parts have figures.

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, Item};
use super::part::Part;
use crate::item_scores::ItemScoresBuilder;
use crate::metric::Metric;

/// The items of a table, before the accumulator finishes them.
pub(super) struct ScoredItems<'s, 't> {
    pub(super) table: &'t AnswerTable,
    pub(super) metric: Metric,
    pub(super) accumulator: &'s Accumulator<'t>,
    items: &'s ItemScoresBuilder,
    /// The right labels; empty unless the metric [needs them](Metric::needs_labels).
    labels: Vec<u32>,
}

impl<'s, 't> ScoredItems<'s, 't> {
    pub(super) fn new(
        table: &'t AnswerTable,
        metric: Metric,
        accumulator: &'s Accumulator<'t>,
        items: &'s ItemScoresBuilder,
    ) -> Self {
        let labels = if metric.needs_labels() {
            table.items().map(Item::label).collect()
        } else {
            Vec::new()
        };
        Self {
            table,
            metric,
            accumulator,
            items,
            labels,
        }
    }

    /// Returns the part with the items at these places, which are ascending.
    pub(super) fn part<'p>(&'p self, places: &'p [u32]) -> Part<'p> {
        Part {
            places,
            items: self.items,
            labels: &self.labels,
        }
    }
}
