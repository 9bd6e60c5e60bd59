//! Suites: the items that anyone may read, and the cursor that pages them. Answers live elsewhere.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::error::{Error, Result};
use crate::model::ids::MalformedId;
use crate::model::timestamp::Timestamp;
use crate::text_enum;
use assay_eval::Ladder;

/// `suite:<name>`: lower-case letters, digits, `.`, `_` and `-`, at most 64 characters after the prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, sqlx::Type)]
#[serde(transparent)]
#[sqlx(transparent)]
pub struct SuiteId(String);

impl SuiteId {
    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SuiteId {
    type Err = MalformedId;
    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let name = text.strip_prefix("suite:").ok_or(MalformedId)?;
        let allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let well_formed = (1..=64).contains(&name.len()) && name.bytes().all(allowed);
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(MalformedId)
        }
    }
}

impl fmt::Display for SuiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialSchema for SuiteId {
    fn schema() -> RefOr<Schema> {
        let described = "`suite:` and 1 to 64 lower-case letters, digits, `.`, `_` or `-`.";
        crate::model::openapi_schema::text(
            described,
            "^suite:[a-z0-9._-]{1,64}$",
            70,
            "suite:lunch",
        )
    }
}

impl ToSchema for SuiteId {}

impl From<SuiteId> for String {
    fn from(id: SuiteId) -> Self {
        id.0
    }
}

/// Longest version string, in bytes.
pub const VERSION_MAX: usize = 64;

/// Whether a text can be a suite's version: 1 to [`VERSION_MAX`] letters, digits, `.`, `_`, `-` and `+`.
pub fn is_version(text: &str) -> bool {
    (1..=VERSION_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
}

/// A published suite in its current version.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Suite {
    /// `suite:<name>`
    pub suite_id: SuiteId,
    /// Its current version.
    pub version: String,
    /// The metric that an eval reports.
    pub metric: String,
    /// Number of items.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// Whether scores of single items may be read.
    pub per_item_feedback: bool,
    /// For people.
    pub description: String,
    /// The build of the scoring library.
    pub hfm_sha: String,
    /// How much of a score is disclosed: `exact`, `rounded(d)`, `ladder(step)` or `sealed(fraction)`.
    #[schema(pattern = r"^[a-z]+(\([0-9.]+\))?$")]
    pub release: String,
    /// How many submissions an organization may make for it a day, UTC; null where that is not bounded. Comparisons count as
    /// submissions.
    #[schema(minimum = 1)]
    pub max_submissions_per_day: Option<i64>,
    /// How many submissions an organization may make for this version, for good; null where that is not bounded. Comparisons
    /// count as submissions.
    #[schema(minimum = 1)]
    pub max_submissions: Option<i64>,
    /// Who may submit.
    pub access: SuiteAccess,
    /// The bounds of the loss of one item, `[low, high]`; null where there are none.
    #[schema(min_items = 2, max_items = 2)]
    pub clip: Option<[f64; 2]>,
    /// The grid of values that are disclosed; null unless `release` is a ladder.
    pub ladder: Option<LadderGrid>,
    /// Number of sealed items: scored, and disclosed after the suite has closed.
    #[schema(minimum = 0)]
    pub n_sealed: i64,
    /// When the suite closes and the sealed figures of final jobs are disclosed; null without sealed items.
    pub closes_at: Option<Timestamp>,
}

text_enum! {
    /// Who may submit to a suite.
    pub enum SuiteAccess {
        /// Every organization.
        Everyone = "everyone",
        /// Organizations with a verified domain.
        VerifiedDomain = "verified_domain",
        /// Organizations that the operator has granted access.
        Granted = "granted",
    }
}

/// The values that a suite with a ladder discloses: `start` + i × `step`, for i from 0 to `levels`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct LadderGrid {
    /// What every submission is shown at least: the value of the best submission that knows nothing of single items.
    pub start: f64,
    /// The difference of two neighbouring values, in units of the metric; negative where lower is better.
    pub step: f64,
    /// Number of values above `start`.
    #[schema(minimum = 1)]
    pub levels: i64,
}

impl From<Ladder> for LadderGrid {
    fn from(
        Ladder {
            start,
            step,
            levels,
        }: Ladder,
    ) -> Self {
        Self {
            start,
            step,
            levels: i64::from(levels),
        }
    }
}

