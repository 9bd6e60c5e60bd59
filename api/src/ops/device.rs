//! Device logins: a program without a browser gets an API key, `/v1/auth/device`. Its operations
//! require no credential. The others are those of the page on which a user decides.

use assay_core::model::audit::{Actor, RequestOrigin};
use assay_core::model::device::{
    self, Approval, DeviceLogin, DeviceLoginResult, DeviceLoginStatus, DeviceRequest, DeviceState,
    Grant, LIFETIME, POLL_INTERVAL_SECONDS, StoredLogin, UserCode,
};
use assay_core::model::key::{ApiKeyCreated, KeyChange, NewKey, check_expiry};
use assay_core::model::permissions::{Member, TermsAccepted, User};
use assay_core::model::public_name::name_without_link;
use assay_core::model::scope::Scopes;
use assay_core::model::secret::{self, Secret, SecretKind};
use assay_core::model::session::Origin;
use assay_core::model::validation;
use assay_core::store::PgConnection;
use assay_core::store::device::{Decided, Decision, NewDeviceLogin};
use assay_core::{Code, DeviceLoginId, Error, KeyId, Resource, Result, Timestamp, UserId, store};

use super::keys::ensure_room;
use crate::app::App;
use crate::generated::inputs;
use crate::limits::address::counting_prefixes;

/// Number of random user codes that are tried. A second one is needed once in a million logins.
const USER_CODE_ATTEMPTS: u32 = 5;

/// Number of user codes that one user can name in a minute, whether they exist or not.
const CODES_OF_USER: u32 = 10;

/// Number of user codes that all users of one network address can name in a minute.
const CODES_OF_ADDRESS: u32 = 60;

/// Starts the login of a program.
pub async fn create(
    app: &App,
    origin: Origin<'_>,
    input: inputs::CreateDeviceLogin,
) -> Result<DeviceLogin> {
    let client_name = name_without_link("client_name", &input.client_name)?;
    let device_code = Secret::random(SecretKind::Device)?;
    let id = DeviceLoginId::random()?;
    for _ in 0..USER_CODE_ATTEMPTS {
        let user_code = UserCode::random()?;
        let new = NewDeviceLogin {
            id: &id,
            device_code: &device_code.hash(),
            user_code: &user_code,
            client_name: &client_name,
            address: origin.address,
        };
        if let Some(expires_at) = store::device::insert(&app.db.get(), &new).await? {
            let page = format!("{}/device", app.settings.public_url);
            return Ok(DeviceLogin {
                device_code: device_code.into_text(),
                user_code: user_code.to_string(),
                verification_url_complete: format!("{page}?code={user_code}"),
                verification_url: page,
                interval: i64::from(POLL_INTERVAL_SECONDS),
                expires_at,
            });
        }
    }
    Err(Error::unavailable("every user code was in use"))
}

/// Returns the state of a login, and its key if a user has approved it. The first poll after the
/// approval creates the key. An unknown code counts as a failed authentication of the network
/// address in `origin`.
pub async fn poll(
    app: &App,
    origin: Origin<'_>,
    input: inputs::PollDeviceLogin,
) -> Result<DeviceLoginResult> {
    let device_code = input.device_code.as_str();
    validation::repeated_text("device_code", device_code)?;
    let code = secret::read(device_code)
        .and_then(|(kind, hash)| (kind == SecretKind::Device).then_some(hash));
    if let Some(hash) = &code {
        app.limits.one_time_codes.check_poll(hash)?;
    }
    let _permit = app.limits.one_time_codes.look_up(origin.address).await?;
    let polled = match &code {
        Some(hash) => {
            let mut transaction = app.db.get().begin().await?;
            let locked = store::device::lock_polled(&mut transaction, hash).await?;
            locked.map(|locked| (transaction, locked))
        }
        None => None,
    };
    let Some((mut transaction, (login, now))) = polled else {
        let (error, _) = app
            .limits
            .rate
            .record_failure(origin.address, ended())
            .await;
        return Err(error);
    };
    let state = login.state(now);
    if state == DeviceState::Ended {
        return Err(ended());
    }
    login.check_interval(now)?;
    store::device::record_poll(&mut *transaction, &login.id).await?;
    let polled = Polled {
        login: &login,
        now,
        device_code,
        origin,
    };
    let result = match state {
        DeviceState::Approved(approval) => polled.create_key(&mut transaction, approval).await?,
        DeviceState::Granted(grant) => polled.repeat_key(&mut transaction, &grant).await?,
        DeviceState::Denied => without_key(DeviceLoginStatus::Denied),
        DeviceState::Pending | DeviceState::Ended => without_key(DeviceLoginStatus::Pending),
    };
    transaction.commit().await?;
    if let Some(hash) = code {
        app.limits.one_time_codes.record_poll(hash);
    }
    Ok(result)
}

const fn without_key(status: DeviceLoginStatus) -> DeviceLoginResult {
    DeviceLoginResult {
        status,
        api_key: None,
    }
}

/// Returns the error of a device code that is not valid, or no longer.
fn ended() -> Error {
    Error::new(
        Code::InvalidToken,
        format!(
            "This device code is not valid: it is older than {} minutes, or its key was fetched. \
             Start the login again.",
            LIFETIME.as_secs() / 60
        ),
    )
}

/// A poll of a login that is locked.
struct Polled<'a> {
    login: &'a StoredLogin,
    now: Timestamp,
    device_code: &'a str,
    origin: Origin<'a>,
}

