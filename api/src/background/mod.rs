//! Tasks that run as long as the process, beside its requests.

pub mod cleanup;
pub mod dispatcher;
pub mod dns;
pub mod domain_checks;
pub mod job_updates;
pub mod mail;
pub mod reconciliation;
pub mod usage_counter;
