//! The launcher of private stacks: servers, databases, and the real binaries on them. `cargo demo`, `cargo up` and the
//! tests use it alike.
//!
//! It does not depend on the crates that it launches: it also stands when their SQL is just being changed.

pub mod binaries;
pub mod chaos;
pub mod client;
pub mod databases;
pub mod demo_suite;
pub mod link;
pub mod servers;
pub mod site;
pub mod stack;
pub mod steady;
