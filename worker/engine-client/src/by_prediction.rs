//! Continuing sequences with models that only predict: one prediction for each event.
//!
//! The rules and the random numbers are the embedded engine's.

use std::borrow::Cow;

use assay_core::model::error::{Error, Result};
use assay_core::model::sequence::{Event, Sequence};
use assay_core::model::served_model::ServedModel;
use assay_core::model::serving::{
    Continuations, EventCounts, GenerateMode, GenerateOptions, HistoryOptions, OnLong, OnUnknown,
    PredictOptions, Refusal, TOP_K,
};
use assay_engine::Random;

use crate::calls::Admitted;
use crate::checks::Rows;
use crate::code_calls::Codes;
use crate::early::{EarlyEvent, EarlyEvents};
use crate::ids;
use crate::logits::{Wanted, draw_from};

/// Continuations that the beam keeps after each step, and of next items that it considers
/// for each.
const BEAM_WIDTH: usize = 10;

/// A model that predicts.
pub enum Predictor<'p> {
    /// Its engine reads item ids.
    Ids(&'p ServedModel),
    /// Its engine reads codes.
    Codes(Codes<'p>),
}

/// An unfinished continuation.
#[derive(Debug, Clone, Default)]
struct Path {
    item_ids: Vec<String>,
    score: f64,
    /// `true` if no further item is allowed.
    is_finished: bool,
}

/// The continuations of one sequence.
struct State {
    counts: Option<EventCounts>,
    paths: Vec<Path>,
}

/// A path's next items, with their scores, and what became of the sequence's events.
type Found = (EventCounts, Vec<(String, f64)>);

/// A path that gets its next item in this step.
struct Step {
    sequence: usize,
    path: usize,
    numbers: Vec<f64>,
}

impl Predictor<'_> {
    /// Continues each sequence. In the mode `sample`, each step's events are sent to `early`, unless
    /// a sequence is refused.
    pub async fn generate(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        options: &GenerateOptions,
        early: Option<&EarlyEvents>,
    ) -> Result<Rows<Continuations>> {
        let start = || State {
            counts: None,
            paths: vec![Path::default()],
        };
        let mut states: Rows<State> = sequences.iter().map(|_| Ok(start())).collect();
        for event in 0..options.n_events as usize {
            let steps = steps(sequences, &states, options, event);
            if steps.is_empty() {
                break;
            }
            let found = self
                .next_items(admitted, sequences, &states, &steps, options, event)
                .await?;
            apply(&mut states, &steps, found, options, event)?;
            // The beam may replace a path until the end.
            if let Some(early) = early
                && options.mode == GenerateMode::Sample
                && states.iter().all(Result::is_ok)
            {
                send(early, &states, event);
            }
        }
        let finished = states.into_iter().map(|state| match state {
            Ok(State {
                counts: Some(counts),
                mut paths,
            }) => {
                paths.truncate(options.n_continuations as usize);
                let continuations = paths.into_iter().map(|path| (path.item_ids, path.score));
                Ok(Ok(Continuations {
                    counts,
                    continuations: continuations.collect(),
                }))
            }
            Ok(_) => Err(Error::internal("a sequence was not continued")),
            Err(refusal) => Ok(Err(refusal)),
        });
        finished.collect()
    }

    /// Predicts the next items of each step's path.
    async fn next_items(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        states: &Rows<State>,
        steps: &[Step],
        options: &GenerateOptions,
        event: usize,
    ) -> Result<Rows<Found>> {
        // The history was accepted with the first event. Generated events may exceed the context.
        let history = if event == 0 {
            options.history
        } else {
            HistoryOptions {
                on_long: OnLong::Truncate,
                on_unknown: OnUnknown::Skip,
            }
        };
        let longer: Vec<Sequence<'_>> = steps
            .iter()
            .filter_map(|step| {
                let state = states.get(step.sequence)?.as_ref().ok()?;
                let path = state.paths.get(step.path)?;
                Some(extended(sequences.get(step.sequence)?, path))
            })
            .collect();
        let wanted: Vec<Wanted<'_>> = steps
            .iter()
            .map(|step| match options.mode {
                GenerateMode::Beam => Wanted::Best(BEAM_WIDTH),
                GenerateMode::Sample => Wanted::Drawn {
                    temperature: options.temperature,
                    numbers: &step.numbers,
                },
            })
            .collect();
        let exclude_seen = options.exclude_seen;
        let model = match self {
            Self::Codes(codes) => {
                return codes
                    .next_items(admitted, &longer, &history, exclude_seen, &wanted)
                    .await;
            }
            Self::Ids(model) => *model,
        };
        let top_k = match options.mode {
            GenerateMode::Beam => BEAM_WIDTH as u32,
            GenerateMode::Sample => TOP_K.1,
        };
        let predict = PredictOptions {
            history,
            top_k: Some(top_k),
            exclude_seen,
        };
        let rankings = ids::predict(admitted, model, &longer, &predict).await?;
        let rows = rankings.into_iter().zip(wanted).map(|(ranking, wanted)| {
            let ranking = match ranking {
                Ok(ranking) => ranking,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let scores = ranking.scores.into_iter().flatten();
            let best: Vec<_> = ranking.item_ids.into_iter().zip(scores).collect();
            let chosen = match wanted {
                Wanted::Best(_) => best,
                Wanted::Drawn {
                    temperature,
                    numbers,
                } => draw_from(&best, temperature, numbers)
                    .map_err(|failure| failure.into_error(&model.engine))?,
            };
            Ok(Ok((ranking.counts, chosen)))
        });
        rows.collect()
    }
}

/// Sends the items that paths got in a step.
fn send(early: &EarlyEvents, states: &Rows<State>, event: usize) {
    for (sequence, state) in states.iter().flatten().enumerate() {
        for (continuation, path) in state.paths.iter().enumerate() {
            if let Some(item_id) = path.item_ids.get(event) {
                let item_id = item_id.clone();
                // Without a receiver, nobody wants the events early.
                let _ = early.send(EarlyEvent {
                    sequence,
                    continuation,
                    item_id,
                });
            }
        }
    }
}

/// Returns the paths that get another item. Samples start as one path, from which all continuations
/// are drawn.
fn steps(
    sequences: &[Sequence<'_>],
    states: &Rows<State>,
    options: &GenerateOptions,
    event: usize,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for (at, (sequence, state)) in sequences.iter().zip(states).enumerate() {
        let Ok(state) = state else { continue };
        let random = Random::new(options.seed, &sequence.sequence_id);
        let number = |continuation: usize| random.uniform(continuation, event, 0);
        for (path_at, path) in state.paths.iter().enumerate() {
            if path.is_finished {
                continue;
            }
            let numbers = match options.mode {
                GenerateMode::Beam => Vec::new(),
                GenerateMode::Sample if event == 0 => {
                    (0..options.n_continuations as usize).map(number).collect()
                }
                GenerateMode::Sample => vec![number(path_at)],
            };
            steps.push(Step {
                sequence: at,
                path: path_at,
                numbers,
            });
        }
    }
    steps
}

/// Appends the found items to the paths.
fn apply(
    states: &mut Rows<State>,
    steps: &[Step],
    found: Rows<Found>,
    options: &GenerateOptions,
    event: usize,
) -> Result<()> {
    let mut found = steps.iter().zip(found).peekable();
    while let Some((step, row)) = found.next() {
        let Some(state) = states.get_mut(step.sequence) else {
            continue;
        };
        let mut rows = vec![(step.path, row)];
        while let Some((next, row)) = found.next_if(|(next, _)| next.sequence == step.sequence) {
            rows.push((next.path, row));
        }
        let extended = match state {
            Ok(state) => state.extend(rows, options, event),
            Err(_) => continue,
        };
        if let Err(refusal) = extended {
            if event > 0 {
                return Err(Error::internal("an engine refused a continued sequence"));
            }
            *state = Err(refusal);
        }
    }
    Ok(())
}

impl State {
    /// Appends the items that were found for paths.
    fn extend(
        &mut self,
        rows: Vec<(usize, Result<Found, Refusal>)>,
        options: &GenerateOptions,
        event: usize,
    ) -> Result<(), Refusal> {
        let mut longer = Vec::new();
        for (at, row) in rows {
            let (counts, items) = row?;
            self.counts.get_or_insert(counts);
            let Some(path) = self.paths.get_mut(at) else {
                continue;
            };
            match options.mode {
                GenerateMode::Beam => longer.extend(items.iter().map(|item| path.with(item))),
                GenerateMode::Sample if event == 0 => {
                    longer.extend(items.iter().map(|item| path.with(item)));
                }
                GenerateMode::Sample => match items.first() {
                    Some(item) => *path = path.with(item),
                    None => path.is_finished = true,
                },
            }
        }
        match options.mode {
            // Without an allowed item the continuations stay as they are.
            GenerateMode::Beam if longer.is_empty() => {
                for path in &mut self.paths {
                    path.is_finished = true;
                }
            }
            GenerateMode::Beam => {
                // The sort is stable: equal scores stay in ranking order.
                longer.sort_by(|one, other| other.score.total_cmp(&one.score));
                longer.truncate(BEAM_WIDTH);
                self.paths = longer;
            }
            GenerateMode::Sample if event == 0 => {
                let finished = Path {
                    is_finished: true,
                    ..Path::default()
                };
                longer.resize(options.n_continuations as usize, finished);
                self.paths = longer;
            }
            GenerateMode::Sample => {}
        }
        Ok(())
    }
}

impl Path {
    fn with(&self, (item_id, score): &(String, f64)) -> Self {
        let mut longer = self.clone();
        longer.item_ids.push(item_id.clone());
        longer.score += score;
        longer
    }
}

/// Returns the sequence with the generated events. They have no type.
fn extended<'s>(sequence: &'s Sequence<'_>, path: &'s Path) -> Sequence<'s> {
    let borrowed = |event: &'s Event<'_>| Event {
        item_id: Cow::Borrowed(event.item_id.as_ref()),
        r#type: event.r#type.as_deref().map(Cow::Borrowed),
        ts: None,
    };
    let generated = path.item_ids.iter().map(|item_id| Event {
        item_id: Cow::Borrowed(item_id.as_str()),
        r#type: None,
        ts: None,
    });
    Sequence {
        sequence_id: Cow::Borrowed(sequence.sequence_id.as_ref()),
        events: sequence
            .events
            .iter()
            .map(borrowed)
            .chain(generated)
            .collect(),
        options: None,
    }
}
