//! The caller's own suites: bodies with objects.

use assay_core::model::permissions::{Owner, Publisher};
use assay_core::model::suite::SuiteStatus;
use assay_core::model::suite_edits::SuiteEdits;
use assay_eval::suite::SuiteMetadata;
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::IF_MATCH;

use crate::app::App;
use crate::generated::inputs;
use crate::http::error_response::Failure;
use crate::ops::grants::{self, NewGrant};
use crate::ops::retirements;
use crate::ops::suite_edits::{self, Edits, IMMUTABLE};
use crate::rest::extract::{SMALL_BODY_MAX, read_json_body};
use crate::rest::input::Fields;

/// Updates a suite.
pub async fn update_suite(
    app: App,
    publisher: Publisher,
    [suite_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let if_match = request.headers().get(IF_MATCH);
    // A header that is no text equals no time.
    let if_match = if_match.map(|value| value.to_str().unwrap_or_default().to_owned());
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let edits = Edits {
        changes: SuiteEdits {
            metadata: SuiteMetadata {
                title: fields.optional_string("title"),
                description: fields.optional_string("description"),
                license: fields.optional_string("license"),
                citation: fields.optional_string("citation"),
                links: fields.optional_objects("links"),
                tags: fields.optional_strings("tags"),
                contact: fields.optional_string("contact"),
            },
            visibility: fields.optional_string("visibility"),
            access: fields.optional_string("access"),
            clear: fields.optional_strings("clear").unwrap_or_default(),
        },
        confirm: fields.optional_boolean("confirm").unwrap_or(false),
        if_match,
    };
    fields.reject(
        &IMMUTABLE,
        "immutable",
        "belongs to a version, which never changes; publish a new version",
    );
    fields.finish()?;
    let suite = suite_edits::update(&app, &publisher, &suite_id, edits).await?;
    Ok(Json(suite).into_response())
}

/// Retires a version: 202 if the checker has not executed the request yet.
pub async fn retire_suite(
    app: App,
    owner: Owner,
    [suite_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let input = inputs::RetireSuite::read(&mut fields);
    fields.finish()?;
    let version = retirements::retire(&app, &owner, &suite_id, input).await?;
    let status = match version.status {
        SuiteStatus::Retiring => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    Ok((status, Json(version)).into_response())
}

/// Creates a grant.
pub async fn create_grant(
    app: App,
    publisher: Publisher,
    [suite_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let new = NewGrant {
        org_id: fields.optional_string("org_id"),
        domain: fields.optional_string("domain"),
        link: fields.optional_typed("link", "an object"),
    };
    fields.finish()?;
    let grant = grants::create(&app, &publisher, &suite_id, new).await?;
    Ok((StatusCode::CREATED, Json(grant)).into_response())
}
