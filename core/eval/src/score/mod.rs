//! Scoring: predictions against the hidden answers of a suite.
//!
//! What lives here is pure: no clock, no network, no database. `docs/metrics.md` says what each metric is; one file here is
//! one family of them, `estimate` says how sure a figure is.

mod answer_table;
mod labels;
mod numbers;
mod probabilities;
mod ranking;
mod trivial;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::FieldError;
use crate::item_scores::ItemScores;
use crate::metric::{Family, Metric};
use crate::prediction::{self, Prediction, Value, check_value};

pub use crate::stats::confidence::{Estimate, Z, wilson};
pub use answer_table::{AnswerTable, Builder, Prefetch};
pub use trivial::{Trivial, best_trivial, trivial_submissions};

use answer_table::{Item, NextRecord};
use labels::Labels;
use numbers::Numbers;
use probabilities::Probabilities;
use ranking::Rankings;

/// After how many predictions the wish to stop is looked for, and progress told.
const PROGRESS_INTERVAL: u64 = 1024;

/// What goes between one who scores and one who waits.
#[derive(Debug, Default)]
pub struct Progress {
    /// Set when the score is not wanted any more.
    pub stop: AtomicBool,
    /// How many predictions have been scored.
    pub done: AtomicU64,
}

/// The figures that are cut at k.
const NAMED_AT_K: [&str; 6] = ["hit_rate", "recall", "precision", "ndcg", "mrr", "map"];

/// In suites of at most so many items, spearman and auc are told beside another metric of their family: they need all
/// predictions at hand.
const RANKED_BESIDE_MAX: usize = 1 << 20;

/// The result of scoring.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Items that `figures` cover: those of the table.
    pub n: i64,
    /// Predictions sent.
    pub n_submitted: i64,
    /// Of those, the ones for no item of the suite, open or sealed.
    pub n_unmatched: i64,
    /// Items of the table without a prediction.
    pub n_missing: i64,
    /// The figures of the table's items.
    pub figures: Figures,
    /// What is stored of each item for comparisons.
    pub items: ItemScores,
    /// The figures of the sealed items, if there are any.
    pub sealed: Option<Sealed>,
}

/// The figures of one set of items.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The metric, over all items; an item without a prediction counts as the worst possible.
    pub value: f64,
    /// How sure the value is, where that can be said.
    pub estimate: Option<Estimate>,
    /// The other figures of the metric's family.
    pub metrics: BTreeMap<String, f64>,
}

/// The figures of the sealed items of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// The number of sealed items.
    pub n: i64,
    /// Their figures.
    pub figures: Figures,
}

/// Why there is no score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The predictions are at fault: which one and why.
    InvalidPredictions(String),
    /// The score was not wanted any more.
    Stopped,
}

/// Scores a JSON array of predictions. Nothing but these arguments matters, and the order of the predictions does not.
pub fn score(
    open: &AnswerTable,
    sealed: Option<&AnswerTable>,
    metric: Metric,
    predictions: &[u8],
    progress: &Progress,
) -> Result<Score, Failure> {
    let prefetch = Prefetch::default();
    let mut tally = Scorer::new(open, metric, progress, &prefetch).with_sealed(sealed);
    match prediction::read(predictions, |next| tally.add(next)) {
        Ok(ControlFlow::Continue(())) => tally.finish(),
        Ok(ControlFlow::Break(failure)) => Err(failure),
        Err(error) => Err(Failure::InvalidPredictions(error.to_string())),
    }
}

/// Scores predictions one after the other, however they come. Beside the tables it takes a few bytes per item, whatever
/// the predictions are.
pub struct Scorer<'t> {
    metric: Metric,
    prefetch: &'t Prefetch,
    open: Part<'t>,
    /// Scored separately, so that no figure of the open items can depend on a sealed answer.
    sealed: Option<Part<'t>>,
    /// Sealed items are looked up one by one.
    no_foresight: Prefetch,
    unmatched: Unmatched,
    progress: &'t Progress,
    beats: u64,
}

