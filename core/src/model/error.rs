//! The one error of the platform and its closed set of codes.
//!
//! What lives here: the codes with their status on both wires, and what may be told to a caller.
//! What may not: how an error is written on a wire (the api does that, in one place).

use std::borrow::Cow;
use std::error::Error as StdError;

use assay_eval::prediction::{Malformed, Rejected};
use serde::Serialize;

pub use assay_eval::FieldError;

use crate::model::ids::JobId;
use crate::model::org::OrgChoice;
use crate::model::suite::{SuiteAccess, SuiteId};
use crate::model::timestamp::Timestamp;

/// What every fallible operation of the platform returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The closed set of error codes. A client may branch on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// Malformed request.
    InvalidRequest,
    /// A field is missing, of the wrong type or out of range.
    ValidationFailed,
    /// The body is larger than the operation takes.
    PayloadTooLarge,
    /// No credential supplied.
    Unauthenticated,
    /// Key or session token not valid.
    InvalidToken,
    /// The key was revoked.
    KeyRevoked,
    /// Valid credential, action not allowed.
    Forbidden,
    /// The operation needs a session, not an API key.
    SessionRequired,
    /// The credential resolves to no organization.
    OrgRequired,
    /// No such resource in the caller's organization.
    NotFound,
    /// Already exists, or a stale version.
    Conflict,
    /// Illegal transition.
    InvalidState,
    /// A plan's limit.
    QuotaExceeded,
    /// Too many requests this minute.
    RateLimited,
    /// A fault of the server.
    Internal,
    /// Try again with backoff.
    Unavailable,
}

impl Code {
    /// Every code, in the order of the contract's table.
    pub const ALL: [Self; 16] = [
        Self::InvalidRequest,
        Self::ValidationFailed,
        Self::PayloadTooLarge,
        Self::Unauthenticated,
        Self::InvalidToken,
        Self::KeyRevoked,
        Self::Forbidden,
        Self::SessionRequired,
        Self::OrgRequired,
        Self::NotFound,
        Self::Conflict,
        Self::InvalidState,
        Self::QuotaExceeded,
        Self::RateLimited,
        Self::Internal,
        Self::Unavailable,
    ];

    /// Name, HTTP status and canonical gRPC status: the one table for both wires.
    const fn row(self) -> (&'static str, u16, i32) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, 3),
            Self::ValidationFailed => ("validation_failed", 422, 3),
            Self::PayloadTooLarge => ("payload_too_large", 413, 8),
            Self::Unauthenticated => ("unauthenticated", 401, 16),
            Self::InvalidToken => ("invalid_token", 401, 16),
            Self::KeyRevoked => ("key_revoked", 401, 16),
            Self::Forbidden => ("forbidden", 403, 7),
            Self::SessionRequired => ("session_required", 403, 7),
            Self::OrgRequired => ("org_required", 403, 7),
            Self::NotFound => ("not_found", 404, 5),
            Self::Conflict => ("conflict", 409, 6),
            Self::InvalidState => ("invalid_state", 409, 9),
            Self::QuotaExceeded => ("quota_exceeded", 429, 8),
            Self::RateLimited => ("rate_limited", 429, 8),
            Self::Internal => ("internal", 500, 13),
            Self::Unavailable => ("unavailable", 503, 14),
        }
    }

    /// The code as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status that carries this code.
    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    /// The canonical gRPC status code that carries this code.
    pub const fn grpc_status(self) -> i32 {
        self.row().2
    }
}

/// The kinds of things that an error may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Resource {
    Domain,
    Invite,
    Job,
    Key,
    Member,
    Model,
    Organization,
    Session,
    Suite,
    Terms,
    Trace,
    Upload,
}

impl Resource {
    /// As people are told it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Domain => "claimed domain",
            Self::Invite => "invite",
            Self::Job => "job",
            Self::Key => "key",
            Self::Member => "member",
            Self::Model => "model",
            Self::Organization => "organization",
            Self::Session => "session",
            Self::Suite => "suite",
            Self::Terms => "terms",
            Self::Trace => "trace",
            Self::Upload => "upload",
        }
    }
}

