//! The client of the engines, against engines in this process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod codes;
mod continuations;
mod failures;
mod fake_engine;
mod ids;
mod load;
