//! Handlers of score receipts, of the commitments of suites, and of the public files of keys and
//! the log.

use assay_core::model::ids::{JobId, ReceiptId};
use assay_core::model::permissions::{Credential, JobReader, Owner, ReceiptCaller};
use assay_core::model::receipt::{Commitment, Receipt, ReceiptFigures, ReceiptOpening};
use assay_core::model::suite::SuiteId;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::TryStreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Uri};

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::not_found;
use crate::http::request_context::RequestContext;
use crate::layers::{self, telemetry};
use crate::limits::request_memory::SharedReservation;
use crate::ops::receipts::{self, LogFile};

/// Get the receipt of a job
///
/// Returns the signed statement about the disclosed figures of a succeeded eval, with its proof from
/// the transparency log. Anyone can verify it without asking the platform: `assay verify`. A receipt
/// is signed within a second after the job has succeeded; the request waits up to five seconds for
/// it. `log` is null until the next checkpoint of the log, usually for less than 20 seconds.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/receipt",
    operation_id = "getJobReceipt",
    tag = "receipts",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
        (
            "figures" = inline(Option<ReceiptFigures>),
            Query,
            description =
                "The figures that the receipt states. If absent, `open` for a suite with sealed \
                 items, and `all` otherwise.",
        ),
    ),
    responses(
        (status = 200, description = "The receipt.", body = Receipt),
        (
            status = 404,
            description =
                "The organization has no such job, or the job has no receipt with these figures. \
                 Jobs that succeeded before receipts existed have none.",
        ),
        (
            status = 409,
            description =
                "`details.reason` is `not_an_eval`, `not_succeeded`, or `sealed_until`: the sealed \
                 figures are disclosed at `details.closes_at`.",
        ),
    ),
)]
pub(super) async fn of_job(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<Receipt>, Failure> {
    let mut query = Query::read(&uri);
    let figures = query.string("figures");
    query.finish()?;
    Ok(Json(
        receipts::of_job(&app, &caller, &job_id, figures.as_deref()).await?,
    ))
}

/// Get a receipt
///
/// Returns a receipt of the organization, or one of an entry that a board shows to the caller:
/// `receipt_id` of the entry's row.
///
/// Requires an API key or a session token, unless a public board shows the receipt.
#[utoipa::path(
    get,
    path = "/v1/receipts/{receipt_id}",
    operation_id = "getReceipt",
    tag = "receipts",
    security((), ("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        ("receipt_id" = ReceiptId, Path, description = "The id of the receipt."),
    ),
    responses(
        (status = 200, description = "The receipt.", body = Receipt),
        (status = 404, description = "There is no such receipt for the caller."),
    ),
)]
pub(super) async fn by_id(
    State(app): State<App>,
    credential: Option<Extension<Credential>>,
    Id(receipt_id): Id,
) -> Result<Json<Receipt>, Failure> {
    let caller = ReceiptCaller::of(credential.as_deref())?;
    Ok(Json(receipts::get(&app, &caller, &receipt_id).await?))
}

/// Get the salt of a receipt
///
/// Returns the salt with which the receipts of the organization for this version of the suite name
/// it. Share it with those who should see that these receipts are the organization's:
/// `org_hash` in the receipt is the SHA-256 of the salt followed by the organization's id. The call
/// is recorded in the audit log.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/receipt/opening",
    operation_id = "getReceiptOpening",
    tag = "receipts",
    security(("session" = ["owner"])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    responses(
        (status = 200, description = "The salt.", body = ReceiptOpening),
        (status = 404, description = "The organization has no such job, or the job has no receipt."),
    ),
)]
pub(super) async fn opening(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(job_id): Id,
) -> Result<Json<ReceiptOpening>, Failure> {
    Ok(Json(receipts::opening(&app, &owner, &job_id).await?))
}

