//! Jobs as their organization sees them.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::job::{EvalResult, FailureCode, JobRow, JobStatus, JobType};
use crate::suite::SuiteId;
use crate::{JobId, OrgId, Result, Timestamp};

/// A job of the organization.
pub async fn find(db: impl PgExecutor<'_>, org_id: &OrgId, job_id: &JobId) -> Result<Option<JobRow>> {
    let row = sqlx::query_as!(
        JobRow,
        r#"select id as "id: JobId", org_id as "org_id: OrgId", type as "type: JobType", status as "status: JobStatus", request_id, label,
                  hfm_sha, suite_id as "suite_id: SuiteId", suite_version, attempts,
                  created_at as "created_at: Timestamp", started_at as "started_at: Timestamp", finished_at as "finished_at: Timestamp",
                  result as "result: Json<EvalResult>", error_code as "error_code: FailureCode", error_message
           from jobs where org_id = $1 and id = $2"#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}
