//! The rpcs of `ServingService`.

use assay_core::model::permissions::{JobReader, ModelRunner, TermsAccepted};
use assay_core::model::sequence::Sequence;
use assay_core::model::serving_options::{
    EmbedFields, GenerateFields, HistoryFields, PredictFields,
};
use assay_core::{Error, Result};
use assay_proto::convert::{InvalidTimestamp, sequences};
use assay_proto::v1;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::grpc::service::Service;
use crate::limits::request_memory::SharedReservation;
use crate::ops::generation_stream;
use crate::ops::job_output;
use crate::ops::serving::{self, ServeFields};

type Proof = TermsAccepted<ModelRunner>;

/// Returns the sequences of a message. `None` if it has none, as if the field were missing: an
/// encoded message does not distinguish them.
fn read(messages: Vec<v1::Sequence>) -> Result<Option<Vec<Sequence<'static>>>> {
    let sequences = sequences(messages).map_err(|InvalidTimestamp(field)| {
        Error::field(field, "range", "must be a timestamp of the years 1 to 9999")
    })?;
    Ok((!sequences.is_empty()).then_some(sequences))
}

/// Returns the fields of a request to continue sequences with this model.
fn generate_fields(
    message: v1::GenerateRequest,
    model_id: &str,
    room: SharedReservation,
) -> Result<(ServeFields<'_>, GenerateFields)> {
    let v1::GenerateRequest {
        model_id: _,
        sequences,
        model_version,
        on_long,
        on_unknown,
        n_events,
        n_continuations,
        mode,
        temperature,
        seed,
        exclude_seen,
        idempotency_key,
    } = message;
    let fields = ServeFields {
        model_id,
        model_version,
        sequences: read(sequences)?,
        history: HistoryFields {
            on_long,
            on_unknown,
        },
        idempotency_key,
        room,
    };
    let options = GenerateFields {
        n_events,
        n_continuations,
        mode,
        temperature,
        seed: seed.map(|seed| seed.to_string()),
        exclude_seen,
    };
    Ok((fields, options))
}

/// Ranks items.
pub async fn predict(
    service: &Service,
    request: Request<v1::PredictRequest>,
) -> Result<Response<v1::PredictResponse>, Status> {
    service
        .respond(request, |app, submitter: Proof, input| async move {
            let v1::PredictRequest {
                model_id,
                sequences,
                model_version,
                on_long,
                on_unknown,
                top_k,
                exclude_seen,
                idempotency_key,
            } = input.message;
            let fields = ServeFields {
                model_id: &model_id,
                model_version,
                sequences: read(sequences)?,
                history: HistoryFields {
                    on_long,
                    on_unknown,
                },
                idempotency_key,
                room: input.room,
            };
            let options = PredictFields {
                top_k,
                exclude_seen,
            };
            Ok(serving::predict(&app, &submitter, fields, options)
                .await?
                .into())
        })
        .await
}

/// Continues sequences.
pub async fn generate(
    service: &Service,
    request: Request<v1::GenerateRequest>,
) -> Result<Response<v1::GenerateResponse>, Status> {
    service
        .respond(request, |app, submitter: Proof, input| async move {
            let mut message = input.message;
            let model_id = std::mem::take(&mut message.model_id);
            let (fields, options) = generate_fields(message, &model_id, input.room)?;
            Ok(serving::generate(&app, &submitter, fields, options)
                .await?
                .into())
        })
        .await
}

/// Continues sequences, and streams the events.
pub async fn stream_generate(
    service: &Service,
    request: Request<v1::GenerateRequest>,
) -> Result<Response<BoxStream<'static, Result<v1::StreamGenerateResponse, Status>>>, Status> {
    service
        .stream(request, |app, submitter: Proof, input| async move {
            let mut message = input.message;
            let model_id = std::mem::take(&mut message.model_id);
            let (fields, options) = generate_fields(message, &model_id, input.room)?;
            let stream =
                generation_stream::stream_generate(&app, &submitter, fields, options).await?;
            Ok(stream.parts.map_ok(v1::StreamGenerateResponse::from))
        })
        .await
}

/// Returns a vector for each sequence.
pub async fn embed(
    service: &Service,
    request: Request<v1::EmbedRequest>,
) -> Result<Response<v1::EmbedResponse>, Status> {
    service
        .respond(request, |app, submitter: Proof, input| async move {
            let v1::EmbedRequest {
                model_id,
                sequences,
                model_version,
                on_long,
                on_unknown,
                pooling,
                normalize,
                encoding_format,
                idempotency_key,
            } = input.message;
            let fields = ServeFields {
                model_id: &model_id,
                model_version,
                sequences: read(sequences)?,
                history: HistoryFields {
                    on_long,
                    on_unknown,
                },
                idempotency_key,
                room: input.room,
            };
            let options = EmbedFields {
                pooling,
                normalize,
                encoding_format,
            };
            Ok(serving::embed(&app, &submitter, fields, options)
                .await?
                .into())
        })
        .await
}

/// Streams the output of a job.
pub async fn stream_job_output(
    service: &Service,
    request: Request<v1::StreamJobOutputRequest>,
) -> Result<Response<BoxStream<'static, Result<v1::StreamJobOutputResponse, Status>>>, Status> {
    service
        .stream(request, |app, caller: JobReader, input| async move {
            let v1::StreamJobOutputRequest { job_id, offset } = input.message;
            let output = job_output::find(&app, &caller, &job_id).await?;
            let bytes = output.bytes;
            let offset = u64::try_from(offset.unwrap_or(0))
                .ok()
                .filter(|offset| *offset < bytes);
            let offset = offset.ok_or_else(|| {
                let message = format!("must be an integer from 0 to {}", bytes.saturating_sub(1));
                Error::field("offset", "range", message)
            })?;
            let pieces = output.stream(&app, offset..bytes);
            Ok(pieces.map_ok(|data| v1::StreamJobOutputResponse { data: data.into() }))
        })
        .await
}
