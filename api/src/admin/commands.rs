//! The commands for organizations, plans, users, sessions, keys and the artifact store.
//!
//! They act on the database as the owner of the schema, without the API. Each returns a JSON
//! object.

use assay_core::model::audit::{Actor, AuditType, Change, TargetType};
use assay_core::model::event::EventType;
use assay_core::model::key::NewKey;
use assay_core::model::org::{DefaultLimit, PLAN_LIMITS, PlanChange, Role};
use assay_core::model::secret::{Secret, SecretKind};
use assay_core::model::suite::SuiteId;
use assay_core::model::validation;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::operator::{self as commands, OrgState, RemovedVersion};
use assay_core::store::{self, PgConnection, PgPool, PoolProfile};
use assay_core::{BestEffort as _, KeyId, OrgId, SessionId, UserId};
use serde_json::{Value, json};

use crate::admin::error::{CommandError, Result, refused};
use crate::background::reconciliation;

/// Maximum number of attempts of a transaction that deadlocks with requests.
const ATTEMPTS_MAX: u32 = 5;

/// Rows of a removed suite that one transaction deletes.
const ROWS_AT_ONCE: i64 = 50_000;

/// Runs a command and records it in `operator_log`: the start before the command acts, then its
/// outcome. `target` is the id of the object that the command changes. If it is `None`, the id
/// comes from the result: that of the key, the user or the organization.
pub async fn logged(
    url: &str,
    command: &str,
    target: Option<&str>,
    run: impl Future<Output = Result<Value>>,
) -> Result<Value> {
    let pool = pool(url)?;
    let entry = commands::log_start(&pool, command, target).await?;
    let result = run.await;
    let id = |name: &str| result.as_ref().ok()?.get(name)?.as_str();
    let target = ["key_id", "user_id", "org_id"].into_iter().find_map(id);
    let outcome = if result.is_ok() { "done" } else { "refused" };
    // The command has taken effect, so the operator must get its result.
    commands::log_end(&pool, entry, target, outcome)
        .await
        .best_effort("recording the end of a command");
    result
}

pub(super) fn pool(url: &str) -> Result<PgPool> {
    Ok(store::pool(
        url,
        2,
        "assay-operator",
        PoolProfile::OPERATOR,
    )?)
}

pub(super) fn text(name: &str, value: &str) -> Result<String> {
    Ok(validation::text(name, value)?)
}

fn email(value: &str) -> Result<String> {
    Ok(validation::email("email", value)?)
}

pub(super) fn org_id(value: &str) -> Result<OrgId> {
    value
        .parse()
        .map_err(|_| refused(format!("{value:?} is not the id of an organization")))
}

/// `migrate`: applies the migrations of this build.
pub async fn migrate(url: &str) -> Result<Value> {
    let pool = pool(url)?;
    let migrations = store::migrations::migrate(&pool).await?;
    Ok(json!({"migrations": migrations}))
}

/// `org create`: creates an organization with its first owner.
pub async fn org_create(url: &str, name: &str, plan: &str, owner_email: &str) -> Result<Value> {
    let name = text("name", name)?;
    let email = email(owner_email)?;
    let pool = pool(url)?;
    ensure_plan_exists(&pool, plan).await?;
    let org_id = OrgId::random()?;
    let mut transaction = pool.begin().await?;
    let user_id = store::org::user(&mut transaction, &email, &UserId::random()?).await?;
    store::org::insert(&mut *transaction, &org_id, &name, plan, None).await?;
    store::org::add_member(&mut *transaction, &org_id, &user_id, Role::Owner).await?;
    let added = Change::member_added(&user_id, Role::Owner);
    store::audit::record(&mut transaction, &org_id, &Actor::OPERATOR, &[added]).await?;
    let event = EventType::MemberAdded;
    store::event::insert_member(&mut transaction, &org_id, event, &user_id).await?;
    transaction.commit().await?;
    Ok(
        json!({"org_id": org_id, "name": name, "plan": plan, "owner_user_id": user_id, "owner_email": email}),
    )
}

async fn ensure_plan_exists(pool: &PgPool, plan: &str) -> Result<()> {
    if store::plan::exists(pool, plan).await? {
        return Ok(());
    }
    Err(refused(format!(
        "there is no plan {plan:?}; there are: {}",
        store::plan::names(pool).await?.join(", ")
    )))
}

