//! The client of the engines, which run models behind the Open Inference Protocol.
//!
//! It encodes sequences as tensors, calls an engine within a deadline, and checks that each
//! sequence got its own, well-formed result. Each engine has permits and a circuit breaker, so a
//! failing engine affects neither other engines nor other requests. Histories are never logged.

mod batches;
mod breaker;
mod by_prediction;
mod calls;
mod checks;
mod code_calls;
mod codes;
mod early;
mod engines;
mod failure;
mod id_results;
mod ids;
mod item_tables;
mod logits;
mod metadata;
mod permits;
mod recovery;
mod replicas;
#[cfg(test)]
mod tests;

pub use calls::Priority;
pub use early::{EarlyEvent, EarlyEvents};
pub use engines::{CallOptions, Computed, EngineHealth, Engines};
