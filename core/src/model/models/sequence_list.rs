//! A prediction job's sequences: an inline array, or an upload's lines. They are checked
//! one by one, so that only one is in memory.

use std::collections::HashSet;
use std::fmt;

use assay_eval::FieldError;
use assay_eval::prediction::{FIELD_ERRORS_MAX, Malformed, Rejected};
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::model::sequence::{Sequence, read_sequence};

/// Valid sequences' properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedSequences {
    /// The number of sequences.
    pub n: i64,
    /// Sequences with options.
    pub n_with_options: i64,
    /// The content's SHA-256. The JSON's formatting does not change it.
    pub digest: [u8; 32],
}

/// The digest and the counts over sequences that were added so far.
#[derive(Default)]
pub struct SequenceSurvey {
    hash: Sha256,
    n: i64,
    n_with_options: i64,
}

impl SequenceSurvey {
    /// Adds the next sequence.
    pub fn add(&mut self, sequence: &Sequence<'_>) {
        let mut encoded = Vec::new();
        let mut text = |text: &str| {
            encoded.extend((text.len() as u64).to_le_bytes());
            encoded.extend(text.as_bytes());
        };
        let Sequence {
            sequence_id,
            events,
            options,
        } = sequence;
        text(sequence_id);
        // Lists are preceded by their lengths, and absent values have their own encoding, so
        // that no two contents have the same encoding.
        text(&events.len().to_string());
        for event in events {
            text(&event.item_id);
            text(if event.r#type.is_some() { "type" } else { "" });
            text(event.r#type.as_deref().unwrap_or_default());
            text(&event.ts.map_or_else(String::new, |ts| ts.to_string()));
        }
        match options {
            None => text("none"),
            Some(options) => {
                text(&options.len().to_string());
                options.iter().for_each(|option| text(option));
            }
        }
        self.hash.update(&encoded);
        self.n += 1;
        self.n_with_options += i64::from(options.is_some());
    }

    /// Returns the sequences' properties.
    pub fn finish(self) -> CheckedSequences {
        CheckedSequences {
            n: self.n,
            n_with_options: self.n_with_options,
            digest: self.hash.finalize().into(),
        }
    }
}

/// Parses and checks a sequence, whose field errors begin with `location`.
///
/// # Errors
/// At least one field error.
pub fn read_checked<'a>(json: &'a str, location: &str) -> Result<Sequence<'a>, Vec<FieldError>> {
    let mut errors = Vec::new();
    match read_sequence(json) {
        Ok(mut sequence) => {
            sequence.check(&format!("{location}."), &mut errors);
            if errors.is_empty() {
                return Ok(sequence);
            }
        }
        Err(found) => errors.extend(found.into_iter().map(|error| FieldError {
            field: match error.field.as_str() {
                // The value as a whole.
                "" | "sequence" => location.to_owned(),
                field => format!("{location}.{field}"),
            },
            ..error
        })),
    }
    Err(errors)
}

/// Checks the JSON array in the field `sequences`.
///
/// # Errors
/// If it is not JSON, or field errors, at least one and at most 20, if it is not an array with at
/// least one sequence with distinct ids.
pub fn check_array(json: &str) -> Result<CheckedSequences, Rejected> {
    let mut errors = Vec::new();
    let mut ids = HashSet::new();
    let mut survey = SequenceSurvey::default();
    let mut index = 0_usize;
    let parsed = for_each(json, |json| {
        let location = format!("sequences[{index}]");
        index += 1;
        match read_checked(json, &location) {
            Ok(sequence) => {
                survey.add(&sequence);
                if !ids.insert(sequence.sequence_id) {
                    errors.push(FieldError::new(
                        format!("{location}.sequence_id"),
                        "duplicate",
                        "must be distinct within the request",
                    ));
                }
            }
            Err(found) => errors.extend(found),
        }
        errors.len() < FIELD_ERRORS_MAX
    });
    if let Err(error) = parsed {
        if !error.is_data() {
            let message = format!("The sequences are not JSON: {error}");
            return Err(Rejected::Malformed(Malformed(message)));
        }
        errors = vec![FieldError::new(
            "sequences",
            "type",
            "must be an array of sequences",
        )];
    } else if index == 0 {
        errors.push(FieldError::new(
            "sequences",
            "range",
            "must have at least one sequence",
        ));
    }
    errors.truncate(FIELD_ERRORS_MAX);
    if errors.is_empty() {
        Ok(survey.finish())
    } else {
        Err(Rejected::Fields(errors))
    }
}

