//! `/v1/jobs`

use std::time::Duration;

use assay_core::model::job::{
    FINAL_JOBS_MAX, ITEM_SCORES_DAYS, ItemScore, JOBS_PAGE, Job, JobItems, JobStatus, JobType,
    Jobs, Trigger,
};
use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::suite::{ITEMS_PAGE, ItemCursor, bad_cursor};
use assay_core::model::validation;
use assay_core::runtime::prometheus;
use assay_core::store::credential::Standing;
use assay_core::store::job::{Feedback, Finalized};
use assay_core::{Code, Error, JobId, Resource, Result, store};
use futures_util::stream::{self, Stream};
use tokio::time::Instant;

use super::stored_item_scores::StoredItemScores;
use crate::app::App;
use crate::background::job_updates::JobSubscription;
use crate::ops::trace_document::{self, TraceDocument};

fn missing() -> Error {
    Error::not_found(Resource::Job)
}

/// Which jobs are asked for, as it came.
pub struct Filter {
    /// `eval` or `predict`.
    pub r#type: Option<String>,
    /// One of the five states.
    pub status: Option<String>,
    /// Size of the page.
    pub limit: Option<i64>,
    /// Only jobs made before this moment.
    pub before: Option<String>,
}

/// A page of the organization's jobs, newest first.
pub async fn list(app: &App, caller: &Caller, filter: Filter) -> Result<Jobs> {
    let Filter {
        r#type,
        status,
        limit,
        before,
    } = filter;
    let mut faults = Vec::new();
    let r#type = validation::ok_or_collect(
        &mut faults,
        r#type
            .map(|text| validation::one_of("type", &text))
            .transpose(),
    );
    let status = validation::ok_or_collect(
        &mut faults,
        status
            .map(|text| validation::one_of("status", &text))
            .transpose(),
    );
    let before = validation::ok_or_collect(
        &mut faults,
        before
            .map(|text| validation::moment("before", &text))
            .transpose(),
    );
    let limit = validation::ok_or_collect(
        &mut faults,
        validation::limit(limit, JOBS_PAGE.0, JOBS_PAGE.1),
    );
    if !faults.is_empty() {
        return Err(Error::fields(faults));
    }
    // All jobs are evals.
    if r#type == Some(JobType::Predict) {
        return Ok(Jobs {
            jobs: Vec::new(),
            next_before: None,
        });
    }
    let _turn = app.job_lists.acquire(caller.org_id().as_str()).await?;
    // One more than is shown tells whether there is a next page.
    let mut rows =
        store::job::list(&app.jobs_db, caller.org_id(), status, before, limit + 1).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_before = rows.last().filter(|_| more).map(|row| row.created_at);
    Ok(Jobs {
        jobs: rows
            .into_iter()
            .map(|row| row.into_job(&app.settings.public_url))
            .collect(),
        next_before,
    })
}

/// Ends a job that waits or runs, at once: a worker that holds it notices, and its late write is refused.
pub async fn cancel(app: &App, submitter: &Submitter, job_id: &str) -> Result<Job> {
    let caller = submitter.caller();
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let cancelled = store::job::cancel(&app.jobs_db, caller.org_id(), &job_id).await?;
    metrics::counter!(prometheus::JOBS_FINISHED, "type" => "eval", "outcome" => "cancelled")
        .increment(u64::from(cancelled));
    let job = store::job::find(&app.jobs_db, caller.org_id(), &job_id)
        .await?
        .ok_or_else(missing)?;
    if cancelled {
        return Ok(job.into_job(&app.settings.public_url));
    }
    let refused = job.status.after(Trigger::Cancel).err();
    let why = refused.map_or_else(
        || String::from("it changed just now"),
        |refused| refused.to_string(),
    );
    Err(Error::invalid_state(
        Resource::Job,
        format!("The job cannot be cancelled: {why}."),
    ))
}

/// Marks a succeeded job as one whose sealed figures are disclosed after its suite has closed. Marking it again changes nothing.
pub async fn finalize(app: &App, submitter: &Submitter, job_id: &str) -> Result<Job> {
    let caller = submitter.caller();
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let refused = |why: String| {
        Err(Error::invalid_state(
            Resource::Job,
            format!("The job cannot be marked as final: {why}."),
        ))
    };
    match store::job::finalize(&app.jobs_db, caller.org_id(), &job_id).await? {
        Finalized::Done => get(app, caller, job_id.as_str(), None).await,
        Finalized::Missing => Err(missing()),
        Finalized::NotSucceeded(status) => refused(format!(
            "it is {status}, and only a succeeded job has figures"
        )),
        Finalized::NotSealed => refused("its suite has no sealed items".into()),
        Finalized::Closed(closed_at) => refused(format!("its suite closed at {closed_at}")),
        Finalized::Full => refused(format!(
            "{FINAL_JOBS_MAX} jobs of this version of the suite are final, and there may be no more; organizations of one domain, and \
             those on the plan free that one user created, share them"
        )),
    }
}

/// The longest that a request waits for a job, in seconds.
const WAIT_MAX: i64 = 30;

