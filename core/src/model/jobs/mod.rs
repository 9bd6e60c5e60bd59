//! Evals, prediction jobs, their comparison, the queue, and usage.

pub mod comparison;
pub mod eval;
pub mod job;
pub mod prediction;
pub mod queue;
pub mod usage;
