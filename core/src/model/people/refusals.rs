//! Errors that several operations return when a rule for an organization, a plan or a suite refuses
//! a request.

use crate::model::error::{Code, Error};
use crate::model::error_details::{
    Details, EntryRefusal, OrgChoice, ReceiptRefusal, Resource, SuiteAccess,
};
use crate::model::ids::SuiteId;
use crate::model::scope::Scope;
use crate::model::terms::CurrentTerms;
use crate::model::timestamp::Timestamp;

impl Error {
    /// Returns the 429 for a limit that resets in `seconds`. `details` describe the limit.
    pub fn quota(message: String, details: Details, seconds: u32) -> Self {
        Self::new(Code::QuotaExceeded, message)
            .with_details(details)
            .with_retry_after(seconds.max(1))
    }

    /// Returns the 403 for an API key without the scope that the operation requires.
    pub fn out_of_scope(required: Scope) -> Self {
        let message = format!(
            "This key does not have the scope {required}, which the operation requires. Use a key \
             that has it."
        );
        Self::new(Code::Forbidden, message).with_details(Details::Scope { required })
    }

    /// Returns the 429 for a program that polls its device login too often. `seconds` is the
    /// remaining interval.
    pub fn polled_too_fast(interval: u32, seconds: u32) -> Self {
        let message = format!("Wait {interval} s between two polls. Wait {seconds} s.");
        Self::new(Code::RateLimited, message).with_retry_after(seconds.max(1))
    }

    /// Returns the 401 for an API key that has expired.
    pub fn key_expired(expired_at: Timestamp) -> Self {
        let message = format!("This key expired at {expired_at}. Create another one.");
        Self::new(Code::KeyRevoked, message).with_details(Details::Expired { expired_at })
    }

    /// Returns the 403 for an organization that the operator has suspended.
    pub fn org_suspended() -> Self {
        let message = "The operator has suspended this organization. Ask the operator why, or \
                       name another organization in the header X-Org-Id.";
        Self::new(Code::Forbidden, message).with_details(Details::OrgSuspended)
    }

    /// Returns the 409 for a job that cannot enter a board.
    pub fn entry_refused(refusal: EntryRefusal) -> Self {
        let (code, message) = match &refusal {
            EntryRefusal::NoBoard => (
                Code::InvalidState,
                "The suite's version has no board.".into(),
            ),
            EntryRefusal::NotSucceeded { status } => (
                Code::InvalidState,
                format!("The job is {status}; only a succeeded job can enter a board."),
            ),
            EntryRefusal::NotFinal => (
                Code::InvalidState,
                "The suite has sealed items, so only final jobs can enter its board. Mark the job \
                 as final first (`POST /v1/jobs/{job_id}/final`)."
                    .into(),
            ),
            EntryRefusal::BoardClosed { closes_at } => (
                Code::InvalidState,
                format!("The board closed at {closes_at} and accepts no entries."),
            ),
            EntryRefusal::MaxEntries { max } => (
                Code::InvalidState,
                format!(
                    "{max} jobs have entered this board, the maximum. Withdrawn entries count; \
                     organizations of one domain, and those on the plan `free` that one user \
                     created, share them."
                ),
            ),
            EntryRefusal::Entered { entry_id } => (
                Code::Conflict,
                format!("The job has entered the board already: {entry_id}."),
            ),
            EntryRefusal::NameTaken => (
                Code::Conflict,
                "Another entry of the board has this name, or one that looks the same. Choose another \
                 one."
                    .into(),
            ),
        };
        let error = Self::new(code, message).with_details(Details::Entry(refusal));
        match code {
            Code::InvalidState => error.with_resource(Resource::Job),
            _ => error,
        }
    }

    /// Returns the 409 for a handle that the organization cannot have.
    pub fn handle_taken(handle: &str) -> Self {
        let message = format!(
            "The handle {handle} is taken, or reserved for an organization with a verified domain of this name. \
             Choose another one."
        );
        Self::new(Code::Conflict, message).with_details(Details::HandleTaken)
    }

    /// Returns the 409 for another handle than the one that the organization has.
    pub fn handle_set(handle: &str) -> Self {
        let message = format!(
            "The handle of the organization is {handle}. It never changes, because the ids of suites contain it."
        );
        Self::invalid_state(Resource::Organization, message).with_details(Details::HandleSet)
    }

    /// Returns the 409 for a version that cannot retire before its board is final.
    pub fn board_not_final() -> Self {
        let message = "The board of the version is computed at its close, and is not final yet. Wait for its close.";
        Self::invalid_state(Resource::Suite, message).with_details(Details::BoardNotFinal)
    }

    /// Returns the 409 for a version that cannot retire before it closes.
    pub fn not_closed(closes_at: Timestamp) -> Self {
        let message =
            format!("The version closes at {closes_at}, and its answers stay hidden until then.");
        Self::invalid_state(Resource::Suite, message).with_details(Details::NotClosed { closes_at })
    }

    /// Returns the 409 for answers that other versions hide, too.
    pub fn answers_shared(versions: Vec<String>) -> Self {
        let message = format!(
            "Other versions accept submissions and have the same opening key, or some of these items with the same answers: {}. Retire them first.",
            versions.join(", ")
        );
        Self::invalid_state(Resource::Suite, message)
            .with_details(Details::AnswersShared { versions })
    }

    /// Returns the 409 for a submission to a version that has retired.
    pub fn suite_retired(version: &str) -> Self {
        let message =
            format!("Version {version} of the suite has retired, and accepts no submissions.");
        Self::invalid_state(Resource::Suite, message).with_details(Details::SuiteRetired)
    }

