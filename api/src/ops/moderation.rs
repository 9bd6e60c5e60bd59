//! Entries that publishers remove from the boards of their suites, and restore: `/v1/entries/{entry_id}/remove`.

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::board::{ModeratedEntry, Moderator};
use assay_core::model::ids::EntryId;
use assay_core::model::permissions::Owner;
use assay_core::model::validation;
use assay_core::store::{self, moderation};
use assay_core::{Error, Resource, Result};

use super::suite_edits::not_owned;
use crate::app::App;
use crate::generated::inputs;

/// Removes an entry from the board of the organization's suite. Removing it again changes nothing.
pub async fn remove(
    app: &App,
    owner: &Owner,
    entry_id: &str,
    input: inputs::RemoveEntry,
) -> Result<ModeratedEntry> {
    let reason = validation::reason(&input.reason)?;
    moderate(app, owner, entry_id, AuditType::BoardRemoved, reason).await
}

/// Restores an entry that the organization has removed. Restoring it again changes nothing.
pub async fn restore(
    app: &App,
    owner: &Owner,
    entry_id: &str,
    input: inputs::RestoreEntry,
) -> Result<ModeratedEntry> {
    let reason = validation::reason(&input.reason)?;
    moderate(app, owner, entry_id, AuditType::BoardRestored, reason).await
}

async fn moderate(
    app: &App,
    owner: &Owner,
    entry_id: &str,
    change: AuditType,
    reason: String,
) -> Result<ModeratedEntry> {
    let not_found = || Error::not_found(Resource::Entry);
    let entry_id: EntryId = entry_id.parse().map_err(|_| not_found())?;
    let session = owner.session();
    let publisher = session.org_id();
    let mut transaction = app.db.get().begin().await?;
    let owners = moderation::owners(&mut *transaction, &entry_id).await?;
    let owners = owners.ok_or_else(not_found)?;
    if owners.publisher.as_ref() != Some(publisher) {
        let suite_id = &owners.suite_id;
        return Err(not_owned(&mut transaction, publisher, suite_id, Resource::Entry).await?);
    }
    let removal = (change == AuditType::BoardRemoved).then_some(reason.as_str());
    let (entry, is_changed) = moderation::moderate(
        &mut transaction,
        &entry_id,
        &owners,
        Moderator::Publisher,
        removal,
    )
    .await?;
    if is_changed {
        let changes = [Change::entry(change, &entry_id).field("reason", (), &reason)];
        store::audit::record(&mut transaction, publisher, session.actor(), &changes).await?;
        if owners.org_id != *publisher {
            let actor = Actor::PUBLISHER;
            store::audit::record(&mut transaction, &owners.org_id, &actor, &changes).await?;
        }
    }
    transaction.commit().await?;
    Ok(entry)
}
