//! Group fields: named strings of items, such as the person whom an item comes from.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::sequence_paths::value_at;

/// The start of a group field's name that is a path into an item's input.
pub(super) const INPUT: &str = "input.";

/// Longest name of a group field that is not a path, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// Longest path into an item's input, in bytes.
const PATH_BYTES_MAX: usize = 200;

/// Longest value of a group field, in bytes.
const VALUE_BYTES_MAX: usize = 200;

/// The name of a group field: `person`, which is in the `groups` of items or answers, or
/// `input.person`, a path into the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupField(String);

impl GroupField {
    /// Returns the name as it is written in `suite.toml`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path into an item's input, if the field is one.
    fn path(&self) -> Option<&str> {
        self.0.strip_prefix(INPUT)
    }

    /// Returns the field's value for an item, and whether it is hidden. `input` is the item's input,
    /// and the groups are those of its line and of its answer's line.
    ///
    /// # Errors
    /// Returns the reason if the item does not have the field, or if its value has no accepted form.
    fn value<'a>(
        &self,
        input: &'a str,
        public: Option<&'a Groups>,
        hidden: Option<&'a Groups>,
    ) -> Result<GroupValue<'a>, String> {
        let Some(path) = self.path() else {
            let of = |groups: Option<&'a Groups>| groups.and_then(|groups| groups.0.get(&self.0));
            let (text, is_hidden) = match (of(public), of(hidden)) {
                (Some(text), _) => (text, false),
                (None, Some(text)) => (text, true),
                (None, None) => return Err(format!("groups.{self} is missing")),
            };
            return Ok(GroupValue {
                text: Cow::Borrowed(text),
                form: Form::Text,
                is_hidden,
            });
        };
        let json = value_at(input, path).ok_or_else(|| format!("{self} is missing"))?;
        let (text, form) = match serde_json::from_str(json) {
            Ok(Value::String(text)) => (Cow::Owned(text), Form::Text),
            Ok(Value::Bool(_)) => (Cow::Borrowed(json), Form::Bool),
            Ok(Value::Number(number)) if number.is_i64() || number.is_u64() => {
                (Cow::Borrowed(json), Form::Integer)
            }
            _ => {
                return Err(format!(
                    "{self} must be a string, an integer or a boolean to be a group field"
                ));
            }
        };
        check_value(self.as_str(), &text)?;
        Ok(GroupValue {
            text,
            form,
            is_hidden: false,
        })
    }
}

impl fmt::Display for GroupField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GroupField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_field = match text.strip_prefix(INPUT) {
            Some(path) => {
                path.len() <= PATH_BYTES_MAX && path.split('.').all(|name| !name.is_empty())
            }
            None => is_name(text),
        };
        if is_field {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "must be the name of a group field: a lower-case letter, then lower-case letters, digits or '_', at most \
                 {NAME_BYTES_MAX} characters; or \"input.\" and the names of fields of the input, separated by dots"
            ))
        }
    }
}

/// Returns `true` if a text is the name of a group field that is not a path.
pub(super) fn is_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_word)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The JSON type of a group field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Integer,
    Bool,
}

/// An item's value of a group field.
#[derive(Debug)]
struct GroupValue<'a> {
    text: Cow<'a, str>,
    form: Form,
    /// Set if the value is in the answer's line.
    is_hidden: bool,
}

/// The values of one group field, item by item: all are public or all are hidden, and all have one
/// JSON type. Items with one value get one label.
#[derive(Debug, Default)]
pub struct GroupLabels {
    labels: HashMap<String, u32>,
    first: Option<(Form, bool)>,
}

impl GroupLabels {
    /// Returns the label of the next item's value. `input` is the item's input, and the groups are
    /// those of its line and of its answer's line.
    ///
    /// # Errors
    /// Returns the reason if the item has no value, or one that does not fit those before.
    pub fn add(
        &mut self,
        field: &GroupField,
        input: &str,
        public: Option<&Groups>,
        hidden: Option<&Groups>,
    ) -> Result<u32, String> {
        let value = field.value(input, public, hidden)?;
        let (form, is_hidden) = *self.first.get_or_insert((value.form, value.is_hidden));
        if value.is_hidden != is_hidden {
            return Err(format!(
                "groups.{field} is in the lines of items for some items, and in those of answers for others"
            ));
        }
        if value.form != form {
            return Err(format!(
                "{field} has another JSON type than in the lines before; a group field has one"
            ));
        }
        if let Some(label) = self.labels.get(value.text.as_ref()) {
            return Ok(*label);
        }
        let label = self.labels.len() as u32;
        self.labels.insert(value.text.into_owned(), label);
        Ok(label)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns `true` if the values are in the lines of answers.
    pub fn are_hidden(&self) -> bool {
        self.first.is_some_and(|(_, is_hidden)| is_hidden)
    }

    /// Returns the values, by their labels.
    pub fn into_values(self) -> Vec<String> {
        let mut values: Vec<(String, u32)> = self.labels.into_iter().collect();
        values.sort_unstable_by_key(|(_, label)| *label);
        values.into_iter().map(|(value, _)| value).collect()
    }
}

/// The `groups` of a line: checked names and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups(BTreeMap<String, String>);

impl Groups {
    /// Creates the groups of a line. Returns `None` without any.
    ///
    /// # Errors
    /// Returns the name of a field whose value is not valid, and the reason.
    pub fn new<'a>(
        fields: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Result<Option<Self>, (&'a str, String)> {
        let mut groups = BTreeMap::new();
        for (name, value) in fields {
            check_value(name, &value).map_err(|reason| (name, reason))?;
            groups.insert(name.to_owned(), value);
        }
        Ok((!groups.is_empty()).then_some(Self(groups)))
    }

