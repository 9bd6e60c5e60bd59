//! Score receipts: signed statements about jobs' disclosed figures, and the public log with their
//! hashes.
//!
//! The crate has no runtime and no database. The platform signs and logs with it, and `assay verify`
//! checks receipts with it, without a network.

pub mod chain;
pub mod jws;
pub mod keys;
pub mod log;
mod logged;
pub mod place;
pub mod statement;
mod strict_json;
pub mod tree;
pub mod verify;
