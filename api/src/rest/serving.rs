//! Handlers of the serving operations of `/v1/models/{model_id}`.

use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::sequence::{Sequence, read_sequences};
use assay_core::model::serving::{
    BODY_MAX, EmbedCreate, Embeddings, GenerateCreate, GeneratedPart, Generations, PredictCreate,
    Predictions, Served,
};
use assay_core::model::serving_options::{
    EmbedFields, GenerateFields, HistoryFields, PredictFields,
};
use assay_core::{Error, Result};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::evals::mark_replayed;
use super::extract::{
    Id, IdempotencyKey, IdempotencyKeySchema, Permitted, prefers, read_json_body,
};
use super::input::Fields;
use super::sse;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::memory;
use crate::limits::request_memory::SharedReservation;
use crate::ops::generation_stream::{self, GenerationStream};
use crate::ops::serving::{self, ServeFields};

/// Rank items by their probability of being next
///
/// Returns, for each sequence, the items that most probably come next: of the whole catalog, or of
/// the sequence's `options`. An element of `data` is a prediction for a suite, if `sequence_id` is
/// renamed to `item_id`. The body has at most 64 sequences and 1 MiB; jobs (`POST /v1/predictions`)
/// take more.
///
/// A sequence gets the same result alone, among others, and by any protocol. Each is charged as one
/// unit of `predict_items_per_month`. A request that gets no result is not charged.
///
/// Requires an API key, or the session token of a member. The organization must have accepted the
/// terms.
#[utoipa::path(
    post,
    path = "/v1/models/{model_id}/predict",
    operation_id = "predict",
    tag = "serving",
    security(("api_key" = ["models:run"]), ("session" = ["member"])),
    params(
        ("model_id" = String, Path, description = "The id of the model.", example = "playlist-1"),
        (
            "Idempotency-Key" = inline(Option<IdempotencyKeySchema>),
            Header,
            description =
                "Identifies the request for 24 hours. A repeated request is computed again; \
                 two repetitions are free. A request with another content fails with 422.",
        ),
    ),
    request_body = PredictCreate,
    responses(
        (
            status = 200,
            description = "The ranking of each sequence.",
            body = Predictions,
            headers(
                (
                    "X-Model-Version" = String,
                    description = "The version of the model that computed the result."
                ),
                (
                    "X-Engine-Time-Ms" = f64,
                    description = "The time that the engine took, in milliseconds."
                ),
            ),
        ),
        (
            status = 403,
            description = "It is also returned if the organization has not accepted the terms.",
        ),
        (status = 404, description = "The organization sees no such model."),
        (
            status = 409,
            description =
                "The model does not offer the operation, is not served, or needs a tokenizer \
                 first. `details.reason` says which.",
        ),
    ),
)]
pub(super) async fn predict(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<ModelRunner>>,
    Id(model_id): Id,
    key: Option<IdempotencyKey>,
    request: Request,
) -> Result<(HeaderMap, Json<Predictions>), Failure> {
    let (body, room) = read_body(&app, request).await?;
    let mut fields = Fields::read(&body)?;
    let options = PredictFields {
        top_k: fields.optional_integer("top_k"),
        exclude_seen: fields.optional_boolean("exclude_seen"),
    };
    let common = common(fields, &model_id, key, room)?;
    let served = serving::predict(&app, &submitter, common, options).await?;
    let version = &served.result.model_version;
    Ok((headers(version, &served)?, Json(served.result)))
}

/// Continue sequences
///
/// Returns, for each sequence, the events that most probably follow, or events drawn at random.
/// The mode `beam` often repeats one item: `exclude_seen` prevents that, and the mode `sample` makes
/// it rarer. The requested events are charged as units of `generated_events_per_month`. A request
/// that gets no result is not charged.
///
/// With `Accept: text/event-stream`, the response is a stream of server-sent events: an `event` for
/// each generated event as soon as it is known, then `done` with the body of the other response, or
/// `error` with an error. The data of an `event` has `sequence_id`, `continuation` (its index) and
/// `event`. A stream has no header `X-Engine-Time-Ms`. The request must have `mode: sample` or one
/// continuation, and not name `application/json` in `Accept` as well.
///
/// Requires an API key, or the session token of a member. The organization must have accepted the
/// terms.
#[utoipa::path(
    post,
    path = "/v1/models/{model_id}/generate",
    operation_id = "generate",
    tag = "serving",
    security(("api_key" = ["models:run"]), ("session" = ["member"])),
    params(
        ("model_id" = String, Path, description = "The id of the model.", example = "playlist-1"),
        (
            "Idempotency-Key" = inline(Option<IdempotencyKeySchema>),
            Header,
            description =
                "Identifies the request for 24 hours. A repeated request is computed again; \
                 two repetitions are free. A request with another content fails with 422.",
        ),
    ),
    request_body = GenerateCreate,
    responses(
        (
            status = 200,
            description = "The continuations of each sequence.",
            content((Generations = "application/json"), (String = "text/event-stream")),
            headers(
                (
                    "X-Model-Version" = String,
                    description = "The version of the model that computed the result."
                ),
                (
                    "X-Engine-Time-Ms" = f64,
                    description = "The time that the engine took, in milliseconds."
                ),
            ),
        ),
        (
            status = 403,
            description = "It is also returned if the organization has not accepted the terms.",
        ),
        (status = 404, description = "The organization sees no such model."),
        (
            status = 409,
            description =
                "The model does not offer the operation, is not served, or needs a tokenizer \
                 first. `details.reason` says which.",
        ),
    ),
)]
pub(super) async fn generate(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<ModelRunner>>,
    Id(model_id): Id,
    key: Option<IdempotencyKey>,
    context: RequestContext,
    request: Request,
) -> Result<Response, Failure> {
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

/// Get a vector for each sequence
///
/// Each sequence is charged as one unit of `embeddings_per_month`. A request that gets no result is
/// not charged. The vector of a history is personal data, as the history is.
///
/// Requires an API key, or the session token of a member. The organization must have accepted the
/// terms.
#[utoipa::path(
    post,
    path = "/v1/models/{model_id}/embed",
    operation_id = "embed",
    tag = "serving",
    security(("api_key" = ["models:run"]), ("session" = ["member"])),
    params(
        ("model_id" = String, Path, description = "The id of the model.", example = "playlist-1"),
        (
            "Idempotency-Key" = inline(Option<IdempotencyKeySchema>),
            Header,
            description =
                "Identifies the request for 24 hours. A repeated request is computed again; \
                 two repetitions are free. A request with another content fails with 422.",
        ),
    ),
    request_body = EmbedCreate,
    responses(
        (
            status = 200,
            description = "The vector of each sequence.",
            body = Embeddings,
            headers(
                (
                    "X-Model-Version" = String,
                    description = "The version of the model that computed the result."
                ),
                (
                    "X-Engine-Time-Ms" = f64,
                    description = "The time that the engine took, in milliseconds."
                ),
            ),
        ),
        (
            status = 403,
            description = "It is also returned if the organization has not accepted the terms.",
        ),
        (status = 404, description = "The organization sees no such model."),
        (
            status = 409,
            description =
                "The model does not offer the operation or is not served. `details.reason` says \
                 which.",
        ),
    ),
)]
pub(super) async fn embed(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<ModelRunner>>,
    Id(model_id): Id,
    key: Option<IdempotencyKey>,
    request: Request,
) -> Result<(HeaderMap, Json<Embeddings>), Failure> {
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
    Ok((headers(version, &served)?, Json(served.result)))
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
