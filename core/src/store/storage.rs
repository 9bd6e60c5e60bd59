//! How many bytes an organization stores, and the inline predictions that are recorded before they are written.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;

/// Records the inline predictions of a submission, before they are written to the artifact store.
pub async fn reserve(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
    bytes: i64,
) -> Result<()> {
    sqlx::query!(
        "insert into stored_predictions (org_id, job_id, bytes) values ($1, $2, $3)",
        org_id.as_str(),
        job_id.as_str(),
        bytes
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Records that the predictions are those of a job. Returns `false` if cleanup has given the submission up: then its object may be
/// gone.
pub async fn accept(db: &mut PgConnection, org_id: &OrgId, job_id: &JobId) -> Result<bool> {
    let done = sqlx::query!(
        "update stored_predictions set accepted_at = now() where org_id = $1 and job_id = $2 and abandoned_at is null",
        org_id.as_str(),
        job_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the record of predictions whose object was removed. Those of a job stay.
pub async fn forget(db: impl PgExecutor<'_>, org_id: &OrgId, job_id: &JobId) -> Result<()> {
    sqlx::query!(
        "delete from stored_predictions where org_id = $1 and job_id = $2 and accepted_at is null",
        org_id.as_str(),
        job_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// How many bytes the organization stores. Exact in a transaction that has changed them: it then holds the row's lock.
pub async fn used(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<i64> {
    let bytes = sqlx::query_scalar!(
        r#"select coalesce((select bytes from org_storage where org_id = $1), 0) as "bytes!""#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(bytes)
}

/// When storage becomes free at the latest, and in how many seconds: when the first upload expires. Without uploads it is the
/// predictions of jobs that take the space; those are removed a minute after their job has finished.
pub async fn frees_at(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<(Timestamp, u32)> {
    let row = sqlx::query!(
        r#"select now() as "now!: Timestamp",
                  coalesce((select min(expires_at) from uploads
                            where org_id = $1 and status in ('pending', 'ready') and deleted_at is null and expires_at > now()),
                           now() + interval '1 minute') as "at!: Timestamp""#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((row.at, row.now.seconds_until(row.at)))
}