/// `org set`: changes the plan of an organization. It takes effect with the next request.
pub async fn org_set(url: &str, org: &str, plan: &str) -> Result<Value> {
    let org = org_id(org)?;
    let pool = pool(url)?;
    ensure_plan_exists(&pool, plan).await?;
    let mut transaction = pool.begin().await?;
    let (name, before) = store::plan::set(&mut *transaction, &org, plan)
        .await?
        .ok_or_else(|| unknown_org(&org))?;
    if before != plan {
        let changed = Change::new(
            AuditType::PlanChanged,
            TargetType::Organization,
            org.as_str(),
        );
        let changed = changed.field("plan", before, plan);
        store::audit::record(&mut transaction, &org, &Actor::OPERATOR, &[changed]).await?;
    }
    transaction.commit().await?;
    Ok(json!({"org_id": org, "name": name, "plan": plan}))
}

/// `plan set`: creates a plan, or changes the given limits of one. It takes effect with the next
/// request.
pub async fn plan_set(url: &str, name: &str, change: &PlanChange) -> Result<Value> {
    let name = text("name", name)?;
    let pool = pool(url)?;
    if !store::plan::update(&pool, &name, change).await? {
        let required = PLAN_LIMITS
            .iter()
            .filter(|limit| limit.default == DefaultLimit::Required);
        if required
            .clone()
            .any(|limit| !change.contains_key(limit.column))
        {
            let options: Vec<_> = required
                .map(|limit| format!("--{}", limit.option()))
                .collect();
            return Err(refused(format!(
                "there is no plan {name:?} yet; a new one needs {}",
                options.join(", ")
            )));
        }
        store::plan::insert(&pool, &name, change).await?;
    }
    let limits = store::plan::find(&pool, &name).await?;
    let mut object = json!(limits);
    object["plan"] = json!(name);
    Ok(object)
}

/// `artifacts reconcile`: removes objects that no row names, and counts rows whose object is
/// missing. A dry run only counts.
pub async fn reconcile(url: &str, artifacts: &str, dry_run: bool) -> Result<Value> {
    let artifacts = Artifacts::open(artifacts).await?;
    let report = reconciliation::once(&pool(url)?, &artifacts, dry_run).await?;
    let mut object = json!(report);
    object["dry_run"] = json!(dry_run);
    Ok(object)
}

/// `session create`: creates a session for a user, to try the API or for the first sign-in.
pub async fn session_create(url: &str, address: &str, org: Option<&str>) -> Result<Value> {
    let email = email(address)?;
    let org = org.map(org_id).transpose()?;
    let pool = pool(url)?;
    let user_id = store::org::find_user(&pool, &email)
        .await?
        .ok_or_else(|| refused(format!("nobody has the address {email:?}")))?;
    if let Some(org) = &org
        && !store::org::is_member(&pool, org, &user_id).await?
    {
        return Err(refused(format!("{email:?} is not a member of {org}")));
    }
    let token = Secret::random(SecretKind::Session)?;
    let session_id = SessionId::random()?;
    let mut transaction = pool.begin().await?;
    let expires_at = store::org::insert_session(
        &mut *transaction,
        org.as_ref(),
        &session_id,
        &user_id,
        &token.hash(),
    )
    .await?;
    let started = [Change::session(AuditType::SessionStarted, &session_id)];
    store::audit::record_in_orgs_of(&mut transaction, &user_id, &Actor::OPERATOR, &started).await?;
    transaction.commit().await?;
    Ok(
        json!({"session_id": session_id, "user_id": user_id, "org_id": org, "expires_at": expires_at, "token": token.into_text()}),
    )
}

/// `key create`: creates a key on behalf of the organization's oldest owner.
pub async fn key_create(url: &str, org: &str, name: &str) -> Result<Value> {
    let org = org_id(org)?;
    let name = text("name", name)?;
    let pool = pool(url)?;
    let owner = store::org::oldest_owner(&pool, &org)
        .await?
        .ok_or_else(|| unknown_org(&org))?;
    let new = NewKey::random(name, owner)?;
    let mut transaction = pool.begin().await?;
    let key = store::key::create(&mut transaction, &org, &new, &Actor::OPERATOR).await?;
    transaction.commit().await?;
    Ok(
        json!({"id": key.id, "org_id": key.org_id, "name": key.name, "prefix": key.prefix, "key": new.secret.into_text()}),
    )
}

