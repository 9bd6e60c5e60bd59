//! An error's machine-readable parts: the resource kind, and details that a client can act
//! on.

use assay_eval::FieldError;
use serde::Serialize;

use crate::model::ids::{EntryId, JobId, OrgId};
use crate::model::scope::Scope;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::suite::Access;

/// The resource kind that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A baseline of a suite.
    Baseline,
    /// The leaderboard of a suite's version.
    Board,
    /// A delivery of an event to a webhook.
    Delivery,
    /// A program's login, which a user approves.
    DeviceLogin,
    /// A domain that an organization has claimed, verified or not.
    Domain,
    /// An entry of a board.
    Entry,
    /// Another organization's right to a suite.
    Grant,
    /// An invite to an organization.
    Invite,
    /// A suite before it is published.
    Draft,
    /// An organization's job.
    Job,
    /// An API key of an organization.
    Key,
    /// A user's membership in an organization.
    Member,
    /// A model of the catalog.
    Model,
    /// An organization that the caller belongs to.
    Organization,
    /// A prediction job's output.
    Output,
    /// The opened file in a suite's retired version.
    Opening,
    /// A job's receipt.
    Receipt,
    /// A session of the caller.
    Session,
    /// A published suite, in its current version.
    Suite,
    /// The terms of the installation.
    Terms,
    /// A trace, once its job has run.
    Trace,
    /// An organization's upload.
    Upload,
    /// An organization's webhook.
    Webhook,
}

impl Resource {
    /// Returns the resource's name in messages, and its type in gRPC error details.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Board => "board",
            Self::Delivery => "delivery",
            Self::DeviceLogin => "device login",
            Self::Domain => "claimed domain",
            Self::Draft => "draft",
            Self::Entry => "entry",
            Self::Grant => "grant",
            Self::Invite => "invite",
            Self::Job => "job",
            Self::Key => "key",
            Self::Member => "member",
            Self::Model => "model",
            Self::Opening => "opened file",
            Self::Organization => "organization",
            Self::Receipt => "receipt",
            Self::Output => "output",
            Self::Session => "session",
            Self::Suite => "suite",
            Self::Terms => "terms",
            Self::Trace => "trace",
            Self::Upload => "upload",
            Self::Webhook => "webhook",
        }
    }
}

