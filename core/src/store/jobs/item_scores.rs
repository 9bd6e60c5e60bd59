//! The places of item scores.

use bytes::Bytes;

/// The place of a job's item scores.
#[derive(Debug, Clone)]
pub enum ItemScoresIn {
    /// They are stored with the job, in `stored_item_scores`.
    Row(Bytes),
    /// They are in the artifact store under this key.
    Object(String),
}

/// The largest number of bytes of item scores that are stored in `stored_item_scores`: about a
/// page of the database. Larger ones would fill it, because they stay for a month.
pub const ITEM_SCORES_ROW_BYTES_MAX: u64 = 8 * 1024;

impl ItemScoresIn {
    /// Returns the place from the columns of the two places. `None` if both are null.
    pub fn from_columns(body: Option<Vec<u8>>, key: Option<String>) -> Option<Self> {
        let in_row = body.map(|body| Self::Row(body.into()));
        in_row.or(key.map(Self::Object))
    }
}
