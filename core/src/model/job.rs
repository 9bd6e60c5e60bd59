//! Jobs: their states, the transitions between them, and the form in which callers see them.

use std::collections::BTreeMap;

use assay_eval::score::Sealed;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use utoipa::ToSchema;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, RequestId};
use crate::model::suite::{ItemCursor, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::text_enum;
use assay_eval::DisclosurePolicy;
use assay_eval::score::Figures;

/// How often a job is begun at most: the first try and three retries.
pub const ATTEMPTS_MAX: i32 = 4;

text_enum! {
    /// What a job does.
    pub enum JobType {
        /// Scores predictions for a suite.
        Eval = "eval",
        /// Serves a model.
        Predict = "predict",
    }
}

text_enum! {
    /// Where a job stands.
    pub enum JobStatus {
        /// Waits for a worker.
        Queued = "queued",
        /// A worker holds it.
        Running = "running",
        /// Ended with a result.
        Succeeded = "succeeded",
        /// Ended with an error.
        Failed = "failed",
        /// Ended by the caller.
        Cancelled = "cancelled",
    }
}

/// What moves a job from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A worker begins an attempt.
    Claim,
    /// The attempt ended with a result.
    Succeed,
    /// The attempt ended with an error that another try would not mend, or there are no tries left.
    Fail,
    /// The attempt ended without a result, and there are tries left.
    Release,
    /// The caller wants it no more.
    Cancel,
}

/// The transition is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {from}")]
pub struct IllegalTransition {
    /// Where the job stood.
    pub from: JobStatus,
    /// What was tried.
    pub trigger: Trigger,
}

impl JobStatus {
    /// The one table of transitions. The guards of the statements in `store::{dispatch, job, work}` say the same.
    pub fn after(self, trigger: Trigger) -> Result<Self, IllegalTransition> {
        match (self, trigger) {
            (Self::Queued, Trigger::Claim) => Ok(Self::Running),
            (Self::Running, Trigger::Succeed) => Ok(Self::Succeeded),
            (Self::Running, Trigger::Fail) => Ok(Self::Failed),
            (Self::Running, Trigger::Release) => Ok(Self::Queued),
            (Self::Queued | Self::Running, Trigger::Cancel) => Ok(Self::Cancelled),
            (from, trigger) => Err(IllegalTransition { from, trigger }),
        }
    }

    /// Whether nothing can change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

text_enum! {
    /// Why a job failed.
    pub enum FailureCode {
        /// A fault of ours that four tries did not get past.
        Internal = "internal",
        /// It took longer than it may.
        Timeout = "timeout",
        /// The submission does not fit the suite; the message names the place.
        InvalidPredictions = "invalid_predictions",
        /// The submission is not there any more.
        InputUnavailable = "input_unavailable",
    }
}

impl FailureCode {
    /// Whether the fault is ours: then the charge is given back.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Internal | Self::Timeout)
    }
}

/// Why a job failed, as the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobError {
    /// From a closed set.
    pub code: FailureCode,
    /// For humans.
    pub message: String,
}

/// Which builds and which suite a job belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Versions {
    /// The build of the scoring library.
    pub hfm_sha: String,
    /// The suite.
    pub suite_id: SuiteId,
    /// The suite's version, once the job has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub suite_version: Option<String>,
}