/// What a suite's version allows each holder of an allowance.
#[derive(Debug, Clone, Copy)]
pub struct Allowance<'a> {
    /// The suite.
    pub suite_id: &'a SuiteId,
    /// The version.
    pub suite_version: &'a str,
    /// Submissions and comparisons for good, if that is bounded.
    pub max_submissions: Option<i32>,
    /// Submissions and comparisons per day, UTC, if that is bounded.
    pub max_submissions_per_day: Option<i32>,
}

/// Answer of the listing of suites, by id.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Suites {
    /// The current version of each.
    pub suites: Vec<Suite>,
}

/// One item, as everyone may read it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SuiteItem {
    /// To be sent back verbatim with the prediction.
    #[schema(min_length = 1, max_length = 512)]
    pub item_id: String,
    /// A JSON object, exactly as it was published.
    #[schema(value_type = Object)]
    pub input: Box<RawValue>,
}

/// One page of a suite's items, in the order of publication.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SuiteItems {
    /// The suite.
    pub suite_id: SuiteId,
    /// The version that this page belongs to.
    pub suite_version: String,
    /// The items.
    #[schema(max_items = 1000)]
    pub items: Vec<SuiteItem>,
    /// Number of items in the suite, not in the page.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<ItemCursor>,
}

/// Default and largest size of a page of items.
pub const ITEMS_PAGE: (u32, u32) = (500, 1000);

/// Where a page of items begins. It names the suite, so that it is not valid for another one, and the version, so that paging goes on
/// through the version it began with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemCursor {
    /// A checksum of the suite's id: the id itself would make the cursor longer than clients were told.
    suite: u32,
    /// The version being paged.
    pub version: String,
    /// Ordinal of the first item of the page.
    pub ordinal: i32,
}

impl ItemCursor {
    /// The cursor of an item of a suite.
    pub fn new(suite_id: &SuiteId, version: String, ordinal: i32) -> Self {
        Self {
            suite: crc32fast::hash(suite_id.as_str().as_bytes()),
            version,
            ordinal,
        }
    }

    /// Checks that the cursor is one of this suite.
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
        let read = || {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let (ordinal, rest) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
            let (version, suite) = rest.split_once(':')?;
            let suite = u32::from_str_radix(suite, 16).ok()?;
            let cursor = Self {
                suite,
                version: version.to_owned(),
                ordinal: ordinal.parse().ok()?,
            };
            // Written again it must be the same, so that there is one text for one cursor.
            (cursor.ordinal >= 0 && is_version(version) && cursor.to_string() == text)
                .then_some(cursor)
        };
        read().ok_or_else(bad_cursor)
    }
}

/// The refusal of a cursor that is not one of ours.
pub fn bad_cursor() -> Error {
    Error::field(
        "cursor",
        "format",
        "not a cursor of this listing; pass the next_cursor of the previous page, or leave it out to begin again",
    )
}

impl PartialSchema for ItemCursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "Says where a page begins. Opaque.",
            "^[A-Za-z0-9_-]+$",
            128,
            "NTAwOjE6ZDI1NGQwNjg",
        )
    }
}

impl ToSchema for ItemCursor {}

impl Serialize for ItemCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_tampering_is_refused() {
        let (lunch, dinner): (SuiteId, SuiteId) = (
            "suite:lunch".parse().unwrap(),
            "suite:dinner".parse().unwrap(),
        );
        let cursor = ItemCursor::new(&lunch, "2026-01".into(), 500);
        assert!(cursor.clone().of(&lunch).is_ok() && cursor.clone().of(&dinner).is_err());
        let longest = ItemCursor::new(&lunch, "v".repeat(VERSION_MAX), i32::MAX);
        assert!(longest.to_string().len() <= 128, "as its schema says");
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

    #[test]
    fn suite_ids_have_one_spelling() {
        assert!("suite:survivor-votes".parse::<SuiteId>().is_ok());
        for bad in [
            "survivor",
            "suite:",
            "suite:A",
            "suite:a b",
            "suite:ä",
            "Suite:a",
        ] {
            assert!(bad.parse::<SuiteId>().is_err(), "{bad}");
        }
    }
}
