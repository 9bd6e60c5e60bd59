//! `ListSuiteItems`: the page is encoded without its messages.

use assay_core::model::permissions::SuiteVisitor;
use assay_proto::convert::encode_items_page;
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

use super::raw::encoded;
use crate::app::App;
use crate::generated::inputs;
use crate::grpc::service::{Input, SMALL_MESSAGE_MAX, Service};
use crate::ops::suites;

/// Lists items. The route of [`routes`] precedes this one, because it encodes the items without their
/// messages.
pub async fn list_suite_items(
    service: &Service,
    request: Request<v1::ListSuiteItemsRequest>,
) -> Result<Response<v1::ListSuiteItemsResponse>, Status> {
    let encoded = ListSuiteItems(service.clone()).call(request).await?;
    let (metadata, page, extensions) = encoded.into_parts();
    let page = v1::ListSuiteItemsResponse::decode(page)
        .map_err(|error| Status::internal(error.to_string()))?;
    Ok(Response::from_parts(metadata, page, extensions))
}

/// Returns the route for `ListSuiteItems`. The router prefers it to the service's route.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.SuiteService/ListSuiteItems", any(respond))
}

async fn respond(
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
            let visitor = SuiteVisitor::of(request.extensions().get());
            let operation = |app, input: Input<_>| async move {
                let visitor = visitor?;
                let v1::ListSuiteItemsRequest {
                    suite_id,
                    cursor,
                    limit,
                } = input.message;
                let fields = inputs::ListSuiteItems { cursor, limit };
                let page =
                    suites::message_items(&app, &visitor, &suite_id, fields, &input.room).await?;
                Ok(encode_items_page(page)?.into())
            };
            service.respond_to_anyone(request, operation).await
        }
        .boxed()
    }
}
