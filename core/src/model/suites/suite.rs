//! Suites as callers see them. The hidden answers are not in the model.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::baselines::SuiteBaseline;
use crate::model::ceiling::Ceiling;
use crate::model::cursor::Cursor;
use crate::model::error_details::SuiteAccess;
use crate::model::skill::SuiteSkill;
use crate::model::slices::SuiteSlices;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::Ladder;
use assay_eval::suite as eval;

pub use crate::model::ids::SuiteId;
pub use assay_eval::suite::VERSION_MAX;

/// A published suite in its current version.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Suite {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The current version of the suite.
    pub version: String,
    /// The metric that an eval reports, such as `accuracy` or `ndcg@10`.
    pub metric: String,
    /// True if a smaller value of the metric is better.
    pub lower_is_better: bool,
    /// The number of items.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// `true` if callers can read the scores of single items.
    pub per_item_feedback: bool,
    /// A description for people.
    pub description: String,
    /// The build of the scoring library.
    pub hfm_sha: String,
    /// The disclosure policy: `exact`, `rounded(d)`, `ladder(step)` or `sealed(fraction)`.
    #[schema(pattern = r"^[a-z]+(\([0-9.]+\))?$")]
    pub release: String,
    /// The number of submissions and comparisons that an organization can make for the suite in a
    /// day, UTC. Null if there is no limit.
    #[schema(minimum = 1)]
    pub max_submissions_per_day: Option<i64>,
    /// The number of submissions and comparisons that an organization can ever make for this
    /// version. Null if there is no limit.
    #[schema(minimum = 1)]
    pub max_submissions: Option<i64>,
    /// The organizations that can submit.
    pub access: SuiteAccess,
    /// The bounds of the loss of one item: the low bound, then the high bound. Null if there are
    /// none.
    #[schema(min_items = 2, max_items = 2)]
    pub clip: Option<[f64; 2]>,
    /// The grid of values that are disclosed. Null unless `release` is a ladder.
    pub ladder: Option<LadderGrid>,
    /// The number of sealed items. They are scored, and their figures are disclosed after the suite
    /// has closed.
    #[schema(minimum = 0)]
    pub n_sealed: i64,
    /// The time at which the suite closes: the sealed figures of final jobs are disclosed, and the
    /// board accepts no more entries. Null if the suite never closes.
    pub closes_at: Option<Timestamp>,
    /// The times at which the board of the suite shows figures.
    pub board: BoardMode,
    /// The places of the sequence in the input of each item. Null unless models can predict the
    /// suite (`POST /v1/predictions`).
    pub sequence: Option<SuiteSequence>,
    /// The commitment to the items and answers: a salted SHA-256 in lower-case hex.
    #[schema(min_length = 64, max_length = 64)]
    pub suite_commitment: Option<String>,
    /// The group field whose equal values make items dependent, such as `person` or `input.person`:
    /// errors and intervals are by cluster. `none` if the publisher states that items are
    /// independent. Absent if the suite states nothing; items then count as independent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 206)]
    pub cluster: Option<String>,
    /// True if the values of `cluster` are hidden, like the answers.
    pub cluster_is_hidden: bool,
    /// The number of clusters, open and sealed. Absent if items are independent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 2)]
    pub n_clusters: Option<i64>,
    /// The slices whose figures are in results, by group field.
    #[schema(max_items = 5)]
    pub slices: Vec<SuiteSlices>,
    /// The baselines that its publisher pins, then the trivial submissions. Empty if it pins none.
    #[schema(max_items = 12)]
    pub baselines: Vec<SuiteBaseline>,
    /// The noise ceiling of the open items, as the suite discloses it. Absent if the suite has no
    /// retest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ceiling: Option<Ceiling>,
    /// The average that a value is: over all items alike (`item`), or over the metric within each
    /// cluster (`cluster`).
    pub average: SuiteAverage,
    /// The options of each answer, in their order. Empty if the suite names none.
    #[schema(max_items = 1000)]
    pub labels: Vec<String>,
    /// The levels of predicted quantiles, ascending: each prediction has a number for each of them.
    /// Empty unless the metric is `pinball` or `wis`.
    #[schema(max_items = 99)]
    pub quantiles: Vec<f64>,
    /// The baseline against which skill is measured. Absent if results have no skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub skill: Option<SuiteSkill>,
    /// A short title for people: that of the publisher, or else the id.
    #[schema(max_length = 100)]
    pub title: String,
    /// The organization that published the suite. Null if the operator did.
    pub owner: Option<SuiteOwner>,
    /// The callers who can see the suite.
    pub visibility: SuiteVisibility,
    /// The state of the current version.
    pub status: SuiteStatus,
    /// The license of the items: an SPDX expression, or an `https` URL. Null if the publisher gives none.
    pub license: Option<String>,
    /// A BibTeX entry to cite. Null if the publisher gives none.
    pub citation: Option<String>,
    /// Pages about the suite. Nobody has checked them.
    #[schema(max_items = 10)]
    pub links: Vec<SuiteLink>,
    /// Words by which people find the suite.
    #[schema(max_items = 10)]
    pub tags: Vec<String>,
    /// The publisher's address for questions. Null if the publisher gives none, and for callers without a
    /// credential.
    pub contact: Option<String>,
    /// The time at which the current version was published.
    pub published_at: Timestamp,
    /// The time at which a version was last published, or the suite's text, visibility or access changed.
    pub updated_at: Timestamp,
    /// True if the organization of the caller can submit to the current version. Its allowance may be used
    /// up nevertheless.
    pub can_submit: bool,
    /// The notes about errors that the publisher has added to versions, the oldest first.
    #[schema(max_items = 20)]
    pub errata: Vec<SuiteErratum>,
}

