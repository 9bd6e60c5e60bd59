//! `WatchJob`, whose response is a stream, and `GetJobTrace`, whose response is an object of OTLP.

use assay_core::model::permissions::JobReader;
use assay_proto::convert::object;
use assay_proto::v1;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::grpc::service::Service;
use crate::ops::jobs;

/// Streams the states of a job.
pub async fn watch_job(
    service: &Service,
    request: Request<v1::WatchJobRequest>,
) -> Result<Response<BoxStream<'static, Result<v1::WatchJobResponse, Status>>>, Status> {
    service
        .stream(request, |app, caller: JobReader, input| async move {
            let changes = jobs::watch(app, caller, &input.message.job_id).await?;
            Ok(changes.map_ok(|job| v1::WatchJobResponse {
                job: job.map(Into::into),
            }))
        })
        .await
}

/// Returns the trace of a job.
pub async fn get_job_trace(
    service: &Service,
    request: Request<v1::GetJobTraceRequest>,
) -> Result<Response<v1::GetJobTraceResponse>, Status> {
    service
        .respond(request, |app, caller: JobReader, input| async move {
            let v1::GetJobTraceRequest { job_id } = input.message;
            Ok(v1::GetJobTraceResponse {
                trace: Some(object(jobs::trace(&app, &caller, &job_id).await?)),
            })
        })
        .await
}
