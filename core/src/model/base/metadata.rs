//! The text pairs that a caller attaches to a job.

use std::collections::BTreeMap;

use assay_eval::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Maximum pair count.
const PAIRS_MAX: usize = 16;

/// Maximum length of a key, in characters.
const KEY_MAX: usize = 64;

/// Maximum length of a value, in characters.
const VALUE_MAX: usize = 512;

/// Pairs of texts, such as the commit of a model. The platform does not interpret them.
///
/// At most 16 pairs. A key has 1 to 64 characters, a value at most 512.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metadata(BTreeMap<String, String>);

impl Metadata {
    /// Validates the pairs in the field `metadata`.
    ///
    /// # Errors
    /// All pairs' errors.
    pub fn validate(pairs: Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        if pairs.len() > PAIRS_MAX {
            let message = format!("at most {PAIRS_MAX} pairs");
            return Err(vec![FieldError::new("metadata", "range", message)]);
        }
        let mut errors = Vec::new();
        let mut valid = BTreeMap::new();
        for (key, value) in pairs {
            if key.is_empty() || key.chars().count() > KEY_MAX {
                let message = format!("each key must have 1 to {KEY_MAX} characters");
                errors.push(FieldError::new("metadata", "range", message));
                continue;
            }
            if key.contains('\0') {
                let message = "no key can contain the character NUL";
                errors.push(FieldError::new("metadata", "format", message));
                continue;
            }
            let fail = |reason, message: String| {
                FieldError::new(format!("metadata.{key}"), reason, message)
            };
            match value {
                Value::String(text) if text.chars().count() > VALUE_MAX => {
                    errors.push(fail("range", format!("at most {VALUE_MAX} characters")));
                }
                Value::String(text) if text.contains('\0') => {
                    errors.push(fail("format", "must not contain the character NUL".into()));
                }
                Value::String(text) => {
                    valid.insert(key, text);
                }
                _ => errors.push(fail("type", "must be a string".into())),
            }
        }
        match errors.is_empty() {
            true => Ok(Self(valid)),
            false => Err(errors),
        }
    }

    /// Returns the pairs in key order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl PartialSchema for Metadata {
    fn schema() -> RefOr<Schema> {
        let text = || Object::builder().schema_type(Type::String);
        Object::builder()
            .schema_type(Type::Object)
            .description(Some("Pairs of texts, such as the commit of a model. The platform does not interpret them."))
            .max_properties(Some(PAIRS_MAX))
            .property_names(Some(text().min_length(Some(1)).max_length(Some(KEY_MAX)).build()))
            .additional_properties(Some(text().max_length(Some(VALUE_MAX))))
            .into()
    }
}

impl ToSchema for Metadata {}

impl From<Metadata> for std::collections::HashMap<String, String> {
    fn from(metadata: Metadata) -> Self {
        metadata.0.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn validate(pairs: Value) -> Result<Metadata, Vec<String>> {
        let Value::Object(pairs) = pairs else {
            panic!("not an object");
        };
        Metadata::validate(pairs).map_err(|errors| {
            let errors = errors.into_iter();
            errors
                .map(|error| format!("{} {}", error.field, error.reason))
                .collect()
        })
    }

    #[test]
    fn pairs_within_limits_are_valid() {
        let metadata = validate(json!({"b": "", "a": "ü".repeat(512), "k".repeat(64): "x"}));
        let metadata = metadata.unwrap();
        let keys: Vec<&str> = metadata.pairs().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b", &"k".repeat(64)]);
        assert!(validate(json!({})).is_ok());
    }

    #[test]
    fn errors_of_all_pairs_are_returned() {
        let errors = validate(json!({
            "": "x", "k".repeat(65): "x", "long": "x".repeat(513), "number": 1, "null": null, "nul": "a\0b",
        }));
        let mut errors = errors.unwrap_err();
        errors.sort();
        assert_eq!(
            errors,
            [
                "metadata range",
                "metadata range",
                "metadata.long range",
                "metadata.nul format",
                "metadata.null type",
                "metadata.number type",
            ]
        );
        let many: Map<String, Value> = (0..17).map(|at| (at.to_string(), json!("x"))).collect();
        assert_eq!(validate(many.into()).unwrap_err(), ["metadata range"]);
    }
}
