//! JSON request bodies.

use assay_api::parsers::Fields;
use assay_core::{Code, Details, Error};
use assay_eval::json::DEPTH_MAX;
use serde_json::Value;

use super::assert_safe_message;
use super::json::{Json, nesting};

/// The fields taken from a body equal a plain parser's; all other content is rejected.
pub fn bodies(data: &[u8]) {
    let plain = Json::read(data);
    let fields = match Fields::read(data) {
        Err(error) => return assert_error(&error, data, plain.as_ref()),
        Ok(fields) => fields,
    };
    // Numbers out of range and half surrogate pairs are errors in the field that contains them.
    let Some(plain) = plain else { return };
    let Json::Object(entries) = &plain else {
        panic!("accepted a body that is no object")
    };
    assert!(nesting(data) <= DEPTH_MAX && entries.len() <= 32);
    assert_fields(fields, data, entries);
}

fn assert_error(error: &Error, data: &[u8], plain: Option<&Json>) {
    let lower = error.message.to_lowercase();
    match error.code {
        Code::InvalidRequest => {
            assert_safe_message(&error.message);
            assert!(plain.is_none() || nesting(data) > DEPTH_MAX, "{lower}");
        }
        Code::ValidationFailed => {
            let Some(Details::Fields { fields }) = &error.details else {
                panic!("{lower}")
            };
            assert!(fields.len() == 1 && fields[0].field == "body");
            match fields[0].reason {
                "type" => assert!(!data.trim_ascii_start().starts_with(b"{")),
                "range" => assert!(plain.is_none_or(
                    |plain| matches!(plain, Json::Object(entries) if entries.len() > 32)
                )),
                other => panic!("{other}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Takes a field for each kind and compares it with the plain parser.
fn assert_fields(mut fields: Fields<'_>, data: &[u8], entries: &[(String, Json)]) {
    let values: Value = match serde_json::from_slice(data) {
        Ok(values) => values,
        // The body is nested more deeply than the plain parser supports.
        Err(_) => return,
    };
    let repeated = entries
        .iter()
        .enumerate()
        .filter(|(at, (name, _))| entries[..*at].iter().any(|(other, _)| other == name))
        .count();
    let mut errors = repeated;
    // Of a repeated key, the API takes the first value, and the plain parser the last.
    let first_is_last = |name: &str| entries.iter().filter(|(other, _)| other == name).count() <= 1;
    let there = |name: &str| entries.iter().any(|(other, _)| other == name);
    let known = ["name", "auto_join", "bytes", "email", "predictions"];
    let name = fields.optional_string("name");
    let flag = fields.optional_boolean("auto_join");
    let number = fields.optional_integer("bytes");
    let email = fields.string("email");
    let raw = fields.raw("predictions");
    if !known.iter().all(|name| first_is_last(name)) {
        assert!(fields.finish().is_err());
        return;
    }
    assert_eq!(name.as_deref(), values["name"].as_str());
    assert_eq!(flag, values["auto_join"].as_bool());
    assert_eq!(number, whole(&values["bytes"]));
    assert_eq!(email, values["email"].as_str().unwrap_or_default());
    assert_eq!(
        raw.map(|raw| serde_json::from_str::<Value>(raw).unwrap()),
        Some(&values["predictions"])
            .filter(|value| !value.is_null())
            .cloned()
    );
    let wrong =
        |name: &str, fine: bool| usize::from(there(name) && !values[name].is_null() && !fine);
    errors += wrong("name", name.is_some())
        + wrong("auto_join", flag.is_some())
        + wrong("bytes", number.is_some());
    errors += usize::from(!values["email"].is_string());
    let mut unknown: Vec<&str> = entries
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !known.contains(name))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    errors += unknown.len();
    match fields.finish() {
        Ok(()) => assert_eq!(errors, 0),
        Err(error) => {
            let Some(Details::Fields { fields }) = &error.details else {
                panic!("{error}")
            };
            assert_eq!(
                (error.code, fields.len()),
                (Code::ValidationFailed, errors),
                "{fields:?}"
            );
            fields
                .iter()
                .for_each(|error| assert_safe_message(&error.message));
        }
    }
}

/// Returns the integer, also if it is written as a float.
fn whole(value: &Value) -> Option<i64> {
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        number
            .as_f64()
            .filter(|number| number.fract() == 0.0 && number.abs() <= (1_i64 << 53) as f64)
            .map(|number| number as i64)
    })
}
