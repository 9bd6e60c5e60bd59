//! Readers of the fields of a JSON object and of the parameters of a query. A response reports all
//! field errors at once.

use std::borrow::Cow;
use std::fmt;

use assay_core::{Code, Error, Result};
use assay_eval::FieldError;
use assay_eval::json::{DEPTH_MAX, depth, skip_string, skip_value};
use http::Uri;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Maximum number of fields of a body, and of parameters of a query. No operation has as many.
const FIELDS_MAX: usize = 32;

/// An object whose keys are distinct: of two values of one key, none is the right one.
struct UniqueKeys(Map<String, Value>);

impl<'de> serde::Deserialize<'de> for UniqueKeys {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        struct Unique;

        impl<'de> Visitor<'de> for Unique {
            type Value = UniqueKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut entries: A,
            ) -> std::result::Result<UniqueKeys, A::Error> {
                let mut map = Map::new();
                while let Some(key) = entries.next_key::<String>()? {
                    let value = entries.next_value()?;
                    if map.contains_key(&key) {
                        let message = format!("has the key {key:?} twice");
                        return Err(serde::de::Error::custom(message));
                    }
                    map.insert(key, value);
                }
                Ok(UniqueKeys(map))
            }
        }

        deserializer.deserialize_map(Unique)
    }
}

