//! The statements of the operator's commands that suspend, delete, revoke, end and erase. They run as the owner of the schema.

use sqlx::PgExecutor;

use super::{PgConnection, dispatch};
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::timestamp::Timestamp;

/// Records that a command started, and returns the number of its entry.
pub async fn log_start(
    db: impl PgExecutor<'_>,
    command: &str,
    target: Option<&str>,
) -> Result<i64> {
    let id = sqlx::query_scalar!(
        "insert into operator_log (command, target) values ($1, $2) returning id",
        command,
        target
    );
    Ok(id.fetch_one(db).await?)
}

/// Records how a command ended. `target` is what it acted on, if that was not known at its start.
pub async fn log_end(
    db: impl PgExecutor<'_>,
    entry: i64,
    target: Option<&str>,
    outcome: &str,
) -> Result<()> {
    sqlx::query!(
        "update operator_log set finished_at = clock_timestamp(), outcome = $3, target = coalesce(target, $2) where id = $1",
        entry,
        target,
        outcome
    )
    .execute(db)
    .await?;
    Ok(())
}

/// What an organization is to the operator.
pub struct OrgState {
    /// Since when it is suspended.
    pub suspended_at: Option<Timestamp>,
    /// When it was deleted.
    pub deleted_at: Option<Timestamp>,
}

/// Locks an organization until the transaction ends, and waits for transactions that store something for it. `None` when there is
/// none. The transaction must lock nothing else: some of those transactions hold the organization's jobs.
pub async fn lock_org_and_writers(
    db: &mut PgConnection,
    org_id: &OrgId,
) -> Result<Option<OrgState>> {
    let state = sqlx::query_as!(
        OrgState,
        r#"select suspended_at as "suspended_at: Timestamp", deleted_at as "deleted_at: Timestamp"
           from orgs where id = $1 for update"#,
        org_id.as_str()
    );
    Ok(state.fetch_optional(db).await?)
}

/// Locks an organization until the transaction ends: its owners stay what they are. `None` when there is none.
pub async fn lock_org(db: &mut PgConnection, org_id: &OrgId) -> Result<Option<OrgState>> {
    let state = sqlx::query_as!(
        OrgState,
        r#"select suspended_at as "suspended_at: Timestamp", deleted_at as "deleted_at: Timestamp"
           from orgs where id = $1 for no key update"#,
        org_id.as_str()
    );
    Ok(state.fetch_optional(db).await?)
}

/// Suspends an organization, and returns since when it is. It is locked, with those who write for it.
pub async fn suspend(db: &mut PgConnection, org_id: &OrgId) -> Result<Timestamp> {
    let since = sqlx::query_scalar!(
        r#"update orgs set suspended_at = coalesce(suspended_at, clock_timestamp()) where id = $1
           returning suspended_at as "since!: Timestamp""#,
        org_id.as_str()
    );
    Ok(since.fetch_one(db).await?)
}

/// Ends the suspension of an organization, and returns how many jobs can be claimed again. It is locked.
pub async fn resume(db: &mut PgConnection, org_id: &OrgId) -> Result<u64> {
    sqlx::query!(
        "update orgs set suspended_at = null where id = $1",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // Workers may have consumed the notifications of these jobs without claiming them. The time of the suspension is no delay.
    let queued = sqlx::query!(
        "update jobs set dispatched_at = null, available_at = greatest(available_at, clock_timestamp())
         where org_id = $1 and status = 'queued'",
        org_id.as_str()
    );
    Ok(queued.execute(db).await?.rows_affected())
}

/// How many jobs of an organization wait, and how many run.
pub async fn active_jobs(db: &mut PgConnection, org_id: &OrgId) -> Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"select count(*) filter (where status = 'queued') as "queued!", count(*) filter (where status = 'running') as "running!"
           from jobs where org_id = $1 and status in ('queued', 'running')"#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((row.queued, row.running))
}

/// What is deleted of an organization.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Deleted {
    /// Jobs that were cancelled.
    pub jobs_cancelled: u64,
    /// Jobs of which only what accounting needs is left.
    pub jobs_cleared: u64,
    /// Keys.
    pub keys: u64,
    /// Memberships.
    pub memberships: u64,
    /// Invites.
    pub invites: u64,
    /// Claimed domains.
    pub domains: u64,
    /// Uploads.
    pub uploads: u64,
}

