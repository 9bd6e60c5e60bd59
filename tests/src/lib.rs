//! Launches private stacks: database servers, databases and the real binaries. `cargo demo`, `cargo
//! up`, `cargo chaos` and the tests use it.
//!
//! It does not depend on the crates that it launches, so it builds even while their SQL does not.

pub mod binaries;
pub mod chaos;
pub mod client;
pub mod databases;
pub mod demo_suite;
pub mod demonstration;
pub mod golden;
pub mod link;
pub mod playlist_suite;
pub mod servers;
pub mod service_report;
pub mod site;
pub mod stack;
pub mod steady;
pub mod wait;
