//! Event sequences, which the serving operations read: their JSON, and their limits.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use assay_eval::FieldError;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::model::timestamp::Timestamp;

/// A sequence's maximum event count.
pub const EVENTS_MAX: usize = 10_000;

/// A sequence's maximum option count.
pub const OPTIONS_MAX: usize = 1_000;

/// A sequence id's maximum length, in characters.
pub const SEQUENCE_ID_MAX: usize = 256;

/// The maximum length for an item's id and an event's type, in bytes.
pub const ITEM_ID_MAX: usize = 512;

/// The most field errors that a response lists. A request can have thousands.
const ERRORS_MAX: usize = 20;

/// The history of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The caller's id for the sequence, which the service does not interpret.
    pub sequence_id: Cow<'a, str>,
    /// The events, the oldest first.
    pub events: Vec<Event<'a>>,
    /// The items to rank. `None`: all catalog items.
    pub options: Option<Vec<Cow<'a, str>>>,
}

impl Sequence<'_> {
    /// Copies what the sequence borrows.
    pub fn into_owned(self) -> Sequence<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let events = self.events.into_iter().map(|event| Event {
            item_id: owned(event.item_id),
            r#type: event.r#type.map(owned),
            ts: event.ts,
        });
        Sequence {
            sequence_id: owned(self.sequence_id),
            events: events.collect(),
            options: self
                .options
                .map(|options| options.into_iter().map(owned).collect()),
        }
    }
}

/// An event of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The id of the item.
    pub item_id: Cow<'a, str>,
    /// The type of the event, for models with event types.
    pub r#type: Option<Cow<'a, str>>,
    /// The time of the event.
    pub ts: Option<Timestamp>,
}

/// Parses the JSON array in the field `sequences`.
///
/// # Errors
/// Field errors, at least one and at most 20, if the JSON is not a sequence array.
pub fn read_sequences(json: &str) -> Result<Vec<Sequence<'_>>, Vec<FieldError>> {
    serde_json::from_str(json).map_err(|error| {
        diagnose(
            json,
            "sequences",
            "an array of sequences",
            |value, errors| {
                let Value::Array(sequences) = value else {
                    return false;
                };
                for (index, sequence) in sequences.iter().enumerate() {
                    diagnose_sequence(sequence, &format!("sequences[{index}]"), errors);
                }
                true
            },
            &error,
        )
    })
}

/// Parses one sequence's JSON, such as an upload line.
///
/// # Errors
/// Field errors, at least one and at most 20, if the JSON is not a sequence.
pub fn read_sequence(json: &str) -> Result<Sequence<'_>, Vec<FieldError>> {
    serde_json::from_str(json).map_err(|error| {
        diagnose(
            json,
            "sequence",
            "an object",
            |value, errors| {
                diagnose_sequence(value, "", errors);
                value.is_object()
            },
            &error,
        )
    })
}

