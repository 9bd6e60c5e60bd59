//! Calls of the profile `ids`: requests, results, and the results that the engine's crate computes.

use assay_core::model::package::PackageName;
use assay_engine::{
    Counts, EmbedOptions, Event, GenerateMode, GenerateOptions, Model, OnLong, OnUnknown, Pooling,
    PredictOptions, Refusal, Scratch, Sequence,
};
use assay_inference::ids;
use assay_inference::tensors::{Tensors, TensorsBuilder};
use assay_inference::v2::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use bytes::Bytes;

/// A history.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub sequence_id: String,
    pub events: Vec<String>,
    /// The event types, empty for an event without one. None if the sequence has no types.
    pub types: Vec<String>,
    pub options: Option<Vec<String>>,
}

/// An operation with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    Predict { is_strict: bool, exclude_seen: bool },
    Beam { n_events: usize },
    Sample { seed: u64 },
    Embed { pooling: Pooling, normalize: bool },
}

/// A result, with the bits of its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub refusal: i64,
    pub n_used: usize,
    pub n_unknown: usize,
    /// Item ids with their scores; an unknown option has none.
    pub items: Vec<(String, Option<u32>)>,
    pub continuations: Vec<(Vec<String>, u32)>,
    pub embedding: Vec<u32>,
}

const TOP_K: usize = 10;
const N_CONTINUATIONS: usize = 3;
const TEMPERATURE: f64 = 1.5;

/// Returns a call that predicts, for a history of these items.
pub fn predict(package: &PackageName, events: &[&str]) -> ModelInferRequest {
    let history = History {
        events: events.iter().map(|item_id| (*item_id).to_owned()).collect(),
        ..History::default()
    };
    let operation = Operation::Predict {
        is_strict: false,
        exclude_seen: false,
    };
    request(package, operation, &[&history])
}

/// Returns a call, in raw form.
pub fn request(
    package: &PackageName,
    operation: Operation,
    histories: &[&History],
) -> ModelInferRequest {
    let rows = histories.len();
    let width = |length: fn(&History) -> usize| {
        let lengths = histories.iter().map(|history| length(history));
        lengths.max().unwrap_or_default().max(1)
    };
    let mut tensors = TensorsBuilder::default();
    let n_events = width(|history| history.events.len());
    tensors.push_rows(
        ids::ITEM_IDS,
        n_events,
        histories
            .iter()
            .map(|history| history.events.iter().map(String::as_str)),
    );
    let lengths = histories.iter().map(|history| history.events.len() as i64);
    tensors.push(ids::LENGTHS, &[rows, 1], lengths);
    if histories.iter().any(|history| !history.types.is_empty()) {
        tensors.push_rows(
            ids::TYPES,
            n_events,
            histories
                .iter()
                .map(|history| history.types.iter().map(String::as_str)),
        );
    }
    let mut request = ModelInferRequest {
        model_name: package.to_string(),
        model_version: package.version().to_owned(),
        id: String::from("call-1"),
        ..ModelInferRequest::default()
    };
    let mut set = |name: &str, value: assay_inference::v2::InferParameter| {
        request.parameters.insert(name.to_owned(), value);
    };
    match operation {
        Operation::Predict {
            is_strict,
            exclude_seen,
        } => {
            set(ids::OPERATION, "predict".into());
            set(ids::EXCLUDE_SEEN, exclude_seen.into());
            set(ids::TOP_K, (TOP_K as i64).into());
            if is_strict {
                set(ids::ON_LONG, "refuse".into());
                set(ids::ON_UNKNOWN, "refuse".into());
            }
            push_options(&mut tensors, histories);
        }
        Operation::Beam { n_events } => {
            set(ids::OPERATION, "generate".into());
            set(ids::N_EVENTS, (n_events as i64).into());
            set(ids::N_CONTINUATIONS, (N_CONTINUATIONS as i64).into());
            set(ids::MODE, "beam".into());
        }
        Operation::Sample { seed } => {
            set(ids::OPERATION, "generate".into());
            set(ids::N_EVENTS, 4.into());
            set(ids::N_CONTINUATIONS, (N_CONTINUATIONS as i64).into());
            set(ids::MODE, "sample".into());
            set(ids::SEED, seed.to_string().into());
            set(ids::EXCLUDE_SEEN, true.into());
            let sequence_ids = histories.iter().map(|history| history.sequence_id.as_str());
            tensors.push(ids::SEQUENCE_IDS, &[rows, 1], sequence_ids);
            tensors.push(ids::TEMPERATURE, &[rows, 1], vec![TEMPERATURE; rows]);
        }
        Operation::Embed { pooling, normalize } => {
            set(ids::OPERATION, "embed".into());
            let is_mean = pooling == Pooling::Mean;
            set(ids::POOLING, if is_mean { "mean" } else { "last" }.into());
            set(ids::NORMALIZE, normalize.into());
        }
    }
    tensors.into_request(&mut request);
    request
}