    /// Returns the 409 for a submission to a suite that the operator has suspended.
    pub fn suite_suspended() -> Self {
        let message = "The operator has suspended the suite. Ask the operator why.";
        Self::invalid_state(Resource::Suite, message).with_details(Details::SuiteSuspended)
    }

    /// Returns the 409 for a suite without items and answers.
    pub fn suite_removed() -> Self {
        let message = "The operator has deleted the items and answers of the suite. It accepts neither submissions nor changes.";
        Self::invalid_state(Resource::Suite, message).with_details(Details::SuiteRemoved)
    }

    /// Returns the 409 for an entry on a final board.
    pub fn board_final() -> Self {
        let message = "The board is final, so its publisher can no longer remove or restore entries. Ask the operator.";
        Self::invalid_state(Resource::Entry, message).with_details(Details::BoardFinal)
    }

    /// Returns the 409 for a suite that becomes visible to others only after the operator's review.
    pub fn suite_in_review() -> Self {
        let message = "The operator reviews suites before more organizations see them. Publish a version whose suite.toml has the new \
                       visibility: it is reviewed, and its suite may change its visibility afterwards.";
        Self::invalid_state(Resource::Suite, message).with_details(Details::InReview)
    }

    /// Returns the 409 for a job without such a receipt.
    pub fn receipt_refused(refusal: ReceiptRefusal) -> Self {
        let message = match &refusal {
            ReceiptRefusal::NotAnEval => {
                "The job is a prediction. Only evals have receipts.".into()
            }
            ReceiptRefusal::NotSucceeded { status } => {
                format!("The job is {status}; only a succeeded job has a receipt.")
            }
            ReceiptRefusal::SealedUntil { closes_at } => {
                format!("The sealed figures are disclosed when the suite closes, at {closes_at}.")
            }
        };
        Self::invalid_state(Resource::Job, message).with_details(Details::Receipt(refusal))
    }

    /// Returns the 409 for a job that was scored on another suite version than the current
    /// one, whose board alone accepts entries.
    pub fn job_of_other_version(suite_version: String, current_version: String) -> Self {
        let message = format!(
            "The job was scored on version {suite_version}, and the current version is \
             {current_version}. Boards of earlier versions accept no entries."
        );
        Self::new(Code::Conflict, message).with_details(Details::SuiteVersion {
            suite_version,
            current_version,
        })
    }

    /// Returns the 409 for predictions that were made for another suite version than the
    /// current one.
    pub fn other_suite_version(suite_version: String, current_version: String) -> Self {
        let message = format!(
            "The current version of the suite is {current_version}, and the predictions were made \
             for {suite_version}. Read the items again, predict them, and submit with the current \
             version."
        );
        Self::new(Code::Conflict, message).with_details(Details::SuiteVersion {
            suite_version,
            current_version,
        })
    }

    /// Returns the 429 for an organization that stores as many bytes as its plan allows.
    ///
    /// `seconds` is the time until `resets_at`, when space becomes free.
    pub fn storage_full(used: i64, max: i64, resets_at: Timestamp, seconds: u32) -> Self {
        let details = Details::Quota {
            limit: "storage_bytes",
            max,
            active: Some(used),
            resets_at,
        };
        let message = format!(
            "{used} bytes are stored; the plan allows {max} at once. Delete uploads that you do \
             not need, or wait until jobs have finished."
        );
        Self::quota(message, details, seconds)
    }

    /// Returns the 409 for a caller that belongs to several organizations and has not chosen one.
    pub fn choose_org(orgs: Vec<OrgChoice>) -> Self {
        let message = "You belong to several organizations. Choose one with the header X-Org-Id; \
                       the session keeps it.";
        Self::new(Code::Conflict, message).with_details(Details::ChooseOrganization {
            header: "X-Org-Id",
            orgs,
        })
    }

    /// Returns the 403 for an organization that must accept the current terms first.
    pub fn terms_not_accepted(terms: &CurrentTerms) -> Self {
        let CurrentTerms { version, url } = terms;
        let message = format!(
            "An owner of your organization must first accept version {version} of the terms: {url}"
        );
        Self::new(Code::Forbidden, message).with_details(Details::TermsNotAccepted {
            version: version.clone(),
            url: url.clone(),
        })
    }

    /// Returns the 403 for an organization that may not submit to the suite.
    pub fn suite_access(access: SuiteAccess) -> Self {
        let message = match access {
            SuiteAccess::Everyone => "The organization may not submit to this suite.",
            SuiteAccess::VerifiedDomain => {
                "Only organizations with a verified domain may submit to this suite. Claim one \
                 with POST /v1/domains."
            }
            SuiteAccess::Granted => {
                "Only organizations with a grant may submit to this suite. Ask the operator for \
                 one."
            }
        };
        Self::new(Code::Forbidden, message).with_details(Details::SuiteAccess { access })
    }

    /// Returns the 429 for a suite whose submissions for the day, UTC, are used up.
    ///
    /// `seconds` is the time until `resets_at`, the next midnight.
    pub fn day_used_up(suite_id: &SuiteId, max: i64, resets_at: Timestamp, seconds: u32) -> Self {
        let details = Details::Quota {
            limit: "submissions_per_day",
            max,
            active: None,
            resets_at,
        };
        let message = format!(
            "{suite_id} allows {max} submissions and comparisons a day for an organization and \
             all that share its allowance. The next day begins at midnight UTC."
        );
        Self::quota(message, details, seconds)
    }

    /// Returns the 403 for a suite's version whose submissions are used up permanently.
    pub fn submissions_used_up(max: i64) -> Self {
        let message = format!(
            "This version of the suite allows {max} submissions and comparisons, and they are \
             used up permanently. Organizations of one domain, and those on the plan `free` that \
             one user created, share them."
        );
        Self::new(Code::Forbidden, message).with_details(Details::SubmissionsUsedUp { max })
    }
}