/// Adds the errors in a request's sequences: each sequence's, and repeated ids. Sorts each
/// sequence's events by their timestamps, if they have some.
pub fn check_sequences(sequences: &mut [Sequence<'_>], errors: &mut Vec<FieldError>) {
    for (index, sequence) in sequences.iter_mut().enumerate() {
        sequence.check(&format!("sequences[{index}]."), errors);
    }
    let mut ids = HashSet::with_capacity(sequences.len());
    for (index, sequence) in sequences.iter().enumerate() {
        if errors.len() < ERRORS_MAX && !ids.insert(&*sequence.sequence_id) {
            errors.push(FieldError::new(
                format!("sequences[{index}].sequence_id"),
                "duplicate",
                "must be distinct within the request",
            ));
        }
    }
}

impl Sequence<'_> {
    /// Adds the sequence's errors, whose fields begin with `path`. Sorts the events by their
    /// timestamps, if they have some; events with equal timestamps keep their order.
    pub fn check(&mut self, path: &str, errors: &mut Vec<FieldError>) {
        let mut add = |field: String, reason: &'static str, message: String| {
            if errors.len() < ERRORS_MAX {
                errors.push(FieldError::new(format!("{path}{field}"), reason, message));
            }
        };
        if self.sequence_id.is_empty() || self.sequence_id.chars().count() > SEQUENCE_ID_MAX {
            let message = format!("must have 1 to {SEQUENCE_ID_MAX} characters");
            add("sequence_id".into(), "range", message);
        } else if self.sequence_id.contains('\0') {
            add("sequence_id".into(), "format", NO_NUL.into());
        }
        if self.events.len() > EVENTS_MAX {
            let message = format!("must have at most {EVENTS_MAX} events");
            return add("events".into(), "range", message);
        }
        for (index, event) in self.events.iter().enumerate() {
            if let Err((reason, message)) = check_text(&event.item_id) {
                add(format!("events[{index}].item_id"), reason, message);
            }
            if let Some(Err((reason, message))) = event.r#type.as_deref().map(check_text) {
                add(format!("events[{index}].type"), reason, message);
            }
        }
        self.check_timestamps(&mut add);
        if let Some(options) = &self.options {
            check_options(options, &mut add);
        }
    }

    fn check_timestamps(&mut self, add: &mut impl FnMut(String, &'static str, String)) {
        let with_timestamp = self
            .events
            .iter()
            .filter(|event| event.ts.is_some())
            .count();
        if with_timestamp == self.events.len() {
            self.events.sort_by_key(|event| event.ts);
        } else if with_timestamp > 0 {
            let first = self.events.iter().position(|event| event.ts.is_none());
            add(
                format!("events[{}].ts", first.unwrap_or(0)),
                "mixed_timestamps",
                "give ts for all events of the sequence, or for none".into(),
            );
        }
    }
}

const NO_NUL: &str = "must not contain NUL characters";

fn check_text(text: &str) -> Result<(), (&'static str, String)> {
    if text.is_empty() || text.len() > ITEM_ID_MAX {
        Err(("range", format!("must have 1 to {ITEM_ID_MAX} bytes")))
    } else if text.contains('\0') {
        Err(("format", NO_NUL.into()))
    } else {
        Ok(())
    }
}

fn check_options(options: &[Cow<'_, str>], add: &mut impl FnMut(String, &'static str, String)) {
    if options.is_empty() || options.len() > OPTIONS_MAX {
        let message = format!(
            "must have 1 to {OPTIONS_MAX} items; leave it out to rank all items of the catalog"
        );
        return add("options".into(), "range", message);
    }
    let mut seen = HashSet::with_capacity(options.len());
    for (index, option) in options.iter().enumerate() {
        if let Err((reason, message)) = check_text(option) {
            add(format!("options[{index}]"), reason, message);
        } else if !seen.insert(&**option) {
            let message = "must be distinct within the sequence".into();
            add(format!("options[{index}]"), "duplicate", message);
        }
    }
}

/// An object whose fields are deserialized one by one. serde's derived structs would also accept
/// arrays.
struct ObjectVisitor<T>(PhantomData<T>);

/// A struct that is deserialized from an object.
trait FromFields<'de>: Sized {
    /// The fields, each absent.
    type Partial: Default;
    const EXPECTING: &'static str;

    /// Deserializes a field's value. `false` if there is no such field.
    fn field<A: MapAccess<'de>>(
        partial: &mut Self::Partial,
        name: &str,
        map: &mut A,
    ) -> Result<bool, A::Error>;

    fn finish<E: serde::de::Error>(partial: Self::Partial) -> Result<Self, E>;
}

impl<'de, T: FromFields<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTING)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut partial = T::Partial::default();
        while let Some(Text(name)) = map.next_key()? {
            if !T::field(&mut partial, &name, &mut map)? {
                return Err(A::Error::custom(format_args!("unknown field `{name}`")));
            }
        }
        T::finish(partial)
    }
}

/// Deserializes a field's value that was not given before.
fn set<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    field: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<bool, A::Error> {
    if field.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *field = Some(map.next_value()?);
    Ok(true)
}

