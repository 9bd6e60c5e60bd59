//! The dispatcher's statements. They act for all organizations.

use std::time::Duration;

use sqlx::PgExecutor;

use super::{PgConnection, PgPool};
use crate::job::ATTEMPTS_MAX;
use crate::{JobId, OrgId, Result, Timestamp, UploadId};

/// The channel on which the api says that there is something to dispatch.
pub const CHANNEL: &str = "assay_jobs";

/// The channel on which the database says which job has changed.
pub const CHANGED_CHANNEL: &str = "assay_job_changed";

/// The advisory lock that makes one dispatcher the leader for a round: the letters "assay".
const LEADER: i64 = 0x61_73_73_61_79;

/// A worker that was not heard of for this long is taken for dead.
pub const LEASE: Duration = Duration::from_secs(10);

/// Among how many of the jobs that wait longest organizations take turns. A backlog of any length costs a round no more
/// than this.
const TURNS: i64 = 5_000;

/// How many stuck jobs one sweep takes.
const SWEEP: i64 = 500;

/// Says to all dispatchers that there is something to do.
pub async fn notify(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!("select pg_notify($1, '')", CHANNEL).execute(db).await?;
    Ok(())
}

/// Whether this transaction leads now. The lock ends with the transaction.
pub async fn lead(db: &mut PgConnection) -> Result<bool> {
    let leads = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "leads!""#, LEADER).fetch_one(db).await?;
    Ok(leads)
}

/// A job that was taken back.
pub struct Swept {
    /// The job.
    pub job_id: JobId,
    /// The attempt that was given up.
    pub attempt: i32,
    /// Whether its time was over; otherwise its worker was gone.
    pub overdue: bool,
    /// Whether no try was left; otherwise it waits again.
    pub failed: bool,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When it was given up.
    pub ended_at: Timestamp,
    /// The trace that it belongs to, 32 hex digits.
    pub trace_id: String,
    /// The span in whose name it was stored, 16 hex digits.
    pub span_id: Option<String>,
}

/// Takes back jobs whose worker is gone or whose time is over: they wait again, or fail when no try is left, and then
/// the charge is given back. A worker that is there but was not heard of is taken for dead only if `silence_counts`:
/// just after the database was away, nobody can have been heard of.
pub async fn sweep(db: &mut PgConnection, silence_counts: bool) -> Result<Vec<Swept>> {
    let swept = sqlx::query_as!(
        Swept,
        r#"with stuck as (
             select j.id, j.attempts, j.deadline_at < now() as overdue, j.started_at, j.trace_id, j.span_id
             from jobs j
             where j.status = 'running'
               and (j.deadline_at < now()
                    or not exists (select from workers w where w.id = j.worker_id
                                   and (w.seen_at > now() - $1::float8 * interval '1 second' or not $4)))
             order by j.deadline_at limit $2 for update of j skip locked
         ), ended as (
             update job_attempts a set ended_at = now(), outcome = case when s.overdue then 'timeout' else 'lost' end
             from stuck s where a.job_id = s.id and a.attempt = s.attempts
         ), released as (
             update jobs j set status = 'queued', started_at = null, deadline_at = null, worker_id = null, dispatched_at = null, available_at = now()
             from stuck s where j.id = s.id and s.attempts < $3
         ), failed as (
             update jobs j set status = 'failed', finished_at = now(), deadline_at = null, worker_id = null,
                    error_code = case when s.overdue then 'timeout' else 'internal' end,
                    error_message = case when s.overdue then 'The job took longer than fifteen minutes in each of its tries.'
                                         else 'The job did not survive any of its tries.' end
             from stuck s where j.id = s.id and s.attempts >= $3
         )
         select id as "job_id: JobId", attempts as attempt, overdue as "overdue!", attempts >= $3 as "failed!",
                started_at as "started_at!: Timestamp", now() as "ended_at!: Timestamp", trace_id, span_id
         from stuck"#,
        LEASE.as_secs_f64(),
        SWEEP,
        ATTEMPTS_MAX,
        silence_counts
    )
    .fetch_all(&mut *db)
    .await?;
    let failed: Vec<&str> = swept.iter().filter(|swept| swept.failed).map(|swept| swept.job_id.as_str()).collect();
    if !failed.is_empty() {
        refund(db, &failed).await?;
    }
    Ok(swept)
}

