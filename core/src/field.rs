//! Rules for single fields of requests, written once for both wires.

use std::str::FromStr;

use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::{FieldError, Timestamp};

/// Longest name or label, in characters.
pub const TEXT_MAX: usize = 200;

/// How [`text`] is described to clients.
pub struct Text;

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        let pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
        let described = Object::builder().schema_type(Type::String).min_length(Some(1)).max_length(Some(TEXT_MAX));
        described.pattern(Some(pattern)).description(Some("Trimmed; not blank; no control characters.")).into()
    }
}

impl ToSchema for Text {}

/// A page's size, as [`limit`] takes it, described to clients.
pub struct PageSize<const DEFAULT: u32, const MAX: u32>;

impl<const DEFAULT: u32, const MAX: u32> PartialSchema for PageSize<DEFAULT, MAX> {
    fn schema() -> RefOr<Schema> {
        let described = Object::builder().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX));
        described.default(Some(DEFAULT.into())).into()
    }
}

impl<const DEFAULT: u32, const MAX: u32> ToSchema for PageSize<DEFAULT, MAX> {}

/// A text for people, such as a name: at most [`TEXT_MAX`] characters, trimmed, not blank, no control characters.
pub fn text(field: &str, value: &str) -> Result<String, FieldError> {
    // White space counts, so that the limit is one that a schema can state.
    if value.chars().count() > TEXT_MAX {
        return Err(FieldError::new(field, "range", format!("at most {TEXT_MAX} characters")));
    }
    let value = value.trim();
    if value.is_empty() {
        return Err(FieldError::required(field));
    }
    // PostgreSQL cannot store NUL, and no other control character belongs into a name.
    if value.chars().any(char::is_control) {
        return Err(FieldError::new(field, "format", "must not hold control characters"));
    }
    Ok(value.to_owned())
}

/// An e-mail address in the one form in which addresses are compared: trimmed and in lower case.
pub fn email(field: &str, value: &str) -> Result<String, FieldError> {
    let value = text(field, value)?.to_lowercase();
    let well_formed = value.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty()
            && !domain.contains('@')
            && domain.split('.').all(|label| !label.is_empty())
            && !value.contains(char::is_whitespace)
    });
    if well_formed { Ok(value) } else { Err(FieldError::new(field, "format", "must be an e-mail address, such as ada@example.org")) }
}

/// Notes a fault among others that are told with it; the default stands in for the value.
pub fn noted<T: Default>(faults: &mut Vec<FieldError>, read: Result<T, FieldError>) -> T {
    read.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

/// A page's size: `default` when absent, otherwise 1 to `max`.
pub fn limit(value: Option<i64>, default: u32, max: u32) -> Result<u32, FieldError> {
    let Some(value) = value else { return Ok(default) };
    u32::try_from(value)
        .ok()
        .filter(|limit| (1..=max).contains(limit))
        .ok_or_else(|| FieldError::new("limit", "range", format!("must be a whole number from 1 to {max}")))
}

/// One of the values of a closed set.
pub fn one_of<T: FromStr<Err = String>>(field: &str, value: &str) -> Result<T, FieldError> {
    value.parse().map_err(|message| FieldError::new(field, "unknown_value", message))
}

/// A moment, in RFC 3339.
pub fn moment(field: &str, value: &str) -> Result<Timestamp, FieldError> {
    value.parse().map_err(|_| FieldError::new(field, "format", "must be a moment such as 2026-01-31T23:59:59.000000Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_trimmed_and_bounded() {
        assert_eq!(text("name", "  ci  ").unwrap(), "ci");
        for (value, reason) in
            [("", "required"), ("   ", "required"), ("a\0b", "format"), (&"x".repeat(201) as &str, "range"), (&" ".repeat(201), "range")]
        {
            assert_eq!(text("name", value).unwrap_err().reason, reason, "{value:?}");
        }
    }

    #[test]
    fn addresses_are_lowered() {
        assert_eq!(email("email", " Ada@Example.ORG ").unwrap(), "ada@example.org");
        for bad in ["ada", "@example.org", "ada@", "a@b@c", "a b@c.d", "ada@.org"] {
            assert!(email("email", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_have_a_default_and_bounds() {
        assert_eq!(limit(None, 50, 200), Ok(50));
        assert_eq!(limit(Some(200), 50, 200), Ok(200));
        for bad in [0, -1, 201, i64::MAX] {
            assert_eq!(limit(Some(bad), 50, 200).unwrap_err().reason, "range");
        }
    }
}