/// A string, borrowed unless it has escapes.
pub(in crate::model) struct Text<'a>(pub(in crate::model) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: serde::de::Error>(
                self,
                text: &'de str,
            ) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

#[derive(Default)]
struct PartialSequence<'a> {
    sequence_id: Option<Text<'a>>,
    events: Option<Vec<Event<'a>>>,
    options: Option<Option<Vec<Text<'a>>>>,
}

impl<'de> FromFields<'de> for Sequence<'de> {
    type Partial = PartialSequence<'de>;
    const EXPECTING: &'static str = "a sequence";

    fn field<A: MapAccess<'de>>(
        partial: &mut Self::Partial,
        name: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match name {
            "sequence_id" => set(&mut partial.sequence_id, "sequence_id", map),
            "events" => set(&mut partial.events, "events", map),
            "options" => set(&mut partial.options, "options", map),
            _ => Ok(false),
        }
    }

    fn finish<E: serde::de::Error>(partial: Self::Partial) -> Result<Self, E> {
        let PartialSequence {
            sequence_id,
            events,
            options,
        } = partial;
        Ok(Self {
            sequence_id: sequence_id
                .ok_or_else(|| E::missing_field("sequence_id"))?
                .0,
            events: events.ok_or_else(|| E::missing_field("events"))?,
            options: options
                .flatten()
                .map(|options| options.into_iter().map(|Text(option)| option).collect()),
        })
    }
}

#[derive(Default)]
struct PartialEvent<'a> {
    item_id: Option<Text<'a>>,
    r#type: Option<Option<Text<'a>>>,
    ts: Option<Option<Timestamp>>,
}

impl<'de> FromFields<'de> for Event<'de> {
    type Partial = PartialEvent<'de>;
    const EXPECTING: &'static str = "an event";

    fn field<A: MapAccess<'de>>(
        partial: &mut Self::Partial,
        name: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match name {
            "item_id" => set(&mut partial.item_id, "item_id", map),
            "type" => set(&mut partial.r#type, "type", map),
            "ts" => set(&mut partial.ts, "ts", map),
            _ => Ok(false),
        }
    }

    fn finish<E: serde::de::Error>(partial: Self::Partial) -> Result<Self, E> {
        let PartialEvent {
            item_id,
            r#type,
            ts,
        } = partial;
        Ok(Self {
            item_id: item_id.ok_or_else(|| E::missing_field("item_id"))?.0,
            r#type: r#type.flatten().map(|Text(text)| text),
            ts: ts.flatten(),
        })
    }
}

impl<'de> Deserialize<'de> for Sequence<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Event<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Returns the field errors for JSON that cannot be deserialized. serde's error does not say which
/// field it is about, and there can be several.
fn diagnose(
    json: &str,
    field: &str,
    expected: &str,
    visit: impl FnOnce(&Value, &mut Vec<FieldError>) -> bool,
    error: &serde_json::Error,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match serde_json::from_str::<Value>(json) {
        Ok(value) => {
            if !visit(&value, &mut errors) {
                return vec![FieldError::new(
                    field,
                    "type",
                    format!("must be {expected}"),
                )];
            }
        }
        Err(malformed) => {
            return vec![FieldError::new(
                field,
                "format",
                format!("is not valid JSON: {malformed}"),
            )];
        }
    }
    if errors.is_empty() {
        // A repeated key, which `Value` does not keep.
        errors.push(FieldError::new(field, "duplicate", error.to_string()));
    }
    errors.truncate(ERRORS_MAX);
    errors
}

