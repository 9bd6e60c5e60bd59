//! The schemas that no struct describes, and the rules for all schemas.

use std::collections::BTreeSet;

use assay_core::Code;
use assay_core::model::draft::DraftStatus;
use assay_core::model::job::JobStatus;
use assay_core::model::suite::VERSION_MAX;
use serde_json::{Map, Value, json};

use super::operations::operations;

/// The schemas that only occur in bodies of requests, and reject unknown fields as those do.
const PARTS_OF_BODIES: [&str; 3] = ["PredictionParameters", "Sequence", "SequenceEvent"];

/// Adds the schemas that no struct describes, and applies the rules of the API to those of
/// `utoipa`.
pub fn finish(document: &mut Value) {
    let mut bodies = Vec::new();
    for (_, _, operation) in operations(document) {
        mark_optional_body(operation);
        bodies.extend(
            operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                .as_str()
                .map(name),
        );
    }
    bodies.extend(PARTS_OF_BODIES.map(str::to_owned));
    let schemas = &mut document["components"]["schemas"];
    schemas["Error"] = error();
    schemas["ErrorDetails"] = details();
    schemas["TraceDocument"] = trace();
    exactly_one(&mut schemas["EvalCreate"], "predictions", "input_ref");
    exactly_one(&mut schemas["ComparisonCreate"], "job_b", "baseline");
    at_least_one(&mut schemas["OrgUpdate"], ["name", "data_use", "handle"]);
    at_least_one(
        &mut schemas["ApiKeyUpdate"],
        ["name", "scopes", "expires_at"],
    );
    merge(schemas);
    let scalars = take_scalars(schemas);
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        inline(schema, &scalars);
        if bodies.contains(name) || IN_BODIES.contains(&name.as_str()) {
            // Requests reject unknown fields. Responses may gain fields.
            schema["additionalProperties"] = false.into();
        } else {
            require_nullable(schema);
            // A schema of the values of a map stays.
            if let Some(schema) = schema.as_object_mut()
                && !schema
                    .get("additionalProperties")
                    .is_some_and(Value::is_object)
            {
                schema.shift_remove("additionalProperties");
            }
        }
    }
    inline(&mut document["paths"], &scalars);
    for (_, _, operation) in operations(document) {
        let parameters = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        parameters.for_each(parameter);
    }
}

/// Replaces the schema of a body that may be absent by that of the body. `utoipa` describes it as a
/// body that may be `null`.
fn mark_optional_body(operation: &mut Value) {
    let schema = operation.pointer_mut("/requestBody/content/application~1json/schema");
    let Some(schema) = schema else { return };
    let present = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .and_then(|either| either.iter().find(|one| one.get("$ref").is_some()));
    if let Some(present) = present.cloned() {
        *schema = present;
        operation["requestBody"]["required"] = false.into();
    }
}

/// Returns the name of the schema that a reference names.
fn name(reference: &str) -> String {
    reference
        .trim_start_matches("#/components/schemas/")
        .to_owned()
}

/// Replaces a schema of flattened structs by one object with the fields of all.
fn merge(schemas: &mut Value) {
    let before = schemas.clone();
    for (_, schema) in schemas.as_object_mut().into_iter().flatten() {
        let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
            continue;
        };
        let mut merged = json!({
            "type": "object",
            "description": schema["description"],
            "required": [],
            "properties": {},
        });
        for part in parts {
            let part = part["$ref"]
                .as_str()
                .map_or(part, |reference| &before[name(reference)]);
            if let (Some(all), Some(own)) = (
                merged["required"].as_array_mut(),
                part["required"].as_array(),
            ) {
                all.extend(own.iter().cloned());
            }
            for (field, property) in part["properties"].as_object().into_iter().flatten() {
                merged["properties"][field] = property.clone();
            }
        }
        *schema = merged;
    }
}

/// Removes and returns the schemas of strings of a certain form, such as ids.
fn take_scalars(schemas: &mut Value) -> Map<String, Value> {
    let is_scalar = |schema: &Value| schema["type"] == "string" && schema.get("enum").is_none();
    let Some(all) = schemas.as_object_mut() else {
        return Map::new();
    };
    let (scalars, rest) = std::mem::take(all)
        .into_iter()
        .partition(|(_, schema)| is_scalar(schema));
    *all = rest;
    scalars
}

