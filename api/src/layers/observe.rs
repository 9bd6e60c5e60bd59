//! The outermost layer: gives a request its id, renders whatever failed, adds the headers that every answer carries,
//! and writes the one log line and the metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{KeyValue, Span, SpanKind};
use assay_core::{Code, Error, RequestId, Timestamp};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tonic::Status;
use tonic_types::StatusExt;

use super::deadline;
use crate::app::App;
use crate::http::client_address;
use crate::http::error_response::{self, Failure, Pending};
use crate::http::protocol::Protocol;
use crate::http::request_context::{ChildSpans, Peer, RequestContext};
use crate::http::traceparent::{Trace, TraceParent};
use crate::limits::Allowance;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What is said of a request whose client did not wait for its answer, beside the status 499.
const CLIENT_GONE: &str = "client_gone";

/// A method that we do not know, by OpenTelemetry's conventions.
const OTHER: &str = "_OTHER";

/// The layer.
pub async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let Ok(request_id) = RequestId::random() else {
        // Without randomness there is neither an id nor a way to go on.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let peer = request.extensions().get::<Peer>();
    let address = peer.map_or_else(
        || Arc::from("unknown"),
        |Peer(peer)| {
            client_address::client(*peer, request.headers(), &app.settings.trusted_proxies)
        },
    );
    let call = RequestContext {
        request_id,
        began,
        trace: Trace::of(request.headers()),
        address,
        user_agent: user_agent(request.headers()),
        child_spans: ChildSpans::default(),
    };
    request.extensions_mut().insert(call.clone());
    let mut watched = RequestObserver::new(app, &request, call);

    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered
        .unwrap_or_else(|_| Failure::from(Error::internal("a handler panicked")).into_response());
    let (mut response, code) = finished(response, watched.protocol, &watched.call);
    // From here on it is answered, whether or not the client is still there to hear it.
    watched.answered = Some(Outcome {
        status: response.status(),
        grpc_status: grpc_status_of(&response),
        code,
    });

    let allowance = match response.extensions().get::<Allowance>() {
        Some(allowance) => *allowance,
        None => watched.app.limits.address(&watched.call.address).await,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(watched.call.request_id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(LIMIT, allowance.limit.into());
    headers.insert(REMAINING, allowance.remaining.into());
    headers.insert(RESET, allowance.reset.into());
    // Responses belong to one caller, and some hold a secret. Only what is the same for everybody says otherwise.
    if watched.protocol == Protocol::Rest {
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

/// A request that is being answered. When it is dropped, answered or not, all who want to know are told.
struct RequestObserver {
    app: App,
    call: RequestContext,
    protocol: Protocol,
    method: Method,
    route: Route,
    client_request_id: Option<String>,
    /// How long the client said that it would wait.
    client_timeout: Option<Duration>,
    at: Timestamp,
    answered: Option<Outcome>,
}

struct Outcome {
    /// The error's code, or `ok`.
    code: String,
    status: StatusCode,
    grpc_status: tonic::Code,
}

impl Outcome {
    /// Not at all.
    fn client_gone() -> Self {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT);
        Self {
            code: CLIENT_GONE.to_owned(),
            status,
            grpc_status: tonic::Code::Cancelled,
        }
    }

    /// Whose fault it is that a request was not answered with what it asked for. Who did not want to wait has himself to blame.
    fn outcome(&self, waited_long_enough: bool) -> &'static str {
        match self.code.as_str() {
            "unavailable" if !waited_long_enough => "client_error",
            "internal" | "unavailable" => "server_error",
            "ok" if self.status.is_server_error() => "server_error",
            "ok" if !self.status.is_client_error() => "ok",
            _ => "client_error",
        }
    }
}

impl RequestObserver {
    fn new(app: App, request: &Request, call: RequestContext) -> Self {
        metrics::gauge!(prometheus::REQUESTS_IN_FLIGHT).increment(1.0);
        let protocol = Protocol::of(request.headers());
        let client_request_id = client_request_id(request.headers());
        let (method, route, client_timeout) = (
            request.method().clone(),
            Route::of(request, protocol),
            deadline::client_timeout(request.headers()),
        );
        Self {
            app,
            call,
            protocol,
            method,
            route,
            client_request_id,
            client_timeout,
            at: Timestamp::now(),
            answered: None,
        }
    }

    fn span(&self, answered: &Outcome, outcome: &str) -> Span {
        let TraceParent {
            span_context,
            parent,
        } = self.call.trace.context();
        let method = known(&self.method);
        let mut attributes = vec![KeyValue::new(
            "assay.request.id",
            self.call.request_id.to_string(),
        )];
        let name = match &self.route {
            Route::Rpc(rpc) => {
                attributes.push(KeyValue::new("rpc.system.name", "grpc"));
                attributes.push(KeyValue::new("rpc.method", rpc.clone()));
                attributes.push(KeyValue::new(
                    "rpc.response.status_code",
                    screaming(answered.grpc_status),
                ));
                rpc.clone()
            }
            Route::Path(path) => {
                attributes.push(KeyValue::new("http.route", path.as_str().to_owned()));
                format!("{method} {}", path.as_str())
            }
            Route::None if method == OTHER => "HTTP".to_owned(),
            Route::None => method.to_owned(),
        };
        if !matches!(self.route, Route::Rpc(_)) {
            attributes.push(KeyValue::new("http.request.method", method));
            if answered.code != CLIENT_GONE {
                attributes.push(KeyValue::new(
                    "http.response.status_code",
                    i64::from(answered.status.as_u16()),
                ));
            }
        }
        if outcome != "ok" {
            attributes.push(KeyValue::new("assay.error.code", answered.code.clone()));
        }
        // By the conventions, what the client did wrong is no error of the server's span.
        let failed = (outcome == "server_error").then(|| answered.code.clone().into());
        let (link, ended) = (self.call.trace.link(), Timestamp::now());
        Span {
            span_context,
            parent,
            name: name.into(),
            kind: SpanKind::Server,
            began: self.at,
            ended,
            attributes,
            failed,
            link,
        }
    }
}

impl Drop for RequestObserver {
    fn drop(&mut self) {
        metrics::gauge!(prometheus::REQUESTS_IN_FLIGHT).decrement(1.0);
        let answered = self.answered.take().unwrap_or_else(Outcome::client_gone);
        let operation = self.route.operation(&self.method, answered.status);
        let (protocol, took) = (self.protocol.as_str(), self.call.began.elapsed());
        let (seconds, outcome) = (
            took.as_secs_f64(),
            answered.outcome(
                self.client_timeout
                    .is_none_or(|client_timeout| took < client_timeout),
            ),
        );
        let trace_id = self.call.trace.context().span_context.trace_id;
        self.app
            .spans
            .export(trace_id, || self.span(&answered, outcome));
        self.call
            .child_spans
            .take()
            .into_iter()
            .for_each(|part| self.app.spans.export(trace_id, || part));
        let Outcome { code, status, .. } = answered;
        metrics::histogram!(prometheus::REQUEST_SECONDS, "protocol" => protocol, "operation" => operation.clone()).record(seconds);
        metrics::counter!(prometheus::REQUESTS, "protocol" => protocol, "operation" => operation.clone(), "outcome" => outcome).increment(1);
        if outcome != "ok" {
            metrics::counter!(prometheus::REQUEST_ERRORS, "protocol" => protocol, "code" => code.clone())
                .increment(1);
        }
        let (request_id, client_request_id, method) =
            (&self.call.request_id, &self.client_request_id, &self.method);
        let status = status.as_u16();
        tracing::info!(%request_id, %trace_id, client_request_id, protocol, operation, %method, status, code, seconds, "request");
    }
}

/// How an answer ended as gRPC tells it, if that is known when it begins.
fn grpc_status_of(response: &Response) -> tonic::Code {
    let known = response.extensions().get::<Status>().map(Status::code);
    known
        .or_else(|| grpc_status(response.headers()))
        .unwrap_or(tonic::Code::Ok)
}

/// A gRPC status as the conventions spell it: `INVALID_ARGUMENT`.
fn screaming(status: tonic::Code) -> String {
    let mut text = String::new();
    for letter in format!("{status:?}").chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// What a request is for, from a closed set: callers may send any path and any method.
enum Route {
    /// The template of a path.
    Path(MatchedPath),
    /// The full name of an rpc.
    Rpc(String),
    /// Nothing that there is.
    None,
}

impl Route {
    fn of(request: &Request, protocol: Protocol) -> Self {
        match (protocol, request.extensions().get::<MatchedPath>()) {
            // Under a service's path there is nothing for whoever does not speak gRPC.
            (Protocol::Rest, Some(path)) if !path.as_str().ends_with("/{*rest}") => {
                Self::Path(path.clone())
            }
            (Protocol::Grpc | Protocol::GrpcWeb, _)
                if crate::http::protocol::is_method(request.uri().path()) =>
            {
                Self::Rpc(request.uri().path()[1..].to_owned())
            }
            _ => Self::None,
        }
    }

    /// The name under which requests are counted: as many as there are operations, and two.
    fn operation(&self, method: &Method, status: StatusCode) -> String {
        match self {
            Self::Rpc(name) => name.clone(),
            Self::None => String::from("unknown"),
            Self::Path(_) if status == StatusCode::METHOD_NOT_ALLOWED => String::from("unknown"),
            // What a browser asks before it asks is the same for all of them.
            Self::Path(_) if method == Method::OPTIONS => String::from("OPTIONS"),
            // What answers GET answers HEAD.
            Self::Path(path) => format!(
                "{} {}",
                if method == Method::HEAD {
                    "GET"
                } else {
                    known(method)
                },
                path.as_str()
            ),
        }
    }
}

/// Renders what failed, and names the outcome.
fn finished(
    mut response: Response,
    protocol: Protocol,
    call: &RequestContext,
) -> (Response, String) {
    let pending = response
        .extensions_mut()
        .remove::<Pending>()
        .map(|Pending(failure)| failure);
    match pending.or_else(|| translated(response.headers()).map(Arc::new)) {
        Some(failure) => {
            error_response::log_cause(&failure.error, call);
            let (mut head, _) = response.into_parts();
            let mut rendered = error_response::render(
                &failure,
                std::mem::take(&mut head.headers),
                protocol,
                &call.request_id,
            );
            // Such as the memory that is charged for the request until its response is read.
            rendered.extensions_mut().extend(head.extensions);
            (rendered, failure.error.code.as_str().to_owned())
        }
        None => {
            // Handlers of gRPC have rendered their error themselves; its reason is the code.
            let reason = response
                .extensions()
                .get::<Status>()
                .and_then(StatusExt::get_details_error_info);
            let code = reason.map_or_else(|| String::from("ok"), |info| info.reason.to_lowercase());
            (response, code)
        }
    }
}

/// The gRPC status of an answer without messages.
fn grpc_status(headers: &HeaderMap) -> Option<tonic::Code> {
    let status = headers
        .get(Status::GRPC_STATUS)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    Some(tonic::Code::from_i32(status))
}

/// The message of that status.
fn message(headers: &HeaderMap) -> &str {
    headers
        .get(Status::GRPC_MESSAGE)
        .and_then(|message| message.to_str().ok())
        .unwrap_or_default()
}

/// What tonic itself refuses, in our words. It says little, and calls a message that it cannot decode a fault of the
/// server. Our own statuses have details.
fn translated(headers: &HeaderMap) -> Option<Failure> {
    let status =
        grpc_status(headers).filter(|_| !headers.contains_key(Status::GRPC_STATUS_DETAILS))?;
    match status {
        // The gRPC specification wants this status for this mistake, although it is the client's.
        tonic::Code::Internal if message(headers).contains("compressed-flag") => {
            let error = Error::new(
                Code::InvalidRequest,
                "The message is marked as compressed; send grpc-encoding: identity, uncompressed.",
            );
            Some(Failure {
                grpc_status: Some(tonic::Code::Internal),
                ..error.into()
            })
        }
        tonic::Code::Internal => {
            Some(Error::new(Code::InvalidRequest, "The message cannot be decoded.").into())
        }
        tonic::Code::OutOfRange => Some(
            Error::new(
                Code::PayloadTooLarge,
                "The message is larger than this operation takes.",
            )
            .into(),
        ),
        tonic::Code::Unimplemented => {
            let error = Error::new(
                Code::NotFound,
                "There is no such service, method or compression.",
            );
            Some(Failure {
                grpc_status: Some(tonic::Code::Unimplemented),
                ..error.into()
            })
        }
        _ => None,
    }
}

/// A method that we know, for callers may send any word.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

/// The caller's own id of the request, if it is well formed: it is logged and never echoed as ours.
pub fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    // Who puts a secret there by mistake does not find it in the log.
    ((1..=128).contains(&text.len()) && text.bytes().all(allowed) && !text.contains("svc_"))
        .then(|| text.to_owned())
}

/// Longest `User-Agent` that is stored, in characters.
const USER_AGENT_MAX: usize = 200;

/// The client's `User-Agent`: visible ASCII, at most [`USER_AGENT_MAX`] characters of it.
fn user_agent(headers: &HeaderMap) -> Option<Arc<str>> {
    let text: String = headers
        .get(http::header::USER_AGENT)?
        .to_str()
        .ok()?
        .trim()
        .chars()
        .take(USER_AGENT_MAX)
        .collect();
    // A secret that is sent there by mistake is not stored.
    (!text.is_empty() && !text.contains("svc_")).then(|| Arc::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_spelt_as_the_conventions_have_it() {
        let spelt = [
            tonic::Code::Ok,
            tonic::Code::InvalidArgument,
            tonic::Code::Unauthenticated,
        ]
        .map(screaming);
        assert_eq!(spelt, ["OK", "INVALID_ARGUMENT", "UNAUTHENTICATED"]);
    }
}
