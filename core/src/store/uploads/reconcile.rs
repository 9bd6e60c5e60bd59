//! Reconciles the artifact store with the rows that name its objects. The statements act for
//! all organizations.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use crate::store::db::try_lock;

/// The most rows that one statement reads.
pub const BATCH: usize = 500;

/// Days between two reconciliations.
const INTERVAL_DAYS: i32 = 1;

/// The time after which an interrupted reconciliation is started again.
const RESTART_DELAY: Duration = Duration::from_secs(60 * 60);

/// Days after which an object without a row counts as an orphan.
const ORPHAN_DAYS: i32 = 1;

/// The advisory lock for the process that reconciles: the letters "store".
const RECONCILIATION: i64 = 0x73_74_6f_72_65;

/// Tries to become the process that reconciles. The lock is released with the connection.
pub async fn lead(db: &mut PgConnection) -> Result<bool> {
    try_lock(db, RECONCILIATION).await
}

/// Starts the daily reconciliation. Returns `false` if it is not due: the last one finished less
/// than `INTERVAL_DAYS` days ago, or was interrupted less than `RESTART_DELAY` ago.
pub async fn start(db: &mut PgConnection) -> Result<bool> {
    let done = sqlx::query!(
        "
        update artifact_reconciliation
        set started_at = now()
        where (
              finished_at >= started_at
              and finished_at < now() - $1::integer * interval '1 day'
          )
          -- The last one was interrupted.
          or (
              coalesce(finished_at < started_at, true)
              and started_at < now() - $2::float8 * interval '1 second'
          )
        ",
        INTERVAL_DAYS,
        RESTART_DELAY.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A reconciliation's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects without a row, which were removed.
    pub removed: i64,
    /// The removed objects' bytes.
    pub removed_bytes: i64,
    /// Rows without their object.
    pub missing: i64,
}

/// Records a finished reconciliation's result.
pub async fn finish(db: &mut PgConnection, found: &Found) -> Result<()> {
    sqlx::query!(
        "
        update artifact_reconciliation
        set
            finished_at = clock_timestamp(),
            removed = $1,
            removed_bytes = $2,
            missing = $3
        ",
        found.removed,
        found.removed_bytes,
        found.missing
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the row count without their object that the last reconciliation found.
pub async fn missing(db: impl PgExecutor<'_>) -> Result<i64> {
    let missing = sqlx::query_scalar!("select missing from artifact_reconciliation")
        .fetch_optional(db)
        .await?;
    Ok(missing.unwrap_or(0))
}

/// Returns the time before which an object must have been written to count as an orphan:
/// `ORPHAN_DAYS` days ago by the database's clock.
pub async fn orphaned_before(db: &mut PgConnection) -> Result<Timestamp> {
    let at = sqlx::query_scalar!(
        r#"select now() - $1::integer * interval '1 day' as "at!: Timestamp""#,
        ORPHAN_DAYS
    )
    .fetch_one(db)
    .await?;
    Ok(at)
}

/// Objects by their keys, each with the organization and the job or upload that its key names, and
/// its part number (0 for jobs' objects). Equal slice indices belong together.
#[derive(Debug, Default)]
pub struct Objects<'a> {
    #[expect(missing_docs, reason = "see the struct")]
    pub keys: Vec<&'a str>,
    #[expect(missing_docs, reason = "see the struct")]
    pub org_ids: Vec<&'a str>,
    #[expect(missing_docs, reason = "see the struct")]
    pub owner_ids: Vec<&'a str>,
    #[expect(missing_docs, reason = "see the struct")]
    pub numbers: Vec<i32>,
}

/// The database's knowledge about an object.
pub struct Known {
    /// The object's key.
    pub key: String,
    /// `true` if the organization in its key exists. Other objects belong to another installation
    /// and are never removed.
    pub is_ours: bool,
    /// `true` if a row names it, or may still come to name it.
    pub is_recorded: bool,
}

/// Returns what the database knows about these objects.
pub async fn known(db: &mut PgConnection, objects: &Objects<'_>) -> Result<Vec<Known>> {
    let known = sqlx::query_as!(
        Known,
        r#"
        /* all tenants: reconciliation reads rows of every organization */
        select
            o.key as "key!",
            exists(select from orgs where id = o.org_id) as "is_ours!",
            (
                exists(
                    select from upload_parts p
                    where p.upload_id = o.owner_id
                      and p.number = o.number
                      and p.object_key = o.key
                )
                or exists(select from stored_predictions p where p.job_id = o.owner_id)
                or exists(
                    select from stored_item_scores s
                    where s.job_id = o.owner_id
                      and s.scores_key = o.key
                )
                -- An attempt of a job that is not cleaned up may still write its objects.
                or exists(
                    select from jobs j
                    where j.id = o.owner_id
                      and (j.cleaned_up_at is null or j.input_key = o.key or j.scores_key = o.key)
                )
            ) as "is_recorded!"
        from unnest($1::text[], $2::text[], $3::text[], $4::integer[])
            as o(key, org_id, owner_id, number)
        "#,
        objects.keys.as_slice() as _,
        objects.org_ids.as_slice() as _,
        objects.owner_ids.as_slice() as _,
        objects.numbers.as_slice() as _
    )
    .fetch_all(db)
    .await?;
    Ok(known)
}

/// A row that names an object.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The row's organization.
    pub org_id: OrgId,
    /// The job's or upload's id.
    pub owner_id: String,
    /// The part's number; 0 for jobs' objects.
    pub number: i32,
    /// The object's key.
    pub key: String,
}

/// The row kinds that name objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Active jobs' inline predictions.
    Predictions,
    /// Item scores that have not expired.
    Scores,
    /// Upload parts that can be completed or submitted.
    Parts,
}

