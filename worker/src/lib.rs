//! The worker of Assay: claims jobs, scores predictions against hidden answers, and writes the
//! results.
//!
//! A job passes through these steps: a notification or a poll → `worker` (a slot, a claim) →
//! `attempt` (fetch, score) → `store::work` (the result). The worker does not depend on the API.

mod answer_cache;
mod attempt;
pub mod score_command;
pub mod settings;
mod worker;

pub use worker::run;
