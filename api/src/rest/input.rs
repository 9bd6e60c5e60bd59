//! Reading the fields of a JSON object, and of a query, so that all that is wrong is told at once.

use std::borrow::Cow;
use std::fmt;

use assay_core::model::cursor::PageQuery;
use assay_core::{Code, Error, Result};
use assay_eval::FieldError;
use assay_eval::json::{DEPTH_MAX, depth};
use http::Uri;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How many fields a body, and parameters a query, may have: more than any operation knows.
const FIELDS_MAX: usize = 32;

/// The fields of a request's body. Each is taken once; what is left at the end is unknown, and refused.
pub struct Fields<'a> {
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
    faults: Vec<FieldError>,
    too_many: bool,
}

impl<'a> Fields<'a> {
    /// Reads a body: 400 if it is not JSON, 422 if it is not an object.
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
            faults: Vec::new(),
            too_many: false,
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

    /// A field as it was written. `null` is the same as absence.
    pub fn raw(&mut self, name: &'static str) -> Option<&'a RawValue> {
        let at = self.fields.iter().position(|(field, _)| field == name)?;
        let (_, raw) = self.fields.swap_remove(at);
        (raw.get() != "null").then_some(raw)
    }

    /// A text.
    pub fn optional_text(&mut self, name: &'static str) -> Option<String> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw.get()) {
            Ok(text) => Some(text),
            Err(_) if raw.get().starts_with('"') => {
                self.fault(FieldError::new(name, "format", "is not valid Unicode"))
            }
            Err(_) => self.fault(FieldError::new(name, "type", "must be a string")),
        }
    }

    /// A flag.
    pub fn optional_flag(&mut self, name: &'static str) -> Option<bool> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw.get()) {
            Ok(flag) => Some(flag),
            Err(_) => self.fault(FieldError::new(name, "type", "must be true or false")),
        }
    }

    /// A text that must be there.
    pub fn text(&mut self, name: &'static str) -> String {
        let there = self
            .fields
            .iter()
            .any(|(field, raw)| field == name && raw.get() != "null");
        if there {
            return self.optional_text(name).unwrap_or_default();
        }
        self.raw(name);
        self.fault::<String>(FieldError::required(name))
            .unwrap_or_default()
    }

    /// A whole number, however it is written: to JSON, `2`, `2.0` and `2e0` are one.
    pub fn optional_integer(&mut self, name: &'static str) -> Option<i64> {
        let raw = self.raw(name)?;
        // Beyond that, numbers with a point do not tell whole ones apart.
        let exact = |number: &f64| {
            number.fract() == 0.0 && number.abs() <= (1_i64 << f64::MANTISSA_DIGITS) as f64
        };
        let whole = || {
            serde_json::from_str(raw.get())
                .ok()
                .filter(exact)
                .map(|number| number as i64)
        };
        match serde_json::from_str::<serde_json::Number>(raw.get()) {
            Err(_) => self.fault(FieldError::new(name, "type", "must be a whole number")),
            Ok(number) => match number.as_i64().or_else(whole) {
                Some(integer) => Some(integer),
                None => self.fault(FieldError::new(name, "range", "must be a whole number")),
            },
        }
    }

    fn fault<T>(&mut self, fault: FieldError) -> Option<T> {
        self.faults.push(fault);
        None
    }

    /// All is taken: 422 with everything that is wrong.
    pub fn finish(mut self) -> Result<()> {
        let unknown = self.fields.iter().map(|(name, _)| {
            FieldError::new(name.as_ref(), "unknown_field", "there is no such field")
        });
        self.faults.extend(unknown);
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(Error::fields(self.faults))
        }
    }
}

/// Reads the object into the fields, noting keys that come twice.
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
            faults,
            too_many,
        } = self.0;
        while let Some(Key(name)) = map.next_key()? {
            if fields.len() + faults.len() >= FIELDS_MAX {
                // What is left is passed over: neither the time nor the answer may grow with it.
                map.next_value::<IgnoredAny>()?;
                *too_many = true;
            } else if fields.iter().any(|(field, _)| *field == name) {
                map.next_value::<IgnoredAny>()?;
                faults.push(FieldError::new(
                    name.as_ref(),
                    "duplicate",
                    "is given twice",
                ));
            } else {
                fields.push((name, map.next_value()?));
            }
        }
        Ok(())
    }
}