/// Marks an organization as deleted: from the end of the transaction on nothing is stored for it and nobody joins it. It is locked,
/// with those who write for it.
pub async fn mark_deleted(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "update orgs set suspended_at = coalesce(suspended_at, clock_timestamp()), deleted_at = coalesce(deleted_at, clock_timestamp())
         where id = $1",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Deletes an organization but for what accounting needs: its months, its ledger, and its jobs without what callers gave or got.
/// Deleting it again deletes what is left. It is locked and marked as deleted. The artifact store's objects are removed later, by the
/// API.
pub async fn delete_org(db: &mut PgConnection, org_id: &OrgId) -> Result<Deleted> {
    let org = org_id.as_str();
    let cancelled = sqlx::query!(
        r#"with done as (
             update jobs set status = 'cancelled', finished_at = clock_timestamp(), worker_id = null, deadline_at = null
             where org_id = $1 and status in ('queued', 'running')
             returning id, attempts
         )
         select id as "id!", attempts from done"#,
        org
    )
    .fetch_all(&mut *db)
    .await?;
    let never_started: Vec<&str> = cancelled
        .iter()
        .filter(|job| job.attempts == 0)
        .map(|job| job.id.as_str())
        .collect();
    dispatch::refund(db, &never_started).await?;
    sqlx::query!("delete from job_attempts where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from sealed_results where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from stored_item_scores where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from suite_ladders where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    let jobs = sqlx::query!(
        "update jobs set label = null, idempotency_key = null, request_id = '', request_sha256 = '', trace_id = '', parent_span_id = null,
                span_id = null, scores_key = null, error_message = null, result = case when status = 'succeeded' then '{}'::jsonb end
         where org_id = $1 and request_sha256 <> ''",
        org
    );
    let jobs_cleared = jobs.execute(&mut *db).await?.rows_affected();
    let uploads = sqlx::query!(
        "update uploads set deleted_at = coalesce(deleted_at, now()), sha256 = null
         where org_id = $1 and (deleted_at is null or sha256 is not null)",
        org
    );
    let uploads = uploads.execute(&mut *db).await?.rows_affected();
    sqlx::query!("delete from upload_parts where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from stored_predictions where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    // Last, because the two statements before still count in it.
    sqlx::query!("delete from org_storage where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    let keys = sqlx::query!("delete from api_keys where org_id = $1", org)
        .execute(&mut *db)
        .await?
        .rows_affected();
    let invites = sqlx::query!("delete from invites where org_id = $1", org)
        .execute(&mut *db)
        .await?
        .rows_affected();
    let domains = sqlx::query!("delete from domain_claims where org_id = $1", org)
        .execute(&mut *db)
        .await?
        .rows_affected();
    sqlx::query!("delete from suite_grants where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from offboardings where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    sqlx::query!("update sessions set org_id = null where org_id = $1", org)
        .execute(&mut *db)
        .await?;
    let memberships = sqlx::query!("delete from memberships where org_id = $1", org)
        .execute(&mut *db)
        .await?
        .rows_affected();
    sqlx::query!(
        "update orgs set name = 'Deleted organization' where id = $1",
        org
    )
    .execute(db)
    .await?;
    Ok(Deleted {
        jobs_cancelled: cancelled.len() as u64,
        jobs_cleared,
        keys,
        memberships,
        invites,
        domains,
        uploads,
    })
}

/// Revokes a key of any organization. Revoking it again changes nothing. `None` when there is none.
pub async fn revoke_key(
    db: &mut PgConnection,
    key_id: &KeyId,
) -> Result<Option<(OrgId, Timestamp)>> {
    let row = sqlx::query!(
        r#"update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = $1
           returning org_id as "org_id: OrgId", revoked_at as "revoked_at!: Timestamp""#,
        key_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.org_id, row.revoked_at)))
}

/// Ends all sessions of a user that have not ended, and returns how many.
pub async fn end_sessions(db: &mut PgConnection, user_id: &UserId) -> Result<u64> {
    let done = sqlx::query!(
        "update sessions set ended_at = clock_timestamp() where user_id = $1 and ended_at is null",
        user_id.as_str()
    );
    Ok(done.execute(db).await?.rows_affected())
}

/// Ends a session, and returns whose it is and whether it had not ended. `None` when there is none.
pub async fn end_session(
    db: &mut PgConnection,
    session_id: &SessionId,
) -> Result<Option<(UserId, bool)>> {
    let row = sqlx::query!(
        r#"with before as (
             select id, ended_at from sessions where id = $1 for update
         )
         update sessions s set ended_at = coalesce(s.ended_at, clock_timestamp()) from before b where s.id = b.id
         returning s.user_id as "user_id: UserId", b.ended_at is null as "was_open!""#,
        session_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.user_id, row.was_open)))
}