fn diagnose_sequence(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Value::Object(fields) = value else {
        return errors.push(FieldError::new(path, "type", "must be an object"));
    };
    let prefix = if path.is_empty() {
        String::new()
    } else {
        format!("{path}.")
    };
    check_required(fields, &prefix, &["sequence_id", "events"], errors);
    for (name, value) in fields {
        let field = format!("{prefix}{name}");
        match (name.as_str(), value) {
            ("sequence_id", value) => check_type::<String>(value, &field, "a string", errors),
            ("events", Value::Array(events)) => {
                for (index, event) in events.iter().enumerate() {
                    diagnose_event(event, &format!("{field}[{index}]"), errors);
                }
            }
            ("events", _) => errors.push(FieldError::new(field, "type", "must be an array")),
            ("options", value) => {
                check_type::<Option<Vec<String>>>(value, &field, "an array of strings", errors);
            }
            _ => errors.push(unknown(field)),
        }
        if errors.len() >= ERRORS_MAX {
            return;
        }
    }
}

fn diagnose_event(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Value::Object(fields) = value else {
        return errors.push(FieldError::new(path, "type", "must be an object"));
    };
    check_required(fields, &format!("{path}."), &["item_id"], errors);
    for (name, value) in fields {
        let field = format!("{path}.{name}");
        match name.as_str() {
            "item_id" => check_type::<String>(value, &field, "a string", errors),
            "type" => check_type::<Option<String>>(value, &field, "a string", errors),
            "ts" if value.is_string() => check_type::<Timestamp>(
                value,
                &field,
                "an RFC 3339 timestamp, such as 2026-01-31T23:59:59Z",
                errors,
            ),
            "ts" => check_type::<Option<Timestamp>>(value, &field, "a string", errors),
            _ => errors.push(unknown(field)),
        }
    }
}

fn check_required(
    fields: &serde_json::Map<String, Value>,
    prefix: &str,
    names: &[&str],
    errors: &mut Vec<FieldError>,
) {
    for name in names {
        if !fields.contains_key(*name) {
            errors.push(FieldError::required(format!("{prefix}{name}")));
        }
    }
}

fn check_type<T: DeserializeOwned>(
    value: &Value,
    field: &str,
    expected: &str,
    errors: &mut Vec<FieldError>,
) {
    if T::deserialize(value).is_err() {
        errors.push(FieldError::new(
            field,
            "type",
            format!("must be {expected}"),
        ));
    }
}

