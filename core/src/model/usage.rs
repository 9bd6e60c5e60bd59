//! What an organization has used of its plan.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::OrgId;
use crate::model::timestamp::Timestamp;

/// Answer of `GET /v1/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
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
    #[schema(minimum = 0)]
    pub active_jobs: i64,
    /// Bytes stored now: parts of uploads, and inline predictions of jobs that have not finished or finished a minute ago.
    #[schema(minimum = 0)]
    pub stored_bytes: i64,
    /// What the plan grants.
    pub limits: UsageLimits,
}

/// What an organization has used in the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageTotals {
    /// Predictions charged, less those given back.
    #[schema(minimum = 0)]
    pub eval_items: i64,
    /// Requests admitted, over all processes; those of the last moments may not be counted yet.
    #[schema(minimum = 0)]
    pub requests: i64,
}

/// What an organization's plan grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageLimits {
    /// Jobs queued or running at once.
    #[schema(minimum = 0)]
    pub concurrent_jobs: i64,
    /// Predictions in a calendar month.
    #[schema(minimum = 0)]
    pub eval_items_per_month: i64,
    /// Bytes stored at once.
    #[schema(minimum = 1)]
    pub storage_bytes: i64,
}
