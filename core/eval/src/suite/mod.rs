//! Suites: the folder that an operator publishes, and its hidden answers.

mod access;
pub(crate) mod answers;
#[cfg(test)]
mod average_tests;
mod bad_suite;
mod baselines;
mod board_mode;
#[cfg(test)]
mod canary_tests;
pub(crate) mod catalog;
mod cluster_lint;
mod column_names;
mod commitment;
mod data_table;
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
mod metadata;
mod names;
mod options;
#[cfg(test)]
mod quantile_tests;
pub(crate) mod retest;
pub(crate) mod retest_answers;
mod sequence_paths;
mod suite_files;
mod suite_toml;
mod toml_keys;

pub use access::Access;
pub use bad_suite::{BadSuite, BadSuiteCode, shown};
pub use baselines::{Baseline, BaselineKey, BaselineKind, baselines_sha256};
pub use board_mode::BoardMode;
pub use catalog::{CatalogLine, FolderCatalog};
pub use cluster_lint::{CandidateSource, ClusterCandidate};
pub use column_names::looks_personal;
pub use commitment::{
    LinesDigest, Opening, SealSeed, derived_seal_seed, write_answer_line, write_line,
};
pub use data_table::{DataTable, TableFormat};
pub use folder::SuiteFolder;
pub use folder_check::FolderReport;
pub use folder_floor::FolderFloor;
pub use folder_rules::FolderRules;
pub use folder_slices::FolderSlices;
pub use groups::{GroupField, GroupLabels, Groups};
pub use lines::{
    AnswerChecks, AnswerLines, ClusterLabels, FolderGroups, FolderItem, SkillLabels, SliceLabels,
    check_input, item_id_error, read_clusters,
};
pub use metadata::{SuiteLink, SuiteMetadata, Visibility, is_bidirectional};
pub use names::{ANSWERS, ITEMS, SUITE, VERSION_MAX, is_file_name, is_suite_id, is_version};
pub use options::parse_people;
pub use retest::{FolderRetest, RetestLine};
pub use sequence_paths::{SequencePaths, value_at};
pub use suite_files::SuiteFiles;
pub use suite_toml::{ClusterKey, Protection, SkillKey, SliceKeys, SuiteDefinition};
