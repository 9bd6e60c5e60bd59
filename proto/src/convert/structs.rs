//! Conversion of JSON to `google.protobuf.Struct`.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

/// Converts a JSON object to a struct. All numbers become doubles, because a struct has no other
/// numbers.
pub fn object(fields: serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct {
        fields: fields
            .into_iter()
            .map(|(name, field)| (name, value(field)))
            .collect(),
    }
}

fn value(json: serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(flag) => Kind::BoolValue(flag),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(values) => Kind::ListValue(ListValue {
            values: values.into_iter().map(value).collect(),
        }),
        serde_json::Value::Object(fields) => Kind::StructValue(object(fields)),
    };
    Value { kind: Some(kind) }
}
