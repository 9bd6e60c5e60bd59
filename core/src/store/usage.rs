//! The monthly usage of an organization, and the ledger that explains it.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;

/// Refunds the charges of jobs to the months that they were charged to. Idempotent.
pub async fn refund(db: &mut PgConnection, job_ids: &[&str]) -> Result<()> {
    // In one statement, because submissions of these organizations wait until the transaction ends.
    sqlx::query!("select refund_jobs($1)", job_ids as &[&str])
        .execute(db)
        .await?;
    Ok(())
}

/// Refunds a part of the predict items that a job was charged for: the sequences that have no
/// prediction. A job is refunded once.
pub async fn refund_predict_items(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
    predict_items: i64,
) -> Result<()> {
    sqlx::query!(
        "
        with refund as (
            insert into usage_ledger (
                org_id,
                job_id,
                kind,
                eval_items,
                predict_items,
                period_start
            )
            select
                $1,
                job_id,
                'refund',
                0,
                $3,
                period_start
            from usage_ledger
            where org_id = $1
              and job_id = $2
              and kind = 'charge'
            on conflict do nothing
            returning period_start, predict_items
        )
        update usage u
        set predict_items = u.predict_items - r.predict_items
        from refund r
        where u.org_id = $1
          and u.period_start = r.period_start
        ",
        org_id.as_str(),
        job_id.as_str(),
        predict_items
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the start of the month after the given time (UTC).
pub async fn next_month(db: impl PgExecutor<'_>, at: Timestamp) -> Result<Timestamp> {
    let next = sqlx::query_scalar!(
        r#"
        select (
            date_trunc('month', $1::timestamptz at time zone 'UTC') + interval '1 month'
        ) at time zone 'UTC' as "next!: Timestamp"
        "#,
        at as Timestamp
    )
    .fetch_one(db)
    .await?;
    Ok(next)
}

/// The usage of an organization in the current month.
pub struct MonthRow {
    /// The start of the month (UTC).
    pub period_start: Timestamp,
    /// The start of the next month (UTC).
    pub period_end: Timestamp,
    /// Predictions charged, less those refunded.
    pub eval_items: i64,
    /// Requests that were counted so far.
    pub requests: i64,
    /// Sequences that were predicted.
    pub predict_items: i64,
    /// Events that were generated.
    pub generated_events: i64,
    /// Sequences that were embedded.
    pub embeddings: i64,
    /// Jobs queued or running.
    pub active_jobs: i64,
    /// Bytes stored: parts of uploads and inline predictions.
    pub stored_bytes: i64,
}

/// Returns the usage of an organization in the current month.
pub async fn month(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<MonthRow> {
    let row = sqlx::query_as!(
        MonthRow,
        r#"
        with period as (
            select
                date_trunc('month', now(), 'UTC') as first,
                (
                    date_trunc('month', now() at time zone 'UTC') + interval '1 month'
                ) at time zone 'UTC' as next
        )
        select
            first as "period_start!: Timestamp",
            next as "period_end!: Timestamp",
            coalesce(u.eval_items, 0) as "eval_items!",
            coalesce(u.predict_items, 0) as "predict_items!",
            coalesce(u.generated_events, 0) as "generated_events!",
            coalesce(u.embeddings, 0) as "embeddings!",
            coalesce(
                (
                    select requests
                    from usage_requests
                    where org_id = $1
                      and period_start = first
                ),
                0
            ) as "requests!",
            (
                select count(*)
                from jobs
                where org_id = $1
                  and status in ('queued', 'running')
            ) as "active_jobs!",
            coalesce((select bytes from org_storage where org_id = $1), 0) as "stored_bytes!"
        from period
        left join usage u on u.org_id = $1 and u.period_start = first
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(row)
}

/// Adds requests to the current month of each organization. Equal indices of the slices belong
/// together. Returns the id of the transaction: see [`is_committed`].
pub async fn add_requests(
    db: &mut PgConnection,
    org_id: &[&str],
    requests: &[i64],
) -> Result<String> {
    // In a fixed order, so that two processes that add at the same time do not deadlock.
    sqlx::query!(
        "
        /* all tenants: one statement adds the requests of many organizations */
        insert into usage_requests as u (org_id, period_start, requests)
        select
            a.org_id,
            date_trunc('month', now(), 'UTC'),
            a.requests
        from unnest($1::text[], $2::bigint[]) as a(org_id, requests)
        order by a.org_id
        on conflict (org_id, period_start) do update
            set requests = u.requests + excluded.requests
        ",
        org_id as &[&str],
        requests
    )
    .execute(&mut *db)
    .await?;
    Ok(
        sqlx::query_scalar!(r#"select pg_current_xact_id()::text as "id!""#)
            .fetch_one(db)
            .await?,
    )
}

/// Returns `true` if a transaction was committed, and `None` while it is open. A transaction that
/// is too old to be known counts as committed.
pub async fn is_committed(db: impl PgExecutor<'_>, transaction_id: &str) -> Result<Option<bool>> {
    let status = sqlx::query_scalar!("select pg_xact_status($1::text::xid8)", transaction_id)
        .fetch_one(db)
        .await?;
    Ok(match status.as_deref() {
        Some("in progress") => None,
        Some("aborted") => Some(false),
        _ => Some(true),
    })
}