/// How much there is to do, and for how long it has been.
pub struct Depth {
    /// Jobs that wait, counted up to 100,000.
    pub queued: f64,
    /// How long the one that waits longest could have been begun, in seconds.
    pub queued_seconds: f64,
    /// Jobs that run.
    pub running: f64,
    /// How long the one that runs longest has been running, in seconds.
    pub running_seconds: f64,
    /// Workers whose lease is alive.
    pub workers: f64,
}

/// The queue's depth.
pub async fn depth(db: &PgPool) -> Result<Depth> {
    // Each of these reads the head of an index of the jobs that have not ended, or a bounded part of it. Jobs of suspended
    // organizations wait for the operator, not for workers.
    let depth = sqlx::query_as!(
        Depth,
        r#"with suspended as (select array(select id from orgs where suspended_at is not null) as ids)
           select (select count(*) from (select from jobs where status = 'queued' and org_id <> all((select ids from suspended)::text[])
                                         limit 100000) waiting)::float8 as "queued!",
                  coalesce((select greatest(extract(epoch from now() - min(available_at)), 0) from jobs
                            where status = 'queued' and org_id <> all((select ids from suspended)::text[])), 0)::float8
                      as "queued_seconds!",
                  (select count(*) from jobs where status = 'running')::float8 as "running!",
                  coalesce((select extract(epoch from now() - min(deadline_at)) + $2::float8 from jobs where status = 'running'), 0)::float8
                      as "running_seconds!",
                  (select count(*) from workers where seen_at > now() - $1::float8 * interval '1 second')::float8 as "workers!""#,
        LEASE.as_secs_f64(),
        super::work::DEADLINE.as_secs_f64()
    )
    .fetch_one(db)
    .await?;
    Ok(depth)
}

/// Gives jobs' charges back to the months that they were charged to. Doing it again changes nothing.
pub async fn refund(db: &mut PgConnection, job_ids: &[&str]) -> Result<()> {
    // In one statement: until the transaction ends, submissions of these organizations wait.
    sqlx::query!(
        "with refund as (
             insert into usage_ledger (org_id, job_id, kind, eval_items, period_start)
             select org_id, job_id, 'refund', eval_items, period_start from usage_ledger where job_id = any($1) and kind = 'charge'
             on conflict do nothing
             returning org_id, period_start, eval_items
         )
         update usage u set eval_items = u.eval_items - r.eval_items
         from (select org_id, period_start, sum(eval_items)::bigint as eval_items from refund group by org_id, period_start) r
         where u.org_id = r.org_id and u.period_start = r.period_start",
        job_ids as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Forgets the processes that were not heard of for an hour.
pub async fn forget_workers(db: &mut PgConnection) -> Result<()> {
    sqlx::query!("delete from workers where seen_at < now() - interval '1 hour'").execute(db).await?;
    Ok(())
}

/// A job whose bell is to be rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// The job.
    pub job_id: JobId,
    /// How often it was rung, with this time.
    pub dispatch_no: i32,
    /// When it was chosen.
    pub dispatched_at: Timestamp,
}

