//! Item scores: their places, and the conditions under which they may be read.

use bytes::Bytes;
use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::job::JobStatus;
use crate::model::suite::SuiteId;

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

/// An eval's item scores, and the conditions under which they may be read.
pub struct Feedback {
    /// The job's status.
    pub status: JobStatus,
    /// The suite that the job is scored against.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// `true` if the suite's version allows reading single items' scores.
    pub per_item_feedback: bool,
    /// The version's item count.
    pub n_items: i32,
    /// The item scores, if they are stored with the job.
    pub scores_body: Option<Vec<u8>>,
    /// The item scores' object key, if they are in the artifact store.
    pub scores_key: Option<String>,
}

/// Returns the location and conditions of an organization's eval item scores.
pub async fn feedback(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<Feedback>> {
    let found = sqlx::query_as!(
        Feedback,
        r#"
        select
            j.status as "status: JobStatus",
            s.suite_id as "suite_id: SuiteId",
            s.version as suite_version,
            s.per_item_feedback,
            s.n_items,
            i.body as "scores_body?",
            j.scores_key
        from jobs j
        join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        left join stored_item_scores i on i.org_id = j.org_id and i.job_id = j.id
        where j.org_id = $1
          and j.id = $2
          and j.type = 'eval'
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// A job's properties that a comparison needs.
#[derive(Debug, Clone)]
pub struct ComparedJob {
    /// The job's id.
    pub job_id: JobId,
    /// The job's status.
    pub status: JobStatus,
    /// The suite that the job is scored against.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// The version's metric.
    pub metric: String,
    /// The version's disclosure policy.
    pub release: String,
    /// The submissions that the version permits an organization, per day and for good. `None` if
    /// unlimited.
    pub max_submissions_per_day: Option<i32>,
    #[expect(missing_docs, reason = "see max_submissions_per_day")]
    pub max_submissions: Option<i32>,
    /// Items that the scores cover: those that are not sealed.
    pub n_items: i32,
    /// `true` if the items are in clusters.
    pub is_clustered: bool,
    /// The unit that has equal weights in the version's values: see
    /// [`Average`](assay_eval::clusters::Average).
    pub average: String,
    /// The job's score, if it succeeded.
    pub value: Option<f64>,
    /// `true` if the score has a standard error.
    pub has_stderr: bool,
    /// The item scores, if they are stored with the job.
    pub scores_body: Option<Vec<u8>>,
    /// The item scores' object key, if they are in the artifact store.
    pub scores_key: Option<String>,
}

/// Returns the jobs that are evals of the organization.
pub async fn compared(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_ids: &[&JobId],
) -> Result<Vec<ComparedJob>> {
    let ids: Vec<&str> = job_ids.iter().map(|id| id.as_str()).collect();
    let found = sqlx::query_as!(
        ComparedJob,
        r#"
        select
            j.id as "job_id: JobId",
            j.status as "status: JobStatus",
            s.suite_id as "suite_id: SuiteId",
            s.version as suite_version,
            s.metric,
            s.release,
            s.max_submissions_per_day,
            s.max_submissions,
            s.n_items - s.n_sealed as "n_items!",
            s.n_clusters is not null as "is_clustered!",
            s.average,
            (j.result ->> 'value')::float8 as value,
            (j.result ->> 'stderr') is not null as "has_stderr!",
            i.body as "scores_body?",
            j.scores_key
        from jobs j
        join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        left join stored_item_scores i on i.org_id = j.org_id and i.job_id = j.id
        where j.org_id = $1
          and j.id = any($2)
          and j.type = 'eval'
        "#,
        org_id.as_str(),
        &ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(found)
}
