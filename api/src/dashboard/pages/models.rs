//! The catalog of models.

use askama::Template;
use assay_core::model::catalog::{Model, ModelCard};
use axum::extract::{Path, State};

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, page};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Visitor};
use crate::ops::models;

#[derive(Template)]
#[template(path = "pages/models.html")]
struct ModelsPage {
    layout: Layout,
    models: Vec<Model>,
}

#[derive(Template)]
#[template(path = "pages/model.html")]
struct ModelPage {
    layout: Layout,
    card: ModelCard,
    /// A request with curl.
    call: String,
}

/// Shows the models that the organization may use.
pub async fn list(State(app): State<App>, visitor: Visitor) -> PageResult {
    let models = models::list(&app, &visitor.proof()?).await?.models;
    let layout = visitor.layout(&app, "Models", Section::Models).await?;
    page(&ModelsPage { layout, models })
}

/// Shows a model.
pub async fn get(
    State(app): State<App>,
    visitor: Visitor,
    Path(model_id): Path<String>,
) -> PageResult {
    let card = models::get(&app, &visitor.proof()?, &model_id).await?;
    let layout = visitor
        .layout(&app, card.id.clone(), Section::Models)
        .await?;
    let call = format!(
        "curl {}/v1/models/{} -H \"Authorization: Bearer $ASSAY_API_KEY\"",
        app.settings.public_url, card.id
    );
    page(&ModelPage { layout, card, call })
}