/// The error details that a client can act on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Details {
    /// The organization has not accepted the current terms.
    TermsNotAccepted {
        /// The version to accept.
        version: String,
        /// The URL of the terms.
        url: String,
    },
    /// The API key does not have the operation's scope.
    Scope {
        /// The scope that the operation requires.
        required: Scope,
    },
    /// The API key has expired.
    Expired {
        /// The time at which the key expired.
        expired_at: Timestamp,
    },
    /// The operator has suspended the organization.
    OrgSuspended,
    /// The caller belongs to several organizations and has not chosen one.
    ChooseOrganization {
        /// The request header that names the chosen organization.
        header: &'static str,
        /// The caller's organizations, at most 20.
        orgs: Vec<OrgChoice>,
    },
    /// The organization may not submit to the suite.
    SuiteAccess {
        /// The organizations that may submit.
        access: SuiteAccess,
    },
    /// The version of the suite has retired.
    SuiteRetired,
    /// The operator has suspended the suite.
    SuiteSuspended,
    /// The items and answers of the suite are deleted.
    SuiteRemoved,
    /// The board is computed at its close, and is not final yet.
    BoardNotFinal,
    /// The version has not closed yet.
    NotClosed {
        /// The time of its close.
        closes_at: Timestamp,
    },
    /// Other versions, which have not retired, hide the same answers.
    AnswersShared {
        /// These versions.
        versions: Vec<String>,
    },
    /// The board is final, and its publisher can no longer change it.
    BoardFinal,
    /// The operator reviews the suite before more organizations see it.
    InReview,
    /// Another organization has the handle, or it is reserved for others.
    HandleTaken,
    /// The organization has a handle, which never changes.
    HandleSet,
    /// The organization has no handle, which the id of its suites begins with.
    HandleRequired,
    /// The draft takes no more files.
    NotOpen {
        /// The draft's status.
        status: &'static str,
    },
    /// The draft cannot be published, or has no items yet.
    NotReady {
        /// The draft's status.
        status: &'static str,
    },
    /// A part of a file to check was not received.
    PartMissing {
        /// The name of the file.
        name: String,
        /// The number of the part.
        number: usize,
    },
    /// The submissions that a suite's version allows are used up permanently.
    ///
    /// The error is `forbidden`, because the codes of limits imply that a retry can succeed later.
    SubmissionsUsedUp {
        /// The number of submissions that the version allows.
        max: i64,
    },
    /// The model does not offer the operation.
    EndpointNotOffered {
        /// The operations that the model offers.
        endpoints: Vec<Endpoint>,
    },
    /// The model was published without a package, so that no engine can serve it.
    NoEngine,
    /// The model cannot return items of a catalog.
    TokenizerNotFitted,
    /// The job cannot enter the board, or its entry cannot have the name.
    #[serde(untagged)]
    Entry(EntryRefusal),
    /// The job has no such receipt, or not yet.
    #[serde(untagged)]
    Receipt(ReceiptRefusal),
    /// Fields of the request are not valid.
    #[serde(untagged)]
    Fields {
        /// The field errors, in the order in which they were found.
        fields: Vec<FieldError>,
    },
    /// The idempotency key was used for another request body.
    #[serde(untagged)]
    Replay {
        /// One field error, for the header `Idempotency-Key`.
        fields: Vec<FieldError>,
        /// The job that the key created.
        job_id: JobId,
    },
    /// The predictions were made for another version of the suite than the current one.
    #[serde(untagged)]
    SuiteVersion {
        /// The version in the request.
        suite_version: String,
        /// The current version.
        current_version: String,
    },
    /// A limit of the plan or of the suite is reached.
    #[serde(untagged)]
    Quota {
        /// The limit's name, such as `eval_items_per_month`.
        limit: &'static str,
        /// The limit's value.
        max: i64,
        /// The current number. Absent if the limit counts per period.
        #[serde(skip_serializing_if = "Option::is_none")]
        active: Option<i64>,
        /// The latest time at which there is room again.
        resets_at: Timestamp,
    },
}

/// An organization that a session can choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrgChoice {
    /// The id of the organization.
    pub id: OrgId,
    /// The name of the organization.
    pub name: String,
}

text_enum! {
    /// The organizations that can submit to a suite.
    pub enum SuiteAccess {
        /// Every organization can submit.
        Everyone = "everyone",
        /// Organizations with a verified domain can submit.
        VerifiedDomain = "verified_domain",
        /// Organizations that the operator has chosen can submit.
        Granted = "granted",
    }
}

impl From<Access> for SuiteAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Everyone => Self::Everyone,
            Access::VerifiedDomain => Self::VerifiedDomain,
            Access::Granted => Self::Granted,
        }
    }
}

text_enum! {
    /// A model's operation.
    pub enum Endpoint {
        /// Generates sequences to come.
        Generate = "generate",
        /// Predicts the next event.
        Predict = "predict",
        /// Returns a vector of a sequence.
        Embed = "embed",
    }
}

/// Why a job cannot enter a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum EntryRefusal {
    /// The suite's version has no board.
    NoBoard,
    /// The job has not succeeded.
    NotSucceeded {
        /// The job's status.
        status: String,
    },
    /// The suite has sealed items, and the job is not final.
    NotFinal,
    /// The board has closed.
    BoardClosed {
        /// The time of the close.
        closes_at: Timestamp,
    },
    /// The organization, or those that share its allowance, have the maximum of entries.
    MaxEntries {
        /// The maximum.
        max: i64,
    },
    /// The job is on the board.
    Entered {
        /// Its entry's id.
        entry_id: EntryId,
    },
    /// Another entry of the board has the name.
    NameTaken,
}

/// Why a job has no receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum ReceiptRefusal {
    /// The job is a prediction.
    NotAnEval,
    /// The job has not succeeded.
    NotSucceeded {
        /// The job's status.
        status: String,
    },
    /// The figures are sealed.
    SealedUntil {
        /// The time of their disclosure.
        closes_at: Timestamp,
    },
}
