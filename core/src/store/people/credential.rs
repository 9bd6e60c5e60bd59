//! Credential look-ups by their secret's hash.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgExecutor;
use sqlx::types::Json;

use super::session::IDLE_DAYS;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::key::EXPIRY_ANNOUNCED;
use crate::model::org::{DataUse, Org, Plan, Role};
use crate::model::permissions::{Credential, Membership, Principal};
use crate::model::scope::Scopes;
use crate::model::secret::SecretHash;
use crate::model::terms::CurrentTerms;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// `last_used_at`'s resolution: more frequent uses are not written.
const LAST_USED_RESOLUTION: Duration = Duration::from_secs(60);

/// The API key that a secret belongs to.
#[derive(Clone)]
pub enum FoundKey {
    /// The key is valid.
    Live {
        /// The caller.
        credential: Box<Credential>,
        /// Set if `last_used_at` is old enough to be written again.
        stale: bool,
    },
    /// The key was revoked.
    Revoked,
    /// The key has expired.
    Expired {
        /// The time at which it expired.
        expired_at: Timestamp,
    },
}

/// The terms in force, if there are any.
pub type Terms = Option<Arc<CurrentTerms>>;

fn version(terms: &Terms) -> Option<&str> {
    terms.as_ref().map(|terms| terms.version.as_str())
}

