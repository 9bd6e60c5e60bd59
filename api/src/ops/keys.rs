//! API keys of an organization: `/v1/keys`.

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::cursor::Listing;
use assay_core::model::error::Errors;
use assay_core::model::event::EventType;
use assay_core::model::key::{
    ApiKey, ApiKeyCreated, ApiKeys, KeyChange, LIVE_MAX, NewKey, check_expiry, overlap_hours,
};
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_core::model::public_name::public_name;
use assay_core::model::scope::Scopes;
use assay_core::model::validation::{self, TEXT_MAX};
use assay_core::{Code, Error, KeyId, Resource, Result, Timestamp, store};

use crate::app::App;
use crate::generated::inputs;

impl From<inputs::CreateKey> for inputs::UpdateKey {
    fn from(input: inputs::CreateKey) -> Self {
        Self {
            name: Some(input.name),
            scopes: input.scopes,
            expires_at: input.expires_at,
        }
    }
}

impl inputs::UpdateKey {
    /// Validates the fields that are present.
    pub(super) fn validate(self) -> Result<KeyChange> {
        let Self {
            name,
            scopes,
            expires_at,
        } = self;
        let mut errors = Errors::default();
        let name = name
            .map(|name| public_name("name", &name, TEXT_MAX))
            .transpose();
        let name = errors.take(name);
        let scopes = scopes
            .map(|scopes| Scopes::parse(Some(scopes)))
            .transpose()
            .unwrap_or_else(|faults| {
                errors.extend(faults);
                None
            });
        let expires_at = expires_at
            .map(|text| validation::timestamp("expires_at", &text))
            .transpose();
        let expires_at = errors.take(expires_at);
        errors.finish()?;
        Ok(KeyChange {
            name,
            scopes,
            expires_at,
            ..KeyChange::default()
        })
    }
}

/// Returns a page of the API keys of the organization, the newest first. Revoked keys are included.
pub async fn list(app: &App, session: &Session, input: inputs::ListKeys) -> Result<ApiKeys> {
    let page = Listing::Keys.page(input.limit, input.cursor.as_deref())?;
    let mut keys = store::key::list(&app.db.get(), session.org_id(), &page).await?;
    let next_cursor = page.cut(&mut keys, |key| (key.created_at, key.id.to_string()));
    Ok(ApiKeys { keys, next_cursor })
}

/// Returns an API key, also a revoked one.
pub async fn get(app: &App, session: &Session, key_id: &str) -> Result<ApiKey> {
    let key_id = parse(key_id)?;
    let key = store::key::find(&app.db.get(), session.org_id(), &key_id).await?;
    key.ok_or_else(not_found)
}

/// Creates an API key. The response is the only one that contains its secret.
pub async fn create(
    app: &App,
    member: &TermsAccepted<Member>,
    input: inputs::CreateKey,
) -> Result<ApiKeyCreated> {
    let KeyChange {
        name,
        scopes,
        expires_at,
        ..
    } = inputs::UpdateKey::from(input).validate()?;
    let session = member.proof().session();
    let new = NewKey {
        scopes: scopes.unwrap_or(Scopes::All),
        expires_at,
        ..NewKey::random(name.unwrap_or_default(), session.user_id().clone())?
    };
    let mut transaction = app.db.get().begin().await?;
    let live = store::key::lock_live(&mut transaction, session.org_id()).await?;
    check_expiry(expires_at, live.now)?;
    ensure_room(live.count)?;
    let (org_id, actor) = (session.org_id(), session.actor());
    let api_key = store::key::create(&mut transaction, org_id, &new, actor).await?;
    transaction.commit().await?;
    Ok(ApiKeyCreated {
        api_key,
        key: new.secret.into_text(),
    })
}

