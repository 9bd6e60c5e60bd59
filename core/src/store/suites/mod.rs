//! Suites, their publication and their commitments.

pub mod baselines;
pub mod commitment;
pub mod grant;
pub mod owned_suite;
pub mod publish;
pub mod retirement;
pub mod submitters;
pub mod suite;