/// Looks API keys up by their secret hashes.
pub async fn keys(
    db: impl PgExecutor<'_>,
    hashes: &[SecretHash],
    terms: &Terms,
) -> Result<HashMap<SecretHash, FoundKey>> {
    let bytes: Vec<&[u8]> = hashes.iter().map(SecretHash::as_bytes).collect();
    let rows = sqlx::query!(
        r#"
        /* all tenants: the secret determines the organization */
        select
            wanted.place as "place!",
            k.id as "id: KeyId",
            k.revoked_at is not null as "revoked!",
            k.scopes as "scopes!: Scopes",
            k.expires_at as "expires_at: Timestamp",
            coalesce(k.expires_at <= now(), false) as "expired!",
            coalesce(k.expires_at < now() + $4::float8 * interval '1 second', false) as "expires_soon!",
            coalesce(k.last_used_at < now() - $3::float8 * interval '1 second', true) as "stale!",
            o.id as "org_id: OrgId",
            o.name,
            o.plan,
            o.data_use as "data_use: DataUse",
            o.created_at as "created_at: Timestamp",
            o.handle,
            o.suspended_at is not null as "is_suspended!",
            row_to_json(p) as "limits!: Json<Plan>",
            exists(
                select from terms_acceptances t
                where t.org_id = o.id
                  and t.version = $2
            ) as "terms_accepted!"
        from unnest($1::bytea[]) with ordinality as wanted (secret_hash, place)
        join api_keys k on k.secret_hash = wanted.secret_hash
        join orgs o on o.id = k.org_id
        join plan_limits p on p.plan = o.plan
        "#,
        &bytes as &[&[u8]],
        version(terms),
        LAST_USED_RESOLUTION.as_secs_f64(),
        EXPIRY_ANNOUNCED.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    let keys = rows.into_iter().filter_map(|row| {
        // Places count from one.
        let hash = *hashes.get(usize::try_from(row.place).ok()?.checked_sub(1)?)?;
        if row.revoked {
            return Some((hash, FoundKey::Revoked));
        }
        if let (true, Some(expired_at)) = (row.expired, row.expires_at) {
            return Some((hash, FoundKey::Expired { expired_at }));
        }
        // A key acts as a member of its organization, whatever role the user who created it has.
        let org = Org {
            id: row.org_id,
            name: row.name,
            plan: row.plan,
            data_use: row.data_use,
            role: Role::Member,
            created_at: row.created_at,
            handle: row.handle,
        };
        let credential = Credential {
            principal: Principal::ApiKey {
                key_id: row.id,
                scopes: row.scopes,
            },
            membership: Some(Membership {
                org,
                plan: row.limits.0,
                unaccepted_terms: terms.clone().filter(|_| !row.terms_accepted),
                is_suspended: row.is_suspended,
            }),
            choices: Vec::new(),
            is_org_requested: false,
            expires_soon_at: row.expires_at.filter(|_| row.expires_soon),
            request: None,
        };
        let key = FoundKey::Live {
            credential: Box::new(credential),
            stale: row.stale,
        };
        Some((hash, key))
    });
    Ok(keys.collect())
}

/// A valid session, and whether its row needs an update.
pub struct FoundSession {
    /// The caller.
    pub credential: Credential,
    /// Set if `last_used_at` is old enough to be written again, or if another organization was
    /// chosen.
    pub stale: bool,
}

/// Looks a session up by its token's hash. It resolves to the requested organization if its
/// user is a member of it. Without a requested organization it resolves to the one chosen last,
/// otherwise to the oldest membership.
///
/// Of memberships that are equally old, one that did not begin with an invite goes first. A
/// membership that began with an invite decides only while it is the user's only one: an
/// organization must not acquire what users create by inviting them first.
pub async fn session(
    db: &mut PgConnection,
    hash: &SecretHash,
    requested: Option<&OrgId>,
    terms: &Terms,
) -> Result<Option<FoundSession>> {
    let requested = requested.map(OrgId::as_str);
    let row = sqlx::query!(
        r#"
        /* all tenants: the token determines the user, who may belong to several organizations */
        select
            s.id as "id: SessionId",
            s.user_id as "user_id: UserId",
            (
                s.last_used_at < now() - $4::float8 * interval '1 second'
                or coalesce(s.org_id <> $2, $2 is not null)
            ) as "stale!",
            m.org_id as "org_id?: OrgId",
            m.role as "role?: Role",
            m.name as "name?",
            m.plan as "plan?",
            m.data_use as "data_use?: DataUse",
            m.created_at as "created_at?: Timestamp",
            m.handle as "handle?",
            m.limits as "limits?: Json<Plan>",
            coalesce(m.is_suspended, false) as "is_suspended!",
            exists(
                select from terms_acceptances t
                where t.org_id = m.org_id
                  and t.version = $3
            ) as "terms_accepted!",
            -- A membership that began with an invite is not chosen for a user who has others.
            coalesce(
                $2::text is null
                and m.by_invite
                and not m.is_chosen
                and exists(
                    select from memberships o
                    where o.user_id = s.user_id
                      and o.org_id <> m.org_id
                ),
                false
            ) as "must_choose!"
        from sessions s
        -- The organization asked for, else the one last chosen, else the oldest membership.
        left join lateral (
            select
                ms.org_id,
                ms.role,
                ms.by_invite,
                coalesce(ms.org_id = s.org_id, false) as is_chosen,
                o.name,
                o.plan,
                o.data_use,
                o.created_at,
                o.handle,
                o.suspended_at is not null as is_suspended,
                row_to_json(p) as limits
            from memberships ms
            join orgs o on o.id = ms.org_id
            join plan_limits p on p.plan = o.plan
            where ms.user_id = s.user_id
              and ($2::text is null or ms.org_id = $2)
            order by
                coalesce(ms.org_id = s.org_id, false) desc,
                ms.created_at,
                ms.by_invite,
                ms.org_id
            limit 1
        ) m on true
        where s.token_hash = $1
          and s.ended_at is null
          and s.expires_at > now()
          and s.last_used_at > now() - $5::integer * interval '1 day'
        "#,
        hash.as_bytes(),
        requested,
        version(terms),
        LAST_USED_RESOLUTION.as_secs_f64(),
        IDLE_DAYS
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let choices = match row.must_choose {
        true => super::org::choices(db, &row.user_id).await?,
        false => Vec::new(),
    };
    let org = (|| {
        Some(Org {
            id: row.org_id?,
            name: row.name?,
            plan: row.plan?,
            data_use: row.data_use?,
            role: row.role?,
            created_at: row.created_at?,
            handle: row.handle,
        })
    })();
    let unaccepted_terms = terms.clone().filter(|_| !row.terms_accepted);
    let membership = org.zip(row.limits).map(|(org, Json(plan))| Membership {
        org,
        plan,
        unaccepted_terms,
        is_suspended: row.is_suspended,
    });
    let credential = Credential {
        principal: Principal::Session {
            session_id: row.id,
            user_id: row.user_id,
        },
        membership: membership.filter(|_| !row.must_choose),
        choices,
        is_org_requested: requested.is_some(),
        expires_soon_at: None,
        request: None,
    };
    Ok(Some(FoundSession {
        credential,
        stale: row.stale,
    }))
}

/// The current status for a credential that was valid when its request started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialStatus {
    /// The credential is valid.
    Valid {
        /// The key's scopes, or all for a session.
        scopes: Scopes,
    },
    /// The credential is valid, but its organization is suspended.
    Suspended,
    /// The key was revoked.
    Revoked,
    /// The key has expired.
    Expired {
        /// The time at which it expired.
        expired_at: Timestamp,
    },
    /// The credential is no longer valid for the organization.
    Invalid,
}

/// Returns a credential's current status for this organization. Long responses check it again
/// while they are sent.
pub async fn credential_status(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    principal: &Principal,
) -> Result<CredentialStatus> {
    let (key_id, session_id) = match principal {
        Principal::ApiKey { key_id, .. } => (Some(key_id.as_str()), None),
        Principal::Session { session_id, .. } => (None, Some(session_id.as_str())),
    };
    let row = sqlx::query!(
        r#"
        select
            k.id is not null as "is_key!",
            k.scopes as "scopes!: Scopes",
            k.revoked_at is not null as "is_revoked!",
            case when k.expires_at <= now() then k.expires_at end as "expired_at: Timestamp",
            exists(
                select from sessions s
                join memberships m on m.user_id = s.user_id
                where m.org_id = $1
                  and s.id = $3
                  and s.ended_at is null
                  and s.expires_at > now()
                  and s.last_used_at > now() - $4::integer * interval '1 day'
            ) as "is_session!",
            o.suspended_at is not null as "is_suspended!"
        from (select 1) one
        left join api_keys k
            on k.org_id = $1
            and k.id = $2
        left join orgs o on o.id = $1
        "#,
        org_id.as_str(),
        key_id,
        session_id,
        IDLE_DAYS
    )
    .fetch_one(db)
    .await?;
    if row.is_revoked {
        return Ok(CredentialStatus::Revoked);
    }
    if let Some(expired_at) = row.expired_at {
        return Ok(CredentialStatus::Expired { expired_at });
    }
    Ok(match (row.is_key || row.is_session, row.is_suspended) {
        (false, _) => CredentialStatus::Invalid,
        (true, true) => CredentialStatus::Suspended,
        (true, false) => CredentialStatus::Valid { scopes: row.scopes },
    })
}

/// Records a key's use from a client address, if that is known.
pub async fn touch_key(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    key_id: &KeyId,
    address: Option<&str>,
) -> Result<()> {
    sqlx::query!(
        "
        update api_keys
        set
            last_used_at = now(),
            last_used_address = coalesce($3, last_used_address)
        where org_id = $1
          and id = $2
        ",
        org_id.as_str(),
        key_id.as_str(),
        address
    )
    .execute(db)
    .await?;
    Ok(())
}
