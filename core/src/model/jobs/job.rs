//! Jobs: their states, the transitions between them, and their representation for callers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use utoipa::ToSchema;

use crate::model::ceiling::{Ceiling, ShareOfCeiling};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, RequestId, SuiteId};
use crate::model::metadata::Metadata;
use crate::model::prediction::PredictResult;
use crate::model::queue::JobQueue;
use crate::model::skill::Skill;
use crate::model::slices::FieldSlices;
use crate::model::suite_items::ItemCursor;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::DisclosurePolicy;
use assay_eval::score::Figures;

/// Maximum attempt count of a job: the first one and three retries.
pub const ATTEMPTS_MAX: i32 = 4;

text_enum! {
    /// A job's type.
    pub enum JobType {
        /// The job scores predictions for a suite.
        Eval = "eval",
        /// The job ranks items for many sequences with a model.
        Predict = "predict",
    }
}

text_enum! {
    /// A job's state.
    pub enum JobStatus {
        /// The job waits for a worker.
        Queued = "queued",
        /// A worker runs an attempt.
        Running = "running",
        /// The job has a result. This state is final.
        Succeeded = "succeeded",
        /// The job has an error. This state is final.
        Failed = "failed",
        /// The caller has cancelled the job. This state is final.
        Cancelled = "cancelled",
    }
}

/// An event that changes a job's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A worker starts an attempt.
    Claim,
    /// The attempt finished with a result.
    Succeed,
    /// The attempt finished with an error that a retry cannot correct, or no attempts are left.
    Fail,
    /// The attempt ended without a result, and attempts are left.
    Requeue,
    /// The caller cancels the job.
    Cancel,
}

/// A transition that the table does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {from}")]
pub struct IllegalTransition {
    /// The state of the job.
    pub from: JobStatus,
    /// The event that the state does not allow.
    pub trigger: Trigger,
}

impl JobStatus {
    /// Returns the state after the event: the only transition table. The statement guards in
    /// `store::{job, leases, work}` are equivalent.
    ///
    /// # Errors
    /// If the state does not allow the event.
    pub fn after(self, trigger: Trigger) -> Result<Self, IllegalTransition> {
        match (self, trigger) {
            (Self::Queued, Trigger::Claim) => Ok(Self::Running),
            (Self::Running, Trigger::Succeed) => Ok(Self::Succeeded),
            (Self::Running, Trigger::Fail) => Ok(Self::Failed),
            (Self::Running, Trigger::Requeue) => Ok(Self::Queued),
            (Self::Queued | Self::Running, Trigger::Cancel) => Ok(Self::Cancelled),
            (from, trigger) => Err(IllegalTransition { from, trigger }),
        }
    }

    /// Returns `true` if the state cannot change.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

text_enum! {
    /// A failed job's error code.
    pub enum FailureCode {
        /// No attempt succeeded, and the last one failed on the server's side or lost its worker. The
        /// charge is refunded.
        Internal = "internal",
        /// The job exceeded its time limit. The charge is refunded.
        Timeout = "timeout",
        /// The submission does not fit the suite. The message names the position.
        InvalidPredictions = "invalid_predictions",
        /// The submission no longer exists. If it would have been the output of a prediction job, that
        /// job failed, and the charge is refunded.
        InputUnavailable = "input_unavailable",
        /// The operator has deleted the items and answers of the suite. The charge is refunded.
        SuiteRemoved = "suite_removed",
    }
}

impl FailureCode {
    /// Returns `true` if the server or the operator is responsible for the failure, so that the charge is refunded.
    pub const fn is_refunded(self) -> bool {
        matches!(self, Self::Internal | Self::Timeout | Self::SuiteRemoved)
    }
}

/// The error of a failed job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobError {
    /// The code of the error.
    pub code: FailureCode,
    /// A description for people. It can change.
    pub message: String,
}

/// The suite, the model and the build of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Versions {
    /// The build of the scoring and model library. For a succeeded job, the build that computed the
    /// result.
    pub hfm_sha: String,
    /// The id of the suite. Absent if a prediction job has no suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub suite_id: Option<SuiteId>,
    /// The version of the suite. Present if the job has a suite, and has succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub suite_version: Option<String>,
    /// The id of the model. Present in prediction jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model_id: Option<String>,
    /// The version of the model. Present in prediction jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model_version: Option<String>,
}

/// The result of a job, by its type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(
    clippy::large_enum_variant,
    reason = "most results are of evals, and a page charges the memory of its jobs"
)]
pub enum JobResult {
    /// The result of an eval.
    Eval(EvalResult),
    /// The result of a prediction job.
    Predict(PredictResult),
}

