//! Final jobs, whose sealed figures are disclosed after their suite has closed.

use sqlx::PgConnection;

use super::allowance::{self, Use};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::job::{FINAL_JOBS_MAX, JobStatus, JobType};
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::now;

/// The result when a job is marked as final.
pub enum Finalized {
    /// The job is final, now or since before.
    Done,
    /// The organization has no such job.
    Missing,
    /// The job is no eval.
    NotEval,
    /// The job has not succeeded. Carries its status.
    NotSucceeded(JobStatus),
    /// The job's suite has no sealed items.
    NotSealed,
    /// The job's suite has closed. Carries the close time.
    Closed(Timestamp),
    /// The final job limit is reached.
    Full,
}

/// Marks a job as final: its sealed figures are disclosed after its suite has closed. Idempotent.
/// `db` must be in a transaction, which the caller commits.
///
/// The database's clock decides, read after all locks are held, so that no job is marked after the
/// close.
pub async fn finalize(db: &mut PgConnection, org_id: &OrgId, job_id: &JobId) -> Result<Finalized> {
    let job = sqlx::query!(
        r#"
        select
            j.type as "type: JobType",
            j.status as "status: JobStatus",
            s.suite_id as "suite_id?: SuiteId",
            s.version as "suite_version?",
            j.final_at is not null as "is_final!",
            s.n_sealed > 0 as "is_sealed?",
            s.closes_at as "closes_at?: Timestamp",
            s.closes_at <= clock_timestamp() as is_closed
        from jobs j
        left join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        where j.org_id = $1
          and j.id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(job) = job else {
        return Ok(Finalized::Missing);
    };
    if job.is_final {
        return Ok(Finalized::Done);
    }
    if job.r#type != JobType::Eval {
        return Ok(Finalized::NotEval);
    }
    let (Some(suite_id), Some(suite_version), Some(true), Some(closes_at)) = (
        job.suite_id,
        job.suite_version,
        job.is_sealed,
        job.closes_at,
    ) else {
        return Ok(Finalized::NotSealed);
    };
    if job.is_closed == Some(true) {
        return Ok(Finalized::Closed(closes_at));
    }
    if job.status != JobStatus::Succeeded {
        return Ok(Finalized::NotSucceeded(job.status));
    }
    let holders = allowance::holders_since_submission(db, org_id, job_id).await?;
    allowance::lock(db, &holders, &suite_id, &suite_version).await?;
    // A concurrent call may have marked the job before this one got the lock.
    let is_final = sqlx::query_scalar!(
        r#"
        select final_at is not null as "is_final!"
        from jobs
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    );
    if is_final.fetch_one(&mut *db).await? {
        return Ok(Finalized::Done);
    }
    if final_job_count(db, &holders, &suite_id, &suite_version).await? >= FINAL_JOBS_MAX {
        return Ok(Finalized::Full);
    }
    let done = sqlx::query!(
        "
        with present as materialized (
            select clock_timestamp() as at
        )
        update jobs j
        set final_at = p.at
        from present p
        where j.org_id = $1
          and j.id = $2
          and j.final_at is null
          and p.at < $3
        ",
        org_id.as_str(),
        job_id.as_str(),
        closes_at as Timestamp
    )
    .execute(&mut *db)
    .await?;
    if done.rows_affected() == 1 {
        // The job counts for all holders, also if they came to share an allowance after its
        // submission.
        let at = now(&mut *db).await?;
        allowance::record(
            db,
            org_id,
            &holders,
            Use::Final(job_id),
            &suite_id,
            &suite_version,
            at,
        )
        .await?;
    }
    Ok(if done.rows_affected() == 1 {
        Finalized::Done
    } else {
        Finalized::Closed(closes_at)
    })
}

/// Returns how many final jobs count for a suite's version, for the holder with the most.
async fn final_job_count(
    db: &mut PgConnection,
    holders: &[String],
    suite_id: &SuiteId,
    suite_version: &str,
) -> Result<i64> {
    let most = sqlx::query_scalar!(
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        select count(*) as "finals!"
        from suite_disclosures d
        join jobs j on j.id = d.job_id
        where d.holder = any($1)
          and d.suite_id = $2
          and d.suite_version = $3
          and d.kind = 'final'
          and j.final_at is not null
        group by d.holder
        order by 1 desc
        limit 1
        "#,
        holders,
        suite_id.as_str(),
        suite_version
    )
    .fetch_optional(db)
    .await?;
    Ok(most.unwrap_or(0))
}
