//! Jobs of an organization: `/v1/jobs`.

use std::time::Duration;

use assay_core::model::cursor::bad_cursor;
use assay_core::model::error::Errors;
use assay_core::model::job::{
    FINAL_JOBS_MAX, ITEM_SCORES_DAYS, ItemScore, JOBS_PAGE, Job, JobItems, JobRow, JobStatus,
    JobType, Jobs, Trigger,
};
use assay_core::model::permissions::{Caller, EvalSubmitter, JobCanceller, JobReader};
use assay_core::model::queue::JobQueue;
use assay_core::model::scope::{Scope, Scopes};
use assay_core::model::suite::SuiteId;
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor};
use assay_core::model::validation;
use assay_core::runtime::prometheus;
use assay_core::store::credential::CredentialStatus;
use assay_core::store::finalization::Finalized;
use assay_core::store::item_scores::{Feedback, ItemScoresIn};
use assay_core::{BestEffort as _, Code, Error, JobId, Resource, Result, store};
use futures_util::stream::{self, Stream};
use tokio::time::Instant;

use super::stored_item_scores::{StoredIn, StoredItemScores};
use crate::app::App;
use crate::background::job_updates::JobSubscription;
use crate::generated::inputs;
use crate::limits::concurrency::ConcurrencyPermit;
use crate::limits::rejections::Rejection;
use crate::limits::request_memory::Reservation;
use crate::ops::trace_document::{self, TraceDocument};

pub(super) fn not_found() -> Error {
    Error::not_found(Resource::Job)
}

/// Returns a job as callers see it.
pub(super) fn represent(app: &App, caller: &Caller, row: JobRow) -> Job {
    let queue = app.jobs.queue.for_job(&row, caller.plan().queue_weight);
    row.into_job(&app.settings.public_url, queue)
}

impl inputs::ListJobs {
    /// Returns the filter of the newest jobs of every type and state.
    pub fn newest(limit: i64) -> Self {
        Self {
            limit: Some(limit),
            ..Self::default()
        }
    }

    /// Returns the filter of the newest evals of a suite that have succeeded.
    pub fn newest_scores(suite_id: &SuiteId, limit: i64) -> Self {
        Self {
            r#type: Some(JobType::Eval.to_string()),
            status: Some(JobStatus::Succeeded.to_string()),
            suite_id: Some(suite_id.to_string()),
            ..Self::newest(limit)
        }
    }
}

/// Returns the job that a request submitted, if it is one of the newest jobs of the
/// organization.
pub async fn find_by_request(
    app: &App,
    caller: &JobReader,
    request_id: &str,
) -> Result<Option<JobId>> {
    let _permit = app
        .concurrency
        .job_lists
        .acquire(caller.org_id().as_str())
        .await?;
    store::job::find_by_request(&app.db.jobs.get(), caller.org_id(), request_id).await
}

/// Memory that a job on a page takes, in bytes: its row, the job and its JSON, each with 16 metadata
/// values that have 512 characters with up to four bytes each, and with 50 slices of open items and of
/// sealed ones.
const JOB_BYTES: u64 = 3 * 72 * 1024;

/// Returns a page with the organization's jobs, the newest first. Its memory is charged to `room`
/// before it is read.
pub async fn list(
    app: &App,
    caller: &JobReader,
    input: inputs::ListJobs,
    room: &Reservation,
) -> Result<Jobs> {
    let inputs::ListJobs {
        r#type,
        status,
        suite_id,
        label,
        limit,
        before,
    } = input;
    let mut errors = Errors::default();
    let r#type = errors.take(
        r#type
            .map(|text| validation::one_of("type", &text))
            .transpose(),
    );
    let status = errors.take(
        status
            .map(|text| validation::one_of("status", &text))
            .transpose(),
    );
    let suite_id = suite_id.map(|text| validation::suite_id("suite_id", &text));
    let suite_id = errors.take(suite_id.transpose());
    let label = label.map(|text| validation::text("label", &text));
    let label = errors.take(label.transpose());
    let before = errors.take(
        before
            .map(|text| validation::timestamp("before", &text))
            .transpose(),
    );
    let limit = errors.take(validation::limit(limit, JOBS_PAGE.0, JOBS_PAGE.1));
    errors.finish()?;
    let _permit = app
        .concurrency
        .job_lists
        .acquire(caller.org_id().as_str())
        .await?;
    room.reserve_response(u64::from(limit) * JOB_BYTES).await?;
    // One row more than the page has shows that there is a next page.
    let mut rows = store::job::list(
        &app.db.jobs.get(),
        caller.org_id(),
        store::job::Filter {
            r#type,
            status,
            suite_id: suite_id.as_ref(),
            label: label.as_deref(),
            before,
        },
        limit + 1,
    )
    .await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_before = rows.last().filter(|_| has_more).map(|row| row.created_at);
    Ok(Jobs {
        jobs: rows
            .into_iter()
            .map(|row| represent(app, caller, row))
            .collect(),
        next_before,
    })
}

