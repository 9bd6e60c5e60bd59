//! An organization's usage, and the limits of its plan.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::date::Date;
use crate::model::ids::{OrgId, SuiteId};
use crate::model::org::UsageLimits;
use crate::model::timestamp::Timestamp;

/// The usage of an organization in the current calendar month, UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// The id of the organization.
    pub org_id: OrgId,
    /// The name of the plan, such as `free`.
    pub plan: String,
    /// The start of the current calendar month, UTC.
    pub period_start: Timestamp,
    /// The start of the next calendar month, UTC.
    pub period_end: Timestamp,
    /// The usage in the current month.
    pub totals: UsageTotals,
    /// The number of jobs that are queued or running.
    #[schema(minimum = 0)]
    pub active_jobs: i64,
    /// The number of bytes that are stored: parts of uploads, and inline predictions until a minute
    /// after their job has finished.
    #[schema(minimum = 0)]
    pub stored_bytes: i64,
    /// The limits of the plan.
    pub limits: UsageLimits,
    /// The submissions of the current day, UTC, for each suite that has a daily limit or a
    /// submission on this day, by id.
    pub suites: Vec<SuiteUsage>,
}

impl Usage {
    /// Returns the submissions to a suite, if it has a daily cap or a submission today.
    pub fn for_suite(&self, suite_id: &SuiteId) -> Option<&SuiteUsage> {
        self.suites.iter().find(|used| used.suite_id == *suite_id)
    }
}

/// The submissions of an organization for a suite on the current day, UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SuiteUsage {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The number of submissions, without jobs that failed or were cancelled. If the suite has a
    /// daily limit, it is the number that the limit counts: with comparisons, and with the
    /// submissions of organizations that share the limit.
    #[schema(minimum = 0)]
    pub submissions_today: i64,
    /// The daily limit of the suite in its current version. Null if there is no limit.
    #[schema(minimum = 1)]
    pub max_submissions_per_day: Option<i64>,
    /// The start of the next day, UTC.
    pub resets_at: Timestamp,
}

/// The usage of an organization on each day of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageDays {
    /// All days of the range, the earliest first.
    #[schema(max_items = 92)]
    pub days: Vec<UsageDay>,
}

/// The usage of an organization on one day, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageDay {
    /// The day.
    pub date: Date,
    /// The number of items that were charged on this day, with those that were refunded.
    #[schema(minimum = 0)]
    pub eval_items: i64,
    /// The number of the items charged on this day that were refunded, on this day or later.
    #[schema(minimum = 0)]
    pub eval_items_refunded: i64,
    /// The number of jobs that were accepted on this day.
    #[schema(minimum = 0)]
    pub jobs: i64,
    /// The number of requests that were admitted on this day by all processes. It can lag by a few
    /// seconds.
    #[schema(minimum = 0)]
    pub requests: i64,
}

/// A range's maximum day count.
pub const DAYS_MAX: i64 = 92;

/// Days in a range whose first day is not given.
pub const DAYS_DEFAULT: i64 = 30;

/// The usage of an organization in a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageTotals {
    /// The number of items that were charged, minus those that were refunded.
    #[schema(minimum = 0)]
    pub eval_items: i64,
    /// The number of requests that were admitted by all processes. It can lag by a few seconds, and
    /// is never too high.
    #[schema(minimum = 0)]
    pub requests: i64,
    /// The number of sequences that were predicted.
    #[schema(minimum = 0)]
    pub predict_items: i64,
    /// The number of events that were generated, over all continuations.
    #[schema(minimum = 0)]
    pub generated_events: i64,
    /// The number of sequences that were embedded.
    #[schema(minimum = 0)]
    pub embeddings: i64,
}
