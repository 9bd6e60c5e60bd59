//! Handlers of `/v1/uploads`.

use assay_core::model::cursor::PAGE;
use assay_core::model::permissions::{UploadReader, Uploader};
use assay_core::model::upload::{Part, Upload, UploadCreate, UploadStatus, Uploads};
use assay_core::model::validation::PageSize;
use assay_core::{Code, Error, Result, UploadId};
use axum::Json;
use axum::extract::{Request, State};
use futures_util::StreamExt as _;
use http::header::EXPECT;
use http::{StatusCode, Uri};

use super::extract::{Id, Ids, Permitted, SMALL_BODY_MAX, content_length, drain, read_json_body};
use super::input::{Fields, Query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::layers::memory;
use crate::ops::complete_upload;
use crate::ops::uploads::{self, NewUploadFields, UploadQuery};

/// Create an upload
///
/// An upload holds predictions or sequences that are larger than the body of a submission may be.
/// Send its parts (`PUT /v1/uploads/{upload_id}/parts/{number}`), complete it
/// (`POST /v1/uploads/{upload_id}/complete`), and submit its `input_ref` (`POST /v1/evals`, or
/// `POST /v1/predictions` for sequences). The upload must be completed within 24 hours. An
/// organization has at most 100 uploads that wait for their parts.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    post,
    path = "/v1/uploads",
    operation_id = "createUpload",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = ["member"])),
    request_body = UploadCreate,
    responses(
        (status = 201, description = "The new upload, which waits for its parts.", body = Upload),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<Uploader>,
    request: Request,
) -> Result<(StatusCode, Json<Upload>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let new = NewUploadFields {
        kind: fields.string("kind"),
        content_type: fields.optional_string("content_type"),
        content_encoding: fields.optional_string("content_encoding"),
        bytes: fields.optional_integer("bytes"),
        sha256: fields.optional_string("sha256"),
    };
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(uploads::create(&app, &submitter, new).await?),
    ))
}

/// List uploads
///
/// Returns the uploads of the organization that were not deleted, the newest first, without their
/// parts. To get the next page, send `next_before` as `before`, until it is absent.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/uploads",
    operation_id = "listUploads",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = [])),
    params(
        (
            "status" = inline(Option<UploadStatus>),
            Query,
            description = "Return only uploads in this state.",
        ),
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of uploads on the page.",
        ),
        (
            "before" = Option<UploadId>,
            Query,
            description = "Return only uploads before this one: the `next_before` of the previous page.",
        ),
    ),
    responses(
        (status = 200, description = "A page of uploads.", body = Uploads),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<UploadReader>,
    uri: Uri,
) -> Result<Json<Uploads>, Failure> {
    let mut query = Query::read(&uri);
    let filter = UploadQuery {
        status: query.string("status"),
        limit: query.integer("limit"),
        before: query.string("before"),
    };
    query.finish()?;
    Ok(Json(uploads::list(&app, &caller, filter).await?))
}

/// Get an upload
///
/// Returns the upload and the parts that were received, so that a client can continue an
/// interrupted upload.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/uploads/{upload_id}",
    operation_id = "getUpload",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = [])),
    params(
        ("upload_id" = UploadId, Path, description = "The id of the upload."),
    ),
    responses(
        (status = 200, description = "The upload.", body = Upload),
        (status = 404, description = "The organization has no such upload."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<UploadReader>,
    Id(id): Id,
) -> Result<Json<Upload>, Failure> {
    Ok(Json(uploads::get(&app, &caller, &id).await?))
}

/// Complete an upload
///
/// Reads the parts in the order of their numbers, checks `bytes` and `sha256`, validates every
/// prediction and counts them. The parts are not concatenated. Then the upload is `ready` and can
/// be submitted until `expires_at`.
///
/// If a part is missing, or `bytes` or `sha256` do not match, the upload stays `pending`. If the
/// content is invalid, the error names the lines, and the upload is `failed`. Completing a ready
/// upload again changes nothing.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    post,
    path = "/v1/uploads/{upload_id}/complete",
    operation_id = "completeUpload",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = ["member"])),
    params(
        ("upload_id" = UploadId, Path, description = "The id of the upload."),
    ),
    responses(
        (status = 200, description = "The ready upload.", body = Upload),
        (status = 404, description = "The organization has no such upload."),
        (
            status = 409,
            description =
                "The upload has failed or expired, or a part was sent again while the upload was \
                 read.",
        ),
        (status = 413, description = "The decompressed content is larger than the plan allows."),
    ),
)]
pub(super) async fn complete(
    State(app): State<App>,
    Permitted(submitter): Permitted<Uploader>,
    Id(id): Id,
) -> Result<Json<Upload>, Failure> {
    Ok(Json(
        complete_upload::complete(&app, &submitter, &id).await?,
    ))
}

