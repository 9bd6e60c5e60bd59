//! `/v1/models`

use assay_core::model::catalog::{ModelCard, ModelFile, Models};
use assay_core::model::permissions::Caller;
use assay_core::{Error, Resource, Result, store};

use crate::app::App;

/// The catalog. Models belong to the platform: every organization sees them all.
pub async fn list(app: &App, _: &Caller) -> Result<Models> {
    Ok(Models {
        models: store::catalog::list(&app.db)
            .await?
            .into_iter()
            .map(ModelFile::into_model)
            .collect(),
    })
}

/// A model's card.
pub async fn get(app: &App, _: &Caller, model_id: &str) -> Result<ModelCard> {
    let missing = || Error::not_found(Resource::Model);
    // No id has a NUL character, and PostgreSQL could not be asked for one.
    let model_id = Some(model_id)
        .filter(|id| !id.contains('\0'))
        .ok_or_else(missing)?;
    Ok(store::catalog::find(&app.db, model_id)
        .await?
        .ok_or_else(missing)?
        .into_card())
}
