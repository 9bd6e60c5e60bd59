//! Scoring: predictions against the hidden answers of a suite.
//!
//! What lives here is pure: no clock, no network, no database.

mod ranking;
mod table;

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_core::prediction::{self, Prediction};
use assay_core::{FieldError, Scoring};

pub use table::AnswerTable;

use ranking::Ranker;

/// After how many predictions the wish to stop is looked for.
const STOP_EVERY: usize = 1024;

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Items in the suite.
    pub n: i64,
    /// Predictions sent.
    pub n_submitted: i64,
    /// Of those, the ones for no item of the suite.
    pub n_unmatched: i64,
    /// Items of the suite without a prediction.
    pub n_missing: i64,
    /// The metric's mean over all `n` items, 0 to 1; an item without a prediction counts as 0.
    pub value: f64,
    /// By ordinal: the metric of each item alone. Empty unless asked for.
    pub items: Vec<f64>,
}

/// Why there is no score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The predictions are at fault: which one and why.
    InvalidPredictions(String),
    /// `stop` was set.
    Stopped,
}

/// Scores a JSON array of predictions. Nothing but these arguments matters; the order of the predictions makes a
/// difference of at most 1e-15.
pub fn score(table: &AnswerTable, scoring: &Scoring, predictions: &[u8], stop: &AtomicBool) -> Result<Score, Failure> {
    let mut tally = Tally::new(table, scoring);
    let flow = prediction::read(predictions, |next| {
        let is_due = next.as_ref().is_ok_and(|prediction| prediction.index.is_multiple_of(STOP_EVERY));
        if is_due && stop.load(Ordering::Relaxed) { ControlFlow::Break(Failure::Stopped) } else { tally.add(next) }
    });
    match flow {
        Ok(ControlFlow::Continue(())) => tally.finish(),
        Ok(ControlFlow::Break(failure)) => Err(failure),
        Err(error) => Err(Failure::InvalidPredictions(error.message.into_owned())),
    }
}

/// Scores predictions one after the other, however they come.
pub struct Tally<'t> {
    table: &'t AnswerTable,
    ranker: Ranker<'t>,
    /// By ordinal: has the item been predicted?
    predicted: Vec<bool>,
    n_matched: i64,
    unmatched: Unmatched,
    sum: Sum,
    /// By ordinal; empty unless asked for.
    items: Vec<f64>,
}

impl<'t> Tally<'t> {
    /// Nothing was predicted yet.
    pub fn new(table: &'t AnswerTable, scoring: &Scoring) -> Self {
        Self {
            table,
            ranker: Ranker::new(scoring.metric),
            predicted: vec![false; table.len()],
            n_matched: 0,
            unmatched: Unmatched::default(),
            sum: Sum::default(),
            items: vec![0.0; if scoring.per_item_feedback { table.len() } else { 0 }],
        }
    }

    /// Adds the next prediction; a fault, or an item that was predicted before, ends the score.
    pub fn add(&mut self, next: Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<Failure> {
        let prediction = match next {
            Ok(prediction) => prediction,
            Err(fault) => return ControlFlow::Break(Failure::InvalidPredictions(format!("{}: {}", fault.field, fault.message))),
        };
        match self.table.find(&prediction.item_id) {
            None => self.unmatched.add(&prediction),
            Some(item) if self.predicted[item.ordinal] => {
                return ControlFlow::Break(repeated(&prediction::name(prediction.index, prediction.line)));
            }
            Some(item) => {
                self.predicted[item.ordinal] = true;
                self.n_matched += 1;
                let score = self.ranker.score(prediction.value.ranking(), item);
                self.sum.add(score);
                if let Some(kept) = self.items.get_mut(item.ordinal) {
                    *kept = score;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The score of all that was added.
    pub fn finish(mut self) -> Result<Score, Failure> {
        if let Some(place) = self.unmatched.repeated() {
            return Err(repeated(&place));
        }
        let n = self.table.len() as i64;
        let n_unmatched = self.unmatched.seen.len() as i64;
        Ok(Score {
            n,
            n_submitted: self.n_matched + n_unmatched,
            n_unmatched,
            n_missing: n - self.n_matched,
            // A suite without items is never published, but no figure is ever NaN.
            value: self.sum.total() / n.max(1) as f64,
            items: self.items,
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
        self.seen.push(((hash(0) << 64 | hash(1)) & !u128::from(u32::MAX)) | u128::from(place));
    }

    /// The first place at which an item is predicted again.
    fn repeated(&mut self) -> Option<String> {
        self.seen.sort_unstable();
        let again = self.seen.windows(2).filter(|pair| pair[0] >> 32 == pair[1] >> 32).map(|pair| pair[1] as u32);
        let place = again.min()? as usize;
        Some(prediction::name(place, self.by_line.then_some(place)))
    }
}

/// A compensated sum, whose error does not grow with the number of terms nor depend on their order.
/// (A. Neumaier, Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen, ZAMM 54, 1974.)
#[derive(Default)]
struct Sum {
    sum: f64,
    compensation: f64,
}

impl Sum {
    fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        // What the smaller of the two lost when it was added to the larger.
        self.compensation += if self.sum.abs() >= term.abs() { (self.sum - sum) + term } else { (term - sum) + self.sum };
        self.sum = sum;
    }

    fn total(&self) -> f64 {
        self.sum + self.compensation
    }
}

#[cfg(test)]
mod tests;
