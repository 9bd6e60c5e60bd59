//! The sequence in a suite item's input.

use std::borrow::Cow;

use assay_eval::suite::{SequencePaths, value_at};
use serde_json::value::RawValue;

use crate::model::sequence::{Event, Sequence, Text};

/// Returns the sequence that an item's input has at these paths. Its id is the item's.
///
/// # Errors
/// The reason why the input has no valid sequence, for the operator who publishes it.
pub fn from_item<'a>(
    item_id: &'a str,
    input: &'a str,
    paths: &SequencePaths,
) -> Result<Sequence<'a>, String> {
    let events = array_at(input, &paths.events)?.into_iter().enumerate();
    let events = events.map(|(index, json)| {
        event(json.get()).map_err(|reason| format!("input.{}[{index}]: {reason}", paths.events))
    });
    let options = paths.options.as_deref().map(|path| {
        let options = array_at(input, path)?.into_iter().enumerate();
        let options = options.map(|(index, json)| {
            serde_json::from_str(json.get())
                .map(|Text(text)| text)
                .map_err(|_| format!("input.{path}[{index}]: must be an item id"))
        });
        options.collect::<Result<Vec<Cow<'a, str>>, String>>()
    });
    let mut sequence = Sequence {
        sequence_id: item_id.into(),
        events: events.collect::<Result<_, _>>()?,
        options: options.transpose()?,
    };
    let mut errors = Vec::new();
    sequence.check("", &mut errors);
    match errors.first() {
        None => Ok(sequence),
        Some(error) => Err(format!(
            "the sequence of the item is not valid: {}: {}",
            error.field, error.message
        )),
    }
}

fn array_at<'a>(input: &'a str, path: &str) -> Result<Vec<&'a RawValue>, String> {
    let json =
        value_at(input, path).ok_or_else(|| format!("input.{path}: this field is required"))?;
    serde_json::from_str(json).map_err(|_| format!("input.{path}: must be an array"))
}

/// Parses an event: an item's id, or an object.
fn event(json: &str) -> Result<Event<'_>, String> {
    if let Ok(Text(item_id)) = serde_json::from_str(json) {
        return Ok(Event {
            item_id,
            r#type: None,
            ts: None,
        });
    }
    serde_json::from_str(json).map_err(|error| {
        format!("must be an item id, or an object with item_id, type and ts ({error})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(options: Option<&str>) -> SequencePaths {
        SequencePaths {
            events: "user.past".into(),
            options: options.map(Into::into),
        }
    }

    #[test]
    fn events_are_ids_or_objects() {
        let input = r#"{"user": {"past": ["\u0061", {"item_id": "b", "type": "buy"}]}, "menu": ["x", "y"], "prompt": "?"}"#;
        let sequence = from_item("i", input, &paths(Some("menu"))).unwrap();
        let events: Vec<_> = sequence
            .events
            .iter()
            .map(|event| (&*event.item_id, event.r#type.as_deref()))
            .collect();
        assert_eq!(sequence.sequence_id, "i");
        assert_eq!(events, [("a", None), ("b", Some("buy"))]);
        assert_eq!(sequence.options.unwrap(), ["x", "y"]);
        assert_eq!(from_item("i", input, &paths(None)).unwrap().options, None);
    }

    #[test]
    fn reason_names_the_place() {
        let of = |past: &str, menu: &str| {
            let input = format!(r#"{{"user": {{"past": {past}}}, "menu": {menu}}}"#);
            from_item("i", &input, &paths(Some("menu"))).unwrap_err()
        };
        let fine = r#"["x"]"#;
        for (past, menu, reason) in [
            ("7", fine, "input.user.past: must be an array"),
            (r#"[["a"]]"#, fine, "input.user.past[0]: must be an item id"),
            (
                r#"["a", {"id": 1}]"#,
                fine,
                "input.user.past[1]: must be an item id",
            ),
            (
                r#"["a", {"item_id": "b", "ts": "2026-01-01T00:00:00Z"}]"#,
                fine,
                "the sequence of the item is not valid: events[0].ts: give ts for all",
            ),
            (
                r#"[""]"#,
                fine,
                "the sequence of the item is not valid: events[0].item_id",
            ),
            ("[]", "[1]", "input.menu[0]: must be an item id"),
            (
                "[]",
                r#"["x", "x"]"#,
                "the sequence of the item is not valid: options[1]",
            ),
            ("[]", "null", "input.menu: must be an array"),
        ] {
            let found = of(past, menu);
            assert!(found.starts_with(reason), "{found}");
        }
        let missing = from_item("i", r#"{"user": {}, "menu": []}"#, &paths(None)).unwrap_err();
        assert_eq!(missing, "input.user.past: this field is required");
        let long = "x".repeat(257);
        let too_long = from_item(&long, r#"{"user": {"past": []}}"#, &paths(None)).unwrap_err();
        assert!(too_long.contains("sequence_id"), "{too_long}");
    }
}
