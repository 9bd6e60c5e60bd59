//! API keys of an organization: `/v1/keys`.

use assay_core::model::cursor::{Listing, PageQuery};
use assay_core::model::key::{ApiKey, ApiKeyCreated, ApiKeys, LIVE_MAX, NewKey};
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_core::model::validation;
use assay_core::{Code, Error, Resource, Result, store};

use crate::app::App;

/// Returns a page of the API keys of the organization, the newest first. Revoked keys are included.
pub async fn list(app: &App, session: &Session, page: PageQuery) -> Result<ApiKeys> {
    let page = page.read(Listing::Keys)?;
    let mut keys = store::key::list(&app.db.get(), session.org_id(), &page).await?;
    let next_cursor = page.cut(&mut keys, |key| (key.created_at, key.id.to_string()));
    Ok(ApiKeys { keys, next_cursor })
}

/// Creates an API key. The response is the only one that contains its secret.
pub async fn create(
    app: &App,
    member: &TermsAccepted<Member>,
    name: &str,
) -> Result<ApiKeyCreated> {
    let name = validation::text("name", name)?;
    let session = member.proof().session();
    let new = NewKey::random(name, session.user_id().clone())?;
    let mut transaction = app.db.get().begin().await?;
    if store::key::lock_live(&mut transaction, session.org_id()).await? >= LIVE_MAX {
        let message = format!(
            "The organization has {LIVE_MAX} live keys, the maximum. Revoke a key that is not used."
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let api_key = store::key::insert(&mut *transaction, session.org_id(), &new).await?;
    transaction.commit().await?;
    Ok(ApiKeyCreated {
        api_key,
        key: new.secret.into_text(),
    })
}

/// Revokes an API key. Revoking it again changes nothing.
pub async fn revoke(app: &App, member: &Member, key_id: &str) -> Result<ApiKey> {
    let not_found = || Error::not_found(Resource::Key);
    let key_id = key_id.parse().map_err(|_| not_found())?;
    store::key::revoke(&app.db.get(), member.session().org_id(), &key_id)
        .await?
        .ok_or_else(not_found)
}