/// Delete an upload
///
/// Deletes the upload and its parts at once. An upload that a queued or running job needs cannot be
/// deleted.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    delete,
    path = "/v1/uploads/{upload_id}",
    operation_id = "deleteUpload",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = ["member"])),
    params(
        ("upload_id" = UploadId, Path, description = "The id of the upload."),
    ),
    responses(
        (status = 204, description = "The upload was deleted."),
        (status = 404, description = "The organization has no such upload."),
        (status = 409, description = "A queued or running job needs the upload."),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Permitted(submitter): Permitted<Uploader>,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    uploads::delete(&app, &submitter, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a part of an upload
///
/// The body is the part, at most 64 MiB. Parts can be sent in any order and concurrently. A part
/// that is sent again replaces the earlier one, once it was received completely. The parts of all
/// uploads count towards the storage of the plan: 429 `quota_exceeded` with the limit
/// `storage_bytes`.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    put,
    path = "/v1/uploads/{upload_id}/parts/{number}",
    operation_id = "putUploadPart",
    tag = "uploads",
    security(("api_key" = ["uploads:write"]), ("session" = ["member"])),
    params(
        ("upload_id" = UploadId, Path, description = "The id of the upload."),
        (
            "number" = i32,
            Path,
            description = "The number of the part. Numbers start at 1.",
            minimum = 1,
            maximum = 10000,
        ),
    ),
    request_body(
        content_type = "application/octet-stream",
        description = "The bytes of the part, unchanged.",
    ),
    responses(
        (status = 200, description = "The part that was received.", body = Part),
        (status = 400, description = "The body is incomplete, or arrived too slowly."),
        (status = 404, description = "The organization has no such upload."),
        (status = 409, description = "The upload no longer waits for parts."),
        (
            status = 413,
            description =
                "The part is larger than 64 MiB, or the upload is larger than the plan allows.",
        ),
    ),
)]
pub(super) async fn put_part(
    State(app): State<App>,
    Permitted(submitter): Permitted<Uploader>,
    Ids([upload_id, number]): Ids<2>,
    request: Request,
) -> Result<Json<Part>, Failure> {
    // 0 is out of range, so the operation rejects a number that cannot be parsed. `parse` alone
    // would accept a sign.
    let is_unsigned = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_unsigned).unwrap_or(0);
    let (head, body) = request.into_parts();
    let incomplete =
        |error| Error::new(Code::InvalidRequest, "The body is incomplete.").with_cause(error);
    let mut body = body
        .into_data_stream()
        .map(move |chunk| chunk.map_err(incomplete));
    let reservation = memory::reservation(&head.extensions)?;
    let received = uploads::put_part(
        &app,
        &submitter,
        &upload_id,
        number,
        content_length(&head.headers),
        &reservation,
        &mut body,
    )
    .await;
    if received.is_err() && !head.headers.contains_key(EXPECT) {
        app.request_tasks.spawn(drain(body, reservation));
    }
    Ok(Json(received?))
}