/// Cancels a queued or running job at once. Its worker stops, and a late result of the worker is
/// rejected.
pub async fn cancel(app: &App, canceller: &JobCanceller, job_id: &str) -> Result<Job> {
    let caller = canceller.caller();
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    let cancelled = store::job::cancel(&app.db.jobs.get(), caller.org_id(), &job_id).await?;
    let job = find(app, caller, &job_id).await?;
    if cancelled {
        prometheus::count_finished_job(job.r#type, "cancelled");
        if job.eval_job_id.is_some() {
            // The eval of the output is cancelled with its job, unless it has been cancelled before.
            let (db, ids) = (app.db.jobs.get(), [job_id.as_str()]);
            let ended = store::dependent_evals::ended_by(&db, &ids).await;
            ended
                .map(|ended| {
                    for _ in ended {
                        prometheus::count_finished_job(JobType::Eval, "cancelled");
                    }
                })
                .best_effort("counting a cancelled eval");
        }
        return Ok(represent(app, caller, job));
    }
    let illegal = job.status.after(Trigger::Cancel).err();
    let why = illegal.map_or_else(
        || String::from("its state has just changed"),
        |illegal| illegal.to_string(),
    );
    Err(Error::invalid_state(
        Resource::Job,
        format!("The job cannot be cancelled: {why}."),
    ))
}

/// Marks a succeeded job as final: its sealed figures are disclosed after its suite has closed.
/// Marking it again changes nothing.
pub async fn finalize(app: &App, submitter: &EvalSubmitter, job_id: &str) -> Result<Job> {
    let caller = submitter.caller();
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    let mut transaction = app.db.jobs.get().begin().await?;
    finalize_in(&mut transaction, submitter, &job_id).await?;
    transaction.commit().await?;
    let job = find(app, caller, &job_id).await?;
    Ok(represent(app, caller, job))
}

/// Marks a job as final, in a transaction that the caller commits.
pub(super) async fn finalize_in(
    db: &mut store::PgConnection,
    submitter: &EvalSubmitter,
    job_id: &JobId,
) -> Result<()> {
    let cannot_finalize = |why: String| {
        Err(Error::invalid_state(
            Resource::Job,
            format!("The job cannot be marked as final: {why}."),
        ))
    };
    match store::finalization::finalize(db, submitter.caller().org_id(), job_id).await? {
        Finalized::Done => Ok(()),
        Finalized::Missing => Err(not_found()),
        Finalized::NotEval => cannot_finalize("it is no eval".into()),
        Finalized::NotSucceeded(status) => cannot_finalize(format!(
            "it is {status}, and only a succeeded job has figures"
        )),
        Finalized::NotSealed => cannot_finalize("its suite has no sealed items".into()),
        Finalized::Closed(closed_at) => cannot_finalize(format!("its suite closed at {closed_at}")),
        Finalized::Full => cannot_finalize(format!(
            "{FINAL_JOBS_MAX} jobs of this version of the suite are final, the maximum; \
             organizations of one domain, and those on the plan `free` that one user created, share \
             them"
        )),
    }
}

/// Longest time that a request waits for a job, in seconds.
pub(super) const WAIT_MAX: i64 = 30;

/// Returns a job of the organization. With `wait`, returns when the job has finished, at the latest
/// after that many seconds.
pub async fn get(
    app: &App,
    caller: &JobReader,
    job_id: &str,
    input: inputs::GetJob,
) -> Result<Job> {
    let wait = match input.wait.unwrap_or(0) {
        seconds @ 0..=WAIT_MAX => Duration::from_secs(seconds.unsigned_abs()),
        _ => {
            return Err(Error::field(
                "wait",
                "range",
                format!("must be an integer from 0 to {WAIT_MAX}, in seconds"),
            ));
        }
    };
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    if wait.is_zero() {
        let row = find(app, caller, &job_id).await?;
        return Ok(represent(app, caller, row));
    }
    let deadline = Instant::now() + wait;
    let mut subscription = app.jobs.updates.subscribe(&job_id);
    let mut row = find(app, caller, &job_id).await?;
    let mut is_waiting = true;
    while is_waiting && !row.status.is_final() {
        is_waiting = subscription.finished_before(deadline).await;
        row = find_if_still_valid(app, caller, &job_id).await?;
    }
    Ok(represent(app, caller, row))
}

/// Returns a job of the caller's organization.
async fn find(app: &App, caller: &Caller, job_id: &JobId) -> Result<JobRow> {
    let key = (caller.org_id().clone(), job_id.clone());
    app.lookups.jobs.execute(key).await?.ok_or_else(not_found)
}

/// Returns a job as [`find`] does, unless the caller may no longer read it.
async fn find_if_still_valid(app: &App, caller: &Caller, job_id: &JobId) -> Result<JobRow> {
    let (row, scopes) = tokio::join!(find(app, caller, job_id), current_scopes(app, caller));
    if scopes?.contains(Scope::JobsRead) {
        row
    } else {
        Err(Error::out_of_scope(Scope::JobsRead))
    }
}

/// Returns the scopes that the caller has now, after it waited for the response.
///
/// # Errors
/// If its credential is no longer valid, or its organization was suspended.
pub(super) async fn current_scopes(app: &App, caller: &Caller) -> Result<Scopes> {
    match store::credential::credential_status(
        &app.db.jobs.get(),
        caller.org_id(),
        caller.principal(),
    )
    .await?
    {
        CredentialStatus::Valid { scopes } => Ok(scopes),
        CredentialStatus::Suspended => Err(Error::org_suspended()),
        CredentialStatus::Revoked => Err(Rejection::KeyRevoked.into()),
        CredentialStatus::Expired { expired_at } => Err(Error::key_expired(expired_at)),
        CredentialStatus::Invalid => Err(Error::new(
            Code::InvalidToken,
            "The key or session token is no longer valid.",
        )),
    }
}

/// Time without a change after which a watch sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// The time after which a stream of a job without a change ends. Clients watch the job again.
const WATCH_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Returns a stream of a job: now, after each change, and finally when it has finished. After
/// [`HEARTBEAT_INTERVAL`] without one, an element is the job if its place in the queue has changed,
/// otherwise `None`. A change that the next one follows
/// quickly can be skipped; the final state never is.
pub async fn watch(
    app: App,
    caller: JobReader,
    job_id: &str,
) -> Result<impl Stream<Item = Result<Option<Job>>> + use<>> {
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    let permit = app
        .concurrency
        .job_watches
        .acquire(caller.org_id().as_str())
        .await?;
    let subscription = app.jobs.updates.subscribe(&job_id);
    // A missing job is an error of the call, not of the stream.
    find(&app, &caller, &job_id).await?;
    Ok(stream::try_unfold(
        Watch {
            app,
            caller,
            job_id,
            subscription,
            last_sent: None,
            ends_at: Instant::now() + WATCH_LIFETIME,
            _permit: permit,
        },
        Watch::next,
    ))
}

/// The state of the stream of [`watch`].
struct Watch {
    app: App,
    caller: JobReader,
    job_id: JobId,
    subscription: JobSubscription,
    /// The status, the attempts and the place of the job as it was last sent.
    last_sent: Option<(JobStatus, i32, Option<JobQueue>)>,
    ends_at: Instant,
    _permit: ConcurrencyPermit,
}

impl Watch {
    /// Returns the next element and the state after it, or `None` after the final state.
    async fn next(mut self) -> Result<Option<(Option<Job>, Self)>> {
        if self.last_sent.is_some_and(|(status, ..)| status.is_final()) {
            return Ok(None);
        }
        let heartbeat_at = Instant::now() + HEARTBEAT_INTERVAL;
        let mut is_late = false;
        loop {
            let row = find_if_still_valid(&self.app, &self.caller, &self.job_id).await?;
            let state = (row.status, row.attempts);
            let job = represent(&self.app, &self.caller, row);
            let is_changed = |(status, attempts, queue)| {
                (status, attempts) != state || (is_late && queue != job.queue)
            };
            if self.last_sent.is_none_or(is_changed) {
                self.last_sent = Some((state.0, state.1, job.queue));
                return Ok(Some((Some(job), self)));
            }
            if is_late && Instant::now() >= self.ends_at {
                return Ok(None);
            }
            if is_late {
                return Ok(Some((None, self)));
            }
            is_late = !self.subscription.changed_before(heartbeat_at).await;
            if is_late && self.subscription.is_shutting_down() {
                return Err(Error::unavailable(
                    "the process shuts down while a client watches a job",
                ));
            }
        }
    }
}

/// Returns a page of the item scores of a succeeded job, if the suite allows reading them. They
/// contain no answer.
pub async fn items(
    app: &App,
    caller: &JobReader,
    job_id: &str,
    input: inputs::ListJobItems,
) -> Result<JobItems> {
    let limit = validation::limit(input.limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
    let cursor = input.cursor.as_deref();
    let cursor = cursor.map(str::parse::<ItemCursor>).transpose()?;
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    let found = store::item_scores::feedback(&app.db.jobs.get(), caller.org_id(), &job_id)
        .await?
        .ok_or_else(not_found)?;
    let Feedback {
        status,
        suite_id,
        suite_version,
        per_item_feedback,
        n_items,
        scores_body,
        scores_key,
    } = found;
    if !per_item_feedback {
        return Err(Error::new(
            Code::Forbidden,
            "The suite does not allow reading the scores of single items.",
        ));
    }
    let cursor = cursor.map(|cursor| cursor.of(&suite_id)).transpose()?;
    let from = cursor.as_ref().map_or(0, |cursor| cursor.ordinal);
    if from >= n_items || cursor.is_some_and(|cursor| cursor.version != suite_version) {
        return Err(bad_cursor());
    }
    let Some(item_scores) = ItemScoresIn::from_columns(scores_body, scores_key) else {
        let message = match status {
            JobStatus::Succeeded => format!(
                "The job has no stored item scores. They are stored for {ITEM_SCORES_DAYS} days, \
                 and only for jobs that predict at least one item in 1,000. Submit the predictions \
                 again."
            ),
            _ => format!("The job is {status}; only a succeeded job has item scores."),
        };
        return Err(Error::invalid_state(Resource::Job, message));
    };
    let item_ids =
        store::suite::item_ids(&app.db.jobs.get(), &suite_id, &suite_version, from, limit).await?;
    if item_ids.is_empty() {
        return Err(Error::suite_removed());
    }
    let next = from.saturating_add(i32::try_from(item_ids.len()).unwrap_or(i32::MAX));
    let place = StoredIn::Job(item_scores);
    let stored = StoredItemScores::open(app, &place, u64::from(n_items.unsigned_abs())).await?;
    let scores = stored
        .scores(u64::from(from.unsigned_abs())..u64::from(next.unsigned_abs()))
        .await?;
    let items = item_ids
        .into_iter()
        .zip(scores)
        .map(|(item_id, score)| ItemScore { item_id, score });
    let next_cursor =
        (next < n_items).then(|| ItemCursor::new(&suite_id, suite_version.clone(), next));
    Ok(JobItems {
        job_id,
        suite_id,
        suite_version,
        items: items.collect(),
        n_items: i64::from(n_items),
        next_cursor,
    })
}

/// Returns the trace of a job that has succeeded or failed.
pub async fn trace(app: &App, caller: &JobReader, job_id: &str) -> Result<TraceDocument> {
    let job = get(app, caller, job_id, inputs::GetJob::default()).await?;
    if job.trace_url.is_none() {
        return Err(Error::not_found_with(
            Resource::Trace,
            "No such trace: the job has neither succeeded nor failed.",
        ));
    }
    let row = store::trace::find(&app.db.jobs.get(), caller.org_id(), &job.id)
        .await?
        .ok_or_else(not_found)?;
    let attempts = store::trace::attempts(&app.db.jobs.get(), caller.org_id(), &job.id).await?;
    Ok(trace_document::build(&job, &row, &attempts))
}
