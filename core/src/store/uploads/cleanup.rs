//! Removes unused objects and stopped workers' rows. The statements act for all organizations, each
//! on a bounded row count, so that none holds its locks for long.

use std::time::Duration;

use sqlx::{Connection as _, PgExecutor};

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, UploadId};
use crate::store::PgConnection;
use crate::store::db::try_lock;

/// The most rows that one statement reads or deletes.
pub const BATCH: usize = 500;

/// The advisory lock for the process that cleans up: the letters "clean".
const CLEANUP: i64 = 0x63_6c_65_61_6e;

/// The time after which a worker's row whose lease expired is deleted.
const WORKER_RETENTION: Duration = Duration::from_secs(60 * 60);

/// The time after a job's end by which a live attempt has stopped using its objects. The
/// reconciliation removes what a frozen worker writes later.
pub const CLEANUP_DELAY: Duration = Duration::from_secs(60);

/// The time after which a submission that recorded predictions and did not become a job is given
/// up.
const ABANDONED_AFTER: Duration = Duration::from_secs(15 * 60);

/// Tries to become the process that cleans up. The lock is released with the connection.
pub async fn lead(db: &mut PgConnection) -> Result<bool> {
    try_lock(db, CLEANUP).await
}

/// Deletes workers' rows whose lease has not been renewed for `WORKER_RETENTION`.
pub async fn delete_expired_workers(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!(
        "delete from workers where seen_at < now() - $1::float8 * interval '1 second'",
        WORKER_RETENTION.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A finished job with objects that are no longer needed.
pub struct CleanupCandidate {
    /// The job's id.
    pub job_id: JobId,
    /// The job's organization.
    pub org_id: OrgId,
    /// The inline predictions' object key.
    pub input_key: Option<String>,
    /// The number of attempts that were started.
    pub attempts: i32,
    /// The object key for the item scores that count.
    pub scores_key: Option<String>,
    /// `true` if the last attempt finished the job with a result.
    pub is_succeeded: bool,
    /// `true` if the predictions are kept, because the job can enter a board or has entered one.
    pub keeps_predictions: bool,
    /// The upload id whose prefix all attempts' outputs have, if the job is a
    /// prediction job.
    pub output_upload_id: Option<UploadId>,
}

/// Returns jobs that finished more than [`CLEANUP_DELAY`] ago and whose objects are not removed
/// yet.
pub async fn list_cleanup_candidates(db: impl PgExecutor<'_>) -> Result<Vec<CleanupCandidate>> {
    let jobs = sqlx::query_as!(
        CleanupCandidate,
        r#"
        /* all tenants: cleanup removes the objects of every organization */
        select
            id as "job_id: JobId",
            org_id as "org_id: OrgId",
            input_key,
            attempts,
            scores_key,
            status = 'succeeded' as "is_succeeded!",
            (
                type = 'eval'
                and status = 'succeeded'
                and exists (
                    select from boards b
                    where b.suite_id = jobs.suite_id
                      and b.suite_version = jobs.suite_version
                )
            ) as "keeps_predictions!",
            output_upload_id as "output_upload_id: UploadId"
        from jobs
        where cleaned_up_at is null
          and finished_at < now() - $2::float8 * interval '1 second'
        order by finished_at
        limit $1
        "#,
        BATCH as i64,
        CLEANUP_DELAY.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(jobs)
}

/// Records that these jobs' objects were removed, except for the predictions that jobs
/// keep.
pub async fn mark_cleaned_up(
    db: impl PgExecutor<'_>,
    job_ids: &[String],
    keeping: &[String],
) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        with cleaned as (
            update jobs
            set
                input_key = case when id = any($2) then input_key end,
                served_model = null,
                cleaned_up_at = now()
            where id = any($1)
              and finished_at is not null
            returning id, org_id, suite_id, suite_version
        ), kept as (
            insert into board_predictions (job_id, org_id, suite_id, suite_version)
            select id, org_id, suite_id, suite_version
            from cleaned
            where id = any($2)
            on conflict do nothing
        )
        delete from stored_predictions p
        using cleaned t
        where p.job_id = t.id
          and t.id <> all($2)
        ",
        job_ids,
        keeping
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Predictions that were kept for a board and are no longer needed.
pub struct UnneededPredictions {
    /// The id of the job.
    pub job_id: JobId,
    /// The predictions' object key, unless they are stored with the job or uploaded.
    pub input_key: Option<String>,
}

/// Returns jobs that did not enter their board, which has been closed for more than
/// [`CLEANUP_DELAY`], and whose predictions are still kept.
pub async fn unneeded_predictions(db: impl PgExecutor<'_>) -> Result<Vec<UnneededPredictions>> {
    let unneeded = sqlx::query_as!(
        UnneededPredictions,
        r#"
        /* all tenants: cleanup removes the objects of every organization */
        select
            p.job_id as "job_id: JobId",
            j.input_key
        from boards b
        join board_predictions p on p.suite_id = b.suite_id and p.suite_version = b.suite_version
        join jobs j on j.id = p.job_id
        where b.closes_at < now() - $2::float8 * interval '1 second'
          and not exists (select from board_entries e where e.job_id = p.job_id)
        limit $1
        "#,
        BATCH as i64,
        CLEANUP_DELAY.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(unneeded)
}

/// Records that the objects for predictions that were kept for a board are removed.
pub async fn forget_predictions(db: impl PgExecutor<'_>, job_ids: &[String]) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        with forgotten as (
            delete from board_predictions
            where job_id = any($1)
            returning job_id
        ), cleared as (
            update jobs j
            set input_key = null
            from forgotten f
            where j.id = f.job_id
        )
        delete from stored_predictions p
        using forgotten f
        where p.job_id = f.job_id
        ",
        job_ids
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A submission's inline predictions that never became a job.
pub struct Abandoned {
    /// The submission's organization.
    pub org_id: OrgId,
    /// The id that the job would have had.
    pub job_id: JobId,
}

/// Abandons submissions that recorded their predictions more than `ABANDONED_AFTER` ago and did
/// not become a job, because their client disconnected or their process died. A request ends after
/// 40 s. An abandoned submission can no longer become a job, so its object can be removed.
pub async fn abandon_predictions(db: impl PgExecutor<'_>) -> Result<Vec<Abandoned>> {
    let abandoned = sqlx::query_as!(
        Abandoned,
        r#"
        /* all tenants: cleanup abandons the submissions of every organization */
        update stored_predictions
        set abandoned_at = coalesce(abandoned_at, now())
        where job_id in (
            select job_id
            from stored_predictions
            where accepted_at is null
              and created_at < now() - $2::float8 * interval '1 second'
            order by created_at
            limit $1
            for update skip locked
        )
        returning
            org_id as "org_id: OrgId",
            job_id as "job_id: JobId"
        "#,
        BATCH as i64,
        ABANDONED_AFTER.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(abandoned)
}

/// Deletes abandoned submissions' rows whose objects were removed.
pub async fn delete_abandoned_predictions(
    db: impl PgExecutor<'_>,
    job_ids: &[String],
) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        delete from stored_predictions
        where abandoned_at is not null
          and job_id = any($1)
        ",
        job_ids
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A job's stored item scores, which have expired.
pub struct ExpiredScores {
    /// The job's id.
    pub job_id: JobId,
    /// The item scores' object key. `None` if they are stored in the row.
    pub scores_key: Option<String>,
}

/// Returns at most [`BATCH`] expired item scores.
pub async fn expired_item_scores(db: impl PgExecutor<'_>) -> Result<Vec<ExpiredScores>> {
    let expired = sqlx::query_as!(
        ExpiredScores,
        r#"
        /* all tenants: cleanup removes the objects of every organization */
        select
            job_id as "job_id: JobId",
            scores_key
        from stored_item_scores
        where expires_at <= now()
        order by expires_at
        limit $1
        "#,
        BATCH as i64
    )
    .fetch_all(db)
    .await?;
    Ok(expired)
}

/// Clears these jobs' item score key, before their objects are removed: no request
/// reads them any more.
pub async fn withdraw_item_scores(db: impl PgExecutor<'_>, job_ids: &[String]) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        update jobs
        set scores_key = null
        where scores_key is not null
          and id = any($1)
        ",
        job_ids
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Deletes expired item scores' rows, whose objects were removed if they had any.
pub async fn delete_expired_item_scores(db: impl PgExecutor<'_>, job_ids: &[String]) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        delete from stored_item_scores
        where expires_at <= now()
          and job_id = any($1)
        ",
        job_ids
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The time between an upload's end and its objects' removal. It exceeds the time that a
/// part may take to arrive, so that no part that is still being received is left behind.
const UPLOAD_REMOVAL_DELAY: Duration = Duration::from_secs(20 * 60);

/// Expires uploads whose time is over and that no active job needs. Returns their number.
pub async fn expire_uploads(db: &mut PgConnection) -> Result<usize> {
    let mut transaction = db.begin().await?;
    // A submission with such an upload waits for their rows. The check for active jobs is a
    // second statement: one that waited for a row would not see a job stored meanwhile. The first
    // statement also leaves out uploads that active jobs need, so that they do not fill the batch.
    let expired: Vec<String> = sqlx::query_scalar!(
        "
        /* all tenants: cleanup expires the uploads of every organization */
        select id
        from uploads u
        where status in ('pending', 'ready')
          and deleted_at is null
          and expires_at <= now()
          and not exists (
              select from jobs j
              where j.upload_id = u.id
                and j.status in ('queued', 'running')
          )
        order by expires_at
        limit $1
        for update skip locked
        ",
        BATCH as i64
    )
    .fetch_all(&mut *transaction)
    .await?;
    sqlx::query!(
        "
        /* all tenants: cleanup expires the uploads of every organization */
        update uploads u
        set status = 'expired'
        where u.id = any($1)
          and not exists (
              select from jobs j
              where j.upload_id = u.id
                and j.status in ('queued', 'running')
          )
        ",
        &expired
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(expired.len())
}

/// An upload whose objects are no longer needed.
pub struct EndedUpload {
    /// The upload's organization.
    pub org_id: OrgId,
    /// The upload's id.
    pub id: UploadId,
}

/// Returns uploads that were deleted, failed or expired more than `UPLOAD_REMOVAL_DELAY` ago and
/// still have objects.
pub async fn ended_uploads(db: impl PgExecutor<'_>) -> Result<Vec<EndedUpload>> {
    let uploads = sqlx::query_as!(
        EndedUpload,
        r#"
        /* all tenants: cleanup removes the objects of every organization */
        select
            org_id as "org_id: OrgId",
            id as "id: UploadId"
        from uploads
        where removed_at is null
          and (deleted_at is not null or status in ('failed', 'expired'))
          and coalesce(deleted_at, failed_at, expires_at) < now() - $2::float8 * interval '1 second'
          -- A job that is not cleaned up may yet keep its predictions for a board.
          and not exists (
              select from jobs j
              where j.upload_id = uploads.id
                and (
                    j.cleaned_up_at is null
                    or exists (select from board_predictions p where p.job_id = j.id)
                )
          )
        limit $1
        "#,
        BATCH as i64,
        UPLOAD_REMOVAL_DELAY.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(uploads)
}

/// Records that all these uploads' objects were removed.
pub async fn mark_uploads_removed(db: impl PgExecutor<'_>, upload_ids: &[String]) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: cleanup removes the objects of every organization */
        with removed as (
            update uploads
            set removed_at = now()
            where id = any($1)
            returning id
        )
        delete from upload_parts p
        using removed r
        where p.upload_id = r.id
        ",
        upload_ids
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns organizations that were deleted more than `UPLOAD_REMOVAL_DELAY` ago and still have
/// objects. By then no request or attempt that was running adds any.
pub async fn deleted_orgs(db: impl PgExecutor<'_>) -> Result<Vec<OrgId>> {
    let orgs = sqlx::query_scalar!(
        r#"
        select id as "id: OrgId"
        from orgs
        where deleted_at < now() - $2::float8 * interval '1 second'
          and removed_at is null
        order by deleted_at
        limit $1
        "#,
        BATCH as i64,
        UPLOAD_REMOVAL_DELAY.as_secs_f64()
    );
    Ok(orgs.fetch_all(db).await?)
}

/// Records that all a deleted organization's objects were removed.
pub async fn mark_org_removed(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "
        update orgs
        set removed_at = now()
        where id = $1
          and deleted_at is not null
        ",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}
