//! `POST /v1/evals`

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
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;
use crate::http::request_context::{ChildSpans, RequestContext};
use crate::http::traceparent::TraceParent;
use crate::limits::concurrency::ConcurrencyPermit;

/// Largest body of a submission on either protocol, in bytes.
pub const BODY_MAX: usize = 5 * 1024 * 1024;

/// Longest idempotency key, in characters.
const KEY_MAX: usize = 128;

/// What clients that met `concurrent_jobs` should wait: a job takes moments, not the hour that it might.
const JOBS_FULL_RETRY: u32 = 5;

/// An idempotency key, as it is described to clients.
pub struct KeySchema;

impl PartialSchema for KeySchema {
    fn schema() -> RefOr<Schema> {
        assay_core::model::openapi_schema::text(
            "1 to 128 visible ASCII characters; spaces within.",
            "^[!-~]([ -~]{0,126}[!-~])?$",
            KEY_MAX,
            "my-first",
        )
    }
}

impl ToSchema for KeySchema {}

/// Above this many bytes predictions are checked on a thread where waiting harms nobody.
const CHECK_INLINE_MAX: usize = 64 * 1024;

/// A submission as it came, from either protocol.
pub struct Submission {
    /// The suite.
    pub suite_id: String,
    /// A JSON array of predictions.
    pub predictions: Option<Bytes>,
    /// A reference to an upload.
    pub input_ref: Option<String>,
    /// The caller's name for the job.
    pub label: Option<String>,
    /// The caller's key.
    pub idempotency_key: Option<String>,
}

/// The request that carries a submission.
pub struct Origin {
    /// Its id.
    pub request_id: RequestId,
    /// When it began.
    pub began: Instant,
    /// The trace that it belongs to.
    pub trace: TraceParent,
    /// What was done for it so far.
    pub child_spans: ChildSpans,
}

impl Origin {
    /// That of a call.
    pub fn of(call: RequestContext) -> Self {
        let RequestContext {
            request_id,
            began,
            trace,
            child_spans,
            address: _,
            user_agent: _,
        } = call;
        Self {
            request_id,
            began,
            trace: trace.context(),
            child_spans,
        }
    }
}

/// A job that was accepted, now or before.
pub struct Accepted {
    /// The job.
    pub job: Job,
    /// Whether an earlier request with the same idempotency key made it.
    pub replayed: bool,
}