fn push_options(tensors: &mut TensorsBuilder, histories: &[&History]) {
    let options = |history: &History| history.options.as_ref().map(Vec::len);
    if histories.iter().all(|history| history.options.is_none()) {
        return;
    }
    let counts = histories.iter().map(|history| options(history));
    let width = counts.clone().flatten().max().unwrap_or_default().max(1);
    tensors.push_rows(
        ids::OPTIONS,
        width,
        histories
            .iter()
            .map(|history| history.options.iter().flatten().map(String::as_str)),
    );
    let counts = counts.map(|count| count.map_or(ids::NO_OPTIONS, |count| count as i64));
    tensors.push(ids::OPTION_COUNTS, &[histories.len(), 1], counts);
}

/// Returns the same call in typed form.
pub fn typed(mut request: ModelInferRequest) -> ModelInferRequest {
    let raw = request.clone();
    let tensors = Tensors::from_request(&raw).unwrap();
    for input in &mut request.inputs {
        let name = input.name.as_str();
        let mut contents = InferTensorContents::default();
        match input.datatype.as_str() {
            "BYTES" => {
                let read = tensors.read_required::<&str, 2>(name).unwrap().elements;
                let bytes = read
                    .into_iter()
                    .map(|text| Bytes::copy_from_slice(text.as_bytes()));
                contents.bytes_contents = bytes.collect();
            }
            "INT64" => {
                contents.int64_contents = tensors.read_required::<i64, 2>(name).unwrap().elements;
            }
            "FP64" => {
                contents.fp64_contents = tensors.read_required::<f64, 2>(name).unwrap().elements;
            }
            other => panic!("{other}"),
        }
        input.contents = Some(contents);
    }
    request.raw_input_contents.clear();
    request
}

/// Returns the results in a response.
pub fn rows(response: &ModelInferResponse, operation: Operation, rows: usize) -> Vec<Row> {
    let tensors = Tensors::from_response(response).unwrap().with_rows(rows);
    let column = |name: &str| tensors.read_required::<i64, 2>(name).unwrap().elements;
    let count = |value: i64| usize::try_from(value).unwrap();
    let (used, unknown, refusals) = (
        column(ids::N_USED),
        column(ids::N_UNKNOWN),
        column(ids::REFUSALS),
    );
    let mut results: Vec<Row> = (0..rows)
        .map(|row| Row {
            refusal: refusals[row],
            n_used: count(used[row]),
            n_unknown: count(unknown[row]),
            items: Vec::new(),
            continuations: Vec::new(),
            embedding: Vec::new(),
        })
        .collect();
    for (row, result) in results.iter_mut().enumerate() {
        match operation {
            Operation::Predict { .. } => {
                let item_ids = tensors.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
                let scores = tensors.read_required::<f32, 2>(ids::SCORES).unwrap();
                let n_scored = count(column(ids::N_SCORED)[row]);
                result.items = (0..count(column(ids::COUNTS)[row]))
                    .map(|at| {
                        let score = (at < n_scored).then(|| scores.row(row)[at].to_bits());
                        (item_ids.row(row)[at].to_owned(), score)
                    })
                    .collect();
            }
            Operation::Beam { .. } | Operation::Sample { .. } => {
                let item_ids = tensors.read_required::<&str, 3>(ids::ITEM_IDS).unwrap();
                let scores = tensors.read_required::<f32, 2>(ids::SCORES).unwrap();
                let lengths = tensors
                    .read_required::<i64, 2>(ids::CONTINUATION_LENGTHS)
                    .unwrap();
                let n_events = item_ids.shape[2];
                result.continuations = (0..count(column(ids::COUNTS)[row]))
                    .map(|at| {
                        let items = &item_ids.row(row)[at * n_events..];
                        let items = &items[..count(lengths.row(row)[at])];
                        let items = items.iter().map(|item_id| (*item_id).to_owned());
                        (items.collect(), scores.row(row)[at].to_bits())
                    })
                    .collect();
            }
            Operation::Embed { .. } => {
                let embedding = tensors.read_required::<f32, 2>(ids::EMBEDDING).unwrap();
                result.embedding = embedding
                    .row(row)
                    .iter()
                    .map(|value| value.to_bits())
                    .collect();
            }
        }
    }
    results
}

