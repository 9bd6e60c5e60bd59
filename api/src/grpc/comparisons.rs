//! The rpcs of `ComparisonService`.

use assay_core::model::permissions::JobReader;
use assay_proto::v1;
use assay_proto::v1::comparison_service_server::ComparisonService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::comparisons;

#[tonic::async_trait]
impl ComparisonService for Service {
    async fn create_comparison(
        &self,
        request: Request<v1::CreateComparisonRequest>,
    ) -> Result<Response<v1::CreateComparisonResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::CreateComparisonRequest { job_a, job_b } = input.message;
            let comparison = comparisons::create(&app, &caller, &job_a, &job_b).await?;
            Ok(v1::CreateComparisonResponse {
                comparison: Some(comparison.into()),
            })
        })
        .await
    }
}
