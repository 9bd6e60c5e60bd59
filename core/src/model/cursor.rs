//! Pages of keys, invites, members and domains, and the cursors that lead from one to the next.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Serialize, Serializer};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::error::{Error, Result};
use crate::model::suite::bad_cursor;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// Default and largest size of a page.
pub const PAGE: (u32, u32) = (100, 200);

/// The largest length of a cursor, in characters: that of a domain name of 253.
const CURSOR_MAX: usize = 400;

/// A listing. Its name is part of its cursors, so that a cursor of one listing is not valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Keys, newest first.
    Keys,
    /// Invites, newest first.
    Invites,
    /// Members, the longest membership first.
    Members,
    /// Verified domains, by name.
    Domains,
}

impl Listing {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Invites => "invites",
            Self::Members => "members",
            Self::Domains => "domains",
        }
    }
}

/// The place of a row in a listing: the next page begins after it, whether the row is still there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    listing: Listing,
    /// The time by which the listing is ordered; 1970 where it is ordered by id.
    at: Timestamp,
    id: String,
}

impl Cursor {
    fn read(listing: Listing, text: &str) -> Option<Self> {
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
        // Written again it must be the same, so that a position has one cursor.
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

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "The position where a page begins. Opaque.",
            "^[A-Za-z0-9_-]+$",
            CURSOR_MAX,
            "a2V5czowOmtleV8x",
        )
    }
}

impl ToSchema for Cursor {}

/// The page that a caller asks for, as it was sent.
#[derive(Debug, Default)]
pub struct PageQuery {
    /// Its size.
    pub limit: Option<i64>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl PageQuery {
    /// Checks the fields.
    pub fn read(self, listing: Listing) -> Result<Page> {
        let mut faults = Vec::new();
        let limit =
            validation::ok_or_collect(&mut faults, validation::limit(self.limit, PAGE.0, PAGE.1));
        if !faults.is_empty() {
            return Err(Error::fields(faults));
        }
        let after = self
            .cursor
            .map(|text| Cursor::read(listing, &text).ok_or_else(bad_cursor))
            .transpose()?;
        let (at, id) = after.map(|cursor| (cursor.at, cursor.id)).unzip();
        Ok(Page {
            listing,
            limit,
            at,
            id,
        })
    }
}

/// A page of a listing.
#[derive(Debug)]
pub struct Page {
    listing: Listing,
    limit: u32,
    /// The page begins after the row with this time …
    pub at: Option<Timestamp>,
    /// … and this id.
    pub id: Option<String>,
}

impl Page {
    /// How many rows to read: one more than the page has shows whether there is a next page.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Cuts what was read to the page, and returns where the next page begins. `place` gives a row's time and id.
    pub fn cut<T>(
        &self,
        rows: &mut Vec<T>,
        place: impl Fn(&T) -> (Timestamp, String),
    ) -> Option<Cursor> {
        let has_next = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let (at, id) = place(rows.last().filter(|_| has_next)?);
        Some(Cursor {
            listing: self.listing,
            at,
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_back_by_its_listing_alone() {
        let cursor = Cursor {
            listing: Listing::Keys,
            at: "2026-01-31T23:59:59.000001Z".parse().unwrap(),
            id: "key_1".into(),
        };
        let text = cursor.to_string();
        assert_eq!(Cursor::read(Listing::Keys, &text), Some(cursor));
        assert_eq!(Cursor::read(Listing::Invites, &text), None);
        for bad in [
            "",
            "x",
            "a2V5cw",
            &format!("{text}="),
            &URL_SAFE_NO_PAD.encode("keys:01:k"),
            &URL_SAFE_NO_PAD.encode("keys:1:\0"),
        ] {
            assert_eq!(Cursor::read(Listing::Keys, bad), None, "{bad:?}");
        }
        let longest = Cursor {
            listing: Listing::Domains,
            at: Timestamp::from_unix_micros(0).unwrap(),
            id: "d".repeat(253),
        };
        assert!(longest.to_string().len() <= CURSOR_MAX);
    }

    #[test]
    fn page_is_cut_and_names_the_next_one() {
        let page = PageQuery {
            limit: Some(2),
            cursor: None,
        }
        .read(Listing::Domains)
        .unwrap();
        let place = |id: &&str| (Timestamp::from_unix_micros(0).unwrap(), (*id).to_owned());
        let mut rows = vec!["a", "b", "c"];
        let next = page.cut(&mut rows, place).unwrap().to_string();
        assert_eq!(rows, ["a", "b"]);
        let second = PageQuery {
            limit: None,
            cursor: Some(next),
        }
        .read(Listing::Domains)
        .unwrap();
        assert_eq!((second.id.as_deref(), second.rows()), (Some("b"), 101));
        assert_eq!(page.cut(&mut rows, place), None);
    }
}