/// Chooses at most `room` waiting jobs whose bell was not rung, or not answered for two minutes, and notes that it is.
/// Organizations take turns: each one's first job comes before any one's second.
pub async fn choose(db: &mut PgConnection, room: i64) -> Result<Vec<Ring>> {
    let mut rows = sqlx::query!(
        r#"with suspended as (
             select array(select id from orgs where suspended_at is not null) as ids
         ), waiting as (
             (select id, org_id, created_at from jobs
              where status = 'queued' and dispatched_at is null and available_at <= now()
                and org_id <> all((select ids from suspended)::text[])
              order by available_at, created_at limit $2)
             union all
             (select id, org_id, created_at from jobs
              where status = 'queued' and dispatched_at < now() - interval '2 minutes' and available_at <= now()
                and org_id <> all((select ids from suspended)::text[])
              order by dispatched_at limit $1)
         ), turns as (
             select id, created_at, row_number() over (partition by org_id order by created_at) as turn from waiting
         ), chosen as (
             select j.id, t.turn, t.created_at from jobs j join turns t on t.id = j.id
             order by t.turn, t.created_at limit $1 for update of j skip locked
         )
         update jobs j set dispatched_at = now(), dispatch_no = j.dispatch_no + 1
         from chosen c where j.id = c.id
         returning j.id as "id: JobId", j.dispatch_no, now() as "dispatched_at!: Timestamp", c.turn as "turn!",
                   c.created_at as "created_at: Timestamp""#,
        room,
        TURNS
    )
    .fetch_all(db)
    .await?;
    rows.sort_by_key(|row| (row.turn, row.created_at));
    Ok(rows.into_iter().map(|row| Ring { job_id: row.id, dispatch_no: row.dispatch_no, dispatched_at: row.dispatched_at }).collect())
}

/// Redis forgot: every waiting job's bell is to be rung again.
pub async fn unring(db: &PgPool) -> Result<u64> {
    let done =
        sqlx::query!("update jobs set dispatched_at = null where status = 'queued' and dispatched_at is not null").execute(db).await?;
    Ok(done.rows_affected())
}

/// An ended job, of which more is kept than anybody needs.
pub struct Untidy {
    /// The job.
    pub job_id: JobId,
    /// Its organization.
    pub org_id: OrgId,
    /// Where its submission is kept, if it came inline.
    pub input_key: Option<String>,
    /// How often it was begun.
    pub attempts: i32,
    /// Where the scores of its items are that count.
    pub scores_key: Option<String>,
}

/// Jobs that ended more than a minute ago, by when no attempt reads or writes any more, and were not tidied up.
pub async fn untidy_jobs(db: &PgPool) -> Result<Vec<Untidy>> {
    let jobs = sqlx::query_as!(
        Untidy,
        r#"select id as "job_id: JobId", org_id as "org_id: OrgId", input_key, attempts, scores_key from jobs
           where tidied_at is null and finished_at < now() - interval '1 minute' order by finished_at limit 1000"#
    )
    .fetch_all(db)
    .await?;
    Ok(jobs)
}

/// Notes that jobs were tidied up: their submissions are gone.
pub async fn note_tidied(db: &PgPool, job_ids: &[&str]) -> Result<()> {
    sqlx::query!("update jobs set input_key = null, tidied_at = now() where id = any($1) and finished_at is not null", job_ids as &[&str])
        .execute(db)
        .await?;
    Ok(())
}

/// The stored scores of a job's items, which have expired.
pub struct ExpiredScores {
    /// The job.
    pub job_id: JobId,
    /// Where the artifact store has them.
    pub scores_key: String,
}

/// How many expired item scores one statement reads.
pub const EXPIRED_SCORES_MAX: usize = 1000;

/// At most [`EXPIRED_SCORES_MAX`] item scores that have expired.
pub async fn expired_item_scores(db: &PgPool) -> Result<Vec<ExpiredScores>> {
    let expired = sqlx::query_as!(
        ExpiredScores,
        r#"select job_id as "job_id: JobId", scores_key from stored_item_scores where expires_at <= now() order by expires_at limit $1"#,
        EXPIRED_SCORES_MAX as i64
    )
    .fetch_all(db)
    .await?;
    Ok(expired)
}

