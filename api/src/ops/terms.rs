//! `/v1/terms`

use assay_core::model::permissions::{Caller, Owner};
use assay_core::model::terms::{CurrentTerms, Terms};
use assay_core::{Code, Error, OrgId, Resource, Result, store};
use assay_eval::FieldError;

use crate::app::App;

/// The terms that hold now, and whether the organization accepted them.
pub async fn get(app: &App, caller: &Caller) -> Result<Terms> {
    found(app, current(app)?, caller.org_id()).await
}

/// Accepts the terms for the organization. The first acceptance stays.
pub async fn accept(app: &App, owner: &Owner, version: &str) -> Result<Terms> {
    if version.is_empty() {
        return Err(FieldError::required("version").into());
    }
    let current = current(app)?;
    if version != current.version {
        let message = format!(
            "The terms that hold now are version {}: {}",
            current.version, current.url
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let session = owner.session();
    store::terms::accept(
        &app.db,
        session.org_id(),
        &current.version,
        session.user_id(),
    )
    .await?;
    found(app, current, session.org_id()).await
}

fn current(app: &App) -> Result<&CurrentTerms> {
    app.settings
        .terms
        .as_deref()
        .ok_or_else(|| Error::missing(Resource::Terms, "This installation has no terms."))
}

async fn found(app: &App, current: &CurrentTerms, org_id: &OrgId) -> Result<Terms> {
    let CurrentTerms { version, url } = current.clone();
    let acceptance = store::terms::find(&app.db, org_id, &version).await?;
    let (accepted_at, accepted_by) = acceptance
        .map(|acceptance| (acceptance.accepted_at, acceptance.accepted_by))
        .unzip();
    Ok(Terms {
        version,
        url,
        accepted_at,
        accepted_by,
    })
}
