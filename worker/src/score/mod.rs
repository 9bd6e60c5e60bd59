//! Scoring: predictions against the hidden answers of a suite.
//!
//! What lives here is pure: no clock, no network, no database.

mod ranking;
mod table;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_core::Scoring;
use assay_core::prediction::{self, Prediction};

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
    let flow = prediction::read(predictions, |next| match next {
        Err(fault) => ControlFlow::Break(Failure::InvalidPredictions(format!("{}: {}", fault.field, fault.message))),
        Ok(prediction) if prediction.index.is_multiple_of(STOP_EVERY) && stop.load(Ordering::Relaxed) => {
            ControlFlow::Break(Failure::Stopped)
        }
        Ok(prediction) => tally.add(prediction),
    });
    match flow {
        Ok(ControlFlow::Continue(())) => Ok(tally.finish()),
        Ok(ControlFlow::Break(failure)) => Err(failure),
        Err(error) => Err(Failure::InvalidPredictions(error.message.into_owned())),
    }
}

struct Tally<'t, 'a> {
    table: &'t AnswerTable,
    ranker: Ranker<'t>,
    /// By ordinal: has the item been predicted?
    predicted: Vec<bool>,
    n_matched: i64,
    unmatched: HashSet<Cow<'a, str>>,
    sum: Sum,
    /// By ordinal; empty unless asked for.
    items: Vec<f64>,
}

impl<'t, 'a> Tally<'t, 'a> {
    fn new(table: &'t AnswerTable, scoring: &Scoring) -> Self {
        Self {
            table,
            ranker: Ranker::new(scoring.metric),
            predicted: vec![false; table.len()],
            n_matched: 0,
            unmatched: HashSet::new(),
            sum: Sum::default(),
            items: vec![0.0; if scoring.per_item_feedback { table.len() } else { 0 }],
        }
    }

    fn add(&mut self, prediction: Prediction<'_, 'a>) -> ControlFlow<Failure> {
        let is_new = match self.table.find(&prediction.item_id) {
            None => self.unmatched.insert(prediction.item_id),
            Some(item) if self.predicted[item.ordinal] => false,
            Some(item) => {
                self.predicted[item.ordinal] = true;
                self.n_matched += 1;
                let score = self.ranker.score(prediction.value.ranking(), item);
                self.sum.add(score);
                if let Some(kept) = self.items.get_mut(item.ordinal) {
                    *kept = score;
                }
                true
            }
        };
        if is_new {
            ControlFlow::Continue(())
        } else {
            let message = format!("predictions[{}].item_id: this item is already predicted", prediction.index);
            ControlFlow::Break(Failure::InvalidPredictions(message))
        }
    }

    fn finish(self) -> Score {
        let n = self.table.len() as i64;
        let n_unmatched = self.unmatched.len() as i64;
        Score {
            n,
            n_submitted: self.n_matched + n_unmatched,
            n_unmatched,
            n_missing: n - self.n_matched,
            // A suite without items is never published, but no figure is ever NaN.
            value: self.sum.total() / n.max(1) as f64,
            items: self.items,
        }
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
