//! `POST /v1/evals`: the predictions stay slices of the body.

use assay_core::model::job::Job;
use assay_core::model::permissions::{EvalSubmitter, TermsAccepted};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::evals::{self, BODY_MAX, Submission};
use crate::ops::submissions::{Accepted, Origin};
use crate::rest::extract::{IdempotencyKey, read_json_body};
use crate::rest::input::Fields;

/// Submits predictions.
pub async fn create_eval(
    app: App,
    submitter: TermsAccepted<EvalSubmitter>,
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let key = IdempotencyKey::from_headers(request.headers())?;
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
pub(super) fn accepted(accepted: Accepted) -> Response {
    let Accepted { job, replayed } = accepted;
    let mut headers = HeaderMap::new();
    mark_replayed(&mut headers, replayed);
    (StatusCode::ACCEPTED, headers, Json::<Job>(job)).into_response()
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
