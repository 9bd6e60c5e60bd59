//! Suites: their hidden answers.

pub mod answers;
