//! `POST /v1/evals`

use assay_core::model::eval::EvalCreate;
use assay_core::model::job::Job;
use assay_core::model::permissions::{Submitter, TermsAccepted};
use axum::Json;
use axum::extract::{Request, State};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::extract::{IdempotencyKey, Permitted, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::evals::{self, Accepted, BODY_MAX, Origin, Submission};

/// Submit predictions
///
/// Queues a job that scores the predictions against the suite's current version, and charges one `eval_items` for each, and
/// at least one for every 1,000 items of the suite.
/// Give exactly one of `predictions` and `input_ref`. With an `Idempotency-Key` the same submission can be sent again
/// without harm: it is answered with the original job, at no charge.
#[utoipa::path(post, path = "/v1/evals", operation_id = "createEval", tag = "evals", security(("api_key" = []), ("session" = ["member"])),
    params(("Idempotency-Key" = inline(Option<evals::KeySchema>), Header, description = "Stands for this submission, for good.")),
    request_body = EvalCreate,
    responses(
        (status = 202, description = "The job: queued, or the original one, however far it has come.", body = Job),
        (status = 403, description = "Or the organization has not accepted the terms, may not submit to the suite, or has used up the submissions that the suite allows."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<Submitter>>,
    call: RequestContext,
    key: Option<IdempotencyKey>,
    request: Request,
) -> Result<(StatusCode, HeaderMap, Json<Job>), Failure> {
    let body = json_body(request, BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let submission = Submission {
        suite_id: fields.text("suite_id"),
        // A part of the body, not a copy of it.
        predictions: fields
            .raw("predictions")
            .map(|raw| body.slice_ref(raw.get().as_bytes())),
        input_ref: fields.optional_text("input_ref"),
        label: fields.optional_text("label"),
        idempotency_key: key.map(|IdempotencyKey(key)| key),
    };
    fields.finish()?;
    let origin = Origin::of(call);
    let Accepted { job, replayed } = evals::submit(&app, &submitter, submission, origin).await?;
    let mut headers = HeaderMap::new();
    if replayed {
        headers.insert(
            HeaderName::from_static("idempotency-replayed"),
            HeaderValue::from_static("true"),
        );
    }
    Ok((StatusCode::ACCEPTED, headers, Json(job)))
}
