//! The API of Assay: REST and gRPC on one port, the dispatcher, and the operator's commands.
//!
//! A request passes `http::connections`, the `layers`, an adapter in `rest`, `grpc` or `dashboard`, an operation
//! in `ops`, and the statements in `assay_core::store`. On its way back, `layers::errors` renders
//! errors for the request's protocol.

pub mod admin;
mod app;
mod background;
mod dashboard;
pub mod deliver;
mod generated;
mod grpc;
mod http;
mod layers;
mod limits;
mod model_cache;
pub mod openapi;
mod openid;
mod ops;
mod queue;
pub mod receipt_log;
mod rest;
mod server;
pub mod settings;

pub use server::serve;

/// The parsers of input from clients that are not authenticated yet, for fuzz tests.
pub mod parsers {
    pub use crate::http::client_address::client;
    pub use crate::http::traceparent::TraceParent;
    pub use crate::layers::auth::{RequestedOrg, bearer};
    pub use crate::layers::deadline::client_timeout as grpc_timeout;
    pub use crate::layers::request_id::client_request_id;
    pub use crate::rest::extract::{IdempotencyKey, is_json};
    pub use crate::rest::input::{Fields, Query};
}
