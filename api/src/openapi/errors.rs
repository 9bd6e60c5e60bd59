//! The error responses that operations share.

use assay_core::model::scope::Scope;
use assay_core::{Code, Error};
use serde_json::{Value, json};

/// The request id in examples.
pub const REQUEST_ID: &str = "req_3vQn6mYc1TzKx8rWb0LdHa";

/// Returns an example of an error, with its code as the name of the example.
pub fn example(code: Code, message: &str, details: Option<Value>) -> (String, Value) {
    let mut error = json!({"code": code.as_str(), "message": message, "request_id": REQUEST_ID});
    if let Some(details) = details {
        error["details"] = details;
    }
    (code.as_str().to_owned(), json!({"value": {"error": error}}))
}

/// Returns a response with the error body.
pub fn response(description: &str, examples: impl IntoIterator<Item = (String, Value)>) -> Value {
    let examples: serde_json::Map<_, _> = examples.into_iter().collect();
    let mut content = json!({"schema": {"$ref": "#/components/schemas/Error"}});
    if !examples.is_empty() {
        content["examples"] = examples.into();
    }
    json!({"description": description, "content": {"application/json": content}})
}

/// Returns the shared error responses except 403, with the names of their components.
pub fn common() -> [(&'static str, Value); 7] {
    let fields = json!({"fields": [{
        "field": "limit",
        "reason": "range",
        "message": "must be an integer from 1 to 200",
    }]});
    let quota = json!({
        "limit": "eval_items_per_month",
        "max": 20000,
        "resets_at": "2026-02-01T00:00:00.000000Z",
    });
    [
        (
            "BadRequest",
            response(
                "The body is not JSON, its `Content-Type` is not JSON, or a header is malformed.",
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
                "The credential is missing or not valid.",
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
                "The body is larger than the operation accepts. It is rejected before it is read \
                 completely.",
                [example(
                    Code::PayloadTooLarge,
                    "The body is larger than the 5242880 bytes that this operation accepts.",
                    None,
                )],
            ),
        ),
        (
            "ValidationFailed",
            response(
                "A field, parameter or header is missing, of the wrong type, out of range or \
                 unknown. `details` lists every field error.",
                [example(
                    Code::ValidationFailed,
                    "limit: must be an integer from 1 to 200",
                    Some(fields),
                )],
            ),
        ),
        (
            "TooManyRequests",
            response(
                "Too many requests in a minute, too many failed authentications or sign-in emails \
                 from the network address, or a limit of the plan or the suite is reached.",
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
                "The server failed. Retry with the same idempotency key, and quote the \
                 `request_id`.",
                [example(
                    Code::Internal,
                    "Something went wrong on our side. Retry with the same idempotency key and \
                     quote the request id.",
                    None,
                )],
            ),
        ),
        (
            "Unavailable",
            response(
                "The service is temporarily unavailable. Retry with backoff.",
                [example(
                    Code::Unavailable,
                    "The service is temporarily unavailable. Retry with backoff.",
                    None,
                )],
            ),
        ),
    ]
}

/// Returns the 403 of operations that require a session or not, and a role or not, with the name of
/// its component.
pub fn forbidden(session: bool, role: Option<&str>) -> (&'static str, Value) {
    let mut examples = Vec::new();
    if session {
        examples.push(example(
            Code::SessionRequired,
            "This operation requires a session token; an API key cannot be used.",
            None,
        ));
    }
    if role == Some("person") {
        return (
            "ForbiddenToKeys",
            response("The credential is an API key.", examples),
        );
    }
    examples.push(example(
        Code::OrgRequired,
        "This credential resolves to no organization. Join one or create one first.",
        None,
    ));
    let suspended = Error::org_suspended();
    let (_, org_suspended) = example(
        suspended.code,
        &suspended.message,
        suspended.details.map(|details| json!(details)),
    );
    examples.push((String::from("org_suspended"), org_suspended));
    if !session {
        let refused = Error::out_of_scope(Scope::JobsRead);
        let (_, scope) = example(
            refused.code,
            &refused.message,
            refused.details.map(|details| json!(details)),
        );
        examples.push((String::from("scope"), scope));
    }
    if let Some(role) = role {
        let message =
            format!("Your role in this organization is viewer; this operation requires {role}.");
        examples.push(example(Code::Forbidden, &message, None));
    }
    let (name, description) = match (session, role) {
        (false, None) => (
            "Forbidden",
            "The credential resolves to no organization, the key does not have the scope, or the \
             organization is suspended.",
        ),
        (false, Some(_)) => (
            "ForbiddenBelowMember",
            "The credential resolves to no organization, the role of the user does not suffice, the \
             key does not have the scope, or the organization is suspended.",
        ),
        (true, None) => (
            "ForbiddenWithoutSession",
            "The credential is an API key, the session resolves to no organization, or the \
             organization is suspended.",
        ),
        (true, Some("owner")) => (
            "ForbiddenBelowOwner",
            "The credential is not a session of an owner, or the organization is suspended.",
        ),
        (true, Some(_)) => (
            "ForbiddenWithoutMember",
            "The credential is not a session of a member or owner, or the organization is \
             suspended.",
        ),
    };
    (name, response(description, examples))
}
