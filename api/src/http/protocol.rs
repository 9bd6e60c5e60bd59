//! The protocols that share the port, and all gRPC methods' paths.

use std::collections::HashSet;
use std::sync::LazyLock;

use assay_proto::OPERATIONS;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Request};

/// A request's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// JSON over HTTP/1.1 or HTTP/2.
    Rest,
    /// The dashboard's pages, for browsers.
    Page,
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-web over HTTP/1.1 or HTTP/2.
    GrpcWeb,
}

impl Protocol {
    /// Returns the protocol: gRPC by the header `Content-Type`, which it requires; a page by its
    /// path, if the client accepts HTML.
    pub fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let content_type = text(headers, CONTENT_TYPE);
        if content_type.starts_with("application/grpc-web") {
            Self::GrpcWeb
        } else if content_type.starts_with("application/grpc") {
            Self::Grpc
        } else if !is_rest(request.uri().path()) && text(headers, ACCEPT).contains("text/html") {
            Self::Page
        } else {
            Self::Rest
        }
    }

    /// Returns the protocol's name in logs and Prometheus metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Page => "page",
            Self::Grpc => "grpc",
            Self::GrpcWeb => "grpc_web",
        }
    }
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Returns `true` if a path belongs to the REST API.
fn is_rest(path: &str) -> bool {
    path.starts_with("/v1/") || matches!(path, "/v1" | "/health" | "/openapi.json")
}

/// All gRPC methods' paths, such as `/assay.v1.JobService/GetJob`.
pub static METHODS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    OPERATIONS
        .iter()
        .flat_map(|one| one.rpcs)
        .copied()
        .collect()
});

/// Returns `true` if this is a gRPC method's path.
pub fn is_method(path: &str) -> bool {
    METHODS.contains(path)
}
