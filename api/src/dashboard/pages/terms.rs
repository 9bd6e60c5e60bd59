//! The terms of the installation.

use askama::Template;
use assay_core::model::permissions::Caller;
use assay_core::model::terms::Terms;
use axum::extract::State;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, page, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Submitted, Visitor};
use crate::generated::inputs;
use crate::ops::terms;

#[derive(Template)]
#[template(path = "pages/terms.html")]
struct TermsPage {
    layout: Layout,
    terms: Option<Terms>,
}

/// Shows the current terms, and whether the organization has accepted them.
pub async fn show(State(app): State<App>, visitor: Visitor) -> PageResult {
    let caller: Caller = visitor.proof()?;
    let terms = match terms::get(&app, &caller).await {
        Ok(terms) => Some(terms),
        Err(error) if error.code == assay_core::Code::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let layout = visitor.layout(&app, "Terms", Section::Settings).await?;
    page(&TermsPage { layout, terms })
}

/// Accepts the terms' version that the form shows.
pub async fn accept(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let version = fields.get("version").to_owned();
    let notice = format!("Version {version} of the terms was accepted.");
    terms::accept(&app, &visitor.proof()?, inputs::AcceptTerms { version }).await?;
    Ok(redirect_with_notice("/terms", &notice))
}
