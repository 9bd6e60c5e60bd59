//! Device logins. They belong to no organization until a user approves them for one.

use sqlx::PgExecutor;

use crate::model::audit::{Actor, AuditType, Change, TargetType};
use crate::model::device::{
    Approval, DeviceRequest, DeviceState, Grant, LIFETIME, StoredLogin, UserCode,
};
use crate::model::error::Result;
use crate::model::ids::{DeviceLoginId, KeyId, OrgId, UserId};
use crate::model::scope::{Scope, Scopes};
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, audit, now};

/// Days for which an expired login is stored.
const EXPIRED_DAYS: i32 = 1;

/// A new login.
pub struct NewDeviceLogin<'a> {
    /// The login's id.
    pub id: &'a DeviceLoginId,
    /// The code's hash with which the program polls.
    pub device_code: &'a SecretHash,
    /// The code that the user confirms.
    pub user_code: &'a UserCode,
    /// The name that the program has given itself.
    pub client_name: &'a str,
    /// The program's address.
    pub address: &'a str,
}

/// Stores a login, and returns the time at which it expires. Returns `None` if another login has the
/// user code.
pub async fn insert(
    db: impl PgExecutor<'_>,
    new: &NewDeviceLogin<'_>,
) -> Result<Option<Timestamp>> {
    let NewDeviceLogin {
        id,
        device_code,
        user_code,
        client_name,
        address,
    } = new;
    let user_code = user_code.hash();
    let expires_at = sqlx::query_scalar!(
        r#"
        insert into device_logins (
            id,
            device_code_hash,
            user_code_hash,
            client_name,
            address,
            expires_at
        )
        values ($1, $2, $3, $4, $5, now() + $6::float8 * interval '1 second')
        on conflict (user_code_hash) do nothing
        returning expires_at as "expires_at: Timestamp"
        "#,
        id.as_str(),
        device_code.as_bytes(),
        user_code.as_bytes(),
        client_name,
        address,
        LIFETIME.as_secs_f64()
    )
    .fetch_optional(db)
    .await?;
    Ok(expires_at)
}

/// A `device_logins` row.
struct Row {
    id: DeviceLoginId,
    client_name: String,
    address: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    polled_at: Option<Timestamp>,
    is_denied: bool,
    approved_by: Option<UserId>,
    org_id: Option<OrgId>,
    key_name: Option<String>,
    key_scopes: Scopes,
    key_expires_at: Option<Timestamp>,
    key_id: Option<KeyId>,
    granted_at: Option<Timestamp>,
}

impl Row {
    fn into_login(self) -> StoredLogin {
        let Self {
            id,
            client_name,
            address,
            created_at,
            expires_at,
            polled_at,
            is_denied,
            approved_by,
            org_id,
            key_name,
            key_scopes,
            key_expires_at,
            key_id,
            granted_at,
        } = self;
        let grant = || {
            Some(Grant {
                org_id: org_id.clone()?,
                key_id: key_id?,
                granted_at: granted_at?,
            })
        };
        let grant = grant();
        let approval = || {
            Some(Approval {
                org_id: org_id?,
                approved_by: approved_by?,
                name: key_name?,
                scopes: key_scopes,
                expires_at: key_expires_at,
            })
        };
        StoredLogin {
            id,
            request: DeviceRequest {
                client_name,
                address,
                created_at,
                expires_at,
            },
            polled_at,
            is_denied,
            approval: approval(),
            grant,
        }
    }
}

/// Selects a login. `$rest` follows `from device_logins`.
macro_rules! select_login {
    ($rest:literal, $code:expr) => {
        sqlx::query_as!(
            Row,
            r#"
            select
                id as "id: DeviceLoginId",
                client_name,
                address,
                created_at as "created_at: Timestamp",
                expires_at as "expires_at: Timestamp",
                polled_at as "polled_at: Timestamp",
                denied_at is not null as "is_denied!",
                approved_by as "approved_by: UserId",
                org_id as "org_id: OrgId",
                key_name,
                key_scopes as "key_scopes!: Scopes",
                key_expires_at as "key_expires_at: Timestamp",
                key_id as "key_id: KeyId",
                granted_at as "granted_at: Timestamp"
            from device_logins
            "#
                + $rest,
            $code.as_bytes()
        )
    };
}

/// Returns the login for a user code with the database's time, or `None` if there is none.
pub async fn find(
    db: &mut PgConnection,
    user_code: &UserCode,
) -> Result<Option<(StoredLogin, Timestamp)>> {
    let hash = user_code.hash();
    let row = select_login!("where user_code_hash = $1", hash);
    with_time(row.fetch_optional(&mut *db).await?, db).await
}

/// Locks a device code's login until the transaction ends. Returns the login and the database's
/// time after the lock, or `None` if there is none.
pub async fn lock_polled(
    db: &mut PgConnection,
    device_code: &SecretHash,
) -> Result<Option<(StoredLogin, Timestamp)>> {
    let row = select_login!(
        "
        where device_code_hash = $1
        for no key update
        ",
        device_code
    );
    with_time(row.fetch_optional(&mut *db).await?, db).await
}