/// The items of one table.
struct Part<'t> {
    table: &'t AnswerTable,
    hint: NextRecord,
    family: ByFamily<'t>,
    items: ItemScores,
    n_matched: usize,
}

enum ByFamily<'t> {
    Rankings(Rankings<'t>),
    Labels(Labels<'t>),
    Numbers(Numbers<'t>),
    Probabilities(Probabilities<'t>),
}

impl<'t> ByFamily<'t> {
    fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        fn with<T, F>((family, items): (T, ItemScores), of: impl Fn(T) -> F) -> (F, ItemScores) {
            (of(family), items)
        }
        match metric.family() {
            Family::Rankings => with(Rankings::new(table, metric), Self::Rankings),
            Family::Labels => with(Labels::new(table, metric), Self::Labels),
            Family::Numbers => with(Numbers::new(table, metric), Self::Numbers),
            Family::Probabilities => with(Probabilities::new(table, metric), Self::Probabilities),
        }
    }

    /// Adds a value that fits the metric.
    #[inline]
    fn add(&mut self, item: Item<'t>, value: Value<'_, '_>, items: &mut ItemScores) {
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
            // Was refused before.
            (
                Self::Rankings(_) | Self::Labels(_) | Self::Numbers(_) | Self::Probabilities(_),
                _,
            ) => {}
        }
    }

    /// Afterwards the mean of what is kept of the items is the figure.
    fn finish(self, items: &mut ItemScores, n_missing: usize) -> Result<Figures, Failure> {
        match self {
            Self::Rankings(rankings) => Ok(rankings.finish(items)),
            Self::Labels(labels) => Ok(labels.finish(items, n_missing)),
            Self::Numbers(numbers) => numbers.finish(items, n_missing),
            Self::Probabilities(probabilities) => probabilities.finish(items, n_missing),
        }
    }
}

impl<'t> Part<'t> {
    fn new(table: &'t AnswerTable, metric: Metric) -> Self {
        let (family, items) = ByFamily::new(table, metric);
        Self {
            table,
            hint: NextRecord::default(),
            family,
            items,
            n_matched: 0,
        }
    }

    /// Adds a prediction, if it is for an item of this table. Returns whether it is. Breaks if the item is already predicted.
    #[inline]
    fn add(
        &mut self,
        prediction: &Prediction<'_, '_>,
        prefetch: &Prefetch,
    ) -> ControlFlow<Failure, bool> {
        let Some(item) = self
            .table
            .find(&prediction.item_id, &mut self.hint, prefetch)
        else {
            return ControlFlow::Continue(false);
        };
        if self.items.predict(item.ordinal) {
            return ControlFlow::Break(repeated(&prediction::name(
                prediction.index,
                prediction.line,
            )));
        }
        self.n_matched += 1;
        self.family.add(item, prediction.value, &mut self.items);
        ControlFlow::Continue(true)
    }

    fn n_missing(&self) -> usize {
        self.table.len() - self.n_matched
    }

    fn finish(mut self) -> Result<(Figures, ItemScores), Failure> {
        let n_missing = self.n_missing();
        let figures = self.family.finish(&mut self.items, n_missing)?;
        self.items.finish();
        Ok((figures, self.items))
    }
}

impl<'t> Scorer<'t> {
    /// Nothing was predicted yet. Whoever reads from a stream may tell `prefetch` what comes.
    pub fn new(
        table: &'t AnswerTable,
        metric: Metric,
        progress: &'t Progress,
        prefetch: &'t Prefetch,
    ) -> Self {
        let open = Part::new(table, metric);
        let (no_foresight, unmatched) = (Prefetch::default(), Unmatched::default());
        Self {
            metric,
            prefetch,
            open,
            sealed: None,
            no_foresight,
            unmatched,
            progress,
            beats: 0,
        }
    }

    /// Scores these items too, separately.
    #[must_use]
    pub fn with_sealed(mut self, sealed: Option<&'t AnswerTable>) -> Self {
        self.sealed = sealed.map(|table| Part::new(table, self.metric));
        self
    }

    /// Adds the next prediction; a fault, or an item that was predicted before, ends the score.
    pub fn add(&mut self, next: Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<Failure> {
        if self.beats.is_multiple_of(PROGRESS_INTERVAL) {
            self.progress.done.store(self.beats, Ordering::Relaxed);
            if self.progress.stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(Failure::Stopped);
            }
        }
        self.beats += 1;
        let invalid = |told| ControlFlow::Break(Failure::InvalidPredictions(told));
        let prediction = match next {
            Ok(prediction) => prediction,
            Err(fault) => return invalid(format!("{}: {}", fault.field, fault.message)),
        };
        if let Err((_, told)) = check_value(self.metric, prediction.value) {
            return invalid(format!(
                "{}.prediction: {told}",
                prediction::name(prediction.index, prediction.line)
            ));
        }
        let mut is_matched = self.open.add(&prediction, self.prefetch)?;
        if let (false, Some(sealed)) = (is_matched, &mut self.sealed) {
            is_matched = sealed.add(&prediction, &self.no_foresight)?;
        }
        if !is_matched {
            self.unmatched.add(&prediction);
        }
        ControlFlow::Continue(())
    }

    /// The score of all that was added.
    pub fn finish(mut self) -> Result<Score, Failure> {
        if let Some(place) = self.unmatched.repeated() {
            return Err(repeated(&place));
        }
        let Self {
            metric,
            open,
            sealed,
            unmatched,
            ..
        } = self;
        let of_both = |of: fn(&Part<'t>) -> usize| of(&open) + sealed.as_ref().map_or(0, of);
        let n_missing = of_both(Part::n_missing);
        if metric.needs_all_predictions() && n_missing > 0 {
            let told = format!(
                "{metric} needs a prediction for each item of the suite: {n_missing} are missing"
            );
            return Err(Failure::InvalidPredictions(told));
        }
        let n_unmatched = unmatched.seen.len() as i64;
        let n_submitted = of_both(|part| part.n_matched) as i64 + n_unmatched;
        let (n, n_missing) = (open.table.len() as i64, open.n_missing() as i64);
        let (figures, items) = open.finish()?;
        let sealed = match sealed {
            Some(part) => Some(Sealed {
                n: part.table.len() as i64,
                figures: part.finish()?.0,
            }),
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

fn repeated(place: &str) -> Failure {
    Failure::InvalidPredictions(format!("{place}.item_id: this item is already predicted"))
}

/// The predictions for items that the suite does not have. There may be millions, so of each only 16 bytes are kept: 96
/// bits of a hash of the item's id and 32 of its place. Among ten million items two are taken for one with a probability
/// of 1e-15.
#[derive(Default)]
struct Unmatched {
    seen: Vec<u128>,
    by_line: bool,
}

impl Unmatched {
    fn add(&mut self, prediction: &Prediction<'_, '_>) {
        self.by_line = prediction.line.is_some();
        let place = prediction.line.unwrap_or(prediction.index) as u32;
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(prediction.item_id.as_bytes());
            u128::from(hasher.finish())
        };
        self.seen
            .push(((hash(0) << 64 | hash(1)) & !u128::from(u32::MAX)) | u128::from(place));
    }

    /// The first place at which an item is predicted again.
    fn repeated(&mut self) -> Option<String> {
        self.seen.sort_unstable();
        let again = self
            .seen
            .windows(2)
            .filter(|pair| pair[0] >> 32 == pair[1] >> 32)
            .map(|pair| pair[1] as u32);
        let place = again.min()? as usize;
        Some(prediction::name(place, self.by_line.then_some(place)))
    }
}

#[cfg(test)]
mod tests;
