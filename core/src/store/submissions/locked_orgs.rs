//! The rows of organizations that a submission locks, and the limits that it reads afterwards.

use std::collections::HashMap;

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// The use that an organization has made from its limits, with the jobs that were accepted so far.
pub(super) struct UsedLimits {
    /// The next job's time. It is later than every earlier job's in the organization.
    pub(super) next_created_at: Timestamp,
    /// The current month's start.
    pub(super) period_start: Timestamp,
    /// The active job count, or more. `None` if it is unknown.
    pub(super) active_max: Option<i64>,
    /// Jobs that were accepted by this transaction.
    pub(super) accepted: i64,
    pub(super) eval_items: i64,
    pub(super) predict_items: i64,
    /// `true` if the month's row exists and is locked. Requests that are served at once charge
    /// predict items without the other locks, and may create the row.
    pub(super) month_is_locked: bool,
    pub(super) bytes: i64,
}

/// An organization's rows that its submissions lock.
pub(super) struct LockedOrg {
    org_id: OrgId,
    last_created_at: Timestamp,
    active_max: Option<i64>,
    bytes: i64,
}

/// Locks the organizations' submissions and storage, except those that are locked or
/// have no such rows yet.
///
/// The limits are read by separate statements afterwards, because a statement that locks rows may
/// see the other rows as they were before it got the locks.
pub(super) async fn lock(db: &mut PgConnection, org_ids: &[&str]) -> Result<Vec<LockedOrg>> {
    let locked = sqlx::query_as!(
        LockedOrg,
        r#"
        /* all tenants: one transaction stores the jobs of several organizations */
        select
            s.org_id as "org_id: OrgId",
            s.last_created_at as "last_created_at: Timestamp",
            case when s.active_max_at = s.last_created_at then s.active_max end as active_max,
            b.bytes
        from org_submissions s
        join org_storage b on b.org_id = s.org_id
        join orgs o on o.id = s.org_id
        where s.org_id = any($1)
        for update of s, b skip locked
        for key share of o skip locked
        "#,
        org_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(locked)
}

/// Waits for the rows that [`lock`] and [`read_limits`] lock, and creates those that are missing.
pub(super) async fn wait_for_lock(db: &mut PgConnection, org_id: &str) -> Result<()> {
    sqlx::query!(
        "
        insert into org_submissions as s (org_id, last_created_at)
        values ($1, 'epoch')
        on conflict (org_id) do update
            set last_created_at = s.last_created_at
        ",
        org_id
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("select id from orgs where id = $1 for key share", org_id)
        .fetch_optional(&mut *db)
        .await?;
    sqlx::query!(
        "
        insert into usage as u (org_id, period_start, eval_items)
        values ($1, date_trunc('month', now(), 'UTC'), 0)
        on conflict (org_id, period_start) do update
            set eval_items = u.eval_items
        ",
        org_id
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        insert into org_storage as b (org_id, bytes)
        values ($1, 0)
        on conflict (org_id) do update
            set bytes = b.bytes
        ",
        org_id
    )
    .execute(&mut *db)
    .await?;
    Ok(())
}

/// Reads what the locked organizations have used from their limits. Leaves those out whose month is
/// locked by another transaction.
pub(super) async fn read_limits(
    db: &mut PgConnection,
    locked: Vec<LockedOrg>,
) -> Result<HashMap<OrgId, UsedLimits>> {
    if locked.is_empty() {
        return Ok(HashMap::new());
    }
    let org_ids: Vec<&str> = locked.iter().map(|org| org.org_id.as_str()).collect();
    let rows = sqlx::query!(
        r#"
        /* all tenants: one transaction stores the jobs of several organizations */
        with month as materialized (
            select org_id, eval_items, predict_items
            from usage
            where org_id = any($1)
              and period_start = date_trunc('month', now(), 'UTC')
            for update skip locked
        )
        select
            o.org_id as "org_id!: OrgId",
            clock_timestamp() as "now!: Timestamp",
            date_trunc('month', now(), 'UTC') as "period_start!: Timestamp",
            m.org_id is not null as "month_is_locked!",
            coalesce(m.eval_items, 0) as "eval_items!",
            coalesce(m.predict_items, 0) as "predict_items!"
        from unnest($1::text[]) as o(org_id)
        left join month m on m.org_id = o.org_id
        where not exists (
            select from usage u
            where u.org_id = o.org_id
              and u.period_start = date_trunc('month', now(), 'UTC')
              and not exists (
                  select from month m
                  where m.org_id = u.org_id
              )
        )
        "#,
        &org_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    let mut limits = HashMap::with_capacity(rows.len());
    for row in rows {
        let Some(org) = locked.iter().find(|org| org.org_id == row.org_id) else {
            continue;
        };
        let next_created_at = org.last_created_at.plus_micros(1).max(row.now);
        limits.insert(
            row.org_id,
            UsedLimits {
                next_created_at,
                period_start: row.period_start,
                active_max: org.active_max,
                accepted: 0,
                eval_items: row.eval_items,
                predict_items: row.predict_items,
                month_is_locked: row.month_is_locked,
                bytes: org.bytes,
            },
        );
    }
    Ok(limits)
}
