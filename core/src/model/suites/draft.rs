//! Drafts: the files that an organization sends, checks and publishes as a version of its suite.

use assay_eval::suite;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::Sha256;
use utoipa::ToSchema;

use crate::model::error::Code;
use crate::model::ids::{DraftId, OrgId, SuiteId};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

/// The largest `suite.toml`, in bytes.
pub const DEFINITION_MAX: usize = 256 * 1024;

/// The most files in a draft.
pub const FILES_MAX: usize = 100;

/// The most unpublished drafts for an organization.
pub const OPEN_MAX: i64 = 20;

/// The most checks that an organization starts in an hour.
pub const CHECKS_PER_HOUR: i64 = 20;

/// The most errors in a report.
pub const ERRORS_MAX: usize = 100;

/// The definition's name among a draft's files.
pub const DEFINITION: &str = suite::SUITE;

/// Name of the opening key in the escrow, which no file can have.
pub const OPENING_KEY: &str = "opening.key";

/// Name of the list of files to check in the escrow, which no file can have.
pub const MANIFEST: &str = "manifest.json";

text_enum! {
    /// A draft's state.
    pub enum DraftStatus {
        /// The draft waits for files.
        Open = "open",
        /// The files are being checked.
        Checking = "checking",
        /// The draft can be published.
        Ready = "ready",
        /// The operator reviews the draft before it is published.
        InReview = "in_review",
        /// The files have errors, the version exists with other content, or the operator has rejected the draft.
        Failed = "failed",
        /// The draft is being published.
        Publishing = "publishing",
        /// The draft is a version of its suite.
        Published = "published",
        /// The draft was not checked or published in time.
        Expired = "expired",
    }
}

text_enum! {
    /// A failed draft's error code.
    pub enum DraftFailure {
        /// The files have errors, which the report lists.
        ValidationFailed = "validation_failed",
        /// A limit of the plan is reached.
        QuotaExceeded = "quota_exceeded",
        /// The version exists with other content, or the operator has removed it.
        Conflict = "conflict",
        /// The operator has rejected the draft. The message is the reason.
        Rejected = "rejected",
        /// The check failed three times, or took too long.
        Internal = "internal",
    }
}

impl From<DraftFailure> for Code {
    fn from(failure: DraftFailure) -> Self {
        match failure {
            DraftFailure::ValidationFailed => Self::ValidationFailed,
            DraftFailure::QuotaExceeded => Self::QuotaExceeded,
            DraftFailure::Conflict => Self::Conflict,
            DraftFailure::Rejected => Self::Forbidden,
            DraftFailure::Internal => Self::Internal,
        }
    }
}

/// The error of a failed draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DraftError {
    /// The error code.
    pub code: DraftFailure,
    /// A description for people. It can change.
    pub message: String,
}

/// A file of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DraftFile {
    /// The file name.
    pub name: String,
    /// The received bytes.
    #[schema(minimum = 0)]
    pub bytes: i64,
    /// The received parts.
    #[schema(minimum = 1)]
    pub parts: i64,
}

/// An error of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckError {
    /// The file name.
    pub file: String,
    /// The line, from 1. Absent if the error is about the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, nullable = false)]
    pub line: Option<i64>,
    /// The column of a line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, nullable = false)]
    pub column: Option<i64>,
    /// The field, column or key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// The id of the item, cut to 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub item_id: Option<String>,
    /// The kind of the error, such as `syntax`, `required`, `type`, `duplicate`, `unmatched`, `too_long` or `encoding`.
    pub reason: String,
    /// A description for people. It can change.
    pub message: String,
}

/// A warning of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckWarning {
    /// The kind of the warning: `folder` or `disclosure`.
    pub code: String,
    /// A description for people. It can change.
    pub message: String,
}

