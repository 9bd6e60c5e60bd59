//! The texts for people that a suite's publisher writes, and can change after the publication.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::FieldError;

/// The longest title, link label, in characters.
const TITLE_MAX: usize = 100;

/// The longest description, in characters.
const DESCRIPTION_MAX: usize = 4_000;

/// The longest license and contact, in characters.
const LINE_MAX: usize = 200;

/// The longest citation, in bytes.
const CITATION_BYTES_MAX: usize = 4 * 1024;

/// The most links, and the most tags.
const LIST_MAX: usize = 10;

/// The longest URL of a link, in characters.
const URL_MAX: usize = 2_000;

/// The shortest and the longest tag, in characters.
const TAG_LENGTHS: std::ops::RangeInclusive<usize> = 2..=30;

/// The organizations that can see a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Its owner, and organizations with a grant.
    Private,
    /// Every organization.
    Listed,
    /// Everybody, also without a credential.
    Public,
}

impl Visibility {
    /// Returns the name in `suite.toml` and in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Listed => "listed",
            Self::Public => "public",
        }
    }
}

impl FromStr for Visibility {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        [Self::Private, Self::Listed, Self::Public]
            .into_iter()
            .find(|visibility| visibility.as_str() == text)
            .ok_or("expected one of: private, listed, public")
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A page about a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteLink {
    /// The text of the link: 1 to 100 characters.
    pub label: String,
    /// The address, which begins with `https://`. It is never fetched.
    pub url: String,
}

/// The metadata of a suite. A field that is `None` is not given: the suite keeps what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SuiteMetadata {
    /// The title: 1 to 100 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description: at most 4,000 characters of plain text, with line breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The license: an SPDX expression or an https URL, at most 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The citation, such as BibTeX: at most 4 KiB, with line breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citation: Option<String>,
    /// Pages about the suite: at most 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<Vec<SuiteLink>>,
    /// Tags: at most 10 different ones of 2 to 30 lower-case letters, digits or `-`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The address of the publisher: 1 to 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
}

impl SuiteMetadata {
    /// Returns what is wrong with the fields, in their order; nothing if they can be stored. The reasons
    /// are `required`, `too_long`, `duplicate` and `format`.
    pub fn check(&self) -> Vec<FieldError> {
        let Self {
            title,
            description,
            license,
            citation,
            links,
            tags,
            contact,
        } = self;
        let mut errors = Errors(Vec::new());
        errors.check_line("title", title.as_deref(), TITLE_MAX);
        if let Some(text) = description {
            errors.check_length("description", text.chars().count(), DESCRIPTION_MAX);
            errors.check_characters("description", text, true);
        }
        if let Some(text) = license
            && errors.check_line("license", Some(text), LINE_MAX)
            && !is_https_url(text)
            && !is_spdx_expression(text)
        {
            errors.add(
                "license",
                "format",
                "must be an SPDX expression, such as CC-BY-4.0 or MIT OR Apache-2.0, or a URL that begins with https://",
            );
        }
        if let Some(text) = citation {
            if text.len() > CITATION_BYTES_MAX {
                let message = format!(
                    "has {} bytes; must have at most {CITATION_BYTES_MAX}",
                    text.len()
                );
                errors.add("citation", "too_long", message);
            }
            errors.check_characters("citation", text, true);
        }
        if let Some(links) = links {
            errors.check_count("links", links.len());
            for (at, SuiteLink { label, url }) in links.iter().enumerate() {
                errors.check_line(&format!("links[{at}].label"), Some(label), TITLE_MAX);
                let field = format!("links[{at}].url");
                if errors.check_line(&field, Some(url), URL_MAX) && !is_https_url(url) {
                    let message = "must be a URL that begins with https://, with other characters than ASCII percent-encoded";
                    errors.add(&field, "format", message);
                }
            }
        }
        if let Some(tags) = tags {
            errors.check_count("tags", tags.len());
            let mut seen = HashSet::new();
            for (at, tag) in tags.iter().enumerate() {
                let field = format!("tags[{at}]");
                if !is_tag(tag) {
                    let message = "must have 2 to 30 lower-case letters a to z, digits or '-'";
                    errors.add(&field, "format", message);
                } else if !seen.insert(tag) {
                    errors.add(&field, "duplicate", "is given twice; remove one");
                }
            }
        }
        errors.check_line("contact", contact.as_deref(), LINE_MAX);
        errors.0
    }
}

