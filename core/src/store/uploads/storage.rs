//! The bytes that an organization stores, and the records for inline predictions in the artifact store.

use sqlx::PgExecutor;

use super::cleanup::CLEANUP_DELAY;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// Records that these submissions' predictions belong to jobs. Returns the submissions that
/// cleanup has not abandoned: the others' objects may be gone.
pub async fn accept(db: &mut PgConnection, job_ids: &[JobId]) -> Result<Vec<JobId>> {
    let job_ids: Vec<&str> = job_ids.iter().map(JobId::as_str).collect();
    let accepted = sqlx::query_scalar!(
        r#"
        /* all tenants: one transaction stores the jobs of several organizations */
        update stored_predictions
        set accepted_at = now()
        where job_id = any($1)
          and abandoned_at is null
        returning job_id as "job_id: JobId"
        "#,
        &job_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(accepted)
}

/// Deletes the record for predictions whose object was removed, unless they belong to a job.
pub async fn delete_unaccepted(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<()> {
    sqlx::query!(
        "
        delete from stored_predictions
        where org_id = $1
          and job_id = $2
          and accepted_at is null
        ",
        org_id.as_str(),
        job_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the bytes that the organization stores. Exact in a transaction that has changed them,
/// because it holds the lock on the row.
pub async fn used(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<i64> {
    let bytes = sqlx::query_scalar!(
        r#"select coalesce((select bytes from org_storage where org_id = $1), 0) as "bytes!""#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(bytes)
}

/// Returns the latest time at which storage becomes free, and the seconds until then: the first
/// upload's expiry. Without uploads, jobs' predictions take the space; they are removed
/// [`CLEANUP_DELAY`] after their job has finished.
pub async fn frees_at(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<(Timestamp, u32)> {
    let row = sqlx::query!(
        r#"
        select
            now() as "now!: Timestamp",
            coalesce(
                (
                    select min(expires_at)
                    from uploads
                    where org_id = $1
                      and status in ('pending', 'ready')
                      and deleted_at is null
                      and expires_at > now()
                ),
                now() + $2::float8 * interval '1 second'
            ) as "at!: Timestamp"
        "#,
        org_id.as_str(),
        CLEANUP_DELAY.as_secs_f64()
    )
    .fetch_one(db)
    .await?;
    Ok((row.at, row.now.seconds_until(row.at)))
}
