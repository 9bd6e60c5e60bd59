//! The operator's commands for published suites: list, change, suspend, resume, remove and review them.

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::error_details::Details;
use assay_core::model::event::EventType;
use assay_core::model::suite::SuiteId;
use assay_core::model::suite_edits::SuiteEdits;
use assay_core::model::validation;
use assay_core::store::operator::{self as commands, SuiteState};
use assay_core::store::{self, PgConnection, owned_suite};
use assay_core::{DraftId, Error, OrgId};
use serde_json::{Value, json};

use crate::admin::commands::{delete_removed, org_id, pool};
use crate::admin::error::{CommandError, Result, refused};

/// Parses the id of a suite.
pub(super) fn suite_id(value: &str) -> Result<SuiteId> {
    value
        .parse()
        .map_err(|_| refused(format!("{value:?} is not the id of a suite")))
}

fn unknown_suite(suite_id: &SuiteId) -> CommandError {
    refused(format!("there is no suite {suite_id}"))
}

/// Returns the error of a command whose options are invalid, one line for each option.
fn bad_options(error: Error) -> CommandError {
    let Some(Details::Fields { fields }) = &error.details else {
        return error.into();
    };
    let lines = fields
        .iter()
        .map(|error| format!("{}: {}", error.field, error.message));
    refused(lines.collect::<Vec<_>>().join("\n"))
}

/// `suite list`: returns all suites, or those of an organization, with the drafts in review. `in_review` leaves the suites out.
pub async fn suite_list(url: &str, org: Option<&str>, in_review: bool) -> Result<Value> {
    let org = org.map(org_id).transpose()?;
    let mut db = pool(url)?.acquire().await?;
    let drafts = commands::drafts_in_review(&mut db, org.as_ref()).await?;
    if in_review {
        return Ok(json!({"drafts": drafts}));
    }
    let suites = commands::list_suites(&mut db, org.as_ref()).await?;
    Ok(json!({"suites": suites, "drafts": drafts}))
}

/// `suite set`: changes the texts, the visibility or the access of the operator's suite. `yes` confirms
/// that more organizations may submit.
pub async fn suite_set(url: &str, suite: &str, edits: SuiteEdits, yes: bool) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let edits = edits.validate().map_err(bad_options)?;
    let mut transaction = pool(url)?.begin().await?;
    let Some(mut suite) = owned_suite::lock(&mut transaction, None, &suite_id).await? else {
        return Err(not_operators(&mut transaction, &suite_id).await?);
    };
    if suite.is_removed {
        return Err(refused(format!("the items of {suite_id} were removed")));
    }
    let before = suite.editable;
    suite.editable = edits.apply(before.clone());
    let after = &suite.editable;
    if suite.limits_disclosure && after.is_wider_than(&before) && !yes {
        return Err(refused(
            "each further organization has its own submissions, so that together they can learn more answers; \
             repeat the command with --yes",
        ));
    }
    let changed = *after != before;
    if changed {
        owned_suite::update(&mut transaction, &suite_id, &suite).await?;
        transaction.commit().await?;
    }
    let after = &suite.editable;
    Ok(json!({
        "suite_id": suite_id, "changed": changed, "visibility": after.visibility, "access": after.access, "texts": after.metadata,
    }))
}

/// Returns the error for a suite that the operator cannot change.
async fn not_operators(db: &mut PgConnection, suite_id: &SuiteId) -> Result<CommandError> {
    Ok(match commands::lock_suite(db, suite_id).await? {
        Some(SuiteState {
            org_id: Some(org), ..
        }) => refused(format!(
            "{suite_id} belongs to {org}, which alone changes it; see suite suspend and suite remove"
        )),
        Some(_) | None => unknown_suite(suite_id),
    })
}

/// Records a change of an organization's suite. The operator's own suites have no audit log.
async fn record(
    db: &mut PgConnection,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
    r#type: AuditType,
    reason: &str,
) -> Result<()> {
    if let Some(org_id) = org_id {
        let change = Change::suite(r#type, suite_id).field("reason", (), reason);
        store::audit::record(db, org_id, &Actor::OPERATOR, &[change]).await?;
    }
    Ok(())
}

/// `suite suspend`: hides a suite from everybody but its owner. It accepts no submissions; queued jobs are
/// scored.
pub async fn suite_suspend(url: &str, suite: &str, why: &str) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let reason = validation::reason(why)?;
    let mut transaction = pool(url)?.begin().await?;
    let db = &mut *transaction;
    let before = commands::lock_suite(db, &suite_id).await?;
    let before = before.ok_or_else(|| unknown_suite(&suite_id))?;
    let suspended_at = commands::suspend_suite(db, &suite_id).await?;
    let changed = before.suspended_at.is_none();
    if changed {
        let org_id = before.org_id.as_ref();
        record(db, org_id, &suite_id, AuditType::SuiteSuspended, &reason).await?;
        if let Some(org_id) = org_id {
            let event = EventType::SuiteSuspended;
            store::event::insert_suite(db, org_id, event, (&suite_id, &before.version)).await?;
        }
    }
    transaction.commit().await?;
    Ok(json!({
        "suite_id": suite_id, "org_id": before.org_id, "suspended_at": suspended_at, "changed": changed,
    }))
}

