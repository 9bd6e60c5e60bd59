//! The steps that all rpcs share: proof of permission, call of the operation, conversion of errors.

use std::sync::Arc;

use assay_core::model::permissions::{Credential, Proof};
use assay_core::{Error, Result};
use futures_util::stream::{BoxStream, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::http::error_response;
use crate::http::request_context::RequestContext;
use crate::layers::{memory, telemetry};
use crate::limits::request_memory::SharedReservation;

/// Maximum size of a message without predictions, in bytes.
pub const SMALL_MESSAGE_MAX: usize = 64 * 1024;

/// The implementation of every service. Each file of this module adds the rpcs of one.
#[derive(Clone)]
pub struct Service(pub App);

impl Service {
    /// Creates the proof `P` of the caller's permission, calls the operation, and returns its
    /// result as a gRPC response.
    pub async fn respond<P, M, R, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<R>, Status>
    where
        P: Proof,
        R: Message,
        F: FnOnce(App, P, Input<M>) -> Fut,
        Fut: Future<Output = Result<R>>,
    {
        let proof = proof(&request);
        let operation = |app, input| async move { operation(app, proof?, input).await };
        self.respond_to_anyone(request, operation).await
    }

    /// Calls an operation that requires no credential, and returns its result as a gRPC response.
    pub async fn respond_to_anyone<M, R, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<Response<R>, Status>
    where
        R: Message,
        F: FnOnce(App, Input<M>) -> Fut,
        Fut: Future<Output = Result<R>>,
    {
        let (result, room) = self.call(request, operation).await?;
        let bytes = result.encoded_len() as u64;
        room.check_response(bytes);
        // The message stays in memory until it is encoded.
        room.set_response(2 * bytes);
        Ok(Response::new(result))
    }

    /// Calls an operation, and returns its result with the memory that is charged for it.
    async fn call<M, R, F, Fut>(
        &self,
        request: Request<M>,
        operation: F,
    ) -> Result<(R, SharedReservation), Status>
    where
        F: FnOnce(App, Input<M>) -> Fut,
        Fut: Future<Output = Result<R>>,
    {
        let (_, extensions, message) = request.into_parts();
        let Some(context) = extensions.get::<RequestContext>().cloned() else {
            return Err(Status::internal("the request has no context"));
        };
        let called = async {
            let room = memory::reservation(&extensions)?;
            let input = Input {
                message,
                context: context.clone(),
                room: Arc::clone(&room),
            };
            Ok((operation(self.0.clone(), input).await?, room))
        };
        called.await.map_err(|error| to_status(&error, &context))
    }

    /// Does the same as [`Service::respond`] for an operation that returns a stream of messages.
    pub async fn stream<P, M, R, S, F, Fut>(
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
        let proof = proof(&request);
        let operation = |app, input| async move { operation(app, proof?, input).await };
        self.stream_to_anyone(request, operation).await
    }

    /// Does the same as [`Service::stream`] for an operation that requires no credential.
    pub async fn stream_to_anyone<M, R, S, F, Fut>(
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
        let (messages, _room) = self.call(request, operation).await?;
        Ok(with_stream_errors(Response::new(messages), context))
    }
}

/// Returns the proof of the caller's permission, or the error that the caller lacks it.
fn proof<P: Proof, M>(request: &Request<M>) -> Result<P> {
    match request.extensions().get::<Credential>() {
        Some(credential) => P::from_credential(credential),
        None => Err(Error::internal("the rpc has no authentication")),
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
pub struct Input<M> {
    pub message: M,
    pub context: RequestContext,
    /// The memory that is charged for the request and its response.
    pub room: SharedReservation,
}