/// The fields of a request body. Each known field is read once. The fields that remain at the end
/// are unknown and rejected.
pub struct Fields<'a> {
    /// The names of the fields and the JSON of their values.
    fields: Vec<(Cow<'a, str>, &'a str)>,
    errors: Vec<FieldError>,
    too_many: bool,
    /// The body, if the value of one of its fields has not been parsed.
    unparsed: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Parses a body.
    ///
    /// # Errors
    /// 400 if the body is not JSON, 422 if it is not an object or has too many fields.
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let malformed = |error: String| {
            Error::new(
                Code::InvalidRequest,
                format!("The body is not JSON: {error}"),
            )
        };
        let text = std::str::from_utf8(body).map_err(|_| malformed("invalid UTF-8".into()))?;
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if depth(raw.get().as_bytes()) > DEPTH_MAX {
            return Err(malformed(format!(
                "it is nested deeper than {DEPTH_MAX} levels"
            )));
        }
        if !raw.get().starts_with('{') {
            return Err(Error::field("body", "type", "must be a JSON object"));
        }
        let mut read = Self {
            fields: Vec::new(),
            errors: Vec::new(),
            too_many: false,
            unparsed: None,
        };
        let mut json = serde_json::Deserializer::from_str(raw.get());
        Object(&mut read)
            .deserialize(&mut json)
            .map_err(|error| malformed(error.to_string()))?;
        if read.too_many {
            return Err(Error::field(
                "body",
                "range",
                format!("must not have more than {FIELDS_MAX} fields"),
            ));
        }
        Ok(read)
    }

    /// Parses a body except the value of the field `large`, which the caller must parse: it may be
    /// malformed, and then the body is not JSON.
    ///
    /// # Errors
    /// As [`Fields::read`].
    pub fn read_except(body: &'a [u8], large: &str) -> Result<Self> {
        Self::skim(body, large).map_or_else(|| Self::read(body), Ok)
    }

    /// Parses a body as [`Fields::read_except`] does. `None` on anything unusual, which
    /// [`Fields::read`] then reports.
    fn skim(body: &'a [u8], large: &str) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let after_space = |at: usize| {
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            at + body[at..].iter().take_while(is_space).count()
        };
        let after = |at: usize, byte: u8| (body.get(at) == Some(&byte)).then_some(at + 1);
        let mut fields = Vec::new();
        let mut at = after(after_space(0), b'{')?;
        loop {
            let key_at = after_space(at);
            after(key_at, b'"')?;
            let key_end = skip_string(body, key_at)?;
            let key = &text[key_at + 1..key_end - 1];
            let value_at = after_space(after(after_space(key_end), b':')?);
            let value = skip_value(text, value_at)?;
            let json = &text[value_at..value.end];
            let is_unusual = key.contains('\\')
                || fields.iter().any(|(field, _)| field == key)
                || fields.len() == FIELDS_MAX
                || value.depth >= DEPTH_MAX;
            if is_unusual || (key != large && serde_json::from_str::<IgnoredAny>(json).is_err()) {
                return None;
            }
            fields.push((Cow::Borrowed(key), json));
            at = after_space(value.end);
            match body.get(at)? {
                b',' => at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        (after_space(at + 1) == body.len()).then_some(Self {
            fields,
            errors: Vec::new(),
            too_many: false,
            unparsed: Some(body),
        })
    }

    /// Returns the JSON text of a field, verbatim. `null` is the same as absence.
    pub fn raw(&mut self, name: &'static str) -> Option<&'a str> {
        let at = self.fields.iter().position(|(field, _)| field == name)?;
        let (_, raw) = self.fields.swap_remove(at);
        (raw != "null").then_some(raw)
    }

    /// Returns a string, or `None` if the field is absent or not a valid string.
    pub fn optional_string(&mut self, name: &'static str) -> Option<String> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw) {
            Ok(text) => Some(text),
            Err(_) if raw.starts_with('"') => {
                self.fail(FieldError::new(name, "format", "is not valid Unicode"))
            }
            Err(_) => self.fail(FieldError::new(name, "type", "must be a string")),
        }
    }

    /// Returns an array of strings, or `None` if the field is absent or not such an array.
    pub fn optional_strings(&mut self, name: &'static str) -> Option<Vec<String>> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw) {
            Ok(texts) => Some(texts),
            Err(_) => self.fail(FieldError::new(name, "type", "must be an array of strings")),
        }
    }

    /// Returns an array of objects with known fields, or `None` if the field is absent or not such an array.
    pub fn optional_objects<T: Deserialize<'a>>(&mut self, name: &'static str) -> Option<Vec<T>> {
        self.optional_typed(name, "a list of objects")
    }

    /// Returns a value whose objects have known fields, or `None` if the field is absent or not what is expected.
    pub fn optional_typed<T: Deserialize<'a>>(
        &mut self,
        name: &'static str,
        expected: &str,
    ) -> Option<T> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw) {
            Ok(value) => Some(value),
            Err(error) => {
                let message = format!("must be {expected} with the documented fields: {error}");
                self.fail(FieldError::new(name, "type", message))
            }
        }
    }

    /// Adds an error for each of these fields, so that it is not reported as unknown.
    pub fn reject(&mut self, names: &[&str], reason: &'static str, message: &str) {
        let (rejected, rest) = std::mem::take(&mut self.fields)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.as_ref()));
        self.fields = rest;
        let rejected: Vec<(Cow<'_, str>, &str)> = rejected;
        let errors = rejected
            .into_iter()
            .map(|(name, _)| FieldError::new(name, reason, message));
        self.errors.extend(errors);
    }

    /// Returns a boolean, or `None` if the field is absent or not a boolean.
    pub fn optional_boolean(&mut self, name: &'static str) -> Option<bool> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw) {
            Ok(flag) => Some(flag),
            Err(_) => self.fail(FieldError::new(name, "type", "must be true or false")),
        }
    }

    /// Returns a required string, or an empty one if the field is absent or not a valid string.
    pub fn string(&mut self, name: &'static str) -> String {
        let is_present = self
            .fields
            .iter()
            .any(|(field, raw)| field == name && *raw != "null");
        if is_present {
            return self.optional_string(name).unwrap_or_default();
        }
        self.raw(name);
        self.fail::<String>(FieldError::required(name))
            .unwrap_or_default()
    }

    /// Returns an integer, or `None` if the field is absent or not an integer. JSON does not
    /// distinguish `2`, `2.0` and `2e0`.
    pub fn optional_integer(&mut self, name: &'static str) -> Option<i64> {
        let raw = self.raw(name)?;
        // Larger floats do not represent every integer, so the value would be ambiguous.
        let exact = |number: &f64| {
            number.fract() == 0.0 && number.abs() <= (1_i64 << f64::MANTISSA_DIGITS) as f64
        };
        let float = || {
            serde_json::from_str(raw)
                .ok()
                .filter(exact)
                .map(|number| number as i64)
        };
        match serde_json::from_str::<serde_json::Number>(raw) {
            Err(_) => self.fail(FieldError::new(name, "type", "must be an integer")),
            Ok(number) => match number.as_i64().or_else(float) {
                Some(integer) => Some(integer),
                None => self.fail(FieldError::new(name, "range", "must be an integer")),
            },
        }
    }

    /// Returns a finite number, or `None` if the field is absent or not a number.
    pub fn optional_number(&mut self, name: &'static str) -> Option<f64> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw) {
            Ok(number) => Some(number),
            Err(_) => self.fail(FieldError::new(name, "type", "must be a number")),
        }
    }

    /// Returns an object whose fields the caller chooses, such as metadata.
    pub fn optional_map(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        let raw = self.raw(name)?;
        if !raw.starts_with('{') {
            return self.fail(FieldError::new(name, "type", "must be an object"));
        }
        match serde_json::from_str(raw) {
            Ok(UniqueKeys(map)) => Some(map),
            Err(error) => {
                // The JSON of the body is valid, so this is a repeated key.
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                self.fail(FieldError::new(name, "duplicate", message))
            }
        }
    }

    /// Returns the fields of an object, or `None` if the field is absent or not an object. End their
    /// reading with [`Fields::finish_object`].
    pub fn optional_object(&mut self, name: &'static str) -> Option<Self> {
        let raw = self.raw(name)?;
        if !raw.starts_with('{') {
            return self.fail(FieldError::new(name, "type", "must be an object"));
        }
        match Self::read(raw.as_bytes()) {
            Ok(fields) => Some(fields),
            Err(error) => self.fail(FieldError::new(name, "range", error.message)),
        }
    }

    /// Ends the reading of the object of a field, and adds its errors with paths such as
    /// `parameters.top_k`.
    pub fn finish_object(&mut self, name: &'static str, object: Self) {
        let Self { fields, errors, .. } = object;
        let unknown = fields.into_iter().map(|(field, _)| unknown(&field));
        let errors = errors.into_iter().chain(unknown);
        self.errors.extend(errors.map(|error| FieldError {
            field: format!("{name}.{}", error.field),
            ..error
        }));
    }

    /// Adds the errors of a field's value, and returns `None` as the value.
    pub fn fail_all<T>(&mut self, errors: Vec<FieldError>) -> Option<T> {
        self.errors.extend(errors);
        None
    }

    /// Adds a field error, and returns `None` as the value of the field.
    fn fail<T>(&mut self, error: FieldError) -> Option<T> {
        self.errors.push(error);
        None
    }

    /// Ends the reading, and adds an error for each unknown field.
    ///
    /// # Errors
    /// 422 with all field errors, or 400 if there are some and the body is not JSON.
    pub fn finish(mut self) -> Result<()> {
        let unknown = self.fields.iter().map(|(name, _)| unknown(name));
        self.errors.extend(unknown);
        if self.errors.is_empty() {
            return Ok(());
        }
        if let Some(body) = self.unparsed {
            Self::read(body)?;
        }
        Err(Error::fields(self.errors))
    }
}

