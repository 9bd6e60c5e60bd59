//! Handles of organizations, with which the ids of their suites begin: `suite:<handle>.<name>`.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::ids::SuiteId;
use assay_eval::FieldError;

/// A [`parse`]d handle's schema.
pub struct Handle;

impl PartialSchema for Handle {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "A handle of an organization.",
            "^[a-z](-|-?[a-z0-9](-?[a-z0-9])*-?)$",
            LENGTH_MAX,
            "acme",
        )
    }
}

impl ToSchema for Handle {}

/// Maximum length of a handle, in characters.
const LENGTH_MAX: usize = 24;

/// Handles that no organization can have. `me` stands for the caller's own one in `GET /v1/suites`.
const RESERVED: [&str; 12] = [
    "assay", "admin", "api", "me", "official", "operator", "platform", "public", "suite", "system",
    "test", "www",
];

/// Validates the form of a handle: 2 to 24 lower-case letters, digits and single hyphens, a letter first.
///
/// # Errors
/// A field error with the reason `format`.
pub fn parse<'t>(field: &str, text: &'t str) -> Result<&'t str, FieldError> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_handle = (2..=LENGTH_MAX).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(is_allowed)
        && !text.contains("--");
    if is_handle {
        return Ok(text);
    }
    Err(FieldError::new(
        field,
        "format",
        "must be 2 to 24 lower-case letters, digits or hyphens, begin with a letter, and have no two \
         hyphens in a row",
    ))
}

/// Validates a handle that an organization chooses. `reserved` has further ones that nobody can have.
///
/// # Errors
/// A field error with the reason `format` or `reserved`.
pub fn choose<'t>(field: &str, text: &'t str, reserved: &[String]) -> Result<&'t str, FieldError> {
    let handle = parse(field, text)?;
    if RESERVED.contains(&handle) || reserved.iter().any(|other| other == handle) {
        let message = format!("{handle} is reserved; choose another handle");
        return Err(FieldError::new(field, "reserved", message));
    }
    Ok(handle)
}

/// Returns the handle with which a suite's id would begin, if an organization had it.
pub fn in_suite_id(suite_id: &SuiteId) -> Option<&str> {
    let name = suite_id.as_str().strip_prefix("suite:")?;
    name.split_once('.').map(|(handle, _)| handle)
}

/// Returns `true` if a domain that is verified by others reserves the handle: `acme` is the label of
/// `acme.edu` and of `mail.acme.edu` before their public suffix.
pub fn is_reserved_by(handle: &str, domain: &str) -> bool {
    let registrable = super::email_domain::registrable(domain);
    registrable.split('.').next() == Some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_has_one_form() {
        for good in ["ab", "acme", "a-1", "a23456789012345678901234"] {
            assert_eq!(parse("handle", good), Ok(good));
        }
        for bad in [
            "",
            "a",
            "1a",
            "-a",
            "a--b",
            "A1",
            "a.b",
            "a_b",
            "ä1",
            "a2345678901234567890123456",
        ] {
            assert_eq!(parse("handle", bad).unwrap_err().reason, "format", "{bad}");
        }
        let reserved = ["rival".to_owned()];
        for bad in ["admin", "me", "rival"] {
            let error = choose("handle", bad, &reserved).unwrap_err();
            assert_eq!(error.reason, "reserved", "{bad}");
        }
        assert_eq!(choose("handle", "acme", &reserved), Ok("acme"));
    }

    #[test]
    fn domain_reserves_its_own_label() {
        assert!(is_reserved_by("acme", "acme.edu") && is_reserved_by("acme", "mail.acme.co.uk"));
        assert!(!is_reserved_by("acme", "acme.other.edu") && !is_reserved_by("co", "acme.co.uk"));
        let suite_id: SuiteId = "suite:acme.votes.2".parse().unwrap();
        assert_eq!(in_suite_id(&suite_id), Some("acme"));
        assert_eq!(in_suite_id(&"suite:lunch".parse().unwrap()), None);
    }
}
