//! The configuration of a competition, in YAML.

use serde_json::{Map, Value};
use serde_saphyr::MergeKeyPolicy;

use super::bundle::{Bundle, Kind};
use crate::failure::{Exit, Failure, Result};

/// A mapping of a configuration, which remembers what was read.
pub struct Mapping {
    fields: Map<String, Value>,
}

impl Mapping {
    /// Reads a file of the bundle. Aliases are refused: a few lines of them stand for billions of values.
    pub fn read(bundle: &mut Bundle, name: &str) -> Result<Self> {
        let bytes = bundle.read(name, Kind::Yaml)?;
        let bad = |reason: String| Failure::new(Exit::InvalidInput, format!("{name}{reason}"));
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_aliases: 0 },
            merge_keys: MergeKeyPolicy::Error,
            with_snippet: false,
        };
        let read = serde_saphyr::from_slice_with_options(&bytes, options);
        let value: Value = read.map_err(|error| {
            let line = error
                .location()
                .map_or_else(String::new, |location| format!(":{}", location.line()));
            bad(format!(
                "{line}: cannot be read as YAML without aliases: {}",
                error.without_snippet()
            ))
        })?;
        match value {
            Value::Object(fields) => Ok(Self { fields }),
            _ => Err(bad(": must be a mapping of keys and values".to_owned())),
        }
    }

    /// Removes a field and returns its text. `None` without a text.
    pub fn text(&mut self, field: &str) -> Option<String> {
        let text = match self.fields.get(field)? {
            Value::String(text) => text.clone(),
            // `title: 2048` is a text to its author.
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        self.fields.shift_remove(field);
        Some(text)
    }

    /// Removes a field and returns its number of submissions. `None` without a positive number, which is no limit.
    pub fn limit(&mut self, field: &str) -> Option<i32> {
        let number = match self.fields.get(field)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let limit = i32::try_from(number?).ok().filter(|limit| *limit > 0)?;
        self.fields.shift_remove(field);
        Some(limit)
    }

    /// Removes a list and returns its last mapping. `None` without one.
    pub fn last_of(&mut self, field: &str) -> Option<Self> {
        let Value::Array(list) = self.fields.get_mut(field)? else {
            return None;
        };
        let Some(Value::Object(fields)) = list.pop() else {
            return None;
        };
        if list.is_empty() {
            self.fields.shift_remove(field);
        }
        Some(Self { fields })
    }

    /// Returns the names of the fields that were not read.
    pub fn rest(&self) -> Vec<&str> {
        self.fields.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    fn read(name: &str, text: &str) -> Result<Mapping> {
        let folder = Folder::new(name);
        folder.write("c.yaml", text);
        Mapping::read(&mut Bundle::open(&folder.path(""), false)?, "c.yaml")
    }

    #[test]
    fn fields_are_read_once() {
        let text = "title: 2048\nlimits: {day: 5, all: '40', none: 0, huge: 99999999999}\nphases:\n  - {a: 1}\n  - {end: 2027-01-01}\n";
        let mut mapping = read("fields", text).unwrap();
        assert_eq!(mapping.text("title").unwrap(), "2048");
        assert_eq!(mapping.text("limits"), None);
        let mut phase = mapping.last_of("phases").unwrap();
        assert_eq!(phase.text("end").unwrap(), "2027-01-01");
        assert_eq!(mapping.rest(), ["limits", "phases"]);
        let Value::Object(fields) = mapping.fields["limits"].clone() else {
            panic!("{:?}", mapping.fields);
        };
        let mut limits = Mapping { fields };
        assert_eq!(limits.limit("day"), Some(5));
        assert_eq!(limits.limit("all"), Some(40));
        assert_eq!(limits.limit("none"), None);
        assert_eq!(limits.limit("huge"), None);
        assert_eq!(limits.rest(), ["none", "huge"]);
    }

    #[test]
    fn hostile_files_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for at in 1..12 {
            let before = format!("*a{}", at - 1);
            bomb += &format!("a{at}: &a{at} [{}]\n", vec![before; 9].join(", "));
        }
        let merged = "a: &a {x: 1}\nb:\n  <<: *a\n";
        let long = format!("title: {}\n", "x".repeat(2 * 1024 * 1024));
        let nested = "[".repeat(100_000);
        for (name, text) in [
            ("bomb", bomb.as_str()),
            ("alias", "a: &a 1\nb: *a\n"),
            ("merge", merged),
            ("two-mib", &long),
            ("nested", &nested),
            ("list", "- a\n"),
            ("repeated", "title: a\ntitle: b\n"),
            ("documents", "a: 1\n---\nb: 2\n"),
            ("syntax", "a: [1\n"),
            ("empty", ""),
        ] {
            let failure = read(name, text).err().unwrap();
            assert_eq!(failure.exit, Exit::InvalidInput, "{name}: {failure}");
            let message = failure.to_string();
            assert!(message.starts_with("c.yaml"), "{name}: {message}");
            assert!(message.len() < 500, "{name}: {message}");
        }
        // An anchor alone is harmless.
        assert!(read("anchor", "a: &a 1\n").is_ok());
    }
}