struct Errors(Vec<FieldError>);

impl Errors {
    fn add(&mut self, field: &str, reason: &'static str, message: impl Into<String>) {
        self.0.push(FieldError::new(field, reason, message));
    }

    /// Checks a text of one line, and returns whether it is valid.
    fn check_line(&mut self, field: &str, text: Option<&str>, max: usize) -> bool {
        let Some(text) = text else {
            return true;
        };
        let n_errors = self.0.len();
        if text.trim().is_empty() {
            self.add(field, "required", "must not be empty");
        }
        self.check_length(field, text.chars().count(), max);
        self.check_characters(field, text, false);
        self.0.len() == n_errors
    }

    fn check_length(&mut self, field: &str, n: usize, max: usize) {
        if n > max {
            let message = format!("has {n} characters; must have at most {max}");
            self.add(field, "too_long", message);
        }
    }

    fn check_count(&mut self, field: &str, n: usize) {
        if n > LIST_MAX {
            let message = format!("has {n} elements; must have at most {LIST_MAX}");
            self.add(field, "too_long", message);
        }
    }

    fn check_characters(&mut self, field: &str, text: &str, takes_lines: bool) {
        let unbroken = text.replace("\r\n", "\n");
        let is_bad = |character: char| {
            (character.is_control() && !(takes_lines && character == '\n'))
                || is_bidirectional(character)
        };
        if let Some(character) = unbroken.chars().find(|character| is_bad(*character)) {
            let message = format!(
                "must not have the character U+{:04X}; control characters and those that change the direction of text are not allowed",
                u32::from(character)
            );
            self.add(field, "format", message);
        }
    }
}

/// Returns `true` for a character that changes the direction of text, with which a text can look like
/// another one (UAX #9).
pub const fn is_bidirectional(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    TAG_LENGTHS.contains(&tag.len()) && tag.bytes().all(is_word)
}

/// Returns `true` for an absolute URL with the scheme https, a host and no credentials.
fn is_https_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    host.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
        && host.bytes().all(is_host)
        && rest.bytes().all(is_allowed)
}

/// Returns `true` if a text has the syntax of a license expression (SPDX 2.3, annex D). Whether the
/// names are on the list of licenses is not checked.
fn is_spdx_expression(text: &str) -> bool {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut depth = 0_usize;
    // Set if a name must follow.
    let mut is_open = true;
    // Set if the last word is a license, which may have an exception.
    let mut takes_exception = false;
    let mut after_with = false;
    for word in spaced.split_ascii_whitespace() {
        let fits = match word {
            "(" => {
                depth += 1;
                is_open && !after_with
            }
            ")" => {
                let closes = !is_open && depth > 0;
                depth = depth.saturating_sub(1);
                takes_exception = false;
                closes
            }
            "AND" | "OR" => {
                let fits = !is_open;
                (is_open, takes_exception) = (true, false);
                fits
            }
            "WITH" => {
                let fits = takes_exception;
                (is_open, after_with, takes_exception) = (true, true, false);
                fits
            }
            name => {
                let fits = is_open && is_license_name(name);
                takes_exception = !after_with;
                (is_open, after_with) = (false, false);
                fits
            }
        };
        if !fits {
            return false;
        }
    }
    !is_open && depth == 0
}

