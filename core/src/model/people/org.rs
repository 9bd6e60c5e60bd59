//! Organizations, their plans, and their members' roles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
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
    /// A credential's kind.
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
    /// The handle, with which the ids of the organization's suites begin. Null until an owner has set it.
    #[schema(min_length = 2, max_length = 24)]
    pub handle: Option<String>,
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

/// The plan name for organizations that users create.
pub const FREE: &str = "free";

/// The most organizations that a user can create.
pub const CREATED_MAX: i64 = 20;

/// The value of a limit that a plan does not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultLimit {
    /// None: the operator sets the limit of each plan.
    Required,
    /// This number.
    Fixed(i64),
    /// A multiple of another limit, which it follows.
    Times(i64, &'static str),
}

/// A limit of plans: a column of the table `plans`, and an option of `plan set`.
#[derive(Debug, Clone, Copy)]
pub struct PlanLimit {
    /// The name of the column.
    pub column: &'static str,
    /// The value of a plan that does not set it. The view `plan_limits` applies it.
    pub default: DefaultLimit,
    /// The smallest value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
    /// The meaning of the option.
    pub help: &'static str,
}

impl PlanLimit {
    /// Returns the name of the option, without the dashes.
    pub fn option(&self) -> String {
        self.column.replace('_', "-")
    }

    /// Returns the meaning of the option with its default.
    pub fn option_help(&self) -> String {
        let help = self.help;
        match self.default {
            DefaultLimit::Required => help.to_owned(),
            DefaultLimit::Fixed(n) => format!("{help}; for a new plan, {n} by default"),
            DefaultLimit::Times(1, other) => format!("{help}; by default as {other}"),
            DefaultLimit::Times(n, other) => format!("{help}; by default {n} times {other}"),
        }
    }
}

macro_rules! plan_limits {
    (
        internal {$(
            #[doc = $doc:literal]
            $name:ident: $type:ty = $default:expr, $min:literal..=$max:expr, $help:literal;
        )*}
        shown {$(
            #[doc = $shown_doc:literal]
            $shown:ident = $shown_default:expr, $shown_min:literal..=$shown_max:expr, $shown_help:literal, minimum $least:tt;
        )*}
    ) => {
        /// The limits of a plan.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Plan {
            $(#[doc = $doc] pub $name: $type,)*
            $(#[doc = $shown_doc] pub $shown: i64,)*
        }

        /// The plan limits, in the order in which `plan set` has options.
        pub const PLAN_LIMITS: &[PlanLimit] = &[
            $(PlanLimit {
                column: stringify!($name), default: $default, min: $min, max: $max, help: $help,
            },)*
            $(PlanLimit {
                column: stringify!($shown), default: $shown_default, min: $shown_min, max: $shown_max, help: $shown_help,
            },)*
        ];

        /// The limits of a plan.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
        pub struct UsageLimits {
            $(
                #[doc = $shown_doc]
                #[schema(minimum = $least)]
                pub $shown: i64,
            )*
        }

        impl From<&Plan> for UsageLimits {
            fn from(plan: &Plan) -> Self {
                Self { $($shown: plan.$shown,)* }
            }
        }

        impl Plan {
            /// Returns a plan whose limits are all the same.
            #[cfg(test)]
            pub(crate) fn with_equal_limits(limit: u16) -> Self {
                Self { $($name: limit.into(),)* $($shown: limit.into(),)* }
            }
        }
    };
}

plan_limits! {
    // Limits that callers see in other places than `GET /v1/usage`.
    internal {
        /// The number of requests that are admitted in any 60 consecutive seconds.
        requests_per_minute: u32 = DefaultLimit::Required, 1..=i32::MAX as i64,
            "Maximum number of requests in any 60 seconds";
        /// The size of the largest upload in bytes. It applies to the bytes as they are sent, and to the decompressed content.
        upload_bytes_max: i64 = DefaultLimit::Required, 1..=i64::MAX,
            "Maximum size of an upload, in bytes";
        /// The share of the workers that an organization gets while others wait too, relative to theirs.
        queue_weight: u32 = DefaultLimit::Fixed(1), 1..=1000,
            "Share of the workers relative to other waiting organizations";
    }
    shown {
        /// The number of jobs that can be queued or running at once.
        concurrent_jobs = DefaultLimit::Required, 1..=i32::MAX as i64,
            "Maximum number of queued and running jobs", minimum 0;
        /// The number of items that can be charged in a calendar month.
        eval_items_per_month = DefaultLimit::Required, 0..=i64::MAX,
            "Maximum number of predictions scored in a calendar month", minimum 0;
        /// The number of bytes that can be stored at once.
        storage_bytes = DefaultLimit::Times(10, "upload_bytes_max"), 1..=i64::MAX,
            "Maximum number of stored bytes", minimum 1;
        /// The number of sequences that can be predicted in a calendar month.
        predict_items_per_month = DefaultLimit::Times(1, "eval_items_per_month"), 0..=i64::MAX,
            "Maximum number of sequences predicted in a calendar month", minimum 0;
        /// The number of events that can be generated in a calendar month.
        generated_events_per_month = DefaultLimit::Times(1, "eval_items_per_month"), 0..=i64::MAX,
            "Maximum number of events generated in a calendar month", minimum 0;
        /// The number of sequences that can be embedded in a calendar month.
        embeddings_per_month = DefaultLimit::Times(1, "eval_items_per_month"), 0..=i64::MAX,
            "Maximum number of sequences embedded in a calendar month", minimum 0;
        /// The number of suites that the organization can publish.
        suites = DefaultLimit::Fixed(3), 0..=i32::MAX as i64,
            "Maximum number of published suites", minimum 0;
        /// The number of items that a version of a suite can have.
        suite_items = DefaultLimit::Fixed(20_000), 0..=10_000_000,
            "Maximum number of items in a version of a suite", minimum 0;
        /// The number of uncompressed bytes that published suites and checked drafts can have.
        suite_bytes = DefaultLimit::Fixed(100 * 1024 * 1024), 0..=i64::MAX,
            "Maximum number of bytes in suites and drafts", minimum 0;
    }
}

/// The limits that the operator sets, by column. The others remain unchanged.
pub type PlanChange = BTreeMap<&'static str, i64>;