/// The machine-readable part of an error, where there is something specific to say.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// Which fields are at fault.
    Fields {
        /// The faults, in the order in which they were found.
        fields: Vec<FieldError>,
    },
    /// An idempotency key that stands for another body.
    Replay {
        /// Always the header `Idempotency-Key`.
        fields: Vec<FieldError>,
        /// The job that the key stands for.
        job_id: JobId,
    },
    /// The organization has not accepted the terms yet.
    Terms {
        /// Always `terms_not_accepted`.
        reason: &'static str,
        /// The version to accept.
        version: String,
        /// Where it can be read.
        url: String,
    },
    /// The operator has suspended the organization.
    OrgSuspended {
        /// Always `org_suspended`.
        reason: &'static str,
    },
    /// The caller belongs to several organizations and has not chosen one.
    ChooseOrg {
        /// Always `choose_organization`.
        reason: &'static str,
        /// The header that names the chosen one.
        header: &'static str,
        /// The organizations, at most 20.
        orgs: Vec<OrgChoice>,
    },
    /// The organization may not submit to the suite.
    SuiteAccess {
        /// Always `suite_access`.
        reason: &'static str,
        /// Who may.
        access: SuiteAccess,
    },
    /// The submissions that a suite's version allows are used up for good. No code of a limit that resets fits: trying again
    /// never helps.
    SubmissionsUsedUp {
        /// Always `submissions_used_up`.
        reason: &'static str,
        /// How many it allows.
        max: i64,
    },
    /// A plan's limit is reached.
    Quota {
        /// Name of the limit, as in the caller's usage.
        limit: &'static str,
        /// The limit.
        max: i64,
        /// How many are active now, where the limit counts active things.
        #[serde(skip_serializing_if = "Option::is_none")]
        active: Option<i64>,
        /// When there is room again at the latest.
        resets_at: Timestamp,
    },
}

/// What went wrong, in two halves that never mix: what the caller is told, and the cause, which is only logged.
#[derive(Debug)]
pub struct Error {
    /// From the closed set.
    pub code: Code,
    /// For humans; says what to do. Never holds SQL, a library's words or a secret.
    pub message: Cow<'static, str>,
    /// Something specific, or nothing.
    pub details: Option<Details>,
    /// After how many seconds it makes sense to try again.
    pub retry_after: Option<u32>,
    /// The kind of thing that it is about, where a client may want to know.
    pub resource: Option<Resource>,
    /// For the log only.
    pub cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// What an operator is told, who may know the cause.
    pub fn cause_or_message(&self) -> String {
        self.cause
            .as_ref()
            .map_or_else(|| self.message.to_string(), ToString::to_string)
    }

