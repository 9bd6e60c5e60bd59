//! Validates single request fields, shared by REST and gRPC.

use std::fmt;
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use utoipa::openapi::schema::{KnownFormat, Object, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::date::{Date, MalformedDate};
use crate::model::ids::SuiteId;
use crate::model::timestamp::Timestamp;
use assay_eval::FieldError;
use assay_eval::suite::is_bidirectional;

/// Maximum name or label length, in characters.
pub const TEXT_MAX: usize = 200;

/// Maximum length of an email address, in bytes: the longest that an SMTP envelope can contain.
const EMAIL_MAX: usize = 254;

/// Maximum length of a domain, in bytes.
pub const DOMAIN_MAX: usize = 253;

/// Maximum email address length before the `@`, in bytes.
const LOCAL_MAX: usize = 64;

/// A [`text`]'s schema.
pub struct Text;

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        let pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
        let schema = Object::builder()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(TEXT_MAX));
        schema
            .pattern(Some(pattern))
            .description(Some(
                "It is trimmed, and must not be blank or contain control characters.",
            ))
            .into()
    }
}

impl ToSchema for Text {}

/// An [`email`]'s schema.
pub struct Email;

impl PartialSchema for Email {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::format(
            KnownFormat::Email,
            "An email address.",
            EMAIL_MAX,
            "ada@example.org",
        )
    }
}

impl ToSchema for Email {}

/// A [`domain`]'s schema.
pub struct Domain;

impl PartialSchema for Domain {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::format(
            KnownFormat::Hostname,
            "A domain name.",
            DOMAIN_MAX,
            "example.org",
        )
    }
}

impl ToSchema for Domain {}

/// A page size's schema, as [`limit`] accepts it.
pub struct PageSize<const DEFAULT: u32, const MAX: u32>;

impl<const DEFAULT: u32, const MAX: u32> PartialSchema for PageSize<DEFAULT, MAX> {
    fn schema() -> RefOr<Schema> {
        let schema = Object::builder()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(MAX));
        schema.default(Some(DEFAULT.into())).into()
    }
}

impl<const DEFAULT: u32, const MAX: u32> ToSchema for PageSize<DEFAULT, MAX> {}

/// Validates a string for people, such as a name, and returns it trimmed.
///
/// # Errors
/// A field error if it has more than [`TEXT_MAX`] characters, is blank or contains control
/// characters.
pub fn text(field: &str, value: &str) -> Result<String, FieldError> {
    text_up_to(field, value, TEXT_MAX)
}

/// Validates a [`text`] with another limit, in characters.
///
/// # Errors
/// As [`text`].
pub fn text_up_to(field: &str, value: &str, max: usize) -> Result<String, FieldError> {
    // The limit includes white space at the ends, so that a schema can state it.
    if value.chars().count() > max {
        return Err(FieldError::new(
            field,
            "range",
            format!("at most {max} characters"),
        ));
    }
    let trimmed = value.trim();
    if value.is_empty() {
        return Err(FieldError::required(field));
    }
    if trimmed.is_empty() {
        // The field may be optional.
        return Err(FieldError::new(field, "required", "must not be blank"));
    }
    // PostgreSQL cannot store NUL, and names contain no other control characters, not even at their
    // ends.
    if value.chars().any(char::is_control) {
        return Err(FieldError::new(
            field,
            "format",
            "must not contain control characters",
        ));
    }
    Ok(trimmed.to_owned())
}

/// Validates a reason that others read: a [`text`] of 1 to 200 characters, without characters that change the
/// direction of text.
///
/// # Errors
/// As [`text`], and `format` for such a character.
pub fn reason(value: &str) -> Result<String, FieldError> {
    let reason = text("reason", value)?;
    if reason.chars().any(is_bidirectional) {
        let message = "must not contain characters that change the direction of text";
        return Err(FieldError::new("reason", "format", message));
    }
    Ok(reason)
}

/// Checks that a secret or a version that a caller repeats is present and has no control characters.
///
/// # Errors
/// A field error otherwise.
pub fn repeated_text(field: &str, value: &str) -> Result<(), FieldError> {
    if value.is_empty() {
        Err(FieldError::required(field))
    } else if value.chars().any(char::is_control) {
        let message = "must not contain control characters";
        Err(FieldError::new(field, "format", message))
    } else {
        Ok(())
    }
}