/// Replaces the references to these schemas by the schemas, with the description of the reference.
/// A nullable one becomes one schema with two types instead of a choice of two schemas.
fn inline(value: &mut Value, scalars: &Map<String, Value>) {
    if let Some(scalar) = value
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| scalars.get(&name(reference)))
    {
        let mut scalar = scalar.clone();
        if let Some(description) = value.get("description") {
            scalar["description"] = description.clone();
        }
        *value = scalar;
    }
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| inline(field, scalars));
            nullable(fields);
        }
        Value::Array(elements) => elements
            .iter_mut()
            .for_each(|element| inline(element, scalars)),
        _ => {}
    }
}

/// Replaces `oneOf: [{type: null}, {type: string, …}]` by `type: [string, null], …`.
fn nullable(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else {
        return;
    };
    let is_null = |choice: &&Value| **choice == json!({"type": "null"});
    let rest: Vec<_> = choices
        .iter()
        .filter(|choice| !is_null(choice))
        .cloned()
        .collect();
    let [Value::Object(only)] = rest.as_slice() else {
        return;
    };
    let Some(Value::String(kind)) = only
        .get("type")
        .filter(|_| choices.len() == 2 && !only.contains_key("enum"))
    else {
        return;
    };
    let mut merged = only.clone();
    merged.insert("type".into(), json!([kind, "null"]));
    if let Some(description) = fields.get("description") {
        merged.insert("description".into(), description.clone());
    }
    *fields = merged;
}

/// Removes `null` from the types of a parameter, because paths, queries and headers have no null.
/// Removes the examples of an optional parameter, because the page `/docs` would send them.
fn parameter(parameter: &mut Value) {
    let optional = parameter["required"] != true;
    let Some(schema) = parameter.get_mut("schema").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some([only, _]) = schema
        .get("type")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        let only = only.clone();
        schema.insert("type".into(), only);
    }
    if optional {
        schema.shift_remove("examples");
    }
}

/// Makes nullable fields required, because responses always contain them.
fn require_nullable(schema: &mut Value) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let is_always_present = |(name, property): (&String, &Value)| {
        let is_required = required.contains(&json!(name)) || is_nullable(property);
        is_required.then(|| json!(name))
    };
    schema["required"] = properties.iter().filter_map(is_always_present).collect();
}

/// Returns `true` if the schema of a field allows null.
fn is_nullable(property: &Value) -> bool {
    let null = json!("null");
    let choices = property["oneOf"].as_array();
    property["type"]
        .as_array()
        .is_some_and(|types| types.contains(&null))
        || choices.is_some_and(|choices| choices.iter().any(|choice| choice["type"] == null))
}

/// Requires exactly one of two nullable fields.
fn exactly_one(schema: &mut Value, one: &str, other: &str) {
    let given = |given: &str, absent: &str| {
        json!({
            "required": [given],
            "properties": {given: {"not": {"type": "null"}}, absent: {"type": "null"}},
        })
    };
    schema["oneOf"] = json!([given(one, other), given(other, one)]);
}

/// Requires at least one of several nullable fields.
fn at_least_one<const N: usize>(schema: &mut Value, fields: [&str; N]) {
    schema["anyOf"] = fields
        .map(|field| json!({"required": [field], "properties": {field: {"not": {"type": "null"}}}}))
        .into();
}

/// Returns the schema of the error body.
fn error() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "description": "The body of every error response.",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "description": "The error.",
            "required": ["code", "message", "request_id"],
            "properties": {
                "code": {
                    "type": "string",
                    "enum": codes,
                    "description": "The code of the error, from a closed set. Programs can rely on \
                                    it.",
                },
                "message": {
                    "type": "string",
                    "description": "A description for people: what is wrong and what to do. It can \
                                    change.",
                },
                "request_id": {
                    "$ref": "#/components/schemas/RequestId",
                    "description": "The id of the request, as in the header `X-Request-Id`.",
                },
                "details": {"$ref": "#/components/schemas/ErrorDetails"},
            },
        }},
    })
}

/// Objects within request bodies.
const IN_BODIES: [&str; 3] = ["FileToCheck", "GrantLink", "NewDraftFile"];

