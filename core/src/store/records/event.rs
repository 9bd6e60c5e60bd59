//! An organization's events. They are inserted in their change's transaction; finished jobs' events
//! by a trigger.

use serde::Serialize;
use serde_json::{Map, Value};
use sqlx::types::Json;
use sqlx::{Connection as _, PgExecutor};

use super::member;
use crate::model::error::{Error, Result};
use crate::model::event::{EventCursor, EventType, UsageThreshold};
use crate::model::ids::{EventId, JobId, OrgId, UserId};
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// Days for which events are kept.
pub const RETENTION_DAYS: u32 = 30;

/// The percentages of a month's limit that are events, in ascending order.
const PERCENTS: [i32; 2] = [80, 100];

/// An event whose data may be a reference.
pub struct EventRow {
    /// The id of the event.
    pub id: EventId,
    /// The type of the event.
    pub r#type: EventType,
    /// The time of the event.
    pub timestamp: Timestamp,
    /// The event's position.
    pub cursor: EventCursor,
    /// The event's data.
    pub data: EventData,
}

/// An event's data.
pub enum EventData {
    /// A job, by its id.
    Job(JobId),
    /// A version of a suite.
    Suite(SuiteId, String),
    /// The data itself.
    Object(Map<String, Value>),
}

/// Inserts an event with this resource as its data, which must be an object.
pub async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    r#type: EventType,
    resource: &impl Serialize,
) -> Result<()> {
    let id = EventId::random()?;
    let data = serde_json::to_value(resource).map_err(Error::internal)?;
    sqlx::query!(
        "
        insert into events (org_id, id, type, data)
        values ($1, $2, $3, $4)
        ",
        org_id.as_str(),
        id.as_str(),
        r#type.as_str(),
        data
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Inserts an event about a member, as the member is now.
pub async fn insert_member(
    db: &mut PgConnection,
    org_id: &OrgId,
    r#type: EventType,
    user_id: &UserId,
) -> Result<()> {
    match member::find(&mut *db, org_id, user_id).await? {
        Some(member) => insert(db, org_id, r#type, &member).await,
        None => Ok(()),
    }
}

/// Inserts an event about a suite, in the given version.
pub async fn insert_suite(
    db: &mut PgConnection,
    org_id: &OrgId,
    r#type: EventType,
    (suite_id, version): (&SuiteId, &str),
) -> Result<()> {
    let id = EventId::random()?;
    sqlx::query!(
        "
        insert into events (org_id, id, type, suite_id, suite_version)
        values ($1, $2, $3, $4, $5)
        ",
        org_id.as_str(),
        id.as_str(),
        r#type.as_str(),
        suite_id.as_str(),
        version
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Inserts the event for a suite's published version: for every organization, or for those that see a
/// private or suspended suite.
pub async fn insert_suite_published(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<()> {
    let id = EventId::random()?;
    sqlx::query!(
        "
        /* all tenants: every organization that sees the suite has the event */
        with suite as (
            select suite_id, org_id, visibility, suspended_at
            from suite_owners
            where suite_id = $3
        ), shared as (
            insert into shared_events (id, type, suite_id, suite_version)
            select $1, $2, suite_id, $4
            from suite
            where visibility <> 'private'
              and suspended_at is null
        )
        insert into events (org_id, id, type, suite_id, suite_version)
        select seeing.org_id, $1, $2, s.suite_id, $4
        from suite s
        cross join lateral (
            select s.org_id
            union
            select g.org_id
            from suite_grants g
            where g.suite_id = s.suite_id
              and s.suspended_at is null
            union
            select d.org_id
            from suite_grants g
            join domain_claims d on d.domain = g.domain and d.verified_at is not null
            where g.suite_id = s.suite_id
              and s.suspended_at is null
        ) seeing
        join orgs o on o.id = seeing.org_id
        where (s.visibility = 'private' or s.suspended_at is not null)
          and o.deleted_at is null
        ",
        id.as_str(),
        EventType::SuitePublished.as_str(),
        suite_id.as_str(),
        version
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An event's maximum size with a job that has no metadata, in bytes.
const EVENT_BYTES: i32 = 4 * 1024;

/// A page's maximum event size with their data, in bytes. A page has at least one event.
const PAGE_BYTES: u64 = 1024 * 1024;

/// Some of an organization's events, in their order.
pub struct EventPage {
    /// The events.
    pub rows: Vec<EventRow>,
    /// The events' size with their data, in bytes.
    pub bytes: u64,
    /// The position after the last event. If there are no more events, it is after all events in
    /// ended transactions, so that nobody searches again for a type that is rare.
    pub next: EventCursor,
    /// The position after all events in ended transactions. Positions that were returned never exceed
    /// it, unless the database was restored from a dump, which begins to count transactions again.
    pub horizon: EventCursor,
    /// The transaction in which `migrate` last adopted restored events; 0 if there was none. Positions
    /// between 0 and this one belong to another server.
    pub restored: i64,
}

/// Returns at most `limit` events with these types after a position, the oldest first.
///
/// An event is returned only when no transaction that began before it is open: later events
/// have later positions.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    types: &[EventType],
    after: EventCursor,
    limit: i64,
) -> Result<EventPage> {
    let types: Vec<&str> = types.iter().map(|one| one.as_str()).collect();
    let rows = sqlx::query!(
        r#"
        select
            h.xmin::text::bigint as "xmin!",
            h.restored as "restored!",
            e.id as "id?: EventId",
            e.type as "type?: EventType",
            e.timestamp as "timestamp?: Timestamp",
            e.xid::text::bigint as xid,
            e.position as "position?",
            e.job_id as "job_id: JobId",
            e.suite_id as "suite_id: SuiteId",
            e.suite_version,
            e.data as "data: Json<Map<String, Value>>",
            coalesce(octet_length(e.data::text), 0) + coalesce(
                (
                    select octet_length(j.metadata::text) + $7
                    from jobs j
                    where j.id = e.job_id
                      and j.org_id = $1
                ),
                $7
            ) as "bytes!"
        from (
            select
                pg_snapshot_xmin(pg_current_snapshot()) as xmin,
                coalesce((select max(xid)::text::bigint from event_restores), 0) as restored
        ) h
        left join lateral (
            select *
            from org_events
            where org_id = $1
              and (xid, position) > ($2::bigint::text::xid8, $3::bigint)
              and xid < h.xmin
              and type = any($4)
              and timestamp > now() - $6::float8 * interval '1 day'
            order by xid, position
            limit $5
        ) e on true
        order by e.xid, e.position
        "#,
        org_id.as_str(),
        after.xid,
        after.position,
        &types as &[&str],
        limit,
        f64::from(RETENTION_DAYS),
        EVENT_BYTES
    )
    .fetch_all(db)
    .await?;
    let horizon = rows.first().map_or(after, |row| EventCursor {
        xid: row.xmin - 1,
        position: i64::MAX,
    });
    let restored = rows.first().map_or(0, |row| row.restored);
    let mut bytes = 0;
    let kept = rows.iter().take_while(|row| {
        let with_row = bytes + u64::from(row.bytes.unsigned_abs());
        let fits = bytes == 0 || with_row <= PAGE_BYTES;
        if fits {
            bytes = with_row;
        }
        fits
    });
    let kept = kept.count();
    let is_cut = kept < rows.len();
    let events = rows.into_iter().take(kept).filter_map(|row| {
        let (id, r#type, timestamp) = (row.id?, row.r#type?, row.timestamp?);
        let cursor = EventCursor {
            xid: row.xid?,
            position: row.position?,
        };
        let data = match (row.job_id, row.suite_id.zip(row.suite_version), row.data) {
            (Some(job_id), _, _) => EventData::Job(job_id),
            (None, Some((suite_id, version)), _) => EventData::Suite(suite_id, version),
            (None, None, data) => EventData::Object(data?.0),
        };
        Some(EventRow {
            id,
            r#type,
            timestamp,
            cursor,
            data,
        })
    });
    let rows: Vec<EventRow> = events.collect();
    let next = match rows.last() {
        Some(last) if rows.len() as i64 >= limit || is_cut => last.cursor,
        _ => horizon.max(after),
    };
    Ok(EventPage {
        rows,
        bytes,
        next,
        horizon,
        restored,
    })
}

/// Returns the position before a type's newest event, or `None` if there is none.
pub async fn before_newest(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    r#type: EventType,
) -> Result<Option<EventCursor>> {
    let newest = sqlx::query_as!(
        EventCursor,
        r#"
        select
            xid::text::bigint as "xid!",
            position - 1 as "position!"
        from org_events e
        where org_id = $1
          and type = $2
        -- Of the table: the result columns are numbers of the same names.
        order by e.xid desc, e.position desc
        limit 1
        "#,
        org_id.as_str(),
        r#type.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(newest)
}

/// Moves restored events before all new ones, in insertion order, and the webhooks' positions
/// with them. A webhook continues with its first event without a delivery.
///
/// The database was restored if an event or a webhook names a transaction that its server has not begun. Then
/// all other stored transaction numbers belong to another server as well, so all are replaced.
pub async fn adopt_restored(db: &mut PgConnection) -> Result<()> {
    // One transaction: positions that were moved without their events would deliver everything again.
    let mut transaction = db.begin().await?;
    let is_restored = sqlx::query_scalar!(
        r#"
        /* all tenants: a restore restores the events of every organization */
        select
            exists (select from events where xid >= pg_snapshot_xmax(pg_current_snapshot()))
            or exists (select from shared_events where xid >= pg_snapshot_xmax(pg_current_snapshot()))
            or exists (select from webhooks where xid >= pg_snapshot_xmax(pg_current_snapshot())) as "is_restored!"
        "#
    )
    .fetch_one(&mut *transaction)
    .await?;
    if !is_restored {
        return Ok(());
    }
    sqlx::query!(
        "
        /* all tenants: a restore restores the webhooks of every organization */
        update webhooks w
        set
            xid = '0',
            position = coalesce(
                (
                    select min(e.position) - 1
                    from org_events e
                    where e.org_id = w.org_id
                      and (e.xid, e.position) > (w.xid, w.position)
                ),
                (select max(e.position) from org_events e where e.org_id = w.org_id),
                0
            )
        "
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "
        /* all tenants: a restore restores the events of every organization */
        update events
        set xid = '0'
        where xid <> '0'
        "
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "
        update shared_events
        set xid = '0'
        where xid <> '0'
        "
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!("insert into event_restores default values")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

/// Deletes at most `limit` events that are older than `days`, and returns their number.
pub async fn delete_old(db: impl PgExecutor<'_>, days: u32, limit: i64) -> Result<u64> {
    // No `for update`: it requires the right to update rows, which `assay_api` does not have.
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from events
        where ctid = any(array(
            select ctid
            from events
            where timestamp < now() - $1::float8 * interval '1 day'
            limit $2
        ))
        ",
        f64::from(days),
        limit
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes at most `limit` shared events that are older than `days`, and returns their number.
pub async fn delete_old_shared(db: impl PgExecutor<'_>, days: u32, limit: i64) -> Result<u64> {
    let done = sqlx::query!(
        "
        delete from shared_events
        where ctid = any(array(
            select ctid
            from shared_events
            where timestamp < now() - $1::float8 * interval '1 day'
            limit $2
        ))
        ",
        f64::from(days),
        limit
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Stores an event for each limit where an organization has reached another percentage this month,
/// and returns the event count.
pub async fn insert_usage_thresholds(db: &mut PgConnection) -> Result<usize> {
    sqlx::query!(
        "
        /* all tenants: compares the usage of every organization with its plan */
        delete from usage_thresholds where period_start < now() - interval '40 days'
        "
    )
    .execute(&mut *db)
    .await?;
    let reached = sqlx::query!(
        r#"
        /* all tenants: compares the usage of every organization with its plan */
        with month as (
            select
                date_trunc('month', now() at time zone 'UTC') at time zone 'UTC' as period_start,
                (date_trunc('month', now() at time zone 'UTC') + interval '1 month') at time zone 'UTC'
                    as period_end
        ), limits as (
            select
                u.org_id,
                m.period_start,
                m.period_end,
                l.limit_name,
                l.used,
                l.max
            from month m
            join usage u on u.period_start = m.period_start
            join orgs o on o.id = u.org_id
            join plan_limits p on p.plan = o.plan
            cross join lateral (
                values
                    ('eval_items_per_month', u.eval_items, p.eval_items_per_month),
                    ('predict_items_per_month', u.predict_items, p.predict_items_per_month),
                    ('generated_events_per_month', u.generated_events, p.generated_events_per_month),
                    ('embeddings_per_month', u.embeddings, p.embeddings_per_month)
            ) as l (limit_name, used, max)
            where o.deleted_at is null
              and l.used > 0
        ), reached as (
            select
                l.*,
                (
                    select max(t.percent)
                    from unnest($1::integer[]) as t (percent)
                    -- Numeric, because a product of two large numbers exceeds bigint.
                    where l.used::numeric * 100 >= l.max::numeric * t.percent
                ) as percent
            from limits l
        ), changed as (
            insert into usage_thresholds as t (org_id, period_start, limit_name, percent, max)
            select
                org_id,
                period_start,
                limit_name,
                percent,
                max
            from reached r
            where percent is not null
              -- Without this, each round would lock the rows that do not change.
              and not exists (
                  select from usage_thresholds k
                  where k.org_id = r.org_id
                    and k.period_start = r.period_start
                    and k.limit_name = r.limit_name
                    and k.percent >= r.percent
                    and k.max >= r.max
              )
            order by org_id, limit_name
            on conflict (org_id, period_start, limit_name) do update
                set
                    percent = excluded.percent,
                    max = excluded.max
                -- A larger plan has thresholds of its own.
                where t.percent < excluded.percent
                   or t.max < excluded.max
            returning org_id, limit_name
        )
        select
            r.org_id as "org_id!: OrgId",
            r.limit_name as "limit!",
            r.percent as "percent!",
            r.used as "used!",
            r.max as "max!",
            r.period_start as "period_start!: Timestamp",
            r.period_end as "period_end!: Timestamp"
        from changed c
        join reached r
            on r.org_id = c.org_id
            and r.limit_name = c.limit_name
        "#,
        &PERCENTS
    )
    .fetch_all(&mut *db)
    .await?;
    let count = reached.len();
    for row in reached {
        let threshold = UsageThreshold {
            limit: row.limit,
            percent: row.percent,
            used: row.used,
            max: row.max,
            period_start: row.period_start,
            period_end: row.period_end,
        };
        insert(db, &row.org_id, EventType::UsageThreshold, &threshold).await?;
    }
    Ok(count)
}
