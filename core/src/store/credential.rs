//! From the hash of a bearer secret to who calls.

use std::sync::Arc;

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::org::{DataUse, Org, Plan, Role, default_storage_bytes};
use crate::model::permissions::{Credential, Membership, Principal};
use crate::model::secret::SecretHash;
use crate::model::terms::CurrentTerms;
use crate::model::timestamp::Timestamp;

/// What is known of a key's secret.
pub enum FoundKey {
    /// It works.
    Live {
        /// Who calls.
        credential: Box<Credential>,
        /// Whether `last_used_at` is old enough to be written again.
        stale: bool,
    },
    /// It was revoked.
    Revoked,
}

/// The terms that hold now, if there are any.
pub type Terms = Option<Arc<CurrentTerms>>;

fn version(terms: &Terms) -> Option<&str> {
    terms.as_ref().map(|terms| terms.version.as_str())
}

/// Looks an API key up by its hash.
pub async fn key(
    db: impl PgExecutor<'_>,
    hash: &SecretHash,
    terms: &Terms,
) -> Result<Option<FoundKey>> {
    let row = sqlx::query!(
        r#"select k.id as "id: KeyId", k.revoked_at is not null as "revoked!",
                  coalesce(k.last_used_at < now() - interval '1 minute', true) as "stale!",
                  o.id as "org_id: OrgId", o.name, o.plan, o.data_use as "data_use: DataUse", o.created_at as "created_at: Timestamp",
                  o.suspended_at is not null as "is_suspended!",
                  p.requests_per_minute, p.eval_items_per_month, p.concurrent_jobs, p.upload_bytes_max, p.storage_bytes,
                  exists(select from terms_acceptances t where t.org_id = o.id and t.version = $2) as "terms_accepted!"
           from api_keys k join orgs o on o.id = k.org_id join plans p on p.plan = o.plan
           where k.secret_hash = $1"#,
        hash.as_bytes(),
        version(terms)
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        if row.revoked {
            return FoundKey::Revoked;
        }
        // A key acts as a member of its organization, whoever made it.
        let org = Org {
            id: row.org_id,
            name: row.name,
            plan: row.plan,
            data_use: row.data_use,
            role: Role::Member,
            created_at: row.created_at,
        };
        let plan = plan(
            row.requests_per_minute,
            row.eval_items_per_month,
            row.concurrent_jobs,
            row.upload_bytes_max,
            row.storage_bytes,
        );
        let credential = Credential {
            principal: Principal::ApiKey { key_id: row.id },
            membership: Some(Membership {
                org,
                plan,
                terms_owed: terms.clone().filter(|_| !row.terms_accepted),
                is_suspended: row.is_suspended,
            }),
            choices: Vec::new(),
            asked_for_org: false,
        };
        FoundKey::Live {
            credential: Box::new(credential),
            stale: row.stale,
        }
    }))
}

/// A session that works, and what may have to be written back.
pub struct FoundSession {
    /// Who calls.
    pub credential: Credential,
    /// Whether `last_used_at` is old enough to be written again, or another organization was chosen.
    pub stale: bool,
}

