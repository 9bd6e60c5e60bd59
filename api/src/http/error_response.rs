//! Renders errors as responses, for REST, gRPC, gRPC-web and pages.

use std::collections::HashMap;

use assay_core::{Code, Details, Error, RequestId};
use assay_eval::FieldError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tonic::Status;
use tonic_types::{
    ErrorDetails, FieldViolation, PreconditionViolation, QuotaViolation, StatusExt as _,
};

use super::error_page;
use super::protocol::Protocol;
use super::request_context::RequestContext;

/// `domain`'s value in `google.rpc.ErrorInfo`.
const DOMAIN: &str = "assay.v1";

/// The largest size that field errors have together in a gRPC status, in bytes. Many clients accept 8 KiB of metadata; a
/// status encoded in base64 needs a third more.
const VIOLATIONS_BYTES_MAX: usize = 4 * 1024;

/// The longest message in a gRPC status, in bytes. Percent encoding can triple it.
const MESSAGE_BYTES_MAX: usize = 512;

/// An error as handlers and layers return it. The outermost layer renders it.
#[derive(Debug)]
pub struct Failure {
    /// The error itself.
    pub error: Error,
    /// An HTTP status that replaces the error code's.
    pub status: Option<StatusCode>,
    /// A gRPC status that replaces the error code's.
    pub grpc_status: Option<tonic::Code>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            status: None,
            grpc_status: None,
        }
    }
}

/// The failure in a response's extensions that is to be rendered. Extensions must be `Clone`,
/// hence the `Arc`.
#[derive(Clone)]
pub struct PendingFailure(pub std::sync::Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response
            .extensions_mut()
            .insert(PendingFailure(std::sync::Arc::new(self)));
        response
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
}

/// Renders a failure as the protocol's response. Headers that are set already, such as `Allow`,
/// are retained.
pub fn render(
    failure: &Failure,
    mut headers: HeaderMap,
    protocol: Protocol,
    context: &RequestContext,
) -> Response {
    let request_id = &context.request_id;
    headers.remove(CONTENT_LENGTH);
    let mut response = match protocol {
        Protocol::Rest => rest(failure, request_id),
        Protocol::Page => error_page::render(&failure.error, http_status(failure), context),
        Protocol::Grpc => grpc(failure, request_id),
        Protocol::GrpcWeb => {
            // An error has no messages, so gRPC-web also allows its trailers among the headers.
            let mut response = grpc(failure, request_id);
            response.headers_mut().insert(
                CONTENT_TYPE,
                HeaderValue::from_static("application/grpc-web+proto"),
            );
            response
        }
    };
    for (name, value) in response.headers() {
        headers.insert(name, value.clone());
    }
    *response.headers_mut() = headers;
    response
}

/// Returns an error as a REST response's JSON.
pub fn json(error: &Error, request_id: &RequestId) -> String {
    let envelope = Envelope {
        error: ErrorBody {
            code: error.code.as_str(),
            message: &error.message,
            request_id,
            details: error.details.as_ref(),
        },
    };
    serde_json::to_string(&envelope).unwrap_or_default()
}

