//! The audit log. Entries are inserted in their change's transaction, and never updated.

use serde_json::{Map, Value};
use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::audit::{
    Actor, ActorType, AuditActor, AuditEntry, AuditTarget, AuditType, Change, TargetType,
};
use crate::model::error::Result;
use crate::model::ids::{AuditId, KeyId, OrgId, RequestId, UserId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// Records a user's change, such as a sign-in, in each organization that the user belongs to.
///
/// An organization that invited the user is left out until a user's session has acted for it:
/// an invite is accepted by the next sign-in, and must not disclose where the user signs in.
pub async fn record_in_orgs_of(
    db: &mut PgConnection,
    user_id: &UserId,
    actor: &Actor,
    changes: &[Change],
) -> Result<()> {
    let orgs = sqlx::query_scalar!(
        r#"
        /* all tenants: each organization of a user sees the user's sessions */
        select m.org_id as "org_id: OrgId"
        from memberships m
        where m.user_id = $1
          and (
              not m.by_invite
              or exists(
                  select from sessions s
                  where s.user_id = $1
                    and s.org_id = m.org_id
              )
          )
        order by m.org_id
        "#,
        user_id.as_str()
    )
    .fetch_all(&mut *db)
    .await?;
    for org_id in &orgs {
        record(db, org_id, actor, changes).await?;
    }
    Ok(())
}

/// Records an organization's changes. Without changes, nothing is recorded.
pub async fn record(
    db: &mut PgConnection,
    org_id: &OrgId,
    actor: &Actor,
    changes: &[Change],
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let Actor {
        r#type: actor_type,
        user_id,
        key_id,
        request,
    } = actor;
    let ids = changes.iter().map(|_| Ok(AuditId::random()?.into()));
    let mut ids: Vec<String> = ids.collect::<Result<_>>()?;
    // Ids in one microsecond have a random order.
    ids.sort_unstable();
    let types: Vec<&str> = changes.iter().map(|one| one.r#type.as_str()).collect();
    let target_types: Vec<&str> = changes.iter().map(|one| one.target_type.as_str()).collect();
    let target_ids: Vec<&str> = changes.iter().map(|one| one.target_id.as_str()).collect();
    let fields: Vec<Option<Json<&Map<String, Value>>>> = changes
        .iter()
        .map(|one| (!one.fields.is_empty()).then_some(Json(&one.fields)))
        .collect();
    sqlx::query!(
        "
        insert into audit_entries (
            org_id,
            id,
            type,
            target_type,
            target_id,
            changes,
            actor_type,
            user_id,
            email,
            key_id,
            request_id,
            address
        )
        select
            $1,
            c.id,
            c.type,
            c.target_type,
            c.target_id,
            c.changes,
            $7,
            $8,
            -- The lock makes the erasure of the user wait, which then finds this entry.
            (select u.email from users u where u.id = $8 for key share),
            $9,
            $10,
            $11
        from unnest(
            $2::text[],
            $3::text[],
            $4::text[],
            $5::text[],
            $6::jsonb[]
        ) as c (id, type, target_type, target_id, changes)
        ",
        org_id.as_str(),
        &ids,
        &types as &[&str],
        &target_types as &[&str],
        &target_ids as &[&str],
        &fields as &[Option<Json<&Map<String, Value>>>],
        actor_type.as_str(),
        user_id.as_ref().map(UserId::as_str),
        key_id.as_ref().map(KeyId::as_str),
        request.as_ref().map(|request| request.request_id.as_str()),
        request.as_ref().map(|request| &*request.address)
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A listing's entries.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// The changes' kind.
    pub r#type: Option<AuditType>,
    /// The user or key id that made them.
    pub actor_id: Option<String>,
    /// The changed resource's id.
    pub target_id: Option<String>,
    /// The entry that the page follows.
    pub before: Option<AuditId>,
}

/// Returns at most `limit` of an organization's entries, the newest first.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    filter: &AuditFilter,
    limit: i64,
) -> Result<Vec<AuditEntry>> {
    let AuditFilter {
        r#type,
        actor_id,
        target_id,
        before,
    } = filter;
    let known: Vec<&str> = AuditType::ALL.iter().map(|one| one.as_str()).collect();
    let rows = sqlx::query!(
        r#"
        select
            id as "id: AuditId",
            org_id as "org_id: OrgId",
            type as "type: AuditType",
            created_at as "created_at: Timestamp",
            actor_type as "actor_type: ActorType",
            user_id as "user_id: UserId",
            email,
            key_id as "key_id: KeyId",
            request_id as "request_id: RequestId",
            address,
            target_type as "target_type: TargetType",
            target_id,
            changes as "changes: Json<Map<String, Value>>"
        from audit_entries
        where org_id = $1
          and ($2::text is null or type = $2)
          -- A later release may have stored other types.
          and type = any($7)
          and ($3::text is null or user_id = $3 or key_id = $3)
          and ($4::text is null or target_id = $4)
          and ($5::text is null or id < $5)
        order by id desc
        limit $6
        "#,
        org_id.as_str(),
        r#type.map(AuditType::as_str),
        actor_id.as_deref(),
        target_id.as_deref(),
        before.as_ref().map(AuditId::as_str),
        limit,
        &known as &[&str]
    )
    .fetch_all(db)
    .await?;
    let entries = rows.into_iter().map(|row| AuditEntry {
        id: row.id,
        org_id: row.org_id,
        r#type: row.r#type,
        created_at: row.created_at,
        actor: AuditActor {
            r#type: row.actor_type,
            user_id: row.user_id,
            email: row.email,
            key_id: row.key_id,
        },
        request_id: row.request_id,
        address: row.address,
        target: AuditTarget {
            r#type: row.target_type,
            id: row.target_id,
        },
        changes: row.changes.map(|Json(changes)| changes),
    });
    Ok(entries.collect())
}

/// Days for which entries are kept.
pub const RETENTION_DAYS: u32 = 400;

/// Deletes at most `limit` entries that are older than `days`, and returns their number. The
/// database keeps every entry for [`RETENTION_DAYS`].
pub async fn delete_old(db: impl PgExecutor<'_>, days: u32, limit: i64) -> Result<u64> {
    let deleted = sqlx::query_scalar!(
        r#"select delete_old_audit_entries($1, $2) as "deleted!""#,
        days.cast_signed(),
        limit
    );
    Ok(deleted.fetch_one(db).await?.unsigned_abs())
}
