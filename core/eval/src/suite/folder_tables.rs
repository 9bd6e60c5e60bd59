//! The answers of a folder in memory.

use crate::score::AnswerTable;

/// The open and the sealed items' answers.
pub(super) struct FolderTables {
    pub(super) open: AnswerTable,
    /// `None` without sealed items.
    pub(super) sealed: Option<AnswerTable>,
}
