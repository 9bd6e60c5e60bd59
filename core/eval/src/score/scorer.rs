//! The scorer: adds predictions one by one, and returns the score.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, NextRecord, Prefetch};
use super::by_cluster::by_cluster;
use super::cluster_average::ClusterAverage;
use super::result::{Failure, Figures, Score, Sealed};
use super::scored_items::ScoredItems;
use super::shown_ids::ShownIds;
use super::slices;
use crate::compare::Contribution;
use crate::error::FieldError;
use crate::item_scores::{ItemScores, ItemScoresBuilder};
use crate::metric::Metric;
use crate::prediction::{
    HashedPredictions, Prediction, PredictionRules, PredictionSink, Unmatched, Value, location,
    read,
};

/// Predictions between two progress updates, which also check whether to stop.
const PROGRESS_INTERVAL: u64 = 1024;

/// Scoring progress, shared between the thread that scores and the task that waits for it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Cancels scoring when it is set.
    pub stop: AtomicBool,
    /// Predictions that have been scored, updated every 1,024 predictions.
    pub done: AtomicU64,
}

/// Scores a JSON array with predictions. The result depends on the arguments only, and not on the
/// prediction order.
pub fn score(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
    predictions: &[u8],
    progress: &Progress,
) -> Result<Score, Failure> {
    let scorer = Scorer::new(open, metric, progress).with_sealed(sealed);
    score_and_hash(scorer, predictions).map(|(score, _)| score)
}

/// Scores a JSON array with predictions, and returns the SHA-256 of their normal form with the score.
pub fn score_and_hash(
    scorer: Scorer<'_>,
    predictions: &[u8],
) -> Result<(Score, [u8; 32]), Failure> {
    let mut hashed = HashedPredictions::new(scorer);
    match read(predictions, &mut hashed) {
        Ok(ControlFlow::Continue(())) => {
            let (scorer, sha256) = hashed.finish();
            Ok((scorer.finish()?, sha256))
        }
        Ok(ControlFlow::Break(failure)) => Err(failure),
        Err(malformed) => Err(Failure::InvalidPredictions(malformed.to_string())),
    }
}

/// Scores predictions as a [`PredictionSink`]. On top of the tables it uses a few bytes per item,
/// whatever the predictions are; with `auc_ovr` 8 bytes per item and label, and with a
/// catalog 4 bytes per id. An invalid prediction, or a second one for the same item, ends
/// scoring.
pub struct Scorer<'t> {
    metric: Metric,
    rules: PredictionRules,
    open: ItemSet<'t>,
    /// Scored separately, so that no open-item figure can depend on a sealed answer.
    sealed: Option<ItemSet<'t>>,
    /// Counted for open and sealed items together, so that no figure depends on which ones are sealed.
    shown: Option<ShownIds<'t>>,
    unmatched: Unmatched,
    progress: &'t Progress,
    n_taken: u64,
    with_slices: bool,
}

/// One table's items, and their accumulated figures.
struct ItemSet<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    next_record: NextRecord,
    /// Never loaded for sealed items: they are looked up one by one.
    prefetch: Prefetch,
    accumulator: Accumulator<'t>,
    items: ItemScoresBuilder,
    n_matched: usize,
}

impl<'t> ItemSet<'t> {
    fn new(table: &'t AnswerTable, metric: Metric) -> Self {
        let (accumulator, items) = Accumulator::new(table, metric);
        Self {
            table,
            metric,
            next_record: NextRecord::default(),
            prefetch: Prefetch::default(),
            accumulator,
            items,
            n_matched: 0,
        }
    }

    /// Adds a prediction if its item is in this table. Returns whether it is. Breaks if the item is
    /// already predicted.
    #[inline]
    fn add(&mut self, prediction: &Prediction<'_, '_>) -> ControlFlow<Failure, bool> {
        let Some(item) = self.table.find(
            &prediction.item_id,
            &mut self.next_record,
            &mut self.prefetch,
        ) else {
            return ControlFlow::Continue(false);
        };
        if self.items.mark_predicted(item.ordinal) {
            let location = location(prediction.index, prediction.line);
            return ControlFlow::Break(repeated(&location));
        }
        self.n_matched += 1;
        self.accumulator
            .add(item, prediction.value, &mut self.items);
        ControlFlow::Continue(true)
    }

    fn n_missing(&self) -> usize {
        self.table.len() - self.n_matched
    }

    /// Returns the average over clusters, if the value is one.
    fn average(&self, scored: &ScoredItems<'_, 't>) -> Result<Option<ClusterAverage>, Failure> {
        let clusters = self.table.clusters();
        let Some(clusters) = clusters.filter(|_| self.table.averages_clusters()) else {
            return Ok(None);
        };
        let places: Vec<u32> = (0..self.table.len() as u32).collect();
        let average = ClusterAverage::of(scored, scored.part(&places), clusters);
        if average.n > 0 {
            return Ok(Some(average));
        }
        // Publishing has checked that the suite has such clusters.
        Err(Failure::InvalidPredictions(format!(
            "{} is not defined for the answers of any cluster",
            self.metric
        )))
    }

