//! Suite items as callers read them, and their pages' cursor.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::cursor::bad_cursor;
use crate::model::error::{Error, Result};
use crate::model::ids::{SuiteId, is_version};

/// One item of a suite.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SuiteItem {
    /// The id of the item. A prediction repeats it verbatim.
    #[schema(min_length = 1, max_length = 512)]
    pub item_id: String,
    /// The question: a JSON object, exactly as it was published.
    #[schema(value_type = Object)]
    pub input: Box<RawValue>,
    /// The public group fields of the item, by name. Empty if it has none.
    pub groups: BTreeMap<String, String>,
}

/// One page of the items of a suite, in the order of publication.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SuiteItems {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite that the page belongs to.
    pub suite_version: String,
    /// The items of the page, in the order of publication.
    #[schema(max_items = 1000)]
    pub items: Vec<SuiteItem>,
    /// The number of items in the suite, not in the page.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<ItemCursor>,
}

/// Default and maximum page size for items.
pub const ITEMS_PAGE: (u32, u32) = (500, 1000);

/// The next page's size, measured before the page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageExtent {
    /// Item count.
    pub items: u32,
    /// The size of all ids and values, in bytes.
    pub bytes: u64,
}

/// The position at which an item page begins.
///
/// It names the suite, so that it is not valid for another suite, and the version, so that paging
/// ends in the version in which it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemCursor {
    /// A checksum of the suite's id. The id itself would exceed a cursor's documented maximum
    /// length.
    suite: u32,
    /// The version whose items are paged.
    pub version: String,
    /// The page's first item's zero-based position in the suite.
    pub ordinal: i32,
}

impl ItemCursor {
    /// Returns the cursor for a page that begins with the item at `ordinal`.
    pub fn new(suite_id: &SuiteId, version: String, ordinal: i32) -> Self {
        Self {
            suite: crc32fast::hash(suite_id.as_str().as_bytes()),
            version,
            ordinal,
        }
    }

    /// Returns the cursor if it belongs to this suite.
    ///
    /// # Errors
    /// `validation_failed` if it belongs to another suite.
    pub fn of(self, suite_id: &SuiteId) -> Result<Self> {
        if self.suite == crc32fast::hash(suite_id.as_str().as_bytes()) {
            Ok(self)
        } else {
            Err(bad_cursor())
        }
    }
}

impl fmt::Display for ItemCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(format!(
            "{}:{}:{:08x}",
            self.ordinal, self.version, self.suite
        )))
    }
}

impl FromStr for ItemCursor {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let (ordinal, rest) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
            let (version, suite) = rest.split_once(':')?;
            let suite = u32::from_str_radix(suite, 16).ok()?;
            let cursor = Self {
                suite,
                version: version.to_owned(),
                ordinal: ordinal.parse().ok()?,
            };
            // Formatting the cursor again must give the same text, so that a position has only one
            // cursor.
            (cursor.ordinal >= 0 && is_version(version) && cursor.to_string() == text)
                .then_some(cursor)
        };
        parse().ok_or_else(bad_cursor)
    }
}

impl PartialSchema for ItemCursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "The position at which a page begins. Opaque.",
            "^[A-Za-z0-9_-]+$",
            128,
            "NTAwOjE6ZDI1NGQwNjg",
        )
    }
}

impl ToSchema for ItemCursor {}

impl From<ItemCursor> for String {
    fn from(cursor: ItemCursor) -> Self {
        cursor.to_string()
    }
}

impl Serialize for ItemCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::suite::VERSION_MAX;

    #[test]
    fn altered_cursor_is_rejected() {
        let (lunch, dinner): (SuiteId, SuiteId) = (
            "suite:lunch".parse().unwrap(),
            "suite:dinner".parse().unwrap(),
        );
        let cursor = ItemCursor::new(&lunch, "2026-01".into(), 500);
        assert!(cursor.clone().of(&lunch).is_ok() && cursor.clone().of(&dinner).is_err());
        let longest = ItemCursor::new(&lunch, "v".repeat(VERSION_MAX), i32::MAX);
        assert!(longest.to_string().len() <= 128, "the schema allows 128");
        assert_eq!(cursor.to_string().parse::<ItemCursor>().unwrap(), cursor);
        let bad = [
            "",
            "x",
            "LTE6MQ",
            &format!("{cursor}="),
            &URL_SAFE_NO_PAD.encode("007:1"),
            &URL_SAFE_NO_PAD.encode("1:\0"),
            "Mjox",
        ];
        for text in bad {
            assert!(text.parse::<ItemCursor>().is_err(), "{text:?}");
        }
    }
}
