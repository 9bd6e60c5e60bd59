//! Submission of predictions: `POST /v1/evals`.

use std::sync::Arc;
use std::time::Instant;

use assay_core::model::job::{Job, charged_items};
use assay_core::model::permissions::{Caller, Submitter, TermsAccepted};
use assay_core::model::suite::SuiteAccess;
use assay_core::model::validation;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{MessagingOperation, Span};
use assay_core::store::submission::{NewJob, ROW_BYTES_MAX, StoredAs, Submitted};
use assay_core::store::suite::SuiteRow;
use assay_core::store::upload::InputRow;
use assay_core::{
    BestEffort as _, Code, Details, Error, JobId, RequestId, Result, Timestamp, UploadId, store,
};
use assay_eval::prediction::{self, Checked};
use assay_eval::{FieldError, Metric};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::http::request_context::{ChildSpans, RequestContext};
use crate::http::traceparent::TraceParent;
use crate::limits::concurrency::ConcurrencyPermit;

/// Maximum size of the body or message of a submission, in bytes.
pub const BODY_MAX: usize = 5 * 1024 * 1024;

/// Maximum length of an idempotency key, in characters.
pub const IDEMPOTENCY_KEY_MAX: usize = 128;

/// Number of seconds after which a client that reached `concurrent_jobs` should retry. Most jobs
/// take seconds, although their time limit is much longer.
const JOBS_FULL_RETRY_AFTER: u32 = 5;

/// Maximum number of bytes of predictions that are checked on an async thread. Larger ones are
/// checked on the blocking thread pool.
const CHECK_INLINE_MAX: usize = 64 * 1024;

/// The fields of a submission, not validated yet.
pub struct Submission {
    /// The id of the suite. Required.
    pub suite_id: String,
    /// A JSON array of predictions.
    pub predictions: Option<Bytes>,
    /// The id of a ready upload, instead of `predictions`.
    pub input_ref: Option<String>,
    /// The caller's label of the job.
    pub label: Option<String>,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
}

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
            received_at,
            trace,
            child_spans,
            address: _,
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

