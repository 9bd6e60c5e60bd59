//! The queue of jobs: the order in which workers are notified of them, and estimates of when they
//! end.

pub mod estimates;
pub mod measurements;
pub mod order;
#[cfg(test)]
mod simulation;