/// The description of the field `reason`.
const REASON: &str = "`forbidden`: `scope` (the API key does not have the scope that \
    the operation requires), `terms_not_accepted` (the organization \
    must accept the terms first), `org_suspended` (the operator has suspended the \
    organization), `suite_access` (the organization may not submit to \
    the suite) or `submissions_used_up` (the submissions that the \
    suite allows are used up permanently). `conflict`: \
    `choose_organization` (the caller belongs to several organizations \
    and must choose one). `invalid_state` of a model: \
    `endpoint_not_offered` (the model does not offer the operation), \
    `no_engine` (the model was published without a package) or \
    `tokenizer_not_fitted` (the model cannot return items of a \
    catalog yet). `invalid_state` of a job that cannot enter a board: \
    `no_board`, `not_succeeded`, `not_final`, `board_closed` or \
    `max_entries`. `conflict` of an entry: `entered` (the job has entered \
    the board) or `name_taken`; `invalid_state` of an entry: `board_final`. `invalid_state` of a receipt: \
    `not_an_eval`, `not_succeeded` or `sealed_until`. `invalid_state` of a \
    submission, or of a suite's items: `suite_retired`, `suite_suspended` or `suite_removed`; of a retirement: `board_not_final`, `not_closed` or `answers_shared`. `invalid_state` of a suite's update: \
    `suite_removed` or `in_review` (the operator reviews suites before more organizations see them). `conflict` of an organization: `handle_taken` (another \
    organization has the handle, or it is reserved). `invalid_state` of an \
    organization: `handle_set` (its handle never changes) or `handle_required` (its suites need \
    one). `invalid_state` of a draft: `not_open`, `not_ready` or `part_missing`. `key_revoked`: `expired` \
    (the API key has expired).";

/// Returns the schema of the error details.
fn details() -> Value {
    json!({
        "type": "object",
        "description": "The details of the error. The code determines which fields are present.",
        "properties": {
            "fields": field_errors(),
            "job_id": {
                "$ref": "#/components/schemas/JobId",
                "description": "`validation_failed` of an `Idempotency-Key`: the job that an \
                                earlier request with the key created.",
            },
            "limit": {
                "type": "string",
                "description": "`quota_exceeded`: the name of the limit, such as \
                                `eval_items_per_month`.",
            },
            "max": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "`quota_exceeded`, and `forbidden` with `submissions_used_up`: the \
                                value of the limit. `invalid_state` with `max_entries`: the maximum of entries.",
            },
            "active": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "`quota_exceeded`: the current number, unless the limit counts per \
                                period.",
            },
            "reason": {
                "type": "string",
                "description": REASON,
            },
            "required": {
                "$ref": "#/components/schemas/Scope",
                "description": "`forbidden` with `scope`: the scope that the operation requires.",
            },
            "expired_at": {
                "$ref": "#/components/schemas/Timestamp",
                "description": "`key_revoked` with `expired`: the time at which the API key \
                                expired.",
            },
            "endpoints": {
                "type": "array",
                "uniqueItems": true,
                "description": "`invalid_state` with `endpoint_not_offered`: the operations that \
                                the model offers.",
                "items": {"$ref": "#/components/schemas/Endpoint"},
            },
            "header": {
                "type": "string",
                "enum": ["X-Org-Id"],
                "description": "`conflict` with `choose_organization`: the request header that \
                                names the chosen organization, `X-Org-Id`.",
            },
            "orgs": org_choices(),
            "suite_version": {
                "type": "string",
                "description": "`conflict` of a submission: the version in the request; of an \
                                entry: the version of the job.",
            },
            "current_version": {
                "type": "string",
                "minLength": 1,
                "maxLength": VERSION_MAX,
                "description": "`conflict` of a submission or an entry: the current version of \
                                the suite.",
            },
            "access": {
                "$ref": "#/components/schemas/SuiteAccess",
                "description": "`forbidden` with `suite_access`: the organizations that may \
                                submit.",
            },
            "version": {
                "type": "string",
                "description": "`forbidden` with `terms_not_accepted`: the version of the terms to \
                                accept.",
            },
            "url": {
                "type": "string",
                "format": "uri",
                "description": "`forbidden` with `terms_not_accepted`: the URL of the terms.",
            },
            "status": {
                "type": "string",
                "enum": statuses(),
                "description": "`invalid_state` with `not_succeeded`: the job status; with `not_open` or \
                                `not_ready`: the draft status.",
            },
            "name": {
                "type": "string",
                "description": "`invalid_state` with `part_missing`: the file name.",
            },
            "number": {
                "type": "integer",
                "format": "int64",
                "minimum": 1,
                "description": "`invalid_state` with `part_missing`: the part number.",
            },
            "closes_at": {
                "$ref": "#/components/schemas/Timestamp",
                "description": "`invalid_state` with `board_closed`, `sealed_until` or `not_closed`: the \
                                time of the close.",
            },
            "versions": {
                "type": "array",
                "description": "`invalid_state` with `answers_shared`: the versions that hide the same \
                                answers.",
                "items": {"type": "string", "minLength": 1, "maxLength": VERSION_MAX},
            },
            "entry_id": {
                "$ref": "#/components/schemas/EntryId",
                "description": "`conflict` with `entered`: the id of the entry.",
            },
            "resets_at": {
                "$ref": "#/components/schemas/Timestamp",
                "description": "`quota_exceeded`: the latest time at which there is room again.",
            },
        },
    })
}

