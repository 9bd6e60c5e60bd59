//! The layers that every request passes, for REST and gRPC alike: one layer per file.
//!
//! From the outside in: `observe`, `memory`, `deadline`, `cors`, `syntax`, then the layers of
//! routes: `auth` and `rate_limit`, or `unrouted` for a path or method without a route. The other
//! files are modules of these layers: `request_id`, `errors`, `telemetry` and `response_headers` of
//! `observe`, `concurrency` of `rate_limit`, `response_size` of `memory`. `operation` finds the
//! declaration of a request by its route (`route_name`), and `traffic_class` chooses its limits.

pub mod auth;
mod concurrency;
pub mod cors;
pub mod deadline;
mod errors;
pub mod memory;
pub mod observe;
mod operation;
pub mod rate_limit;
pub mod request_id;
mod response_headers;
mod response_size;
mod route_name;
pub mod syntax;
pub mod telemetry;
mod traffic_class;
pub mod unrouted;