fn unknown(field: String) -> FieldError {
    FieldError::new(field, "unknown_field", "is not a known field")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(json: &str) -> Vec<(String, &'static str)> {
        let errors = match read_sequences(json) {
            Ok(mut sequences) => {
                let mut errors = Vec::new();
                check_sequences(&mut sequences, &mut errors);
                errors
            }
            Err(errors) => errors,
        };
        errors
            .into_iter()
            .map(|error| (error.field, error.reason))
            .collect()
    }

    fn error(json: &str) -> (String, &'static str) {
        let errors = errors(json);
        assert_eq!(errors.len(), 1, "{json}: {errors:?}");
        errors[0].clone()
    }

    #[test]
    fn sequences_are_read_without_copies() {
        let json = r#"[{"sequence_id": "a", "events": [{"item_id": "x", "type": null},
            {"item_id": "\u0079", "type": "buy"}], "options": ["x", "z"]}, {"events": [], "sequence_id": "b", "options": null}]"#;
        let mut sequences = read_sequences(json).unwrap();
        let mut errors = Vec::new();
        check_sequences(&mut sequences, &mut errors);
        assert_eq!(errors, []);
        assert!(matches!(sequences[0].events[0].item_id, Cow::Borrowed("x")));
        assert_eq!(sequences[0].events[1].item_id, "y");
        assert_eq!(sequences[0].events[1].r#type.as_deref(), Some("buy"));
        assert_eq!(sequences[0].options.as_ref().unwrap().len(), 2);
        assert_eq!(
            (sequences[1].events.len(), &sequences[1].options),
            (0, &None)
        );
    }

    #[test]
    fn errors_name_their_fields() {
        for (json, field, reason) in [
            ("{}", "sequences", "type"),
            ("[[]]", "sequences[0]", "type"),
            (r#"[["a", []]]"#, "sequences[0]", "type"),
            (
                r#"[{"events": []}]"#,
                "sequences[0].sequence_id",
                "required",
            ),
            (
                r#"[{"sequence_id": "a"}]"#,
                "sequences[0].events",
                "required",
            ),
            (
                r#"[{"sequence_id": 1, "events": []}]"#,
                "sequences[0].sequence_id",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": {}}]"#,
                "sequences[0].events",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": [], "option": []}]"#,
                "sequences[0].option",
                "unknown_field",
            ),
            (
                r#"[{"sequence_id": "a", "events": ["x"]}]"#,
                "sequences[0].events[0]",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": [["x"]]}]"#,
                "sequences[0].events[0]",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": [{"item_id": "x", "ts": "now"}]}]"#,
                "sequences[0].events[0].ts",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": [{"item_id": "x", "ts": 5}]}]"#,
                "sequences[0].events[0].ts",
                "type",
            ),
            (
                r#"[{"sequence_id": "a", "events": [{"item_id": ""}]}]"#,
                "sequences[0].events[0].item_id",
                "range",
            ),
            (
                r#"[{"sequence_id": "a", "events": [{"item_id": "\u0000"}]}]"#,
                "sequences[0].events[0].item_id",
                "format",
            ),
            (
                r#"[{"sequence_id": "", "events": []}]"#,
                "sequences[0].sequence_id",
                "range",
            ),
            (
                r#"[{"sequence_id": "a", "events": []}, {"sequence_id": "a", "events": []}]"#,
                "sequences[1].sequence_id",
                "duplicate",
            ),
            (
                r#"[{"sequence_id": "a", "events": [], "options": []}]"#,
                "sequences[0].options",
                "range",
            ),
            (
                r#"[{"sequence_id": "a", "events": [], "options": ["x", "y", "x"]}]"#,
                "sequences[0].options[2]",
                "duplicate",
            ),
            (
                r#"[{"sequence_id": "a", "events": [], "events": []}]"#,
                "sequences",
                "duplicate",
            ),
        ] {
            assert_eq!(error(json), (field.to_owned(), reason), "{json}");
        }
    }

    #[test]
    fn limits_of_sequences_hold() {
        let event = |length: usize| format!(r#"{{"item_id": "{}"}}"#, "x".repeat(length));
        let sequence = |events: &str| format!(r#"[{{"sequence_id": "a", "events": [{events}]}}]"#);
        assert_eq!(errors(&sequence(&event(ITEM_ID_MAX))), []);
        let too_long = ("sequences[0].events[0].item_id".to_owned(), "range");
        assert_eq!(error(&sequence(&event(10_000))), too_long);
        let most = vec![event(1); EVENTS_MAX].join(",");
        assert_eq!(errors(&sequence(&most)), []);
        let too_many = format!("{most},{}", event(1));
        assert_eq!(
            error(&sequence(&too_many)),
            ("sequences[0].events".to_owned(), "range")
        );
        // A request with the largest size and an error in each event.
        let many = vec![event(0); EVENTS_MAX].join(",");
        assert_eq!(errors(&sequence(&many)).len(), ERRORS_MAX);
    }

    #[test]
    fn events_are_sorted_by_timestamp() {
        let json = r#"[{"sequence_id": "a", "events": [
            {"item_id": "3", "ts": "2999-01-01T00:00:00Z"}, {"item_id": "1", "ts": "2026-01-01T00:00:00Z"},
            {"item_id": "2", "ts": "2026-01-01T01:00:00+01:00"}]}]"#;
        let mut sequences = read_sequences(json).unwrap();
        check_sequences(&mut sequences, &mut Vec::new());
        let order: Vec<_> = sequences[0]
            .events
            .iter()
            .map(|event| &*event.item_id)
            .collect();
        assert_eq!(order, ["1", "2", "3"]);
        let mixed = r#"[{"sequence_id": "a", "events": [{"item_id": "1", "ts": "2026-01-01T00:00:00Z"}, {"item_id": "2"}]}]"#;
        assert_eq!(
            error(mixed),
            ("sequences[0].events[1].ts".to_owned(), "mixed_timestamps")
        );
    }
}
