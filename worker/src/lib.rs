//! The worker of Assay has two roles. `run` claims jobs, scores predictions against hidden answers,
//! and writes the results. `serve` is the embedded engine, which computes with models; it has no
//! database.
//!
//! A job passes through these steps: a notification or a poll → `worker` (a slot, a claim) →
//! `attempt` (fetch, score) → `store::work` (the result). The worker does not depend on the API.

mod answer_cache;
mod attempt;
pub mod score_command;
pub mod serve;
pub mod settings;
mod worker;

pub use worker::run;
