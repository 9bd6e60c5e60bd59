//! The profile `ids`: sequences are sent as item ids, and the engine knows which items they are.

use std::ops::Range;

use assay_core::model::error::Result;
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{Profile, ServedModel};
use assay_core::model::serving::{
    Continuations, EmbedOptions, GenerateOptions, HistoryOptions, PredictOptions, Ranking, TOP_K,
    Vector,
};
use assay_inference::ids;
use assay_inference::parameters::Parameters;
use assay_inference::tensors::TensorsBuilder;
use assay_inference::v2::{ModelInferRequest, ModelInferResponse};

use crate::batches::{CALL_MAX_EXTERNAL, RowSize, split};
use crate::calls::Admitted;
use crate::checks::Rows;
use crate::failure::Failure;
use crate::id_results::{read_continuations, read_rankings, read_vectors};

/// A call's approximate maximum size to the embedded engine, in bytes. It accepts 16 MiB.
const CALL_MAX_EMBEDDED: usize = 12 << 20;

/// A `BYTES` element's size without its text.
const ELEMENT: usize = 4;

/// Divides sequences into calls.
fn calls(model: &ServedModel, sequences: &[Sequence<'_>]) -> Vec<Range<usize>> {
    let bytes_max = if model.profile == Profile::Embedded {
        CALL_MAX_EMBEDDED
    } else {
        CALL_MAX_EXTERNAL
    };
    let sizes = sequences.iter().map(|sequence| {
        let options = sequence.options.as_deref().unwrap_or_default();
        let types = sequence
            .events
            .iter()
            .filter_map(|event| event.r#type.as_ref());
        let items = sequence.events.iter().map(|event| &event.item_id);
        let texts = items.chain(types).chain(options);
        RowSize {
            own: texts.map(|text| text.len()).sum(),
            // Types are their own tensor, padded like the items.
            padded: (2 * sequence.events.len() + options.len()) * ELEMENT,
        }
    });
    split(sizes, ids::ROWS_MAX, bytes_max)
}

/// Ranks items for each sequence.
pub async fn predict(
    admitted: &mut Admitted,
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &PredictOptions,
) -> Result<Rows<Ranking>> {
    let request = |rows: &[Sequence<'_>]| predict_request(model, rows, options);
    let read = |rows: &[Sequence<'_>], response: &ModelInferResponse| {
        read_rankings(model, rows, options, response)
    };
    infer(admitted, model, sequences, request, read).await
}

/// Continues each sequence.
pub async fn generate(
    admitted: &mut Admitted,
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &GenerateOptions,
) -> Result<Rows<Continuations>> {
    let request = |rows: &[Sequence<'_>]| generate_request(model, rows, options);
    let read = |rows: &[Sequence<'_>], response: &ModelInferResponse| {
        read_continuations(model, rows, options, response)
    };
    infer(admitted, model, sequences, request, read).await
}

/// Computes each sequence's vector.
pub async fn embed(
    admitted: &mut Admitted,
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &EmbedOptions,
) -> Result<Rows<Vector>> {
    let request = |rows: &[Sequence<'_>]| embed_request(model, rows, options);
    let read = |rows: &[Sequence<'_>], response: &ModelInferResponse| {
        read_vectors(model, rows, options, response)
    };
    infer(admitted, model, sequences, request, read).await
}

/// Sends the sequences in calls with a bounded size.
async fn infer<T>(
    admitted: &mut Admitted,
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    request: impl Fn(&[Sequence<'_>]) -> ModelInferRequest,
    read: impl Fn(&[Sequence<'_>], &ModelInferResponse) -> Result<Rows<T>, Failure>,
) -> Result<Rows<T>> {
    let mut results = Vec::with_capacity(sequences.len());
    for range in calls(model, sequences) {
        let rows = sequences.get(range).unwrap_or_default();
        let found = admitted.infer(request(rows), |response| read(rows, response));
        results.extend(found.await?);
    }
    Ok(results)
}

/// Builds the `predict` call.
fn predict_request(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &PredictOptions,
) -> ModelInferRequest {
    let mut parameters = parameters("predict", &options.history);
    parameters.insert(ids::EXCLUDE_SEEN.into(), options.exclude_seen.into());
    let has_options = sequences.iter().any(|sequence| sequence.options.is_some());
    let top_k = options.top_k.or((!has_options).then_some(TOP_K.0));
    if let Some(top_k) = top_k {
        parameters.insert(ids::TOP_K.into(), i64::from(top_k).into());
    }
    let mut tensors = history(sequences);
    if has_options {
        let of = |sequence: &Sequence<'_>| sequence.options.as_ref().map(Vec::len);
        let width = sequences.iter().filter_map(of).max().unwrap_or(0).max(1);
        let rows = sequences.iter().map(|sequence| {
            let options = sequence.options.iter().flatten();
            options.map(AsRef::as_ref)
        });
        tensors.push_rows::<&str, _>(ids::OPTIONS, width, rows);
        let counts = sequences
            .iter()
            .map(|sequence| of(sequence).map_or(ids::NO_OPTIONS, |n| n as i64));
        tensors.push(ids::OPTION_COUNTS, &[sequences.len(), 1], counts);
    }
    request(model, parameters, tensors)
}

/// Builds the `generate` call.
fn generate_request(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &GenerateOptions,
) -> ModelInferRequest {
    let mut parameters = parameters("generate", &options.history);
    parameters.extend([
        (ids::N_EVENTS.into(), i64::from(options.n_events).into()),
        (
            ids::N_CONTINUATIONS.into(),
            i64::from(options.n_continuations).into(),
        ),
        (ids::MODE.into(), options.mode.as_str().into()),
        (ids::SEED.into(), options.seed.to_string().into()),
        (ids::EXCLUDE_SEEN.into(), options.exclude_seen.into()),
    ]);
    let mut tensors = history(sequences);
    let column = [sequences.len(), 1];
    let sequence_ids = sequences
        .iter()
        .map(|sequence| sequence.sequence_id.as_ref());
    tensors.push::<&str>(ids::SEQUENCE_IDS, &column, sequence_ids);
    let temperatures = sequences.iter().map(|_| options.temperature);
    tensors.push(ids::TEMPERATURE, &column, temperatures);
    request(model, parameters, tensors)
}

/// Builds the `embed` call.
fn embed_request(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &EmbedOptions,
) -> ModelInferRequest {
    let mut parameters = parameters("embed", &options.history);
    parameters.insert(ids::POOLING.into(), options.pooling.as_str().into());
    parameters.insert(ids::NORMALIZE.into(), options.normalize.into());
    request(model, parameters, history(sequences))
}

fn parameters(operation: &str, options: &HistoryOptions) -> Parameters {
    Parameters::from([
        (ids::OPERATION.into(), operation.into()),
        (ids::ON_LONG.into(), options.on_long.as_str().into()),
        (ids::ON_UNKNOWN.into(), options.on_unknown.as_str().into()),
    ])
}

fn history(sequences: &[Sequence<'_>]) -> TensorsBuilder {
    let mut tensors = TensorsBuilder::default();
    let lengths = sequences.iter().map(|sequence| sequence.events.len());
    let width = lengths.clone().max().unwrap_or(0).max(1);
    let items = sequences.iter().map(|sequence| {
        let events = sequence.events.iter();
        events.map(|event| event.item_id.as_ref())
    });
    tensors.push_rows::<&str, _>(ids::ITEM_IDS, width, items);
    let lengths = lengths.map(|length| length as i64);
    tensors.push(ids::LENGTHS, &[sequences.len(), 1], lengths);
    let mut events = sequences.iter().flat_map(|sequence| &sequence.events);
    if events.any(|event| event.r#type.is_some()) {
        let types = sequences.iter().map(|sequence| {
            let events = sequence.events.iter();
            events.map(|event| event.r#type.as_deref().unwrap_or_default())
        });
        tensors.push_rows::<&str, _>(ids::TYPES, width, types);
    }
    tensors
}

fn request(
    model: &ServedModel,
    parameters: Parameters,
    tensors: TensorsBuilder,
) -> ModelInferRequest {
    let name = match &model.profile {
        Profile::Embedded => &model.package,
        Profile::Ids { name, .. } | Profile::Codes { name, .. } => name,
    };
    let mut request = ModelInferRequest {
        model_name: name.clone(),
        model_version: model.version.clone(),
        parameters,
        ..ModelInferRequest::default()
    };
    tensors.into_request(&mut request);
    request
}
