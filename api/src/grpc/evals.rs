//! `EvalService`. Its one message is taken as it came: [`CreateEvalReader`] writes its predictions as JSON, and the memory budget
//! knows of each step.

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

use super::Service;
use crate::app::App;
use crate::layers::memory;
use crate::limits::request_memory::Reservation;
use crate::ops::evals::{self, Accepted, BODY_MAX, Origin, Submission};

/// The largest JSON of a message: more than any well-formed prediction grows by.
const JSON_MAX: usize = 4 * BODY_MAX;

/// The bytes of JSON that are written before more memory is asked for.
const STEP: usize = 256 * 1024;

/// The path of the service's one method.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.EvalService/CreateEval", any(create_eval))
}

async fn create_eval(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let mut grpc = Grpc::new(Frames).apply_max_message_size_config(Some(BODY_MAX), None);
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
            let held = memory::held(request.extensions());
            let operation =
                |app, submitter: TermsAccepted<Submitter>, input: super::Input<Bytes>| async move {
                    let read = read(input.message, &*held?).await?;
                    let CreateEvalFields {
                        suite_id,
                        predictions,
                        input_ref,
                        label,
                        idempotency_key,
                    } = read;
                    let submission = Submission {
                        suite_id,
                        predictions: predictions.map(Into::into),
                        input_ref,
                        label,
                        idempotency_key,
                    };
                    let origin = Origin::of(input.call);
                    let Accepted { job, replayed } =
                        evals::submit(&app, &submitter, submission, origin).await?;
                    Ok(v1::CreateEvalResponse {
                        job: Some(job.into()),
                        idempotency_replayed: replayed,
                    })
                };
            service.answer(request, operation).await
        }
        .boxed()
    }
}

async fn read(message: Bytes, held: &Reservation) -> Result<CreateEvalFields> {
    let mut reader = CreateEvalReader::new(message, JSON_MAX);
    loop {
        let written = reader.step(STEP).map_err(|unreadable| match unreadable {
            Unreadable::Malformed => {
                Error::new(Code::InvalidRequest, "The message cannot be decoded.")
            }
            Unreadable::TooLarge => Error::new(
                Code::PayloadTooLarge,
                "The message is larger than this operation takes.",
            ),
        })?;
        held.grow(written as u64).await?;
        if written < STEP {
            return Ok(reader.finish());
        }
    }
}

/// Messages as they came; responses by prost.
struct Frames;

impl Codec for Frames {
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

impl Decoder for Frames {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
