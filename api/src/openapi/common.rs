//! The parts of operations that follow from their class: security, headers and error responses.

use assay_core::Code;
use serde_json::{Value, json};

use super::errors;
use super::operations::operations;

/// Completes every operation. Its error responses follow from its security (sessions and roles) and
/// from its body. Handlers describe the other errors.
pub fn finish(document: &mut Value) {
    let components = &mut document["components"];
    components["securitySchemes"] = security();
    components["headers"] = headers();
    components["parameters"] = json!({"X-Org-Id": org_parameter()});
    components["responses"] = json!({});
    for (name, response) in errors::common() {
        components["responses"][name] = response;
    }
    let mut forbidden = Vec::new();
    for (_, _, operation) in operations(document) {
        if operation["security"] == json!([{}]) {
            operation["security"] = json!([]);
        } else {
            forbidden.extend(add_forbidden(operation));
            state_scope(operation);
            add_org_parameter(operation);
        }
        add_error_responses(operation);
        complete_responses(operation);
        add_replay_header(operation);
        add_expiry_header(operation);
    }
    let responses = &mut document["components"]["responses"];
    for (name, response) in forbidden {
        responses[name] = response;
    }
    for (name, status) in STATUSES {
        add_headers(status, &mut responses[name]);
    }
    for (name, response) in responses.as_object_mut().into_iter().flatten() {
        if name.starts_with("Forbidden") {
            add_headers("403", response);
        }
    }
}

/// The shared error responses: the names of the components, and their statuses.
const STATUSES: [(&str, &str); 7] = [
    ("BadRequest", "400"),
    ("Unauthorized", "401"),
    ("PayloadTooLarge", "413"),
    ("ValidationFailed", "422"),
    ("TooManyRequests", "429"),
    ("InternalError", "500"),
    ("Unavailable", "503"),
];

/// Adds the shared error responses that apply to an operation, unless the handler describes them.
fn add_error_responses(operation: &mut Value) {
    let is_open = operation["security"] == json!([]);
    let has_body = operation.get("requestBody").is_some();
    let has_header_parameter = operation["parameters"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["in"] == "header"));
    if is_open && !has_body {
        operation["responses"]["4XX"] = errors::response(
            "The request is invalid, for example its method (405).",
            [errors::example(
                Code::InvalidRequest,
                "This path does not support this method. The header `Allow` lists the methods that \
                 it supports.",
                None,
            )],
        );
        return;
    }
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for (name, status) in STATUSES {
        let applies = match status {
            "400" => has_body || has_header_parameter,
            "401" => !is_open,
            "413" => has_body,
            _ => true,
        };
        if applies {
            responses.entry(status).or_insert_with(|| reference(name));
        }
    }
}

/// Returns a reference to a shared response.
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// Adds the 403 of callers without the permission. Returns it as a shared component, unless the
/// handler describes further reasons.
fn add_forbidden(operation: &mut Value) -> Option<(&'static str, Value)> {
    let security = operation["security"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let accepts_keys = security.iter().any(|one| one.get("api_key").is_some());
    let role = security.iter().find_map(|one| one["session"][0].as_str());
    let (name, mut forbidden) = errors::forbidden(!accepts_keys, role);
    let Some(further) = operation["responses"]["403"]["description"].as_str() else {
        operation["responses"]["403"] = reference(name);
        return Some((name, forbidden));
    };
    forbidden["description"] = format!(
        "{} {further}",
        forbidden["description"].as_str().unwrap_or_default()
    )
    .into();
    operation["responses"]["403"] = forbidden;
    None
}

/// Moves the scope that a handler names with `api_key` to `x-required-scope` and to the description.
/// Tools that compare documents take a new scope in `security` for a change that breaks clients, but
/// keys that exist have all scopes.
fn state_scope(operation: &mut Value) {
    for one in operation["security"].as_array_mut().into_iter().flatten() {
        if let Some(scopes) = one.get_mut("api_key")
            && let [scope] = scopes.as_array().map_or(&[][..], Vec::as_slice)
        {
            let scope = scope.clone();
            *scopes = json!([]);
            let sentence = format!(
                "An API key must have the scope `{}`.",
                scope.as_str().unwrap_or_default()
            );
            let description = operation["description"].as_str().unwrap_or_default();
            operation["description"] = format!("{description}\n\n{sentence}").trim().into();
            operation["x-required-scope"] = scope;
            return;
        }
    }
}

/// Adds the header `X-Key-Expires-At` to the success responses of operations that accept keys.
fn add_expiry_header(operation: &mut Value) {
    let security = operation["security"].as_array();
    let accepts_keys =
        security.is_some_and(|all| all.iter().any(|one| one.get("api_key").is_some()));
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if accepts_keys && status.starts_with('2') {
            response["headers"]["X-Key-Expires-At"] = header("X-Key-Expires-At");
        }
    }
}

