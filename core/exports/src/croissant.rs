//! Suites as Croissant 1.1 documents, which describe data sets in JSON-LD.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value, json};

use crate::citation::suite_bibtex;
use crate::report::{publisher, publisher_url, suite_url};
use crate::resources::Suite;
use crate::text::{line, lines};

/// A document's most fields. Inputs with thousands of keys are maps, not records.
const FIELDS_MAX: usize = 1000;

/// The file's identifier within a document.
const FILE: &str = "items.ndjson";

/// A field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Integers.
    Integer,
    /// Numbers.
    Float,
    /// Booleans.
    Boolean,
    /// Texts, or values with different types.
    Text,
}

impl FieldType {
    /// Returns a scalar's type. `None` for null, arrays and objects.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(_) => Some(Self::Boolean),
            Value::Number(number) if number.is_i64() => Some(Self::Integer),
            Value::Number(_) => Some(Self::Float),
            Value::String(_) => Some(Self::Text),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns the type that holds values with both types.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Integer | Self::Float, Self::Integer | Self::Float) => Self::Float,
            _ => Self::Text,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "sc:Integer",
            Self::Float => "sc:Float",
            Self::Boolean => "sc:Boolean",
            Self::Text => "sc:Text",
        }
    }
}

/// A suite's item fields: the top-level keys of `input` that have a scalar value in an item, and in no item
/// an array or an object.
#[derive(Debug, Clone, Default)]
pub struct ItemFields {
    /// The types by key. `None` if an item has another value than a scalar.
    types: BTreeMap<String, Option<FieldType>>,
}

impl ItemFields {
    /// Adds an item's input.
    pub fn add(&mut self, input: &Value) {
        let Value::Object(input) = input else {
            return;
        };
        for (key, value) in input {
            let (is_full, found) = (self.types.len() >= FIELDS_MAX, FieldType::of(value));
            match self.types.entry(key.clone()) {
                Entry::Vacant(_) if is_full || value.is_null() => {}
                Entry::Vacant(vacant) => {
                    vacant.insert(found);
                }
                Entry::Occupied(_) if value.is_null() => {}
                Entry::Occupied(mut known) => {
                    let both = known.get().zip(found);
                    known.insert(both.map(|(known, found)| known.or(found)));
                }
            }
        }
    }

    /// Returns the keys with their types, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, FieldType)> {
        let typed = |(key, found): (_, &Option<FieldType>)| found.map(|found| (key, found));
        self.types
            .iter()
            .map(|(key, found)| (key.as_str(), found))
            .filter_map(typed)
    }
}

/// A suite's version with what a Croissant document states about its items.
#[derive(Debug, Clone, Copy)]
pub struct Croissant<'a> {
    /// The installation's address, without a slash at the end.
    pub base_url: &'a str,
    /// The suite.
    pub suite: &'a Suite,
    /// The version.
    pub version: &'a str,
    /// The address at which `items.ndjson` is.
    pub items_url: &'a str,
    /// The SHA-256 of `items.ndjson`, in lower-case hex.
    pub items_sha256: &'a str,
    /// The item fields.
    pub fields: &'a ItemFields,
}

impl Croissant<'_> {
    /// Returns the document. It describes the items, and never the answers.
    pub fn document(&self) -> Value {
        let Self {
            base_url,
            suite,
            version,
            items_url,
            items_sha256,
            fields,
        } = *self;
        let mut creator = json!({"@type": "sc:Organization", "name": publisher(base_url, suite)});
        if let Some(url) = publisher_url(base_url, suite) {
            creator["url"] = json!(url);
        }
        let title = line(&suite.title);
        let description = lines(&suite.description);
        let mut document = Map::new();
        let mut set = |key: &str, value: Value| document.insert(key.to_owned(), value);
        set("@context", context());
        set("@type", json!("sc:Dataset"));
        set("conformsTo", json!("http://mlcommons.org/croissant/1.1"));
        set("name", json!(title));
        set(
            "description",
            json!(if description.trim().is_empty() {
                &title
            } else {
                &description
            }),
        );
        set("url", json!(suite_url(base_url, suite)));
        set("identifier", json!(suite.suite_id));
        set("version", json!(version));
        // The time belongs to the current version.
        if suite.version == version {
            set("datePublished", json!(suite.published_at));
        }
        if let Some(license) = &suite.license {
            set("license", json!(line(license)));
        }
        if !suite.tags.is_empty() {
            set("keywords", json!(suite.tags));
        }
        set("creator", creator);
        set("citeAs", json!(suite_bibtex(base_url, suite, version)));
        set(
            "distribution",
            json!([{
                "@type": "cr:FileObject", "@id": FILE, "name": FILE, "contentUrl": items_url,
                "encodingFormat": "application/jsonlines", "sha256": items_sha256,
            }]),
        );
        set(
            "recordSet",
            json!([{"@type": "cr:RecordSet", "@id": "items", "name": "items", "field": record_fields(fields)}]),
        );
        Value::Object(document)
    }
}

