//! An organization's usage by month and by day, and the ledger that explains it.

pub mod plan;

use sqlx::PgExecutor;

use crate::model::date::Date;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// Refunds jobs' charges to the months that they were charged to. Idempotent.
pub async fn refund(db: &mut PgConnection, job_ids: &[&str]) -> Result<()> {
    // In one statement, because submissions by these organizations wait until the transaction ends.
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

/// An organization's usage in the current month.
pub struct MonthRow {
    /// The month's start (UTC).
    pub period_start: Timestamp,
    /// The next month's start (UTC).
    pub period_end: Timestamp,
    /// The next day's start (UTC).
    pub day_end: Timestamp,
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
    /// Bytes stored: upload parts and inline predictions.
    pub stored_bytes: i64,
}

/// Returns an organization's usage in the current month.
pub async fn month(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<MonthRow> {
    let row = sqlx::query_as!(
        MonthRow,
        r#"
        with period as (
            select
                date_trunc('month', now(), 'UTC') as first,
                (
                    date_trunc('month', now() at time zone 'UTC') + interval '1 month'
                ) at time zone 'UTC' as next,
                (
                    date_trunc('day', now() at time zone 'UTC') + interval '1 day'
                ) at time zone 'UTC' as day_end
        )
        select
            first as "period_start!: Timestamp",
            next as "period_end!: Timestamp",
            day_end as "day_end!: Timestamp",
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

/// The submissions of an organization for a suite.
pub struct SubmissionsRow {
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The number of submissions.
    pub submissions: i64,
}

/// Returns the organization's submissions on the current day (UTC), for each suite that has
/// some, without jobs that failed or were cancelled.
pub async fn submissions_today(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
) -> Result<Vec<SubmissionsRow>> {
    let rows = sqlx::query_as!(
        SubmissionsRow,
        r#"
        select
            suite_id as "suite_id!: SuiteId",
            count(*) as "submissions!"
        from jobs
        where org_id = $1
          and type = 'eval'
          and status not in ('failed', 'cancelled')
          and created_at >= date_trunc('day', now(), 'UTC')
        group by suite_id
        "#,
        org_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns the current day (UTC).
pub async fn today(db: impl PgExecutor<'_>) -> Result<Date> {
    let today = sqlx::query_scalar!(r#"select (now() at time zone 'UTC')::date as "today!: Date""#)
        .fetch_one(db)
        .await?;
    Ok(today)
}

/// An organization's usage on a day.
pub struct DayRow {
    /// The day (UTC).
    pub date: Date,
    /// `true` if it is the current day.
    pub is_today: bool,
    /// Predictions charged.
    pub eval_items: i64,
    /// The predictions charged on this day that were refunded.
    pub eval_items_refunded: i64,
    /// Jobs submitted.
    pub jobs: i64,
    /// Requests that were counted so far.
    pub requests: i64,
}

/// Returns an organization's usage on each day in a range. Refunds count for their charge's
/// day, as in months.
pub async fn days(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    from: Date,
    to: Date,
) -> Result<Vec<DayRow>> {
    let rows = sqlx::query_as!(
        DayRow,
        r#"
        with period as (
            select
                $2::date::timestamp at time zone 'UTC' as first,
                ($3::date + 1)::timestamp at time zone 'UTC' as next
        ), charged as (
            -- Every job has one charge, also if it costs nothing.
            select
                (l.created_at at time zone 'UTC')::date as date,
                sum(l.eval_items)::bigint as eval_items,
                count(*) as jobs
            from usage_ledger l
            cross join period p
            where l.org_id = $1
              and l.kind = 'charge'
              and l.created_at >= p.first
              and l.created_at < p.next
            group by 1
        ), refunded as (
            select
                (c.created_at at time zone 'UTC')::date as date,
                sum(r.eval_items)::bigint as eval_items
            from usage_ledger r
            join usage_ledger c on c.job_id = r.job_id and c.kind = 'charge'
            cross join period p
            where r.org_id = $1
              and r.kind = 'refund'
              and r.created_at >= p.first
              and c.created_at >= p.first
              and c.created_at < p.next
            group by 1
        )
        select
            d.date as "date!: Date",
            d.date = (now() at time zone 'UTC')::date as "is_today!",
            coalesce(c.eval_items, 0) as "eval_items!",
            coalesce(r.eval_items, 0) as "eval_items_refunded!",
            coalesce(c.jobs, 0) as "jobs!",
            coalesce(u.requests, 0) as "requests!"
        from (
            select $2::date + place as date
            from generate_series(0, $3::date - $2::date) as g (place)
        ) d
        left join charged c on c.date = d.date
        left join refunded r on r.date = d.date
        left join usage_request_days u on u.org_id = $1 and u.date = d.date
        order by d.date
        "#,
        org_id.as_str(),
        from as Date,
        to as Date
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Days for which a day's requests are kept.
pub const REQUEST_RETENTION_DAYS: u32 = 400;

/// Deletes at most `limit` request counts for days before the last `days` days, and returns their
/// number.
pub async fn delete_old_days(db: impl PgExecutor<'_>, days: u32, limit: i64) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from usage_request_days
        where (org_id, date) in (
            select org_id, date
            from usage_request_days
            where date < (now() at time zone 'UTC')::date - $1::integer
            order by date
            limit $2
            for update skip locked
        )
        ",
        days.cast_signed(),
        limit
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Adds requests to each organization's current month and day. Equal slice indices belong
/// together. Returns the transaction's id: see [`is_committed`].
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
    sqlx::query!(
        "
        /* all tenants: one statement adds the requests of many organizations */
        insert into usage_request_days as u (org_id, date, requests)
        select
            a.org_id,
            (now() at time zone 'UTC')::date,
            a.requests
        from unnest($1::text[], $2::bigint[]) as a(org_id, requests)
        order by a.org_id
        on conflict (org_id, date) do update
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