/// Validates an email address and returns the normalized form in which addresses are compared:
/// trimmed, in lower case, the domain in ASCII as IDNA writes it.
pub fn email(field: &str, value: &str) -> Result<String, FieldError> {
    let value = value.trim();
    if value.is_empty() {
        return Err(FieldError::required(field));
    }
    let address = value.rsplit_once('@').and_then(|(local, domain)| {
        Some(format!("{}@{}", local_part(local)?, ascii_domain(domain)?))
    });
    match address {
        Some(address) if address.len() <= EMAIL_MAX => Ok(address),
        Some(_) => Err(FieldError::new(
            field,
            "range",
            format!("at most {EMAIL_MAX} characters"),
        )),
        None => Err(FieldError::new(
            field,
            "format",
            "must be an email address, such as ada@example.org",
        )),
    }
}

/// Returns the mailbox that receives what is sent to a normalized address: without its sub-address, the
/// part from a `+` on before the `@` (RFC 5233). One person has as many sub-addresses as they want.
pub fn mailbox(email: &str) -> String {
    match email.rsplit_once('@') {
        Some((local, domain)) => {
            let user = local.split('+').next().filter(|user| !user.is_empty());
            format!("{}@{domain}", user.unwrap_or(local))
        }
        None => email.to_owned(),
    }
}

/// Returns the part before the `@` in lower case, if it is valid. It must be ASCII before it is
/// converted: other letters become ASCII in lower case, and then two users would have one address.
fn local_part(local: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let is_well_formed = local.len() <= LOCAL_MAX
        && local
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(allowed));
    is_well_formed.then(|| local.to_ascii_lowercase())
}

/// Validates a domain and returns the normalized form in which domains are compared: in ASCII as
/// IDNA (UTS 46) writes it, in lower case, without a dot at its end, at most 253 characters.
pub fn domain(field: &str, value: &str) -> Result<String, FieldError> {
    let value = value.trim();
    if value.is_empty() {
        return Err(FieldError::required(field));
    }
    ascii_domain(value.strip_suffix('.').unwrap_or(value)).ok_or_else(|| {
        FieldError::new(
            field,
            "format",
            "must be a domain of at most 253 characters, such as example.org",
        )
    })
}

