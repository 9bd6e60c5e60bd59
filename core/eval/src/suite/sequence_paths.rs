//! The table `[sequence]` of `suite.toml`: where an item's input has the history to predict
//! from. A suite without it is not about sequences.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 200;

/// The events' and the options' places in an item's input. A path is a field's name,
/// or names separated by dots for a field within others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequencePaths {
    /// The path of the events, the oldest first.
    pub events: String,
    /// The path to the items to rank. `None`: all items in the model's catalog are ranked.
    pub options: Option<String>,
}

impl SequencePaths {
    /// Returns the key of a malformed path with the reason, if there is one.
    pub(super) fn error(&self) -> Option<(&'static str, String)> {
        let is_path = |path: &str| {
            path.len() <= PATH_BYTES_MAX
                && !path.contains('\0')
                && path.split('.').all(|name| !name.is_empty())
        };
        let paths = [
            ("events", Some(&self.events)),
            ("options", self.options.as_ref()),
        ];
        paths
            .into_iter()
            .find(|(_, path)| path.is_some_and(|path| !is_path(path)))
            .map(|(key, _)| {
                let message = format!(
                    "must be the name of a field of the input, or names separated by dots, at most {PATH_BYTES_MAX} bytes"
                );
                (key, message)
            })
    }
}

/// Returns the JSON at a path in an item's input, or `None` if the input has no such field.
pub fn value_at<'a>(input: &'a str, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(input, |json, name| {
        let mut fields: BTreeMap<String, &'a RawValue> = serde_json::from_str(json).ok()?;
        Some(fields.remove(name)?.get())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_found_at_path() {
        let input = r#"{"past": ["a"], "user": {"history": {"past": [1]}, "x": 3}, "d.o.t": 1}"#;
        for (path, expected) in [
            ("past", Some(r#"["a"]"#)),
            ("user.history.past", Some("[1]")),
            ("user.x", Some("3")),
            ("user.x.y", None),
            ("past.0", None),
            ("future", None),
            ("d.o.t", None),
        ] {
            assert_eq!(value_at(input, path), expected, "{path}");
        }
    }

    #[test]
    fn malformed_path_is_named() {
        let paths = |events: &str, options: Option<&str>| SequencePaths {
            events: events.into(),
            options: options.map(Into::into),
        };
        assert_eq!(paths("a.b", Some("c")).error(), None);
        for (bad, key) in [
            (paths("", None), "events"),
            (paths("a..b", None), "events"),
            (paths(".a", None), "events"),
            (paths(&"a".repeat(201), None), "events"),
            (paths("a", Some("b.")), "options"),
            (paths("a", Some("\0")), "options"),
        ] {
            assert_eq!(bad.error().unwrap().0, key, "{bad:?}");
        }
    }
}
