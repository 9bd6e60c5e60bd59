//! Evals that wait for a prediction job's output. A trigger starts or ends them together with
//! that job.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::JobId;

/// Returns which prediction jobs, when they failed or were cancelled, ended the eval that
/// waited for their output.
pub async fn ended_by(db: impl PgExecutor<'_>, prediction_ids: &[&str]) -> Result<Vec<JobId>> {
    let ended = sqlx::query_scalar!(
        r#"
        /* all tenants: the caller has just finished these jobs, which can belong to several organizations */
        select p.id as "id: JobId"
        from jobs p
            join jobs e on e.id = p.eval_job_id
        where p.id = any($1)
          and p.status in ('failed', 'cancelled')
          and e.status = p.status
          -- An eval that was cancelled before has an earlier time.
          and e.finished_at >= p.finished_at
        "#,
        prediction_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(ended)
}
