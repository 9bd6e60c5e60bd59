//! What every request goes through on its way in and out, on both wires. One layer a file.

pub mod auth;
pub mod cors;
pub mod deadline;
pub mod memory;
pub mod observe;
pub mod rate_limit;
pub mod syntax;
pub mod traffic_class;
