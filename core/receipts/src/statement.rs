//! The signed statements: in-toto statements (version 1) about a job's figures, a suite's commitment,
//! and a receipt key.
//!
//! The signature covers a statement's exact bytes, so it has no canonical form. Readers reject
//! unknown and repeated fields.

use serde::{Deserialize, Serialize};

/// Every statement's `_type`.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// `predicateType` for a job's figures.
pub const EVAL_RESULT: &str = "urn:assay:eval-result:v1";

/// `predicateType` for a suite's commitment.
pub const SUITE: &str = "urn:assay:suite:v1";

/// `predicateType` for a receipt key change.
pub const KEY: &str = "urn:assay:key:v1";

/// A statement with a predicate in this type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement<P> {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub r#type: String,
    /// The statement's subject: exactly one.
    pub subject: [Subject; 1],
    /// The predicate's type.
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// The claim.
    pub predicate: P,
}

/// A statement's subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// `predictions`, `suite` or `receipt-key`.
    pub name: String,
    /// The subject's digest.
    pub digest: Digest,
}

/// A subject's digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// The SHA-256 in lower-case hex.
    pub sha256: String,
}

impl<P> Statement<P> {
    /// Creates a statement about one subject.
    pub fn new(predicate_type: &str, subject: &str, sha256: String, predicate: P) -> Self {
        Self {
            r#type: STATEMENT_TYPE.into(),
            subject: [Subject {
                name: subject.into(),
                digest: Digest { sha256 },
            }],
            predicate_type: predicate_type.into(),
            predicate,
        }
    }
}

/// The figures that a receipt states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figures {
    /// Those over all items of the suite.
    All,
    /// Those over a sealed suite's open items.
    Open,
    /// Those over the sealed items, after the close.
    Sealed,
    /// Those on the board of a suite with a ladder, after the close.
    Board,
}

/// The submissions that a value covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueScope {
    /// The job's own predictions.
    ThisSubmission,
    /// The best submission so far, under a ladder.
    BestSoFar,
}

/// A receipt's claim: figures of a job that the platform has disclosed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalResult {
    /// The receipt's id.
    pub receipt_id: String,
    /// The job's id.
    pub job_id: String,
    /// SHA-256(`org_salt` ‖ `org_id`) in lower-case hex.
    pub org_hash: String,
    /// The suite.
    pub suite_id: String,
    /// Its version.
    pub suite_version: String,
    /// Its commitment, in lower-case hex.
    pub suite_commitment: String,
    /// The build of the scoring library.
    pub hfm_sha: String,
    /// The metric of `value`.
    pub metric: String,
    /// The disclosure policy.
    pub release: String,
    /// The figures that are stated.
    pub figures: Figures,
    /// The submissions that `value` covers.
    pub value_scope: ValueScope,
    /// The value, in metric units.
    pub value: f64,
    /// Its 95 % confidence interval, if it is disclosed.
    pub ci95: Option<[f64; 2]>,
    /// The interval's method.
    pub ci_method: Option<String>,
    /// Items that the value covers.
    pub n: i64,
    /// Predictions in the submission.
    pub n_submitted: i64,
    /// Items without a prediction.
    pub n_missing: i64,
    /// This submission's number, from 1, among those that share its limits.
    pub submission_number: i64,
    /// The job's end.
    pub finished_at: String,
    /// The statement's time.
    pub issued_at: String,
    /// 16 random bytes in base64url.
    pub nonce: String,
    /// The group field of the items' clusters. This and the next two fields are present if and only
    /// if the suite has clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The number of clusters among the items that the value covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_clusters: Option<i64>,
    /// `item` if the value is the metric over all items, or `cluster` if it is the mean over clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<String>,
    /// `true` if the organization shares limits with the suite's publisher. Absent if the suite is the
    /// operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_publisher: Option<bool>,
}

/// The claim about a suite's publication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuitePublication {
    /// The suite.
    pub suite_id: String,
    /// Its version.
    pub suite_version: String,
    /// The commitment to its items and answers, in lower-case hex.
    pub suite_commitment: String,
    /// The metric.
    pub metric: String,
    /// Item count, open and sealed.
    pub n_items: i64,
    /// The disclosure policy.
    pub release: String,
    /// The bounds of one item's loss.
    pub clip: Option<[f64; 2]>,
    /// The time at which the suite and its board close.
    pub closes_at: Option<String>,
    /// `off`, `live` or `at_close`.
    pub board: String,
    /// The time of the publication.
    pub published_at: String,
    /// The time of the commitment: that of the publication.
    pub committed_at: String,
    /// The group field of the items' clusters, or `none` if the publisher states that items are
    /// independent. Absent if nothing is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// `item` if a value is the metric over all items, or `cluster` if it is the mean over clusters.
    /// Present if and only if the suite has clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<String>,
    /// The group fields with slices. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<String>,
    /// A slice's smallest item count. Present if and only if there are slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_min: Option<i64>,
    /// The levels of predicted quantiles. Absent if predictions are no quantiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
    /// The commitment to the baselines' predictions: SHA-256(salt ‖ the SHA-256 of each file's normal
    /// form, in order), in lower-case hex. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baselines_sha256: Option<String>,
    /// The options of each answer, in their order. Absent if the suite names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The baseline of the skill. Absent if results have no skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<SkillClaim>,
    /// The SHA-256 of the catalog's lines, in lower-case hex. Absent if the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog_sha256: Option<String>,
}

/// The baseline of the skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillClaim {
    /// `uniform` or `marginal`.
    pub baseline: String,
    /// The group field by whose values the items are compared with the baseline. Absent if all items
    /// are compared together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A receipt key change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyAction {
    /// The key signs from now on.
    Added,
    /// Statements at this index in the log and later that the key signed are invalid.
    Revoked,
}

/// The claim about a receipt key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyChange {
    /// The change.
    pub action: KeyAction,
    /// The key's id.
    pub kid: String,
    /// The 32 bytes of the key in base64url.
    pub x: String,
    /// The time of the change.
    pub at: String,
    /// The log index from which a revoked key is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at_index: Option<u64>,
}
