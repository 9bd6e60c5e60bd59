//! `/v1/uploads`

use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::upload::{Part, Upload, UploadCreate};
use assay_core::{Code, Error, Result, UploadId};
use axum::Json;
use axum::extract::{Request, State};
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::EXPECT;

use super::extract::{Id, Ids, Permitted, SMALL, announced, discard, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::layers::memory;
use crate::ops::complete_upload;
use crate::ops::uploads::{self, NewUploadFields};

/// Open an upload
///
/// For predictions that are larger than a request may be. The answer says where their parts go, and by which `input_ref` a
/// submission names them afterwards. There are 24 hours to complete it.
#[utoipa::path(post, path = "/v1/uploads", operation_id = "createUpload", tag = "uploads",
    security(("api_key" = []), ("session" = ["member"])), request_body = UploadCreate,
    responses((status = 201, description = "The upload, which waits for its parts.", body = Upload)))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    request: Request,
) -> Result<(StatusCode, Json<Upload>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let new = NewUploadFields {
        kind: fields.text("kind"),
        content_type: fields.optional_text("content_type"),
        content_encoding: fields.optional_text("content_encoding"),
        bytes: fields.optional_integer("bytes"),
        sha256: fields.optional_text("sha256"),
    };
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(uploads::create(&app, &submitter, new).await?),
    ))
}

/// Read an upload
///
/// With the parts that have arrived, so that an upload that broke off goes on where it stopped.
#[utoipa::path(get, path = "/v1/uploads/{upload_id}", operation_id = "getUpload", tag = "uploads",
    security(("api_key" = []), ("session" = [])), params(("upload_id" = UploadId, Path, description = "The upload.")),
    responses((status = 200, description = "The upload.", body = Upload), (status = 404, description = "No such upload in the organization.")))]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(id): Id,
) -> Result<Json<Upload>, Failure> {
    Ok(Json(uploads::get(&app, &caller, &id).await?))
}

/// Complete an upload
///
/// Puts the parts together in the order of their numbers, checks their size and SHA-256, and reads everything through once.
/// Then it is `ready`. Predictions that are at fault are told with their lines, and the upload has failed; if a part is
/// missing, or the size is not the announced one, it still waits. Doing it again changes nothing.
#[utoipa::path(post, path = "/v1/uploads/{upload_id}/complete", operation_id = "completeUpload", tag = "uploads",
    security(("api_key" = []), ("session" = ["member"])), params(("upload_id" = UploadId, Path, description = "The upload.")),
    responses(
        (status = 200, description = "The upload, ready.", body = Upload),
        (status = 404, description = "No such upload in the organization."),
        (status = 409, description = "The upload has failed or expired, or changed while it was read."),
        (status = 413, description = "Decompressed, the upload is larger than the plan allows."),
    ))]
pub(super) async fn complete(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(id): Id,
) -> Result<Json<Upload>, Failure> {
    Ok(Json(
        complete_upload::complete(&app, &submitter, &id).await?,
    ))
}

/// Drop an upload
///
/// With its parts, at once. One that a waiting or running job needs stays.
#[utoipa::path(delete, path = "/v1/uploads/{upload_id}", operation_id = "deleteUpload", tag = "uploads",
    security(("api_key" = []), ("session" = ["member"])), params(("upload_id" = UploadId, Path, description = "The upload.")),
    responses(
        (status = 204, description = "The upload is gone."),
        (status = 404, description = "No such upload in the organization."),
        (status = 409, description = "A job that waits or runs needs it."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    uploads::delete(&app, &submitter, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a part
///
/// Its bytes are the body, at most 64 MiB. Parts may come in any order, several at once, and again: the last one that came
/// whole counts.
#[utoipa::path(put, path = "/v1/uploads/{upload_id}/parts/{number}", operation_id = "putUploadPart", tag = "uploads",
    security(("api_key" = []), ("session" = ["member"])),
    params(
        ("upload_id" = UploadId, Path, description = "The upload."),
        ("number" = i32, Path, description = "The part's place, from 1.", minimum = 1, maximum = 10000),
    ),
    request_body(content_type = "application/octet-stream", description = "The part's bytes, as they are."),
    responses(
        (status = 200, description = "The part, as it arrived.", body = Part),
        (status = 400, description = "The body broke off, or arrived too slowly."),
        (status = 404, description = "No such upload in the organization."),
        (status = 409, description = "The upload does not wait for parts any more."),
        (status = 413, description = "The part is larger than 64 MiB, or the upload larger than the plan allows."),
    ))]
pub(super) async fn put_part(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Ids([upload_id, number]): Ids<2>,
    request: Request,
) -> Result<Json<Part>, Failure> {
    // What is no number is none that a part may have.
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| digits).unwrap_or(0);
    let (head, body) = request.into_parts();
    let broke = |error| Error::new(Code::InvalidRequest, "The body broke off.").because(error);
    let mut body = body
        .into_data_stream()
        .map(move |piece| piece.map_err(broke));
    let held = memory::held(&head.extensions)?;
    let received = uploads::put_part(
        &app,
        &submitter,
        &upload_id,
        number,
        announced(&head.headers),
        &held,
        &mut body,
    )
    .await;
    if received.is_err() && !head.headers.contains_key(EXPECT) {
        tokio::spawn(discard(body, held));
    }
    Ok(Json(received?))
}
