//! The operator's commands that suspend and delete organizations, revoke keys, end sessions and
//! erase users. They run as the schema's owner.

pub mod migrations;

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, PgExecutor};

use crate::model::audit::{Actor, AuditType, Change, TargetType};
use crate::model::error::Result;
use crate::model::event::EventType;
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::org::Role;
use crate::model::timestamp::Timestamp;
use crate::model::validation::mailbox;
use crate::store::{PgConnection, audit, event, org, usage};

/// Records a command's start, and returns its log entry's number.
pub async fn log_start(
    db: impl PgExecutor<'_>,
    command: &str,
    target: Option<&str>,
) -> Result<i64> {
    let id = sqlx::query_scalar!(
        "
        insert into operator_log (command, target)
        values ($1, $2)
        returning id
        ",
        command,
        target
    );
    Ok(id.fetch_one(db).await?)
}

/// Records a command's end. `target` is the command's object, if it was not known at the
/// start.
pub async fn log_end(
    db: impl PgExecutor<'_>,
    entry: i64,
    target: Option<&str>,
    outcome: &str,
) -> Result<()> {
    sqlx::query!(
        "
        update operator_log
        set
            finished_at = clock_timestamp(),
            outcome = $3,
            target = coalesce(target, $2)
        where id = $1
        ",
        entry,
        target,
        outcome
    )
    .execute(db)
    .await?;
    Ok(())
}

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

/// Row counts that an organization's deletion affected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Deleted {
    /// Jobs that were cancelled.
    pub jobs_cancelled: u64,
    /// Jobs that were reduced to the columns that accounting needs.
    pub jobs_cleared: u64,
    /// API keys that were deleted.
    pub keys: u64,
    /// Memberships that were deleted.
    pub memberships: u64,
    /// Invites that were deleted.
    pub invites: u64,
    /// Domain claims that were deleted.
    pub domains: u64,
    /// Uploads that were marked as deleted.
    pub uploads: u64,
}