/// Renames an API key, or restricts it further. Absent fields remain unchanged.
pub async fn update(
    app: &App,
    member: &Member,
    key_id: &str,
    input: inputs::UpdateKey,
) -> Result<ApiKey> {
    let mut new = input.validate()?;
    if new == KeyChange::default() {
        return Err(Error::field(
            "body",
            "required",
            "give at least one of name, scopes and expires_at",
        ));
    }
    let session = member.session();
    let org_id = session.org_id();
    let key_id = parse(key_id)?;
    let mut transaction = app.db.get().begin().await?;
    let (before, now) = lock(&mut transaction, session, &key_id).await?;
    before.ensure_live(now, "changed")?;
    // All scopes by name would exclude those of later releases, without a visible change.
    new.scopes
        .take_if(|scopes| scopes.list() == before.scopes.list());
    let mut errors = Errors::default();
    errors.extend(before.check_restriction(&new));
    errors.extend(check_expiry(new.expires_at, now).err());
    errors.finish()?;
    let after = store::key::update(&mut transaction, org_id, &key_id, &new).await?;
    let updated = Change::key(AuditType::KeyUpdated, &key_id)
        .field("name", &before.name, &after.name)
        .field("scopes", &before.scopes, &after.scopes)
        .field("expires_at", before.expires_at, after.expires_at);
    if !updated.fields.is_empty() {
        store::audit::record(&mut transaction, org_id, session.actor(), &[updated]).await?;
    }
    transaction.commit().await?;
    Ok(after)
}

/// Replaces an API key by a new one with the same name, scopes and lifetime. The old key keeps
/// working for the overlap.
pub async fn rotate(
    app: &App,
    member: &TermsAccepted<Member>,
    key_id: &str,
    input: inputs::RotateKey,
) -> Result<ApiKeyCreated> {
    let overlap_hours = overlap_hours(input.overlap_hours)?;
    let session = member.proof().session();
    let org_id = session.org_id();
    let key_id = parse(key_id)?;
    let mut transaction = app.db.get().begin().await?;
    let live = store::key::lock_live(&mut transaction, org_id).await?;
    let (old, now) = lock(&mut transaction, session, &key_id).await?;
    old.ensure_live(now, "rotated")?;
    if let Some(replacement) = &old.replaced_by {
        let message =
            format!("The key has been rotated: {replacement} replaced it. Rotate that one.");
        return Err(Error::invalid_state(Resource::Key, message));
    }
    let end = old.expiry_if_replaced(now, overlap_hours);
    ensure_room(live.count - i64::from(end <= now))?;
    let new = NewKey {
        scopes: old.scopes.clone(),
        expires_at: old.expiry_of_replacement(now),
        replaces: Some(old.id.clone()),
        ..NewKey::random(old.name.clone(), session.user_id().clone())?
    };
    let api_key = store::key::insert(&mut *transaction, org_id, &new).await?;
    let replaced = KeyChange {
        expires_at: Some(end),
        replaced_by: Some(new.id.clone()),
        ..KeyChange::default()
    };
    let replaced = store::key::update(&mut transaction, org_id, &key_id, &replaced).await?;
    let rotated = Change::key(AuditType::KeyRotated, &key_id)
        .field("replaced_by", (), &replaced.replaced_by)
        .field("expires_at", old.expires_at, replaced.expires_at);
    store::audit::record(&mut transaction, org_id, session.actor(), &[rotated]).await?;
    store::event::insert(&mut transaction, org_id, EventType::KeyCreated, &api_key).await?;
    transaction.commit().await?;
    Ok(ApiKeyCreated {
        api_key,
        key: new.secret.into_text(),
    })
}

/// Revokes an API key. Revoking it again changes nothing.
pub async fn revoke(app: &App, member: &Member, key_id: &str) -> Result<ApiKey> {
    let session = member.session();
    let org_id = session.org_id();
    let key_id = parse(key_id)?;
    let mut transaction = app.db.get().begin().await?;
    let key = store::key::revoke(&mut transaction, org_id, &key_id, session.actor())
        .await?
        .ok_or_else(not_found)?;
    transaction.commit().await?;
    Ok(key)
}

fn not_found() -> Error {
    Error::not_found(Resource::Key)
}

fn parse(key_id: &str) -> Result<KeyId> {
    key_id.parse().map_err(|_| not_found())
}

/// Locks a key until the transaction ends, and returns it with the time of the database.
async fn lock(
    db: &mut store::PgConnection,
    session: &Session,
    key_id: &KeyId,
) -> Result<(ApiKey, Timestamp)> {
    store::key::lock(db, session.org_id(), key_id)
        .await?
        .ok_or_else(not_found)
}

/// Returns an error if the organization has as many live keys as it can.
pub(super) fn ensure_room(live: i64) -> Result<()> {
    if live < LIVE_MAX {
        return Ok(());
    }
    let message = format!(
        "The organization has {LIVE_MAX} live keys, the maximum. Revoke a key that is not used."
    );
    Err(Error::new(Code::Conflict, message))
}
