//! Suites, their publication and their commitments.

pub mod baselines;
pub mod commitment;
pub mod publish;
pub mod suite;