/// A note about an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuiteErratum {
    /// The version.
    pub version: String,
    /// The note.
    #[schema(min_length = 1, max_length = 500)]
    pub note: String,
    /// The time at which the note was added.
    pub created_at: Timestamp,
}

/// A suite's versions, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteVersions {
    /// The versions, the newest first.
    #[schema(max_items = 1000)]
    pub versions: Vec<SuiteVersion>,
}

/// A version of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteVersion {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version.
    pub version: String,
    /// The state of the version.
    pub status: SuiteStatus,
    /// The number of items.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// The disclosure policy.
    pub release: String,
    /// The time at which the version closes. Null if it never closes.
    pub closes_at: Option<Timestamp>,
    /// The commitment to the items and answers: a salted SHA-256 in lower-case hex.
    #[schema(min_length = 64, max_length = 64)]
    pub suite_commitment: String,
    /// The time at which the version was published.
    pub published_at: Timestamp,
    /// The notes about errors of the version, the oldest first.
    #[schema(max_items = 20)]
    pub errata: Vec<SuiteErratum>,
}

/// The most errata that a suite has.
pub const ERRATA_MAX: usize = 20;

/// The longest erratum, in characters.
pub const ERRATUM_MAX: usize = 500;

/// The most versions in a list.
pub const VERSIONS_MAX: i64 = 1000;

/// The organization that published a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuiteOwner {
    /// The name of the organization.
    pub name: String,
    /// The handle of the organization, with which the ids of its suites begin.
    #[schema(min_length = 2, max_length = 24)]
    pub handle: String,
    /// A domain that the organization has verified. Null if it has verified none.
    pub domain: Option<String>,
}

/// A page about a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuiteLink {
    /// The text of the link.
    pub label: String,
    /// The address, which begins with `https://`.
    pub url: String,
}

/// The texts that hold for all versions of a suite, as they are stored: the keys that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are those of Suite")]
pub struct SuiteText {
    pub title: Option<String>,
    pub description: Option<String>,
    pub license: Option<String>,
    pub citation: Option<String>,
    pub links: Vec<SuiteLink>,
    pub tags: Vec<String>,
    pub contact: Option<String>,
}

text_enum! {
    /// A text that can be removed.
    pub enum SuiteTextKey {
        /// The title. The suite then shows its id.
        Title = "title",
        /// The description. The suite then shows that of its version.
        Description = "description",
        /// The license.
        License = "license",
        /// The citation.
        Citation = "citation",
        /// The links.
        Links = "links",
        /// The tags.
        Tags = "tags",
        /// The contact.
        Contact = "contact",
    }
}

text_enum! {
    /// The callers who can see a suite.
    pub enum SuiteVisibility {
        /// The owner and the organizations to which it gave a grant.
        Private = "private",
        /// Every organization.
        Listed = "listed",
        /// Every organization, and callers without a credential.
        Public = "public",
    }
}