/// Accepts predictions for a suite: queues one job, charged once, or does nothing and says why.
pub async fn submit(
    app: &App,
    submitter: &TermsAccepted<Submitter>,
    submission: Submission,
    origin: Origin,
) -> Result<Accepted> {
    let caller = submitter.who().caller();
    // The predictions have arrived: the work begins here.
    let turn = app
        .submission_bodies
        .acquire(caller.org_id().as_str())
        .await?;
    let Valid {
        suite,
        input,
        checked,
        label,
        idempotency_key,
    } = validate(app, caller, submission).await?;
    let request_sha256 = digest(&suite, &checked, label.as_deref());
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
        Input::Upload { usable: false, .. } => return Err(no_upload().into()),
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
        elapsed_us: i64::try_from(origin.began.elapsed().as_micros()).unwrap_or(i64::MAX),
        stored_as,
        is_exported: app.spans.is_sampled(stored_as.trace_id),
        client_span: origin.trace.parent,
    };
    let began = Timestamp::now();
    let submitted = match &predictions {
        Some((key, predictions)) => {
            store_with_predictions(app, caller, &new, key, predictions.clone(), turn).await
        }
        None => {
            drop(turn);
            store(app, caller, &new).await
        }
    };
    count(&submitted, &suite);
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
                    began,
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
        Submitted::UploadGone => Err(no_upload().into()),
        Submitted::Abandoned => Err(Error::unavailable(
            "cleanup gave the submission up before it was stored",
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
                JOBS_FULL_RETRY,
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

/// Records the predictions, writes them to the artifact store, and stores the job. What a process that dies in between leaves is
/// found by cleanup.
async fn store_with_predictions(
    app: &App,
    caller: &Caller,
    new: &NewJob<'_>,
    key: &str,
    predictions: Bytes,
    turn: ConcurrencyPermit,
) -> Result<Submitted> {
    if let Some(rejected) = reserve(app, caller, new, predictions.len()).await? {
        return Ok(rejected);
    }
    if let Err(error) = app.artifacts.put(key, predictions).await {
        discard(app, caller, new.id, key).await;
        return Err(error);
    }
    drop(turn);
    let submitted = store(app, caller, new).await;
    // After an error it is not known whether the job was stored; then its predictions stay, and cleanup finds out.
    if !matches!(submitted, Ok(Submitted::Accepted(_)) | Err(_)) {
        discard(app, caller, new.id, key).await;
    }
    submitted
}

/// Removes the predictions of a submission that did not become a job, and then their record. Best effort: cleanup does it later.
async fn discard(app: &App, caller: &Caller, job_id: &JobId, key: &str) {
    match app.artifacts.delete(key).await {
        Ok(()) => store::storage::forget(&app.db, caller.org_id(), job_id)
            .await
            .best_effort("deleting the record of rejected predictions"),
        failed => failed.best_effort("removing the predictions of a rejected submission"),
    }
}

/// Checks the limits, and records the predictions that are to be written.
async fn reserve(
    app: &App,
    caller: &Caller,
    new: &NewJob<'_>,
    bytes: usize,
) -> Result<Option<Submitted>> {
    let _turn = app.job_inserts.acquire(caller.org_id().as_str()).await?;
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
    // The request with the same key that was in progress may be what reached the limit.
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

/// One transaction: everything of the submission, or nothing.
async fn store(app: &App, caller: &Caller, new: &NewJob<'_>) -> Result<Submitted> {
    let _turn = app.job_inserts.acquire(caller.org_id().as_str()).await?;
    // Without a timeout, submissions on dead connections would hold the organization's turns until their requests end.
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

/// What was held against quotas, and how that went.
fn count(submitted: &Result<Submitted>, suite: &SuiteRow) {
    let refused_by = match submitted {
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
    // In the order in which they are held against; what stands behind the one that refuses is not asked.
    let of_suite = [
        suite.max_submissions.map(|_| "max_submissions"),
        suite.max_submissions_per_day.map(|_| "submissions_per_day"),
    ];
    for limit in of_suite.into_iter().flatten().chain([
        "concurrent_jobs",
        "eval_items_per_month",
        "storage_bytes",
    ]) {
        let decision = if refused_by == Some(limit) {
            "refused"
        } else {
            "admitted"
        };
        metrics::counter!(prometheus::QUOTA_DECISIONS, "limit" => limit, "decision" => decision)
            .increment(1);
        if refused_by == Some(limit) {
            return;
        }
    }
}

/// The answer to a repeated idempotency key.
async fn replay(app: &App, caller: &Caller, job_id: &JobId, same: bool) -> Result<Accepted> {
    if !same {
        let fault = FieldError::new(
            "Idempotency-Key",
            "conflict",
            "stands for a different submission; use a new key",
        );
        let details = Details::Replay {
            fields: vec![fault.clone()],
            job_id: job_id.clone(),
        };
        return Err(Error {
            details: Some(details),
            ..Error::fields(vec![fault])
        });
    }
    let row = store::job::find(&app.db, caller.org_id(), job_id).await?;
    let row = row.ok_or_else(|| Error::internal("a job that was there is gone"))?;
    Ok(Accepted {
        job: row.into_job(&app.settings.public_url),
        replayed: true,
    })
}

/// A submission with nothing wrong in it.
struct Valid {
    suite: SuiteRow,
    input: Input,
    checked: Checked,
    label: Option<String>,
    idempotency_key: Option<String>,
}

/// Where the predictions are.
enum Input {
    Inline(Bytes),
    /// One that can not be submitted any more may still be what an idempotency key stands for.
    Upload {
        id: UploadId,
        usable: bool,
    },
}

fn no_upload() -> FieldError {
    FieldError::new(
        "input_ref",
        "not_found",
        "there is no such upload that is ready",
    )
}

/// The upload that a reference names, if it was ever ready.
async fn upload(app: &App, caller: &Caller, input_ref: &str) -> Result<Option<(Input, Checked)>> {
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
        .map_err(|_| Error::internal("the digest of an upload is not one"))?;
    Ok(Some((
        Input::Upload { id, usable },
        Checked { n_items, digest },
    )))
}

async fn validate(app: &App, caller: &Caller, submission: Submission) -> Result<Valid> {
    let Submission {
        suite_id,
        predictions,
        input_ref,
        label,
        idempotency_key,
    } = submission;
    let mut faults = Vec::new();
    let suite = match suite_id.parse() {
        _ if suite_id.is_empty() => None,
        Ok(suite_id) => store::suite::find(&app.db, &suite_id, None).await?,
        Err(_) => None,
    };
    match &suite {
        // A ladder that was published before ladders had a grid cannot be scored.
        Some(suite) if suite.release.starts_with("ladder") && suite.ladder().is_none() => faults.push(FieldError::new(
            "suite_id",
            "not_available",
            "this version of the suite has a ladder without a grid; the operator must publish a new version",
        )),
        Some(_) => {}
        None if suite_id.is_empty() => faults.push(FieldError::required("suite_id")),
        None => faults.push(FieldError::new("suite_id", "not_found", "there is no such suite; GET /v1/suites lists them")),
    }
    if predictions.is_some() == input_ref.is_some() {
        faults.push(FieldError::new(
            "predictions",
            "exactly_one_of",
            "give exactly one of predictions and input_ref",
        ));
    }
    let label = validation::ok_or_collect(
        &mut faults,
        label
            .map(|label| validation::text("label", &label))
            .transpose(),
    );
    faults.extend(idempotency_key.as_deref().and_then(bad_key));
    let input = match (&suite, predictions, input_ref) {
        (_, None, Some(input_ref)) => {
            let found = upload(app, caller, &input_ref).await?;
            if found.is_none() {
                faults.push(no_upload());
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
                    faults.extend(fields);
                    None
                }
                Err(error) => return Err(error),
            }
        }
        _ => None,
    };
    match (suite, input) {
        (Some(suite), Some((input, checked))) if faults.is_empty() => Ok(Valid {
            suite,
            input,
            checked,
            label,
            idempotency_key,
        }),
        _ => Err(Error::fields(faults)),
    }
}

fn bad_key(key: &str) -> Option<FieldError> {
    let fault = |reason, message: String| Some(FieldError::new("Idempotency-Key", reason, message));
    match key.chars().count() {
        0 => fault("range", "must not be empty".into()),
        n if n > KEY_MAX => fault(
            "range",
            format!("must not be longer than {KEY_MAX} characters"),
        ),
        _ if key.chars().any(char::is_control) => {
            fault("format", "must not hold control characters".into())
        }
        _ => None,
    }
}

async fn check(metric: &str, predictions: Bytes) -> Result<Checked> {
    let metric = Metric::published(metric)?;
    if predictions.len() <= CHECK_INLINE_MAX {
        return Ok(prediction::check(&predictions, &metric)?);
    }
    let checked =
        tokio::task::spawn_blocking(move || prediction::check(&predictions, &metric)).await;
    Ok(checked.map_err(Error::internal)??)
}

/// What an idempotency key stands for: the content of the submission, however it was written and whichever way it came.
fn digest(suite: &SuiteRow, checked: &Checked, label: Option<&str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((suite.suite_id.as_str().len() as u64).to_le_bytes());
    hash.update(suite.suite_id.as_str());
    hash.update(checked.digest);
    hash.update([u8::from(label.is_some())]);
    hash.update(label.unwrap_or_default());
    hash.finalize().into()
}
