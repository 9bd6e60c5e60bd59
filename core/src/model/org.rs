//! Organizations, their plans, and who is in them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::OrgId;
use crate::model::timestamp::Timestamp;
use crate::model::validation;
use crate::text_enum;

text_enum! {
    /// What a member may do. The order is that of power.
    #[derive(PartialOrd, Ord)]
    pub enum Role {
        /// May read.
        Viewer = "viewer",
        /// May also create and revoke keys, upload, submit and cancel.
        Member = "member",
        /// May also manage members, invites, domains and terms.
        Owner = "owner",
    }
}

text_enum! {
    /// What the operator may use an organization's submissions for.
    pub enum DataUse {
        /// To score them, and nothing else.
        ScoringOnly = "scoring_only",
        /// Also for research over many organizations at once.
        AggregateResearch = "aggregate_research",
        /// Also to improve models.
        ModelImprovement = "model_improvement",
    }
}

text_enum! {
    /// Kind of a credential.
    pub enum PrincipalKind {
        /// An API key of an organization.
        ApiKey = "api_key",
        /// A signed-in person.
        Session = "session",
    }
}

/// An organization as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Org {
    /// `org_…`
    pub id: OrgId,
    /// As its owner named it.
    pub name: String,
    /// Name of its plan.
    pub plan: String,
    /// What its submissions may be used for.
    pub data_use: DataUse,
    /// The caller's role in it.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An organization among which a session must choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrgChoice {
    /// `org_…`
    pub id: OrgId,
    /// As its owner named it.
    pub name: String,
}

/// What a new organization is to be.
#[derive(ToSchema)]
pub struct OrgCreate {
    /// For people. Without links, because the mails of invites show it.
    #[schema(value_type = validation::Text)]
    pub name: String,
}

/// What is to change of an organization. What is not given stays; at least one is given.
#[derive(ToSchema)]
pub struct OrgUpdate {
    /// Its new name, without links.
    #[schema(value_type = Option<validation::Text>)]
    pub name: Option<String>,
    /// What its submissions may be used for from now on.
    pub data_use: Option<DataUse>,
}

/// Answer of `GET /v1/me`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Me {
    /// Kind of credential in use.
    pub principal: PrincipalKind,
    /// The organization that the credential resolves to.
    pub org_id: OrgId,
    /// The organizations that the caller belongs to, the oldest membership first; at most 200.
    #[schema(max_items = 200)]
    pub orgs: Vec<Org>,
}

/// The plan of organizations that users create.
pub const FREE: &str = "free";

/// How many organizations a user may create.
pub const CREATED_MAX: i64 = 20;

/// What a plan grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Requests admitted in any sixty consecutive seconds.
    pub requests_per_minute: u32,
    /// Predictions scored in a calendar month.
    pub eval_items_per_month: i64,
    /// Jobs queued or running at once.
    pub concurrent_jobs: i64,
    /// Bytes of an upload, as it is sent and decompressed.
    pub upload_bytes_max: i64,
    /// Bytes stored at once: parts of uploads, and inline predictions of jobs that have not finished.
    pub storage_bytes: i64,
}

/// Bytes that a plan stores at once unless the operator set it: ten times its largest upload.
pub const fn default_storage_bytes(upload_bytes_max: i64) -> i64 {
    upload_bytes_max.saturating_mul(10)
}

/// What the operator changes of a plan. What is not given stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// Requests admitted in any sixty consecutive seconds.
    pub requests_per_minute: Option<i32>,
    /// Predictions scored in a calendar month.
    pub eval_items_per_month: Option<i64>,
    /// Jobs queued or running at once.
    pub concurrent_jobs: Option<i32>,
    /// Bytes of the largest upload.
    pub upload_bytes_max: Option<i64>,
    /// Bytes stored at once.
    pub storage_bytes: Option<i64>,
}

/// A plan as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanRow {
    /// Its name.
    pub plan: String,
    /// Requests admitted in any sixty consecutive seconds.
    pub requests_per_minute: i32,
    /// Predictions scored in a calendar month.
    pub eval_items_per_month: i64,
    /// Jobs queued or running at once.
    pub concurrent_jobs: i32,
    /// Bytes of the largest upload.
    pub upload_bytes_max: i64,
    /// Bytes stored at once; ten times the largest upload, unless it was set.
    pub storage_bytes: i64,
}
