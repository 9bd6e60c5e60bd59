//! A submission to store: what a transaction decides about and inserts.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, UploadId};
use crate::model::job::JobType;
use crate::model::metadata::Metadata;
use crate::model::org::Plan;
use crate::model::queue::FirstEstimate;
use crate::model::served_model::ServedModel;
use crate::model::serving::PredictOptions;
use crate::model::span_context::{SpanContext, SpanId};
use crate::store::suite::SuiteRow;

/// A submission to store, which has been validated: one job, or a prediction job and its output's
/// eval.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The job's id, made by the caller.
    pub id: JobId,
    /// The organization that submits.
    pub org_id: OrgId,
    /// The organization plan's limits.
    pub plan: Plan,
    /// The request id that creates it.
    pub request_id: String,
    /// The caller's label for the job.
    pub label: Option<String>,
    /// The caller's text pairs.
    pub metadata: Option<Metadata>,
    /// The build of the scoring and model library.
    pub hfm_sha: String,
    /// The job's work.
    pub task: NewTask,
    /// The predictions or sequences.
    pub input: StoredAs,
    /// Prediction or sequence count.
    pub n_submitted: i64,
    /// The first estimate for the job's end, which the row keeps.
    pub estimate: FirstEstimate,
    /// The caller's idempotency key, if any.
    pub idempotency_key: Option<String>,
    /// The request digest that the idempotency key stands for. `None` without a key.
    pub request_sha256: Option<[u8; 32]>,
    /// Microseconds since the request's start.
    pub elapsed_us: i64,
    /// The span that stores the job.
    pub span: SpanContext,
    /// Set if the trace is exported. Otherwise the row does not name the span, and workers export
    /// no spans for the job.
    pub is_exported: bool,
    /// The client's span, if it sent one.
    pub client_span: Option<SpanId>,
}

/// A job's work.
#[derive(Debug, Clone)]
pub enum NewTask {
    /// The job scores its input.
    Eval(NewEval),
    /// The job ranks items for its input's sequences.
    Predict(Box<NewPrediction>),
}

impl NewTask {
    /// Returns the suite that the submission is scored for, if it is: by the job, or by its
    /// output's eval.
    pub fn scored_suite(&self) -> Option<&SuiteRow> {
        match self {
            Self::Eval(eval) => Some(&eval.suite),
            Self::Predict(prediction) => {
                let (_, eval) = prediction.evaluation.as_ref()?;
                Some(&eval.suite)
            }
        }
    }

    /// Returns the job's cost in the queue, in items.
    pub fn cost(&self) -> i64 {
        match self {
            Self::Eval(eval) => eval.charged_items.max(1),
            Self::Predict(prediction) => prediction.cost.max(1),
        }
    }

    /// Returns the job's type.
    pub const fn job_type(&self) -> JobType {
        match self {
            Self::Eval(_) => JobType::Eval,
            Self::Predict(_) => JobType::Predict,
        }
    }
}

/// An eval.
#[derive(Debug, Clone)]
pub struct NewEval {
    /// The suite's current version, which the job keeps.
    pub suite: Arc<SuiteRow>,
    /// Items that the job is charged for.
    pub charged_items: i64,
}

/// A prediction job.
#[derive(Debug, Clone)]
pub struct NewPrediction {
    /// The model, which the job keeps.
    pub model: ServedModel,
    /// The options of the operation.
    pub options: PredictOptions,
    /// The suite whose items are predicted, if the job predicts one.
    pub suite: Option<Arc<SuiteRow>>,
    /// The item count that an eval processes in the sequences' time.
    pub cost: i64,
    /// The output's id, made by the caller.
    pub output_upload_id: UploadId,
    /// The eval that waits for the output, if there is one, and its id, made by the caller.
    pub evaluation: Option<(JobId, NewEval)>,
}

/// A place for a job's predictions or sequences.
#[derive(Debug, Clone)]
pub enum StoredAs {
    /// They are stored with the job, in `stored_predictions`.
    Row(Bytes),
    /// They are about to be written to the artifact store. The submission passes all checks and
    /// records this many bytes, but stores no job.
    ObjectToWrite(i64),
    /// They are in the artifact store under this key, after a submission with the same id as
    /// `ObjectToWrite`.
    Object(String),
    /// They were uploaded before.
    Upload(UploadId),
    /// They are the job suite's items.
    SuiteItems,
}

/// The most prediction bytes that are stored in `stored_predictions`. Larger ones
/// cost less in the artifact store than in the database's write-ahead log.
pub const ROW_BYTES_MAX: usize = 64 * 1024;

impl NewJob {
    /// Returns `true` if the job needs a transaction without other jobs: it locks its upload or an
    /// allowance that organizations share, and a rejection must undo that.
    pub fn needs_own_transaction(&self) -> Result<bool> {
        let has_allowance = match self.task.scored_suite() {
            Some(suite) => suite.allowance()?.is_some(),
            None => false,
        };
        Ok(matches!(self.input, StoredAs::Upload(_)) || has_allowance)
    }

    /// Returns the submission's eval, with its id: the job itself, or the one that waits for the
    /// output.
    pub(super) fn evaluation(&self) -> Option<(&JobId, &NewEval)> {
        match &self.task {
            NewTask::Eval(eval) => Some((&self.id, eval)),
            NewTask::Predict(prediction) => {
                let (id, eval) = prediction.evaluation.as_ref()?;
                Some((id, eval))
            }
        }
    }

    pub(super) fn is_prediction(&self) -> bool {
        self.task.job_type() == JobType::Predict
    }

    /// Returns the submission's job count.
    pub(super) fn n_jobs(&self) -> i64 {
        1 + i64::from(self.is_prediction() && self.evaluation().is_some())
    }

    /// Returns the eval items that the submission is charged for.
    pub(super) fn eval_items(&self) -> i64 {
        self.evaluation().map_or(0, |(_, eval)| eval.charged_items)
    }

    /// Returns the predict items that the submission is charged for.
    pub(super) fn predict_items(&self) -> i64 {
        if self.is_prediction() {
            self.n_submitted
        } else {
            0
        }
    }

    /// Returns how many bytes this submission adds to those that its organization stores.
    pub(super) fn added_bytes(&self) -> i64 {
        match &self.input {
            StoredAs::Row(bytes) => i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            StoredAs::ObjectToWrite(bytes) => *bytes,
            StoredAs::Object(_) | StoredAs::Upload(_) | StoredAs::SuiteItems => 0,
        }
    }

    pub(super) fn is_object_to_write(&self) -> bool {
        matches!(self.input, StoredAs::ObjectToWrite(_))
    }
}
