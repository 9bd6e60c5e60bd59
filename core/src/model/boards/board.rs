//! Leaderboards: entries, and a suite version's computed board.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Serialize, Serializer};
use url::Url;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::baselines::{BoardBaseline, VsBaseline};
use crate::model::cursor::bad_cursor;
use crate::model::error::{Error, Result};
use crate::model::ids::{EntryId, JobId, OrgId, ReceiptId, SuiteId, is_version};
use crate::model::public_name::public_name;
use crate::model::slices::FieldSlices;
use crate::model::suite::BoardMode;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::FieldError;

pub use assay_eval::board::ENTRIES_MAX;

/// Default and maximum page size for the organization's entries.
pub const ENTRIES_PAGE: (u32, u32) = (50, 200);

/// Default and maximum page size for a board.
pub const BOARD_PAGE: (u32, u32) = (500, 1000);

/// An entry name's maximum length, in characters.
const NAME_MAX: usize = 100;

/// An entry URL's maximum length, in characters.
const URL_MAX: usize = 512;

text_enum! {
    /// A board's state.
    pub enum BoardStatus {
        /// The board accepts entries.
        Open = "open",
        /// The board has closed, and its figures are not ready yet.
        Computing = "computing",
        /// The board has closed, and its figures are computed.
        Final = "final",
    }
}

text_enum! {
    /// The callers that can read a board.
    pub enum BoardVisibility {
        /// Callers with any credential can read the board.
        Credential = "credential",
        /// Everyone can read the board.
        Public = "public",
    }
}

text_enum! {
    /// The party that removed an entry from a board.
    pub enum Moderator {
        /// The publisher of the suite.
        Publisher = "publisher",
        /// The operator of the installation.
        Operator = "operator",
    }
}

/// A job that its organization put on the board of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Entry {
    /// The id of the entry.
    pub id: EntryId,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The id of the job.
    pub job_id: JobId,
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite whose board the entry is on.
    pub suite_version: String,
    /// The name of the entry on the board.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// A page about the entry. Null if there is none.
    #[schema(max_length = 512, format = "uri")]
    pub url: Option<String>,
    /// The id of the user or of the API key that entered the job.
    pub entered_by: String,
    /// The time at which the job was entered.
    pub entered_at: Timestamp,
    /// The time at which the entry was withdrawn. Null if it was not.
    pub withdrawn_at: Option<Timestamp>,
    /// The time at which the entry was removed. Null if it was not.
    pub removed_at: Option<Timestamp>,
    /// The reason why the entry was removed. Null if it was not.
    pub removed_reason: Option<String>,
    /// The party that removed the entry. Absent if it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub removed_by: Option<Moderator>,
    /// True if the organization is the publisher of the suite, or shares a domain or its creator with it. Absent if
    /// the suite is the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_publisher: Option<bool>,
}

/// An entry that the publisher of the suite has removed or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModeratedEntry {
    /// The id of the entry.
    pub entry_id: EntryId,
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite whose board the entry is on.
    pub suite_version: String,
    /// The time at which the entry was removed. Null if it was not.
    pub removed_at: Option<Timestamp>,
    /// The reason why the entry was removed. Null if it was not.
    pub removed_reason: Option<String>,
    /// The party that removed the entry. Null if it was not removed.
    pub removed_by: Option<Moderator>,
}

/// The removal of an entry, as the board shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Removal {
    /// The time of the removal.
    pub removed_at: Timestamp,
    /// The reason.
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
    /// The party that removed the entry.
    pub by: Moderator,
}

/// A page of the entries of an organization, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Entries {
    /// The entries of the page.
    #[schema(max_items = 200)]
    pub entries: Vec<Entry>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<Timestamp>,
}

/// The tests of a board.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct BoardMethod {
    /// The test of two entries: `paired`, by their values for the same items, or
    /// `paired_by_cluster`, by their sums over the same clusters.
    pub test: &'static str,
    /// The correction for all tests together, always `holm`.
    pub correction: &'static str,
    /// The probability that at least one difference was found by chance, at most: 0.05.
    pub level: f64,
}

impl BoardMethod {
    /// Returns the method of a suite whose items are in clusters or are independent.
    pub const fn of(is_clustered: bool) -> Self {
        Self {
            test: if is_clustered {
                "paired_by_cluster"
            } else {
                "paired"
            },
            correction: "holm",
            level: 0.05,
        }
    }
}

