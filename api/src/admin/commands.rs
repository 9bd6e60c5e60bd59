//! The operator's commands. They act on the database as the schema's owner, without the api. Each gives one JSON object.

use std::path::Path;

use assay_core::model::catalog::ModelFile;
use assay_core::model::key::NewKey;
use assay_core::model::org::{PlanChange, PlanRow, Role};
use assay_core::model::secret::{Secret, SecretKind};
use assay_core::model::suite::SuiteId;
use assay_core::model::validation;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::operator::{self as commands, OrgState};
use assay_core::store::{self, PgConnection, PgPool, PoolProfile, publish};
use assay_core::{BestEffort as _, Error, KeyId, OrgId, Result, SessionId, Timestamp, UserId};
use assay_eval::suite::{FolderItem, SuiteFolder};
use serde_json::{Value, json};

use crate::admin::suite_audit::Audit;
use crate::background::reconciliation;

/// Number of items that one statement stores.
const BATCH: usize = 5_000;

/// Maximum number of attempts of a transaction that deadlocks with requests.
const ATTEMPTS_MAX: u32 = 5;

/// Runs a command, and records it in `operator_log`: its start before it does anything, and how it ended. `target` is the id of what
/// it acts on, or `None`; then it is the first of these that its result names: the key, the user, the organization.
pub async fn logged(
    url: &str,
    command: &str,
    target: Option<&str>,
    run: impl Future<Output = Result<Value>>,
) -> Result<Value> {
    let pool = pool(url)?;
    let entry = commands::log_start(&pool, command, target).await?;
    let done = run.await;
    let named = |name: &str| done.as_ref().ok()?.get(name)?.as_str();
    let target = ["key_id", "user_id", "org_id"].into_iter().find_map(named);
    let outcome = if done.is_ok() { "done" } else { "refused" };
    // The command itself is done: its result must reach the operator.
    commands::log_end(&pool, entry, target, outcome)
        .await
        .best_effort("recording the end of a command");
    done
}

/// Returns the error of a command that was refused, with a message for the operator.
fn refused(message: impl Into<String>) -> Error {
    Error::field("command", "refused", message)
}

/// The refusal to publish something else under the name of what is published.
fn changed(id: &str, version: &str) -> Error {
    refused(format!(
        "version {version} of {id} is published with other content; a published version never changes: give it a new version"
    ))
}

fn pool(url: &str) -> Result<PgPool> {
    store::pool(url, 2, "assay-operator", PoolProfile::OPERATOR)
}

fn text(name: &str, value: &str) -> Result<String> {
    Ok(validation::text(name, value)?)
}

fn email(value: &str) -> Result<String> {
    Ok(validation::email("email", value)?)
}

fn org_id(value: &str) -> Result<OrgId> {
    value
        .parse()
        .map_err(|_| refused(format!("{value:?} is not the id of an organization")))
}

/// `migrate`: brings the schema to this build's version.
pub async fn migrate(url: &str) -> Result<Value> {
    let migrations = store::migrations::migrate(&pool(url)?).await?;
    Ok(json!({"migrations": migrations}))
}

/// `org create`: an organization with its first owner.
pub async fn org_create(url: &str, name: &str, plan: &str, owner_email: &str) -> Result<Value> {
    let (name, email) = (text("name", name)?, email(owner_email)?);
    let pool = pool(url)?;
    known_plan(&pool, plan).await?;
    let org_id = OrgId::random()?;
    let mut transaction = pool.begin().await?;
    let user_id = store::org::user(&mut transaction, &email, &UserId::random()?).await?;
    store::org::insert(&mut *transaction, &org_id, &name, plan, None).await?;
    store::org::add_member(&mut *transaction, &org_id, &user_id, Role::Owner).await?;
    transaction.commit().await?;
    Ok(
        json!({"org_id": org_id, "name": name, "plan": plan, "owner_user_id": user_id, "owner_email": email}),
    )
}

async fn known_plan(pool: &PgPool, plan: &str) -> Result<()> {
    if store::plan::exists(pool, plan).await? {
        return Ok(());
    }
    Err(refused(format!(
        "there is no plan {plan:?}; there are: {}",
        store::plan::names(pool).await?.join(", ")
    )))
}

/// `org set`: puts an organization on a plan. It holds from the next request on.
pub async fn org_set(url: &str, org: &str, plan: &str) -> Result<Value> {
    let org = org_id(org)?;
    let pool = pool(url)?;
    known_plan(&pool, plan).await?;
    let name = store::plan::set(&pool, &org, plan)
        .await?
        .ok_or_else(|| refused(format!("there is no organization {org}")))?;
    Ok(json!({"org_id": org, "name": name, "plan": plan}))
}