    /// An error with nothing specific to say.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
            retry_after: None,
            resource: None,
            cause: None,
        }
    }

    /// A fault of the server; the caller learns nothing of the cause.
    pub fn internal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "Something went wrong on our side. Retry with the same idempotency key and quote the request id.")
            .because(cause)
    }

    /// Something that the server needs is away for the moment.
    pub fn unavailable(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(
                Code::Unavailable,
                "The service is not available for the moment. Retry with backoff.",
            )
        }
        .because(cause)
    }

    /// The server has too much to do for this caller, or in all. Nothing is logged: whoever sends too much would fill the logs,
    /// and the metrics count such responses.
    pub fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(Code::Unavailable, message)
        }
    }

    /// No such thing in the caller's organization; `resource` names its kind.
    pub fn not_found(resource: Resource) -> Self {
        Self::missing(resource, format!("No such {}.", resource.as_str()))
    }

    /// The same, with more to say.
    pub fn missing(resource: Resource, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            resource: Some(resource),
            ..Self::new(Code::NotFound, message)
        }
    }

    /// What is asked for does not fit the state of a thing; `resource` names its kind.
    pub fn invalid_state(resource: Resource, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            resource: Some(resource),
            ..Self::new(Code::InvalidState, message)
        }
    }

    /// Faults of fields. There must be at least one.
    pub fn fields(fields: Vec<FieldError>) -> Self {
        let message = match fields.as_slice() {
            [only] => format!("{}: {}", only.field, only.message),
            [first, rest @ ..] => format!(
                "{}: {} (and {} more)",
                first.field,
                first.message,
                rest.len()
            ),
            [] => String::from("The request is not valid."),
        };
        Self {
            details: Some(Details::Fields { fields }),
            ..Self::new(Code::ValidationFailed, message)
        }
    }

    /// A fault of one field.
    pub fn field(
        field: impl Into<String>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        FieldError::new(field, reason, message).into()
    }

    /// A plan's limit is reached. `seconds` is the time until it resets.
    pub fn quota(message: String, details: Details, seconds: u32) -> Self {
        Self {
            details: Some(details),
            retry_after: Some(seconds.max(1)),
            ..Self::new(Code::QuotaExceeded, message)
        }
    }

    /// The operator has suspended the organization.
    pub fn org_suspended() -> Self {
        let message = "The operator has suspended this organization. Ask the operator why, or name another organization in the header \
                       X-Org-Id.";
        Self {
            details: Some(Details::OrgSuspended {
                reason: "org_suspended",
            }),
            ..Self::new(Code::Forbidden, message)
        }
    }

    /// The organization stores as many bytes as its plan allows. `seconds` is the time until space becomes free.
    pub fn storage_full(used: i64, max: i64, resets_at: Timestamp, seconds: u32) -> Self {
        let details = Details::Quota {
            limit: "storage_bytes",
            max,
            active: Some(used),
            resets_at,
        };
        let message = format!(
            "{used} bytes are stored; the plan allows {max} at once. Delete uploads that you do not need, or wait until jobs have finished."
        );
        Self::quota(message, details, seconds)
    }

    /// The caller belongs to several organizations and has not chosen one.
    pub fn choose_org(orgs: Vec<OrgChoice>) -> Self {
        let details = Details::ChooseOrg {
            reason: "choose_organization",
            header: "X-Org-Id",
            orgs,
        };
        let message = "You belong to several organizations. Choose an organization with the header X-Org-Id; the session stays with it.";
        Self {
            details: Some(details),
            ..Self::new(Code::Conflict, message)
        }
    }

    /// The organization may not submit to the suite.
    pub fn suite_access(access: SuiteAccess) -> Self {
        let message = match access {
            SuiteAccess::Everyone => "The organization may not submit to this suite.",
            SuiteAccess::VerifiedDomain => {
                "Only organizations with a verified domain may submit to this suite. Claim one with POST /v1/domains."
            }
            SuiteAccess::Granted => {
                "Only organizations with a grant may submit to this suite. Ask the operator for one."
            }
        };
        Self {
            details: Some(Details::SuiteAccess {
                reason: "suite_access",
                access,
            }),
            ..Self::new(Code::Forbidden, message)
        }
    }

    /// The submissions that a suite allows per day are used up. `seconds` is the time until the next day.
    pub fn day_used_up(suite_id: &SuiteId, max: i64, resets_at: Timestamp, seconds: u32) -> Self {
        let details = Details::Quota {
            limit: "submissions_per_day",
            max,
            active: None,
            resets_at,
        };
        let message = format!(
            "{suite_id} takes {max} submissions and comparisons of an organization, and of all that share its allowance, a day. The next \
             day begins at midnight UTC."
        );
        Self::quota(message, details, seconds)
    }

    /// The submissions that a suite's version allows are used up for good.
    pub fn submissions_used_up(max: i64) -> Self {
        let message = format!(
            "This version of the suite allows {max} submissions and comparisons, and they are used up for good. Organizations of one \
             domain, and those on the plan free that one user created, share them."
        );
        Self {
            details: Some(Details::SubmissionsUsedUp {
                reason: "submissions_used_up",
                max,
            }),
            ..Self::new(Code::Forbidden, message)
        }
    }

    /// The same error with its cause, for the log.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl From<FieldError> for Error {
    fn from(fault: FieldError) -> Self {
        Self::fields(vec![fault])
    }
}

impl From<Malformed> for Error {
    fn from(Malformed(message): Malformed) -> Self {
        Self::new(Code::InvalidRequest, message)
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Malformed(malformed) => malformed.into(),
            Rejected::Fields(fields) => Self::fields(fields),
        }
    }
}

impl From<assay_eval::Corrupt> for Error {
    fn from(corrupt: assay_eval::Corrupt) -> Self {
        Self::internal(corrupt)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)?;
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause
            .as_deref()
            .map(|cause| cause as &(dyn StdError + 'static))
    }
}

/// Swallowing an error, aloud.
pub trait BestEffort {
    /// Logs the error, if there is one, with what was being done, and goes on.
    fn best_effort(self, doing: &'static str);
}

impl<T, E: std::fmt::Display> BestEffort for std::result::Result<T, E> {
    fn best_effort(self, doing: &'static str) {
        if let Err(error) = self {
            tracing::warn!(%error, "failed, and it was allowed to: {doing}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_codes_are_distinct_and_statuses_are_errors() {
        let names: std::collections::HashSet<_> =
            Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), 16);
        assert!(
            Code::ALL
                .iter()
                .all(|code| (400..=503).contains(&code.http_status())
                    && (1..=16).contains(&code.grpc_status()))
        );
    }

    #[test]
    fn several_faults_are_told_at_once() {
        let error = Error::fields(vec![
            FieldError::required("name"),
            FieldError::new("nmae", "unknown_field", "no such field"),
        ]);
        assert_eq!(error.message, "name: this field is required (and 1 more)");
    }
}
