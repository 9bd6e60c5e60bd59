//! Removal of entries from boards by publishers and the operator, and their restoration.

use sqlx::PgExecutor;

use super::board;
use crate::model::board::{ModeratedEntry, Moderator};
use crate::model::error::{Code, Error, Result};
use crate::model::ids::{EntryId, OrgId};
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// An entry's organization, and who can remove it.
pub struct EntryOwners {
    /// The organization that entered the job.
    pub org_id: OrgId,
    /// The suite.
    pub suite_id: SuiteId,
    /// The suite's version.
    pub suite_version: String,
    /// The suite's publisher. `None` if it is the operator's.
    pub publisher: Option<OrgId>,
}

/// Returns an entry's owners.
pub async fn owners(db: impl PgExecutor<'_>, entry_id: &EntryId) -> Result<Option<EntryOwners>> {
    let owners = sqlx::query_as!(
        EntryOwners,
        r#"
        /* all tenants: a publisher moderates the entries of every organization */
        select
            e.org_id as "org_id: OrgId",
            e.suite_id as "suite_id: SuiteId",
            e.suite_version,
            o.org_id as "publisher: OrgId"
        from board_entries e
        join suite_owners o using (suite_id)
        where e.id = $1
        "#,
        entry_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(owners)
}

/// Removes an entry for this reason, or restores it. Returns the entry, and whether this call changed it.
///
/// The operator can remove an entry again that the publisher has removed, so that the publisher cannot restore it.
///
/// # Errors
/// 409 for a publisher if the board is final; 403 if the operator removed the entry that a publisher restores.
pub async fn moderate(
    db: &mut PgConnection,
    entry_id: &EntryId,
    owners: &EntryOwners,
    by: Moderator,
    reason: Option<&str>,
) -> Result<(ModeratedEntry, bool)> {
    let (suite_id, version) = (&owners.suite_id, &owners.suite_version);
    // The last computation of a closed board waits for this change, or comes before it.
    board::lock_and_find_close(db, suite_id, version).await?;
    let found = sqlx::query!(
        r#"
        /* all tenants: a publisher moderates the entries of every organization */
        select
            b.is_final,
            e.removed_by as "removed_by: Moderator"
        from board_entries e
        join boards b on b.suite_id = e.suite_id and b.suite_version = e.suite_version
        where e.id = $1
        "#,
        entry_id.as_str()
    )
    .fetch_one(&mut *db)
    .await?;
    let changes = match (reason, found.removed_by) {
        (Some(_), removed_by) => {
            removed_by.is_none_or(|was| was != by && by == Moderator::Operator)
        }
        (None, removed_by) => removed_by.is_some(),
    };
    if changes && by == Moderator::Publisher {
        if found.is_final {
            return Err(Error::board_final());
        }
        if found.removed_by == Some(Moderator::Operator) {
            let message = "The operator removed the entry, and alone can restore it.";
            return Err(Error::new(Code::Forbidden, message));
        }
    }
    let entry = sqlx::query_as!(
        ModeratedEntry,
        r#"
        /* all tenants: a publisher moderates the entries of every organization */
        update board_entries
        set
            removed_at = case when not $2 then removed_at when $3::text is not null then clock_timestamp() end,
            removed_reason = case when $2 then $3 else removed_reason end,
            removed_by = case when not $2 then removed_by when $3 is not null then $4 end,
            revision = revision + $2::boolean::integer
        where id = $1
        returning
            id as "entry_id: EntryId",
            suite_id as "suite_id: SuiteId",
            suite_version,
            removed_at as "removed_at: Timestamp",
            removed_reason,
            removed_by as "removed_by: Moderator"
        "#,
        entry_id.as_str(),
        changes,
        reason,
        by as Moderator
    )
    .fetch_one(db)
    .await?;
    Ok((entry, changes))
}