/// Runs a transaction, and retries it if the database aborted it because of a deadlock with
/// requests.
async fn retry_deadlocks<T>(
    pool: &PgPool,
    transaction: impl AsyncFn(&mut PgConnection) -> Result<T>,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        let mut open = pool.begin().await?;
        let done = match transaction(&mut open).await {
            Ok(value) => open
                .commit()
                .await
                .map_err(CommandError::from)
                .map(|()| value),
            Err(error) => Err(error),
        };
        match done {
            Err(CommandError::Failed(error))
                if store::is_deadlock(&error) && attempt < ATTEMPTS_MAX =>
            {
                attempt += 1;
            }
            done => return done,
        }
    }
}

fn unknown_org(org: &OrgId) -> CommandError {
    refused(format!("there is no organization {org}"))
}

/// Returns the state of a locked organization, or an error if it does not exist or was deleted.
fn ensure_exists(org: &OrgId, state: Option<OrgState>) -> Result<OrgState> {
    let state = state.ok_or_else(|| unknown_org(org))?;
    if let Some(deleted_at) = state.deleted_at {
        return Err(refused(format!("{org} was deleted at {deleted_at}")));
    }
    Ok(state)
}

/// `org suspend`: suspends an organization. After that its credentials are rejected and its queued
/// jobs wait. Running jobs finish.
pub async fn org_suspend(url: &str, org: &str) -> Result<Value> {
    let org = org_id(org)?;
    retry_deadlocks(&pool(url)?, async |db: &mut PgConnection| {
        let before = ensure_exists(&org, commands::lock_org_and_writers(db, &org).await?)?;
        let suspended_at = commands::suspend(db, &org).await?;
        let (queued, running) = commands::active_jobs(db, &org).await?;
        let changed = before.suspended_at.is_none();
        Ok(json!({"org_id": org, "suspended_at": suspended_at, "changed": changed, "jobs_queued": queued, "jobs_running": running}))
    })
    .await
}

/// `org resume`: ends the suspension.
pub async fn org_resume(url: &str, org: &str) -> Result<Value> {
    let org = org_id(org)?;
    retry_deadlocks(&pool(url)?, async |db: &mut PgConnection| {
        let changed = ensure_exists(&org, commands::lock_org(db, &org).await?)?
            .suspended_at
            .is_some();
        let queued = if changed {
            commands::resume(db, &org).await?
        } else {
            commands::active_jobs(db, &org).await?.0.unsigned_abs()
        };
        Ok(json!({"org_id": org, "suspended_at": null, "changed": changed, "jobs_queued": queued}))
    })
    .await
}

/// `org delete`: deletes an organization, except the rows that accounting needs. `confirm` repeats
/// its id. A second run deletes the rest if the first one crashed. The API removes the objects from
/// the artifact store later.
pub async fn org_delete(url: &str, org: &str, confirm: &str) -> Result<Value> {
    let org = org_id(org)?;
    if confirm != org.as_str() {
        return Err(refused(format!(
            "deleting an organization cannot be undone: confirm it with --confirm {org}"
        )));
    }
    let pool = pool(url)?;
    // There are two transactions, because the first one waits for every transaction that writes
    // rows of the organization. Among them are attempts that hold locks on jobs, which the second
    // one changes. The content of suites follows in batches.
    let changed = retry_deadlocks(&pool, async |db: &mut PgConnection| {
        let before = commands::lock_org_and_writers(db, &org)
            .await?
            .ok_or_else(|| unknown_org(&org))?;
        commands::mark_deleted(db, &org).await?;
        Ok(before.deleted_at.is_none())
    });
    let changed = changed.await?;
    let deleted = retry_deadlocks(&pool, async |db: &mut PgConnection| {
        commands::lock_org(db, &org).await?;
        let suites = commands::mark_suites_removed(db, &org).await?;
        Ok((commands::delete_org(db, &org).await?, suites))
    });
    let (deleted, suites) = deleted.await?;
    for (suite_id, versions) in &suites {
        delete_removed(&pool, suite_id, versions).await?;
    }
    Ok(json!({"org_id": org, "changed": changed, "deleted": deleted}))
}