/// `plan set`: makes a plan, or changes what is given of one. It holds from the next request on.
pub async fn plan_set(url: &str, name: &str, change: &PlanChange) -> Result<Value> {
    let name = text("name", name)?;
    let pool = pool(url)?;
    if let Some(row) = store::plan::update(&pool, &name, change).await? {
        return Ok(json!(row));
    }
    let PlanChange {
        requests_per_minute: Some(requests_per_minute),
        eval_items_per_month: Some(eval_items_per_month),
        concurrent_jobs: Some(concurrent_jobs),
        upload_bytes_max: Some(upload_bytes_max),
        storage_bytes,
    } = *change
    else {
        return Err(refused(format!(
            "there is no plan {name:?} yet; a new one needs --requests-per-minute, --eval-items-per-month, --concurrent-jobs and --upload-bytes-max"
        )));
    };
    let storage_bytes = storage_bytes.unwrap_or(upload_bytes_max.saturating_mul(10));
    let row = PlanRow {
        plan: name,
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs,
        upload_bytes_max,
        storage_bytes,
    };
    store::plan::insert(&pool, &row).await?;
    Ok(json!(row))
}

/// `artifacts reconcile`: removes objects that no row names, and counts rows without their object. A dry run only counts.
pub async fn reconcile(url: &str, artifacts: &str, dry_run: bool) -> Result<Value> {
    let artifacts = Artifacts::open(artifacts).await?;
    let report = reconciliation::once(&pool(url)?, &artifacts, dry_run).await?;
    let mut object = json!(report);
    object["dry_run"] = json!(dry_run);
    Ok(object)
}

/// `session create`: a session of a person who is known, for trying and for the first sign-in.
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
    let expires_at =
        store::org::insert_session(&pool, org.as_ref(), &session_id, &user_id, &token.hash())
            .await?;
    Ok(
        json!({"session_id": session_id, "user_id": user_id, "org_id": org, "expires_at": expires_at, "token": token.into_text()}),
    )
}

/// `key create`: a key in the name of the organization's oldest owner.
pub async fn key_create(url: &str, org: &str, name: &str) -> Result<Value> {
    let (org, name) = (org_id(org)?, text("name", name)?);
    let pool = pool(url)?;
    let owner = store::org::oldest_owner(&pool, &org)
        .await?
        .ok_or_else(|| refused(format!("there is no organization {org}")))?;
    let new = NewKey::random(name, owner)?;
    let key = store::key::insert(&pool, &org, &new).await?;
    Ok(
        json!({"id": key.id, "org_id": key.org_id, "name": key.name, "prefix": key.prefix, "key": new.secret.into_text()}),
    )
}

/// Runs a transaction of a command again where the database ended it because of a deadlock with requests.
async fn repeated<T>(
    pool: &PgPool,
    transaction: impl AsyncFn(&mut PgConnection) -> Result<T>,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        let mut open = pool.begin().await?;
        let done = match transaction(&mut open).await {
            Ok(value) => open.commit().await.map_err(Error::from).map(|()| value),
            Err(error) => Err(error),
        };
        match done {
            Err(error) if store::is_deadlock(&error) && attempt < ATTEMPTS_MAX => attempt += 1,
            done => return done,
        }
    }
}

fn no_org(org: &OrgId) -> Error {
    refused(format!("there is no organization {org}"))
}

/// The state of an organization that was locked, unless it was deleted.
fn existing(org: &OrgId, state: Option<OrgState>) -> Result<OrgState> {
    let state = state.ok_or_else(|| no_org(org))?;
    if let Some(deleted_at) = state.deleted_at {
        return Err(refused(format!("{org} was deleted at {deleted_at}")));
    }
    Ok(state)
}