/// Locks the login for a user code as [`lock_polled`] does.
async fn lock_decided(
    db: &mut PgConnection,
    user_code: &UserCode,
) -> Result<Option<(StoredLogin, Timestamp)>> {
    let hash = user_code.hash();
    let row = select_login!(
        "
        where user_code_hash = $1
        for no key update
        ",
        hash
    );
    with_time(row.fetch_optional(&mut *db).await?, db).await
}

/// Adds the database's time. It is a second statement, because the first one may have waited
/// for the lock.
async fn with_time(
    row: Option<Row>,
    db: &mut PgConnection,
) -> Result<Option<(StoredLogin, Timestamp)>> {
    match row {
        Some(row) => Ok(Some((row.into_login(), now(db).await?))),
        None => Ok(None),
    }
}

/// Records a poll. The caller holds the lock on the login.
pub async fn record_poll(db: impl PgExecutor<'_>, id: &DeviceLoginId) -> Result<()> {
    sqlx::query!(
        "update device_logins set polled_at = clock_timestamp() where id = $1",
        id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A user's decision about a login.
#[derive(Debug, Clone, Copy)]
pub enum Decision<'a> {
    /// The next poll creates a key.
    Approve(&'a Approval, &'a Actor),
    /// The login ends.
    Deny,
}

/// A decision's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// The login is approved or denied now.
    Done,
    /// It was approved or denied before.
    Before,
    /// There is no such login, or it has expired.
    Missing,
}

/// Approves or denies a login, once, and records an approval in the organization's audit log.
/// The state is checked here, because the check is exact only while the login is locked.
pub async fn decide(
    db: &mut PgConnection,
    user_code: &UserCode,
    decision: Decision<'_>,
) -> Result<Decided> {
    let Some((login, now)) = lock_decided(&mut *db, user_code).await? else {
        return Ok(Decided::Missing);
    };
    match (login.state(now), decision) {
        (DeviceState::Ended, _) if login.grant.is_none() => return Ok(Decided::Missing),
        (DeviceState::Pending, Decision::Deny) => deny(db, &login.id).await?,
        (DeviceState::Pending, Decision::Approve(approval, actor)) => {
            approve(db, &login, approval, actor).await?;
        }
        _ => return Ok(Decided::Before),
    }
    Ok(Decided::Done)
}

/// Denies a login. The caller holds the lock on it.
pub async fn deny(db: impl PgExecutor<'_>, id: &DeviceLoginId) -> Result<()> {
    sqlx::query!(
        "update device_logins set denied_at = clock_timestamp() where id = $1",
        id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn approve(
    db: &mut PgConnection,
    login: &StoredLogin,
    approval: &Approval,
    actor: &Actor,
) -> Result<()> {
    let Approval {
        org_id,
        approved_by,
        name,
        scopes,
        expires_at,
    } = approval;
    sqlx::query!(
        "
        update device_logins
        set
            approved_at = clock_timestamp(),
            approved_by = $2,
            org_id = $3,
            key_name = $4,
            key_scopes = $5,
            key_expires_at = $6
        where id = $1
        ",
        login.id.as_str(),
        approved_by.as_str(),
        org_id.as_str(),
        name,
        scopes.column() as Option<&[Scope]>,
        *expires_at as Option<Timestamp>
    )
    .execute(&mut *db)
    .await?;
    let granted = Change::new(
        AuditType::DeviceGranted,
        TargetType::Device,
        login.id.as_str(),
    )
    .field("client_name", (), &login.request.client_name)
    .field("name", (), name)
    .field("scopes", (), scopes)
    .field("expires_at", (), expires_at);
    audit::record(db, org_id, actor, &[granted]).await
}

/// Returns `true` if a user may create an organization's keys: they are a member or owner, and it
/// is not suspended.
pub async fn may_create_keys(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"
        select exists(
            select from memberships m
            join orgs o on o.id = m.org_id
            where m.org_id = $1
              and m.user_id = $2
              and m.role in ('member', 'owner')
              and o.suspended_at is null
        ) as "may!"
        "#,
        org_id.as_str(),
        user_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(may)
}

/// Records the key that a login has created. The caller holds the lock on the login.
pub async fn grant(db: impl PgExecutor<'_>, id: &DeviceLoginId, key_id: &KeyId) -> Result<()> {
    sqlx::query!(
        "
        update device_logins
        set
            key_id = $2,
            granted_at = clock_timestamp()
        where id = $1
        ",
        id.as_str(),
        key_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Deletes logins that expired more than `EXPIRED_DAYS` days ago.
pub async fn delete_expired(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!(
        "
        delete from device_logins
        where expires_at < now() - $1::integer * interval '1 day'
        ",
        EXPIRED_DAYS
    )
    .execute(db)
    .await?;
    Ok(())
}
