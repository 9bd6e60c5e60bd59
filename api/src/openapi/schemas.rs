//! Schemas: those that no struct has, and rules that hold for all.

use assay_core::Code;
use serde_json::{Map, Value, json};

/// Adds what no struct describes, and makes the rules of the protocol out of what `utoipa` writes.
pub fn finish(document: &mut Value) {
    let mut bodies = Vec::new();
    for (_, _, operation) in super::operations(document) {
        bodies.extend(
            operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                .as_str()
                .map(name),
        );
    }
    let schemas = &mut document["components"]["schemas"];
    schemas["Error"] = error();
    schemas["ErrorDetails"] = details();
    schemas["TraceDocument"] = trace();
    exactly_one(&mut schemas["EvalCreate"], "predictions", "input_ref");
    at_least_one(&mut schemas["OrgUpdate"], ["name", "data_use"]);
    merge(schemas);
    let scalars = take_scalars(schemas);
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        inline(schema, &scalars);
        if bodies.contains(name) {
            // Only what is known now is taken. Answers may grow, so nothing is said of theirs.
            schema["additionalProperties"] = false.into();
        } else {
            require_nullable(schema);
            schema
                .as_object_mut()
                .map(|schema| schema.shift_remove("additionalProperties"));
        }
    }
    inline(&mut document["paths"], &scalars);
    for (_, _, operation) in super::operations(document) {
        let parameters = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        parameters.for_each(parameter);
    }
}

fn name(reference: &str) -> String {
    reference
        .trim_start_matches("#/components/schemas/")
        .to_owned()
}

/// A struct within a struct of which JSON knows nothing: one object with the fields of both.
fn merge(schemas: &mut Value) {
    let before = schemas.clone();
    for (_, schema) in schemas.as_object_mut().into_iter().flatten() {
        let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
            continue;
        };
        let mut merged = json!({"type": "object", "description": schema["description"], "required": [], "properties": {}});
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

/// Takes out the schemas that are one text of a certain form, such as ids.
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

/// Writes such schemas where they are used, with the description of the place. One that may also be null becomes one
/// with two types rather than a choice of two schemas.
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

/// `oneOf: [{type: null}, {type: string, …}]` becomes `type: [string, null], …`.
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

/// A parameter is there or not; there is no null in a path, a query or a header. And one that may be left out has no
/// example: whoever tries the operation on the page would send it.
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

/// A field that may be null is always there.
fn require_nullable(schema: &mut Value) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let always = |(name, property): (&String, &Value)| {
        let there = required.contains(&json!(name)) || may_be_null(property);
        there.then(|| json!(name))
    };
    schema["required"] = properties.iter().filter_map(always).collect();
}

fn may_be_null(property: &Value) -> bool {
    let null = json!("null");
    let choices = property["oneOf"].as_array();
    property["type"]
        .as_array()
        .is_some_and(|types| types.contains(&null))
        || choices.is_some_and(|choices| choices.iter().any(|choice| choice["type"] == null))
}

/// Of two fields that may be null, one is given.
fn exactly_one(schema: &mut Value, one: &str, other: &str) {
    let given = |given: &str, not: &str| json!({"required": [given], "properties": {given: {"not": {"type": "null"}}, not: {"type": "null"}}});
    schema["oneOf"] = json!([given(one, other), given(other, one)]);
}

/// Of fields that may be null, one or more are given.
fn at_least_one<const N: usize>(schema: &mut Value, fields: [&str; N]) {
    schema["anyOf"] = fields
        .map(|field| json!({"required": [field], "properties": {field: {"not": {"type": "null"}}}}))
        .into();
}

fn error() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "description": "What every answer but a 2xx has as its body.",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "description": "What went wrong.",
            "required": ["code", "message", "request_id"],
            "properties": {
                "code": {"type": "string", "enum": codes, "description": "From a closed set; safe to branch on."},
                "message": {"type": "string", "description": "For people: what is wrong and what to do. May change."},
                "request_id": {"$ref": "#/components/schemas/RequestId", "description": "As in the header `X-Request-Id`."},
                "details": {"$ref": "#/components/schemas/ErrorDetails"},
            },
        }},
    })
}