impl JobResult {
    /// Returns the build that computed the result.
    fn hfm_sha(&self) -> &str {
        match self {
            Self::Eval(result) => &result.hfm_sha,
            Self::Predict(result) => &result.hfm_sha,
        }
    }
}

/// The result of an eval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EvalResult {
    /// The build of the scoring library that computed the result.
    pub hfm_sha: String,
    /// The metric of the suite, such as `accuracy` or `ndcg@10`.
    pub metric: String,
    /// The number of items that `value` covers: all items of the suite, or its open items if
    /// `release` is `sealed(fraction)`.
    #[schema(minimum = 0)]
    pub n: i64,
    /// The number of predictions in the submission.
    #[schema(minimum = 0)]
    pub n_submitted: i64,
    /// The number of predictions for items that are not in the suite.
    #[schema(minimum = 0)]
    pub n_unmatched: i64,
    /// The number of the `n` items without a prediction. Each counts as a wrong one.
    #[schema(minimum = 0)]
    pub n_missing: i64,
    /// The id of the suite.
    #[schema(value_type = SuiteId)]
    pub suite_id: String,
    /// The version of the suite that the job was scored against.
    pub suite_version: String,
    /// The value of the metric, as far as `release` discloses it.
    pub value: f64,
    /// The standard error of `value`. Null if the suite has too few items, if `release` is a
    /// ladder, and in jobs that finished before the field existed.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[serde(default)]
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The method of `stderr` and `ci95`: `wilson`, `normal`, `delta`, `delong`, `fisher`,
    /// `fisher_delta` or `bootstrap`; by cluster `cluster_wilson`, `cluster_t`, `cluster_logit`,
    /// `cluster_fisher` or `cluster_bootstrap`. Null if `stderr` is null.
    #[serde(default)]
    pub ci_method: Option<String>,
    /// The other figures of the metric's family, by name. If `release` is a ladder, those of the catalog alone.
    #[serde(default)]
    #[schema(required)]
    pub metrics: BTreeMap<String, f64>,
    /// The disclosure policy of the suite. `exact` discloses every figure. `rounded(d)` discloses
    /// every figure with d decimals. `ladder(step)` discloses only the best value so far on a grid.
    /// `sealed(fraction)` discloses every figure of the open items.
    #[serde(default = "exact")]
    #[schema(required, pattern = r"^[a-z]+(\([0-9.]+\))?$")]
    pub release: String,
    /// The figures of the sealed items. Present in final jobs, after the suite has closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sealed: Option<SealedFigures>,
    /// The number of clusters among the `n` items. Absent if the items are independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub n_clusters: Option<i64>,
    /// The factor by which clusters raise the variance of `value`: the squared ratio of `stderr` to
    /// the standard error of independent items. Absent if the items are independent, or if `stderr`
    /// is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub design_effect: Option<f64>,
    /// The figures by slice, for each group field. Empty if the suite has none, or if `release` is a
    /// ladder. With sealed items, these are the open items of public fields.
    #[serde(default)]
    #[schema(required, max_items = 5)]
    pub slices: Vec<FieldSlices>,
    /// The noise ceiling of the same items. Absent if the suite has no retest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ceiling: Option<Ceiling>,
    /// The share of the ceiling that `value` reaches. Absent without a ceiling, if the ceiling is not
    /// better than the best trivial submission, and if `release` is a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub share_of_ceiling: Option<ShareOfCeiling>,
    /// The skill against the baseline of the suite. Absent if the suite has none, and if `release` is a
    /// ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub skill: Option<Skill>,
    /// True if the organization of the job is the publisher of the suite, or shares a domain or its
    /// creator with it. Absent if the suite is the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_publisher: Option<bool>,
}

impl EvalResult {
    /// Returns the result with these figures instead of its own.
    #[must_use]
    pub fn with_figures(self, figures: Figures) -> Self {
        let Figures {
            value,
            estimate,
            metrics,
            public_metrics: _,
            clusters,
            slices,
            ceiling,
            share_of_ceiling,
            skill,
        } = figures;
        Self {
            value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            ci_method: estimate.map(|estimate| estimate.method.to_owned()),
            metrics,
            n_clusters: clusters.map(|clusters| clusters.n),
            design_effect: clusters.and_then(|clusters| clusters.design_effect),
            slices: slices.into_iter().map(FieldSlices::from).collect(),
            ceiling: ceiling.map(Ceiling::from),
            share_of_ceiling: share_of_ceiling.map(ShareOfCeiling::from),
            skill: skill.map(Skill::from),
            ..self
        }
    }
}

