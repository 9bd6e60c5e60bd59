//! The fields that exports read in the API's resources. The fields have the API's names.

use serde::Deserialize;

/// A job.
#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    /// The job's id.
    pub id: String,
    /// The caller's name for the job.
    pub label: Option<String>,
    /// The job's versions.
    pub versions: Versions,
    /// A succeeded eval's result. `None` for other jobs.
    #[serde(default, deserialize_with = "eval_result")]
    pub result: Option<JobResult>,
}

/// A job's versions.
#[derive(Debug, Clone, Deserialize)]
pub struct Versions {
    /// The model, in prediction jobs.
    pub model_id: Option<String>,
}

/// An eval's result, without the figures that its receipts state.
#[derive(Debug, Clone, Deserialize)]
pub struct JobResult {
    /// The value's standard error.
    pub stderr: Option<f64>,
    /// `true` if the suite's publisher, or an organization that shares its allowance, made the submission.
    #[serde(default)]
    pub by_publisher: bool,
}

/// Reads a result if it is an eval's: a prediction job's has other fields.
fn eval_result<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<JobResult>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    if value.get("metric").is_none() {
        return Ok(None);
    }
    serde_json::from_value(value)
        .map(Some)
        .map_err(serde::de::Error::custom)
}

/// A receipt.
#[derive(Debug, Clone, Deserialize)]
pub struct Receipt {
    /// The receipt's id.
    pub id: String,
    /// The job's id.
    pub job_id: String,
    /// The signed statement.
    pub statement: Statement,
    /// The place in the transparency log. `None` in the first seconds.
    pub log: Option<LogPlace>,
}

/// A receipt's statement.
#[derive(Debug, Clone, Deserialize)]
pub struct Statement {
    /// The claim.
    pub predicate: Claim,
}

/// A receipt's claim: disclosed figures.
#[derive(Debug, Clone, Deserialize)]
pub struct Claim {
    /// The suite.
    pub suite_id: String,
    /// Its version.
    pub suite_version: String,
    /// Its commitment.
    pub suite_commitment: String,
    /// The scoring library's build.
    pub hfm_sha: String,
    /// The metric that `value` has.
    pub metric: String,
    /// The disclosure policy.
    pub release: String,
    /// The stated figures: `all`, `open`, `sealed` or `board`.
    pub figures: String,
    /// The value, in metric units.
    pub value: f64,
    /// The 95 % confidence interval, if it is disclosed.
    pub ci95: Option<[f64; 2]>,
    /// The interval's method.
    pub ci_method: Option<String>,
    /// The item count that the value covers.
    pub n: i64,
    /// The time at which the job finished.
    pub finished_at: String,
}

/// A receipt's place in the transparency log.
#[derive(Debug, Clone, Deserialize)]
pub struct LogPlace {
    /// The log's origin.
    pub origin: String,
    /// The entry's index.
    pub index: i64,
}

/// A job's entry on a board.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// The job's id.
    pub job_id: String,
    /// The name on the board.
    pub name: String,
    /// The time at which the entry was withdrawn.
    pub withdrawn_at: Option<String>,
}

/// A suite.
#[derive(Debug, Clone, Deserialize)]
pub struct Suite {
    /// The suite's id.
    pub suite_id: String,
    /// The current version.
    pub version: String,
    /// The description.
    pub description: String,
    /// The title.
    pub title: String,
    /// The publisher. `None` if it is the operator.
    pub owner: Option<SuiteOwner>,
    /// The callers who can see the suite.
    pub visibility: String,
    /// The license: an SPDX expression, or an https URL.
    pub license: Option<String>,
    /// The citation.
    pub citation: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
    /// The time at which the current version was published.
    pub published_at: String,
}

/// The organization that published a suite.
#[derive(Debug, Clone, Deserialize)]
pub struct SuiteOwner {
    /// The organization's name.
    pub name: String,
    /// A verified domain.
    pub domain: Option<String>,
}

/// A board's row.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct BoardRow {
    pub entry_id: String,
    pub name: Option<String>,
    pub org_name: Option<String>,
    pub org_domain: Option<String>,
    pub url: Option<String>,
    #[serde(default)]
    pub by_publisher: bool,
    pub tier: i64,
    pub rank_low: i64,
    pub rank_high: i64,
    pub value: f64,
    pub ci95: Option<[f64; 2]>,
    pub n_missing: i64,
    pub n_submissions: i64,
    pub n_withdrawn: i64,
    pub entered_at: String,
    pub withdrawn_at: Option<String>,
    pub receipt_id: Option<String>,
}
