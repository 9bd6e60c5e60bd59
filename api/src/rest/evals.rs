//! Handler of `POST /v1/evals`.

use assay_core::model::eval::EvalCreate;
use assay_core::model::job::Job;
use assay_core::model::permissions::{EvalSubmitter, TermsAccepted};
use axum::Json;
use axum::extract::{Request, State};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::extract::{IdempotencyKey, IdempotencyKeySchema, Permitted, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::evals::{self, BODY_MAX, Submission};
use crate::ops::submissions::{Accepted, Origin};

/// Submit predictions
///
/// Creates a job that scores the predictions against the current version of the suite, which can be
/// required with `suite_version`. Poll the job
/// with `GET /v1/jobs/{job_id}`. The body has exactly one of `predictions` and `input_ref`, and at
/// most 5 MiB. Send larger submissions as an upload (`POST /v1/uploads`).
///
/// Each prediction is charged as one item of `eval_items_per_month`, and each submission as at
/// least one item for every 1,000 items of the suite. Validation errors are returned before
/// anything is charged. With an `Idempotency-Key`, a repeated request returns the original job and
/// charges nothing.
///
/// Requires an API key, or the session token of a member. The organization must have accepted the
/// terms.
#[utoipa::path(
    post,
    path = "/v1/evals",
    operation_id = "createEval",
    tag = "evals",
    security(("api_key" = ["evals:write"]), ("session" = ["member"])),
    params(
        (
            "Idempotency-Key" = inline(Option<IdempotencyKeySchema>),
            Header,
            description =
                "Identifies the submission permanently. A repeated request with the same content \
                 returns the original job. A request with another content fails with 422.",
        ),
    ),
    request_body = EvalCreate,
    responses(
        (
            status = 202,
            description = "The job: a new one, or the original one in its current state.",
            body = Job,
        ),
        (
            status = 403,
            description =
                "It is also returned if the organization has not accepted the terms, may not \
                 submit to the suite, or has used up the submissions that the suite allows.",
        ),
        (
            status = 409,
            description = "The suite has a newer version than `suite_version`.",
        ),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<EvalSubmitter>>,
    context: RequestContext,
    key: Option<IdempotencyKey>,
    request: Request,
) -> Result<(StatusCode, HeaderMap, Json<Job>), Failure> {
    let body = read_json_body(&app, request, BODY_MAX).await?;
    let mut fields = Fields::read_except(&body, "predictions")?;
    let submission = Submission {
        suite_id: fields.string("suite_id"),
        // A slice of the body, not a copy.
        predictions: fields
            .raw("predictions")
            .map(|raw| body.slice_ref(raw.as_bytes())),
        input_ref: fields.optional_string("input_ref"),
        suite_version: fields.optional_string("suite_version"),
        label: fields.optional_string("label"),
        metadata: fields.optional_map("metadata"),
        idempotency_key: key.map(|IdempotencyKey(key)| key),
    };
    fields.finish()?;
    let origin = Origin::from_context(context);
    Ok(accepted(
        evals::submit(&app, &submitter, submission, origin).await?,
    ))
}

/// Returns the response with an accepted job.
pub(super) fn accepted(accepted: Accepted) -> (StatusCode, HeaderMap, Json<Job>) {
    let Accepted { job, replayed } = accepted;
    let mut headers = HeaderMap::new();
    mark_replayed(&mut headers, replayed);
    (StatusCode::ACCEPTED, headers, Json(job))
}

/// Adds the header of a response to a repeated request.
pub(super) fn mark_replayed(headers: &mut HeaderMap, replayed: bool) {
    if replayed {
        headers.insert(
            HeaderName::from_static("idempotency-replayed"),
            HeaderValue::from_static("true"),
        );
    }
}
