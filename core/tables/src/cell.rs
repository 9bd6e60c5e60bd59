//! A value of a table, and its JSON.

use std::borrow::Cow;

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell<'a> {
    /// No value.
    Null,
    /// A text.
    Text(Cow<'a, str>),
    /// An integer: JSON.
    Integer(Cow<'a, str>),
    /// A finite number that is no integer, or was not written as one.
    Float {
        /// The number in the form of RFC 8785.
        json: String,
        /// The number as it is written in a format of text.
        written: Option<&'a str>,
    },
    /// A boolean.
    Bool(bool),
    /// An array or an object: JSON without white space between its tokens.
    Json(Cow<'a, str>),
}

/// The reason why a number cannot be stored.
pub(crate) const TOO_LARGE: &str = "the number is too large";

impl<'a> Cell<'a> {
    /// Returns a number that is written as in JSON.
    ///
    /// # Errors
    /// Returns the reason if it is infinite as a double.
    pub(crate) fn number(json: &'a str) -> Result<Self, &'static str> {
        let is_integer = !json.contains(['.', 'e', 'E']);
        let number: f64 = json.parse().map_err(|_| TOO_LARGE)?;
        if !number.is_finite() {
            return Err(TOO_LARGE);
        }
        Ok(match json {
            "-0" => Self::Integer("0".into()),
            _ if is_integer => Self::Integer(json.into()),
            _ => Self::Float {
                json: float_json(number),
                written: Some(json),
            },
        })
    }

    /// Returns a finite number. Integers are written without a fraction, so that a column of integers with
    /// missing values, which many programs store as floats, has the same bytes in all formats.
    pub(crate) fn float(number: f64) -> Self {
        Self::Float {
            json: float_json(number),
            written: None,
        }
    }

    /// Appends the JSON of the value.
    pub(crate) fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Text(text) => write_string(text, out),
            Self::Integer(json) | Self::Json(json) => out.push_str(json),
            Self::Float { json, .. } => out.push_str(json),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
        }
    }

    /// Returns the text of an id, a label or a group's value. `None` for a value that has no one text:
    /// null, a float that is not written as text, an array or an object.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Integer(text) => Some(text),
            Self::Bool(true) => Some("true"),
            Self::Bool(false) => Some("false"),
            Self::Float { written, .. } => *written,
            Self::Null | Self::Json(_) => None,
        }
    }
}

/// Returns a finite number's JSON in RFC 8785 form.
pub(crate) fn float_json(number: f64) -> String {
    ryu_js::Buffer::new().format_finite(number).to_owned()
}

/// Appends a JSON string.
pub(crate) fn write_string(text: &str, out: &mut String) {
    // A string can always be written.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Returns `true` if a text is a number in the grammar of JSON (RFC 8259, section 6). `007` and `+1` are
/// none.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = text.as_bytes();
    rest = rest.strip_prefix(b"-").unwrap_or(rest);
    let n = digits(rest);
    if n == 0 || (n > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[n..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let n = digits(fraction);
        if n == 0 {
            return false;
        }
        rest = &fraction[n..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent
            .strip_prefix(b"-")
            .or_else(|| exponent.strip_prefix(b"+"))
            .unwrap_or(exponent);
        let n = digits(exponent);
        if n == 0 {
            return false;
        }
        rest = &exponent[n..];
    }
    rest.is_empty()
}

/// Returns valid JSON without the white space between its tokens.
pub(crate) fn compact(json: &str) -> Cow<'_, str> {
    let is_white = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    if !json.bytes().any(is_white) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    let (mut is_string, mut is_escaped) = (false, false);
    for character in json.chars() {
        if is_string {
            is_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
        } else if character == '"' {
            is_string = true;
        } else if matches!(character, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        out.push(character);
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_grammar_of_json() {
        for text in ["0", "-0", "10", "-1.5", "0.0", "1e5", "1E+05", "2.5e-3"] {
            assert!(is_number(text), "{text}");
            assert!(serde_json::from_str::<f64>(text).is_ok(), "{text}");
        }
        for text in [
            "", "-", "007", "+1", "1.", ".5", "1e", "1e+", " 1", "1 ", "0x1", "NaN", "inf", "1_0",
            "١",
        ] {
            assert!(!is_number(text), "{text}");
        }
    }

    #[test]
    fn numbers_have_one_form() {
        for (written, json) in [
            ("100000.0", "100000"),
            ("1e5", "100000"),
            ("100000", "100000"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("0.10", "0.1"),
            ("1e-05", "0.00001"),
            ("1e+16", "10000000000000000"),
            ("1e21", "1e+21"),
            ("9007199254740993", "9007199254740993"),
        ] {
            let mut out = String::new();
            Cell::number(written).unwrap().write_json(&mut out);
            assert_eq!(out, json, "{written}");
        }
        assert_eq!(Cell::number("1e999"), Err(TOO_LARGE));
        assert_eq!(Cell::number(&"9".repeat(400)), Err(TOO_LARGE));
    }

    #[test]
    fn white_space_in_strings_is_kept() {
        for (json, expected) in [
            ("{ \"a b\" :\n[1, 2] }", "{\"a b\":[1,2]}"),
            (r#"[ "\" \\", "x y" ]"#, r#"["\" \\","x y"]"#),
            ("[1,2]", "[1,2]"),
        ] {
            assert_eq!(compact(json), expected);
        }
    }
}