/// The figures of the sealed items of a suite. They are disclosed after the suite has closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SealedFigures {
    /// The value of the metric over the sealed items.
    pub value: f64,
    /// The standard error of `value`. Null if there are too few sealed items.
    #[schema(minimum = 0)]
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of `value`: its low end, then its high end. Null if `stderr` is
    /// null.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Option<[f64; 2]>,
    /// The number of sealed items.
    #[schema(minimum = 1)]
    pub n: i64,
    /// The number of clusters among the sealed items. Absent if the items are independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub n_clusters: Option<i64>,
    /// The factor by which clusters raise the variance of `value`: the squared ratio of `stderr` to
    /// the standard error of independent items. Absent if the items are independent, or if `stderr`
    /// is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub design_effect: Option<f64>,
    /// The sealed items' figures by slice, for each group field.
    #[serde(default)]
    #[schema(required, max_items = 5)]
    pub slices: Vec<FieldSlices>,
    /// The noise ceiling of the sealed items. Absent if the suite has no retest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ceiling: Option<Ceiling>,
    /// The share of the ceiling that `value` reaches. Absent without a ceiling, if the ceiling is not
    /// better than the best trivial submission, and if `release` is a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub share_of_ceiling: Option<ShareOfCeiling>,
    /// The skill over the sealed items against the baseline of the suite. Absent if the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub skill: Option<Skill>,
}

/// The most jobs on a suite version that each allowance holder can mark as final.
pub const FINAL_JOBS_MAX: i64 = 3;

/// Suite items per charged item. Scoring costs time in proportion to the suite, even for
/// a small submission, so a job is charged for at least one item in this many. A submission with
/// fewer predictions has no stored item scores.
const ITEMS_PER_PREDICTION_MAX: i64 = 1000;

/// Returns how many items a submission is charged for: its predictions, but at least a
/// thousandth of the suite's items.
pub fn charged_items(n_submitted: i64, n_items: i64) -> i64 {
    n_submitted.max(n_items / ITEMS_PER_PREDICTION_MAX)
}

/// Returns `true` if a job's item scores are stored, given its predicted item count. A
/// smaller submission would occupy more storage than it is charged for.
pub fn stores_item_scores(n_predicted: i64, n_items: i64) -> bool {
    n_predicted.saturating_mul(ITEMS_PER_PREDICTION_MAX) >= n_items
}

/// Days for which item scores are stored.
pub const ITEM_SCORES_DAYS: i32 = 30;

/// Returns the disclosure policy for results that were stored before the field existed.
fn exact() -> String {
    DisclosurePolicy::Exact.to_string()
}

/// A submission that was accepted, and its result.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Job {
    /// The id of the job.
    pub id: JobId,
    /// The id of the organization that submitted the job.
    pub org_id: OrgId,
    /// The type of the job.
    pub r#type: JobType,
    /// The state of the job. `succeeded`, `failed` and `cancelled` are final.
    pub status: JobStatus,
    /// The id of the request that created the job.
    #[schema(value_type = RequestId)]
    pub request_id: String,
    /// The name that the caller gave the job. Null if it has none.
    #[schema(max_length = 200)]
    pub label: Option<String>,
    /// The pairs of texts that the caller attached to the job. Empty if it has none.
    pub metadata: Metadata,
    /// The suite, the model and the build of the job.
    pub versions: Versions,
    /// The number of attempts that were started.
    #[schema(minimum = 0, maximum = 4)]
    pub attempts: i32,
    /// The share of the submission that has been scored or predicted, from 0 to 1, updated once a
    /// second. Null unless the job is running.
    #[schema(minimum = 0, maximum = 1)]
    pub progress: Option<f64>,
    /// The time at which the job was accepted. No two jobs of an organization have the same.
    pub created_at: Timestamp,
    /// The time at which the current or last attempt started. Null while the job is queued.
    pub started_at: Option<Timestamp>,
    /// The time at which the job reached a final state. Null until then.
    pub finished_at: Option<Timestamp>,
    /// `true` if the job is one of the at most three whose sealed figures are disclosed after the
    /// suite has closed.
    pub r#final: bool,
    /// The id of the eval that scores the output of this prediction job. Present from the start if
    /// the request had `evaluate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub eval_job_id: Option<JobId>,
    /// The place of the job in the queue, and the estimate of its end. Present while the job is
    /// queued or running.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<JobQueue>,
    /// The result. Present if the job has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result: Option<JobResult>,
    /// The error. Present if the job has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<JobError>,
    /// The URL of the trace. Present if the job has succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "uri")]
    pub trace_url: Option<String>,
}

impl Job {
    /// Returns the label, or the job's id if it has none.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(self.id.as_str())
    }
}

