//! A form that was opened in a session that has ended: nothing that the user typed is lost.

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use http::{StatusCode, Uri};

use super::form::Form;
use crate::http::theme::Theme;

#[derive(Template)]
#[template(path = "pages/resubmission.html")]
struct Resubmission<'a> {
    /// The path that the form is sent to.
    action: &'a str,
    /// The fields that the user typed.
    fields: Vec<(&'a str, &'a str)>,
    /// The organization that the form acts for, if it names one.
    org_id: &'a str,
    /// The present session's token, if there is one.
    csrf: Option<&'a str>,
    theme: Theme,
}

/// Returns the page that shows a form again. `csrf` is the present session's token; without
/// one, the page asks the user to sign in first.
pub fn page(uri: &Uri, form: &Form, csrf: Option<&str>, theme: Theme) -> Response {
    let shown = |name: &str| !matches!(name, "csrf" | "org_id");
    let fields = form.fields().iter();
    let template = Resubmission {
        action: uri.path(),
        fields: fields
            .filter(|(name, _)| shown(name))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        org_id: form.get("org_id"),
        csrf,
        theme,
    };
    match template.render() {
        Ok(html) => (StatusCode::CONFLICT, Html(html)).into_response(),
        Err(error) => {
            crate::http::error_response::Failure::from(assay_core::Error::internal(error))
                .into_response()
        }
    }
}