/// Deletes the content of removed versions, in batches.
pub(super) async fn delete_removed(
    pool: &PgPool,
    suite_id: &SuiteId,
    versions: &[RemovedVersion],
) -> Result<()> {
    let mut db = pool.acquire().await?;
    for version in versions {
        while commands::delete_removed(&mut db, suite_id, version, ROWS_AT_ONCE).await? {}
    }
    Ok(())
}

/// `key revoke`: revokes a key of any organization.
pub async fn key_revoke(url: &str, key: &str) -> Result<Value> {
    let key: KeyId = key
        .parse()
        .map_err(|_| refused(format!("{key:?} is not the id of a key")))?;
    let mut transaction = pool(url)?.begin().await?;
    let unknown = || refused(format!("there is no key {key}"));
    let org_id = commands::org_of_key(&mut transaction, &key)
        .await?
        .ok_or_else(unknown)?;
    let revoked = store::key::revoke(&mut transaction, &org_id, &key, &Actor::OPERATOR)
        .await?
        .ok_or_else(unknown)?;
    transaction.commit().await?;
    Ok(json!({"key_id": key, "org_id": org_id, "revoked_at": revoked.revoked_at}))
}

/// `session end --email`: ends all sessions of a user.
pub async fn session_end_all(url: &str, address: &str) -> Result<Value> {
    let email = email(address)?;
    let mut transaction = pool(url)?.begin().await?;
    let user_id = store::org::find_user(&mut *transaction, &email)
        .await?
        .ok_or_else(|| refused(format!("nobody has the address {email:?}")))?;
    let ended = commands::end_sessions(&mut transaction, &user_id).await?;
    let changes: Vec<_> = ended
        .iter()
        .map(|id| Change::session(AuditType::SessionEnded, id))
        .collect();
    store::audit::record_in_orgs_of(&mut transaction, &user_id, &Actor::OPERATOR, &changes).await?;
    transaction.commit().await?;
    Ok(json!({"user_id": user_id, "ended": ended.len()}))
}

/// `session end --session`: ends a session.
pub async fn session_end(url: &str, session: &str) -> Result<Value> {
    let session: SessionId = session
        .parse()
        .map_err(|_| refused(format!("{session:?} is not the id of a session")))?;
    let mut transaction = pool(url)?.begin().await?;
    let ended = commands::end_session(&mut transaction, &session).await?;
    let (user_id, was_open) =
        ended.ok_or_else(|| refused(format!("there is no session {session}")))?;
    if was_open {
        let ended = [Change::session(AuditType::SessionEnded, &session)];
        let actor = Actor::OPERATOR;
        store::audit::record_in_orgs_of(&mut transaction, &user_id, &actor, &ended).await?;
    }
    transaction.commit().await?;
    Ok(json!({"session_id": session, "user_id": user_id, "ended": u64::from(was_open)}))
}

/// `user erase`: erases an email address and its user. Objects that the user created belong to
/// organizations and keep the user's id.
pub async fn user_erase(url: &str, address: &str) -> Result<Value> {
    let email = email(address)?;
    retry_deadlocks(&pool(url)?, async |db: &mut PgConnection| {
        let mut erased = commands::erase_links(db, &email).await?;
        let user_id = commands::lock_user(db, &email).await?;
        if let Some(user_id) = &user_id {
            let sole = commands::sole_ownerships(db, user_id).await?;
            if !sole.is_empty() {
                let orgs: Vec<_> = sole.iter().map(|org| format!("{} ({:?})", org.org_id, org.name)).collect();
                return Err(refused(format!(
                    "{user_id} is the only owner of {}: let another member become an owner, or delete the organization, first",
                    orgs.join(", ")
                )));
            }
            erased += commands::erase_user(db, user_id).await?;
        }
        erased += commands::erase_address(db, &email).await?;
        if user_id.is_none() && erased.is_nothing() {
            return Err(refused(format!("nobody has the address {email:?}, and no invite or link names it")));
        }
        Ok(json!({"user_id": user_id, "erased": erased}))
    })
    .await
}
