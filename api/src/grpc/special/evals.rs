//! The rpc of `EvalService`. tonic does not decode its message: see `raw`.

use assay_core::model::permissions::{EvalSubmitter, TermsAccepted};
use assay_proto::convert::CreateEvalFields;
use assay_proto::v1;
use axum::Router;
use axum::extract::State;
use axum::routing::any;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use prost::Message as _;
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};

use super::raw::{read_fields, unary};
use crate::app::App;
use crate::grpc::service::{Input, Service};
use crate::ops::evals::{self, Submission};
use crate::ops::submissions::{Accepted, Origin};

/// Returns the route of the rpc. The router prefers it to the route of its service.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.EvalService/CreateEval", any(respond))
}

/// Creates a job. The route of [`routes`] precedes this one, because it does not decode the message.
pub async fn create_eval(
    service: &Service,
    request: Request<v1::CreateEvalRequest>,
) -> Result<Response<v1::CreateEvalResponse>, Status> {
    let encoded = request.map(|message| Bytes::from(message.encode_to_vec()));
    CreateEval(service.clone()).call(encoded).await
}

async fn respond(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    unary(CreateEval(Service(app)), request).await
}

struct CreateEval(Service);

impl UnaryService<Bytes> for CreateEval {
    type Response = v1::CreateEvalResponse;
    type Future = BoxFuture<'static, Result<Response<v1::CreateEvalResponse>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        async move {
            let operation = |app,
                             submitter: TermsAccepted<EvalSubmitter>,
                             input: Input<Bytes>| async move {
                let CreateEvalFields {
                    suite_id,
                    predictions,
                    input_ref,
                    suite_version,
                    label,
                    metadata,
                    idempotency_key,
                } = read_fields(input.message, &input.room).await?;
                let submission = Submission {
                    suite_id,
                    predictions: predictions.map(Into::into),
                    input_ref,
                    suite_version,
                    label,
                    metadata: (!metadata.is_empty()).then(|| {
                        let pairs = metadata.into_iter();
                        pairs.map(|(key, value)| (key, value.into())).collect()
                    }),
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