/// Looks a session up by its token's hash. It resolves to the organization asked for, if its user is a member of it;
/// when none is asked for, to the one last chosen, otherwise to the oldest membership.
///
/// Of memberships that are equally old, one that did not begin with an invite goes first. A membership that began with an invite decides
/// only while it is the user's only one: an organization must not acquire what users create by inviting them first.
pub async fn session(
    db: &mut PgConnection,
    hash: &SecretHash,
    asked: Option<&OrgId>,
    terms: &Terms,
) -> Result<Option<FoundSession>> {
    let asked = asked.map(OrgId::as_str);
    let row = sqlx::query!(
        r#"select s.id as "id: SessionId", s.user_id as "user_id: UserId",
                  (s.last_used_at < now() - interval '1 minute' or coalesce(s.org_id <> $2, $2 is not null)) as "stale!",
                  m.org_id as "org_id?: OrgId", m.role as "role?: Role", m.name as "name?", m.plan as "plan?",
                  m.data_use as "data_use?: DataUse", m.created_at as "created_at?: Timestamp",
                  m.requests_per_minute as "requests_per_minute?", m.eval_items_per_month as "eval_items_per_month?",
                  m.concurrent_jobs as "concurrent_jobs?", m.upload_bytes_max as "upload_bytes_max?", m.storage_bytes as "storage_bytes?",
                  coalesce(m.is_suspended, false) as "is_suspended!",
                  exists(select from terms_acceptances t where t.org_id = m.org_id and t.version = $3) as "terms_accepted!",
                  coalesce($2::text is null and m.by_invite and not m.is_chosen
                           and exists(select from memberships o where o.user_id = s.user_id and o.org_id <> m.org_id), false) as "must_choose!"
           from sessions s
           left join lateral (
               select ms.org_id, ms.role, ms.by_invite, coalesce(ms.org_id = s.org_id, false) as is_chosen, o.name, o.plan, o.data_use, o.created_at,
                      o.suspended_at is not null as is_suspended,
                      p.requests_per_minute, p.eval_items_per_month, p.concurrent_jobs, p.upload_bytes_max, p.storage_bytes
               from memberships ms join orgs o on o.id = ms.org_id join plans p on p.plan = o.plan
               where ms.user_id = s.user_id and ($2::text is null or ms.org_id = $2)
               order by coalesce(ms.org_id = s.org_id, false) desc, ms.created_at, ms.by_invite, ms.org_id
               limit 1
           ) m on true
           where s.token_hash = $1 and s.ended_at is null and s.expires_at > now() and s.last_used_at > now() - interval '7 days'"#,
        hash.as_bytes(),
        asked,
        version(terms)
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let principal = Principal::Session {
        session_id: row.id,
        user_id: row.user_id.clone(),
    };
    if row.must_choose {
        let choices = super::org::choices(db, &row.user_id).await?;
        return Ok(Some(FoundSession {
            credential: Credential {
                principal,
                membership: None,
                choices,
                asked_for_org: false,
            },
            stale: row.stale,
        }));
    }
    let org = (|| {
        Some(Org {
            id: row.org_id?,
            name: row.name?,
            plan: row.plan?,
            data_use: row.data_use?,
            role: row.role?,
            created_at: row.created_at?,
        })
    })();
    let plan = (|| {
        Some(plan(
            row.requests_per_minute?,
            row.eval_items_per_month?,
            row.concurrent_jobs?,
            row.upload_bytes_max?,
            row.storage_bytes,
        ))
    })();
    let terms_owed = terms.clone().filter(|_| !row.terms_accepted);
    let membership = org.zip(plan).map(|(org, plan)| Membership {
        org,
        plan,
        terms_owed,
        is_suspended: row.is_suspended,
    });
    let credential = Credential {
        principal,
        membership,
        choices: Vec::new(),
        asked_for_org: asked.is_some(),
    };
    Ok(Some(FoundSession {
        credential,
        stale: row.stale,
    }))
}

fn plan(
    requests_per_minute: i32,
    eval_items_per_month: i64,
    concurrent_jobs: i32,
    upload_bytes_max: i64,
    storage_bytes: Option<i64>,
) -> Plan {
    let storage_bytes = storage_bytes.unwrap_or(default_storage_bytes(upload_bytes_max));
    let requests_per_minute = requests_per_minute.unsigned_abs();
    Plan {
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs: i64::from(concurrent_jobs),
        upload_bytes_max,
        storage_bytes,
    }
}

/// What a credential that was valid is now, for its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is valid.
    Valid,
    /// It is valid, but its organization is suspended.
    Suspended,
    /// It is not valid any more.
    Invalid,
}

/// What a credential that was valid is now, for this organization. Responses that take long ask again.
pub async fn standing(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    principal: &Principal,
) -> Result<Standing> {
    let (key_id, session_id) = match principal {
        Principal::ApiKey { key_id } => (Some(key_id.as_str()), None),
        Principal::Session { session_id, .. } => (None, Some(session_id.as_str())),
    };
    let now = sqlx::query!(
        r#"select exists(select from api_keys where org_id = $1 and id = $2 and revoked_at is null)
               or exists(select from sessions s join memberships m on m.user_id = s.user_id
                         where m.org_id = $1 and s.id = $3 and s.ended_at is null and s.expires_at > now()
                           and s.last_used_at > now() - interval '7 days') as "is_valid!",
                  exists(select from orgs where id = $1 and suspended_at is not null) as "is_suspended!""#,
        org_id.as_str(),
        key_id,
        session_id
    )
    .fetch_one(db)
    .await?;
    Ok(match (now.is_valid, now.is_suspended) {
        (false, _) => Standing::Invalid,
        (true, true) => Standing::Suspended,
        (true, false) => Standing::Valid,
    })
}

/// Notes that a key was used.
pub async fn touch_key(db: impl PgExecutor<'_>, org_id: &OrgId, key_id: &KeyId) -> Result<()> {
    sqlx::query!(
        "update api_keys set last_used_at = now() where org_id = $1 and id = $2",
        org_id.as_str(),
        key_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}
