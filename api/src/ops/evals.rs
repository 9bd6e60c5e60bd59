//! Submission of predictions: `POST /v1/evals`.

use std::time::Instant;

use assay_core::model::job::{Job, charged_items};
use assay_core::model::permissions::{Caller, Submitter, TermsAccepted};
use assay_core::model::suite::SuiteAccess;
use assay_core::model::validation;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{MessagingOperation, Span};
use assay_core::store::submission::{NewJob, Submitted};
use assay_core::store::suite::SuiteRow;
use assay_core::store::upload::InputRow;
use assay_core::{
    BestEffort as _, Details, Error, JobId, RequestId, Result, Timestamp, UploadId, store,
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
        checked,
        label,
        idempotency_key,
    } = validate(app, caller, submission).await?;
    let request_sha256 = request_digest(&suite, &checked, label.as_deref());
    if let Some(key) = &idempotency_key
        && let Some((job_id, before)) =
            store::submission::repeated(&app.db, caller.org_id(), key).await?
    {
        return replay(app, caller, &job_id, before == request_sha256).await;
    }

    if suite.access != SuiteAccess::Everyone
        && !store::suite::may_submit(&app.db, caller.org_id(), &suite.suite_id, suite.access)
            .await?
    {
        return Err(Error::suite_access(suite.access));
    }
    let job_id = JobId::random()?;
    let (predictions, upload_id) = match input {
        Input::Inline(predictions) => (
            Some((
                Artifacts::predictions_key(caller.org_id(), &job_id),
                predictions,
            )),
            None,
        ),
        Input::Upload { id, usable: true } => (None, Some(id)),
        Input::Upload { usable: false, .. } => return Err(upload_not_ready().into()),
    };
    let stored_as = origin.trace.span_context.child();
    let new = NewJob {
        id: &job_id,
        request_id: origin.request_id.as_str(),
        label: label.as_deref(),
        hfm_sha: &app.settings.common.hfm_sha,
        suite_id: &suite.suite_id,
        suite_version: &suite.version,
        input_key: predictions.as_ref().map(|(key, _)| key.as_str()),
        upload_id: upload_id.as_ref(),
        n_submitted: checked.n_items,
        charged_items: charged_items(checked.n_items, i64::from(suite.n_items)),
        allowance: suite.allowance()?,
        idempotency_key: idempotency_key.as_deref(),
        request_sha256: &request_sha256,
        elapsed_us: i64::try_from(origin.received_at.elapsed().as_micros()).unwrap_or(i64::MAX),
        stored_as,
        is_exported: app.spans.is_sampled(stored_as.trace_id),
        client_span: origin.trace.parent,
    };
    let send_started_at = Timestamp::now();
    let submitted = match &predictions {
        Some((key, predictions)) => {
            store_with_predictions(app, caller, &new, key, predictions.clone(), permit).await
        }
        None => {
            drop(permit);
            store(app, caller, &new).await
        }
    };
    record_quota_decisions(&submitted, &suite);
    match submitted? {
        Submitted::Accepted(row) => {
            metrics::counter!(prometheus::JOBS_SUBMITTED, "type" => row.r#type.as_str())
                .increment(1);
            let parent = Some(origin.trace.span_context.span_id);
            if new.is_exported {
                origin.child_spans.push(Span::for_job(
                    MessagingOperation::Send,
                    stored_as,
                    parent,
                    &job_id,
                    send_started_at,
                    Timestamp::now(),
                ));
            }
            app.submitted.notify_one();
            Ok(Accepted {
                job: row.into_job(&app.settings.public_url),
                replayed: false,
            })
        }
        Submitted::Repeated {
            job_id,
            request_sha256: before,
        } => replay(app, caller, &job_id, before == request_sha256).await,
        Submitted::UploadGone => Err(upload_not_ready().into()),
        Submitted::Abandoned => Err(Error::unavailable(
            "cleanup abandoned the submission before it was stored",
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

/// Records the predictions, writes them to the artifact store, and stores the job. If the process
/// dies in between, cleanup finds the record and removes the predictions.
async fn store_with_predictions(
    app: &App,
    caller: &Caller,
    new: &NewJob<'_>,
    key: &str,
    predictions: Bytes,
    permit: ConcurrencyPermit,
) -> Result<Submitted> {
    if let Some(rejected) = reserve(app, caller, new, predictions.len()).await? {
        return Ok(rejected);
    }
    if let Err(error) = app.artifacts.put(key, predictions).await {
        delete_predictions(app, caller, new.id, key).await;
        return Err(error);
    }
    drop(permit);
    let submitted = store(app, caller, new).await;
    // After an error, the job may have been stored, so its predictions stay. Cleanup decides later.
    if !matches!(submitted, Ok(Submitted::Accepted(_)) | Err(_)) {
        delete_predictions(app, caller, new.id, key).await;
    }
    submitted
}

/// Removes the predictions of a rejected submission, and then their record. Best effort: cleanup
/// removes them later.
async fn delete_predictions(app: &App, caller: &Caller, job_id: &JobId, key: &str) {
    match app.artifacts.delete(key).await {
        Ok(()) => store::storage::delete_unaccepted(&app.db, caller.org_id(), job_id)
            .await
            .best_effort("deleting the record of rejected predictions"),
        failed => failed.best_effort("removing the predictions of a rejected submission"),
    }
}

/// Checks the limits, and records the predictions before they are written. Returns the rejection,
/// if there is one.
async fn reserve(
    app: &App,
    caller: &Caller,
    new: &NewJob<'_>,
    bytes: usize,
) -> Result<Option<Submitted>> {
    let _permit = app.job_inserts.acquire(caller.org_id().as_str()).await?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut transaction = app.db.begin().await?;
    let Some(rejected) =
        store::submission::reserve(&mut transaction, caller.org_id(), caller.plan(), new, bytes)
            .await?
    else {
        transaction.commit().await?;
        return Ok(None);
    };
    transaction.rollback().await?;
    // A concurrent request with the same key may have used up the limit. Then this one is a
    // repetition.
    if let Some(key) = new.idempotency_key
        && let Some((job_id, request_sha256)) =
            store::submission::repeated(&app.db, caller.org_id(), key).await?
    {
        return Ok(Some(Submitted::Repeated {
            job_id,
            request_sha256,
        }));
    }
    Ok(Some(rejected))
}

/// Stores the job and its charge in one transaction.
async fn store(app: &App, caller: &Caller, new: &NewJob<'_>) -> Result<Submitted> {
    let _permit = app.job_inserts.acquire(caller.org_id().as_str()).await?;
    // Without a timeout, submissions on dead database connections would hold the permits of the
    // organization until their requests end.
    store::within_response_timeout(async {
        let mut transaction = app.db.begin().await?;
        let submitted =
            store::submission::submit(&mut transaction, caller.org_id(), caller.plan(), new)
                .await?;
        match submitted {
            Submitted::Accepted(_) => transaction.commit().await?,
            _ => transaction.rollback().await?,
        }
        Ok(submitted)
    })
    .await
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
        Ok(Submitted::Repeated { .. } | Submitted::UploadGone | Submitted::Abandoned) | Err(_) => {
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
async fn replay(app: &App, caller: &Caller, job_id: &JobId, is_same: bool) -> Result<Accepted> {
    if !is_same {
        let error = FieldError::new(
            "Idempotency-Key",
            "conflict",
            "was used for a different submission; use a new key",
        );
        let details = Details::Replay {
            fields: vec![error.clone()],
            job_id: job_id.clone(),
        };
        return Err(Error::fields(vec![error]).with_details(details));
    }
    let row = store::job::find(&app.db, caller.org_id(), job_id).await?;
    let row =
        row.ok_or_else(|| Error::internal("the job of the idempotency key does not exist"))?;
    Ok(Accepted {
        job: row.into_job(&app.settings.public_url),
        replayed: true,
    })
}

/// A validated submission.
struct ValidSubmission {
    suite: SuiteRow,
    input: Input,
    checked: Checked,
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
) -> Result<Option<(Input, Checked)>> {
    let Ok(id) = input_ref.parse() else {
        return Ok(None);
    };
    let Some(InputRow {
        n_items,
        digest,
        usable,
    }) = store::upload::input(&app.db, caller.org_id(), &id).await?
    else {
        return Ok(None);
    };
    let digest = digest
        .try_into()
        .map_err(|_| Error::internal("the stored digest of the upload is malformed"))?;
    Ok(Some((
        Input::Upload { id, usable },
        Checked { n_items, digest },
    )))
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
        Ok(suite_id) => store::suite::find(&app.db, &suite_id, None).await?,
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
    errors.extend(idempotency_key.as_deref().and_then(key_error));
    let input = match (&suite, predictions, input_ref) {
        (_, None, Some(input_ref)) => {
            let found = find_upload(app, caller, &input_ref).await?;
            if found.is_none() {
                errors.push(upload_not_ready());
            }
            found
        }
        (Some(suite), Some(predictions), None) => {
            match check(&suite.metric, predictions.clone()).await {
                Ok(checked) => Some((Input::Inline(predictions), checked)),
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
        _ => None,
    };
    match (suite, input) {
        (Some(suite), Some((input, checked))) if errors.is_empty() => Ok(ValidSubmission {
            suite,
            input,
            checked,
            label,
            idempotency_key,
        }),
        _ => Err(Error::fields(errors)),
    }
}

/// Returns the error in an idempotency key, if there is one.
fn key_error(key: &str) -> Option<FieldError> {
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

/// Checks predictions, on the blocking thread pool if they are large.
async fn check(metric: &str, predictions: Bytes) -> Result<Checked> {
    let metric = Metric::published(metric)?;
    if predictions.len() <= CHECK_INLINE_MAX {
        return Ok(prediction::check(&predictions, &metric)?);
    }
    let checked =
        tokio::task::spawn_blocking(move || prediction::check(&predictions, &metric)).await;
    Ok(checked.map_err(Error::internal)??)
}

/// Returns the digest of a submission's content, which an idempotency key stands for. It does not
/// depend on the protocol, the formatting of the JSON, or whether the predictions were uploaded.
fn request_digest(suite: &SuiteRow, checked: &Checked, label: Option<&str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((suite.suite_id.as_str().len() as u64).to_le_bytes());
    hash.update(suite.suite_id.as_str());
    hash.update(checked.digest);
    hash.update([u8::from(label.is_some())]);
    hash.update(label.unwrap_or_default());
    hash.finalize().into()
}
