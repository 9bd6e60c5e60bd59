//! The scorer: adds predictions one by one, and returns the score.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::answer_table::{AnswerTable, Item, NextRecord, Prefetch};
use super::labels::Labels;
use super::numbers::Numbers;
use super::probabilities::{Probabilities, stderr_of_ece_by_cluster};
use super::ranking::Rankings;
use super::result::{ClusterFigures, Failure, Figures, Score, Sealed};
use crate::clusters::Clusters;
use crate::compare::{Contribution, StoredItem};
use crate::error::FieldError;
use crate::item_scores::{ItemScores, ItemScoresBuilder};
use crate::metric::{Family, Metric};
use crate::prediction::{
    HashedPredictions, Prediction, PredictionSink, Unmatched, Value, check_value, location, read,
};
use crate::stats::clustered;

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
    score_and_hash(open, sealed, metric, predictions, progress).map(|(score, _)| score)
}

/// Scores a JSON array with predictions, and returns the SHA-256 of their normal form with the score.
pub fn score_and_hash(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
    predictions: &[u8],
    progress: &Progress,
) -> Result<(Score, [u8; 32]), Failure> {
    let scorer = Scorer::new(open, metric, progress).with_sealed(sealed);
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
/// whatever the predictions are. An invalid prediction, or a second one for the same item, ends
/// scoring.
pub struct Scorer<'t> {
    metric: Metric,
    open: ItemSet<'t>,
    /// Scored separately, so that no open-item figure can depend on a sealed answer.
    sealed: Option<ItemSet<'t>>,
    unmatched: Unmatched,
    progress: &'t Progress,
    n_taken: u64,
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

/// The accumulator for the metric's family.
enum Accumulator<'t> {
    Rankings(Rankings<'t>),
    Labels(Labels<'t>),
    Numbers(Numbers<'t>),
    Probabilities(Probabilities<'t>),
}

impl<'t> Accumulator<'t> {
    fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
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
    fn add(&mut self, item: Item<'t>, value: Value<'_, '_>, items: &mut ItemScoresBuilder) {
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

    /// Returns the figures, and sets the items' final values: their mean is the metric.
    fn finish(self, items: &mut ItemScoresBuilder, n_missing: usize) -> Result<Figures, Failure> {
        match self {
            Self::Rankings(rankings) => Ok(rankings.finish(items)),
            Self::Labels(labels) => Ok(labels.finish(items, n_missing)),
            Self::Numbers(numbers) => numbers.finish(items, n_missing),
            Self::Probabilities(probabilities) => probabilities.finish(items, n_missing),
        }
    }
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

    fn finish(mut self) -> Result<(Figures, ItemScores), Failure> {
        let n_missing = self.n_missing();
        let mut figures = self.accumulator.finish(&mut self.items, n_missing)?;
        if let Some(clusters) = self.table.clusters() {
            by_cluster(&mut figures, clusters, self.table, self.metric, &self.items);
        }
        Ok((figures, self.items.finish()))
    }
}

impl<'t> Scorer<'t> {
    /// Creates a scorer without predictions for a suite's open items.
    pub fn new(open: &'t AnswerTable, metric: Metric, progress: &'t Progress) -> Self {
        Self {
            metric,
            open: ItemSet::new(open, metric),
            sealed: None,
            unmatched: Unmatched::default(),
            progress,
            n_taken: 0,
        }
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
            unmatched,
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
        let (figures, items) = open.finish()?;
        let sealed = match sealed {
            Some(set) => {
                let n = set.table.len() as i64;
                let n_missing = set.n_missing() as i64;
                let (figures, items) = set.finish()?;
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
        if let Err((_, message)) = check_value(self.metric, prediction.value) {
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
        }
        ControlFlow::Continue(())
    }
}

/// Replaces the estimate for independent items by that for items in clusters. `items` have their
/// final values.
fn by_cluster(
    figures: &mut Figures,
    clusters: &Clusters,
    table: &AnswerTable,
    metric: Metric,
    items: &ItemScoresBuilder,
) {
    let independent = figures.estimate.take();
    let stored = (0..items.len()).map(|item| StoredItem {
        value: items.value(item),
        is_right: items.is_right(item),
    });
    let contribution = Contribution::for_items(metric, stored.clone());
    let range = metric.range(table.clip(), table.n_labels());
    figures.estimate = match &independent {
        Some(independent) if metric == Metric::Ece => stderr_of_ece_by_cluster(items, clusters)
            .map(|stderr| {
                let sizes = clusters.sizes();
                clustered::around(sizes, independent.method, figures.value, stderr, range)
            }),
        Some(independent) => {
            let contributions = stored.map(|item| contribution.of(item));
            clustered::estimate(clusters, independent, figures.value, range, contributions)
        }
        None => None,
    };
    let ratio = figures
        .estimate
        .zip(independent)
        .map(|(by_cluster, independent)| by_cluster.stderr / independent.stderr);
    figures.clusters = Some(ClusterFigures {
        n: clusters.sizes().len() as i64,
        design_effect: ratio
            .map(|ratio| ratio * ratio)
            .filter(|effect| effect.is_finite()),
    });
}

/// Returns the failure for a second prediction for the same item.
fn repeated(location: &str) -> Failure {
    Failure::InvalidPredictions(format!(
        "{location}.item_id: this item is already predicted"
    ))
}
