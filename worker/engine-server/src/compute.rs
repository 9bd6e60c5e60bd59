//! The computation for one sequence in a call.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use assay_core::runtime::prometheus;
use assay_engine::{Counts, Event, GenerateOptions, Refusal, Scratch, Sequence};
use assay_inference::ids;

use crate::call::{Call, Operation};
use crate::package::Package;
use crate::pool::Work;
use crate::texts::Texts;

/// One sequence's result.
#[derive(Debug, Clone, PartialEq)]
pub struct RowResult {
    /// The `refusals` output's value.
    pub refusal: i64,
    /// The numbers of events that entered the model, and that were left out.
    pub counts: Counts,
    /// The operation's output. A refused sequence has none.
    pub output: Option<Output>,
}

/// An operation's output for one sequence.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Ranked items, in one row.
    Ranking {
        /// The items.
        item_ids: Texts,
        /// The first items' scores. The others are unknown options.
        scores: Vec<f32>,
        /// `true` if no item is missing that is more probable than these.
        is_exact: bool,
    },
    /// Continuations, each in a row.
    Continuations {
        /// The items.
        item_ids: Texts,
        /// Each continuation's score.
        scores: Vec<f32>,
    },
    /// A vector.
    Embedding(Vec<f32>),
}

/// A call in progress: its sequences, its package, and the results so far.
pub struct Computation {
    call: Call,
    package: Arc<Package>,
    deadline: Option<Instant>,
    results: Vec<OnceLock<Result<RowResult, Refusal>>>,
}

impl Computation {
    /// Creates a computation without results.
    pub fn new(call: Call, package: Arc<Package>, deadline: Option<Instant>) -> Self {
        let results = (0..call.rows()).map(|_| OnceLock::new()).collect();
        Self {
            call,
            package,
            deadline,
            results,
        }
    }

    /// Returns the call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the package.
    pub fn package(&self) -> &Package {
        &self.package
    }

    /// Returns each sequence's result. A sequence that was skipped, or whose computation
    /// panicked, has none.
    pub fn results(&self) -> impl Iterator<Item = Option<&Result<RowResult, Refusal>>> {
        self.results.iter().map(OnceLock::get)
    }

    /// Returns the estimated time to compute one sequence.
    pub fn row_time(&self) -> Duration {
        self.package.times.estimate(&self.call.operation)
    }

    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Work for Computation {
    fn compute(&self, row: usize, scratch: &mut Scratch, should_stop: &dyn Fn() -> bool) {
        let should_stop = || should_stop() || self.is_late();
        let Some(slot) = self.results.get(row) else {
            return;
        };
        if should_stop() {
            return;
        }
        let start = Instant::now();
        let result = self.call.compute(row, &self.package, scratch, &should_stop);
        let time = start.elapsed();
        if !matches!(result, Err(Refusal::Stopped)) {
            let operation = &self.call.operation;
            self.package.times.add(operation, time);
            let name = operation.name();
            metrics::histogram!(prometheus::ENGINE_SEQUENCE_SECONDS, "operation" => name)
                .record(time);
        }
        // No other thread computes this sequence.
        let _ = slot.set(result);
    }
}

impl Call {
    /// Computes one sequence. Fails only if the whole call fails; a refused sequence is a result.
    fn compute(
        &self,
        row: usize,
        package: &Package,
        scratch: &mut Scratch,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<RowResult, Refusal> {
        let mut types = self.types.as_ref().and_then(|types| types.row(row));
        let events: Vec<Event<'_>> = self
            .events
            .row(row)
            .into_iter()
            .flatten()
            .map(|item_id| Event {
                item_id,
                event_type: types
                    .as_mut()
                    .and_then(Iterator::next)
                    .filter(|event_type| !event_type.is_empty()),
            })
            .collect();
        let options: Option<Vec<&str>> = match &self.operation {
            Operation::Predict { options, .. } => options.row(row).map(Iterator::collect),
            _ => None,
        };
        let sequence = Sequence {
            events: &events,
            options: options.as_deref(),
            on_long: self.on_long,
            on_unknown: self.on_unknown,
        };
        let computed = match &self.operation {
            Operation::Predict { parameters, .. } => package
                .model
                .predict(scratch, &sequence, parameters, should_stop)
                .map(|ranking| {
                    let mut item_ids = Texts::default();
                    item_ids.push_row(ranking.items.iter().map(|item| item.item_id));
                    let scores = ranking.items.iter().map_while(|item| item.score).collect();
                    let is_exact = ranking.is_exact;
                    (
                        ranking.counts,
                        Output::Ranking {
                            item_ids,
                            scores,
                            is_exact,
                        },
                    )
                }),
            Operation::Generate {
                sequence_ids,
                parameters,
            } => {
                let sequence_id = sequence_ids.row(row).and_then(|mut ids| ids.next());
                let Some(parameters): Option<&GenerateOptions> = parameters.get(row) else {
                    return Err(Refusal::Stopped);
                };
                let sequence_id = sequence_id.unwrap_or_default();
                package
                    .model
                    .generate(scratch, &sequence, sequence_id, parameters, should_stop)
                    .map(|generation| {
                        let mut item_ids = Texts::default();
                        let mut scores = Vec::new();
                        for continuation in generation.continuations {
                            item_ids.push_row(continuation.item_ids);
                            scores.push(continuation.score);
                        }
                        (
                            generation.counts,
                            Output::Continuations { item_ids, scores },
                        )
                    })
            }
            Operation::Embed(parameters) => package
                .model
                .embed(scratch, &sequence, parameters, should_stop)
                .map(|embedding| (embedding.counts, Output::Embedding(embedding.vector))),
        };
        let refused = |refusal| RowResult {
            refusal,
            counts: Counts::default(),
            output: None,
        };
        match computed {
            Ok((counts, output)) => Ok(RowResult {
                refusal: ids::NOT_REFUSED,
                counts,
                output: Some(output),
            }),
            Err(Refusal::TooLong { .. }) => Ok(refused(ids::TOO_LONG)),
            Err(Refusal::UnknownItem { event }) => {
                Ok(refused(i64::try_from(event + 1).unwrap_or(i64::MAX)))
            }
            Err(failed) => Err(failed),
        }
    }
}