/// Marks an organization as deleted: after the transaction nothing is stored for it and no user
/// joins it. The caller holds the lock on it and its writers.
pub async fn mark_deleted(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "
        update orgs
        set
            suspended_at = coalesce(suspended_at, clock_timestamp()),
            deleted_at = coalesce(deleted_at, clock_timestamp())
        where id = $1
        ",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The handling of an organization's rows in a table when the organization is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erasure {
    /// Deletes them, and with them the rows that cascade.
    Delete,
    /// Removes what accounting does not need, by this statement.
    Update(&'static str),
    /// Keeps them for this reason.
    Keep(&'static str),
}

/// Reduces jobs to what accounting needs.
const CLEAR_JOBS: &str = "
    update jobs
    set
        label = null,
        metadata = null,
        idempotency_key = null,
        request_id = '',
        request_sha256 = '',
        trace_id = '',
        parent_span_id = null,
        span_id = null,
        scores_key = null,
        served_model = case when finished_at is null then served_model end,
        parameters = case when parameters is not null then '{}'::jsonb end,
        error_message = null,
        result = case when status = 'succeeded' then '{}'::jsonb end
    where org_id = $1
      and request_id <> ''
";

/// Marks uploads as deleted, and removes what their content can be recognized by.
const CLEAR_UPLOADS: &str = "
    update uploads
    set
        deleted_at = coalesce(deleted_at, now()),
        sha256 = null,
        digest = case when digest is not null then ''::bytea end,
        error_message = null
    where org_id = $1
      and (deleted_at is null or sha256 is not null or digest <> '' or error_message is not null)
";

/// Withdraws the entries of boards, and removes their names.
const CLEAR_BOARD_ENTRIES: &str = "
    update board_entries
    set
        withdrawn_at = coalesce(withdrawn_at, clock_timestamp()),
        name = id,
        name_key = id,
        name_shown = id,
        url = null,
        entered_by = '',
        removed_reason = null,
        revision = revision + 1
    where org_id = $1
      and name <> id
";

/// The tables with rows of organizations, in the order of deletion. The parameter of a statement is the
/// organization.
pub const ORG_TABLES: &[(&str, Erasure)] = &[
    ("job_attempts", Erasure::Delete),
    ("sealed_results", Erasure::Delete),
    ("receipts", Erasure::Delete),
    ("receipt_salts", Erasure::Delete),
    ("stored_item_scores", Erasure::Delete),
    ("jobs", Erasure::Update(CLEAR_JOBS)),
    ("uploads", Erasure::Update(CLEAR_UPLOADS)),
    ("upload_parts", Erasure::Delete),
    ("board_entries", Erasure::Update(CLEAR_BOARD_ENTRIES)),
    ("board_predictions", Erasure::Delete),
    ("stored_predictions", Erasure::Delete),
    // After the parts and the predictions, whose deletion updates it.
    ("org_storage", Erasure::Delete),
    ("serve_keys", Erasure::Delete),
    ("org_models", Erasure::Delete),
    ("api_keys", Erasure::Delete),
    ("invites", Erasure::Delete),
    ("domain_claims", Erasure::Delete),
    ("suite_grants", Erasure::Delete),
    ("offboardings", Erasure::Delete),
    ("device_logins", Erasure::Delete),
    (
        "sessions",
        Erasure::Update("update sessions set org_id = null where org_id = $1"),
    ),
    ("memberships", Erasure::Delete),
    // After the memberships, whose users could create further ones.
    ("webhooks", Erasure::Delete),
    ("webhook_payloads", Erasure::Delete),
    ("events", Erasure::Delete),
    ("usage_thresholds", Erasure::Delete),
    ("usage_request_days", Erasure::Delete),
    ("audit_entries", Erasure::Delete),
    ("usage", Erasure::Keep("accounting")),
    ("usage_ledger", Erasure::Keep("accounting")),
    ("usage_requests", Erasure::Keep("accounting")),
    (
        "org_submissions",
        Erasure::Keep("a time and a number of jobs, without content"),
    ),
    (
        "suite_disclosures",
        Erasure::Keep(
            "what other organizations of the same holder may still submit depends on them",
        ),
    ),
    (
        "terms_acceptances",
        Erasure::Keep("evidence of the acceptance"),
    ),
];

/// Deletes an organization except for the rows that accounting needs: its months, its ledger, and
/// its jobs without the callers' data and results. Deleting it again deletes the rows that are
/// left. The organization is locked and marked as deleted. The API removes the artifact store's
/// objects later.
pub async fn delete_org(db: &mut PgConnection, org_id: &OrgId) -> Result<Deleted> {
    let org = org_id.as_str();
    let cancelled = sqlx::query!(
        r#"
        with done as (
            update jobs
            set
                status = 'cancelled',
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            where org_id = $1
              and status in ('queued', 'running')
            returning id, attempts
        )
        select
            id as "id!",
            attempts
        from done
        "#,
        org
    )
    .fetch_all(&mut *db)
    .await?;
    let never_started: Vec<&str> = cancelled
        .iter()
        .filter(|job| job.attempts == 0)
        .map(|job| job.id.as_str())
        .collect();
    usage::refund(db, &never_started).await?;
    let mut affected = HashMap::new();
    for (table, erasure) in ORG_TABLES {
        let statement = match erasure {
            Erasure::Delete => format!("delete from {table} where org_id = $1"),
            Erasure::Update(statement) => (*statement).to_owned(),
            Erasure::Keep(_) => continue,
        };
        // Only constants are part of the statement.
        let done = sqlx::query(AssertSqlSafe(statement)).bind(org);
        affected.insert(*table, done.execute(&mut *db).await?.rows_affected());
    }
    sqlx::query!(
        "update orgs set name = 'Deleted organization' where id = $1",
        org
    )
    .execute(db)
    .await?;
    let rows = |table| affected.get(table).copied().unwrap_or_default();
    Ok(Deleted {
        jobs_cancelled: cancelled.len() as u64,
        jobs_cleared: rows("jobs"),
        keys: rows("api_keys"),
        memberships: rows("memberships"),
        invites: rows("invites"),
        domains: rows("domain_claims"),
        uploads: rows("uploads"),
    })
}

/// Returns a key's organization. Returns `None` if there is no such key.
pub async fn org_of_key(db: &mut PgConnection, key_id: &KeyId) -> Result<Option<OrgId>> {
    let org_id = sqlx::query_scalar!(
        r#"
        /* all tenants: the operator names a key by its id alone */
        select org_id as "org_id: OrgId"
        from api_keys
        where id = $1
        "#,
        key_id.as_str()
    );
    Ok(org_id.fetch_optional(db).await?)
}

/// Ends all a user's live sessions, and returns them.
pub async fn end_sessions(db: &mut PgConnection, user_id: &UserId) -> Result<Vec<SessionId>> {
    let ended = sqlx::query_scalar!(
        r#"
        update sessions
        set ended_at = clock_timestamp()
        where user_id = $1
          and ended_at is null
        returning id as "id: SessionId"
        "#,
        user_id.as_str()
    );
    Ok(ended.fetch_all(db).await?)
}

/// Ends a session. Returns its user, and whether this call ended it, or `None` if there is no such
/// session.
pub async fn end_session(
    db: &mut PgConnection,
    session_id: &SessionId,
) -> Result<Option<(UserId, bool)>> {
    let row = sqlx::query!(
        r#"
        with before as (
            select id, ended_at
            from sessions
            where id = $1
            for update
        )
        update sessions s
        set ended_at = coalesce(s.ended_at, clock_timestamp())
        from before b
        where s.id = b.id
        returning
            s.user_id as "user_id: UserId",
            b.ended_at is null as "was_open!"
        "#,
        session_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.user_id, row.was_open)))
}

/// An organization that would be left without an owner.
pub struct SoleOwnership {
    /// The organization's id.
    pub org_id: OrgId,
    /// The organization's name.
    pub name: String,
}

