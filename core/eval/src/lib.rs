//! Scoring, comparison and disclosure as pure functions: reading predictions, scoring them against
//! a suite's hidden answers, comparing two jobs, and deciding how much of a score is
//! disclosed.
//!
//! Nothing here uses a clock, a database or the network. Only `suite::folder` reads files.

pub mod board;
pub mod clusters;
pub mod compare;
pub mod content;
pub mod csv;
mod disclosure;
mod error;
pub mod item_scores;
pub mod json;
mod metric;
pub mod offline;
pub mod prediction;
mod quantile_levels;
pub mod score;
mod score_content;
mod scoring;
#[cfg(test)]
mod simulation;
pub mod skill;
pub mod slices;
pub mod stats;
pub mod suite;
pub mod text;

pub use disclosure::{Decimals, DisclosurePolicy, Fraction, Ladder, Step, known_at_most};
pub use error::{Corrupt, FieldError};
pub use metric::{Clip, Family, K, Metric, SignificanceTest};
pub use quantile_levels::QuantileLevels;
pub use scoring::{SCORER, Scoring};
pub use stats::compensated_sum::Sum;
pub use suite::answers::{Answer, AnswersCheck};