impl Polled<'_> {
    /// Creates the key of an approved login. If the user may no longer create it, or it would have
    /// expired, the login is denied.
    async fn create_key(
        &self,
        db: &mut PgConnection,
        approval: Approval,
    ) -> Result<DeviceLoginResult> {
        let Approval {
            org_id,
            approved_by,
            name,
            scopes,
            expires_at,
        } = approval;
        let id = &self.login.id;
        if !store::device::may_create_keys(&mut *db, &org_id, &approved_by).await?
            || check_expiry(expires_at, self.now).is_err()
        {
            store::device::deny(db, id).await?;
            return Ok(without_key(DeviceLoginStatus::Denied));
        }
        let live = store::key::lock_live(&mut *db, &org_id).await?;
        ensure_room(live.count)?;
        let new = NewKey {
            id: KeyId::random()?,
            name,
            scopes,
            expires_at,
            replaces: None,
            created_by: approved_by.clone(),
            secret: device::key_secret(self.device_code, id)?,
        };
        let request = RequestOrigin {
            request_id: self.origin.request_id.clone(),
            address: self.origin.address.into(),
        };
        let actor = Actor::user(approved_by, Some(request));
        let api_key = store::key::create(&mut *db, &org_id, &new, &actor).await?;
        store::device::grant(db, id, &api_key.id).await?;
        Ok(DeviceLoginResult {
            status: DeviceLoginStatus::Granted,
            api_key: Some(ApiKeyCreated {
                api_key,
                key: new.secret.into_text(),
            }),
        })
    }

    /// Returns the key that an earlier poll has created, whose response may have been lost.
    async fn repeat_key(&self, db: &mut PgConnection, grant: &Grant) -> Result<DeviceLoginResult> {
        let Some((api_key, _)) = store::key::lock(db, &grant.org_id, &grant.key_id).await? else {
            return Err(ended());
        };
        let secret = device::key_secret(self.device_code, &self.login.id)?;
        Ok(DeviceLoginResult {
            status: DeviceLoginStatus::Granted,
            api_key: Some(ApiKeyCreated {
                api_key,
                key: secret.into_text(),
            }),
        })
    }
}

/// Returns the login of a user code, for the user who decides about it.
pub async fn find(app: &App, user: &User, user_code: &str) -> Result<DeviceRequest> {
    let code = read_code(app, user.user_id(), user.actor(), user_code).await?;
    let mut db = app.db.get().acquire().await?;
    let (login, now) = store::device::find(&mut db, &code)
        .await?
        .ok_or_else(no_such_code)?;
    match login.state(now) {
        DeviceState::Pending => Ok(login.request),
        DeviceState::Ended if login.grant.is_none() => Err(no_such_code()),
        _ => Err(decided_before()),
    }
}

/// Approves a login: its next poll creates a key of the organization that the member acts for, with
/// this name, these scopes and this expiry.
pub async fn approve(
    app: &App,
    member: &TermsAccepted<Member>,
    user_code: &str,
    key: inputs::CreateKey,
) -> Result<()> {
    let KeyChange {
        name,
        scopes,
        expires_at,
        ..
    } = inputs::UpdateKey::from(key).validate()?;
    let session = member.proof().session();
    let code = read_code(app, session.user_id(), session.actor(), user_code).await?;
    // The poll checks both again. Here they are errors that the user can correct.
    let live = store::key::live(&app.db.get(), session.org_id()).await?;
    check_expiry(expires_at, live.now)?;
    ensure_room(live.count)?;
    let approval = Approval {
        org_id: session.org_id().clone(),
        approved_by: session.user_id().clone(),
        name: name.unwrap_or_default(),
        scopes: scopes.unwrap_or(Scopes::All),
        expires_at,
    };
    decide(app, &code, Decision::Approve(&approval, session.actor())).await
}

/// Denies a login.
pub async fn deny(app: &App, user: &User, user_code: &str) -> Result<()> {
    let code = read_code(app, user.user_id(), user.actor(), user_code).await?;
    decide(app, &code, Decision::Deny).await
}

async fn decide(app: &App, code: &UserCode, decision: Decision<'_>) -> Result<()> {
    let mut transaction = app.db.get().begin().await?;
    match store::device::decide(&mut transaction, code, decision).await? {
        Decided::Done => {
            transaction.commit().await?;
            Ok(())
        }
        Decided::Before => Err(decided_before()),
        Decided::Missing => Err(no_such_code()),
    }
}

fn no_such_code() -> Error {
    let message = "There is no such code. Codes expire after 10 minutes: start the login again.";
    Error::not_found_with(Resource::DeviceLogin, message)
}

fn decided_before() -> Error {
    let message = "The login was approved or denied before. Start it again if it was not you.";
    Error::invalid_state(Resource::DeviceLogin, message)
}

/// Reads the code that a user has entered. Each one counts, because a code is short: a user or a
/// network that tries many codes must not find the login of somebody else.
async fn read_code(app: &App, user_id: &UserId, actor: &Actor, text: &str) -> Result<UserCode> {
    let mut counted = vec![(user_id.to_string(), CODES_OF_USER)];
    if let Some(request) = &actor.request {
        let prefixes = counting_prefixes(&request.address).into_iter();
        counted.extend(prefixes.map(|(prefix, times)| (prefix, CODES_OF_ADDRESS * times)));
    }
    for (of, limit) in counted {
        let verdict = app.limits.rate.admit(&format!("code.{of}"), limit).await?;
        if verdict.refused_for.is_some() {
            return Err(verdict.rate_limited());
        }
    }
    UserCode::read(text).ok_or_else(no_such_code)
}
