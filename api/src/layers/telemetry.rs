//! Telemetry of requests: the Prometheus metrics, the span and the log line of each.

use std::time::Duration;

use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{KeyValue, Span, SpanKind, Spans};
use assay_core::{Error, Timestamp};
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{Method, StatusCode};
use tonic::Status;

use super::deadline;
use super::errors::grpc_status;
use super::request_id::client_request_id;
use crate::http::error_response;
use crate::http::protocol::{self, Protocol};
use crate::http::request_context::RequestContext;
use crate::http::traceparent::TraceParent;

/// The code for a request whose client disconnected before its response, together with status 499.
const CLIENT_GONE: &str = "client_gone";

/// An unknown method's name in OpenTelemetry's semantic conventions.
const OTHER_METHOD: &str = "_OTHER";

/// A request in progress.
///
/// The request is recorded when the observer is dropped, and only there. If the client disconnects,
/// hyper drops the request's future, and with it the observer: such a request is recorded too,
/// as [`CLIENT_GONE`].
pub(super) struct RequestObserver {
    spans: Spans,
    context: RequestContext,
    method: Method,
    route: Route,
    client_request_id: Option<String>,
    /// The timeout that the client sent.
    client_timeout: Option<Duration>,
    started_at: Timestamp,
    /// The outcome, once there is a response.
    outcome: Option<Outcome>,
}

/// A request's outcome.
struct Outcome {
    /// The error's code, or `ok`.
    code: String,
    status: StatusCode,
    grpc_status: tonic::Code,
}

impl Outcome {
    /// Returns the outcome for a request whose client disconnected before its response.
    fn client_gone() -> Self {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT);
        Self {
            code: CLIENT_GONE.to_owned(),
            status,
            grpc_status: tonic::Code::Cancelled,
        }
    }

    /// Returns `ok`, or the side that caused the error. A request that exceeded its client's own
    /// timeout is the client's error.
    fn classify(&self, is_within_client_timeout: bool) -> &'static str {
        match self.code.as_str() {
            "unavailable" if !is_within_client_timeout => "client_error",
            "internal" | "unavailable" => "server_error",
            "ok" if self.status.is_server_error() => "server_error",
            "ok" if !self.status.is_client_error() => "ok",
            _ => "client_error",
        }
    }
}

impl RequestObserver {
    /// Starts to observe a request.
    pub(super) fn new(spans: Spans, request: &Request, context: RequestContext) -> Self {
        metrics::gauge!(prometheus::REQUESTS_IN_FLIGHT).increment(1.0);
        let protocol = context.protocol;
        Self {
            spans,
            context,
            method: request.method().clone(),
            route: Route::of(request, protocol),
            client_request_id: client_request_id(request.headers()),
            client_timeout: deadline::client_timeout(request.headers()),
            started_at: Timestamp::now(),
            outcome: None,
        }
    }

    /// Returns the request's protocol.
    pub(super) const fn protocol(&self) -> Protocol {
        self.context.protocol
    }

    /// Sets the outcome from the rendered response and the error's code (or `ok`).
    pub(super) fn set_outcome(&mut self, response: &Response, code: String) {
        self.outcome = Some(Outcome {
            status: response.status(),
            grpc_status: response_grpc_status(response),
            code,
        });
    }

    fn span(&self, outcome: &Outcome, class: &str) -> Span {
        let TraceParent {
            span_context,
            parent,
        } = self.context.trace.context();
        let method = known_method(&self.method);
        let mut attributes = vec![KeyValue::new(
            "assay.request.id",
            self.context.request_id.to_string(),
        )];
        let name = match &self.route {
            Route::Rpc(rpc) => {
                attributes.push(KeyValue::new("rpc.system.name", "grpc"));
                attributes.push(KeyValue::new("rpc.method", rpc.clone()));
                attributes.push(KeyValue::new(
                    "rpc.response.status_code",
                    grpc_status_name(outcome.grpc_status),
                ));
                rpc.clone()
            }
            Route::Path(path) => {
                attributes.push(KeyValue::new("http.route", path.as_str().to_owned()));
                format!("{method} {}", path.as_str())
            }
            Route::None if method == OTHER_METHOD => "HTTP".to_owned(),
            Route::None => method.to_owned(),
        };
        if !matches!(self.route, Route::Rpc(_)) {
            attributes.push(KeyValue::new("http.request.method", method));
            if outcome.code != CLIENT_GONE {
                attributes.push(KeyValue::new(
                    "http.response.status_code",
                    i64::from(outcome.status.as_u16()),
                ));
            }
        }
        if class != "ok" {
            attributes.push(KeyValue::new("assay.error.code", outcome.code.clone()));
        }
        // By the semantic conventions, a client error does not fail the server's span.
        let error_type = (class == "server_error").then(|| outcome.code.clone().into());
        let link = self.context.trace.link();
        let ended_at = Timestamp::now();
        Span {
            span_context,
            parent,
            name: name.into(),
            kind: SpanKind::Server,
            started_at: self.started_at,
            ended_at,
            attributes,
            error_type,
            link,
        }
    }
}

