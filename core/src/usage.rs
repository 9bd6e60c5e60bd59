//! What an organization has used of its plan.

use serde::Serialize;

use crate::{OrgId, Timestamp};

/// Answer of `GET /v1/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The organization.
    pub org_id: OrgId,
    /// Name of its plan.
    pub plan: String,
    /// First moment of the calendar month, UTC.
    pub period_start: Timestamp,
    /// First moment of the next.
    pub period_end: Timestamp,
    /// What was used in between.
    pub totals: UsageTotals,
    /// Jobs queued or running now.
    pub active_jobs: i64,
    /// What the plan grants.
    pub limits: UsageLimits,
}

/// See [`Usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UsageTotals {
    /// Predictions charged, less those given back.
    pub eval_items: i64,
    /// Requests admitted, over all processes; those of the last moments may not be counted yet.
    pub requests: i64,
}

/// See [`Usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UsageLimits {
    /// Jobs queued or running at once.
    pub concurrent_jobs: i64,
    /// Predictions in a calendar month.
    pub eval_items_per_month: i64,
}
