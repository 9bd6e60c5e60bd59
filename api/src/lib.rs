//! The api of Assay: REST and gRPC on one port, the dispatcher, and the operator's commands.
//!
//! A request goes: `serve` → `layers` → `rest` or `grpc` → `ops` → `store` (in core) and back; `render` writes errors
//! for both wires.

mod app;
mod audit;
mod changes;
mod cleanup;
mod connections;
mod dispatcher;
mod dns;
mod domain_checks;
mod grpc;
mod layers;
mod limits;
mod lookups;
mod mail;
mod memory;
pub mod openapi;
pub mod operator;
mod ops;
mod page;
mod reconcile;
mod render;
mod requests;
mod rest;
mod serve;
pub mod settings;
mod trace_document;
mod traceparent;
mod turns;

pub use serve::serve;

/// What reads what strangers write before anything else is known of them, for those who test it.
pub mod parsers {
    pub use crate::layers::auth::{Asked, bearer};
    pub use crate::layers::deadline::asked as grpc_timeout;
    pub use crate::layers::observe::{client, client_request_id};
    pub use crate::rest::extract::{IdempotencyKey, is_json};
    pub use crate::rest::input::{Fields, Query};
    pub use crate::traceparent::TraceParent;
}
