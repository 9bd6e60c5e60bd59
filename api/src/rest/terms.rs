//! `/v1/terms`

use assay_core::principal::{Caller, Owner};
use assay_core::terms::Terms;
use axum::Json;
use axum::extract::{Request, State};

use super::extract::{Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::terms;
use crate::render::Failure;

pub(super) async fn get(State(app): State<App>, Permitted(caller): Permitted<Caller>) -> Result<Json<Terms>, Failure> {
    Ok(Json(terms::get(&app, &caller).await?))
}

pub(super) async fn accept(State(app): State<App>, Permitted(owner): Permitted<Owner>, request: Request) -> Result<Json<Terms>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let version = fields.text("version");
    fields.finish()?;
    Ok(Json(terms::accept(&app, &owner, &version).await?))
}