impl SuiteVisibility {
    /// Returns `true` if more callers see a suite with this visibility than with the other one.
    pub const fn is_wider_than(self, other: Self) -> bool {
        self.reach() > other.reach()
    }

    const fn reach(self) -> u8 {
        match self {
            Self::Private => 0,
            Self::Listed => 1,
            Self::Public => 2,
        }
    }
}

text_enum! {
    /// The state of a suite's current version.
    pub enum SuiteStatus {
        /// The current version accepts submissions.
        Active = "active",
        /// A version that its publisher has asked to retire.
        Retiring = "retiring",
        /// The current version has retired, and accepts no submissions.
        Retired = "retired",
        /// The operator has suspended the suite. Only its owner sees it.
        Suspended = "suspended",
        /// The operator has deleted the items and answers.
        Removed = "removed",
    }
}

impl SuiteStatus {
    /// Returns a version's state. What hides more counts first.
    pub const fn new(is_removed: bool, is_suspended: bool, is_retired: bool) -> Self {
        if is_removed {
            Self::Removed
        } else if is_suspended {
            Self::Suspended
        } else if is_retired {
            Self::Retired
        } else {
            Self::Active
        }
    }
}

/// The places of a sequence in the input of an item. A path is the name of a field, or names
/// separated by dots for a field within others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteSequence {
    /// The path of the events, the oldest first: an array of item ids, or of objects with `item_id`,
    /// `type` and `ts`.
    #[schema(min_length = 1, max_length = 200)]
    pub events: String,
    /// The path of the items to rank, an array of item ids. Null if all items of a model's catalog
    /// are ranked.
    #[schema(min_length = 1, max_length = 200)]
    pub options: Option<String>,
}

/// A suite's id and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVersion {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version.
    pub version: String,
}

text_enum! {
    /// A file of a suite whose answers are open.
    pub enum OpenedFile {
        /// `items.ndjson`
        Items = "items",
        /// `answers.ndjson`
        Answers = "answers",
        /// `retest.ndjson`
        Retest = "retest",
    }
}

text_enum! {
    /// The times at which a suite's board shows figures.
    pub enum BoardMode {
        /// The suite has no board.
        Off = "off",
        /// The board is computed after each change until it closes, at most once a minute.
        Live = "live",
        /// The board is computed after it has closed.
        AtClose = "at_close",
    }
}

text_enum! {
    /// The average that a suite's value is.
    pub enum SuiteAverage {
        /// The value is the metric over all items: each item has the same weight.
        Item = "item",
        /// The value is the mean over clusters of the metric within the cluster: each cluster has the
        /// same weight.
        Cluster = "cluster",
    }
}

impl From<eval::BoardMode> for BoardMode {
    fn from(mode: eval::BoardMode) -> Self {
        match mode {
            eval::BoardMode::Off => Self::Off,
            eval::BoardMode::Live => Self::Live,
            eval::BoardMode::AtClose => Self::AtClose,
        }
    }
}

/// The values that a suite with a ladder discloses: `start` + i × `step`, for i from 0 to `levels`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct LadderGrid {
    /// The value of level 0: that of the best trivial submission, rounded towards the best value by
    /// at most a 10,000th of the metric's range. No submission shows a worse value.
    pub start: f64,
    /// The difference of two neighbouring values, in units of the metric. Negative if lower is
    /// better.
    pub step: f64,
    /// The number of levels above `start`.
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

/// The submissions that a suite version allows each allowance holder.
#[derive(Debug, Clone, Copy)]
pub struct Allowance<'a> {
    /// The id of the suite.
    pub suite_id: &'a SuiteId,
    /// The version that the allowance belongs to.
    pub suite_version: &'a str,
    /// The submission count and comparisons in total. `None` if there is no limit.
    pub max_submissions: Option<i32>,
    /// The submission count and comparisons in a day, UTC. `None` if there is no limit.
    pub max_submissions_per_day: Option<i32>,
}

/// Default and maximum number of suites on a page.
pub const SUITES_PAGE: (u32, u32) = (1000, 1000);

/// A page of the suites that the caller can see, by id.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Suites {
    /// The suites, each in its current version.
    #[schema(max_items = 1000)]
    pub suites: Vec<Suite>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}