/// The leaderboard of a suite's version. It ranks only what the data separate: entries of one tier
/// are not ordered by their values.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Board {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// The metric of `value`.
    pub metric: String,
    /// True if a smaller value of the metric is better.
    pub lower_is_better: bool,
    /// The disclosure policy of the suite.
    pub release: String,
    /// The times at which the board shows figures.
    pub board: BoardMode,
    /// The state of the board.
    pub status: BoardStatus,
    /// The time from which the board accepts no entries. Null if none is set.
    pub closes_at: Option<Timestamp>,
    /// The time of the computation that this page shows. Null before the first one.
    pub as_of: Option<Timestamp>,
    /// The callers that can read the board.
    pub visibility: BoardVisibility,
    /// The tests.
    pub method: BoardMethod,
    /// The number of entries in the tests.
    #[schema(minimum = 0)]
    pub n_entries: i64,
    /// The number of items in the tests; for a suite with sealed items, the number of sealed items.
    /// Null before the first computation.
    #[schema(minimum = 1)]
    pub n_items: Option<i64>,
    /// The number of clusters in the tests. Absent if the items are independent, and before the first
    /// computation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub n_clusters: Option<i64>,
    /// The baselines of the suite, which are not ranked. Empty before a suite with sealed items has
    /// closed.
    #[schema(max_items = 12)]
    pub baselines: Vec<BoardBaseline>,
    /// The entries of the page, by tier, and by name within a tier.
    #[schema(max_items = 1000)]
    pub entries: Vec<BoardRow>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<BoardCursor>,
    /// The number of entries that the publisher or the operator has removed.
    #[schema(minimum = 0)]
    pub n_removed: i64,
    /// The removals, the newest first, at most 100.
    #[schema(max_items = 100)]
    pub removed: Vec<Removal>,
}

/// An entry as the board shows it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BoardRow {
    /// The id of the entry.
    pub entry_id: EntryId,
    /// The name of the entry. Null after it was withdrawn.
    pub name: Option<String>,
    /// The name of the organization. Null after the entry was withdrawn.
    pub org_name: Option<String>,
    /// The domain that the organization has verified, of several the first one. Null if it has verified
    /// none, so that its name is unverified, and after the entry was withdrawn.
    #[schema(max_length = 253)]
    pub org_domain: Option<String>,
    /// A page about the entry. Null if there is none, and after the entry was withdrawn.
    #[schema(max_length = 512, format = "uri")]
    pub url: Option<String>,
    /// The tier, from 1. No entry of a tier is significantly worse than its best one.
    #[schema(minimum = 1)]
    pub tier: i64,
    /// The best rank that the tests do not exclude, from 1.
    #[schema(minimum = 1)]
    pub rank_low: i64,
    /// The worst rank that the tests do not exclude. With a probability of at least 95 %, the
    /// intervals of all entries contain the true ranks at the same time.
    #[schema(minimum = 1)]
    pub rank_high: i64,
    /// The figure of the job over the items in the tests, as the suite discloses it.
    pub value: f64,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if the suite
    /// does not disclose it or it cannot be estimated.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The figures by slice over the items in the tests, for each group field, as the suite discloses
    /// them.
    #[schema(max_items = 5)]
    pub slices: Vec<FieldSlices>,
    /// The results against each of the suite's baselines, in their order.
    #[schema(max_items = 12)]
    pub vs_baselines: Vec<VsBaseline>,
    /// The number of items in the tests for which the job has no prediction.
    #[schema(minimum = 0)]
    pub n_missing: i64,
    /// The number of submissions to this version of the suite by the organization and those that
    /// share its allowance, until `as_of` or the close. `value` is the one that they chose.
    #[schema(minimum = 0)]
    pub n_submissions: i64,
    /// The number of withdrawn and removed entries of the organization and those that share its
    /// allowance on this board.
    #[schema(minimum = 0)]
    pub n_withdrawn: i64,
    /// The time at which the job was entered.
    pub entered_at: Timestamp,
    /// The time at which the entry was withdrawn. Null if it was not.
    pub withdrawn_at: Option<Timestamp>,
    /// The id of the receipt of these figures. Null if it does not exist yet, and after the entry
    /// was withdrawn.
    pub receipt_id: Option<ReceiptId>,
    /// True if the organization is the publisher of the suite, or shares a domain or its creator with it. Absent if
    /// the suite is the operator's, and after the entry was withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_publisher: Option<bool>,
}