/// Validates a submission, stores its predictions, and queues and charges one job.
///
/// # Errors
/// If the submission is invalid or a limit is reached. Then no job is stored and nothing is
/// charged.
pub async fn submit(
    app: &App,
    submitter: &TermsAccepted<Submitter>,
    submission: Submission,
    origin: Origin,
) -> Result<Accepted> {
    let caller = submitter.proof().caller();
    // The predictions have arrived. A permit before that would be held by slow clients.
    let permit = app
        .submission_bodies
        .acquire(caller.org_id().as_str())
        .await?;
    let ValidSubmission {
        suite,
        input,
        n_items,
        digest,
        label,
        idempotency_key,
    } = validate(app, caller, submission).await?;
    let request_sha256 = digest.map(|digest| request_digest(&suite, &digest, label.as_deref()));
    if suite.access != SuiteAccess::Everyone {
        // A repetition returns its job even if the organization may not submit any more.
        if let Some(repeated) = find_repeated(app, caller, idempotency_key.as_deref()).await? {
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
        if !store::suite::may_submit(
            &app.db.get(),
            caller.org_id(),
            &suite.suite_id,
            suite.access,
        )
        .await?
        {
            return Err(Error::suite_access(suite.access));
        }
    }
    let job_id = JobId::random()?;
    let predictions = match input {
        Input::Inline(predictions) => StoredAs::Row(predictions),
        Input::Upload { id, usable: true } => StoredAs::Upload(id),
        Input::Upload { usable: false, .. } => {
            let repeated = find_repeated(app, caller, idempotency_key.as_deref()).await?;
            let repeated = repeated.ok_or_else(|| Error::from(upload_not_ready()))?;
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
    };
    let span = origin.trace.span_context.child();
    let new = NewJob {
        id: job_id.clone(),
        org_id: caller.org_id().clone(),
        plan: *caller.plan(),
        request_id: origin.request_id.as_str().to_owned(),
        label,
        hfm_sha: app.settings.common.hfm_sha.clone(),
        suite: Arc::clone(&suite),
        predictions,
        n_submitted: n_items,
        charged_items: charged_items(n_items, i64::from(suite.n_items)),
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
    record_quota_decisions(&submitted, &suite);
    match submitted? {
        Submitted::Accepted(row) => {
            metrics::counter!(prometheus::JOBS_SUBMITTED, "type" => row.r#type.as_str())
                .increment(1);
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
                job: row.into_job(&app.settings.public_url),
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
        Submitted::RowNotReadable | Submitted::Recorded => Err(Error::internal(
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
            max,
            resets_at,
            seconds,
        } => Err(Error::day_used_up(&suite.suite_id, max, resets_at, seconds)),
        Submitted::SuiteUsedUp { max } => Err(Error::submissions_used_up(max)),
        Submitted::JobsFull { active, resets_at } => {
            let max = caller.plan().concurrent_jobs;
            let details = Details::Quota {
                limit: "concurrent_jobs",
                max,
                active: Some(active),
                resets_at,
            };
            Err(Error::quota(
                format!("{active} jobs are active; the plan allows {max} at once."),
                details,
                JOBS_FULL_RETRY_AFTER,
            ))
        }
        Submitted::MonthFull { resets_at, seconds } => {
            let max = caller.plan().eval_items_per_month;
            let details = Details::Quota {
                limit: "eval_items_per_month",
                max,
                active: None,
                resets_at,
            };
            Err(Error::quota(
                format!("This submission would exceed the plan's {max} eval items a month."),
                details,
                seconds,
            ))
        }
    }
}

/// Returns the job of an idempotency key, with the digest of its request.
async fn find_repeated(
    app: &App,
    caller: &Caller,
    key: Option<&str>,
) -> Result<Option<(JobId, Vec<u8>)>> {
    match key {
        Some(key) => store::submission::repeated(&app.db.get(), caller.org_id(), key).await,
        None => Ok(None),
    }
}

/// Stores a job and its charge, with small predictions in the database and large ones in the
/// artifact store.
async fn store(
    app: &App,
    caller: &Caller,
    new: NewJob,
    permit: ConcurrencyPermit,
) -> Result<Submitted> {
    let predictions = match &new.predictions {
        StoredAs::Row(predictions) => predictions.clone(),
        StoredAs::ObjectToWrite(_) | StoredAs::Object(_) | StoredAs::Upload(_) => {
            drop(permit);
            return app.submissions.store(new).await;
        }
    };
    if predictions.len() > ROW_BYTES_MAX {
        return store_with_object(app, caller, new, predictions, permit).await;
    }
    drop(permit);
    match app.submissions.store(new.clone()).await? {
        Submitted::RowNotReadable => {
            let permit = app
                .submission_bodies
                .acquire(caller.org_id().as_str())
                .await?;
            store_with_object(app, caller, new, predictions, permit).await
        }
        submitted => Ok(submitted),
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
    new.predictions = StoredAs::ObjectToWrite(bytes);
    match app.submissions.store(new.clone()).await? {
        Submitted::Recorded => {}
        rejected => return Ok(rejected),
    }
    if let Err(error) = app.artifacts.put(&key, predictions).await {
        delete_predictions(app, caller, &job_id, &key).await;
        return Err(error);
    }
    drop(permit);
    new.predictions = StoredAs::Object(key.clone());
    let submitted = app.submissions.store(new).await;
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

/// Counts the decision of each quota in the Prometheus metrics.
fn record_quota_decisions(submitted: &Result<Submitted>, suite: &SuiteRow) {
    let exceeded = match submitted {
        Ok(Submitted::Accepted(_)) => None,
        Ok(Submitted::SuiteUsedUp { .. }) => Some("max_submissions"),
        Ok(Submitted::DayFull { .. }) => Some("submissions_per_day"),
        Ok(Submitted::JobsFull { .. }) => Some("concurrent_jobs"),
        Ok(Submitted::MonthFull { .. }) => Some("eval_items_per_month"),
        Ok(Submitted::StorageFull { .. }) => Some("storage_bytes"),
        Ok(
            Submitted::Repeated { .. }
            | Submitted::UploadGone
            | Submitted::Abandoned
            | Submitted::RowNotReadable
            | Submitted::Recorded,
        )
        | Err(_) => {
            return;
        }
    };
    // The quotas in the order in which they are checked. Those after the exceeded one are not
    // checked.
    let suite_limits = [
        suite.max_submissions.map(|_| "max_submissions"),
        suite.max_submissions_per_day.map(|_| "submissions_per_day"),
    ];
    for limit in suite_limits.into_iter().flatten().chain([
        "concurrent_jobs",
        "eval_items_per_month",
        "storage_bytes",
    ]) {
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
async fn replay(
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
    let row = app.jobs.execute(key).await?;
    let row =
        row.ok_or_else(|| Error::internal("the job of the idempotency key does not exist"))?;
    Ok(Accepted {
        job: row.into_job(&app.settings.public_url),
        replayed: true,
    })
}

/// A validated submission.
struct ValidSubmission {
    suite: Arc<SuiteRow>,
    input: Input,
    n_items: i64,
    /// The digest of the predictions. `None` without an idempotency key.
    digest: Option<[u8; 32]>,
    label: Option<String>,
    idempotency_key: Option<String>,
}

/// The location of the predictions.
enum Input {
    Inline(Bytes),
    /// An upload that was ready once. If it is no longer `usable`, only a repetition of an earlier
    /// submission is accepted.
    Upload {
        id: UploadId,
        usable: bool,
    },
}

fn upload_not_ready() -> FieldError {
    FieldError::new(
        "input_ref",
        "not_found",
        "there is no ready upload with this id",
    )
}

/// Returns the upload with this id, if it was ever ready.
async fn find_upload(
    app: &App,
    caller: &Caller,
    input_ref: &str,
) -> Result<Option<(Input, Counted)>> {
    let Ok(id) = input_ref.parse() else {
        return Ok(None);
    };
    let Some(InputRow {
        n_items,
        digest,
        usable,
    }) = store::upload::input(&app.db.get(), caller.org_id(), &id).await?
    else {
        return Ok(None);
    };
    let digest = digest
        .try_into()
        .map_err(|_| Error::internal("the stored digest of the upload is malformed"))?;
    let counted = Counted {
        n_items,
        digest: Some(digest),
    };
    Ok(Some((Input::Upload { id, usable }, counted)))
}

/// Validates all fields of a submission.
///
/// # Errors
/// All field errors at once.
async fn validate(app: &App, caller: &Caller, submission: Submission) -> Result<ValidSubmission> {
    let Submission {
        suite_id,
        predictions,
        input_ref,
        label,
        idempotency_key,
    } = submission;
    let mut errors = Vec::new();
    let suite = match suite_id.parse() {
        _ if suite_id.is_empty() => None,
        Ok(suite_id) => app.suites.execute(suite_id).await?,
        Err(_) => None,
    };
    match &suite {
        // A suite with a ladder that was published before ladders had a grid cannot be scored.
        Some(suite) if suite.release.starts_with("ladder") && suite.ladder().is_none() => errors
            .push(FieldError::new(
            "suite_id",
            "not_available",
            "this version of the suite has a ladder without a grid; the operator must publish a \
             new version",
        )),
        Some(_) => {}
        None if suite_id.is_empty() => errors.push(FieldError::required("suite_id")),
        None => errors.push(FieldError::new(
            "suite_id",
            "not_found",
            "there is no such suite; GET /v1/suites lists them",
        )),
    }
    if predictions.is_some() == input_ref.is_some() {
        errors.push(FieldError::new(
            "predictions",
            "exactly_one_of",
            "give exactly one of predictions and input_ref",
        ));
    }
    let label = validation::ok_or_collect(
        &mut errors,
        label
            .map(|label| validation::text("label", &label))
            .transpose(),
    );
    errors.extend(idempotency_key.as_deref().and_then(idempotency_key_error));
    let input = match (&suite, predictions, input_ref) {
        (_, None, Some(input_ref)) => {
            let found = find_upload(app, caller, &input_ref).await?;
            if found.is_none() {
                errors.push(upload_not_ready());
            }
            found
        }
        (Some(suite), Some(predictions), None) => {
            let needs_digest = idempotency_key.is_some();
            match check(&suite.metric, predictions.clone(), needs_digest).await {
                Ok(counted) => Some((Input::Inline(predictions), counted)),
                Err(Error {
                    details: Some(Details::Fields { fields }),
                    ..
                }) => {
                    errors.extend(fields);
                    None
                }
                Err(error) => return Err(error),
            }
        }
        (_, Some(predictions), _) => {
            ensure_json(predictions).await?;
            None
        }
        _ => None,
    };
    match (suite, input) {
        (Some(suite), Some((input, Counted { n_items, digest }))) if errors.is_empty() => {
            Ok(ValidSubmission {
                suite,
                input,
                n_items,
                digest,
                label,
                idempotency_key,
            })
        }
        _ => Err(Error::fields(errors)),
    }
}

/// Returns the error in an idempotency key, if there is one.
pub fn idempotency_key_error(key: &str) -> Option<FieldError> {
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

/// The number of valid predictions, and their digest if it is needed.
struct Counted {
    n_items: i64,
    digest: Option<[u8; 32]>,
}

/// Checks predictions.
async fn check(metric: &str, predictions: Bytes, needs_digest: bool) -> Result<Counted> {
    let metric = Metric::published(metric)?;
    let checked = with_bytes(predictions, move |predictions| {
        if needs_digest {
            prediction::check(predictions, &metric).map(|Checked { n_items, digest }| Counted {
                n_items,
                digest: Some(digest),
            })
        } else {
            prediction::check_and_count(predictions, &metric).map(|n_items| Counted {
                n_items,
                digest: None,
            })
        }
    });
    Ok(checked.await??)
}

/// Returns an error if predictions that are not checked are not JSON.
async fn ensure_json(predictions: Bytes) -> Result<()> {
    let parsed = with_bytes(predictions, |predictions| {
        serde_json::from_slice::<serde::de::IgnoredAny>(predictions)
    });
    let malformed = |error| {
        Error::new(
            Code::InvalidRequest,
            format!("The predictions are not JSON: {error}"),
        )
    };
    parsed.await?.map_err(malformed)?;
    Ok(())
}

/// Executes a function, on the blocking thread pool if there are many bytes.
async fn with_bytes<T: Send + 'static>(
    bytes: Bytes,
    read: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> Result<T> {
    if bytes.len() <= CHECK_INLINE_MAX {
        return Ok(read(&bytes));
    }
    let done = tokio::task::spawn_blocking(move || read(&bytes)).await;
    done.map_err(Error::internal)
}

/// Returns the digest of a submission's content, which an idempotency key stands for. It does not
/// depend on the protocol, the formatting of the JSON, or whether the predictions were uploaded.
fn request_digest(suite: &SuiteRow, predictions: &[u8; 32], label: Option<&str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((suite.suite_id.as_str().len() as u64).to_le_bytes());
    hash.update(suite.suite_id.as_str());
    hash.update(predictions);
    hash.update([u8::from(label.is_some())]);
    hash.update(label.unwrap_or_default());
    hash.finalize().into()
}
