//! Submission of jobs: the steps that evals and prediction jobs share after their validation. The
//! input is stored, and the job is stored and charged, with the job that depends on it.

use std::time::Instant;

use assay_core::model::job::{Job, JobType};
use assay_core::model::metadata::Metadata;
use assay_core::model::permissions::Caller;
use assay_core::model::serving::Unit;
use assay_core::model::upload::UploadKind;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{MessagingOperation, Span};
use assay_core::store::new_job::{NewJob, NewTask, ROW_BYTES_MAX, StoredAs};
use assay_core::store::submission::Submitted;
use assay_core::store::upload::InputRow;
use assay_core::{
    BestEffort as _, Code, Details, Error, JobId, RequestId, Result, Timestamp, UploadId, store,
};
use assay_eval::FieldError;
use bytes::Bytes;

use crate::app::App;
use crate::http::request_context::{ChildSpans, RequestContext};
use crate::http::traceparent::TraceParent;
use crate::limits::concurrency::ConcurrencyPermit;
use crate::ops::jobs;

/// Maximum length of an idempotency key, in characters.
pub const IDEMPOTENCY_KEY_MAX: usize = 128;

/// Number of seconds after which a client that reached `concurrent_jobs` should retry. Most jobs
/// take seconds, although their time limit is much longer.
const JOBS_FULL_RETRY_AFTER: u32 = 5;

/// Maximum number of bytes of predictions that are checked on an async thread. Larger ones are
/// checked on the blocking thread pool.
const CHECK_INLINE_MAX: usize = 64 * 1024;

/// The request that carries a submission.
pub struct Origin {
    /// The id of the request.
    pub request_id: RequestId,
    /// The time at which the headers had arrived.
    pub received_at: Instant,
    /// The trace of the request.
    pub trace: TraceParent,
    /// The child spans of the request so far.
    pub child_spans: ChildSpans,
}

impl Origin {
    /// Returns the origin of a request.
    pub fn from_context(context: RequestContext) -> Self {
        let RequestContext {
            request_id,
            protocol: _,
            received_at,
            trace,
            child_spans,
            address: _,
            theme: _,
            user_agent: _,
        } = context;
        Self {
            request_id,
            received_at,
            trace: trace.context(),
            child_spans,
        }
    }
}

/// The job of an accepted submission.
pub struct Accepted {
    /// The job, new or original.
    pub job: Job,
    /// `true` if an earlier request with the same idempotency key created the job.
    pub replayed: bool,
}

/// A job that has been validated.
pub(super) struct ValidJob {
    /// The work of the job.
    pub(super) task: NewTask,
    /// The input. Inline input is a row here, whatever its size.
    pub(super) input: StoredAs,
    /// Number of predictions or sequences.
    pub(super) n_submitted: i64,
    pub(super) label: Option<String>,
    pub(super) metadata: Option<Metadata>,
    pub(super) idempotency_key: Option<String>,
    /// The digest of the request, for the idempotency key.
    pub(super) request_sha256: Option<[u8; 32]>,
}

