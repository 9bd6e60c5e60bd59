//! Everything that turns predictions into figures, as pure functions: reading predictions, scoring them against the hidden
//! answers of a suite, comparing two jobs, and deciding how much of a score is disclosed.
//!
//! What may not live here: I/O, clocks, databases, HTTP.

mod answer;
pub mod calibration;
pub mod compare;
mod error;
pub mod item_scores;
pub mod json;
mod metric;
pub mod prediction;
mod release;
pub mod score;
mod sum;

pub use answer::{Answer, AnswersCheck};
pub use error::{Corrupt, FieldError};
pub use metric::{Family, K, Metric, Scoring};
pub use release::{Decimals, Ladder, Release, Step};
pub use sum::Sum;
