//! The api of Assay: REST and gRPC on one port, the dispatcher, and the operator's commands.
//!
//! A request goes: `serve` → `layers` → `rest` or `grpc` → `ops` → `store` (in core) and back; `render` writes errors
//! for both wires.

pub mod admin;
mod app;
mod background;
mod grpc;
mod http;
mod layers;
mod limits;
pub mod openapi;
mod ops;
mod rest;
mod server;
pub mod settings;

pub use server::serve;

/// What reads what strangers write before anything else is known of them, for those who test it.
pub mod parsers {
    pub use crate::http::client_address::client;
    pub use crate::http::traceparent::TraceParent;
    pub use crate::layers::auth::{RequestedOrg, bearer};
    pub use crate::layers::deadline::client_timeout as grpc_timeout;
    pub use crate::layers::observe::client_request_id;
    pub use crate::rest::extract::{IdempotencyKey, is_json};
    pub use crate::rest::input::{Fields, Query};
}
