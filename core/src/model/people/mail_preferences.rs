//! The emails that a user gets about their organizations, and the news that they contain.

use crate::model::event::UsageThreshold;
use crate::model::ids::JobId;
use crate::model::text_enum::text_enum;

text_enum! {
    /// The jobs about which a user gets emails.
    pub enum JobMails {
        /// No jobs.
        None = "none",
        /// Jobs that have failed.
        Failed = "failed",
        /// Jobs that have succeeded or failed.
        Finished = "finished",
    }
}

/// The emails that a user has turned on. They are about all the user's organizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailPreferences {
    /// The jobs that are reported.
    pub job_mails: JobMails,
    /// `true` if the email says that a month's usage has reached 80 or 100 % of a limit.
    pub thresholds: bool,
}

impl MailPreferences {
    /// The preferences for a user who has chosen none.
    pub const OFF: Self = Self {
        job_mails: JobMails::None,
        thresholds: false,
    };
}

/// The events in an organization, for a member.
#[derive(Debug, Clone)]
pub struct News {
    /// The member's address.
    pub email: String,
    /// The name of the organization.
    pub org: String,
    /// The jobs that have finished, the first one first.
    pub jobs: Vec<FinishedJob>,
    /// `true` if more jobs have finished than `jobs` contains.
    pub has_more: bool,
    /// The limits that the usage has reached.
    pub thresholds: Vec<UsageThreshold>,
}

/// A job that has finished.
#[derive(Debug, Clone)]
pub struct FinishedJob {
    /// The id of the job.
    pub id: JobId,
    /// The caller's label for the job.
    pub label: Option<String>,
    /// The suite or the model that the job was for.
    pub subject: String,
    /// `true` if the job has succeeded, `false` if it has failed.
    pub has_succeeded: bool,
}