/// Stores the input of a job, and queues and charges the job.
///
/// # Errors
/// If a limit is reached. Then no job is stored and nothing is charged.
pub(super) async fn store_job(
    app: &App,
    caller: &Caller,
    job: ValidJob,
    origin: Origin,
    permit: ConcurrencyPermit,
) -> Result<Accepted> {
    let span = origin.trace.span_context.child();
    let limits = limits_of(&job.task);
    let has_evaluation =
        job.task.job_type() == JobType::Predict && job.task.scored_suite().is_some();
    let ValidJob {
        task,
        input,
        n_submitted,
        label,
        metadata,
        idempotency_key,
        request_sha256,
    } = job;
    let job_id = JobId::random()?;
    let weight = caller.plan().queue_weight;
    let estimate = app
        .jobs
        .queue
        .for_new_job(caller.org_id(), weight, task.cost());
    let new = NewJob {
        id: job_id.clone(),
        org_id: caller.org_id().clone(),
        plan: *caller.plan(),
        request_id: origin.request_id.as_str().to_owned(),
        label,
        metadata,
        hfm_sha: app.settings.common.hfm_sha.clone(),
        task,
        input,
        n_submitted,
        estimate,
        idempotency_key,
        request_sha256,
        elapsed_us: i64::try_from(origin.received_at.elapsed().as_micros()).unwrap_or(i64::MAX),
        span,
        is_exported: app.spans.is_sampled(span.trace_id),
        client_span: origin.trace.parent,
    };
    let is_exported = new.is_exported;
    let send_started_at = Timestamp::now();
    let submitted = store(app, caller, new, permit).await;
    record_quota_decisions(&submitted, &limits);
    match submitted? {
        Submitted::Accepted(row) => {
            let types = [Some(row.r#type), has_evaluation.then_some(JobType::Eval)];
            for r#type in types.into_iter().flatten() {
                metrics::counter!(prometheus::JOBS_SUBMITTED, "type" => r#type.as_str())
                    .increment(1);
            }
            let parent = Some(origin.trace.span_context.span_id);
            if is_exported {
                origin.child_spans.push(Span::for_job(
                    MessagingOperation::Send,
                    span,
                    parent,
                    &job_id,
                    send_started_at,
                    Timestamp::now(),
                ));
            }
            Ok(Accepted {
                job: jobs::represent(app, caller, *row),
                replayed: false,
            })
        }
        Submitted::Repeated {
            job_id,
            request_sha256: before,
        } => replay(app, caller, (job_id, before), request_sha256.as_ref()).await,
        Submitted::UploadGone => Err(upload_not_ready().into()),
        Submitted::Abandoned => Err(Error::unavailable(
            "cleanup abandoned the submission before it was stored",
        )),
        Submitted::Recorded => Err(Error::internal(
            "predictions in the artifact store were stored as others",
        )),
        Submitted::StorageFull {
            used,
            resets_at,
            seconds,
        } => Err(Error::storage_full(
            used,
            caller.plan().storage_bytes,
            resets_at,
            seconds,
        )),
        Submitted::DayFull {
            suite_id,
            max,
            resets_at,
            seconds,
        } => Err(Error::day_used_up(&suite_id, max, resets_at, seconds)),
        Submitted::SuiteUsedUp { max } => Err(Error::submissions_used_up(max)),
        Submitted::JobsFull { active, resets_at } => {
            let max = caller.plan().concurrent_jobs;
            Err(jobs_full(active, max, resets_at, has_evaluation))
        }
        Submitted::MonthFull {
            limit,
            max,
            resets_at,
            seconds,
        } => Err(month_full(limit, max, resets_at, seconds)),
    }
}

/// Returns the error for too many active jobs.
fn jobs_full(active: i64, max: i64, resets_at: Timestamp, has_evaluation: bool) -> Error {
    let details = Details::Quota {
        limit: "concurrent_jobs",
        max,
        active: Some(active),
        resets_at,
    };
    let message = match has_evaluation {
        false => format!("{active} jobs are active; the plan allows {max} at once."),
        true => format!(
            "{active} jobs are active; the plan allows {max} at once, and a prediction \
             job with an eval needs two."
        ),
    };
    Error::quota(message, details, JOBS_FULL_RETRY_AFTER)
}

/// Returns the error for a month without enough units.
fn month_full(limit: &'static str, max: i64, resets_at: Timestamp, seconds: u32) -> Error {
    let details = Details::Quota {
        limit,
        max,
        active: None,
        resets_at,
    };
    let units = limit.trim_end_matches("_per_month").replace('_', " ");
    let message = format!("This submission would exceed the plan's {max} {units} a month.");
    Error::quota(message, details, seconds)
}

/// Returns the job of an idempotency key, with the digest of its request.
pub(super) async fn find_repeated(
    app: &App,
    caller: &Caller,
    key: Option<&str>,
) -> Result<Option<(JobId, Vec<u8>)>> {
    match key {
        Some(key) => store::submission::repeated(&app.db.get(), caller.org_id(), key).await,
        None => Ok(None),
    }
}

/// Stores a job and its charge, with small inline input in the database and large one in the artifact
/// store.
async fn store(
    app: &App,
    caller: &Caller,
    new: NewJob,
    permit: ConcurrencyPermit,
) -> Result<Submitted> {
    match &new.input {
        StoredAs::Row(predictions) if predictions.len() > ROW_BYTES_MAX => {
            let predictions = predictions.clone();
            store_with_object(app, caller, new, predictions, permit).await
        }
        StoredAs::Row(_)
        | StoredAs::ObjectToWrite(_)
        | StoredAs::Object(_)
        | StoredAs::Upload(_)
        | StoredAs::SuiteItems => {
            drop(permit);
            app.jobs.submissions.execute(new).await
        }
    }
}

/// Records the predictions, writes them to the artifact store, and stores the job. If the process
/// dies in between, cleanup finds the record and removes the predictions.
async fn store_with_object(
    app: &App,
    caller: &Caller,
    mut new: NewJob,
    predictions: Bytes,
    permit: ConcurrencyPermit,
) -> Result<Submitted> {
    let job_id = new.id.clone();
    let key = Artifacts::predictions_key(caller.org_id(), &job_id);
    let bytes = i64::try_from(predictions.len()).unwrap_or(i64::MAX);
    new.input = StoredAs::ObjectToWrite(bytes);
    match app.jobs.submissions.execute(new.clone()).await? {
        Submitted::Recorded => {}
        rejected => return Ok(rejected),
    }
    if let Err(error) = app.artifacts.put(&key, predictions).await {
        delete_predictions(app, caller, &job_id, &key).await;
        return Err(error);
    }
    drop(permit);
    new.input = StoredAs::Object(key.clone());
    let submitted = app.jobs.submissions.execute(new).await;
    // After an error, the job may have been stored, so its predictions stay. Cleanup decides later.
    if !matches!(submitted, Ok(Submitted::Accepted(_)) | Err(_)) {
        delete_predictions(app, caller, &job_id, &key).await;
    }
    submitted
}

/// Removes the predictions of a rejected submission, and then their record. Best effort: cleanup
/// removes them later.
async fn delete_predictions(app: &App, caller: &Caller, job_id: &JobId, key: &str) {
    match app.artifacts.delete(key).await {
        Ok(()) => store::storage::delete_unaccepted(&app.db.get(), caller.org_id(), job_id)
            .await
            .best_effort("deleting the record of rejected predictions"),
        failed => failed.best_effort("removing the predictions of a rejected submission"),
    }
}

/// Returns the limits of a job, in the order in which they are checked.
fn limits_of(task: &NewTask) -> Vec<&'static str> {
    let suite = task.scored_suite();
    let is_prediction = task.job_type() == JobType::Predict;
    let suite_limits = suite.map(|suite| {
        [
            suite.max_submissions.map(|_| "max_submissions"),
            suite.max_submissions_per_day.map(|_| "submissions_per_day"),
        ]
    });
    let mut limits: Vec<_> = suite_limits.into_iter().flatten().flatten().collect();
    limits.push("concurrent_jobs");
    limits.extend(suite.map(|_| "eval_items_per_month"));
    limits.extend(is_prediction.then(|| Unit::PredictItems.limit()));
    limits.push("storage_bytes");
    limits
}

/// Counts the decision of each of the limits in the Prometheus metrics.
fn record_quota_decisions(submitted: &Result<Submitted>, limits: &[&'static str]) {
    let exceeded = match submitted {
        Ok(Submitted::Accepted(_)) => None,
        Ok(Submitted::SuiteUsedUp { .. }) => Some("max_submissions"),
        Ok(Submitted::DayFull { .. }) => Some("submissions_per_day"),
        Ok(Submitted::JobsFull { .. }) => Some("concurrent_jobs"),
        Ok(Submitted::MonthFull { limit, .. }) => Some(*limit),
        Ok(Submitted::StorageFull { .. }) => Some("storage_bytes"),
        Ok(
            Submitted::Repeated { .. }
            | Submitted::UploadGone
            | Submitted::Abandoned
            | Submitted::Recorded,
        )
        | Err(_) => {
            return;
        }
    };
    // The limits after the exceeded one are not checked.
    for limit in limits.iter().copied() {
        let decision = if exceeded == Some(limit) {
            "refused"
        } else {
            "admitted"
        };
        metrics::counter!(prometheus::QUOTA_DECISIONS, "limit" => limit, "decision" => decision)
            .increment(1);
        if exceeded == Some(limit) {
            return;
        }
    }
}

/// Returns the original job of an idempotency key, or an error if the submissions differ.
pub(super) async fn replay(
    app: &App,
    caller: &Caller,
    (job_id, before): (JobId, Vec<u8>),
    request_sha256: Option<&[u8; 32]>,
) -> Result<Accepted> {
    if request_sha256.is_none_or(|request_sha256| before != request_sha256) {
        let error = FieldError::new(
            "Idempotency-Key",
            "conflict",
            "was used for a different submission; use a new key",
        );
        let details = Details::Replay {
            fields: vec![error.clone()],
            job_id,
        };
        return Err(Error::fields(vec![error]).with_details(details));
    }
    let key = (caller.org_id().clone(), job_id);
    let row = app.lookups.jobs.execute(key).await?;
    let row =
        row.ok_or_else(|| Error::internal("the job of the idempotency key does not exist"))?;
    Ok(Accepted {
        job: jobs::represent(app, caller, row),
        replayed: true,
    })
}

/// Returns the field error of an `input_ref` that cannot be submitted.
pub(super) fn upload_not_ready() -> FieldError {
    FieldError::new(
        "input_ref",
        "not_found",
        "there is no ready upload with this id",
    )
}

/// An upload that was ready once. If it is no longer `usable`, only a repetition of an earlier
/// submission is accepted.
pub(super) struct FoundUpload {
    pub(super) id: UploadId,
    pub(super) usable: bool,
    pub(super) n_items: i64,
    pub(super) digest: [u8; 32],
}

/// Returns the upload with this id, or the field error if it was never ready or has another kind.
pub(super) async fn find_upload(
    app: &App,
    caller: &Caller,
    input_ref: &str,
    kind: UploadKind,
) -> Result<Result<FoundUpload, FieldError>> {
    let Ok(id) = input_ref.parse() else {
        return Ok(Err(upload_not_ready()));
    };
    let Some(InputRow {
        kind: found,
        n_items,
        digest,
        usable,
    }) = store::upload::input(&app.db.get(), caller.org_id(), &id).await?
    else {
        return Ok(Err(upload_not_ready()));
    };
    if found != kind {
        let message = format!("must be an upload of the kind {kind}; this one has {found}");
        return Ok(Err(FieldError::new("input_ref", "kind", message)));
    }
    let digest = digest
        .try_into()
        .map_err(|_| Error::internal("the stored digest of the upload is malformed"))?;
    Ok(Ok(FoundUpload {
        id,
        usable,
        n_items,
        digest,
    }))
}

/// Returns the error in an idempotency key, if there is one.
pub(super) fn idempotency_key_error(key: &str) -> Option<FieldError> {
    let error = |reason, message: String| Some(FieldError::new("Idempotency-Key", reason, message));
    match key.chars().count() {
        0 => error("range", "must not be empty".into()),
        n if n > IDEMPOTENCY_KEY_MAX => error(
            "range",
            format!("must not be longer than {IDEMPOTENCY_KEY_MAX} characters"),
        ),
        _ if key.chars().any(char::is_control) => {
            error("format", "must not contain control characters".into())
        }
        _ => None,
    }
}

/// Returns an error if the value of a field is not JSON, although it is not checked further.
pub(super) async fn ensure_json(field: &str, value: Bytes) -> Result<()> {
    let parsed = with_bytes(value, |value| {
        serde_json::from_slice::<serde::de::IgnoredAny>(value)
    });
    let malformed = |error| {
        Error::new(
            Code::InvalidRequest,
            format!("The {field} are not JSON: {error}"),
        )
    };
    parsed.await?.map_err(malformed)?;
    Ok(())
}

/// Executes a function, on the blocking thread pool if there are many bytes.
pub(super) async fn with_bytes<T: Send + 'static>(
    bytes: Bytes,
    read: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> Result<T> {
    if bytes.len() <= CHECK_INLINE_MAX {
        return Ok(read(&bytes));
    }
    let done = tokio::task::spawn_blocking(move || read(&bytes)).await;
    done.map_err(Error::internal)
}
