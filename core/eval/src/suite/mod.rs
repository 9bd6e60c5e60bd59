//! Suites: the folder that an operator publishes, and its hidden answers.

mod access;
pub(crate) mod answers;
#[cfg(test)]
mod average_tests;
mod bad_suite;
mod baselines;
mod board_mode;
pub(crate) mod catalog;
mod cluster_lint;
mod commitment;
mod folder;
mod folder_check;
mod folder_clusters;
mod folder_floor;
mod folder_rules;
mod folder_skill;
mod folder_slices;
mod folder_tables;
mod groups;
mod item_columns;
mod lines;
mod names;
mod options;
#[cfg(test)]
mod quantile_tests;
pub(crate) mod retest;
pub(crate) mod retest_answers;
mod sequence_paths;
mod suite_toml;

pub use access::Access;
pub use bad_suite::BadSuite;
pub use baselines::{Baseline, BaselineKind, baselines_sha256};
pub use board_mode::BoardMode;
pub use catalog::{CatalogLine, FolderCatalog};
pub use cluster_lint::{CandidateSource, ClusterCandidate};
pub use commitment::{LinesDigest, Opening, SealSeed, write_answer_line, write_line};
pub use folder::SuiteFolder;
pub use folder_check::FolderReport;
pub use folder_floor::FolderFloor;
pub use folder_rules::FolderRules;
pub use folder_slices::FolderSlices;
pub use groups::{GroupField, GroupLabels, Groups};
pub use lines::{
    AnswerLines, ClusterLabels, FolderGroups, FolderItem, SkillLabels, SliceLabels, read_clusters,
};
pub use names::{VERSION_MAX, is_suite_id, is_version};
pub use retest::{FolderRetest, RetestLine};
pub use sequence_paths::{SequencePaths, value_at};
pub use suite_toml::{ClusterKey, Protection, SkillKey, SliceKeys};
