//! The gRPC adapter, one file per resource: reads the message, calls the operation, returns the
//! response. Decisions belong to the operations.

mod auth;
mod comparisons;
mod domains;
mod evals;
mod health;
mod invites;
mod jobs;
mod keys;
mod me;
mod members;
mod models;
mod orgs;
mod sessions;
mod suites;
mod terms;
mod uploads;
mod usage;

use assay_core::model::permissions::{Credential, Proof};
use assay_core::{Code, Error, Result};
use assay_proto::v1::auth_service_server::AuthServiceServer;
use assay_proto::v1::comparison_service_server::ComparisonServiceServer;
use assay_proto::v1::domain_service_server::DomainServiceServer;
use assay_proto::v1::health_service_server::HealthServiceServer;
use assay_proto::v1::invite_service_server::InviteServiceServer;
use assay_proto::v1::job_service_server::JobServiceServer;
use assay_proto::v1::key_service_server::KeyServiceServer;
use assay_proto::v1::me_service_server::MeServiceServer;
use assay_proto::v1::member_service_server::MemberServiceServer;
use assay_proto::v1::model_service_server::ModelServiceServer;
use assay_proto::v1::org_service_server::OrgServiceServer;
use assay_proto::v1::session_service_server::SessionServiceServer;
use assay_proto::v1::suite_service_server::SuiteServiceServer;
use assay_proto::v1::terms_service_server::TermsServiceServer;
use assay_proto::v1::upload_service_server::UploadServiceServer;
use assay_proto::v1::usage_service_server::UsageServiceServer;
use axum::Router;
use axum::extract::State;
use axum::handler::Handler as _;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse as _;
use futures_util::stream::{BoxStream, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::ServiceExt as _;

use crate::app::App;
use crate::http::error_response::{self, Failure};
use crate::http::protocol::Protocol;
use crate::http::request_context::RequestContext;
use crate::layers;

/// Maximum size of a message without predictions, in bytes.
const SMALL_MESSAGE_MAX: usize = 64 * 1024;

/// Maximum size of a message with a part of an upload: 1 MiB of the part, and the other fields.
const PART_MESSAGE_MAX: usize = 1024 * 1024 + SMALL_MESSAGE_MAX;

/// Returns the routes of every service, for gRPC and gRPC-web.
pub async fn routes(app: &App) -> Result<Router<App>> {
    let service = Service(app.clone());
    let small = SMALL_MESSAGE_MAX;
    let with_credential = Routes::from(Router::new())
        .add_service(MeServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(KeyServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(SuiteServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ComparisonServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(MemberServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ModelServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(
            UploadServiceServer::new(service.clone()).max_decoding_message_size(PART_MESSAGE_MAX),
        )
        .add_service(UsageServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(JobServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(SessionServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(OrgServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(InviteServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(TermsServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(DomainServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .merge(evals::routes().with_state(app.clone()))
        .route_layer(from_fn_with_state(app.clone(), layers::rate_limit::limit))
        .route_layer(from_fn_with_state(app.clone(), layers::auth::authenticate));
    let sign_in = Routes::from(Router::new())
        .add_service(AuthServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .route_layer(from_fn_with_state(app.clone(), limit_mail));
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
    let open = open.into_axum_router();
    let all = with_credential
        .merge(sign_in)
        .merge(open)
        .layer(tonic_web::GrpcWebLayer::new());
    Ok(all
        .layer(from_fn_with_state(app.clone(), grpc_only))
        .with_state(()))
}

/// Limits the sign-in rpc that sends emails by the client's address, as REST does. The other rpc
/// sends none.
async fn limit_mail(
    state: State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    match request.uri().path().ends_with("/RequestSignIn") {
        true => layers::rate_limit::limit_mail(state, request, next).await,
        false => next.run(request).await,
    }
}

/// Returns 404 for a request that is not gRPC, and an error for gRPC over HTTP/1.1. The gRPC-web
/// layer would return a 400 without a body for both.
async fn grpc_only(
    State(app): State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    match Protocol::of(request.headers()) {
        Protocol::Rest => {
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

/// The implementation of every service. Each file of this module adds the rpcs of one.
#[derive(Clone)]
struct Service(App);

impl Service {
    /// Creates the proof `P` of the caller's permission, calls the operation, and returns its
    /// result as a gRPC response.
    async fn respond<P, M, R, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<R>, Status>
    where
        P: Proof,
        F: FnOnce(App, P, Input<M>) -> Fut,
        Fut: Future<Output = Result<R>>,
    {
        let proof = match request.extensions().get::<Credential>() {
            Some(credential) => P::from_credential(credential),
            None => Err(Error::internal("the rpc has no authentication")),
        };
        let operation = |app, input| async move { operation(app, proof?, input).await };
        self.respond_to_anyone(request, operation).await
    }

    /// Calls an operation that requires no credential, and returns its result as a gRPC response.
    async fn respond_to_anyone<M, R, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<R>, Status>
    where
        F: FnOnce(App, Input<M>) -> Fut,
        Fut: Future<Output = Result<R>>,
    {
        let (_, extensions, message) = request.into_parts();
        let Some(context) = extensions.get::<RequestContext>().cloned() else {
            return Err(Status::internal("the request has no context"));
        };
        let result = operation(
            self.0.clone(),
            Input {
                message,
                context: context.clone(),
            },
        )
        .await;
        result
            .map(Response::new)
            .map_err(|error| to_status(&error, &context))
    }

    /// Does the same as [`Service::respond`] for an operation that returns a stream of messages.
    async fn stream<P, M, R, S, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<BoxStream<'static, Result<R, Status>>>, Status>
    where
        P: Proof,
        S: Stream<Item = Result<R>> + Send + 'static,
        F: FnOnce(App, P, Input<M>) -> Fut,
        Fut: Future<Output = Result<S>>,
    {
        let context = request.extensions().get::<RequestContext>().cloned();
        let response = self.respond(request, operation).await?;
        let to_status = move |error| match &context {
            Some(context) => to_status(&error, context),
            None => Status::internal("the request has no context"),
        };
        Ok(response.map(|messages| messages.map_err(to_status).boxed()))
    }
}

/// Returns the gRPC status of an error, and logs its cause.
fn to_status(error: &Error, context: &RequestContext) -> Status {
    error_response::log_cause(error, context);
    error_response::status(error, &context.request_id)
}

/// The message of a request, and the context of the request.
struct Input<M> {
    message: M,
    context: RequestContext,
}