/// Calls `each` with each array element's JSON, until it returns `false`.
///
/// # Errors
/// If the JSON is not an array, as far as it was read.
fn for_each<'a>(json: &'a str, each: impl FnMut(&'a str) -> bool) -> Result<(), serde_json::Error> {
    let mut is_stopped = false;
    let mut parser = serde_json::Deserializer::from_str(json);
    let read = parser.deserialize_seq(Elements {
        each,
        is_stopped: &mut is_stopped,
    });
    match read {
        Err(_) if is_stopped => Ok(()),
        read => read.and_then(|()| parser.end()),
    }
}

/// A visitor that passes each array element on.
struct Elements<'r, F> {
    each: F,
    is_stopped: &'r mut bool,
}

impl<'a, F: FnMut(&'a str) -> bool> Visitor<'a> for Elements<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element::<&'a RawValue>()? {
            if !(self.each)(element.get()) {
                *self.is_stopped = true;
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(json: &str) -> Vec<String> {
        let line = |error: FieldError| format!("{} {}", error.field, error.reason);
        match check_array(json).unwrap_err() {
            Rejected::Fields(errors) => errors.into_iter().map(line).collect(),
            Rejected::Malformed(_) => vec!["malformed".into()],
        }
    }

    #[test]
    fn errors_name_sequence_and_field() {
        for (json, expected) in [
            ("{}", "sequences type"),
            ("7", "sequences type"),
            ("[", "malformed"),
            ("[] x", "malformed"),
            ("[]", "sequences range"),
            ("[7]", "sequences[0] type"),
            (r#"[{"sequence_id": "a"}]"#, "sequences[0].events required"),
            (
                r#"[{"sequence_id": "a", "events": [], "x": 1}]"#,
                "sequences[0].x unknown_field",
            ),
            (
                r#"[{"sequence_id": "a", "events": []}, {"sequence_id": "b", "events": [{"item_id": ""}]}]"#,
                "sequences[1].events[0].item_id range",
            ),
            (
                r#"[{"sequence_id": "a", "events": []}, {"sequence_id": "\u0061", "events": []}]"#,
                "sequences[1].sequence_id duplicate",
            ),
            (
                r#"[{"sequence_id": "a", "events": [], "events": []}]"#,
                "sequences[0] duplicate",
            ),
        ] {
            assert_eq!(errors(json), [expected], "{json}");
        }
        assert_eq!(errors(&format!("[{}0]", "0,".repeat(99))).len(), 20);
    }

    #[test]
    fn digest_depends_on_content_only() {
        let checked = |sequence: &str| check_array(&format!("[{sequence}]")).unwrap();
        let plain = checked(
            r#"{"sequence_id": "a", "events": [{"item_id": "x"}, {"item_id": "y", "type": "t"}]}"#,
        );
        assert_eq!((plain.n, plain.n_with_options), (1, 0));
        let same = r#" {"events":[{"item_id":"\u0078","type":null},{"type":"t","item_id":"y"}],"options":null,"sequence_id":"a"}"#;
        assert_eq!(plain, checked(same));
        for other in [
            r#"{"sequence_id": "b", "events": [{"item_id": "x"}, {"item_id": "y", "type": "t"}]}"#,
            r#"{"sequence_id": "a", "events": [{"item_id": "y", "type": "t"}, {"item_id": "x"}]}"#,
            r#"{"sequence_id": "a", "events": [{"item_id": "x"}, {"item_id": "y"}]}"#,
            r#"{"sequence_id": "a", "events": [{"item_id": "x"}], "options": ["y"]}"#,
            r#"{"sequence_id": "a", "events": [{"item_id": "x", "ts": "2026-01-01T00:00:00Z"}, {"item_id": "y", "type": "t", "ts": "2026-01-01T00:00:01Z"}]}"#,
        ] {
            assert_ne!(plain.digest, checked(other).digest, "{other}");
        }
    }
}
