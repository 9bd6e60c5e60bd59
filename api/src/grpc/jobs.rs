//! The rpcs of `JobService`.

use assay_core::model::permissions::{EvalSubmitter, JobCanceller, JobReader};
use assay_proto::convert::object;
use assay_proto::v1;
use assay_proto::v1::job_service_server::JobService;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::jobs::{self, Filter};

#[tonic::async_trait]
impl JobService for Service {
    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::ListJobsRequest {
                r#type,
                status,
                limit,
                before,
                suite_id,
                label,
            } = input.message;
            let filter = Filter {
                r#type,
                status,
                suite_id,
                label,
                limit,
                before: before.map(|time| time.to_string()),
            };
            Ok(jobs::list(&app, &caller, filter, &input.room).await?.into())
        })
        .await
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        self.respond(request, |app, canceller: JobCanceller, input| async move {
            let v1::CancelJobRequest { job_id } = input.message;
            Ok(v1::CancelJobResponse {
                job: Some(jobs::cancel(&app, &canceller, &job_id).await?.into()),
            })
        })
        .await
    }

    async fn finalize_job(
        &self,
        request: Request<v1::FinalizeJobRequest>,
    ) -> Result<Response<v1::FinalizeJobResponse>, Status> {
        self.respond(request, |app, submitter: EvalSubmitter, input| async move {
            let v1::FinalizeJobRequest { job_id } = input.message;
            Ok(v1::FinalizeJobResponse {
                job: Some(jobs::finalize(&app, &submitter, &job_id).await?.into()),
            })
        })
        .await
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::GetJobRequest { job_id, wait } = input.message;
            Ok(v1::GetJobResponse {
                job: Some(jobs::get(&app, &caller, &job_id, wait).await?.into()),
            })
        })
        .await
    }

    type WatchJobStream = BoxStream<'static, Result<v1::WatchJobResponse, Status>>;

    async fn watch_job(
        &self,
        request: Request<v1::WatchJobRequest>,
    ) -> Result<Response<Self::WatchJobStream>, Status> {
        self.stream(request, |app, caller: JobReader, input| async move {
            let changes = jobs::watch(app, caller, &input.message.job_id).await?;
            Ok(changes.map_ok(|job| v1::WatchJobResponse {
                job: job.map(Into::into),
            }))
        })
        .await
    }

    async fn list_job_items(
        &self,
        request: Request<v1::ListJobItemsRequest>,
    ) -> Result<Response<v1::ListJobItemsResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::ListJobItemsRequest {
                job_id,
                cursor,
                limit,
            } = input.message;
            Ok(
                jobs::items(&app, &caller, &job_id, cursor.as_deref(), limit)
                    .await?
                    .into(),
            )
        })
        .await
    }

    async fn get_job_trace(
        &self,
        request: Request<v1::GetJobTraceRequest>,
    ) -> Result<Response<v1::GetJobTraceResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::GetJobTraceRequest { job_id } = input.message;
            Ok(v1::GetJobTraceResponse {
                trace: Some(object(jobs::trace(&app, &caller, &job_id).await?)),
            })
        })
        .await
    }
}
