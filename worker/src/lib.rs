//! The worker of Assay: claims jobs, scores predictions against hidden answers, finishes them in SQL.
//!
//! A job goes: bell or look-out → `run` (a slot, a claim) → `attempt` (fetch, score) → finished by `store::work`.
//! What may not live here: anything of the api.

mod answer_cache;
mod attempt;
pub mod score_command;
pub mod settings;
mod worker;

pub use worker::run;
