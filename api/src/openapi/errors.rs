//! The refusals that many operations have in common.

use assay_core::{Code, Error};
use serde_json::{Value, json};

/// The id that stands in examples of errors.
pub const REQUEST_ID: &str = "req_3vQn6mYc1TzKx8rWb0LdHa";

/// An example of a refusal, by its code.
pub fn example(code: Code, message: &str, details: Option<Value>) -> (String, Value) {
    let mut error = json!({"code": code.as_str(), "message": message, "request_id": REQUEST_ID});
    if let Some(details) = details {
        error["details"] = details;
    }
    (code.as_str().to_owned(), json!({"value": {"error": error}}))
}

/// A response with the one body that every refusal has.
pub fn response(description: &str, examples: impl IntoIterator<Item = (String, Value)>) -> Value {
    let examples: serde_json::Map<_, _> = examples.into_iter().collect();
    let mut content = json!({"schema": {"$ref": "#/components/schemas/Error"}});
    if !examples.is_empty() {
        content["examples"] = examples.into();
    }
    json!({"description": description, "content": {"application/json": content}})
}

/// What any operation behind a credential may answer, by the name of the component.
pub fn common() -> [(&'static str, Value); 7] {
    let fields = json!({"fields": [{"field": "limit", "reason": "range", "message": "must be a whole number from 1 to 200"}]});
    let quota = json!({"limit": "eval_items_per_month", "max": 20000, "resets_at": "2026-02-01T00:00:00.000000Z"});
    [
        (
            "BadRequest",
            response(
                "The body cannot be read: it is not JSON, or not announced as JSON, or a header is malformed.",
                [example(
                    Code::InvalidRequest,
                    "The body must be JSON: Content-Type: application/json",
                    None,
                )],
            ),
        ),
        (
            "Unauthorized",
            response(
                "There is no credential, or none that is valid.",
                [
                    example(
                        Code::Unauthenticated,
                        "Send an API key or a session token: Authorization: Bearer <TOKEN>",
                        None,
                    ),
                    example(
                        Code::InvalidToken,
                        "The key or session token is not valid.",
                        None,
                    ),
                    example(
                        Code::KeyRevoked,
                        "This key was revoked. Create another one.",
                        None,
                    ),
                ],
            ),
        ),
        (
            "PayloadTooLarge",
            response(
                "The body is larger than the operation takes. It is refused before it is read whole.",
                [example(
                    Code::PayloadTooLarge,
                    "The body is larger than the 5242880 bytes that this operation takes.",
                    None,
                )],
            ),
        ),
        (
            "ValidationFailed",
            response(
                "Something in the request is missing, of the wrong type, out of range or unknown; `details` says what.",
                [example(
                    Code::ValidationFailed,
                    "limit: must be a whole number from 1 to 200",
                    Some(fields),
                )],
            ),
        ),
        (
            "TooManyRequests",
            response(
                "Too many requests in a minute, too many failed authentications or sign-in mails from this address, or a limit of the plan.",
                [
                    example(
                        Code::RateLimited,
                        "More than 60 requests in a minute. Wait 12 s.",
                        None,
                    ),
                    example(
                        Code::QuotaExceeded,
                        "This submission would exceed the plan's 20000 eval items a month.",
                        Some(quota),
                    ),
                ],
            ),
        ),
        (
            "InternalError",
            response(
                "A fault of the server. Retry with the same idempotency key, and quote the `request_id`.",
                [example(
                    Code::Internal,
                    "Something went wrong on our side. Retry with the same idempotency key and quote the request id.",
                    None,
                )],
            ),
        ),
        (
            "Unavailable",
            response(
                "The service is away for the moment. Retry with backoff.",
                [example(
                    Code::Unavailable,
                    "The service is not available for the moment. Retry with backoff.",
                    None,
                )],
            ),
        ),
    ]
}

/// 403: a name, and what is told, for operations that want a session or not, and a role or not.
pub fn forbidden(session: bool, role: Option<&str>) -> (&'static str, Value) {
    let mut told = Vec::new();
    if session {
        told.push(example(
            Code::SessionRequired,
            "This operation needs a session token of a signed-in person; an API key cannot do it.",
            None,
        ));
    }
    if role == Some("person") {
        return (
            "ForbiddenToKeys",
            response("An API key cannot do this.", told),
        );
    }
    told.push(example(
        Code::OrgRequired,
        "This credential resolves to no organization. Join one or create one first.",
        None,
    ));
    let suspended = Error::org_suspended();
    let (_, refusal) = example(
        suspended.code,
        &suspended.message,
        suspended.details.map(|details| json!(details)),
    );
    told.push((String::from("org_suspended"), refusal));
    if let Some(role) = role {
        let message =
            format!("Your role in this organization is viewer; this operation needs {role}.");
        told.push(example(Code::Forbidden, &message, None));
    }
    let (name, description) = match (session, role) {
        (false, None) => (
            "Forbidden",
            "The credential resolves to no organization, or the organization is suspended.",
        ),
        (false, Some(_)) => (
            "ForbiddenBelowMember",
            "The credential resolves to no organization, its role is too small, or the organization is suspended.",
        ),
        (true, None) => (
            "ForbiddenWithoutSession",
            "An API key cannot do this, the session resolves to no organization, or the organization is suspended.",
        ),
        (true, Some("owner")) => (
            "ForbiddenBelowOwner",
            "Only a session of an owner can do this, while the organization is not suspended.",
        ),
        (true, Some(_)) => (
            "ForbiddenWithoutMember",
            "Only a session of a member or owner can do this, while the organization is not suspended.",
        ),
    };
    (name, response(description, told))
}
