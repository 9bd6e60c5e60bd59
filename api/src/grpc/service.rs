//! The steps that all rpcs share: proof of permission, call of the operation, conversion of errors.

use assay_core::model::permissions::{Credential, Proof};
use assay_core::{Error, Result};
use futures_util::stream::{BoxStream, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::http::error_response;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;

/// The implementation of every service. Each file of this module adds the rpcs of one.
#[derive(Clone)]
pub(super) struct Service(pub(super) App);

impl Service {
    /// Creates the proof `P` of the caller's permission, calls the operation, and returns its
    /// result as a gRPC response.
    pub(super) async fn respond<P, M, R, F, Fut>(
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
    pub(super) async fn respond_to_anyone<M, R, F, Fut>(
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
    pub(super) async fn stream<P, M, R, S, F, Fut>(
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
        Ok(with_stream_errors(response, context))
    }

    /// Does the same as [`Service::stream`] for an operation that requires no credential.
    pub(super) async fn stream_to_anyone<M, R, S, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<BoxStream<'static, Result<R, Status>>>, Status>
    where
        S: Stream<Item = Result<R>> + Send + 'static,
        F: FnOnce(App, Input<M>) -> Fut,
        Fut: Future<Output = Result<S>>,
    {
        let context = request.extensions().get::<RequestContext>().cloned();
        let response = self.respond_to_anyone(request, operation).await?;
        Ok(with_stream_errors(response, context))
    }
}

/// Converts the errors of a stream, which end it after its response has begun.
fn with_stream_errors<R>(
    response: Response<impl Stream<Item = Result<R>> + Send + 'static>,
    context: Option<RequestContext>,
) -> Response<BoxStream<'static, Result<R, Status>>> {
    let to_status = move |error| match &context {
        Some(context) => {
            telemetry::record_stream_error(&error, context);
            error_response::status(&error, &context.request_id)
        }
        None => Status::internal("the request has no context"),
    };
    response.map(|messages| messages.map_err(to_status).boxed())
}

/// Returns the gRPC status of an error, and logs its cause.
fn to_status(error: &Error, context: &RequestContext) -> Status {
    error_response::log_cause(error, context);
    error_response::status(error, &context.request_id)
}

/// The message of a request, and the context of the request.
pub(super) struct Input<M> {
    pub(super) message: M,
    pub(super) context: RequestContext,
}