/// A job of the organization; with `wait`, as soon as it has ended, after that many seconds at the latest.
pub async fn get(app: &App, caller: &Caller, job_id: &str, wait: Option<i64>) -> Result<Job> {
    let wait = match wait.unwrap_or(0) {
        seconds @ 0..=WAIT_MAX => Duration::from_secs(seconds.unsigned_abs()),
        _ => {
            return Err(Error::field(
                "wait",
                "range",
                format!("must be a whole number of seconds from 0 to {WAIT_MAX}"),
            ));
        }
    };
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let until = Instant::now() + wait;
    let mut ear = app.job_updates.listen();
    loop {
        let row = store::job::find(&app.jobs_db, caller.org_id(), &job_id)
            .await?
            .ok_or_else(missing)?;
        if row.status.is_final() || !ear.changed_before(&job_id, until).await {
            return Ok(row.into_job(&app.settings.public_url));
        }
        still_valid(app, caller).await?;
    }
}

/// Rejects a caller whose credential was revoked, or whose organization was suspended, while it waited for the response.
async fn still_valid(app: &App, caller: &Caller) -> Result<()> {
    match store::credential::standing(&app.jobs_db, caller.org_id(), caller.principal()).await? {
        Standing::Valid => Ok(()),
        Standing::Suspended => Err(Error::org_suspended()),
        Standing::Invalid => Err(Error::new(
            Code::InvalidToken,
            "The key or session token is not valid any more.",
        )),
    }
}

/// After how long without a change one who watches is told that there is none.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A job now and after each change, until it has ended; nothing where nothing has changed for ten seconds. A change that
/// is followed by the next at once may be passed over; the last one never is.
pub async fn watch(
    app: App,
    caller: Caller,
    job_id: &str,
) -> Result<impl Stream<Item = Result<Option<Job>>> + use<>> {
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let ear = app.job_updates.listen();
    // What is not there is refused before anything is told.
    store::job::find(&app.jobs_db, caller.org_id(), &job_id)
        .await?
        .ok_or_else(missing)?;
    Ok(stream::try_unfold(
        Watch {
            app,
            caller,
            job_id,
            ear,
            seen: None,
        },
        Watch::next,
    ))
}

struct Watch {
    app: App,
    caller: Caller,
    job_id: JobId,
    ear: JobSubscription,
    /// What was told last.
    seen: Option<(JobStatus, i32)>,
}

impl Watch {
    async fn next(mut self) -> Result<Option<(Option<Job>, Self)>> {
        if self.seen.is_some_and(|(status, _)| status.is_final()) {
            return Ok(None);
        }
        let heartbeat = Instant::now() + HEARTBEAT;
        loop {
            let row = store::job::find(&self.app.jobs_db, self.caller.org_id(), &self.job_id)
                .await?
                .ok_or_else(missing)?;
            still_valid(&self.app, &self.caller).await?;
            let now = Some((row.status, row.attempts));
            if now != self.seen {
                self.seen = now;
                return Ok(Some((
                    Some(row.into_job(&self.app.settings.public_url)),
                    self,
                )));
            }
            if !self.ear.changed_before(&self.job_id, heartbeat).await {
                if self.ear.is_shutting_down() {
                    return Err(Error::unavailable(
                        "the process ends while a job is watched",
                    ));
                }
                return Ok(Some((None, self)));
            }
        }
    }
}

/// A page of the scores of a succeeded job's items, where its suite allows them to be read. Never an answer.
pub async fn items(
    app: &App,
    caller: &Caller,
    job_id: &str,
    cursor: Option<&str>,
    limit: Option<i64>,
) -> Result<JobItems> {
    let limit = validation::limit(limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
    let cursor = cursor.map(str::parse::<ItemCursor>).transpose()?;
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let found = store::job::feedback(&app.jobs_db, caller.org_id(), &job_id)
        .await?
        .ok_or_else(missing)?;
    let Feedback {
        status,
        suite_id,
        suite_version,
        per_item_feedback,
        n_items,
        scores_key,
    } = found;
    if !per_item_feedback {
        return Err(Error::new(
            Code::Forbidden,
            "The suite does not give feedback on single items.",
        ));
    }
    let cursor = cursor.map(|cursor| cursor.of(&suite_id)).transpose()?;
    let from = cursor.as_ref().map_or(0, |cursor| cursor.ordinal);
    if from >= n_items || cursor.is_some_and(|cursor| cursor.version != suite_version) {
        return Err(bad_cursor());
    }
    let Some(scores_key) = scores_key else {
        let message = match status {
            JobStatus::Succeeded => format!(
                "Nothing is stored of the job's items. That is stored for {ITEM_SCORES_DAYS} days, and of jobs that predict at least one \
                 item in 1,000; submit it again."
            ),
            _ => format!("The job is {status}; only a succeeded one has scores."),
        };
        return Err(Error::invalid_state(Resource::Job, message));
    };
    let item_ids =
        store::suite::item_ids(&app.jobs_db, &suite_id, &suite_version, from, limit).await?;
    let next = from.saturating_add(i32::try_from(item_ids.len()).unwrap_or(i32::MAX));
    let kept = StoredItemScores::open(app, &scores_key, u64::from(n_items.unsigned_abs())).await?;
    let scores = kept
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

/// The trace of a job that has run.
pub async fn trace(app: &App, caller: &Caller, job_id: &str) -> Result<TraceDocument> {
    let job = get(app, caller, job_id, None).await?;
    if job.trace_url.is_none() {
        return Err(Error::missing(
            Resource::Trace,
            "No such trace: the job has not run.",
        ));
    }
    let head = store::trace::find(&app.jobs_db, caller.org_id(), &job.id)
        .await?
        .ok_or_else(missing)?;
    let attempts = store::trace::attempts(&app.jobs_db, caller.org_id(), &job.id).await?;
    Ok(trace_document::of(&job, &head, &attempts))
}
