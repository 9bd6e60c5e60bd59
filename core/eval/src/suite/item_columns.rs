//! The fields of a suite's items as columns, for the lint of clusters.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::groups::{Groups, INPUT};
use super::lines::FolderItem;

/// The most field names that are read. An input with more of them has data as names.
const NAMES_MAX: usize = 1000;

/// A field needs a value in one of this many items. Columns for rarer names could need more memory
/// than the inputs.
const ITEMS_PER_VALUE_MAX: usize = 2;

/// Stands for an item without the field.
pub(super) const MISSING: u64 = 0;

/// A field, and the hash of its value in each item. Equal values have equal hashes. A string differs
/// from a number with the same characters.
pub(super) struct Column {
    /// The field's name in `cluster`, such as `input.user.id`, or `person` for a group field.
    pub(super) field: String,
    /// The innermost name, such as `id`.
    pub(super) name: String,
    /// The hashes in the order of the items; [`MISSING`] for items without the field.
    pub(super) values: Vec<u64>,
}

/// Returns a column for each scalar field of the input, at most two levels deep, and for each group
/// field. Fields that less than half of the items have are left out. A null or an empty string counts
/// as no value. A column takes 8 bytes per item.
pub(super) fn columns(items: &[FolderItem]) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for field in frequent_fields(items) {
        places.insert(field.path.clone(), columns.len());
        columns.push(Column {
            field: field.path,
            name: field.name,
            values: vec![MISSING; items.len()],
        });
    }
    let hasher = RandomState::new();
    for (at, item) in items.iter().enumerate() {
        for_each_field(item, &mut |path, _, value| {
            if let Some(place) = places.get(path) {
                columns[*place].values[at] = value.hash(&hasher);
            }
        });
    }
    columns
}

/// Returns the hash of each item id's prefix, or [`MISSING`] if it has none.
pub(super) fn id_prefixes(items: &[FolderItem]) -> Vec<u64> {
    let hasher = RandomState::new();
    let hash = |item: &FolderItem| {
        let prefix = id_prefix(&item.item_id).map(Cow::Borrowed);
        prefix.map_or(MISSING, |prefix| Scalar::Text(prefix).hash(&hasher))
    };
    items.iter().map(hash).collect()
}

/// Returns an item id up to its last separator, unless nothing precedes it.
pub(super) fn id_prefix(item_id: &str) -> Option<&str> {
    let end = item_id.rfind(['/', ':', '#', '.', '_', '-'])?;
    Some(&item_id[..end]).filter(|prefix| !prefix.is_empty())
}

/// A field name, and the number of items that have it.
struct FieldCount {
    path: String,
    name: String,
    n_items: usize,
    /// The last counted item, because an object can have a name twice.
    last_item: usize,
}

/// Returns the fields that at least half of the items have, in the order of their first items.
fn frequent_fields(items: &[FolderItem]) -> Vec<FieldCount> {
    let mut counts: Vec<FieldCount> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        for_each_field(item, &mut |path, name, _| match places.get(path) {
            Some(place) => {
                let count = &mut counts[*place];
                count.n_items += usize::from(count.last_item != at);
                count.last_item = at;
            }
            None if counts.len() < NAMES_MAX => {
                places.insert(path.to_owned(), counts.len());
                counts.push(FieldCount {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    n_items: 1,
                    last_item: at,
                });
            }
            None => {}
        });
    }
    counts.retain(|count| count.n_items * ITEMS_PER_VALUE_MAX >= items.len());
    counts
}

/// A field's value.
enum Scalar<'a> {
    Text(Cow<'a, str>),
    /// A number or a boolean, as JSON.
    Json(&'a str),
}

impl<'a> Scalar<'a> {
    /// Returns the value of this JSON, unless it is null, an empty string, an array or an object.
    fn read(json: &'a str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'"' => {
                let Name(text) = serde_json::from_str(json).ok()?;
                Some(Self::Text(text)).filter(|_| json.len() > 2)
            }
            b'[' | b'{' | b'n' => None,
            _ => Some(Self::Json(json)),
        }
    }

    fn hash(&self, hasher: &RandomState) -> u64 {
        let mut state = hasher.build_hasher();
        match self {
            Self::Text(text) => (true, text.as_ref()).hash(&mut state),
            Self::Json(json) => (false, *json).hash(&mut state),
        }
        state.finish().max(MISSING + 1)
    }
}

/// Calls `visit` with each field's path, innermost name and value in an item.
fn for_each_field(item: &FolderItem, visit: &mut impl FnMut(&str, &str, Scalar<'_>)) {
    let mut path = INPUT.to_owned();
    for_each_scalar(item.input.get(), &mut path, 2, visit);
    let groups = item.groups.iter().chain(&item.hidden_groups);
    for (name, value) in groups.flat_map(Groups::iter) {
        visit(name, name, Scalar::Text(value.into()));
    }
}

/// Calls `visit` with each scalar of an object, at most `depth` levels deep. `path` leads to the object,
/// with a dot at its end.
fn for_each_scalar(
    object: &str,
    path: &mut String,
    depth: usize,
    visit: &mut impl FnMut(&str, &str, Scalar<'_>),
) {
    let Ok(Entries(entries)) = serde_json::from_str(object) else {
        return;
    };
    let start = path.len();
    for (Name(name), json) in entries {
        path.push_str(&name);
        let json = json.get();
        if let Some(value) = Scalar::read(json) {
            visit(path, &name, value);
        } else if json.starts_with('{') && depth > 1 {
            path.push('.');
            for_each_scalar(json, path, depth - 1, visit);
        }
        path.truncate(start);
    }
}

/// A JSON string, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The entries of an object, without a map's allocations.
struct Entries<'a>(Vec<(Name<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Name<'de>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(Object).map(Self)
    }
}
