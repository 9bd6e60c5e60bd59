//! Item score places.

use bytes::Bytes;

/// A job's item score place.
#[derive(Debug, Clone)]
pub enum ItemScoresIn {
    /// They are stored with the job, in `stored_item_scores`.
    Row(Bytes),
    /// They are in the artifact store under this key.
    Object(String),
}

/// The most item score bytes that are stored in `stored_item_scores`: about a database
/// page. Larger ones would fill it, because they stay for a month.
pub const ITEM_SCORES_ROW_BYTES_MAX: u64 = 8 * 1024;

impl ItemScoresIn {
    /// Returns the place from both places' columns. `None` if both are null.
    pub fn from_columns(body: Option<Vec<u8>>, key: Option<String>) -> Option<Self> {
        let in_row = body.map(|body| Self::Row(body.into()));
        in_row.or(key.map(Self::Object))
    }
}
