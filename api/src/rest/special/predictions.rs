//! `POST /v1/predictions`: the sequences stay slices of the body.

use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::serving_options::{HistoryFields, PredictFields};
use axum::extract::Request;
use axum::response::Response;

use super::evals::accepted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::evals::BODY_MAX;
use crate::ops::predictions::{self, PredictionFields};
use crate::ops::submissions::Origin;
use crate::rest::extract::{IdempotencyKey, read_json_body};
use crate::rest::input::Fields;

/// Creates a prediction job.
pub async fn create_prediction(
    app: App,
    submitter: TermsAccepted<ModelRunner>,
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let key = IdempotencyKey::from_headers(request.headers())?;
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
