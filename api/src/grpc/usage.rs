//! The rpcs of `UsageService`.

use assay_core::model::permissions::UsageReader;
use assay_proto::v1;
use assay_proto::v1::usage_service_server::UsageService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::usage;

#[tonic::async_trait]
impl UsageService for Service {
    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        self.respond(request, |app, caller: UsageReader, _| async move {
            Ok(v1::GetUsageResponse {
                usage: Some(usage::get(&app, &caller).await?.into()),
            })
        })
        .await
    }

    async fn list_usage_days(
        &self,
        request: Request<v1::ListUsageDaysRequest>,
    ) -> Result<Response<v1::ListUsageDaysResponse>, Status> {
        self.respond(request, |app, caller: UsageReader, input| async move {
            let v1::ListUsageDaysRequest { from, to } = input.message;
            let days = usage::days(&app, &caller, from.as_deref(), to.as_deref()).await?;
            Ok(days.into())
        })
        .await
    }
}
