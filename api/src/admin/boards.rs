//! The commands that open a board to everyone, and remove and restore entries.

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::board::{BoardVisibility, Moderator};
use assay_core::model::ids::EntryId;
use assay_core::model::suite::SuiteId;
use assay_core::model::validation;
use assay_core::store::{self, moderation};
use serde_json::{Value, json};

use crate::admin::commands::pool;
use crate::admin::error::{Result, refused};

/// `board set`: sets the callers that can read the board of a version.
pub async fn board_set(url: &str, suite: &str, version: &str, visibility: &str) -> Result<Value> {
    let no_board = || refused(format!("version {version} of {suite} has no board"));
    let suite_id: SuiteId = suite.parse().map_err(|_| no_board())?;
    let visibility: BoardVisibility = visibility
        .parse()
        .map_err(|error| refused(format!("visibility: {error}")))?;
    let pool = pool(url)?;
    let was_public = store::board::set_visibility(&pool, &suite_id, version, visibility)
        .await?
        .ok_or_else(no_board)?;
    Ok(json!({
        "suite_id": suite_id,
        "version": version,
        "visibility": visibility,
        "changed": was_public != (visibility == BoardVisibility::Public),
    }))
}

/// `board remove`: removes an entry, and records it in the audit log of its organization.
pub async fn board_remove(url: &str, entry: &str, reason: &str) -> Result<Value> {
    moderate(url, entry, AuditType::BoardRemoved, reason).await
}

/// `board restore`: restores a removed entry, and records it in the audit log of its organization.
pub async fn board_restore(url: &str, entry: &str, reason: &str) -> Result<Value> {
    moderate(url, entry, AuditType::BoardRestored, reason).await
}

async fn moderate(url: &str, entry: &str, change: AuditType, reason: &str) -> Result<Value> {
    let no_entry = || refused(format!("there is no entry {entry}"));
    let entry_id: EntryId = entry.parse().map_err(|_| no_entry())?;
    let reason = validation::reason(reason)?;
    let pool = pool(url)?;
    let mut transaction = pool.begin().await?;
    let owners = moderation::owners(&mut *transaction, &entry_id).await?;
    let owners = owners.ok_or_else(no_entry)?;
    let removal = (change == AuditType::BoardRemoved).then_some(reason.as_str());
    let (entry, changed) = moderation::moderate(
        &mut transaction,
        &entry_id,
        &owners,
        Moderator::Operator,
        removal,
    )
    .await?;
    if changed {
        let changes = [Change::entry(change, &entry_id).field("reason", (), &reason)];
        store::audit::record(&mut transaction, &owners.org_id, &Actor::OPERATOR, &changes).await?;
    }
    transaction.commit().await?;
    Ok(json!({
        "entry_id": entry_id,
        "org_id": owners.org_id,
        "removed": entry.removed_at.is_some(),
        "changed": changed,
    }))
}
