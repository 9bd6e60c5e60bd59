//! The rpc `ServingService.CreatePrediction`. tonic does not decode its message: see `raw`.

use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::serving_options::{HistoryFields, PredictFields};
use assay_proto::convert::CreatePredictionFields;
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
use crate::ops::predictions::{self, PredictionFields};
use crate::ops::submissions::{Accepted, Origin};

/// Returns the route of the rpc. The router prefers it to the route of its service.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.ServingService/CreatePrediction", any(respond))
}

/// Creates a prediction job. The route of [`routes`] precedes this one, because it does not decode the
/// message.
pub async fn create_prediction(
    service: &Service,
    request: Request<v1::CreatePredictionRequest>,
) -> Result<Response<v1::CreatePredictionResponse>, Status> {
    let encoded = request.map(|message| Bytes::from(message.encode_to_vec()));
    CreatePrediction(service.clone()).call(encoded).await
}

async fn respond(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    unary(CreatePrediction(Service(app)), request).await
}

struct CreatePrediction(Service);

impl UnaryService<Bytes> for CreatePrediction {
    type Response = v1::CreatePredictionResponse;
    type Future = BoxFuture<'static, Result<Response<v1::CreatePredictionResponse>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        async move {
            let operation = |app,
                             submitter: TermsAccepted<ModelRunner>,
                             input: Input<Bytes>| async move {
                let CreatePredictionFields {
                    model_id,
                    model_version,
                    operation,
                    sequences,
                    input_ref,
                    suite_id,
                    parameters:
                        v1::PredictionParameters {
                            top_k,
                            exclude_seen,
                            on_long,
                            on_unknown,
                        },
                    evaluate,
                    label,
                    idempotency_key,
                } = read_fields(input.message, &input.room).await?;
                let fields = PredictionFields {
                    model_id,
                    model_version,
                    operation,
                    sequences: sequences.map(Into::into),
                    input_ref,
                    suite_id,
                    options: PredictFields {
                        top_k,
                        exclude_seen,
                    },
                    history: HistoryFields {
                        on_long,
                        on_unknown,
                    },
                    evaluate,
                    label,
                    idempotency_key,
                };
                let origin = Origin::from_context(input.context);
                let Accepted { job, replayed } =
                    predictions::submit(&app, &submitter, fields, origin).await?;
                Ok(v1::CreatePredictionResponse {
                    job: Some(job.into()),
                    idempotency_replayed: replayed,
                })
            };
            service.respond(request, operation).await
        }
        .boxed()
    }
}
