//! Scoring of a retest, which gives the noise ceiling.

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, NextRecord, Prefetch};
use super::by_cluster::estimate_by_cluster;
use super::retest_scores::{Ceiling, Origin, RetestScores};
use super::scored_items::ScoredItems;
use super::trivial::{Trivial, best_trivial, trivial_submissions};
use super::trivial_losses::TrivialLosses;
use crate::clusters::{CLUSTERS_MIN, Clusters};
use crate::item_scores::{Bits, ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use crate::suite::retest_answers::RetestAnswers;

/// The fewest items whose retest answers give a ceiling.
const RETESTED_MIN: usize = 50;

/// Scores the retest answers of a table's items.
pub struct CeilingBuilder<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    accumulator: Accumulator<'t>,
    /// The retested items' scores, as if the retest answers were predictions.
    items: ItemScoresBuilder,
    /// Set if a score is the mean over several answers, and so not 0 or 1 where that of one answer is.
    has_means: bool,
    next_record: NextRecord,
}

impl<'t> CeilingBuilder<'t> {
    /// Creates a builder without retest answers.
    pub fn new(table: &'t AnswerTable, metric: Metric) -> Self {
        let (accumulator, items) = Accumulator::new(table, metric);
        let items = if metric.is_mean() {
            // Stores any score in 64 bits, and a later one replaces it.
            ItemScoresBuilder::new(Kind::Parts, table.len(), 0.0, false)
        } else {
            items
        };
        Self {
            table,
            metric,
            accumulator,
            items,
            has_means: false,
            next_record: NextRecord::default(),
        }
    }

    /// Adds an item's retest answers: the JSON array of `retest.ndjson`. A mean has the mean score over the
    /// answers; other metrics use the first answer. Returns `false` if the table does not have the item.
    ///
    /// # Errors
    /// Returns the reason if the answers are invalid, or if the item has some already.
    pub fn add(&mut self, item_id: &str, answers: &str) -> Result<bool, String> {
        let answers = RetestAnswers::parse(answers, self.metric)?;
        let mut prefetch = Prefetch::default();
        let found = self
            .table
            .find(item_id, &mut self.next_record, &mut prefetch);
        let Some(item) = found else { return Ok(false) };
        if self.items.mark_predicted(item.ordinal) {
            return Err(format!("item_id {item_id:?} is repeated"));
        }
        if !self.metric.is_mean() {
            let first = answers.values().take(1);
            first.for_each(|value| self.accumulator.add(item, value, &mut self.items));
            return Ok(true);
        }
        let scores = answers.values().map(|value| {
            self.accumulator.add(item, value, &mut self.items);
            self.items.value(item.ordinal)
        });
        let sum: Sum = scores.collect();
        self.items
            .set(item.ordinal, sum.total() / answers.len() as f64);
        self.has_means |= answers.len() > 1;
        Ok(true)
    }

    /// Returns the scores, for [`AnswerTable::set_retest`].
    ///
    /// # Errors
    /// Returns the reason if there are fewer than 50 items or 10 clusters, if the metric is not defined for
    /// them, or if the value is an average over clusters: what share of it a job reaches is not defined.
    pub fn finish(self) -> Result<RetestScores, String> {
        let Self {
            table,
            metric,
            accumulator,
            items,
            has_means,
            ..
        } = self;
        if table.averages_clusters() {
            return Err(
                "a value that averages clusters has no ceiling; remove the file, or average in suite.toml".into(),
            );
        }
        let mut is_retested = Bits::new(table.len());
        let is_predicted = |place: &u32| items.is_predicted(*place as usize);
        let places: Vec<u32> = (0..table.len() as u32).filter(is_predicted).collect();
        for place in &places {
            is_retested.set(*place as usize);
        }
        let n = places.len();
        if n < RETESTED_MIN {
            return Err(format!(
                "{n} items have retest answers, but a ceiling needs {RETESTED_MIN}"
            ));
        }
        let clusters = table.clusters().map(|all| {
            Clusters::from_labels(places.iter().map(|place| all.of(*place as usize) as u32))
        });
        if let Some(n) = clusters.as_ref().map(|clusters| clusters.sizes().len())
            && n < CLUSTERS_MIN
        {
            return Err(format!(
                "the items with retest answers are in {n} clusters, but a ceiling needs {CLUSTERS_MIN}"
            ));
        }
        let scored = ScoredItems::new(table, metric, &accumulator, &items);
        let part = scored.part(&places);
        let figure = if has_means {
            part.mean_figure(metric.range(table.clip(), table.n_options()))
        } else {
            accumulator.part(part)
        };
        let independent = figure.estimate.ok_or_else(|| {
            format!(
                "{metric} is not defined: all answers of these items, or all first retest answers, are the same"
            )
        })?;
        let estimate = match &clusters {
            None => Some(independent),
            Some(clusters) => {
                let value = (figure.value, &independent);
                let contributions = figure.contributions.iter().copied();
                estimate_by_cluster(
                    clusters,
                    (table, metric),
                    value,
                    contributions,
                    part.stored(),
                )
            }
        };
        let ceiling = Ceiling {
            kind: "retest",
            value: figure.value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            n: n as i64,
        };
        let trivial = best_trivial(&trivial_submissions(table, metric), metric);
        let origin = trivial.and_then(|trivial| origin(table, metric, ceiling.value, trivial));
        Ok(RetestScores {
            ceiling,
            is_retested,
            contributions: figure.contributions,
            warning: origin
                .is_none()
                .then(|| warning(ceiling.value, trivial, "check the retest answers")),
            origin,
        })
    }
}

/// Returns the figure whose share of the ceiling is 0. `None` if no share is defined: the ceiling must be
/// better than the best trivial submission, and above 0 if higher is better.
pub(super) fn origin(
    table: &AnswerTable,
    metric: Metric,
    ceiling: f64,
    trivial: Trivial,
) -> Option<Origin> {
    if metric.lower_is_better() {
        let losses = || {
            let losses = TrivialLosses::new(table, metric, trivial)?;
            let contributions = table.items().map(|item| losses.contribution(item));
            Some(Origin {
                value: trivial.value,
                contributions: contributions.collect(),
            })
        };
        (ceiling < trivial.value).then(losses).flatten()
    } else {
        (ceiling > trivial.value && ceiling > 0.0).then_some(Origin {
            value: 0.0,
            contributions: Vec::new(),
        })
    }
}

/// Returns the warning about a ceiling without shares, with this advice.
pub(super) fn warning(value: f64, trivial: Option<Trivial>, advice: &str) -> String {
    let reason = match trivial {
        Some(Trivial {
            name,
            value: trivial,
            ..
        }) if value > 0.0 => {
            format!("not better than the best trivial submission ({name}: {trivial:.4})")
        }
        _ => "not above 0".into(),
    };
    format!("the ceiling is {value:.4}, {reason}, so results have no share_of_ceiling; {advice}")
}