    /// Returns the JSON in the form of RFC 8785. The names are ASCII, and no value has a control
    /// character, so the compact form with sorted names is that form.
    pub fn to_json(&self) -> String {
        // A map of strings can always be written.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Returns the names and the values of the fields.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the names of the fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn check_value(name: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || value.len() > VALUE_BYTES_MAX {
        return Err(format!(
            "{name} must have 1 to {VALUE_BYTES_MAX} bytes to be a group field"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("{name} must not have a control character"));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = BTreeMap<String, String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("groups: an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut groups = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if !is_name(&name) {
                        return Err(A::Error::custom(format!(
                            "groups: {name:?} is no name of a group field: a lower-case letter, then lower-case letters, digits \
                             or '_', at most {NAME_BYTES_MAX} characters"
                        )));
                    }
                    check_value(&format!("groups.{name}"), &value).map_err(A::Error::custom)?;
                    if groups.contains_key(&name) {
                        return Err(A::Error::custom(format!("groups.{name} is given twice")));
                    }
                    groups.insert(name, value);
                }
                Ok(groups)
            }
        }

        deserializer.deserialize_map(Fields).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(json: &str) -> Groups {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn names_of_fields_are_checked() {
        for name in [
            "person",
            "age_group2",
            "input.user.id",
            "input.A b",
            &"a".repeat(40),
        ] {
            assert_eq!(name.parse::<GroupField>().unwrap().as_str(), name);
        }
        for name in [
            "",
            "Person",
            "2a",
            "_a",
            "a-b",
            "input.",
            "input.a..b",
            "é",
            &"a".repeat(41),
        ] {
            assert!(name.parse::<GroupField>().is_err(), "{name}");
        }
    }

    #[test]
    fn value_is_found_in_input_item_or_answer() {
        let public = groups(r#"{"person": "p\"1"}"#);
        let hidden = groups(r#"{"age": "ü"}"#);
        let input = r#"{"id": 17, "who": {"name": "Ann", "new": true}, "x": 1.5, "list": []}"#;
        let value = |name: &str| {
            let field: GroupField = name.parse().unwrap();
            field
                .value(input, Some(&public), Some(&hidden))
                .map(|value| (value.text.into_owned(), value.is_hidden))
        };
        assert_eq!(value("person"), Ok(("p\"1".into(), false)));
        assert_eq!(value("age"), Ok(("ü".into(), true)));
        assert_eq!(value("input.id"), Ok(("17".into(), false)));
        assert_eq!(value("input.who.name"), Ok(("Ann".into(), false)));
        assert_eq!(value("input.who.new"), Ok(("true".into(), false)));
        assert_eq!(value("city").unwrap_err(), "groups.city is missing");
        assert_eq!(value("input.city").unwrap_err(), "input.city is missing");
        for name in ["input.x", "input.list", "input.who"] {
            assert!(
                value(name).unwrap_err().contains("must be a string"),
                "{name}"
            );
        }
        assert_eq!(public.to_json(), r#"{"person":"p\"1"}"#);
    }

    #[test]
    fn labels_have_one_place_and_one_type() {
        let field: GroupField = "input.id".parse().unwrap();
        let mut labels = GroupLabels::default();
        let mut add = |input: &str| labels.add(&field, input, None, None);
        assert_eq!(add(r#"{"id": 1}"#), Ok(0));
        assert_eq!(add(r#"{"id": 2}"#), Ok(1));
        assert_eq!(add(r#"{"id": 1}"#), Ok(0));
        assert!(
            add(r#"{"id": "1"}"#)
                .unwrap_err()
                .contains("another JSON type")
        );
        assert!(add("{}").unwrap_err().contains("is missing"));
        assert_eq!(labels.into_values(), ["1", "2"]);

        let field: GroupField = "person".parse().unwrap();
        let one = groups(r#"{"person": "a"}"#);
        let mut labels = GroupLabels::default();
        assert_eq!(labels.add(&field, "{}", Some(&one), None), Ok(0));
        let error = labels.add(&field, "{}", None, Some(&one)).unwrap_err();
        assert!(error.contains("those of answers"));
    }

    #[test]
    fn bad_groups_are_rejected() {
        for (json, reason) in [
            (r#"{"Person": "a"}"#, "no name of a group field"),
            (r#"{"person": ""}"#, "1 to 200 bytes"),
            (r#"{"person": "a\nb"}"#, "control character"),
            (r#"{"person": "a", "person": "b"}"#, "given twice"),
            (r#"{"person": 1}"#, "string"),
            ("[]", "an object of strings"),
        ] {
            let error = serde_json::from_str::<Groups>(json)
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
