//! The operator's commands that suspend and delete organizations, suspend and remove suites, revoke keys, end
//! sessions and erase users. They run as the schema's owner.

mod access;
mod command_log;
pub mod migrations;
mod org_deletion;
mod suites;
mod suspension;
mod user_erasure;

pub use access::*;
pub use command_log::*;
pub use org_deletion::*;
pub use suites::*;
pub use suspension::*;
pub use user_erasure::*;
