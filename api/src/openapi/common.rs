//! What operations have in common: security, headers, and the refusals of their class.

use assay_core::Code;
use serde_json::{Value, json};

use super::errors;

/// Completes every operation. Which refusals it has follows from what it says of itself: from its security, whether it
/// wants a session or a role; from its body, whether that can be unfit; and the rest it names.
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
    for (_, _, operation) in super::operations(document) {
        if operation["security"] == json!([{}]) {
            operation["security"] = json!([]);
        } else {
            forbidden.extend(forbid(operation));
            choice_of_org(operation);
        }
        refusals(operation);
        complete(operation);
        replays(operation);
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

const STATUSES: [(&str, &str); 7] = [
    ("BadRequest", "400"),
    ("Unauthorized", "401"),
    ("PayloadTooLarge", "413"),
    ("ValidationFailed", "422"),
    ("TooManyRequests", "429"),
    ("InternalError", "500"),
    ("Unavailable", "503"),
];

/// Adds the refusals that follow from what an operation says of itself, where it has not said more.
fn refusals(operation: &mut Value) {
    let is_open = operation["security"] == json!([]);
    let has_body = operation.get("requestBody").is_some();
    let takes_header = operation["parameters"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["in"] == "header"));
    if is_open && !has_body {
        operation["responses"]["4XX"] = errors::response(
            "The request itself is at fault, such as its method (405).",
            [errors::example(
                Code::InvalidRequest,
                "This path does not take this method; the header Allow says which it takes.",
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
            "400" => has_body || takes_header,
            "401" => !is_open,
            "413" => has_body,
            _ => true,
        };
        if applies {
            responses.entry(status).or_insert_with(|| reference(name));
        }
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// Adds the 403 of those who may not call; returns it, if others have the same. An operation with a further reason to
/// refuse has said which.
fn forbid(operation: &mut Value) -> Option<(&'static str, Value)> {
    let security = operation["security"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let takes_keys = security.iter().any(|one| one.get("api_key").is_some());
    let role = security.iter().find_map(|one| one["session"][0].as_str());
    let (name, mut forbidden) = errors::forbidden(!takes_keys, role);
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

/// Every session says for which organization it acts, and may name one that is not the caller's; but for what a person
/// does for themselves.
fn choice_of_org(operation: &mut Value) {
    if operation["security"] == json!([{"session": ["person"]}]) {
        return;
    }
    if !operation["parameters"].is_array() {
        operation["parameters"] = json!([]);
    }
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(json!({"$ref": "#/components/parameters/X-Org-Id"}));
    }
    let org = errors::example(Code::NotFound, "No such organization.", None);
    let missing = &mut operation["responses"]["404"];
    if missing.is_null() {
        *missing = errors::response("`X-Org-Id` names no organization of the caller.", [org]);
    }
    let choose = "The caller belongs to several organizations by invites and has not chosen one: send `X-Org-Id`.";
    let conflict = &mut operation["responses"]["409"];
    match conflict["description"].as_str() {
        Some(own) => conflict["description"] = format!("{own} Or: {choose}").into(),
        None => {
            let details = json!({"reason": "choose_organization", "header": "X-Org-Id", "orgs": [
                {"id": "org_2ZKJqvzEYcyr5PBmRLOzVu", "name": "Acme"}, {"id": "org_7TGlmJTLG9Xk1kCsQ0mqzL", "name": "Hopper & Co"},
            ]});
            let message = "You belong to several organizations. Choose an organization with the header X-Org-Id; the session stays with it.";
            *conflict = errors::response(
                choose,
                [errors::example(Code::Conflict, message, Some(details))],
            );
        }
    }
}

/// Where an idempotency key may be sent, the answer tells whether it was known.
fn replays(operation: &mut Value) {
    let takes_key = operation["parameters"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key"));
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if takes_key && status.starts_with('2') {
            response["headers"]["Idempotency-Replayed"] = header("Idempotency-Replayed");
        }
    }
}

/// Every refusal has the one body, every response the headers of all, and statuses are in order.
fn complete(operation: &mut Value) {
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

fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

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
    {
        response["headers"][name] = header(name);
    }
}

fn security() -> Value {
    json!({
        "api_key": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_live_…",
            "description": "An API key, for programs. It acts for its organization, as a member.",
        },
        "session": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_sess_…",
            "description": "A session of a signed-in person. A role that is named is the least that the person must have: a viewer reads; a \
                            member also submits and manages keys; an owner also manages people, domains and terms. A `person` need not \
                            belong to an organization.",
        },
    })
}

fn headers() -> Value {
    let count = |description: &str, minimum: u8, example: u64| json!({"description": description, "required": true, "schema": {"type": "integer", "minimum": minimum}, "example": example});
    json!({
        "X-Request-Id": {
            "description": "The server's id of the request; quote it when you ask for help.",
            "required": true,
            "schema": {"type": "string", "pattern": "^req_[0-9A-Za-z]{22}$"},
            "example": errors::REQUEST_ID,
        },
        "X-RateLimit-Limit": count("Requests that are admitted in any sixty consecutive seconds.", 0, 60),
        "X-RateLimit-Remaining": count("How many of them are left.", 0, 59),
        "X-RateLimit-Reset": count("When the next of them comes back, in seconds since 1970.", 0, 1_769_904_000),
        "Retry-After": count("After how many seconds it makes sense to try again.", 1, 12),
        "WWW-Authenticate": {"description": "How to present a credential.", "required": true, "schema": {"type": "string", "const": "Bearer"}, "example": "Bearer"},
        "Idempotency-Replayed": {"description": "There when an earlier request with this `Idempotency-Key` made the job.", "schema": {"type": "string", "const": "true"}, "example": "true"},
    })
}

fn org_parameter() -> Value {
    json!({
        "name": "X-Org-Id",
        "in": "header",
        "description": "The organization that a session acts for; without it, the one that it last chose, or else the oldest membership. A \
                        user of several organizations whose oldest membership began with an invite must choose: 409 `conflict`. \
                        An API key has one organization; to it there is no other.",
        "schema": {"type": "string", "pattern": "^org_[0-9A-Za-z]{1,40}$", "maxLength": 44},
    })
}
