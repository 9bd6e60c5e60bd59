//! The gRPC adapter, one file per resource: reads the message, calls the operation, returns the
//! response. Decisions belong to the operations.

mod audit;
mod auth;
mod boards;
mod comparisons;
mod domains;
mod evals;
mod events;
mod health;
mod invites;
mod jobs;
mod keys;
mod me;
mod members;
mod models;
mod orgs;
mod predictions;
mod queue;
mod raw;
mod receipts;
mod service;
mod serving;
mod sessions;
mod suites;
mod terms;
mod uploads;
mod usage;
mod webhooks;

use assay_core::{Code, Error, Result};
use assay_proto::v1::audit_service_server::AuditServiceServer;
use assay_proto::v1::auth_service_server::AuthServiceServer;
use assay_proto::v1::comparison_service_server::ComparisonServiceServer;
use assay_proto::v1::domain_service_server::DomainServiceServer;
use assay_proto::v1::event_service_server::EventServiceServer;
use assay_proto::v1::health_service_server::HealthServiceServer;
use assay_proto::v1::invite_service_server::InviteServiceServer;
use assay_proto::v1::job_service_server::JobServiceServer;
use assay_proto::v1::key_service_server::KeyServiceServer;
use assay_proto::v1::leaderboard_service_server::LeaderboardServiceServer;
use assay_proto::v1::me_service_server::MeServiceServer;
use assay_proto::v1::member_service_server::MemberServiceServer;
use assay_proto::v1::model_service_server::ModelServiceServer;
use assay_proto::v1::org_service_server::OrgServiceServer;
use assay_proto::v1::queue_service_server::QueueServiceServer;
use assay_proto::v1::receipt_service_server::ReceiptServiceServer;
use assay_proto::v1::serving_service_server::ServingServiceServer;
use assay_proto::v1::session_service_server::SessionServiceServer;
use assay_proto::v1::suite_service_server::SuiteServiceServer;
use assay_proto::v1::terms_service_server::TermsServiceServer;
use assay_proto::v1::upload_service_server::UploadServiceServer;
use assay_proto::v1::usage_service_server::UsageServiceServer;
use assay_proto::v1::webhook_service_server::WebhookServiceServer;
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
use crate::grpc::service::{SMALL_MESSAGE_MAX, Service};
use crate::http::error_response::Failure;
use crate::http::protocol::Protocol;
use crate::layers;

/// Maximum size of a message with a part of an upload: 1 MiB of the part, and the other fields.
const PART_MESSAGE_MAX: usize = 1024 * 1024 + SMALL_MESSAGE_MAX;

/// Returns the routes of every service, for gRPC and gRPC-web.
pub async fn routes(app: &App) -> Result<Router<App>> {
    let service = Service(app.clone());
    let small = SMALL_MESSAGE_MAX;
    let with_credential = Routes::from(Router::new())
        .add_service(MeServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(EventServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(AuditServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(KeyServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(SuiteServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ComparisonServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(MemberServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ModelServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(
            UploadServiceServer::new(service.clone()).max_decoding_message_size(PART_MESSAGE_MAX),
        )
        .add_service(
            ServingServiceServer::new(service.clone())
                .max_decoding_message_size(assay_core::model::serving::BODY_MAX),
        )
        .add_service(QueueServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(UsageServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(JobServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(SessionServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(OrgServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(InviteServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(TermsServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(DomainServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(WebhookServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .merge(evals::routes().with_state(app.clone()))
        .merge(predictions::routes().with_state(app.clone()))
        .merge(suites::routes().with_state(app.clone()))
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate),
            from_fn_with_state(app.clone(), layers::rate_limit::limit),
        ));
    let public = Routes::from(Router::new())
        .add_service(
            LeaderboardServiceServer::new(service.clone()).max_decoding_message_size(small),
        )
        .add_service(ReceiptServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .route_layer((
            from_fn_with_state(app.clone(), authenticate_unless_public),
            from_fn_with_state(app.clone(), limit_public),
        ));
    let sign_in = Routes::from(Router::new())
        .add_service(AuthServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .route_layer(from_fn_with_state(app.clone(), limit_sign_in));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(assay_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Clients that use reflection need the types of error details to show them.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let mut open = Routes::from(Router::new())
        .add_service(HealthServiceServer::new(service))
        .add_service(grpc_health().await);
    if app.settings.grpc_reflection {
        open = open.add_service(reflection().build_v1().map_err(Error::internal)?);
        // Older clients, such as the one for Python, support this version only.
        open = open.add_service(reflection().build_v1alpha().map_err(Error::internal)?);
    }
    let open = open
        .into_axum_router()
        .route_layer(from_fn(layers::memory::run_reserved));
    let all = with_credential
        .merge(public)
        .merge(sign_in)
        .merge(open)
        .layer((
            from_fn_with_state(app.clone(), grpc_only),
            tonic_web::GrpcWebLayer::new(),
        ));
    Ok(all.with_state(()))
}

/// The rpcs that need no credential for what is public.
const PUBLIC: [&str; 2] = ["/GetLeaderboard", "/GetReceipt"];

/// The rpcs that need no credential at all.
const OPEN: [&str; 2] = ["/GetSuiteCommitment", "/StreamSuiteOpening"];

fn is_one_of(request: &axum::extract::Request, rpcs: &[&str]) -> bool {
    let path = request.uri().path();
    rpcs.iter().any(|rpc| path.ends_with(rpc))
}

/// Limits the rpcs of boards and receipts as REST does.
async fn limit_public(
    state: State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    if is_one_of(&request, &OPEN) {
        layers::rate_limit::limit_open(state, request, next).await
    } else {
        layers::rate_limit::limit_public(state, request, next).await
    }
}

/// Authenticates the rpcs of boards and receipts, some of which can do without a credential.
async fn authenticate_unless_public(
    state: State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    if is_one_of(&request, &OPEN) {
        next.run(request).await
    } else if is_one_of(&request, &PUBLIC) {
        layers::auth::authenticate_if_given(state, request, next).await
    } else {
        layers::auth::authenticate(state, request, next).await
    }
}

/// Limits the rpcs of signing in by the client's address, as REST does.
async fn limit_sign_in(
    state: State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let path = request.uri().path();
    if path.ends_with("/RequestSignIn") {
        layers::rate_limit::limit_mail(state, request, next).await
    } else if path.ends_with("/CreateDeviceLogin") {
        layers::rate_limit::limit_device_logins(state, request, next).await
    } else {
        layers::rate_limit::limit_codes(state, request, next).await
    }
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
