//! What an organization used in a month, and the ledger that says why.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::timestamp::Timestamp;

/// Charges a job to the month in which it was accepted, with its row of the ledger. `false`, and nothing is written,
/// when the month's maximum does not suffice.
pub async fn charge(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
    eval_items: i64,
    at: Timestamp,
    max: i64,
) -> Result<bool> {
    let charged = sqlx::query!(
        "with charged as (
             insert into usage as u (org_id, period_start, eval_items)
             select $1, date_trunc('month', $4::timestamptz, 'UTC'), $3::bigint where $3 <= $5::bigint
             on conflict (org_id, period_start) do update set eval_items = u.eval_items + excluded.eval_items
                 where u.eval_items + excluded.eval_items <= $5
             returning period_start
         )
         insert into usage_ledger (org_id, job_id, kind, eval_items, period_start)
         select $1, $2, 'charge', $3, period_start from charged",
        org_id.as_str(),
        job_id.as_str(),
        eval_items,
        at as Timestamp,
        max
    )
    .execute(db)
    .await?;
    Ok(charged.rows_affected() == 1)
}

/// Whether the month's maximum suffices for so many more items, as far as is known without a lock.
pub async fn fits(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    eval_items: i64,
    at: Timestamp,
    max: i64,
) -> Result<bool> {
    let fits = sqlx::query_scalar!(
        r#"select coalesce((select eval_items from usage where org_id = $1 and period_start = date_trunc('month', $3::timestamptz, 'UTC')), 0)
                  + $2::bigint <= $4::bigint as "fits!""#,
        org_id.as_str(),
        eval_items,
        at as Timestamp,
        max
    )
    .fetch_one(db)
    .await?;
    Ok(fits)
}

/// The first moment of the month after the given one, UTC.
pub async fn next_month(db: impl PgExecutor<'_>, at: Timestamp) -> Result<Timestamp> {
    let next = sqlx::query_scalar!(
        r#"select (date_trunc('month', $1::timestamptz at time zone 'UTC') + interval '1 month') at time zone 'UTC' as "next!: Timestamp""#,
        at as Timestamp
    )
    .fetch_one(db)
    .await?;
    Ok(next)
}

/// What an organization has used of the present month.
pub struct MonthRow {
    /// First moment of the month.
    pub period_start: Timestamp,
    /// First moment of the next.
    pub period_end: Timestamp,
    /// Predictions charged, less those given back.
    pub eval_items: i64,
    /// Requests added up.
    pub requests: i64,
    /// Jobs queued or running.
    pub active_jobs: i64,
    /// Bytes stored: parts of uploads and inline predictions.
    pub stored_bytes: i64,
}

/// The present month of an organization.
pub async fn month(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<MonthRow> {
    let row = sqlx::query_as!(
        MonthRow,
        r#"with period as (
             select date_trunc('month', now(), 'UTC') as first,
                    (date_trunc('month', now() at time zone 'UTC') + interval '1 month') at time zone 'UTC' as next
         )
         select first as "period_start!: Timestamp", next as "period_end!: Timestamp",
                coalesce((select eval_items from usage where org_id = $1 and period_start = first), 0) as "eval_items!",
                coalesce((select requests from usage_requests where org_id = $1 and period_start = first), 0) as "requests!",
                (select count(*) from jobs where org_id = $1 and status in ('queued', 'running')) as "active_jobs!",
                coalesce((select bytes from org_storage where org_id = $1), 0) as "stored_bytes!"
         from period"#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(row)
}

/// Adds requests to the present month of each organization. The two slices belong together by index. Returns the id of the
/// transaction: see [`is_committed`].
pub async fn add_requests(
    db: &mut PgConnection,
    org_id: &[&str],
    requests: &[i64],
) -> Result<String> {
    // In order, so that two processes that add at once do not wait for each other.
    sqlx::query!(
        "insert into usage_requests as u (org_id, period_start, requests)
         select a.org_id, date_trunc('month', now(), 'UTC'), a.requests
         from unnest($1::text[], $2::bigint[]) as a(org_id, requests) order by a.org_id
         on conflict (org_id, period_start) do update set requests = u.requests + excluded.requests",
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

/// Whether a transaction was committed. `None` while that is open. One that is too old to be known counts as committed.
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