fn is_license_name(word: &str) -> bool {
    let name = word.strip_suffix('+').unwrap_or(word);
    let is_id = |id: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        !id.is_empty() && id.bytes().all(is_letter)
    };
    match name.split_once(':') {
        Some((document, license)) => {
            document.strip_prefix("DocumentRef-").is_some_and(is_id)
                && license.strip_prefix("LicenseRef-").is_some_and(is_id)
        }
        None => is_id(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(metadata: &SuiteMetadata) -> Vec<(String, &'static str)> {
        let errors = metadata.check();
        errors
            .into_iter()
            .map(|error| (error.field, error.reason))
            .collect()
    }

    fn link(label: &str, url: &str) -> SuiteLink {
        SuiteLink {
            label: label.into(),
            url: url.into(),
        }
    }

    #[test]
    fn longest_values_are_accepted() {
        let full = SuiteMetadata {
            title: Some("ü".repeat(100)),
            description: Some("ü\r\n".to_owned() + &"ü\n".repeat(1_998)),
            license: Some("LGPL-2.1-only OR (MIT AND BSD-3-Clause)".into()),
            citation: Some("x".repeat(4_096)),
            links: Some(vec![link("Paper", "https://acme.example/votes?a=b#c"); 10]),
            tags: Some((0..10).map(|at| format!("tag-{at}")).collect()),
            contact: Some("votes@acme.example".into()),
        };
        assert_eq!(errors(&full), []);
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<SuiteMetadata>(&json).unwrap(), full);
        assert_eq!(
            serde_json::to_string(&SuiteMetadata::default()).unwrap(),
            "{}"
        );
    }

    #[test]
    fn invalid_values_are_named() {
        let bad = SuiteMetadata {
            title: Some("a\u{202e}b".into()),
            description: Some("x".repeat(4_001)),
            license: Some("my own".into()),
            citation: Some("ü".repeat(2_049)),
            links: Some(vec![
                link("", "http://acme.example"),
                link("a\nb", "https://user@acme.example"),
            ]),
            tags: Some(vec!["a".into(), "Votes".into(), "ok".into(), "ok".into()]),
            contact: Some(String::new()),
        };
        let expected = [
            ("title", "format"),
            ("description", "too_long"),
            ("license", "format"),
            ("citation", "too_long"),
            ("links[0].label", "required"),
            ("links[0].url", "format"),
            ("links[1].label", "format"),
            ("links[1].url", "format"),
            ("tags[0]", "format"),
            ("tags[1]", "format"),
            ("tags[3]", "duplicate"),
            ("contact", "required"),
        ];
        let found = errors(&bad);
        let found: Vec<_> = found
            .iter()
            .map(|(field, reason)| (field.as_str(), *reason))
            .collect();
        assert_eq!(found, expected);
        let many = SuiteMetadata {
            links: Some(vec![link("a", "https://a.example"); 11]),
            tags: Some((10..21).map(|at| format!("tag-{at}")).collect()),
            ..SuiteMetadata::default()
        };
        let expected = [("links", "too_long"), ("tags", "too_long")];
        assert_eq!(errors(&many), expected.map(|(f, r)| (f.to_owned(), r)));
        for text in ["a\tb", "a\rb", "a\0", "\u{2067}", "\u{61c}", "\u{85}"] {
            let bad = SuiteMetadata {
                description: Some(text.into()),
                ..SuiteMetadata::default()
            };
            assert_eq!(
                errors(&bad),
                [("description".to_owned(), "format")],
                "{text:?}"
            );
        }
    }

    #[test]
    fn license_has_syntax_of_spdx() {
        for text in [
            "CC-BY-4.0",
            "GPL-2.0+",
            "MIT OR Apache-2.0",
            "(MIT)",
            "GPL-2.0-or-later WITH Bison-exception-2.2",
            "DocumentRef-a:LicenseRef-b AND (MIT OR (ISC AND 0BSD))",
        ] {
            assert!(is_spdx_expression(text), "{text}");
        }
        for text in [
            "",
            "CC BY 4.0",
            "MIT OR",
            "OR MIT",
            "MIT or ISC",
            "(MIT",
            "MIT)",
            "()",
            "(MIT) WITH x",
            "MIT WITH a WITH b",
            "MIT WITH (a)",
            "a:b",
            "MIT/ISC",
        ] {
            assert!(!is_spdx_expression(text), "{text}");
        }
    }

    #[test]
    fn link_is_absolute_and_has_no_credentials() {
        for url in ["https://a.example", "https://a.example:8443/%C3%BC?x=(1)"] {
            assert!(is_https_url(url), "{url}");
        }
        for url in [
            "https://",
            "https:///x",
            "HTTPS://a.example",
            "https://a b",
            "https://a.example/ü",
            "https://a:b@c.example",
            "https://a.example/\"",
            "javascript:alert(1)",
        ] {
            assert!(!is_https_url(url), "{url}");
        }
    }
}