/// A key, borrowed unless it has escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
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
        deserializer.deserialize_str(Text)
    }
}

/// The parameters of a query. An unknown one is refused, as an unknown field is: a typo must not be lost.
pub struct Query {
    parameters: Vec<(String, String)>,
    faults: Vec<FieldError>,
}

impl Query {
    /// Reads a query.
    pub fn read(uri: &Uri) -> Self {
        let mut read = Self {
            parameters: Vec::new(),
            faults: Vec::new(),
        };
        for (name, value) in
            form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).take(FIELDS_MAX)
        {
            if read
                .parameters
                .iter()
                .any(|(parameter, _)| *parameter == name)
            {
                read.faults
                    .push(FieldError::new(name, "duplicate", "is given twice"));
            } else {
                read.parameters
                    .push((name.into_owned(), value.into_owned()));
            }
        }
        read
    }

    /// A text.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        let at = self
            .parameters
            .iter()
            .position(|(parameter, _)| parameter == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// A whole number.
    pub fn integer(&mut self, name: &'static str) -> Option<i64> {
        let text = self.text(name)?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        match text.parse() {
            Ok(number) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(number),
            _ => {
                self.faults
                    .push(FieldError::new(name, "type", "must be a whole number"));
                None
            }
        }
    }

    /// All is taken: 422 with everything that is wrong.
    pub fn finish(mut self) -> Result<()> {
        let unknown = self
            .parameters
            .into_iter()
            .map(|(name, _)| FieldError::new(name, "unknown_field", "there is no such parameter"));
        self.faults.extend(unknown);
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(Error::fields(self.faults))
        }
    }
}

/// Reads the query of a listing with pages.
pub fn page_query(uri: &Uri) -> Result<PageQuery> {
    let mut query = Query::read(uri);
    let page = PageQuery {
        limit: query.integer("limit"),
        cursor: query.text("cursor"),
    };
    query.finish()?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_core::Details;

    fn reasons(result: Result<()>) -> Vec<(String, &'static str)> {
        match result.unwrap_err().details {
            Some(Details::Fields { fields }) => fields
                .into_iter()
                .map(|fault| (fault.field, fault.reason))
                .collect(),
            other => unreachable!("{other:?}"),
        }
    }

    fn read(body: &str) -> Result<()> {
        let mut fields = Fields::read(body.as_bytes())?;
        fields.text("name");
        fields.optional_text("label");
        fields.finish()
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let wrong = reasons(read(r#"{"label": 7, "nmae": "x", "label": 8}"#));
        let expected = [
            ("label", "duplicate"),
            ("name", "required"),
            ("label", "type"),
            ("nmae", "unknown_field"),
        ];
        assert_eq!(
            wrong,
            expected.map(|(field, reason)| (field.to_owned(), reason))
        );
    }

    #[test]
    fn a_whole_number_may_be_written_in_several_ways() {
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
    fn null_is_absence_and_an_escaped_key_is_the_same_key() {
        assert!(read(r#"{"n\u0061me": "x", "label": null}"#).is_ok());
        assert_eq!(
            reasons(read(r#"{"name": null}"#)),
            [("name".to_owned(), "required")]
        );
    }

    #[test]
    fn what_is_not_json_and_what_is_no_object_are_told_apart() {
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
    fn a_body_with_very_many_fields_is_refused_without_being_taken_apart() {
        let many: String = (0..200_000).map(|n| format!("\"f{n}\": 1,")).collect();
        let began = std::time::Instant::now();
        let refused = read(&format!("{{{many} \"name\": \"x\"}}")).unwrap_err();
        assert_eq!(refused.message, "body: must not have more than 32 fields");
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn a_half_of_a_surrogate_pair_is_not_a_text() {
        assert_eq!(
            reasons(read(r#"{"name": "\ud800"}"#)),
            [("name".to_owned(), "format")]
        );
    }

    #[test]
    fn queries_are_read_as_strictly() {
        let mut query = Query::read(&Uri::from_static("/x?limit=+5&cursor=a&cursor=b&limt=3"));
        assert_eq!(query.integer("limit"), None);
        query.text("cursor");
        assert_eq!(
            reasons(query.finish()),
            [
                ("cursor", "duplicate"),
                ("limit", "type"),
                ("limt", "unknown_field")
            ]
            .map(|(field, reason)| (field.to_owned(), reason))
        );
    }
}