/// Get the commitment of a suite
///
/// Returns the salted hash of the items and answers to which the platform was committed when it
/// published the version, as a signed statement in the transparency log. After the version has
/// retired, `opening` has the salt and names the files, so that anyone can score predictions again.
///
/// Requires no credential.
#[utoipa::path(
    get,
    path = "/v1/suites/{suite_id}/commitment",
    operation_id = "getSuiteCommitment",
    tag = "receipts",
    security(()),
    params(
        ("suite_id" = SuiteId, Path, description = "The id of the suite."),
        (
            "version" = inline(Option<String>),
            Query,
            description = "The version of the suite. If absent, the current version.",
        ),
    ),
    responses(
        (status = 200, description = "The commitment.", body = Commitment),
        (status = 404, description = "There is no such suite or version."),
    ),
)]
pub(super) async fn commitment(
    State(app): State<App>,
    Id(suite_id): Id,
    uri: Uri,
) -> Result<Json<Commitment>, Failure> {
    let mut query = Query::read(&uri);
    let version = query.string("version");
    query.finish()?;
    let found = receipts::commitment(&app, &suite_id, version.as_deref()).await?;
    Ok(Json(found))
}

/// Download the items or answers of a retired suite
///
/// Returns the file to which the platform was committed, byte for byte.
///
/// Requires no credential.
#[utoipa::path(
    get,
    path = "/v1/suites/{suite_id}/opening/{file}",
    operation_id = "getSuiteOpening",
    tag = "receipts",
    security(()),
    params(
        ("suite_id" = SuiteId, Path, description = "The id of the suite."),
        ("file" = String, Path, description = "`items.ndjson` or `answers.ndjson`."),
        (
            "version" = inline(Option<String>),
            Query,
            description = "The version of the suite. If absent, the current version.",
        ),
    ),
    responses(
        (
            status = 200,
            description = "The file, one JSON object a line.",
            body = String,
            content_type = "application/x-ndjson",
        ),
        (status = 404, description = "There is no such version or file, or the version has not retired."),
    ),
)]
pub(super) async fn opened_file(
    State(app): State<App>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    uri: Uri,
    context: RequestContext,
    Extension(room): Extension<SharedReservation>,
) -> Result<Response, Failure> {
    let mut query = Query::read(&uri);
    let version = query.string("version");
    query.finish()?;
    let Ok(Path((suite_id, file))) = path else {
        return Err(assay_core::Error::not_found(assay_core::Resource::Suite).into());
    };
    let (version, address) = (version.as_deref(), &context.address);
    let lines = receipts::opened_file(&app, &suite_id, version, &file, address, room).await?;
    let lines = lines.inspect_err(move |error| telemetry::record_stream_error(error, &context));
    let media_type = HeaderValue::from_static("application/x-ndjson");
    Ok(([(CONTENT_TYPE, media_type)], Body::from_stream(lines)).into_response())
}

/// Returns the routes of the public files of keys and of the log. They are formats of other
/// standards, without a counterpart in gRPC and in the OpenAPI document.
pub(super) fn files(app: &App) -> Router<App> {
    Router::new()
        .route("/.well-known/jwks.json", get(jwk_set))
        .route("/log/{*path}", get(log_file))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_files,
        ))
}

/// `GET /.well-known/jwks.json`: the receipt keys (RFC 7517).
async fn jwk_set(State(app): State<App>) -> Result<Response, Failure> {
    let body = receipts::jwk_set(&app).await?;
    let fields = [
        (CONTENT_TYPE, "application/jwk-set+json"),
        (CACHE_CONTROL, "public, max-age=300"),
    ];
    Ok((fields, body).into_response())
}

/// `GET /log/{*path}`: a file of the transparency log (C2SP tlog-tiles).
async fn log_file(State(app): State<App>, Path(path): Path<String>) -> Result<Response, Failure> {
    let (bytes, media_type, cache) = match receipts::log_file(&app, &path).await? {
        Some(LogFile::Checkpoint(bytes)) => (bytes, "text/plain; charset=utf-8", "max-age=5"),
        Some(LogFile::Tile(bytes)) => (
            bytes,
            "application/octet-stream",
            "public, max-age=31536000, immutable",
        ),
        None => return Ok(not_found::not_found().await.into_response()),
    };
    let fields = [(CONTENT_TYPE, media_type), (CACHE_CONTROL, cache)];
    Ok((fields, bytes).into_response())
}
