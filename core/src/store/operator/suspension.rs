//! The state of an organization, and its suspension.

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// An organization's state that the operator can change.
pub struct OrgState {
    /// The suspension time, if it is suspended.
    pub suspended_at: Option<Timestamp>,
    /// The deletion time, if it was deleted.
    pub deleted_at: Option<Timestamp>,
}

/// Locks an organization until the transaction ends, and waits for transactions that store
/// something for it. Returns `None` if there is no such organization. The transaction must lock
/// nothing else, because some such transactions hold the organization's jobs.
pub async fn lock_org_and_writers(
    db: &mut PgConnection,
    org_id: &OrgId,
) -> Result<Option<OrgState>> {
    let state = sqlx::query_as!(
        OrgState,
        r#"
        select
            suspended_at as "suspended_at: Timestamp",
            deleted_at as "deleted_at: Timestamp"
        from orgs
        where id = $1
        for update
        "#,
        org_id.as_str()
    );
    Ok(state.fetch_optional(db).await?)
}

/// Locks an organization until the transaction ends, so that its owners do not change. Returns
/// `None` if there is no such organization.
pub async fn lock_org(db: &mut PgConnection, org_id: &OrgId) -> Result<Option<OrgState>> {
    let state = sqlx::query_as!(
        OrgState,
        r#"
        select
            suspended_at as "suspended_at: Timestamp",
            deleted_at as "deleted_at: Timestamp"
        from orgs
        where id = $1
        for no key update
        "#,
        org_id.as_str()
    );
    Ok(state.fetch_optional(db).await?)
}

/// Suspends an organization, and returns its suspension time. The caller holds the lock on
/// it and its writers.
pub async fn suspend(db: &mut PgConnection, org_id: &OrgId) -> Result<Timestamp> {
    let since = sqlx::query_scalar!(
        r#"
        update orgs
        set suspended_at = coalesce(suspended_at, clock_timestamp())
        where id = $1
        returning suspended_at as "since!: Timestamp"
        "#,
        org_id.as_str()
    );
    Ok(since.fetch_one(db).await?)
}

/// Ends an organization's suspension, and returns its queued job count. The caller
/// holds the lock on it.
pub async fn resume(db: &mut PgConnection, org_id: &OrgId) -> Result<u64> {
    sqlx::query!(
        "update orgs set suspended_at = null where id = $1",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // Workers may have consumed these jobs' notifications without claiming them. The suspension
    // time does not count as delay.
    let queued = sqlx::query!(
        "
        update jobs
        set
            dispatched_at = null,
            available_at = greatest(available_at, clock_timestamp())
        where org_id = $1
          and status = 'queued'
        ",
        org_id.as_str()
    );
    Ok(queued.execute(db).await?.rows_affected())
}

/// Returns an organization's queued and running job counts.
pub async fn active_jobs(db: &mut PgConnection, org_id: &OrgId) -> Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"
        select
            count(*) filter (where status = 'queued') as "queued!",
            count(*) filter (where status = 'running') as "running!"
        from jobs
        where org_id = $1
          and status in ('queued', 'running')
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((row.queued, row.running))
}
