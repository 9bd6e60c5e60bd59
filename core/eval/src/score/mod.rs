//! Scoring: predictions against a suite's hidden answers.
//!
//! `docs/metrics.md` defines each metric. One file computes the figures for one metric family;
//! a figure's uncertainty comes from [`stats::confidence`](crate::stats::confidence).

mod accumulator;
mod agreement;
mod answer_shares;
mod answer_table;
mod by_cluster;
mod catalog;
mod ceiling;
mod cluster_average;
mod distributions;
mod joint;
mod label_set;
mod labels;
mod noise_floor;
mod numbers;
mod packed_u32;
mod part;
mod probabilities;
mod quantiles;
mod ranking;
mod ranks;
mod result;
mod retest_scores;
mod scored_items;
mod scorer;
mod shown_ids;
mod skill;
mod skill_baseline;
mod slice_figures;
mod slices;
mod trivial;
mod trivial_losses;
mod weighted_kappa;

pub use answer_table::{AnswerTable, Builder};
pub use catalog::{CATALOG_IDS_MAX, Catalog, CatalogBuilder};
pub use ceiling::CeilingBuilder;
pub use noise_floor::{noise_floor, noise_floor_scores};
pub use result::{ClusterFigures, Failure, Figures, Score, Sealed};
pub use retest_scores::{Ceiling, RetestScores, ShareOfCeiling};
pub use scorer::{Progress, Scorer, score, score_and_hash};
pub use skill::{Skill, SkillScores};
pub use skill_baseline::{SkillGroups, score_skill_baseline};
pub use slice_figures::{Gap, SliceFigures, SlicedField};
pub use trivial::{Trivial, best_trivial, score_trivial, trivial_submissions};

#[cfg(test)]
mod average_tests;
#[cfg(test)]
mod catalog_tests;
#[cfg(test)]
mod ceiling_tests;
#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod distribution_tests;
#[cfg(test)]
mod joint_tests;
#[cfg(test)]
mod quantile_tests;
#[cfg(test)]
mod skill_tests;
#[cfg(test)]
mod slice_tests;
#[cfg(test)]
mod tests;