/// The report of a check.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DraftReport {
    /// The item count. Null if the files have errors.
    #[schema(minimum = 1)]
    pub n_items: Option<i64>,
    /// The sealed item count. Null if the files have errors.
    #[schema(minimum = 0)]
    pub n_sealed: Option<i64>,
    /// The uncompressed bytes of the items and answers. Null if the files have errors.
    #[schema(minimum = 0)]
    pub bytes: Option<i64>,
    /// The path of the items as readers will see them. Null if the files have errors.
    pub items_preview: Option<String>,
    /// The first errors. No message has a value of an answer.
    #[schema(max_items = 100)]
    pub errors: Vec<CheckError>,
    /// The error count.
    #[schema(minimum = 0)]
    pub n_errors: i64,
    /// Warnings for the publisher before the publication, which cannot be changed.
    pub warnings: Vec<CheckWarning>,
    /// The share of answers that attackers learn from scores. Null if the files have errors.
    #[schema(value_type = Option<Object>)]
    pub audit: Option<Map<String, Value>>,
}

/// A draft of the caller's organization in a listing, without its files and its report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DraftSummary {
    /// The draft id.
    pub id: DraftId,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The draft state.
    pub status: DraftStatus,
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version that the draft can become.
    pub version: String,
    /// The HMAC-SHA-256 of `suite.toml` with the opening key, in lower-case hex.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub definition_hmac: String,
    /// The user or key that created the draft.
    pub created_by: String,
    /// The time at which the draft was created.
    pub created_at: Timestamp,
    /// The time until which the draft can be checked, or, if it is ready, published.
    pub expires_at: Timestamp,
    /// The time at which the check ended. Null until then.
    pub checked_at: Option<Timestamp>,
    /// The time at which the draft was published. Null until then.
    pub published_at: Option<Timestamp>,
    /// True if the version had been published before with the same content. Null until the draft is published.
    pub was_published: Option<bool>,
    /// The error. Null unless the draft has failed.
    pub error: Option<DraftError>,
}

/// A draft of the caller's organization.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Draft {
    /// The draft without its files and its report.
    #[serde(flatten)]
    pub draft_summary: DraftSummary,
    /// The files that were received. Empty after the check, which deletes them.
    #[schema(max_items = 100)]
    pub files: Vec<DraftFile>,
    /// The report of the check. Null until it has ended.
    pub report: Option<DraftReport>,
    /// The opening key: only in the response that creates the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9a-f]{64}$", nullable = false)]
    pub opening_key: Option<String>,
}

/// A page of drafts, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Drafts {
    /// The drafts of the page.
    #[schema(max_items = 200)]
    pub drafts: Vec<DraftSummary>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<DraftId>,
}

/// A file that is sent with a new draft.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDraftFile {
    /// The name of the file, such as `votes.csv`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,100}$")]
    pub name: String,
    /// The file text.
    pub content: String,
}

/// A file to check.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileToCheck {
    /// The file name.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,100}$")]
    pub name: String,
    /// The part count.
    #[schema(minimum = 1, maximum = 10000)]
    pub parts: i32,
    /// The SHA-256 of its bytes as they were sent: 64 hex digits. The check compares it.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    pub sha256: Option<String>,
}

/// A file in the list that the checker reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// The file name.
    pub name: String,
    /// The ids of its parts, in their order.
    pub parts: Vec<String>,
    /// The SHA-256 of its bytes as they were sent, in lower-case hex, if the publisher gave it.
    pub sha256: Option<String>,
}

/// Returns the HMAC-SHA-256 (RFC 2104) of a definition with the opening key, in lower-case hex.
pub fn definition_hmac(opening_key: &[u8; 32], definition: &[u8]) -> String {
    // A 32-byte key has a valid length for every hash function.
    let mac = Hmac::<Sha256>::new_from_slice(opening_key);
    let hmac: [u8; 32] = mac
        .map(|mac| mac.chain_update(definition).finalize().into_bytes().into())
        .unwrap_or_default();
    hex::encode(hmac)
}

/// Returns `true` if a file of a draft can have this name. It is no path, and not that of a row that the platform stores itself.
pub fn is_file_name(name: &str) -> bool {
    suite::is_file_name(name)
        && !name.starts_with('.')
        && ![DEFINITION, OPENING_KEY, MANIFEST].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths() {
        assert!(is_file_name("votes.csv") && is_file_name("items.ndjson"));
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "suite.toml",
            "opening.key",
            "manifest.json",
            "é",
        ] {
            assert!(!is_file_name(name), "{name:?}");
        }
        assert!(is_file_name(&"n".repeat(100)) && !is_file_name(&"n".repeat(101)));
    }
}
