//! Handler of `POST /v1/predictions`.

use assay_core::model::job::Job;
use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::prediction::PredictionCreate;
use assay_core::model::serving_options::{HistoryFields, PredictFields};
use axum::Json;
use axum::extract::{Request, State};
use http::{HeaderMap, StatusCode};

use super::evals::accepted;
use super::extract::{IdempotencyKey, IdempotencyKeySchema, Permitted, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::evals::BODY_MAX;
use crate::ops::predictions::{self, PredictionFields};
use crate::ops::submissions::Origin;

/// Predict many sequences
///
/// Creates a job that ranks items for many sequences with a model. Poll the job with
/// `GET /v1/jobs/{job_id}`, and read its output with `GET /v1/jobs/{job_id}/output`. The body has
/// exactly one of `sequences`, `input_ref` and `suite_id`, and at most 5 MiB. Send more sequences as
/// an upload of the kind `sequences` (`POST /v1/uploads`).
///
/// Each sequence is charged as one unit of `predict_items_per_month`. A sequence that fails does not
/// fail the job: its line of the output has an error, and its unit is refunded when the job has
/// succeeded. Validation errors are returned before anything is charged. With an
/// `Idempotency-Key`, a repeated request returns the original job and charges nothing.
///
/// With `evaluate`, an eval of the output is created and charged in the same step, as if the output
/// were submitted for the suite. `eval_job_id` of the job names it. It starts when the prediction job
/// has succeeded. It fails with `input_unavailable`, and is refunded, if the prediction job fails,
/// and it is cancelled with it. A prediction job with an eval counts as two active jobs.
///
/// Requires an API key, or the session token of a member. The organization must have accepted the
/// terms.
#[utoipa::path(
    post,
    path = "/v1/predictions",
    operation_id = "createPrediction",
    tag = "serving",
    security(("api_key" = ["models:run"]), ("session" = ["member"])),
    params(
        (
            "Idempotency-Key" = inline(Option<IdempotencyKeySchema>),
            Header,
            description =
                "Identifies the request permanently. A repeated request with the same content \
                 returns the original job. A request with another content fails with 422.",
        ),
    ),
    request_body = PredictionCreate,
    responses(
        (
            status = 202,
            description = "The job: a new one, or the original one in its current state.",
            body = Job,
        ),
        (
            status = 403,
            description =
                "It is also returned if the organization has not accepted the terms, or, with \
                 `evaluate`, may not submit to the suite or has used up its submissions.",
        ),
        (
            status = 409,
            description =
                "The model does not offer the operation, is not served, or needs a tokenizer \
                 first. `details.reason` says which.",
        ),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<TermsAccepted<ModelRunner>>,
    context: RequestContext,
    key: Option<IdempotencyKey>,
    request: Request,
) -> Result<(StatusCode, HeaderMap, Json<Job>), Failure> {
    let body = read_json_body(&app, request, BODY_MAX).await?;
    let mut fields = Fields::read_except(&body, "sequences")?;
    let mut prediction = PredictionFields {
        model_id: fields.string("model_id"),
        model_version: fields.optional_string("model_version"),
        operation: fields.optional_string("operation"),
        // A slice of the body, not a copy.
        sequences: fields
            .raw("sequences")
            .map(|raw| body.slice_ref(raw.as_bytes())),
        input_ref: fields.optional_string("input_ref"),
        suite_id: fields.optional_string("suite_id"),
        evaluate: fields.optional_boolean("evaluate"),
        label: fields.optional_string("label"),
        idempotency_key: key.map(|IdempotencyKey(key)| key),
        ..PredictionFields::default()
    };
    if let Some(mut parameters) = fields.optional_object("parameters") {
        prediction.options = PredictFields {
            top_k: parameters.optional_integer("top_k"),
            exclude_seen: parameters.optional_boolean("exclude_seen"),
        };
        prediction.history = HistoryFields {
            on_long: parameters.optional_string("on_long"),
            on_unknown: parameters.optional_string("on_unknown"),
        };
        fields.finish_object("parameters", parameters);
    }
    fields.finish()?;
    let origin = Origin::from_context(context);
    Ok(accepted(
        predictions::submit(&app, &submitter, prediction, origin).await?,
    ))
}