fn http_status(failure: &Failure) -> StatusCode {
    let Failure {
        error,
        status,
        grpc_status: _,
    } = failure;
    status
        .or_else(|| StatusCode::from_u16(error.code.http_status()).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn rest(failure: &Failure, request_id: &RequestId) -> Response {
    let (error, status) = (&failure.error, http_status(failure));
    let mut response = Response::new(Body::from(json(error, request_id)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if is_retried_in_vain(error) {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    response
}

/// Response header that stops libraries that retry every 429. OpenAI's and Stripe's obey it.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Returns `true` if a retry within minutes fails again: a limit that only time or the operator
/// raises. Jobs finish within seconds, so the concurrent job limit is not one.
fn is_retried_in_vain(error: &Error) -> bool {
    let is_of_jobs = matches!(
        &error.details,
        Some(Details::Quota { limit, .. }) if *limit == "concurrent_jobs"
    );
    error.code == Code::QuotaExceeded && !is_of_jobs
}

fn grpc(failure: &Failure, request_id: &RequestId) -> Response {
    let Failure {
        error,
        status: _,
        grpc_status,
    } = failure;
    let code = grpc_status.unwrap_or_else(|| tonic::Code::from_i32(error.code.grpc_status()));
    status_of(error, code, request_id).into_http()
}

/// Returns the error as a gRPC status with the code's own status.
pub fn status(error: &Error, request_id: &RequestId) -> Status {
    status_of(
        error,
        tonic::Code::from_i32(error.code.grpc_status()),
        request_id,
    )
}

/// Returns the error as a gRPC status, with the matching `google.rpc` details.
fn status_of(error: &Error, code: tonic::Code, request_id: &RequestId) -> Status {
    let mut details = ErrorDetails::new();
    let mut metadata = error.details.as_ref().map(metadata).unwrap_or_default();
    let message = error.message.as_ref();
    let quota = |limit: &str| vec![QuotaViolation::new(limit, message)];
    let precondition =
        |kind: &str, subject: &str| PreconditionViolation::new(kind, subject, message);
    match &error.details {
        Some(Details::Fields { fields } | Details::Replay { fields, .. }) => {
            set_bad_request(&mut details, &mut metadata, fields);
        }
        Some(Details::Quota { limit, .. }) => {
            details.set_quota_failure(quota(limit));
        }
        Some(Details::SubmissionsUsedUp { .. }) => {
            details.set_quota_failure(quota("max_submissions"));
        }
        Some(Details::ChooseOrganization { orgs, .. }) => {
            let choices = orgs
                .iter()
                .map(|org| precondition("ORGANIZATION", org.id.as_str()));
            details.set_precondition_failure(choices.collect::<Vec<_>>());
        }
        Some(Details::SuiteVersion {
            current_version, ..
        }) => {
            details.set_precondition_failure([precondition("SUITE_VERSION", current_version)]);
        }
        Some(Details::SuiteAccess { access }) => {
            details.set_precondition_failure([precondition("SUITE_ACCESS", access.as_str())]);
        }
        Some(Details::OrgSuspended) => {
            let subject = assay_core::Resource::Organization.as_str();
            details.set_precondition_failure([precondition("ORG_SUSPENDED", subject)]);
        }
        Some(Details::TermsNotAccepted { url, .. }) => {
            details.set_precondition_failure([precondition("TERMS", url)]);
        }
        _ => {}
    }
    match (error.code, error.resource) {
        (Code::NotFound, Some(resource)) => {
            // The name and the owner stay empty, so that the error does not reveal whether the
            // resource exists.
            details.set_resource_info(resource.as_str(), "", "", message);
        }
        (Code::InvalidState, Some(resource)) => {
            details.set_precondition_failure([precondition("STATE", resource.as_str())]);
        }
        _ => {}
    }
    details.set_error_info(error.code.as_str().to_uppercase(), DOMAIN, metadata);
    details.set_request_info(request_id.as_str(), "");
    if let Some(seconds) = error.retry_after {
        details.set_retry_info(Some(std::time::Duration::from_secs(u64::from(seconds))));
    }
    let message = shortened(message, MESSAGE_BYTES_MAX);
    let mut status = Status::with_error_details(code, message, details);
    if let Some(seconds) = error.retry_after {
        status.metadata_mut().insert("retry-after", seconds.into());
    }
    status
}

/// Returns the fields of the details as strings, without the field errors: `google.rpc.BadRequest` has
/// these.
fn metadata(details: &Details) -> HashMap<String, String> {
    if let Details::Fields { .. } = details {
        return HashMap::new();
    }
    let Ok(Value::Object(mut fields)) = serde_json::to_value(details) else {
        return HashMap::new();
    };
    fields.shift_remove("fields");
    let fields = fields.iter();
    fields
        .map(|(name, value)| (name.clone(), flattened(value)))
        .collect()
}

/// Returns a field as a string: a list as its elements, separated by commas, and an organization as its
/// id.
fn flattened(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(flattened).collect::<Vec<_>>().join(","),
        Value::Object(org) => org.get("id").map(flattened).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Adds as many field errors as fit into the metadata of gRPC, at least one, and the number of the others.
fn set_bad_request(
    details: &mut ErrorDetails,
    metadata: &mut HashMap<String, String>,
    fields: &[FieldError],
) {
    let mut n_bytes = 0;
    let mut violations: Vec<_> = fields.iter().map(violation).collect();
    let n_fitting = violations
        .iter()
        .take_while(|one| {
            n_bytes += one.field.len() + one.description.len() + one.reason.len();
            n_bytes <= VIOLATIONS_BYTES_MAX
        })
        .count();
    violations.truncate(n_fitting.max(1));
    if violations.len() < fields.len() {
        let n_omitted = fields.len() - violations.len();
        metadata.insert("omitted_field_errors".to_owned(), n_omitted.to_string());
    }
    details.set_bad_request(violations);
}

/// Returns a text with at most `bytes_max` bytes. A longer one ends with an ellipsis.
fn shortened(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max - '…'.len_utf8());
    format!("{}…", &text[..end])
}

fn violation(field_error: &FieldError) -> FieldViolation {
    // REST's header is a field in the gRPC message.
    let field = if field_error.field == "Idempotency-Key" {
        "idempotency_key"
    } else {
        &field_error.field
    };
    FieldViolation {
        field: shortened(field, VIOLATIONS_BYTES_MAX / 4),
        description: shortened(&field_error.message, VIOLATIONS_BYTES_MAX / 4),
        reason: field_error.reason.to_uppercase(),
        localized_message: None,
    }
}

/// Logs an error's cause, which the response does not contain. Call it once per error.
pub fn log_cause(error: &Error, context: &RequestContext) {
    if let Some(cause) = &error.cause {
        let RequestContext {
            request_id, trace, ..
        } = context;
        let trace_id = trace.context().span_context.trace_id;
        tracing::error!(%request_id, %trace_id, code = error.code.as_str(), %cause, "request failed");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use assay_core::model::error_details::{
        Endpoint, EntryRefusal, OrgChoice, ReceiptRefusal, SuiteAccess,
    };
    use assay_core::model::ids::SuiteId;
    use assay_core::model::scope::Scope;
    use assay_core::model::terms::CurrentTerms;
    use assay_core::{Resource, Timestamp};
    use serde_json::json;

    use super::*;

    /// Returns an error with each kind of details, and with each reason.
    fn errors_with_details() -> Vec<Error> {
        let at: Timestamp = "2026-01-31T23:59:59.000000Z".parse().unwrap();
        let suite: SuiteId = "suite:lunch".parse().unwrap();
        let key = FieldError::new("Idempotency-Key", "conflict", "was used for another body");
        let model = |details| Error::invalid_state(Resource::Model, "model").with_details(details);
        let orgs = ["org_5gGkwnuU0Kqhcfk8Wsnx3Z", "org_6hHlxovV1LriDgl9Xtoy4A"];
        let choice = |id: &str| OrgChoice {
            id: id.parse().unwrap(),
            name: "Lunch Lab".into(),
        };
        let terms = CurrentTerms {
            version: "2026-01".into(),
            url: "https://example.org/terms".into(),
        };
        let not_succeeded = || String::from("running");
        let entries = [
            EntryRefusal::NoBoard,
            EntryRefusal::NotSucceeded {
                status: not_succeeded(),
            },
            EntryRefusal::NotFinal,
            EntryRefusal::BoardClosed { closes_at: at },
            EntryRefusal::MaxEntries { max: 20 },
            EntryRefusal::Entered {
                entry_id: "ent_5gGkwnuU0Kqhcfk8Wsnx3Z".parse().unwrap(),
            },
            EntryRefusal::NameTaken,
        ];
        let receipts = [
            ReceiptRefusal::NotAnEval,
            ReceiptRefusal::NotSucceeded {
                status: not_succeeded(),
            },
            ReceiptRefusal::SealedUntil { closes_at: at },
        ];
        let mut errors = vec![
            Error::fields(vec![
                FieldError::required("name"),
                FieldError::required("url"),
            ]),
            Error::fields(vec![key.clone()]).with_details(Details::Replay {
                fields: vec![key],
                job_id: "job_5gGkwnuU0Kqhcfk8Wsnx3Z".parse().unwrap(),
            }),
            Error::storage_full(7, 10, at, 60),
            Error::day_used_up(&suite, 10, at, 60),
            Error::other_suite_version("1.0".into(), "1.1".into()),
            Error::out_of_scope(Scope::EvalsWrite),
            Error::terms_not_accepted(&terms),
            Error::org_suspended(),
            Error::suite_access(SuiteAccess::VerifiedDomain),
            Error::submissions_used_up(10),
            Error::choose_org(orgs.map(choice).into()),
            model(Details::EndpointNotOffered {
                endpoints: vec![Endpoint::Predict, Endpoint::Embed],
            }),
            model(Details::NoEngine),
            model(Details::TokenizerNotFitted),
            Error::suite_retired("1.0"),
            Error::suite_suspended(),
            Error::suite_removed(),
            Error::board_final(),
            Error::board_not_final(),
            Error::not_closed(at),
            Error::answers_shared(vec!["1".into(), "2".into()]),
            Error::suite_in_review(),
            Error::handle_taken("acme"),
            Error::handle_set("acme"),
            Error::key_expired(at),
        ];
        errors.extend(entries.map(Error::entry_refused));
        errors.extend(receipts.map(Error::receipt_refused));
        errors
    }

    /// Returns what REST and gRPC send of an error, apart from its message.
    fn sent(error: &Error) -> Value {
        let status = status(error, &RequestId::random().unwrap());
        let sent = status.get_error_details();
        let metadata: BTreeMap<_, _> = sent.error_info().unwrap().metadata.iter().collect();
        let mut row = json!({
            "code": error.code.as_str(),
            "details": error.details,
            "metadata": metadata,
        });
        if let Some(found) = sent.bad_request() {
            let violations = found.field_violations.iter();
            row["bad_request"] = violations
                .map(|one| json!([one.field, one.reason]))
                .collect();
        }
        if let Some(found) = sent.precondition_failure() {
            let violations = found.violations.iter();
            row["preconditions"] = violations
                .map(|one| json!([one.r#type, one.subject]))
                .collect();
        }
        if let Some(found) = sent.quota_failure() {
            row["quotas"] = found
                .violations
                .iter()
                .map(|one| json!(one.subject))
                .collect();
        }
        row
    }

    #[test]
    fn details_are_those_of_the_vectors() {
        let rows: Vec<Value> = errors_with_details().iter().map(sent).collect();
        let rows = serde_json::to_string_pretty(&rows).unwrap();
        // Text, so that the order of the fields counts.
        assert_eq!(
            rows,
            include_str!("../../../tests/vectors/error_details.json").trim_end(),
            "{rows}"
        );
    }

    #[test]
    fn openapi_document_describes_every_field_of_details() {
        let document = crate::openapi::document(None);
        let schema = &document["components"]["schemas"]["ErrorDetails"]["properties"];
        let reasons = schema["reason"]["description"].as_str().unwrap();
        for error in errors_with_details() {
            let details = json!(error.details);
            for name in details.as_object().unwrap().keys() {
                assert!(schema.get(name).is_some(), "{name}");
            }
            if let Some(reason) = details["reason"].as_str() {
                assert!(reasons.contains(&format!("`{reason}`")), "{reason}");
            }
        }
    }

    #[test]
    fn long_field_errors_fit_into_metadata() {
        for (text, n_left) in [("x", 20), ("ä", 20), ("x\u{85}", 20)] {
            let long = text.repeat(2_000);
            let errors = (0..n_left)
                .map(|index| {
                    FieldError::new(format!("predictions[{index}].{long}"), "type", long.clone())
                })
                .collect();
            let error = Error::fields(errors);
            let status = status(&error, &RequestId::random().unwrap());
            let shown = status.get_details_bad_request().unwrap().field_violations;
            let metadata = status.get_details_error_info().unwrap().metadata;
            let n_omitted: usize = metadata["omitted_field_errors"].parse().unwrap();
            assert_eq!(shown.len() + n_omitted, n_left);
            assert!(!shown.is_empty() && status.details().len() < 5 * 1024);
            assert!(status.message().len() <= MESSAGE_BYTES_MAX);
        }
    }
}