/// `suite resume`: ends the suspension of a suite.
pub async fn suite_resume(url: &str, suite: &str, why: &str) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let reason = validation::reason(why)?;
    let mut transaction = pool(url)?.begin().await?;
    let db = &mut *transaction;
    let before = commands::lock_suite(db, &suite_id).await?;
    let before = before.ok_or_else(|| unknown_suite(&suite_id))?;
    let changed = before.suspended_at.is_some();
    if changed {
        commands::resume_suite(db, &suite_id).await?;
        let org_id = before.org_id.as_ref();
        record(db, org_id, &suite_id, AuditType::SuiteResumed, &reason).await?;
    }
    transaction.commit().await?;
    Ok(json!({
        "suite_id": suite_id, "org_id": before.org_id, "suspended_at": null, "changed": changed,
    }))
}

/// `suite remove`: deletes the items and answers of a suite, or of one version, for good. Versions, boards,
/// commitments and receipts stay. A second run deletes the rest if the first one crashed.
pub async fn suite_remove(
    url: &str,
    suite: &str,
    version: Option<&str>,
    why: &str,
    yes: bool,
) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let reason = validation::reason(why)?;
    let pool = pool(url)?;
    let mut transaction = pool.begin().await?;
    let db = &mut *transaction;
    let before = commands::lock_suite(db, &suite_id).await?;
    let before = before.ok_or_else(|| unknown_suite(&suite_id))?;
    let removed = commands::mark_removed(db, &suite_id, version).await?;
    if removed.is_empty() {
        let version = version.unwrap_or_default();
        return Err(refused(format!(
            "there is no version {version} of {suite_id}"
        )));
    }
    let names: Vec<&str> = removed.iter().map(|one| one.version.as_str()).collect();
    if !yes {
        let n_items: i64 = removed.iter().map(|one| i64::from(one.n_items)).sum();
        return Err(refused(format!(
            "this deletes the {n_items} items of {suite_id}, version {}, with their answers and what opens their commitment, for good; \
             repeat the command with --yes",
            names.join(" and ")
        )));
    }
    let changed =
        removed.iter().any(|one| one.is_new) || (version.is_none() && before.removed_at.is_none());
    if let Some(org_id) = before.org_id.as_ref().filter(|_| changed) {
        let change = Change::suite(AuditType::SuiteRemoved, &suite_id)
            .field("version", (), version)
            .field("reason", (), &reason);
        store::audit::record(db, org_id, &Actor::OPERATOR, &[change]).await?;
    }
    transaction.commit().await?;
    delete_removed(&pool, &suite_id, &removed).await?;
    Ok(json!({
        "suite_id": suite_id, "org_id": before.org_id, "versions": names, "changed": changed,
    }))
}

/// `suite approve` and, with a reason, `suite reject`: end the review of a draft. An approved one is published, and its suite
/// needs no further review.
pub async fn suite_review(url: &str, draft: &str, rejection: Option<&str>) -> Result<Value> {
    let not_in_review = || {
        refused(format!(
            "no draft {draft} is in review; suite list --in-review lists them"
        ))
    };
    let draft_id: DraftId = draft.parse().map_err(|_| not_in_review())?;
    let rejection = rejection.map(validation::reason).transpose()?;
    let mut transaction = pool(url)?.begin().await?;
    let db = &mut *transaction;
    let ended = commands::end_review(db, &draft_id, rejection.as_deref()).await?;
    let (org_id, suite_id) = ended.ok_or_else(not_in_review)?;
    let r#type = match rejection {
        None => AuditType::DraftApproved,
        Some(_) => AuditType::DraftRejected,
    };
    let change = Change::draft(r#type, &draft_id).field("reason", (), &rejection);
    store::audit::record(db, &org_id, &Actor::OPERATOR, &[change]).await?;
    transaction.commit().await?;
    Ok(json!({
        "draft_id": draft_id, "org_id": org_id, "suite_id": suite_id, "approved": rejection.is_none(),
    }))
}
