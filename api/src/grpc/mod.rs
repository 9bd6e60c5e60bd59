//! The gRPC adapter. Services are generated from the declarations in `proto/assay/v1`; the rpcs in `special` are
//! written by hand. Decisions belong to the operations.

pub mod service;
pub mod special;

use assay_core::{Code, Error, Result};
use axum::Router;
use axum::extract::State;
use axum::handler::Handler as _;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::IntoResponse as _;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::ServiceExt as _;

use crate::app::App;
use crate::generated;
use crate::grpc::service::Service;
use crate::http::error_response::Failure;
use crate::http::protocol::Protocol;
use crate::layers;

/// Returns the routes of every service, for gRPC and gRPC-web.
pub async fn routes(app: &App) -> Result<Router<App>> {
    let services = generated::grpc::routes(&Service(app.clone()))
        .into_axum_router()
        .merge(special::routes().with_state(app.clone()))
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate),
            from_fn_with_state(app.clone(), layers::rate_limit::limit),
        ));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(assay_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Clients that use reflection need the types of error details to show them.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let mut open = Routes::from(Router::new()).add_service(grpc_health().await);
    if app.settings.grpc_reflection {
        open = open.add_service(reflection().build_v1().map_err(Error::internal)?);
        // Older clients, such as the one for Python, support this version only.
        open = open.add_service(reflection().build_v1alpha().map_err(Error::internal)?);
    }
    let open = open
        .into_axum_router()
        .route_layer(from_fn(layers::memory::run_reserved));
    let all = services.merge(open).layer((
        from_fn_with_state(app.clone(), grpc_only),
        tonic_web::GrpcWebLayer::new(),
    ));
    Ok(all.with_state(()))
}

/// Returns 404 for a request that is not gRPC, and an error for gRPC over HTTP/1.1. The gRPC-web
/// layer would return a 400 without a body for both.
async fn grpc_only(
    State(app): State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    match Protocol::of(&request) {
        Protocol::Rest | Protocol::Page => {
            let not_found = crate::http::not_found::not_found
                .layer(from_fn_with_state(app, layers::unrouted::count_unrouted));
            not_found
                .with_state(())
                .oneshot(request)
                .await
                .into_response()
        }
        Protocol::Grpc if request.version() < http::Version::HTTP_2 => {
            let error = Error::new(
                Code::InvalidRequest,
                "gRPC needs HTTP/2; over HTTP/1.1 use gRPC-web.",
            );
            Failure::from(error).into_response()
        }
        Protocol::Grpc | Protocol::GrpcWeb => next.run(request).await,
    }
}

/// Returns the service `grpc.health.v1`. Every service of a process that listens is `SERVING`.
async fn grpc_health() -> HealthServer<HealthService> {
    let reporter = HealthReporter::new();
    for service in crate::http::protocol::METHODS
        .iter()
        .filter_map(|method| method[1..].split('/').next())
    {
        reporter
            .set_service_status(service, ServingStatus::Serving)
            .await;
    }
    HealthServer::new(HealthService::from_health_reporter(reporter))
}