/// Returns the error of a field that no operation reads.
fn unknown(field: &str) -> FieldError {
    FieldError::new(field, "unknown_field", "is not a known field")
}

/// Deserializes an object into the fields, and adds an error for each repeated key.
struct Object<'r, 'a>(&'r mut Fields<'a>);

impl<'a> DeserializeSeed<'a> for Object<'_, 'a> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Fields {
            fields,
            errors,
            too_many,
            unparsed: _,
        } = self.0;
        while let Some(Key(name)) = map.next_key()? {
            if fields.len() + errors.len() >= FIELDS_MAX {
                // The rest is skipped, so that neither the time nor the response grows with it.
                map.next_value::<IgnoredAny>()?;
                *too_many = true;
            } else if fields.iter().any(|(field, _)| *field == name) {
                map.next_value::<IgnoredAny>()?;
                errors.push(FieldError::new(
                    name.as_ref(),
                    "duplicate",
                    "must be given once",
                ));
            } else {
                fields.push((name, map.next_value::<&RawValue>()?.get()));
            }
        }
        Ok(())
    }
}

/// A key of an object, borrowed unless it has escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E: serde::de::Error>(
                self,
                text: &'de str,
            ) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The parameters of a query. Unknown parameters are rejected, as unknown fields are, so that a
