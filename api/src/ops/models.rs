//! The catalog of models: `/v1/models`.

use assay_core::model::catalog::{ModelCard, ModelFile, Models};
use assay_core::model::permissions::{Caller, ModelReader};
use assay_core::model::published_model::VisibleVersion;
use assay_core::{Error, Resource, Result, store};

use crate::app::App;

/// Returns the catalog: the platform's models, and those of the caller's organization.
pub async fn list(app: &App, caller: &ModelReader) -> Result<Models> {
    Ok(Models {
        models: store::catalog::list(&app.db.get(), caller.org_id())
            .await?
            .into_iter()
            .map(ModelFile::into_model)
            .collect(),
    })
}

/// Returns the card of a model in its current version.
pub async fn get(app: &App, caller: &ModelReader, model_id: &str) -> Result<ModelCard> {
    let found = find(app, caller, model_id, None).await?;
    Ok(found.published.file.into_card())
}

/// Returns a version of a model that the caller's organization sees: the given one, or the one
/// published last.
///
/// # Errors
/// 404 if there is no such model, 422 if it has no such version.
pub async fn find(
    app: &App,
    caller: &Caller,
    model_id: &str,
    version: Option<&str>,
) -> Result<VisibleVersion> {
    let not_found = || Error::not_found(Resource::Model);
    // PostgreSQL rejects parameters with a NUL character; no model has one in its id.
    let model_id = Some(model_id)
        .filter(|id| !id.contains('\0'))
        .ok_or_else(not_found)?;
    let db = app.db.get();
    let found = match version {
        Some(version) if version.contains('\0') => None,
        version => store::catalog::find(&db, caller.org_id(), model_id, version).await?,
    };
    match (found, version) {
        (Some(found), _) => Ok(found),
        (None, Some(_))
            if store::catalog::find(&db, caller.org_id(), model_id, None)
                .await?
                .is_some() =>
        {
            Err(Error::field(
                "model_version",
                "not_found",
                "the model has no such version; leave it out for the current one",
            ))
        }
        (None, _) => Err(not_found()),
    }
}
