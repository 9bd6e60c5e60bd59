//! HTTP without routes, for REST, gRPC and pages alike: connections, a request's context,
//! protocol detection, error responses, and what all pages share.

pub mod assets;
pub mod byte_range;
pub mod client_address;
pub mod connections;
pub mod cookies;
pub mod error_page;
pub mod error_response;
pub mod header_limits;
pub mod not_found;
pub mod origin;
pub mod page_headers;
pub mod protocol;
pub mod request_context;
pub mod response_markers;
pub mod theme;
pub mod traceparent;