/// A server-sent event with the state of a job.
#[derive(ToSchema)]
pub struct JobEvent {
    /// The name: `message` for a job, also if the stream does not write it, or `error`.
    pub event: String,
    /// The JSON of the job, or of the error that ends the stream.
    pub data: String,
}

/// One page of jobs, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Jobs {
    /// The jobs of the page, the newest first.
    #[schema(max_items = 200)]
    pub jobs: Vec<Job>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<Timestamp>,
}

/// The score of one item in one job.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ItemScore {
    /// The id of the item.
    #[schema(min_length = 1, max_length = 512)]
    pub item_id: String,
    /// The value of the metric for this item alone. An item without a prediction has the score of a
    /// wrong one.
    pub score: f64,
}

/// One page of the item scores of a job, in the order of the suite's items.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct JobItems {
    /// The id of the job.
    pub job_id: JobId,
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite that the job was scored against.
    pub suite_version: String,
    /// The item scores of the page, in the order of the suite's items.
    #[schema(max_items = 1000)]
    pub items: Vec<ItemScore>,
    /// The number of items in the suite, not in the page.
    #[schema(minimum = 1)]
    pub n_items: i64,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<ItemCursor>,
}

/// Default and maximum page size for jobs.
pub const JOBS_PAGE: (u32, u32) = (50, 200);

/// The columns in a job's row that its callers may see. The fields are [`Job`]'s, flat.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of Job, flat")]
pub struct JobRow {
    pub id: JobId,
    pub org_id: OrgId,
    pub r#type: JobType,
    pub status: JobStatus,
    pub request_id: String,
    pub label: Option<String>,
    pub metadata: Option<Json<Metadata>>,
    /// The scoring library's build when the job was accepted. The result names the build that
    /// scored the job.
    pub hfm_sha: String,
    pub suite_id: Option<SuiteId>,
    /// The version is fixed when the job is accepted, but callers see it only after the job has
    /// run.
    pub suite_version: Option<String>,
    pub model_id: Option<String>,
    pub model_version: Option<String>,
    pub eval_job_id: Option<JobId>,
    pub attempts: i32,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub is_final: bool,
    pub result: Option<Json<JobResult>>,
    /// Set for a final job, after the suite has closed.
    pub sealed: Option<Json<SealedFigures>>,
    pub progress: Option<f64>,
    pub error_code: Option<FailureCode>,
    pub error_message: Option<String>,
    /// The job's cost in the queue, in items.
    pub cost: i64,
    /// `true` if workers were notified of the queued job.
    pub is_notified: bool,
    /// `true` if the job cannot start before another one has ended.
    pub waits_for_job: bool,
}

impl JobRow {
    /// Returns the job as callers see it. `public_url` is the API's public address, and `queue` the
    /// job's place.
    pub fn into_job(self, public_url: &str, queue: Option<JobQueue>) -> Job {
        let Self {
            id,
            org_id,
            r#type,
            status,
            request_id,
            label,
            metadata,
            hfm_sha,
            suite_id,
            suite_version,
            model_id,
            model_version,
            eval_job_id,
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
            cost: _,
            is_notified: _,
            waits_for_job: _,
        } = self;
        let has_run = matches!(status, JobStatus::Succeeded | JobStatus::Failed);
        let sealed = sealed.map(|Json(sealed)| sealed);
        let result = result.map(|Json(result)| match result {
            JobResult::Eval(result) => JobResult::Eval(EvalResult { sealed, ..result }),
            JobResult::Predict(result) => JobResult::Predict(result),
        });
        let hfm_sha = result
            .as_ref()
            .map_or(hfm_sha, |result| result.hfm_sha().to_owned());
        Job {
            trace_url: has_run.then(|| format!("{public_url}/v1/jobs/{id}/trace")),
            error: error_code.map(|code| JobError {
                code,
                message: error_message.unwrap_or_default(),
            }),
            versions: Versions {
                hfm_sha,
                suite_id,
                suite_version: suite_version.filter(|_| has_run),
                model_id,
                model_version,
            },
            id,
            org_id,
            r#type,
            status,
            request_id,
            label,
            metadata: metadata.map(|Json(metadata)| metadata).unwrap_or_default(),
            attempts,
            progress,
            created_at,
            started_at,
            finished_at,
            r#final: is_final,
            eval_job_id,
            queue,
            result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_do_not_change() {
        for from in JobStatus::ALL {
            for trigger in [
                Trigger::Claim,
                Trigger::Succeed,
                Trigger::Fail,
                Trigger::Requeue,
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
    fn requeued_job_rejects_late_result() {
        let requeued = JobStatus::Running.after(Trigger::Requeue).unwrap();
        assert_eq!(requeued, JobStatus::Queued);
        assert!(requeued.after(Trigger::Succeed).is_err());
    }
}
