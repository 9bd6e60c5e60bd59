//! `/v1/keys`

use assay_core::key::{ApiKey, ApiKeyCreated, ApiKeys, NewKey};
use assay_core::principal::{Member, Session, TermsAccepted};
use assay_core::{Error, Resource, Result, field, store};

use crate::app::App;

/// All keys of the organization, revoked ones too.
pub async fn list(app: &App, session: &Session) -> Result<ApiKeys> {
    Ok(ApiKeys { keys: store::key::list(&app.db, session.org_id()).await? })
}

/// Makes a key. Its secret is in this answer only.
pub async fn create(app: &App, member: &TermsAccepted<Member>, name: &str) -> Result<ApiKeyCreated> {
    let name = field::text("name", name)?;
    let session = member.who().session();
    let new = NewKey::random(name, session.user_id().clone())?;
    let api_key = store::key::insert(&app.db, session.org_id(), &new).await?;
    Ok(ApiKeyCreated { api_key, key: new.secret.into_text() })
}

/// Revokes a key. Doing it again changes nothing.
pub async fn revoke(app: &App, member: &Member, key_id: &str) -> Result<ApiKey> {
    let missing = || Error::not_found(Resource::Key);
    let key_id = key_id.parse().map_err(|_| missing())?;
    store::key::revoke(&app.db, member.session().org_id(), &key_id).await?.ok_or_else(missing)
}
