//! The serving operations of `/v1/models/{model_id}`: the sequences borrow from the body, headers have figures, and
//! continuations can be a stream.

use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::sequence::{Sequence, read_sequences};
use assay_core::model::serving::{BODY_MAX, GeneratedPart, Served};
use assay_core::model::serving_options::{
    EmbedFields, GenerateFields, HistoryFields, PredictFields,
};
use assay_core::{Error, Result};
use axum::Json;
use axum::extract::Request;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::evals::mark_replayed;
use super::sse;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::memory;
use crate::limits::request_memory::SharedReservation;
use crate::ops::generation_stream::{self, GenerationStream};
use crate::ops::serving::{self, ServeFields};
use crate::rest::extract::{IdempotencyKey, prefers, read_json_body};
use crate::rest::input::Fields;

type Proof = TermsAccepted<ModelRunner>;

/// Ranks items.
pub async fn predict(
    app: App,
    submitter: Proof,
    [model_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let key = IdempotencyKey::from_headers(request.headers())?;
    let (body, room) = read_body(&app, request).await?;
    let mut fields = Fields::read(&body)?;
    let options = PredictFields {
        top_k: fields.optional_integer("top_k"),
        exclude_seen: fields.optional_boolean("exclude_seen"),
    };
    let common = common(fields, &model_id, key, room)?;
    let served = serving::predict(&app, &submitter, common, options).await?;
    let version = &served.result.model_version;
    Ok((headers(version, &served)?, Json(served.result)).into_response())
}

/// Continues sequences, in one response or in a stream.
pub async fn generate(
    app: App,
    submitter: Proof,
    [model_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let key = IdempotencyKey::from_headers(request.headers())?;
    let is_streamed = prefers(request.headers(), "text/event-stream");
    let (body, room) = read_body(&app, request).await?;
    let mut fields = Fields::read(&body)?;
    let options = GenerateFields {
        n_events: fields.optional_integer("n_events"),
        n_continuations: fields.optional_integer("n_continuations"),
        mode: fields.optional_string("mode"),
        temperature: fields.optional_number("temperature"),
        seed: fields.optional_string("seed"),
        exclude_seen: fields.optional_boolean("exclude_seen"),
    };
    let common = common(fields, &model_id, key, room)?;
    if is_streamed {
        let stream = generation_stream::stream_generate(&app, &submitter, common, options).await?;
        return Ok(events(stream, context)?);
    }
    let served = serving::generate(&app, &submitter, common, options).await?;
    let version = &served.result.model_version;
    Ok((headers(version, &served)?, Json(served.result)).into_response())
}

/// Returns a vector for each sequence.
pub async fn embed(
    app: App,
    submitter: Proof,
    [model_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let key = IdempotencyKey::from_headers(request.headers())?;
    let (body, room) = read_body(&app, request).await?;
    let mut fields = Fields::read(&body)?;
    let options = EmbedFields {
        pooling: fields.optional_string("pooling"),
        normalize: fields.optional_boolean("normalize"),
        encoding_format: fields.optional_string("encoding_format"),
    };
    let common = common(fields, &model_id, key, room)?;
    let served = serving::embed(&app, &submitter, common, options).await?;
    let version = &served.result.model_version;
    Ok((headers(version, &served)?, Json(served.result)).into_response())
}

/// Memory that the sequences take for each byte in their body, at most: an option with four bytes is a
/// string with 24, in a list that has room for as many again.
const SEQUENCES_BYTE_COST: u64 = 12;

/// Reads a body, and charges its sequences before they are read from it.
async fn read_body(app: &App, request: Request) -> Result<(Bytes, SharedReservation)> {
    let room = memory::reservation(request.extensions())?;
    let body = read_json_body(app, request, BODY_MAX).await?;
    room.grow(body.len() as u64 * SEQUENCES_BYTE_COST).await?;
    Ok((body, room))
}

/// Reads the fields that all requests have, and rejects unknown ones.
fn common<'a>(
    mut fields: Fields<'a>,
    model_id: &'a str,
    key: Option<IdempotencyKey>,
    room: SharedReservation,
) -> Result<ServeFields<'a>> {
    let sequences = fields.raw("sequences").map(read_sequences);
    let sequences: Option<Vec<Sequence<'a>>> = match sequences {
        Some(Ok(sequences)) => Some(sequences),
        Some(Err(errors)) => fields.fail_all(errors),
        None => None,
    };
    let common = ServeFields {
        model_id,
        model_version: fields.optional_string("model_version"),
        sequences,
        history: HistoryFields {
            on_long: fields.optional_string("on_long"),
            on_unknown: fields.optional_string("on_unknown"),
        },
        idempotency_key: key.map(|IdempotencyKey(key)| key),
        room,
    };
    fields.finish()?;
    Ok(common)
}

const MODEL_VERSION: HeaderName = HeaderName::from_static("x-model-version");

fn version_header(version: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(version).map_err(Error::internal)
}

/// Returns the response with a stream of server-sent events.
fn events(stream: GenerationStream, context: RequestContext) -> Result<Response> {
    let GenerationStream {
        model_version,
        replayed,
        parts,
    } = stream;
    let events = parts.map(move |part| {
        let event = match part {
            Ok(GeneratedPart::Event(event)) => Event::default().event("event").json_data(event),
            Ok(GeneratedPart::Done(served)) => {
                Event::default().event("done").json_data(served.result)
            }
            Err(error) => return Ok(sse::error(&error, &context)),
        };
        Ok(event.unwrap_or_else(|error| sse::error(&Error::internal(error), &context)))
    });
    let mut response = sse::response(events);
    let headers = response.headers_mut();
    headers.insert(MODEL_VERSION, version_header(&model_version)?);
    mark_replayed(headers, replayed);
    Ok(response)
}

/// Returns the headers of a response: the version of the model, the time of the engine, and whether
/// an earlier request was charged.
fn headers<T>(version: &str, served: &Served<T>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(MODEL_VERSION, version_header(version)?);
    let milliseconds = format!("{:.1}", served.engine_time.as_secs_f64() * 1000.0);
    headers.insert(
        HeaderName::from_static("x-engine-time-ms"),
        HeaderValue::from_str(&milliseconds).map_err(Error::internal)?,
    );
    mark_replayed(&mut headers, served.replayed);
    Ok(headers)
}
