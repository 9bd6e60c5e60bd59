//! Score receipts: signed statements about jobs' disclosed figures.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, ReceiptId, SuiteId};
use crate::model::random;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

/// The parts in a job's receipt that the database does not have when the job ends.
#[derive(Debug, Clone)]
pub struct NewReceipt {
    /// The receipt's id.
    pub id: ReceiptId,
    /// The SHA-256 over the scored predictions' normal form.
    pub predictions_sha256: [u8; 32],
    /// The statement's [`nonce`].
    pub nonce: String,
    /// The organization's salt on the suite's version, if it has none yet.
    pub salt: [u8; 32],
    /// The holders whose allowances the submission uses.
    pub holders: Vec<String>,
}

impl NewReceipt {
    /// Creates a receipt with a random id.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub fn new(predictions_sha256: [u8; 32], holders: Vec<String>) -> Result<Self> {
        Ok(Self {
            id: ReceiptId::random()?,
            predictions_sha256,
            nonce: nonce()?,
            salt: random::bytes()?,
            holders,
        })
    }
}

/// Returns 16 random bytes in base64url, which keep a statement from being guessed by its hash.
///
/// # Errors
/// If the operating system has no random bytes.
pub fn nonce() -> Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::bytes::<16>()?))
}

text_enum! {
    /// The figures that a receipt states.
    pub enum ReceiptFigures {
        /// Those over all items of the suite.
        All = "all",
        /// Those over the open items of a suite with sealed ones.
        Open = "open",
        /// Those over the sealed items of a final job, after the close.
        Sealed = "sealed",
        /// Those on the board of a suite with a ladder, after the close.
        Board = "board",
    }
}

/// A signed statement about the disclosed figures of a job.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Receipt {
    /// The id of the receipt, which the statement contains too.
    pub id: ReceiptId,
    /// The id of the job.
    pub job_id: JobId,
    /// The signed statement, for readers: an in-toto statement (version 1) with the predicate
    /// `urn:assay:eval-result:v1`. It is the decoded payload of `jws`.
    #[schema(value_type = Object)]
    pub statement: Value,
    /// The statement as a compact JSON Web Signature with Ed25519.
    pub jws: String,
    /// The place in the transparency log. Null in the first seconds.
    pub log: Option<LogPlace>,
}

/// The place of a signed statement in the transparency log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LogPlace {
    /// The origin of the log, which is also the name of its key.
    pub origin: String,
    /// The index of the entry: the SHA-256 of the signed statement.
    #[schema(minimum = 0)]
    pub index: i64,
    /// The proof that the entry is in the tree of a signed checkpoint, as text:
    /// `c2sp.org/tlog-proof@v1`.
    pub proof: String,
}

/// The salt with which the receipts of an organization on a version of a suite name it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ReceiptOpening {
    /// The id of the organization.
    pub org_id: OrgId,
    /// 32 bytes in lower-case hex. `org_hash` of the receipts is the SHA-256 of these bytes followed
    /// by `org_id`.
    #[schema(min_length = 64, max_length = 64)]
    pub org_salt: String,
}

/// The commitment of a suite's version to its items and answers.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Commitment {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version.
    pub suite_version: String,
    /// SHA-256(salt ‖ SHA-256(items) ‖ SHA-256(answers)) in lower-case hex. With sealed items, the
    /// hashed bytes end with the seed that draws them.
    #[schema(min_length = 64, max_length = 64)]
    pub suite_commitment: String,
    /// The time of the publication.
    pub published_at: Timestamp,
    /// The time of the commitment: that of the publication.
    pub committed_at: Timestamp,
    /// The signed statement, for readers: an in-toto statement (version 1) with the predicate
    /// `urn:assay:suite:v1`. It is the decoded payload of `jws`.
    #[schema(value_type = Object)]
    pub statement: Value,
    /// The statement as a compact JSON Web Signature with Ed25519.
    pub jws: String,
    /// The place in the transparency log. Null in the first seconds.
    pub log: Option<LogPlace>,
    /// The opening of the commitment. Null until the version has retired.
    pub opening: Option<SuiteOpening>,
}

/// The opening of the commitment of a retired version of a suite.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SuiteOpening {
    /// The time at which the version retired.
    pub retired_at: Timestamp,
    /// The salt: 32 bytes in lower-case hex.
    #[schema(min_length = 64, max_length = 64)]
    pub salt: String,
    /// The seed that draws the sealed items: 32 bytes in lower-case hex. Null without sealed items.
    #[schema(min_length = 64, max_length = 64)]
    pub seed: Option<String>,
    /// The SHA-256 of the file of items in lower-case hex.
    #[schema(min_length = 64, max_length = 64)]
    pub items_sha256: String,
    /// The SHA-256 of the file of answers in lower-case hex.
    #[schema(min_length = 64, max_length = 64)]
    pub answers_sha256: String,
    /// The path of the items, as NDJSON.
    pub items_url: String,
    /// The path of the answers, as NDJSON.
    pub answers_url: String,
    /// The SHA-256 of the file of retest answers in lower-case hex. Absent without a retest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 64, max_length = 64)]
    pub retest_sha256: Option<String>,
    /// The path of the retest answers, as NDJSON. Absent without a retest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retest_url: Option<String>,
}