/// Computes the result of a history with the engine's crate, in this process.
pub fn expected(
    model: &Model,
    scratch: &mut Scratch,
    operation: Operation,
    history: &History,
) -> Row {
    let mut types = history.types.iter();
    let events: Vec<Event<'_>> = history
        .events
        .iter()
        .map(|item_id| Event {
            item_id,
            event_type: types
                .next()
                .map(String::as_str)
                .filter(|text| !text.is_empty()),
        })
        .collect();
    let options: Option<Vec<&str>> = history
        .options
        .as_ref()
        .map(|options| options.iter().map(String::as_str).collect());
    let is_strict = matches!(
        operation,
        Operation::Predict {
            is_strict: true,
            ..
        }
    );
    let sequence = Sequence {
        events: &events,
        options: options.as_deref(),
        on_long: if is_strict {
            OnLong::Refuse
        } else {
            OnLong::Truncate
        },
        on_unknown: if is_strict {
            OnUnknown::Refuse
        } else {
            OnUnknown::Skip
        },
    };
    let mut row = Row {
        refusal: 0,
        n_used: 0,
        n_unknown: 0,
        items: Vec::new(),
        continuations: Vec::new(),
        embedding: Vec::new(),
    };
    let counts = compute(
        model,
        scratch,
        operation,
        &sequence,
        &history.sequence_id,
        &mut row,
    );
    match counts {
        Ok(counts) => (row.n_used, row.n_unknown) = (counts.n_used, counts.n_unknown),
        Err(Refusal::TooLong { .. }) => row.refusal = ids::TOO_LONG,
        Err(Refusal::UnknownItem { event }) => row.refusal = event as i64 + 1,
        Err(other) => panic!("{other}"),
    }
    row
}

fn compute(
    model: &Model,
    scratch: &mut Scratch,
    operation: Operation,
    sequence: &Sequence<'_>,
    sequence_id: &str,
    row: &mut Row,
) -> Result<Counts, Refusal> {
    let generate = |n_events, mode, exclude_seen| GenerateOptions {
        n_events,
        n_continuations: N_CONTINUATIONS,
        mode,
        exclude_seen,
    };
    let go_on = || false;
    let options = match operation {
        Operation::Predict { exclude_seen, .. } => {
            let options = PredictOptions {
                top_k: Some(TOP_K),
                exclude_seen,
            };
            let ranking = model.predict(scratch, sequence, &options, &go_on)?;
            let items = ranking.items.iter();
            row.items = items
                .map(|item| (item.item_id.to_owned(), item.score.map(f32::to_bits)))
                .collect();
            return Ok(ranking.counts);
        }
        Operation::Embed { pooling, normalize } => {
            let options = EmbedOptions { pooling, normalize };
            let embedding = model.embed(scratch, sequence, &options, &go_on)?;
            row.embedding = embedding
                .vector
                .iter()
                .map(|value| value.to_bits())
                .collect();
            return Ok(embedding.counts);
        }
        Operation::Beam { n_events } => generate(n_events, GenerateMode::Beam, false),
        Operation::Sample { seed } => {
            let temperature = TEMPERATURE as f32;
            generate(4, GenerateMode::Sample { temperature, seed }, true)
        }
    };
    let generation = model.generate(scratch, sequence, sequence_id, &options, &go_on)?;
    let continuations = generation.continuations.into_iter();
    row.continuations = continuations
        .map(|continuation| {
            let items = continuation.item_ids.into_iter().map(str::to_owned);
            (items.collect(), continuation.score.to_bits())
        })
        .collect();
    Ok(generation.counts)
}
