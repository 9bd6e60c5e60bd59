//! The commands that open a board to everyone, and remove entries.

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::board::BoardVisibility;
use assay_core::model::ids::EntryId;
use assay_core::model::suite::SuiteId;
use assay_core::store;
use serde_json::{Value, json};

use crate::admin::commands::{pool, text};
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
    let no_entry = || refused(format!("there is no entry {entry}"));
    let entry_id: EntryId = entry.parse().map_err(|_| no_entry())?;
    let reason = text("reason", reason)?;
    let pool = pool(url)?;
    let mut transaction = pool.begin().await?;
    let (org_id, changed) = store::board::remove(&mut transaction, &entry_id, &reason)
        .await?
        .ok_or_else(no_entry)?;
    if changed {
        let removed =
            Change::entry(AuditType::BoardRemoved, &entry_id).field("reason", (), &reason);
        let changes = [removed];
        store::audit::record(&mut transaction, &org_id, &Actor::OPERATOR, &changes).await?;
    }
    transaction.commit().await?;
    Ok(json!({"entry_id": entry_id, "org_id": org_id, "removed": changed}))
}
