//! Organizations, their plans, and the roles of their members.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::OrgId;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

pub use crate::model::scope::Role;

text_enum! {
    /// The uses of submissions that an organization allows the operator.
    pub enum DataUse {
        /// The operator scores the submissions and does nothing else with them.
        ScoringOnly = "scoring_only",
        /// The operator also uses them for research over many organizations.
        AggregateResearch = "aggregate_research",
        /// The operator also uses them to improve models.
        ModelImprovement = "model_improvement",
    }
}

text_enum! {
    /// The kind of a credential.
    pub enum PrincipalKind {
        /// An API key, which belongs to an organization.
        ApiKey = "api_key",
        /// A session of a user who has signed in.
        Session = "session",
    }
}

/// An organization as the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Org {
    /// The id of the organization.
    pub id: OrgId,
    /// The name of the organization.
    pub name: String,
    /// The name of the plan, such as `free`.
    pub plan: String,
    /// The uses of submissions that the organization allows the operator.
    pub data_use: DataUse,
    /// The role of the caller.
    pub role: Role,
    /// The time at which the organization was created.
    pub created_at: Timestamp,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Me {
    /// The kind of the credential.
    pub principal: PrincipalKind,
    /// The id of the organization that the request acts for.
    pub org_id: OrgId,
    /// The organizations of the caller, the oldest membership first, at most 200. An API key has
    /// its own organization only, with the role `member`.
    #[schema(max_items = 200)]
    pub orgs: Vec<Org>,
}

/// The name of the plan of organizations that users create.
pub const FREE: &str = "free";

/// Maximum number of organizations that a user can create.
pub const CREATED_MAX: i64 = 20;

/// The limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The number of requests that are admitted in any 60 consecutive seconds.
    pub requests_per_minute: u32,
    /// The number of items that can be charged in a calendar month.
    pub eval_items_per_month: i64,
    /// The number of jobs that can be queued or running at once.
    pub concurrent_jobs: i64,
    /// The size of the largest upload in bytes. It applies to the bytes as they are sent, and to
    /// the decompressed content.
    pub upload_bytes_max: i64,
    /// The number of bytes that can be stored at once: parts of uploads, and inline predictions of
    /// jobs that have not finished.
    pub storage_bytes: i64,
    /// The number of sequences that can be predicted in a calendar month.
    pub predict_items_per_month: i64,
    /// The number of events that can be generated in a calendar month.
    pub generated_events_per_month: i64,
    /// The number of sequences that can be embedded in a calendar month.
    pub embeddings_per_month: i64,
    /// The share of the workers that an organization gets while others wait too, relative to theirs.
    pub queue_weight: u32,
}

/// Returns the number of bytes that a plan stores at once unless the operator has set it: ten times
/// its largest upload.
pub const fn default_storage_bytes(upload_bytes_max: i64) -> i64 {
    upload_bytes_max.saturating_mul(10)
}

/// The operator's changes to a plan. `None` leaves a limit unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// The number of requests that are admitted in any 60 consecutive seconds.
    pub requests_per_minute: Option<i32>,
    /// The number of items that can be charged in a calendar month.
    pub eval_items_per_month: Option<i64>,
    /// The number of jobs that can be queued or running at once.
    pub concurrent_jobs: Option<i32>,
    /// The size of the largest upload in bytes.
    pub upload_bytes_max: Option<i64>,
    /// The number of bytes that can be stored at once.
    pub storage_bytes: Option<i64>,
    /// The number of sequences that can be predicted in a calendar month.
    pub predict_items_per_month: Option<i64>,
    /// The number of events that can be generated in a calendar month.
    pub generated_events_per_month: Option<i64>,
    /// The number of sequences that can be embedded in a calendar month.
    pub embeddings_per_month: Option<i64>,
    /// The share of the workers that an organization gets while others wait too, relative to theirs.
    pub queue_weight: Option<i32>,
}

/// A row of the table of plans, as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanRow {
    /// The name of the plan.
    pub plan: String,
    /// The number of requests that are admitted in any 60 consecutive seconds.
    pub requests_per_minute: i32,
    /// The number of items that can be charged in a calendar month.
    pub eval_items_per_month: i64,
    /// The number of jobs that can be queued or running at once.
    pub concurrent_jobs: i32,
    /// The size of the largest upload in bytes.
    pub upload_bytes_max: i64,
    /// The number of bytes that can be stored at once: ten times the largest upload, unless the
    /// operator has set it.
    pub storage_bytes: i64,
    /// The number of sequences that can be predicted in a calendar month: as many as eval items,
    /// unless the operator has set it.
    pub predict_items_per_month: i64,
    /// The number of events that can be generated in a calendar month: as many as eval items,
    /// unless the operator has set it.
    pub generated_events_per_month: i64,
    /// The number of sequences that can be embedded in a calendar month: as many as eval items,
    /// unless the operator has set it.
    pub embeddings_per_month: i64,
    /// The share of the workers that an organization gets while others wait too, relative to theirs:
    /// from 1 to 1,000.
    pub queue_weight: i32,
}
