//! The terms of the installation, and their acceptance: `/v1/terms`.

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::permissions::{Caller, Owner};
use assay_core::model::terms::{CurrentTerms, Terms};
use assay_core::model::validation;
use assay_core::{Code, Error, OrgId, Resource, Result, store};

use crate::app::App;
use crate::generated::inputs;

/// Returns the current terms, and their acceptance by the organization.
pub async fn get(app: &App, caller: &Caller) -> Result<Terms> {
    with_acceptance(app, current_terms(app)?, caller.org_id()).await
}

/// Accepts the current terms for the organization. A repeated acceptance keeps the first one.
pub async fn accept(app: &App, owner: &Owner, input: inputs::AcceptTerms) -> Result<Terms> {
    let version = input.version.as_str();
    validation::repeated_text("version", version)?;
    let current = current_terms(app)?;
    if version != current.version {
        let message = format!(
            "The current terms are version {}: {}",
            current.version, current.url
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let session = owner.session();
    let mut transaction = app.db.get().begin().await?;
    let is_first = store::terms::accept(
        &mut *transaction,
        session.org_id(),
        &current.version,
        session.user_id(),
    )
    .await?;
    if is_first {
        let accepted = Change::new(
            AuditType::TermsAccepted,
            TargetType::Terms,
            &*current.version,
        );
        store::audit::record(
            &mut transaction,
            session.org_id(),
            session.actor(),
            &[accepted],
        )
        .await?;
    }
    transaction.commit().await?;
    with_acceptance(app, current, session.org_id()).await
}

/// Returns the current terms, or an error if the installation has none.
fn current_terms(app: &App) -> Result<&CurrentTerms> {
    app.settings
        .terms
        .as_deref()
        .ok_or_else(|| Error::not_found_with(Resource::Terms, "This installation has no terms."))
}

/// Returns the terms with their acceptance by the organization, if it has accepted them.
async fn with_acceptance(app: &App, current: &CurrentTerms, org_id: &OrgId) -> Result<Terms> {
    let CurrentTerms { version, url } = current.clone();
    let acceptance = store::terms::find(&app.db.get(), org_id, &version).await?;
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
