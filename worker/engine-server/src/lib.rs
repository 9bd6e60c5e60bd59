//! The embedded engine, which `assay-worker serve` runs.
//!
//! A call passes through these steps: `service` (the protocol) → `call` (tensors to sequences) →
//! `packages` (loaded on first use) → `pool` (admission, then one sequence per thread) → `compute`
//! (the model) → `response` (results to tensors). The process has no database and no Redis; it reads
//! only the artifact store.

mod call;
mod compute;
mod deadline;
mod metadata;
mod outcome;
mod package;
mod packages;
mod pool;
mod process;
mod response;
mod service;
pub mod settings;
mod texts;
mod times;

pub use process::{run, worker_threads};