/// What an eval found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EvalResult {
    /// The build of the scoring library that computed it.
    pub hfm_sha: String,
    /// The suite's metric.
    pub metric: String,
    /// Number of items that `value` covers: all items of the suite, or its open items where `release` is `sealed(fraction)`.
    #[schema(minimum = 0)]
    pub n: i64,
    /// Number of predictions sent.
    #[schema(minimum = 0)]
    pub n_submitted: i64,
    /// How many of these match no item of the suite.
    #[schema(minimum = 0)]
    pub n_unmatched: i64,
    /// Number of these items without a prediction; each counts as a wrong one.
    #[schema(minimum = 0)]
    pub n_missing: i64,
    /// The suite.
    #[schema(value_type = SuiteId)]
    pub suite_id: String,
    /// The version of the suite that it was scored against.
    pub suite_version: String,
    /// The metric's value, as far as `release` lets it be told.
    pub value: f64,
    /// Its standard error; null where too few items say nothing of it, where `release` is a ladder, and in jobs that ended
    /// before there was one.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// Its interval of 95 % confidence: low, high. Null where `stderr` is.
    #[serde(default)]
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// How both were found: `wilson`, `normal`, `delta`, `delong`, `fisher` or `bootstrap`.
    #[serde(default)]
    pub ci_method: Option<String>,
    /// The family's other figures: name → value.
    #[serde(default)]
    #[schema(required)]
    pub metrics: BTreeMap<String, f64>,
    /// How much of the score is disclosed: `exact`; `rounded(d)`, each figure with d decimals; `ladder(step)`, the best value so
    /// far on a grid, and no other figure; or `sealed(fraction)`, every figure of the open items.
    #[serde(default = "exact")]
    #[schema(required, pattern = r"^[a-z]+(\([0-9.]+\))?$")]
    pub release: String,
    /// The figures of the sealed items: of a final job, after the suite has closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sealed: Option<SealedFigures>,
}

impl EvalResult {
    /// The result with these figures instead of its own.
    #[must_use]
    pub fn with(self, figures: Figures) -> Self {
        let Figures {
            value,
            estimate,
            metrics,
        } = figures;
        Self {
            value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            ci_method: estimate.map(|estimate| estimate.method.to_owned()),
            metrics,
            ..self
        }
    }
}

/// The figures of the sealed items of a suite, disclosed after it has closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SealedFigures {
    /// The metric's value over the sealed items.
    pub value: f64,
    /// Its standard error; null where too few items say nothing of it.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// Its interval of 95 % confidence: low, high. Null where `stderr` is.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// Number of sealed items.
    #[schema(minimum = 1)]
    pub n: i64,
}

impl From<Sealed> for SealedFigures {
    fn from(
        Sealed {
            n,
            figures:
                Figures {
                    value,
                    estimate,
                    metrics: _,
                },
        }: Sealed,
    ) -> Self {
        Self {
            value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            n,
        }
    }
}

/// The number of jobs of a suite's version that may be marked as final, for each holder of an allowance.
pub const FINAL_JOBS_MAX: i64 = 3;

/// A job is charged for, and its item scores are stored, as if it predicted at least one item in this many: that is what
/// scoring costs by itself, whatever was sent.
const ITEMS_PER_PREDICTION_MAX: i64 = 1000;

/// The number of items that a submission is charged for: its predictions, and at least a thousandth of the suite's items.
pub fn charged_items(n_submitted: i64, n_items: i64) -> i64 {
    n_submitted.max(n_items / ITEMS_PER_PREDICTION_MAX)
}

/// Whether the scores of the items are stored, with this number of items predicted: a smaller submission would take more
/// storage than it pays for.
pub fn stores_item_scores(n_predicted: i64, n_items: i64) -> bool {
    n_predicted.saturating_mul(ITEMS_PER_PREDICTION_MAX) >= n_items
}

/// How long the scores of items are stored, in days.
pub const ITEM_SCORES_DAYS: i32 = 30;

/// How results were released before there was a choice.
fn exact() -> String {
    DisclosurePolicy::Exact.to_string()
}

/// A job, as the callers of its organization see it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Job {
    /// `job_…`
    pub id: JobId,
    /// The organization that submitted it.
    pub org_id: OrgId,
    /// What it does.
    pub r#type: JobType,
    /// Where it stands.
    pub status: JobStatus,
    /// The request that made it.
    #[schema(value_type = RequestId)]
    pub request_id: String,
    /// As the caller named it.
    #[schema(max_length = 200)]
    pub label: Option<String>,
    /// Which builds and which suite it belongs to.
    pub versions: Versions,
    /// How often it was begun; 0 while it waits for the first time.
    #[schema(minimum = 0, maximum = 4)]
    pub attempts: i32,
    /// How much of the submission is scored, 0 to 1, while it runs; else null. Noted once a second.
    #[schema(minimum = 0, maximum = 1)]
    pub progress: Option<f64>,
    /// When it was accepted. No two jobs of an organization share it.
    pub created_at: Timestamp,
    /// When the present or last attempt began; null while it waits.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Whether it is one of the at most three jobs whose sealed figures are disclosed after the suite has closed.
    pub r#final: bool,
    /// What it found, if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result: Option<EvalResult>,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<JobError>,
    /// Where its trace is, once it has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "uri")]
    pub trace_url: Option<String>,
}

