//! Drafts: a body has a list of files, and a part is a stream of bytes.

use assay_core::model::draft::{Draft, FileToCheck};
use assay_core::model::permissions::Publisher;
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode};

use super::evals::mark_replayed;
use super::uploads::{PartBody, part_number};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::drafts::{self, BODY_MAX, Created, Submission};
use crate::rest::extract::{
    IdempotencyKey, SMALL_BODY_MAX, read_json_body, read_optional_json_body,
};
use crate::rest::input::Fields;

/// Creates a draft.
pub async fn create_draft(
    app: App,
    publisher: Publisher,
    request: Request,
) -> Result<Response, Failure> {
    let key = IdempotencyKey::from_headers(request.headers())?;
    let body = read_json_body(&app, request, BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let submission = Submission {
        suite_toml: fields.string("suite_toml"),
        files: fields.optional_objects("files").unwrap_or_default(),
        opening_key: fields.optional_string("opening_key"),
        check: fields.optional_boolean("check").unwrap_or(false),
        idempotency_key: key.map(|IdempotencyKey(key)| key),
    };
    fields.finish()?;
    let Created { draft, replayed } = drafts::create(&app, &publisher, submission).await?;
    let mut headers = HeaderMap::new();
    mark_replayed(&mut headers, replayed);
    Ok((StatusCode::CREATED, headers, Json::<Draft>(draft)).into_response())
}

/// Requests the check of a draft.
pub async fn check_draft(
    app: App,
    publisher: Publisher,
    [draft_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let body = read_optional_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let files: Option<Vec<FileToCheck>> = fields.optional_objects("files");
    fields.finish()?;
    let draft = drafts::check(&app, &publisher, &draft_id, files).await?;
    Ok((StatusCode::ACCEPTED, Json::<Draft>(draft)).into_response())
}

/// Receives a part of a file.
pub async fn upload_draft_part(
    app: App,
    publisher: Publisher,
    [draft_id, name, number]: [String; 3],
    request: Request,
) -> Result<Response, Failure> {
    let place = (draft_id.as_str(), name.as_str(), part_number(&number));
    let mut part = PartBody::from_request(request)?;
    let PartBody {
        length,
        reservation,
        bytes,
        ..
    } = &mut part;
    let received = drafts::put_part(&app, &publisher, place, *length, reservation, bytes).await;
    part.drain_after(&app, received)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
