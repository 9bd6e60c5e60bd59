//! The rpcs of `SuiteService`.

use assay_core::model::permissions::SuiteReader;
use assay_proto::convert::encode_items_page;
use assay_proto::v1;
use assay_proto::v1::suite_service_server::SuiteService;
use axum::Router;
use axum::extract::State;
use axum::routing::any;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use prost::Message as _;
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};

use super::raw::encoded;
use super::service::{Input, SMALL_MESSAGE_MAX, Service};
use crate::app::App;
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

    /// Lists items. The route of [`routes`] precedes this one, because it encodes the items without
    /// their messages.
    async fn list_suite_items(
        &self,
        request: Request<v1::ListSuiteItemsRequest>,
    ) -> Result<Response<v1::ListSuiteItemsResponse>, Status> {
        let encoded = ListSuiteItems(self.clone()).call(request).await?;
        let (metadata, page, extensions) = encoded.into_parts();
        let page = v1::ListSuiteItemsResponse::decode(page)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::from_parts(metadata, page, extensions))
    }
}

/// Returns the route for `ListSuiteItems`. The router prefers it to the service's route.
pub(super) fn routes() -> Router<App> {
    Router::new().route(
        "/assay.v1.SuiteService/ListSuiteItems",
        any(list_suite_items),
    )
}

async fn list_suite_items(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    encoded(ListSuiteItems(Service(app)), request, SMALL_MESSAGE_MAX).await
}

struct ListSuiteItems(Service);

impl UnaryService<v1::ListSuiteItemsRequest> for ListSuiteItems {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<v1::ListSuiteItemsRequest>) -> Self::Future {
        let service = self.0.clone();
        async move {
            let operation = |app, caller: SuiteReader, input: Input<_>| async move {
                let v1::ListSuiteItemsRequest {
                    suite_id,
                    cursor,
                    limit,
                } = input.message;
                let (cursor, room) = (cursor.as_deref(), &input.room);
                let form = suites::MESSAGE_PAGE;
                let page =
                    suites::items(&app, &caller, &suite_id, cursor, limit, form, room).await?;
                Ok(encode_items_page(page)?.into())
            };
            service.respond(request, operation).await
        }
        .boxed()
    }
}
