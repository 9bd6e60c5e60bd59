//! Scoring: predictions against the hidden answers of a suite.
//!
//! `docs/metrics.md` defines each metric. One file computes the figures of one family of metrics;
//! the uncertainty of a figure comes from [`stats::confidence`](crate::stats::confidence).

mod answer_table;
mod labels;
mod numbers;
mod packed_u32;
mod probabilities;
mod ranking;
mod ranks;
mod result;
mod scorer;
mod trivial;

pub use answer_table::{AnswerTable, Builder};
pub use result::{Failure, Figures, Score, Sealed};
pub use scorer::{Progress, Scorer, score, score_and_hash};
pub use trivial::{Trivial, best_trivial, trivial_submissions};

#[cfg(test)]
mod tests;