/// Notes that the item scores of these jobs are to be removed: nobody reads them any more.
pub async fn withdraw_item_scores(db: &PgPool, job_ids: &[&str]) -> Result<()> {
    sqlx::query!("update jobs set scores_key = null where scores_key is not null and id = any($1)", job_ids as &[&str]).execute(db).await?;
    Ok(())
}

/// Notes that the item scores of these jobs were removed.
pub async fn forget_item_scores(db: &PgPool, job_ids: &[&str]) -> Result<()> {
    sqlx::query!("delete from stored_item_scores where expires_at <= now() and job_id = any($1)", job_ids as &[&str]).execute(db).await?;
    Ok(())
}

/// How long after its end an upload's objects are removed for good, in minutes: longer than a part may take to arrive, so
/// that nothing is left of one that was just coming.
const UPLOAD_REST: f64 = 20.0;

/// How many uploads one round ends or removes.
const UPLOADS: i64 = 100;

/// Ends the uploads whose time is over and that no job needs any more.
pub async fn expire_uploads(db: &mut PgConnection) -> Result<()> {
    // Whoever submits one of them now waits for these rows. Whether a job needs them is a statement of its own: one that
    // waited for a row would not see the job that was made meanwhile.
    let over: Vec<String> = sqlx::query_scalar!(
        "select id from uploads where status in ('pending', 'ready') and deleted_at is null and expires_at <= now()
         order by expires_at limit $1 for update skip locked",
        UPLOADS
    )
    .fetch_all(&mut *db)
    .await?;
    sqlx::query!(
        "update uploads u set status = 'expired'
         where u.id = any($1) and not exists (select from jobs j where j.upload_id = u.id and j.status in ('queued', 'running'))",
        &over
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An upload whose objects nobody needs any more.
pub struct EndedUpload {
    /// Whose it is.
    pub org_id: OrgId,
    /// The upload.
    pub id: UploadId,
}

/// Uploads that were dropped, failed or expired a while ago and still have objects.
pub async fn ended_uploads(db: &PgPool) -> Result<Vec<EndedUpload>> {
    let uploads = sqlx::query_as!(
        EndedUpload,
        r#"select org_id as "org_id: OrgId", id as "id: UploadId" from uploads
           where removed_at is null and (deleted_at is not null or status in ('failed', 'expired'))
             and coalesce(deleted_at, failed_at, expires_at) < now() - $2::float8 * interval '1 minute'
           limit $1"#,
        UPLOADS,
        UPLOAD_REST
    )
    .fetch_all(db)
    .await?;
    Ok(uploads)
}

/// Notes that all objects of these uploads were removed.
pub async fn forget_uploads(db: &PgPool, upload_ids: &[&str]) -> Result<()> {
    sqlx::query!(
        "with removed as (update uploads set removed_at = now() where id = any($1) returning id)
         delete from upload_parts p using removed r where p.upload_id = r.id",
        upload_ids as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// How many deleted organizations one round removes.
const ORGS: i64 = 10;

/// Organizations that were deleted a while ago and still have objects: as long ago as a part of an upload may take to arrive, so
/// that no request or attempt that was under way leaves any.
pub async fn deleted_orgs(db: &PgPool) -> Result<Vec<OrgId>> {
    let orgs = sqlx::query_scalar!(
        r#"select id as "id: OrgId" from orgs
           where deleted_at < now() - $2::float8 * interval '1 minute' and removed_at is null
           order by deleted_at limit $1"#,
        ORGS,
        UPLOAD_REST
    );
    Ok(orgs.fetch_all(db).await?)
}

/// Records that all objects of a deleted organization were removed.
pub async fn note_removed(db: &PgPool, org_id: &OrgId) -> Result<()> {
    sqlx::query!("update orgs set removed_at = now() where id = $1 and deleted_at is not null", org_id.as_str()).execute(db).await?;
    Ok(())
}
