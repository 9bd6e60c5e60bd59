//! HTTP without routes, for REST and gRPC alike: connections, the context of a request, protocol
//! detection and error responses.

pub mod byte_range;
pub mod client_address;
pub mod connections;
pub mod error_response;
pub mod header_limits;
pub mod not_found;
pub mod origin;
pub mod protocol;
pub mod request_context;
pub mod response_markers;
pub mod traceparent;