impl Kind {
    /// All kinds, in reconciliation order.
    pub const ALL: [Self; 3] = [Self::Predictions, Self::Scores, Self::Parts];
}

/// Returns rows with a kind, ordered by owner and number, after the given one.
pub async fn recorded(
    db: &mut PgConnection,
    kind: Kind,
    after: (&str, i32),
) -> Result<Vec<Recorded>> {
    let rows = match kind {
        Kind::Predictions => {
            sqlx::query_as!(
                Recorded,
                r#"
                /* all tenants: reconciliation reads rows of every organization */
                select
                    p.org_id as "org_id: OrgId",
                    p.job_id as owner_id,
                    0 as "number!",
                    j.input_key as "key!"
                from stored_predictions p
                join jobs j on j.id = p.job_id
                where p.job_id > $1
                  and j.status in ('queued', 'running')
                  and j.input_key is not null
                order by p.job_id
                limit $2
                "#,
                after.0,
                BATCH as i64
            )
            .fetch_all(db)
            .await?
        }
        Kind::Scores => {
            sqlx::query_as!(
                Recorded,
                r#"
                /* all tenants: reconciliation reads rows of every organization */
                select
                    org_id as "org_id: OrgId",
                    job_id as owner_id,
                    0 as "number!",
                    scores_key as "key!"
                from stored_item_scores
                where job_id > $1
                  and scores_key is not null
                  and expires_at > now()
                order by job_id
                limit $2
                "#,
                after.0,
                BATCH as i64
            )
            .fetch_all(db)
            .await?
        }
        Kind::Parts => {
            sqlx::query_as!(
                Recorded,
                r#"
                /* all tenants: reconciliation reads rows of every organization */
                select
                    p.org_id as "org_id: OrgId",
                    p.upload_id as owner_id,
                    p.number,
                    p.object_key as key
                from upload_parts p
                join uploads u on u.id = p.upload_id
                where (p.upload_id, p.number) > ($1, $2)
                  and u.status in ('pending', 'ready')
                  and u.deleted_at is null
                order by p.upload_id, p.number
                limit $3
                "#,
                after.0,
                after.1,
                BATCH as i64
            )
            .fetch_all(db)
            .await?
        }
    };
    Ok(rows)
}

/// Returns `true` if a row still names its object. It may have been deleted together with the
/// object after it was read.
pub async fn is_recorded(db: &mut PgConnection, kind: Kind, row: &Recorded) -> Result<bool> {
    let owner_id = row.owner_id.as_str();
    let key = row.key.as_str();
    let is_recorded = sqlx::query_scalar!(
        r#"
        /* all tenants: reconciliation reads rows of every organization */
        select case $1::integer
            when 0 then exists(
                select from jobs
                where id = $2
                  and input_key = $3
                  and status in ('queued', 'running')
            )
            when 1 then exists(
                select from stored_item_scores
                where job_id = $2
                  and scores_key = $3
                  and expires_at > now()
            )
            else exists(
                select from upload_parts p
                join uploads u on u.id = p.upload_id
                where p.upload_id = $2
                  and p.number = $4
                  and p.object_key = $3
                  and u.status in ('pending', 'ready')
                  and u.deleted_at is null
            )
        end as "recorded!"
        "#,
        kind as i32,
        owner_id,
        key,
        row.number
    )
    .fetch_one(db)
    .await?;
    Ok(is_recorded)
}