/// Locks the address, its user's organizations, and the user, until the transaction ends.
/// Returns `None` if no user has the address.
pub async fn lock_user(db: &mut PgConnection, email: &str) -> Result<Option<UserId>> {
    org::lock_address(db, email).await?;
    let found = org::find_user(&mut *db, email).await?;
    let Some(user_id) = found else {
        return Ok(None);
    };
    // Organizations first, in id order, as in all transactions that lock both.
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        select from orgs
        where id in (select org_id from memberships where user_id = $1)
        order by id
        for no key update
        ",
        user_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // Waits for transactions that have stored something in the user's name.
    let user_id = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1 for update"#,
        email
    );
    Ok(user_id.fetch_optional(db).await?)
}

/// Returns the organizations whose only owner is this user. They are locked.
pub async fn sole_ownerships(
    db: &mut PgConnection,
    user_id: &UserId,
) -> Result<Vec<SoleOwnership>> {
    let orgs = sqlx::query_as!(
        SoleOwnership,
        r#"
        /* all tenants: the operator erases a user in every organization */
        select
            o.id as "org_id: OrgId",
            o.name
        from memberships m
        join orgs o on o.id = m.org_id
        where m.user_id = $1
          and m.role = 'owner'
          and not exists (
              select from memberships x
              where x.org_id = m.org_id
                and x.role = 'owner'
                and x.user_id <> m.user_id
          )
        order by o.id
        "#,
        user_id.as_str()
    );
    Ok(orgs.fetch_all(db).await?)
}

/// Row counts that a user's erasure deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Erased {
    /// The user's memberships.
    pub memberships: u64,
    /// The user's sessions.
    pub sessions: u64,
    /// Invites to the address.
    pub invites: u64,
    /// The address's sign-in links.
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
    /// Returns `true` if nothing was erased.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Erases an address's sign-in links. Must come first, because a sign-in locks its link before
/// the address.
pub async fn erase_links(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let links = sqlx::query!("delete from sign_in_links where email = $1", email)
        .execute(db)
        .await?;
    Ok(Erased {
        sign_in_links: links.rows_affected(),
        ..Erased::default()
    })
}

/// Erases the invites to an address and its email count.
pub async fn erase_address(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let invites = sqlx::query!(
        "
        /* all tenants: the operator erases the invites of every organization */
        delete from invites where email = $1
        ",
        email
    )
    .execute(&mut *db)
    .await?
    .rows_affected();
    sqlx::query!(
        "
        /* all tenants: the operator erases the address in the audit log of every organization */
        update audit_entries
        set changes = changes - 'email'
        where changes -> 'email' ->> 'after' = $1
        ",
        email
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from mailed where email = $1", mailbox(email))
        .execute(db)
        .await?;
    Ok(Erased {
        invites,
        ..Erased::default()
    })
}

/// Erases a user: deletes memberships, sessions and provider accounts, and replaces the address by one that no mailbox
/// has. Rows that the user created belong to organizations and keep the user's id. The caller holds [`lock_user`]'s
/// locks.
pub async fn erase_user(db: &mut PgConnection, user_id: &UserId) -> Result<Erased> {
    let user = user_id.as_str();
    let orgs = sqlx::query_scalar!(
        r#"
        /* all tenants: the operator erases a user in every organization */
        select org_id as "org_id: OrgId"
        from memberships
        where user_id = $1
        "#,
        user
    )
    .fetch_all(&mut *db)
    .await?;
    for org_id in &orgs {
        event::insert_member(db, org_id, EventType::MemberRemoved, user_id).await?;
    }
    let memberships = sqlx::query!(
        r#"
        /* all tenants: the operator erases a user in every organization */
        delete from memberships
        where user_id = $1
        returning
            org_id as "org_id: OrgId",
            role as "role: Role"
        "#,
        user
    )
    .fetch_all(&mut *db)
    .await?;
    for membership in &memberships {
        let removed = Change::new(AuditType::MemberRemoved, TargetType::Member, user).field(
            "role",
            membership.role,
            (),
        );
        audit::record(db, &membership.org_id, &Actor::OPERATOR, &[removed]).await?;
    }
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        update audit_entries
        set
            email = null,
            address = null
        where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    // Otherwise an event with the address could be stored for a webhook afterwards.
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        select w.id
        from webhooks w
        where w.org_id in (
            select e.org_id
            from events e
            where e.data is not null
              and e.data ->> 'user_id' = $1
        )
        order by w.id
        for no key update
        ",
        user
    )
    .fetch_all(&mut *db)
    .await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        delete from webhook_payloads where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        update events
        set data = data || jsonb_build_object('email', 'erased ' || $1::text)
        where data is not null
          and data ->> 'user_id' = $1
          and data ? 'email'
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        delete from offboardings where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from mail_preferences where user_id = $1", user)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from identities where user_id = $1", user)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from device_logins where approved_by = $1", user)
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
        memberships: memberships.len() as u64,
        sessions,
        ..Erased::default()
    })
}
