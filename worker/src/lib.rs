//! The worker of Assay claims jobs, scores predictions against hidden answers or lets engines predict
//! sequences, and writes the results.
//!
//! A job passes through these steps: a notification or a poll → `worker` (a slot, a claim) →
//! `attempt` (`evaluation` or `prediction`) → `store::work` (the result). The worker does not depend
//! on the API.

mod answer_cache;
mod attempt;
mod board_entries;
mod board_rows;
mod boards;
pub mod checker;
mod context;
mod evaluation;
mod input;
mod outcome;
mod output;
mod phases;
mod prediction;
pub mod score_command;
mod sequence_source;
pub mod settings;
mod worker;

pub use worker::run;
