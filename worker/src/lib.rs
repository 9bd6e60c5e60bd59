//! The worker of Assay has two roles. `run` claims jobs, scores predictions against hidden answers
//! or lets engines predict sequences, and writes the results. `serve` is the embedded engine, which
//! computes with models; it has no database.
//!
//! A job passes through these steps: a notification or a poll → `worker` (a slot, a claim) →
//! `attempt` (`evaluation` or `prediction`) → `store::work` (the result). The worker does not depend
//! on the API.

mod answer_cache;
mod attempt;
mod boards;
mod context;
mod evaluation;
mod input;
mod outcome;
mod output;
mod phases;
mod prediction;
pub mod score_command;
mod sequence_source;
pub mod serve;
pub mod settings;
mod worker;

pub use worker::run;