/// Validates an entry's name, and returns it as [`public_name`] does.
///
/// # Errors
/// A field error if it has more than 100 characters, or is no name that strangers may see.
pub fn entry_name(value: &str) -> Result<String, FieldError> {
    public_name("name", value, NAME_MAX)
}

/// Validates an entry's URL, and returns it in its normal form.
///
/// # Errors
/// A field error unless it is a URL with `https`, a host, no user and at most 512 characters.
pub fn entry_url(value: &str) -> Result<String, FieldError> {
    let bad = || {
        let message = format!("must be a URL with https of at most {URL_MAX} characters");
        FieldError::new("url", "format", message)
    };
    let url = Url::parse(value).map_err(|_| bad())?;
    let is_good = url.scheme() == "https"
        && url.host().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.as_str().len() <= URL_MAX
        && !value.contains(char::is_whitespace);
    is_good.then(|| url.to_string()).ok_or_else(bad)
}

/// The position at which a board page begins. It names the computation, so that all pages show
/// the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardCursor {
    /// A checksum of the suite's id.
    suite: u32,
    /// The version of the suite.
    pub version: String,
    /// The computation's number.
    pub computation: i32,
    /// The row count before the page.
    pub place: i32,
}

impl BoardCursor {
    /// Returns the cursor for a page that begins after this many rows in a computation.
    pub fn new(suite_id: &SuiteId, version: String, computation: i32, place: i32) -> Self {
        Self {
            suite: crc32fast::hash(suite_id.as_str().as_bytes()),
            version,
            computation,
            place,
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

impl fmt::Display for BoardCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(format!(
            "{}:{}:{}:{:08x}",
            self.computation, self.place, self.version, self.suite
        )))
    }
}

impl FromStr for BoardCursor {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let mut parts = std::str::from_utf8(&bytes).ok()?.splitn(4, ':');
            let computation = parts.next()?.parse().ok()?;
            let place = parts.next()?.parse().ok()?;
            let version = parts.next()?.to_owned();
            let cursor = Self {
                suite: u32::from_str_radix(parts.next()?, 16).ok()?,
                version,
                computation,
                place,
            };
            // Formatting the cursor again must give the same text, so that a position has only one
            // cursor.
            (place >= 0 && is_version(&cursor.version) && cursor.to_string() == text)
                .then_some(cursor)
        };
        parse().ok_or_else(bad_cursor)
    }
}

impl PartialSchema for BoardCursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "The position at which a page begins. Opaque.",
            "^[A-Za-z0-9_-]+$",
            160,
            "MTI6NTAwOjE6ZDI1NGQwNjg",
        )
    }
}

impl ToSchema for BoardCursor {}

impl From<BoardCursor> for String {
    fn from(cursor: BoardCursor) -> Self {
        cursor.to_string()
    }
}

impl Serialize for BoardCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_https_and_no_user() {
        assert_eq!(
            entry_url("https://lab.example").unwrap(),
            "https://lab.example/"
        );
        for bad in [
            "http://lab.example",
            "javascript:alert(1)",
            "https://user@lab.example/",
            "https://",
            "lab.example",
            "https://lab.example/a b",
            &format!("https://lab.example/{}", "a".repeat(500)),
        ] {
            assert!(entry_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn altered_cursor_is_rejected() {
        let (lunch, dinner): (SuiteId, SuiteId) = (
            "suite:lunch".parse().unwrap(),
            "suite:dinner".parse().unwrap(),
        );
        let cursor = BoardCursor::new(&lunch, "2026-01".into(), 7, 500);
        assert_eq!(cursor.to_string().parse::<BoardCursor>().unwrap(), cursor);
        assert!(cursor.clone().of(&lunch).is_ok() && cursor.of(&dinner).is_err());
        let longest = BoardCursor::new(&lunch, "v".repeat(64), i32::MIN, i32::MAX);
        assert!(longest.to_string().len() <= 160);
        for bad in ["", "MQ", "MDE6MDphOjAwMDAwMDAw"] {
            assert!(bad.parse::<BoardCursor>().is_err(), "{bad}");
        }
    }
}
