//! Scoring: predictions against a suite's hidden answers.
//!
//! `docs/metrics.md` defines each metric. One file computes the figures for one metric family;
//! a figure's uncertainty comes from [`stats::confidence`](crate::stats::confidence).

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
pub use result::{ClusterFigures, Failure, Figures, Score, Sealed};
pub use scorer::{Progress, Scorer, score, score_and_hash};
pub use trivial::{Trivial, best_trivial, trivial_submissions};

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