fn details() -> Value {
    json!({
        "type": "object",
        "description": "Only where there is something specific to say; which of the fields are there depends on the code.",
        "properties": {
            "fields": {
                "type": "array",
                "description": "`validation_failed`: what is wrong, field by field.",
                "items": {
                    "type": "object",
                    "required": ["field", "reason", "message"],
                    "properties": {
                        "field": {"type": "string", "description": "Where: a path such as `predictions[3].item_id`, a parameter or a header."},
                        "reason": {"type": "string", "description": "What kind of fault, such as `required`, `type`, `range`, `format`, `duplicate` or `unknown_field`."},
                        "message": {"type": "string", "description": "For people."},
                    },
                },
            },
            "job_id": {"$ref": "#/components/schemas/JobId", "description": "`validation_failed` of an `Idempotency-Key`: the job that it stands for."},
            "limit": {"type": "string", "description": "`quota_exceeded`: name of the limit, such as `eval_items_per_month`."},
            "max": {"type": "integer", "format": "int64", "minimum": 0, "description": "`quota_exceeded`, and `forbidden` of `submissions_used_up`: what the plan, or the suite, grants."},
            "active": {"type": "integer", "format": "int64", "minimum": 0, "description": "`quota_exceeded` of `concurrent_jobs`: how many are active."},
            "reason": {"type": "string", "description": "`forbidden`: `terms_not_accepted`, where the organization must first accept the terms; `org_suspended`, where the operator has suspended the organization; `suite_access`, where it may not submit to the suite; `submissions_used_up`, where the submissions that the suite allows are used up for good. `conflict`: `choose_organization`, where the caller belongs to several organizations and must choose one."},
            "header": {"type": "string", "description": "`conflict` of `choose_organization`: the header that names the chosen organization, `X-Org-Id`."},
            "orgs": {"type": "array", "maxItems": 20, "description": "`conflict` of `choose_organization`: organizations of the caller.", "items": {
                "type": "object", "required": ["id", "name"], "additionalProperties": false,
                "properties": {"id": {"$ref": "#/components/schemas/OrgId"}, "name": {"type": "string", "description": "As its owner named it."}},
            }},
            "access": {"$ref": "#/components/schemas/SuiteAccess", "description": "`forbidden` of `suite_access`: who may submit."},
            "version": {"type": "string", "description": "`forbidden`: the version of the terms that is to be accepted."},
            "url": {"type": "string", "format": "uri", "description": "`forbidden`: where the terms can be read."},
            "resets_at": {"$ref": "#/components/schemas/Timestamp", "description": "`quota_exceeded`: when there is room again at the latest."},
        },
    })
}

/// What can be said of a trace without saying all of OTLP again.
fn trace() -> Value {
    let attributes = json!({"type": "array", "items": {"type": "object", "required": ["key", "value"], "properties": {"key": {"type": "string"}, "value": {"type": "object"}}}});
    let hex =
        |digits: usize| json!({"type": "string", "pattern": format!("^[0-9a-f]{{{digits}}}$")});
    let nanos =
        json!({"type": "string", "pattern": "^[0-9]+$", "description": "Nanoseconds since 1970."});
    let span = json!({
        "type": "object",
        "description": "A span of OpenTelemetry.",
        "required": ["traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"],
        "properties": {
            "traceId": hex(32),
            "spanId": hex(16),
            "parentSpanId": {"type": "string", "pattern": "^([0-9a-f]{16})?$", "description": "Empty at the root, unless the client sent a `traceparent`."},
            "name": {"type": "string"},
            "kind": {"type": "integer", "minimum": 1, "maximum": 5},
            "startTimeUnixNano": nanos,
            "endTimeUnixNano": nanos,
            "attributes": attributes,
            "status": {"type": "object", "properties": {"code": {"type": "integer", "minimum": 1, "maximum": 2}}},
        },
    });
    let scoped = json!({"type": "object", "required": ["scope", "spans"], "properties": {"scope": {"type": "object"}, "spans": {"type": "array", "items": span}}});
    let resource = json!({"type": "object", "required": ["attributes"], "properties": {"attributes": attributes}});
    let resources = json!({"type": "object", "required": ["resource", "scopeSpans"], "properties": {"resource": resource, "scopeSpans": {"type": "array", "items": scoped}}});
    json!({
        "type": "object",
        "description": "Spans in OTLP/JSON.",
        "required": ["resourceSpans"],
        "properties": {"resourceSpans": {"type": "array", "description": "The spans of one resource: this api.", "items": resources}},
    })
}