/// Returns the states that an error can name: those of jobs and drafts.
fn statuses() -> BTreeSet<&'static str> {
    let jobs = JobStatus::ALL.iter().map(|status| status.as_str());
    let drafts = DraftStatus::ALL.iter().map(|status| status.as_str());
    jobs.chain(drafts).collect()
}

/// Returns the schema of the field errors.
fn field_errors() -> Value {
    json!({
        "type": "array",
        "description": "`validation_failed`: the field errors.",
        "items": {
            "type": "object",
            "required": ["field", "reason", "message"],
            "properties": {
                "field": {
                    "type": "string",
                    "description": "The position of the error: a path such as \
                                    `predictions[3].item_id`, a parameter or a header.",
                },
                "reason": {
                    "type": "string",
                    "description": "The kind of the error, such as `required`, `type`, \
                                    `range`, `format`, `duplicate` or `unknown_field`.",
                },
                "message": {
                    "type": "string",
                    "description": "A description for people. It can change.",
                },
            },
        },
    })
}

/// Returns the schema of the organizations that the caller can choose.
fn org_choices() -> Value {
    json!({
        "type": "array",
        "maxItems": 20,
        "description": "`conflict` with `choose_organization`: the organizations of the \
                        caller, at most 20.",
        "items": {
            "type": "object",
            "required": ["id", "name"],
            "additionalProperties": false,
            "properties": {
                "id": {"$ref": "#/components/schemas/OrgId"},
                "name": {
                    "type": "string",
                    "description": "The name of the organization.",
                },
            },
        },
    })
}

/// Returns the schema of a trace, with the fields of OTLP that this API uses.
fn trace() -> Value {
    let attribute = json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {"key": {"type": "string"}, "value": {"type": "object"}},
    });
    let attributes = json!({"type": "array", "items": attribute});
    let hex =
        |digits: usize| json!({"type": "string", "pattern": format!("^[0-9a-f]{{{digits}}}$")});
    let nanos = json!({
        "type": "string",
        "pattern": "^[0-9]+$",
        "description": "Nanoseconds since 1970-01-01T00:00:00Z.",
    });
    let span = json!({
        "type": "object",
        "description": "An OpenTelemetry span.",
        "required": [
            "traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano",
            "endTimeUnixNano", "attributes", "status",
        ],
        "properties": {
            "traceId": hex(32),
            "spanId": hex(16),
            "parentSpanId": {
                "type": "string",
                "pattern": "^([0-9a-f]{16})?$",
                "description": "The id of the parent span. Empty in the root span, unless the \
                                client sent a `traceparent`.",
            },
            "name": {"type": "string"},
            "kind": {"type": "integer", "minimum": 1, "maximum": 5},
            "startTimeUnixNano": nanos,
            "endTimeUnixNano": nanos,
            "attributes": attributes,
            "status": {
                "type": "object",
                "properties": {"code": {"type": "integer", "minimum": 1, "maximum": 2}},
            },
        },
    });
    let scope_spans = json!({
        "type": "object",
        "required": ["scope", "spans"],
        "properties": {
            "scope": {"type": "object"},
            "spans": {"type": "array", "items": span},
        },
    });
    let resource = json!({
        "type": "object",
        "required": ["attributes"],
        "properties": {"attributes": attributes},
    });
    let resource_spans = json!({
        "type": "object",
        "required": ["resource", "scopeSpans"],
        "properties": {
            "resource": resource,
            "scopeSpans": {"type": "array", "items": scope_spans},
        },
    });
    json!({
        "type": "object",
        "description": "A trace in OTLP/JSON.",
        "required": ["resourceSpans"],
        "properties": {
            "resourceSpans": {
                "type": "array",
                "description": "The spans of one resource, this API.",
                "items": resource_spans,
            },
        },
    })
}
