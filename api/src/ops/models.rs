//! The catalog of models: `/v1/models`.

use assay_core::model::catalog::{ModelCard, ModelFile, Models};
use assay_core::model::permissions::Caller;
use assay_core::{Error, Resource, Result, store};

use crate::app::App;

/// Returns the catalog. Every organization sees all models.
pub async fn list(app: &App, _: &Caller) -> Result<Models> {
    Ok(Models {
        models: store::catalog::list(&app.db.get())
            .await?
            .into_iter()
            .map(ModelFile::into_model)
            .collect(),
    })
}

/// Returns the card of a model.
pub async fn get(app: &App, _: &Caller, model_id: &str) -> Result<ModelCard> {
    let not_found = || Error::not_found(Resource::Model);
    // PostgreSQL rejects parameters with a NUL character; no model has one in its id.
    let model_id = Some(model_id)
        .filter(|id| !id.contains('\0'))
        .ok_or_else(not_found)?;
    Ok(store::catalog::find(&app.db.get(), model_id)
        .await?
        .ok_or_else(not_found)?
        .into_card())
}