/// `org suspend`: from its end on, every credential of the organization is refused and its queued jobs wait. Jobs that run finish.
pub async fn org_suspend(url: &str, org: &str) -> Result<Value> {
    let org = org_id(org)?;
    repeated(&pool(url)?, async |db: &mut PgConnection| {
        let before = existing(&org, commands::lock_org_and_writers(db, &org).await?)?;
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
    repeated(&pool(url)?, async |db: &mut PgConnection| {
        let changed = existing(&org, commands::lock_org(db, &org).await?)?
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

/// `org delete`: deletes an organization but for what accounting needs. `confirm` is its id once more. Deleting it again deletes what a
/// command that died has left. The API removes its objects from the artifact store later.
pub async fn org_delete(url: &str, org: &str, confirm: &str) -> Result<Value> {
    let org = org_id(org)?;
    if confirm != org.as_str() {
        return Err(refused(format!(
            "deleting an organization cannot be undone: confirm it with --confirm {org}"
        )));
    }
    let pool = pool(url)?;
    // Two transactions: the first one waits for all who store something for the organization, among them attempts that hold jobs which
    // the second one changes.
    let changed = repeated(&pool, async |db: &mut PgConnection| {
        let before = commands::lock_org_and_writers(db, &org)
            .await?
            .ok_or_else(|| no_org(&org))?;
        commands::mark_deleted(db, &org).await?;
        Ok(before.deleted_at.is_none())
    });
    let changed = changed.await?;
    let deleted = repeated(&pool, async |db: &mut PgConnection| {
        commands::lock_org(db, &org).await?;
        commands::delete_org(db, &org).await
    });
    Ok(json!({"org_id": org, "changed": changed, "deleted": deleted.await?}))
}

/// `key revoke`: revokes a key of any organization.
pub async fn key_revoke(url: &str, key: &str) -> Result<Value> {
    let key: KeyId = key
        .parse()
        .map_err(|_| refused(format!("{key:?} is not the id of a key")))?;
    let mut db = pool(url)?.acquire().await?;
    let revoked = commands::revoke_key(&mut db, &key).await?;
    let (org_id, revoked_at) = revoked.ok_or_else(|| refused(format!("there is no key {key}")))?;
    Ok(json!({"key_id": key, "org_id": org_id, "revoked_at": revoked_at}))
}

/// `session end --email`: ends all sessions of a user.
pub async fn session_end_all(url: &str, address: &str) -> Result<Value> {
    let email = email(address)?;
    let mut db = pool(url)?.acquire().await?;
    let user_id = store::org::find_user(&mut *db, &email)
        .await?
        .ok_or_else(|| refused(format!("nobody has the address {email:?}")))?;
    let ended = commands::end_sessions(&mut db, &user_id).await?;
    Ok(json!({"user_id": user_id, "ended": ended}))
}

/// `session end --session`: ends a session.
pub async fn session_end(url: &str, session: &str) -> Result<Value> {
    let session: SessionId = session
        .parse()
        .map_err(|_| refused(format!("{session:?} is not the id of a session")))?;
    let mut db = pool(url)?.acquire().await?;
    let ended = commands::end_session(&mut db, &session).await?;
    let (user_id, was_open) =
        ended.ok_or_else(|| refused(format!("there is no session {session}")))?;
    Ok(json!({"session_id": session, "user_id": user_id, "ended": u64::from(was_open)}))
}

/// `user erase`: erases an address and its user. What the user made belongs to organizations and keeps the user's id.
pub async fn user_erase(url: &str, address: &str) -> Result<Value> {
    let email = email(address)?;
    repeated(&pool(url)?, async |db: &mut PgConnection| {
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

/// `suite publish`: a folder becomes a version of a suite, whole or not at all. The same again changes nothing.
pub async fn suite_publish(url: &str, folder: &Path) -> Result<Value> {
    let read = read_suite(folder)?;
    let audit = Audit::new(&read)?;
    let SuiteFolder {
        suite_id,
        version,
        metric,
        per_item_feedback,
        description,
        protection,
        items,
        content_sha256,
    } = &read;
    // The folder has checked both.
    let suite_id: &SuiteId = &suite_id.parse().map_err(Error::internal)?;
    let closes_at: Option<Timestamp> = protection
        .closes_at
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(Error::internal)?;
    let too_many = || refused("a suite may not have more than 2,147,483,647 items");
    let n_items = i32::try_from(items.len()).map_err(|_| too_many())?;
    let n_sealed = i32::try_from(items.iter().filter(|item| item.is_sealed).count())
        .map_err(|_| too_many())?;
    let pool = pool(url)?;
    let mut transaction = pool.begin().await?;
    let (metric, release) = (metric.to_string(), protection.policy.to_string());
    let new = publish::NewSuite {
        suite_id,
        version,
        metric: &metric,
        per_item_feedback: *per_item_feedback,
        description,
        release: &release,
        max_submissions_per_day: protection.max_submissions_per_day,
        max_submissions: protection.max_submissions,
        access: protection.access.into(),
        clip: protection.clip,
        ladder: audit.ladder(),
        n_sealed,
        closes_at,
        n_items,
        content_sha256,
    };
    let fresh = publish::insert(&mut transaction, &new).await?;
    if fresh {
        if let Some(closes_at) = closes_at
            && closes_at <= store::now(&mut *transaction).await?
        {
            return Err(refused(format!(
                "closes_at: {closes_at} has passed; no job could be marked as final"
            )));
        }
        for (batch, items) in items.chunks(BATCH).enumerate() {
            let first = i32::try_from(batch * BATCH).map_err(Error::internal)?;
            let column = |of: fn(&FolderItem) -> &str| items.iter().map(of).collect::<Vec<_>>();
            let (ids, inputs, answers) = (
                column(|item| &item.item_id),
                column(|item| item.input.get()),
                column(|item| item.answer.get()),
            );
            let sealed: Vec<bool> = items.iter().map(|item| item.is_sealed).collect();
            publish::insert_items(
                &mut transaction,
                suite_id,
                version,
                first,
                &ids,
                &inputs,
                &answers,
                &sealed,
            )
            .await?;
        }
        transaction.commit().await?;
    } else if publish::content_sha256(&mut transaction, suite_id, version)
        .await?
        .as_deref()
        != Some(content_sha256)
    {
        return Err(changed(suite_id.as_str(), version));
    }
    let disclosure = audit.summary();
    Ok(json!({
        "suite_id": suite_id, "version": version, "metric": metric, "n_items": n_items, "n_sealed": n_sealed, "published": fresh,
        "disclosure": disclosure,
    }))
}

/// `suite audit`: what callers could compute of a folder's answers, under its own policy and others. It publishes nothing, and
/// needs no database.
pub fn suite_audit(folder: &Path) -> Result<Value> {
    Ok(Audit::new(&read_suite(folder)?)?.report())
}

fn read_suite(folder: &Path) -> Result<SuiteFolder> {
    SuiteFolder::read(folder).map_err(|error| refused(error.to_string()))
}

fn suite_id(value: &str) -> Result<SuiteId> {
    value
        .parse()
        .map_err(|_| refused(format!("{value:?} is not the id of a suite")))
}

/// `suite grant`: lets an organization submit to a suite with `access = "granted"`, in every version.
pub async fn suite_grant(url: &str, suite: &str, org: &str) -> Result<Value> {
    let (suite_id, org_id) = (suite_id(suite)?, org_id(org)?);
    let mut db = pool(url)?.acquire().await?;
    known_suite(&mut db, &suite_id).await?;
    if store::org::find_name(&mut *db, &org_id).await?.is_none() {
        return Err(refused(format!("there is no organization {org_id}")));
    }
    let changed = publish::grant(&mut db, &org_id, &suite_id).await?;
    Ok(json!({"suite_id": suite_id, "org_id": org_id, "granted": true, "changed": changed}))
}

/// `suite revoke`: takes the grant back. Jobs that were accepted are scored.
pub async fn suite_revoke(url: &str, suite: &str, org: &str) -> Result<Value> {
    let (suite_id, org_id) = (suite_id(suite)?, org_id(org)?);
    let mut db = pool(url)?.acquire().await?;
    known_suite(&mut db, &suite_id).await?;
    let changed = publish::revoke(&mut db, &org_id, &suite_id).await?;
    Ok(json!({"suite_id": suite_id, "org_id": org_id, "granted": false, "changed": changed}))
}

async fn known_suite(db: &mut store::PgConnection, suite_id: &SuiteId) -> Result<()> {
    if publish::is_published(db, suite_id).await? {
        return Ok(());
    }
    Err(refused(format!(
        "there is no suite {suite_id}; publish it first"
    )))
}

/// `model publish`: a file becomes a version of a model. The same again changes nothing.
pub async fn model_publish(url: &str, path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("{} cannot be read: {error}", path.display())))?;
    let file: ModelFile = serde_json::from_str(&text)
        .map_err(|error| refused(format!("{}: {error}", path.display())))?;
    let faults: Vec<String> = file
        .field_errors()
        .into_iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    if !faults.is_empty() {
        return Err(refused(faults.join("; ")));
    }
    let pool = pool(url)?;
    let fresh = store::catalog::insert(&pool, &file).await?;
    if !fresh
        && store::catalog::version(&pool, &file.id, &file.version)
            .await?
            .as_ref()
            != Some(&file)
    {
        return Err(changed(&file.id, &file.version));
    }
    Ok(json!({"id": file.id, "version": file.version, "published": fresh}))
}
