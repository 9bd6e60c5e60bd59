//! The rpc of `EvalService`. tonic does not decode its message: [`CreateEvalReader`] converts the
//! predictions to JSON in steps, and each step is charged to the memory budget.

use assay_core::model::permissions::{Submitter, TermsAccepted};
use assay_core::{Code, Error, Result};
use assay_proto::convert::{CreateEvalFields, CreateEvalReader, Unreadable};
use assay_proto::v1;
use axum::Router;
use axum::extract::State;
use axum::routing::any;
use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstEncoder;

use super::service::Service;
use crate::app::App;
use crate::layers::memory;
use crate::limits::request_memory::Reservation;
use crate::ops::evals::{self, Accepted, BODY_MAX, Origin, Submission};

/// Maximum size of the JSON of a message, in bytes. Valid predictions grow by less than this
/// factor.
const JSON_MAX: usize = 4 * BODY_MAX;

/// Number of bytes of JSON after which the memory budget is charged.
const STEP_BYTES: usize = 256 * 1024;

/// Returns the route of the only rpc of the service.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.EvalService/CreateEval", any(create_eval))
}

async fn create_eval(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let mut grpc = Grpc::new(RawRequestCodec).apply_max_message_size_config(Some(BODY_MAX), None);
    grpc.unary(CreateEval(Service(app)), request)
        .await
        .map(axum::body::Body::new)
}

struct CreateEval(Service);

impl UnaryService<Bytes> for CreateEval {
    type Response = v1::CreateEvalResponse;
    type Future = BoxFuture<'static, Result<Response<v1::CreateEvalResponse>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        async move {
            let reservation = memory::reservation(request.extensions());
            let operation = |app,
                             submitter: TermsAccepted<Submitter>,
                             input: super::service::Input<Bytes>| async move {
                let fields = read_fields(input.message, &*reservation?).await?;
                let CreateEvalFields {
                    suite_id,
                    predictions,
                    input_ref,
                    label,
                    idempotency_key,
                } = fields;
                let submission = Submission {
                    suite_id,
                    predictions: predictions.map(Into::into),
                    input_ref,
                    label,
                    idempotency_key,
                };
                let origin = Origin::from_context(input.context);
                let Accepted { job, replayed } =
                    evals::submit(&app, &submitter, submission, origin).await?;
                Ok(v1::CreateEvalResponse {
                    job: Some(job.into()),
                    idempotency_replayed: replayed,
                })
            };
            service.respond(request, operation).await
        }
        .boxed()
    }
}

async fn read_fields(message: Bytes, reservation: &Reservation) -> Result<CreateEvalFields> {
    let mut reader = CreateEvalReader::new(message, JSON_MAX);
    loop {
        let written = reader
            .step(STEP_BYTES)
            .map_err(|unreadable| match unreadable {
                Unreadable::Malformed => {
                    Error::new(Code::InvalidRequest, "The message cannot be decoded.")
                }
                Unreadable::TooLarge => Error::new(
                    Code::PayloadTooLarge,
                    "The message is larger than this operation accepts.",
                ),
            })?;
        reservation.grow(written as u64).await?;
        if written < STEP_BYTES {
            return Ok(reader.finish());
        }
    }
}

/// A codec that leaves the request message encoded, and encodes the response with prost.
struct RawRequestCodec;

impl Codec for RawRequestCodec {
    type Encode = v1::CreateEvalResponse;
    type Decode = Bytes;
    type Encoder = ProstEncoder<v1::CreateEvalResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for RawRequestCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
