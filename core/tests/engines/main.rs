//! The client of the engines, against engines in this process.

mod codes;
mod continuations;
mod failures;
mod fake_engine;
mod ids;
mod load;