/// One page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Jobs {
    /// The jobs.
    #[schema(max_items = 200)]
    pub jobs: Vec<Job>,
    /// To be passed back as `before` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<Timestamp>,
}

/// How one item of the suite was scored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ItemScore {
    /// As in the suite.
    #[schema(min_length = 1, max_length = 512)]
    pub item_id: String,
    /// The metric's value for this item alone; of an item without a prediction, what a wrong one counts as.
    pub score: f64,
}

/// One page of a job's scores, in the order of the suite's items.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct JobItems {
    /// The job.
    pub job_id: JobId,
    /// The suite.
    pub suite_id: SuiteId,
    /// The version that the job was scored against.
    pub suite_version: String,
    /// The scores.
    #[schema(max_items = 1000)]
    pub items: Vec<ItemScore>,
    /// Number of items in the suite, not in the page.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<ItemCursor>,
}

/// Default and largest size of a page of jobs.
pub const JOBS_PAGE: (u32, u32) = (50, 200);

/// A job's row, as far as its callers may see it. For the fields see [`Job`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of Job, flat")]
pub struct JobRow {
    pub id: JobId,
    pub org_id: OrgId,
    pub r#type: JobType,
    pub status: JobStatus,
    pub request_id: String,
    pub label: Option<String>,
    /// The build of the scoring library when the job was accepted; the result names the one that scored.
    pub hfm_sha: String,
    pub suite_id: SuiteId,
    /// Fixed when the job is accepted, told when it has run.
    pub suite_version: String,
    pub attempts: i32,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub is_final: bool,
    pub result: Option<Json<EvalResult>>,
    /// Only after the suite has closed, and of a final job.
    pub sealed: Option<Json<SealedFigures>>,
    pub progress: Option<f64>,
    pub error_code: Option<FailureCode>,
    pub error_message: Option<String>,
}

impl JobRow {
    /// The job as callers see it; `public_url` is where the api can be reached.
    pub fn into_job(self, public_url: &str) -> Job {
        let Self {
            id,
            org_id,
            r#type,
            status,
            request_id,
            label,
            hfm_sha,
            suite_id,
            suite_version,
            attempts,
            created_at,
            started_at,
            finished_at,
            is_final,
            result,
            sealed,
            progress,
            error_code,
            error_message,
        } = self;
        let has_run = matches!(status, JobStatus::Succeeded | JobStatus::Failed);
        let sealed = sealed.map(|Json(sealed)| sealed);
        let result = result.map(|Json(result)| EvalResult { sealed, ..result });
        let hfm_sha = result
            .as_ref()
            .map_or(hfm_sha, |result| result.hfm_sha.clone());
        Job {
            trace_url: has_run.then(|| format!("{public_url}/v1/jobs/{id}/trace")),
            error: error_code.map(|code| JobError {
                code,
                message: error_message.unwrap_or_default(),
            }),
            versions: Versions {
                hfm_sha,
                suite_id,
                suite_version: has_run.then_some(suite_version),
            },
            id,
            org_id,
            r#type,
            status,
            request_id,
            label,
            attempts,
            progress,
            created_at,
            started_at,
            finished_at,
            r#final: is_final,
            result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_stay_as_they_are() {
        for from in JobStatus::ALL {
            for trigger in [
                Trigger::Claim,
                Trigger::Succeed,
                Trigger::Fail,
                Trigger::Release,
                Trigger::Cancel,
            ] {
                assert!(
                    !from.is_final() || from.after(trigger).is_err(),
                    "{from} {trigger:?}"
                );
            }
        }
    }

    #[test]
    fn a_late_write_of_an_attempt_that_was_taken_back_is_refused() {
        let taken_back = JobStatus::Running.after(Trigger::Release).unwrap();
        assert_eq!(taken_back, JobStatus::Queued);
        assert!(taken_back.after(Trigger::Succeed).is_err());
    }
}