fn ascii_domain(value: &str) -> Option<String> {
    // A longer string is never a domain, so converting it would waste time.
    let short = Some(value).filter(|value| value.len() <= 1024)?;
    let ascii = Uts46::new()
        .to_ascii(
            short.as_bytes(),
            AsciiDenyList::STD3,
            Hyphens::CheckFirstLast,
            DnsLength::Verify,
        )
        .ok()?;
    // IP addresses end in a number. Domains do not.
    let ends_in_number = ascii
        .rsplit('.')
        .next()
        .is_none_or(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    (!ends_in_number).then(|| ascii.into_owned())
}

/// Validates the size of a page, from 1 to `max`. Returns `default` if it is absent.
pub fn limit(value: Option<i64>, default: u32, max: u32) -> Result<u32, FieldError> {
    value.map_or(Ok(default), |value| count("limit", value, max))
}

/// Validates a count, or a number in a series: from 1 to `max`.
pub fn count<T>(field: &str, value: i64, max: T) -> Result<T, FieldError>
where
    T: Copy + PartialOrd + From<u8> + TryFrom<i64> + fmt::Display,
{
    let within = |count: &T| (T::from(1)..=max).contains(count);
    let valid = T::try_from(value).ok().filter(within);
    valid.ok_or_else(|| {
        let message = format!("must be an integer from 1 to {max}");
        FieldError::new(field, "range", message)
    })
}

/// Parses a value in a closed set. The error lists the allowed values.
pub fn one_of<T: FromStr<Err = String>>(field: &str, value: &str) -> Result<T, FieldError> {
    value
        .parse()
        .map_err(|message| FieldError::new(field, "unknown_value", message))
}

/// Parses a suite's id, which need not exist.
pub fn suite_id(field: &str, value: &str) -> Result<SuiteId, FieldError> {
    value.parse().map_err(|_| {
        let message = "must be `suite:` and 1 to 64 lower-case letters, digits, `.`, `_` or `-`";
        FieldError::new(field, "format", message)
    })
}

/// Parses a day.
pub fn date(field: &str, value: &str) -> Result<Date, FieldError> {
    value
        .parse()
        .map_err(|error: MalformedDate| FieldError::new(field, "format", error.to_string()))
}

/// Parses a timestamp in RFC 3339.
pub fn timestamp(field: &str, value: &str) -> Result<Timestamp, FieldError> {
    value.parse().map_err(|_| {
        FieldError::new(
            field,
            "format",
            "must be an RFC 3339 timestamp, such as 2026-01-31T23:59:59.000000Z; in an address, write the + of an \
             offset as %2B",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_trimmed_and_bounded() {
        assert_eq!(text("name", "  ci  ").unwrap(), "ci");
        for (value, reason) in [
            ("", "required"),
            ("   ", "required"),
            ("a\0b", "format"),
            ("\ta", "format"),
            ("a\n", "format"),
            (&"x".repeat(201) as &str, "range"),
            (&" ".repeat(201), "range"),
        ] {
            assert_eq!(text("name", value).unwrap_err().reason, reason, "{value:?}");
        }
    }

    #[test]
    fn email_addresses_are_normalized() {
        for (given, normalized) in [
            (" Ada@Example.ORG ", "ada@example.org"),
            ("ada+x@BÜCHER.example", "ada+x@xn--bcher-kva.example"),
            ("ada@XN--bcher-kva.example", "ada@xn--bcher-kva.example"),
            ("ada@example\u{3002}org", "ada@example.org"),
            ("o'brien.a_b@r3---sn.example", "o'brien.a_b@r3---sn.example"),
        ] {
            assert_eq!(email("email", given).as_deref(), Ok(normalized), "{given}");
        }
        let longest = format!(
            "{}@{}.example",
            "a".repeat(64),
            [&"b".repeat(63) as &str; 2].join(".")
        );
        assert_eq!(email("email", &longest).as_deref(), Ok(longest.as_str()));
        for bad in [
            "ada",
            "@example.org",
            "ada@",
            "a@b@c",
            "a b@c.d",
            "ada@.org",
            "ada@example.org.",
            "a..b@example.org",
            ".a@example.org",
            "\"a\"@example.org",
            "ada@127.0.0.1",
            "ada@[::1]",
            "ada@exa_mple.org",
            "ada@example.org\0",
            "a\r\nb@example.org",
            // A Kelvin sign, which is k in lower case, and a dotless i, which is I in upper case.
            "\u{212a}@example.org",
            "\u{131}@example.org",
            "ä@example.org",
            &format!("{}@example.org", "a".repeat(65)),
            &format!("a@{}.org", "b".repeat(64)),
        ] {
            assert_eq!(email("email", bad).unwrap_err().reason, "format", "{bad:?}");
        }
        let too_long = format!("{}@{}", "a".repeat(64), ["b"; 95].join("."));
        assert_eq!(too_long.len(), 254);
        assert!(email("email", &too_long).is_ok());
        assert_eq!(
            email("email", &format!("{too_long}.bb"))
                .unwrap_err()
                .reason,
            "range"
        );
        assert_eq!(email("email", "  ").unwrap_err().reason, "required");
    }

    #[test]
    fn sub_addresses_belong_to_one_mailbox() {
        for (address, expected) in [
            ("ada@example.org", "ada@example.org"),
            ("ada+x@example.org", "ada@example.org"),
            ("ada+x+y@example.org", "ada@example.org"),
            ("+x@example.org", "+x@example.org"),
        ] {
            assert_eq!(mailbox(address), expected);
        }
    }

    #[test]
    fn domains_are_normalized() {
        for (given, normalized) in [
            (" Example.ORG. ", "example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("ﬁnance.example", "finance.example"),
        ] {
            assert_eq!(
                domain("domain", given).as_deref(),
                Ok(normalized),
                "{given}"
            );
        }
        let longest = [
            &"a".repeat(63) as &str,
            &"b".repeat(63),
            &"c".repeat(63),
            &"d".repeat(61),
        ]
        .join(".");
        assert_eq!(
            (longest.len(), domain("domain", &longest).as_deref()),
            (253, Ok(longest.as_str()))
        );
        for bad in [
            "..",
            "a..b",
            "-a.example",
            "a-.example",
            "1.2.3.4",
            "[::1]",
            "a b.c",
            "a_b.c",
            "a\0.c",
            "http://a.b",
            "*.a.b",
            &format!("{longest}d"),
        ] {
            assert_eq!(
                domain("domain", bad).unwrap_err().reason,
                "format",
                "{bad:?}"
            );
        }
        assert_eq!(domain("domain", ".").unwrap_err().reason, "format");
        assert_eq!(domain("domain", " ").unwrap_err().reason, "required");
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
