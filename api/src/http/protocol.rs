//! The protocols that share the port, and the paths of all gRPC methods.

use std::collections::HashSet;
use std::sync::LazyLock;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// JSON over HTTP/1.1 or HTTP/2.
    Rest,
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-web over HTTP/1.1 or HTTP/2.
    GrpcWeb,
}

impl Protocol {
    /// Returns the protocol by the header `Content-Type`, which gRPC requires.
    pub fn of(headers: &HeaderMap) -> Self {
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if content_type.starts_with("application/grpc-web") {
            Self::GrpcWeb
        } else if content_type.starts_with("application/grpc") {
            Self::Grpc
        } else {
            Self::Rest
        }
    }

    /// Returns the name of the protocol in logs and Prometheus metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Grpc => "grpc",
            Self::GrpcWeb => "grpc_web",
        }
    }
}

/// The paths of all gRPC methods, such as `/assay.v1.JobService/GetJob`.
pub static METHODS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let set = FileDescriptorSet::decode(assay_proto::DESCRIPTORS).unwrap_or_default();
    let files = set.file.iter();
    files
        .flat_map(|file| {
            file.service
                .iter()
                .map(move |service| (file.package(), service))
        })
        .flat_map(|(package, service)| {
            service
                .method
                .iter()
                .map(move |method| format!("/{package}.{}/{}", service.name(), method.name()))
        })
        .collect()
});

/// Returns `true` if this is the path of a gRPC method.
pub fn is_method(path: &str) -> bool {
    METHODS.contains(path)
}
