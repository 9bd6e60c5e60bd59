//! Pages of keys, invites, members and domains, and their cursors.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Serialize, Serializer};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::error::{Error, Result};
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// Default and maximum page size.
pub const PAGE: (u32, u32) = (100, 200);

/// Maximum length of a cursor, in characters. The cursor for a 253-character domain fits.
const CURSOR_MAX: usize = 400;

/// A listing that is paged. Its name is part of its cursors, so that one listing's cursor is not
/// valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// API keys, the newest first.
    Keys,
    /// Invites, the newest first.
    Invites,
    /// Members, the longest membership first.
    Members,
    /// Verified domains, by name.
    Domains,
    /// Suites, by id. The cursor has the id without `suite:`.
    Suites,
    /// A suite's submitters, the newest submission first. The cursor has their number at its time, because no
    /// id of theirs is public.
    Submitters,
}

impl Listing {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Invites => "invites",
            Self::Members => "members",
            Self::Domains => "domains",
            Self::Suites => "suites",
            Self::Submitters => "submitters",
        }
    }

    /// Validates the page that a caller requests: its size, and the `next_cursor` of the page before it.
    /// Without a cursor, it is the first page.
    ///
    /// # Errors
    /// `validation_failed` if the limit is out of range or the cursor is not this listing's.
    pub fn page(self, limit: Option<i64>, cursor: Option<&str>) -> Result<Page> {
        self.page_within(PAGE, limit, cursor)
    }

    /// Does the same as [`Self::page`] with another default and maximum size.
    pub fn page_within(
        self,
        (default, max): (u32, u32),
        limit: Option<i64>,
        cursor: Option<&str>,
    ) -> Result<Page> {
        let limit = validation::limit(limit, default, max)?;
        let after = cursor
            .map(|text| Cursor::parse(self, text).ok_or_else(bad_cursor))
            .transpose()?;
        let (at, id) = after.map(|cursor| (cursor.at, cursor.id)).unzip();
        Ok(Page {
            listing: self,
            limit,
            at,
            id,
        })
    }
}

/// A row's position in a listing. The next page begins after it, even if the row no longer
/// exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    listing: Listing,
    /// The time by which the listing is ordered, or 1970 in a listing that is ordered by id.
    at: Timestamp,
    id: String,
}

impl Cursor {
    fn parse(listing: Listing, text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (name, rest) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
        let (micros, id) = rest.split_once(':')?;
        let is_id = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let cursor = Self {
            listing,
            at: Timestamp::from_unix_micros(micros.parse().ok()?)?,
            id: id.to_owned(),
        };
        // Formatting the cursor again must give the same text, so that a position has only one
        // cursor.
        (name == listing.as_str() && is_id && cursor.to_string() == text).then_some(cursor)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "{}:{}:{}",
            self.listing.as_str(),
            self.at.unix_micros(),
            self.id
        );
        f.write_str(&URL_SAFE_NO_PAD.encode(text))
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "The position at which a page begins. Opaque.",
            "^[A-Za-z0-9_-]+$",
            CURSOR_MAX,
            "a2V5czowOmtleV8x",
        )
    }
}

impl ToSchema for Cursor {}

/// A listing's valid page.
#[derive(Debug)]
pub struct Page {
    listing: Listing,
    limit: u32,
    /// The row's time after which the page begins. `None` for the first page.
    pub at: Option<Timestamp>,
    /// The row's id after which the page begins. `None` for the first page.
    pub id: Option<String>,
}

impl Page {
    /// Returns how many rows to read: one more than the page has, which shows if there is a
    /// next page.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Truncates the rows to the page, and returns the next page's cursor, if there is one.
    ///
    /// `position` returns a row's time and id.
    pub fn cut<T>(
        &self,
        rows: &mut Vec<T>,
        position: impl Fn(&T) -> (Timestamp, String),
    ) -> Option<Cursor> {
        let has_next = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let (at, id) = position(rows.last().filter(|_| has_next)?);
        Some(self.after(at, id))
    }

    /// Returns the cursor of the page that begins after the row with this time and id.
    pub const fn after(&self, at: Timestamp, id: String) -> Cursor {
        Cursor {
            listing: self.listing,
            at,
            id,
        }
    }
}

/// Returns the field error for a cursor that does not belong to the listing.
pub fn bad_cursor() -> Error {
    Error::field(
        "cursor",
        "format",
        "must be the next_cursor of a page of this listing; leave it out to begin again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_valid_in_its_own_listing_only() {
        let cursor = Cursor {
            listing: Listing::Keys,
            at: "2026-01-31T23:59:59.000001Z".parse().unwrap(),
            id: "key_1".into(),
        };
        let text = cursor.to_string();
        assert_eq!(Cursor::parse(Listing::Keys, &text), Some(cursor));
        assert_eq!(Cursor::parse(Listing::Invites, &text), None);
        for bad in [
            "",
            "x",
            "a2V5cw",
            &format!("{text}="),
            &URL_SAFE_NO_PAD.encode("keys:01:k"),
            &URL_SAFE_NO_PAD.encode("keys:1:\0"),
        ] {
            assert_eq!(Cursor::parse(Listing::Keys, bad), None, "{bad:?}");
        }
        let longest = Cursor {
            listing: Listing::Domains,
            at: Timestamp::from_unix_micros(0).unwrap(),
            id: "d".repeat(253),
        };
        assert!(longest.to_string().len() <= CURSOR_MAX);
    }

    #[test]
    fn page_is_truncated_and_has_next_cursor() {
        let page = Listing::Domains.page(Some(2), None).unwrap();
        let position = |id: &&str| (Timestamp::from_unix_micros(0).unwrap(), (*id).to_owned());
        let mut rows = vec!["a", "b", "c"];
        let next = page.cut(&mut rows, position).unwrap().to_string();
        assert_eq!(rows, ["a", "b"]);
        let second = Listing::Domains.page(None, Some(&next)).unwrap();
        assert_eq!((second.id.as_deref(), second.rows()), (Some("b"), 101));
        assert_eq!(page.cut(&mut rows, position), None);
    }
}