/// Adds the parameter `X-Org-Id` and its errors, except to operations on the user alone.
fn add_org_parameter(operation: &mut Value) {
    if operation["security"] == json!([{"session": ["person"]}]) {
        return;
    }
    if !operation["parameters"].is_array() {
        operation["parameters"] = json!([]);
    }
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(json!({"$ref": "#/components/parameters/X-Org-Id"}));
    }
    let no_org = errors::example(Code::NotFound, "No such organization.", None);
    let not_found = &mut operation["responses"]["404"];
    if not_found.is_null() {
        *not_found = errors::response("`X-Org-Id` names no organization of the caller.", [no_org]);
    }
    let condition = "caller belongs to several organizations by invites and has not chosen one \
                     with `X-Org-Id`.";
    let conflict = &mut operation["responses"]["409"];
    match conflict["description"].as_str() {
        Some(own) => {
            conflict["description"] =
                format!("{own} It is also returned if the {condition}").into();
        }
        None => {
            let details = json!({"reason": "choose_organization", "header": "X-Org-Id", "orgs": [
                {"id": "org_2ZKJqvzEYcyr5PBmRLOzVu", "name": "Acme"},
                {"id": "org_7TGlmJTLG9Xk1kCsQ0mqzL", "name": "Hopper & Co"},
            ]});
            let message = "You belong to several organizations. Choose one with the header \
                           X-Org-Id; the session keeps it.";
            *conflict = errors::response(
                &format!("The {condition}"),
                [errors::example(Code::Conflict, message, Some(details))],
            );
        }
    }
}

/// Adds the header `Idempotency-Replayed` to the success responses of operations with an
/// idempotency key.
fn add_replay_header(operation: &mut Value) {
    let has_key_parameter = operation["parameters"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key"));
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if has_key_parameter && status.starts_with('2') {
            response["headers"]["Idempotency-Replayed"] = header("Idempotency-Replayed");
        }
    }
}

/// Sorts the responses by status, adds the error body to the errors, and the common headers to all.
fn complete_responses(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    responses.sort_keys();
    for (status, response) in responses
        .iter_mut()
        .filter(|(_, response)| response.get("$ref").is_none())
    {
        if status.starts_with('4') && response.get("content").is_none() {
            let description = response["description"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            *response = errors::response(&description, []);
        }
        add_headers(status, response);
    }
}

/// Returns a reference to a shared header.
fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

/// Adds the headers of all responses, and those of the status.
fn add_headers(status: &str, response: &mut Value) {
    let own = match status {
        "401" => Some("WWW-Authenticate"),
        "429" | "503" => Some("Retry-After"),
        _ => None,
    };
    for name in [
        "X-Request-Id",
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
    ]
    .into_iter()
    .chain(own)
    .chain((status == "429").then_some("X-Should-Retry"))
    {
        response["headers"][name] = header(name);
    }
}

/// Returns the security schemes.
fn security() -> Value {
    json!({
        "api_key": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_live_…",
            "description": "An API key, for programs. It acts for its organization with the role \
                            `member`. `x-required-scope` of an operation is \
                            the scope that the key must have.",
        },
        "session": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_sess_…",
            "description": "The session token of a user who has signed in. A named role is the \
                            lowest that suffices: a `viewer` can read; a `member` can also submit \
                            and manage keys; an `owner` can also manage members, invites, domains \
                            and terms. With `person`, the user need not belong to an organization.",
        },
    })
}

/// Returns the shared headers.
fn headers() -> Value {
    let count = |description: &str, minimum: u8, example: u64| {
        json!({
            "description": description,
            "required": true,
            "schema": {"type": "integer", "minimum": minimum},
            "example": example,
        })
    };
    json!({
        "X-Request-Id": {
            "description": "The id of the request, which the server creates. Quote it in support \
                            requests.",
            "required": true,
            "schema": {"type": "string", "pattern": "^req_[0-9A-Za-z]{22}$"},
            "example": errors::REQUEST_ID,
        },
        "X-RateLimit-Limit": count(
            "The number of requests that are admitted in any 60 consecutive seconds.",
            0,
            60
        ),
        "X-RateLimit-Remaining": count(
            "The number of requests that are left in the current window.",
            0,
            59
        ),
        "X-RateLimit-Reset": count(
            "The time at which the oldest counted request stops counting, in seconds since \
             1970-01-01T00:00:00Z.",
            0,
            1_769_904_000
        ),
        "X-Key-Expires-At": {
            "description": "The time at which the API key of the request expires. Present during \
                            the last 14 days before.",
            "schema": {"type": "string", "format": "date-time"},
            "example": "2027-01-31T00:00:00.000000Z",
        },
        "Retry-After": count("The number of seconds after which to retry.", 1, 12),
        "X-Should-Retry": {
            "description": "`false` if a retry within minutes fails again: for `quota_exceeded`, \
                            except with the limit `concurrent_jobs`. Otherwise absent.",
            "schema": {"type": "string", "const": "false"},
            "example": "false",
        },
        "WWW-Authenticate": {
            "description": "The authentication scheme of the credential.",
            "required": true,
            "schema": {"type": "string", "const": "Bearer"},
            "example": "Bearer",
        },
        "Idempotency-Replayed": {
            "description": "Present if an earlier request with this `Idempotency-Key` created the \
                            job.",
            "schema": {"type": "string", "const": "true"},
            "example": "true",
        },
    })
}

/// Returns the shared parameter `X-Org-Id`.
fn org_parameter() -> Value {
    json!({
        "name": "X-Org-Id",
        "in": "header",
        "description": "The id of the organization that the session acts for. If absent, the \
                        session acts for the organization that it last chose, or else for that of \
                        the oldest membership. A user of several organizations whose oldest \
                        membership began with an invite must choose one, or gets 409 `conflict`. An \
                        API key acts for its own organization; another one does not exist for it \
                        (404).",
        "schema": {"type": "string", "pattern": "^org_[0-9A-Za-z]{1,40}$", "maxLength": 44},
    })
}