/// An organization that would be left without an owner.
pub struct SoleOwnership {
    /// The organization.
    pub org_id: OrgId,
    /// Its name.
    pub name: String,
}

/// Locks the address, the organizations of its user, and the user, until the transaction ends. `None` when nobody has the address.
pub async fn lock_user(db: &mut PgConnection, email: &str) -> Result<Option<UserId>> {
    super::org::lock_address(db, email).await?;
    let found = super::org::find_user(&mut *db, email).await?;
    let Some(user_id) = found else {
        return Ok(None);
    };
    // Organizations first, in the order of their ids: so do all that lock both.
    sqlx::query!(
        "select from orgs where id in (select org_id from memberships where user_id = $1) order by id for no key update",
        user_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // This waits for transactions that have stored something in the user's name.
    let user_id = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1 for update"#,
        email
    );
    Ok(user_id.fetch_optional(db).await?)
}

/// The organizations that have this user as their only owner. They are locked.
pub async fn sole_ownerships(
    db: &mut PgConnection,
    user_id: &UserId,
) -> Result<Vec<SoleOwnership>> {
    let orgs = sqlx::query_as!(
        SoleOwnership,
        r#"select o.id as "org_id: OrgId", o.name from memberships m join orgs o on o.id = m.org_id
           where m.user_id = $1 and m.role = 'owner'
             and not exists (select from memberships x where x.org_id = m.org_id and x.role = 'owner' and x.user_id <> m.user_id)
           order by o.id"#,
        user_id.as_str()
    );
    Ok(orgs.fetch_all(db).await?)
}

/// What is erased of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Erased {
    /// Memberships.
    pub memberships: u64,
    /// Sessions.
    pub sessions: u64,
    /// Invites to the address.
    pub invites: u64,
    /// Links to sign in with.
    pub sign_in_links: u64,
}

impl std::ops::AddAssign for Erased {
    fn add_assign(&mut self, other: Self) {
        let Self {
            memberships,
            sessions,
            invites,
            sign_in_links,
        } = other;
        self.memberships += memberships;
        self.sessions += sessions;
        self.invites += invites;
        self.sign_in_links += sign_in_links;
    }
}

impl Erased {
    /// Whether there was nothing to erase.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Erases the links of an address. First of all: a sign-in locks its link before the address.
pub async fn erase_links(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let links = sqlx::query!("delete from sign_in_links where email = $1", email)
        .execute(db)
        .await?;
    Ok(Erased {
        sign_in_links: links.rows_affected(),
        ..Erased::default()
    })
}

/// Erases the invites and the count of emails of an address.
pub async fn erase_address(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let invites = sqlx::query!("delete from invites where email = $1", email)
        .execute(&mut *db)
        .await?
        .rows_affected();
    sqlx::query!("delete from mailed where email = $1", email)
        .execute(db)
        .await?;
    Ok(Erased {
        invites,
        ..Erased::default()
    })
}

/// Erases a user: memberships and sessions end, and the address becomes one that nobody can have. What they made belongs to
/// organizations and keeps their id. They are locked.
pub async fn erase_user(db: &mut PgConnection, user_id: &UserId) -> Result<Erased> {
    let user = user_id.as_str();
    let memberships = sqlx::query!("delete from memberships where user_id = $1", user)
        .execute(&mut *db)
        .await?
        .rows_affected();
    sqlx::query!("delete from offboardings where user_id = $1", user)
        .execute(&mut *db)
        .await?;
    let sessions = sqlx::query!("delete from sessions where user_id = $1", user)
        .execute(&mut *db)
        .await?
        .rows_affected();
    // It has no "@", so no sign-in and no invite can name it.
    sqlx::query!(
        "update users set email = 'erased ' || id where id = $1",
        user
    )
    .execute(db)
    .await?;
    Ok(Erased {
        memberships,
        sessions,
        ..Erased::default()
    })
}
