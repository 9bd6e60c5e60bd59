//! gRPC: take the message, call the operation, answer. One file a resource. What may not live here: decisions.

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

use assay_core::model::permissions::{Credential, Permit};
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

/// Largest message of a request that carries no predictions.
const SMALL: usize = 64 * 1024;

/// Largest message of a stream that carries a part: a mebibyte of it, and what is around that.
const PIECE: usize = 1024 * 1024 + SMALL;

/// Every service, gRPC-web included.
pub async fn routes(app: &App) -> Result<Router<App>> {
    let service = Service(app.clone());
    let small = SMALL;
    let behind_credential = Routes::from(Router::new())
        .add_service(MeServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(KeyServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(SuiteServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ComparisonServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(MemberServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(ModelServiceServer::new(service.clone()).max_decoding_message_size(small))
        .add_service(UploadServiceServer::new(service.clone()).max_decoding_message_size(PIECE))
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
    let signing_in = Routes::from(Router::new())
        .add_service(AuthServiceServer::new(service.clone()).max_decoding_message_size(small))
        .into_axum_router()
        .route_layer(from_fn_with_state(app.clone(), limit_mail));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(assay_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // The details of errors, so that a client by reflection can show them.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let mut open = Routes::from(Router::new())
        .add_service(HealthServiceServer::new(service))
        .add_service(grpc_health().await);
    if app.settings.grpc_reflection {
        open = open.add_service(reflection().build_v1().map_err(Error::internal)?);
        // Older clients, Python's among them, know this one only.
        open = open.add_service(reflection().build_v1alpha().map_err(Error::internal)?);
    }
    let open = open.into_axum_router();
    let all = behind_credential
        .merge(signing_in)
        .merge(open)
        .layer(tonic_web::GrpcWebLayer::new());
    Ok(all
        .layer(from_fn_with_state(app.clone(), grpc_only))
        .with_state(()))
}

/// Of the two rpcs to sign in with, the one that sends mail is limited by the client's address, as on REST.
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

/// To a caller who does not speak gRPC there is nothing at these paths, and gRPC proper needs HTTP/2; the layer of
/// gRPC-web would answer both with a bare 400.
async fn grpc_only(
    State(app): State<App>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    match Protocol::of(request.headers()) {
        Protocol::Rest => {
            let not_found = crate::http::not_found::not_found
                .layer(from_fn_with_state(app, layers::auth::count_unrouted));
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

/// `grpc.health.v1`: this process serves as soon as it listens, each service and all of them.
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

/// All services: they differ in their rpcs only.
#[derive(Clone)]
struct Service(App);

impl Service {
    /// Proves the caller's right, calls the operation, and renders what it returns.
    async fn answer<P, M, A, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<A>, Status>
    where
        P: Permit,
        F: FnOnce(App, P, Input<M>) -> Fut,
        Fut: Future<Output = Result<A>>,
    {
        let proof = match request.extensions().get::<Credential>() {
            Some(credential) => P::permit(credential),
            None => Err(Error::internal("an rpc without authentication")),
        };
        let operation = |app, input| async move { operation(app, proof?, input).await };
        self.answer_anybody(request, operation).await
    }

    /// Calls an operation that asks for no credential, and renders what it returns.
    async fn answer_anybody<M, A, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<A>, Status>
    where
        F: FnOnce(App, Input<M>) -> Fut,
        Fut: Future<Output = Result<A>>,
    {
        let (_, extensions, message) = request.into_parts();
        let Some(call) = extensions.get::<RequestContext>().cloned() else {
            return Err(Status::internal("a request without an id"));
        };
        let answered = operation(
            self.0.clone(),
            Input {
                message,
                call: call.clone(),
            },
        )
        .await;
        answered
            .map(Response::new)
            .map_err(|error| refused(&error, &call))
    }

    /// The same for an operation that answers with many messages, one after the other.
    async fn stream<P, M, A, S, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<BoxStream<'static, Result<A, Status>>>, Status>
    where
        P: Permit,
        S: Stream<Item = Result<A>> + Send + 'static,
        F: FnOnce(App, P, Input<M>) -> Fut,
        Fut: Future<Output = Result<S>>,
    {
        let call = request.extensions().get::<RequestContext>().cloned();
        let answers = self.answer(request, operation).await?;
        let refused = move |error| match &call {
            Some(call) => refused(&error, call),
            None => Status::internal("an rpc without an id"),
        };
        Ok(answers.map(|answers| answers.map_err(refused).boxed()))
    }
}

/// An error as gRPC tells it; its cause is logged.
fn refused(error: &Error, call: &RequestContext) -> Status {
    error_response::log_cause(error, call);
    error_response::status(error, &call.request_id)
}

/// A message with what came beside it.
struct Input<M> {
    message: M,
    call: RequestContext,
}
