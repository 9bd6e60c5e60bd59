//! Publishers' requests to retire versions of their suites.

use sha2::{Digest as _, Sha256};

use crate::model::ids::SuiteId;
use crate::model::text_enum::text_enum;

/// Wrong opening keys that a publisher can send for a suite in an hour.
pub const WRONG_KEYS_PER_HOUR: i64 = 5;

text_enum! {
    /// A retirement's outcome.
    pub enum RetirementOutcome {
        /// The version has retired.
        Done = "done",
        /// The opening key is another one.
        WrongKey = "wrong_key",
        /// The version has not closed yet.
        NotClosed = "not_closed",
        /// The version's board is not final yet.
        BoardNotFinal = "board_not_final",
        /// Its execution has failed several times.
        Failed = "failed",
        /// The operator has removed the version.
        Removed = "removed",
        /// Other versions hide the same answers.
        AnswersShared = "answers_shared",
    }
}

/// Returns the hash that a request stores instead of the opening key, so that nobody can send the request for another
/// version: SHA-256(`assay retire v1` ‖ key ‖ suite id ‖ version).
pub fn key_hash(opening_key: &[u8; 32], suite_id: &SuiteId, version: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"assay retire v1");
    hash.update(opening_key);
    hash.update(suite_id.as_str());
    hash.update(version);
    hash.finalize().into()
}