/// typo is reported.
pub struct Query {
    parameters: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Query {
    /// Parses the query of a URI.
    pub fn read(uri: &Uri) -> Self {
        let mut read = Self {
            parameters: Vec::new(),
            errors: Vec::new(),
        };
        let pairs = uri.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()).take(FIELDS_MAX) {
            let Some((name, value)) = form_urlencoded::parse(pair.as_bytes()).next() else {
                continue;
            };
            let is_repeated = read
                .parameters
                .iter()
                .any(|(parameter, _)| *parameter == name);
            // The parser replaces such bytes, so the operation would select by another text.
            let is_utf8 = percent_decode_str(pair).decode_utf8().is_ok();
            if is_repeated {
                read.errors
                    .push(FieldError::new(name, "duplicate", "must be given once"));
            } else {
                if !is_utf8 {
                    read.errors
                        .push(FieldError::new(&*name, "format", "must be UTF-8"));
                }
                read.parameters
                    .push((name.into_owned(), value.into_owned()));
            }
        }
        read
    }

    /// Returns a parameter, or `None` if it is absent.
    pub fn string(&mut self, name: &'static str) -> Option<String> {
        let at = self
            .parameters
            .iter()
            .position(|(parameter, _)| parameter == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Returns an integer, or `None` if the parameter is absent or not an integer.
    pub fn integer(&mut self, name: &'static str) -> Option<i64> {
        let text = self.string(name)?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        match text.parse() {
            Ok(number) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(number),
            _ => {
                self.errors
                    .push(FieldError::new(name, "type", "must be an integer"));
                None
            }
        }
    }

    /// Ends the reading, and adds an error for each unknown parameter.
    ///
    /// # Errors
    /// 422 with all field errors.
    pub fn finish(mut self) -> Result<()> {
        let unknown = self
            .parameters
            .into_iter()
            .map(|(name, _)| FieldError::new(name, "unknown_field", "is not a known parameter"));
        self.errors.extend(unknown);
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(Error::fields(self.errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_core::Details;

    fn reasons(result: Result<()>) -> Vec<(String, &'static str)> {
        match result.unwrap_err().details {
            Some(Details::Fields { fields }) => fields
                .into_iter()
                .map(|error| (error.field, error.reason))
                .collect(),
            other => unreachable!("{other:?}"),
        }
    }

    fn read(body: &str) -> Result<()> {
        let mut fields = Fields::read(body.as_bytes())?;
        fields.string("name");
        fields.optional_string("label");
        fields.finish()
    }

    #[test]
    fn field_errors_are_reported_together() {
        let errors = reasons(read(r#"{"label": 7, "nmae": "x", "label": 8}"#));
        let expected = [
            ("label", "duplicate"),
            ("name", "required"),
            ("label", "type"),
            ("nmae", "unknown_field"),
        ];
        assert_eq!(
            errors,
            expected.map(|(field, reason)| (field.to_owned(), reason))
        );
    }

    #[test]
    fn bodies_are_read_alike_except_large_value() {
        let names = ["a", "b", "large"];
        let read = |fields: Result<Fields<'_>>| {
            let mut fields = fields.map_err(|error| (error.code, error.message))?;
            let values = names.map(|name| fields.raw(name).map(str::to_owned));
            let finished = fields.finish();
            finished.map_err(|error| (error.code, error.message))?;
            Ok::<_, (Code, Cow<'static, str>)>(values)
        };
        for body in [
            "{}",
            " { } ",
            r#"{"a": 1}"#,
            r#" { "large" : [ {"x": "]}"} ] , "a":"\u0041" , "b" : null } "#,
            r#"{"a": {"b": [1, 2]}, "large": [[]]}"#,
            r#"{"large": null, "a": []}"#,
            r#"{"\u0061": 1}"#,
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": 1, "c": 2}"#,
            r#"{"a": 1, "c": 2, "large": [}"#,
            r#"{"a": 1,}"#,
            r#"{"a": 1} x"#,
            r#"{"a": 1"#,
            r#"{"a" 1}"#,
            r#"{"a": }"#,
            r#"{"a": 01}"#,
            r#"{"a": [1,]}"#,
            r#"{"a": 1 "b": 2}"#,
            "[]",
            "",
            "{\"a\": \"\u{1}\"}",
        ] {
            assert_eq!(
                read(Fields::read_except(body.as_bytes(), "large")),
                read(Fields::read(body.as_bytes())),
                "{body}"
            );
        }
        let nested = |levels| {
            let body = format!(
                "{{\"large\": {}{}}}",
                "[".repeat(levels),
                "]".repeat(levels)
            );
            read(Fields::read_except(body.as_bytes(), "large")).is_ok()
        };
        assert!(nested(DEPTH_MAX - 1) && !nested(DEPTH_MAX));
    }

    #[test]
    fn integers_accept_every_json_notation() {
        let integer = |text: &str| {
            let body = format!("{{\"n\": {text}}}");
            let mut fields = Fields::read(body.as_bytes())?;
            let integer = fields.optional_integer("n");
            fields.finish().map(|()| integer)
        };
        for (text, expected) in [
            ("2", 2),
            ("2.0", 2),
            ("-2e0", -2),
            ("9007199254740993", 9_007_199_254_740_993),
            ("1e3", 1000),
        ] {
            assert_eq!(integer(text).unwrap(), Some(expected), "{text}");
        }
        for (text, reason) in [
            ("2.5", "range"),
            ("1e300", "range"),
            ("9223372036854775808", "range"),
            ("\"2\"", "type"),
            ("true", "type"),
        ] {
            assert_eq!(
                reasons(integer(text).map(|_| ())),
                [("n".to_owned(), reason)],
                "{text}"
            );
        }
    }

    #[test]
    fn null_is_absent_and_keys_unescape() {
        assert!(read(r#"{"n\u0061me": "x", "label": null}"#).is_ok());
        assert_eq!(
            reasons(read(r#"{"name": null}"#)),
            [("name".to_owned(), "required")]
        );
    }

    #[test]
    fn malformed_json_and_non_objects_have_different_codes() {
        for (body, code) in [
            ("", Code::InvalidRequest),
            ("{", Code::InvalidRequest),
            ("{} {}", Code::InvalidRequest),
            ("[]", Code::ValidationFailed),
            ("\"x\"", Code::ValidationFailed),
        ] {
            assert_eq!(read(body).unwrap_err().code, code, "{body}");
        }
        assert_eq!(
            Fields::read(b"{\"name\": \"\xff\"}").err().unwrap().code,
            Code::InvalidRequest
        );
        let deep = format!("{{\"name\": {}{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(read(&deep).unwrap_err().code, Code::InvalidRequest);
    }

    #[test]
    fn many_fields_are_rejected() {
        // If each were compared with all others, this test would not end.
        let many: String = (0..1_000_000).map(|n| format!("\"f{n}\": 1,")).collect();
        let error = read(&format!("{{{many} \"name\": \"x\"}}")).unwrap_err();
        assert_eq!(error.message, "body: must not have more than 32 fields");
    }

    #[test]
    fn lone_surrogate_is_rejected() {
        assert_eq!(
            reasons(read(r#"{"name": "\ud800"}"#)),
            [("name".to_owned(), "format")]
        );
    }

    #[test]
    fn query_errors_are_reported_together() {
        let uri = "/x?limit=+5&cursor=a&&cursor=b&limt=3&label=%E9&status=%C3%A9+a";
        let mut query = Query::read(&Uri::from_static(uri));
        assert_eq!(query.integer("limit"), None);
        query.string("cursor");
        query.string("label");
        assert_eq!(query.string("status").unwrap(), "é a");
        assert_eq!(
            reasons(query.finish()),
            [
                ("cursor", "duplicate"),
                ("label", "format"),
                ("limit", "type"),
                ("limt", "unknown_field")
            ]
            .map(|(field, reason)| (field.to_owned(), reason))
        );
    }
}