    fn finish(mut self, with_slices: bool) -> Result<(Figures, ItemScores), Failure> {
        let n_missing = self.n_missing();
        let Self { table, metric, .. } = self;
        let with_slices = with_slices && !table.slices().is_empty();
        let (mut slices, mut average) = (Vec::new(), None);
        if with_slices || table.averages_clusters() {
            let scored = ScoredItems::new(table, metric, &self.accumulator, &self.items);
            if with_slices {
                slices = slices::figures(&scored);
            }
            average = self.average(&scored)?;
        }
        let mut figures = self.accumulator.finish(&mut self.items, n_missing)?;
        figures.slices = slices;
        match (table.clusters(), average) {
            (Some(clusters), Some(average)) => {
                average.replace_value(&mut figures, &mut self.items, clusters);
            }
            (Some(clusters), None) => {
                by_cluster(&mut figures, clusters, table, metric, &self.items);
            }
            (None, _) => {}
        }
        if let Some(retest) = self.table.retest() {
            let contribution = Contribution::for_items(self.metric, self.items.stored());
            let contributions = self.items.stored().map(|item| contribution.of(item));
            figures.ceiling = Some(retest.ceiling());
            let (clusters, n) = (self.table.clusters(), self.table.len());
            figures.share_of_ceiling = retest.share(clusters, figures.value, contributions, n);
        }
        if let Some(skill) = self.table.skill() {
            // The value is a mean, so these are the scores of the items.
            let scores = self.items.stored().map(|item| item.value);
            figures.skill = Some(skill.skill(scores, self.table.clusters()));
        }
        Ok((figures, self.items.finish()))
    }
}

impl<'t> Scorer<'t> {
    /// Returns the rules by which predictions are taken.
    pub(crate) fn rules(&self) -> &PredictionRules {
        &self.rules
    }

    /// Creates a scorer without predictions for a suite's open items.
    pub fn new(open: &'t AnswerTable, metric: Metric, progress: &'t Progress) -> Self {
        Self {
            metric,
            rules: PredictionRules::checked(metric, open.levels().cloned()),
            open: ItemSet::new(open, metric),
            sealed: None,
            shown: open.catalog().map(|catalog| ShownIds::new(catalog, metric)),
            unmatched: Unmatched::default(),
            progress,
            n_taken: 0,
            with_slices: true,
        }
    }

    /// Leaves the figures of slices out.
    #[must_use]
    pub fn without_slices(mut self) -> Self {
        self.with_slices = false;
        self
    }

    /// Also scores the suite's sealed items, separately.
    #[must_use]
    pub fn with_sealed(mut self, sealed: Option<&'t AnswerTable>) -> Self {
        self.sealed = sealed.map(|table| ItemSet::new(table, self.metric));
        self
    }

    /// Returns the score for the predictions that were taken. Fails if an item was predicted twice,
    /// or if the metric needs predictions that are missing, or is not defined for them.
    pub fn finish(mut self) -> Result<Score, Failure> {
        if let Some(location) = self.unmatched.first_repeated() {
            return Err(repeated(&location));
        }
        let Self {
            metric,
            open,
            sealed,
            shown,
            unmatched,
            with_slices,
            ..
        } = self;
        let sum_both = |of: fn(&ItemSet<'t>) -> usize| of(&open) + sealed.as_ref().map_or(0, of);
        let n_missing = sum_both(ItemSet::n_missing);
        if metric.needs_all_predictions() && n_missing > 0 {
            return Err(Failure::InvalidPredictions(format!(
                "{metric} needs a prediction for each item of the suite: {n_missing} are missing"
            )));
        }
        let n_unmatched = unmatched.len() as i64;
        let n_submitted = sum_both(|set| set.n_matched) as i64 + n_unmatched;
        let n = open.table.len() as i64;
        let n_missing = open.n_missing() as i64;
        let (mut figures, items) = open.finish(with_slices)?;
        if let Some(shown) = shown {
            figures.public_metrics = shown.figures();
        }
        let sealed = match sealed {
            Some(set) => {
                let n = set.table.len() as i64;
                let n_missing = set.n_missing() as i64;
                let (figures, items) = set.finish(with_slices)?;
                Some(Sealed {
                    n,
                    n_missing,
                    figures,
                    items,
                })
            }
            None => None,
        };
        Ok(Score {
            n,
            n_submitted,
            n_unmatched,
            n_missing,
            figures,
            items,
            sealed,
        })
    }
}

impl<'a> PredictionSink<'a> for Scorer<'_> {
    type Stop = Failure;

    fn prefetch(&mut self, item_ids: &[&str]) {
        self.open.prefetch.load(self.open.table, item_ids);
    }

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<Failure> {
        if self.n_taken.is_multiple_of(PROGRESS_INTERVAL) {
            self.progress.done.store(self.n_taken, Ordering::Relaxed);
            if self.progress.stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(Failure::Stopped);
            }
        }
        self.n_taken += 1;
        let invalid = |message| ControlFlow::Break(Failure::InvalidPredictions(message));
        let prediction = match prediction {
            Ok(prediction) => prediction,
            Err(error) => return invalid(format!("{}: {}", error.field, error.message)),
        };
        if let Err((_, message)) = self.rules.check(prediction.value) {
            return invalid(format!(
                "{}.prediction: {message}",
                location(prediction.index, prediction.line)
            ));
        }
        if matches!(prediction.value, Value::Failed) {
            return ControlFlow::Continue(());
        }
        let mut is_matched = self.open.add(&prediction)?;
        if let (false, Some(sealed)) = (is_matched, &mut self.sealed) {
            is_matched = sealed.add(&prediction)?;
        }
        if !is_matched {
            self.unmatched.add(&prediction);
        } else if let Some(shown) = &mut self.shown {
            shown.add(prediction.value);
        }
        ControlFlow::Continue(())
    }
}

/// Returns the failure for a second prediction for the same item.
fn repeated(location: &str) -> Failure {
    Failure::InvalidPredictions(format!(
        "{location}.item_id: this item is already predicted"
    ))
}
