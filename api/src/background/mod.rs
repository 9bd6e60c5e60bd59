//! Background tasks, which run as long as the process, and the state that they share with requests.

pub mod cleanup;
pub mod dispatcher;
pub mod dns;
pub mod domain_checks;
pub mod event_data;
pub mod job_updates;
pub mod mail;
pub mod notices;
pub mod queue_snapshots;
pub mod reconciliation;
pub mod stored_jobs;
pub mod usage_counter;
pub mod webhooks;
