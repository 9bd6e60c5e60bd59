//! A signed statement's place in the log.

use serde::{Deserialize, Serialize};

/// A signed statement's place in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogPlace {
    /// The origin of the log, which is also the name of its key.
    pub origin: String,
    /// The index of the entry.
    pub index: u64,
    /// The proof that the entry is in the tree of a signed checkpoint, as text.
    pub proof: String,
}