/// Returns the record set's fields. Their ids have no key: a key can have characters that an id must not have.
fn record_fields(fields: &ItemFields) -> Vec<Value> {
    let source =
        |extract: &str| json!({"fileObject": {"@id": FILE}, "extract": {"column": extract}});
    let item_id = json!({
        "@type": "cr:Field", "@id": "items/item_id", "name": "item_id", "dataType": "sc:Text",
        "source": source("item_id"),
    });
    let inputs = fields.fields().enumerate().map(|(at, (key, found))| {
        let mut source = source("input");
        source["transform"] = json!({"jsonPath": json_path(key)});
        json!({
            "@type": "cr:Field", "@id": format!("items/input-{}", at + 1), "name": key,
            "dataType": found.as_str(), "source": source,
        })
    });
    std::iter::once(item_id).chain(inputs).collect()
}

/// Returns a key's path.
fn json_path(key: &str) -> String {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let is_plain = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(is_word);
    match is_plain {
        true => format!("$.{key}"),
        false => format!("$.\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Returns the specification's context, version 1.1.
fn context() -> Value {
    json!({
        "@language": "en",
        "@vocab": "https://schema.org/",
        "arrayShape": "cr:arrayShape",
        "citeAs": "cr:citeAs",
        "column": "cr:column",
        "conformsTo": "dct:conformsTo",
        "containedIn": "cr:containedIn",
        "cr": "http://mlcommons.org/croissant/",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "dct": "http://purl.org/dc/terms/",
        "description": {"@container": "@language"},
        "equivalentProperty": "cr:equivalentProperty",
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "extract": "cr:extract",
        "field": "cr:field",
        "fileObject": "cr:fileObject",
        "fileProperty": "cr:fileProperty",
        "fileSet": "cr:fileSet",
        "format": "cr:format",
        "includes": "cr:includes",
        "isArray": "cr:isArray",
        "isLiveDataset": "cr:isLiveDataset",
        "jsonPath": "cr:jsonPath",
        "key": "cr:key",
        "md5": "cr:md5",
        "name": {"@container": "@language"},
        "parentField": "cr:parentField",
        "path": "cr:path",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "recordSet": "cr:recordSet",
        "references": "cr:references",
        "regex": "cr:regex",
        "repeated": "cr:repeated",
        "replace": "cr:replace",
        "samplingRate": "cr:samplingRate",
        "sc": "https://schema.org/",
        "separator": "cr:separator",
        "source": "cr:source",
        "subField": "cr:subField",
        "transform": "cr:transform",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_scalar_keys_with_their_common_type() {
        let mut fields = ItemFields::default();
        for input in [
            json!({"age": 3, "ok": true, "text": "a", "list": [1], "mixed": 1, "null": null, "late": null}),
            json!({"age": 3.5, "text": "b", "list": 1, "mixed": "x", "late": 2}),
            json!("no object"),
        ] {
            fields.add(&input);
        }
        let found: Vec<_> = fields.fields().collect();
        assert_eq!(
            found,
            [
                ("age", FieldType::Float),
                ("late", FieldType::Integer),
                ("mixed", FieldType::Text),
                ("ok", FieldType::Boolean),
                ("text", FieldType::Text),
            ]
        );
    }

    #[test]
    fn path_quotes_keys_that_are_no_words() {
        assert_eq!(json_path("age"), "$.age");
        assert_eq!(json_path("a \"b\\"), "$.\"a \\\"b\\\\\"");
    }
}