impl Drop for RequestObserver {
    fn drop(&mut self) {
        metrics::gauge!(prometheus::REQUESTS_IN_FLIGHT).decrement(1.0);
        let outcome = self.outcome.take().unwrap_or_else(Outcome::client_gone);
        let operation = self.route.operation(&self.method, outcome.status);
        let protocol = self.context.protocol.as_str();
        let elapsed = self.context.received_at.elapsed();
        let seconds = elapsed.as_secs_f64();
        let class = outcome.classify(
            self.client_timeout
                .is_none_or(|client_timeout| elapsed < client_timeout),
        );
        let trace_id = self.context.trace.context().span_context.trace_id;
        self.spans.export(trace_id, || self.span(&outcome, class));
        for span in self.context.child_spans.take() {
            self.spans.export(trace_id, || span);
        }
        let Outcome { code, status, .. } = outcome;
        metrics::histogram!(prometheus::REQUEST_SECONDS, "protocol" => protocol, "operation" => operation.clone()).record(seconds);
        metrics::counter!(prometheus::REQUESTS, "protocol" => protocol, "operation" => operation.clone(), "outcome" => class).increment(1);
        if class != "ok" {
            metrics::counter!(prometheus::REQUEST_ERRORS, "protocol" => protocol, "code" => code.clone())
                .increment(1);
        }
        let request_id = &self.context.request_id;
        let client_request_id = &self.client_request_id;
        let method = &self.method;
        let status = status.as_u16();
        tracing::info!(%request_id, %trace_id, client_request_id, protocol, operation, %method, status, code, seconds, "request");
    }
}

/// Counts and logs an error that ends a stream. The request itself was recorded when the stream
/// began.
pub fn record_stream_error(error: &Error, context: &RequestContext) {
    let (protocol, code) = (context.protocol.as_str(), error.code.as_str());
    metrics::counter!(prometheus::REQUEST_ERRORS, "protocol" => protocol, "code" => code)
        .increment(1);
    let request_id = &context.request_id;
    let trace_id = context.trace.context().span_context.trace_id;
    tracing::info!(%request_id, %trace_id, protocol, code, "stream ended with an error");
    error_response::log_cause(error, context);
}

/// Returns a response's gRPC status, or `Ok` if its trailers have yet to follow.
fn response_grpc_status(response: &Response) -> tonic::Code {
    let status = response.extensions().get::<Status>().map(Status::code);
    status
        .or_else(|| grpc_status(response.headers()))
        .unwrap_or(tonic::Code::Ok)
}

/// Returns a gRPC status's name in the semantic conventions, such as `INVALID_ARGUMENT`.
fn grpc_status_name(status: tonic::Code) -> String {
    let mut text = String::new();
    for letter in format!("{status:?}").chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// A request's route, from a closed set, because callers may send any path and any method.
enum Route {
    /// A REST path's template.
    Path(MatchedPath),
    /// A gRPC method's full name.
    Rpc(String),
    /// No route.
    None,
}

impl Route {
    fn of(request: &Request, protocol: Protocol) -> Self {
        match (protocol, request.extensions().get::<MatchedPath>()) {
            // GRPC services' paths are no REST routes.
            (Protocol::Rest | Protocol::Page, Some(path))
                if !path.as_str().ends_with("/{*rest}") =>
            {
                Self::Path(path.clone())
            }
            (Protocol::Grpc | Protocol::GrpcWeb, _)
                if protocol::is_method(request.uri().path()) =>
            {
                Self::Rpc(request.uri().path()[1..].to_owned())
            }
            _ => Self::None,
        }
    }

    /// Returns the operation under which the request is counted: a known one, `unknown` or
    /// `OPTIONS`.
    fn operation(&self, method: &Method, status: StatusCode) -> String {
        match self {
            Self::Rpc(name) => name.clone(),
            Self::None => String::from("unknown"),
            Self::Path(_) if status == StatusCode::METHOD_NOT_ALLOWED => String::from("unknown"),
            // Browsers' preflight requests count as one operation.
            Self::Path(_) if method == Method::OPTIONS => String::from("OPTIONS"),
            // GET's handler also serves HEAD.
            Self::Path(path) => format!(
                "{} {}",
                if method == Method::HEAD {
                    "GET"
                } else {
                    known_method(method)
                },
                path.as_str()
            ),
        }
    }
}

/// Returns a standard method's name, or [`OTHER_METHOD`], because callers may send any name.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER_METHOD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_status_names_follow_conventions() {
        let names = [
            tonic::Code::Ok,
            tonic::Code::InvalidArgument,
            tonic::Code::Unauthenticated,
        ]
        .map(grpc_status_name);
        assert_eq!(names, ["OK", "INVALID_ARGUMENT", "UNAUTHENTICATED"]);
    }
}
