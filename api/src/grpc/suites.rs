//! The rpcs of `SuiteService`.

use assay_core::model::permissions::SuiteReader;
use assay_proto::v1;
use assay_proto::v1::suite_service_server::SuiteService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::suites;

#[tonic::async_trait]
impl SuiteService for Service {
    async fn list_suites(
        &self,
        request: Request<v1::ListSuitesRequest>,
    ) -> Result<Response<v1::ListSuitesResponse>, Status> {
        self.respond(request, |app, caller: SuiteReader, _| async move {
            Ok(suites::list(&app, &caller).await?.into())
        })
        .await
    }

    async fn get_suite(
        &self,
        request: Request<v1::GetSuiteRequest>,
    ) -> Result<Response<v1::GetSuiteResponse>, Status> {
        self.respond(request, |app, caller: SuiteReader, input| async move {
            let v1::GetSuiteRequest { suite_id } = input.message;
            Ok(v1::GetSuiteResponse {
                suite: Some(suites::get(&app, &caller, &suite_id).await?.into()),
            })
        })
        .await
    }

    async fn list_suite_items(
        &self,
        request: Request<v1::ListSuiteItemsRequest>,
    ) -> Result<Response<v1::ListSuiteItemsResponse>, Status> {
        self.respond(request, |app, caller: SuiteReader, input| async move {
            let v1::ListSuiteItemsRequest {
                suite_id,
                cursor,
                limit,
            } = input.message;
            suites::items(&app, &caller, &suite_id, cursor.as_deref(), limit)
                .await?
                .try_into()
        })
        .await
    }
}
