//! Job submission: one transaction's statements, in the order in which they are used.
//!
//! This module also decides quotas, as an exception to the rule that `store` only returns what it
//! finds. One transaction stores several requests' jobs, and locks their organizations' rows
//! first. The checks are exact only under these locks, and a job, its charge and its
//! allowance must be stored together or not at all.

use std::collections::HashMap;

use super::job_rows;
use super::locked_orgs::{UsedLimits, lock, read_limits, wait_for_lock};
use super::new_job::{NewJob, StoredAs};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::job::{ATTEMPTS_MAX, JobRow};
use crate::model::serving::Unit;
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::allowance::{self, Decision, Use};
use crate::store::job_notifications::JobNotification;
use crate::store::leases::ATTEMPT_TIMEOUT;
use crate::store::{Connection as _, PgConnection, storage, upload, usage};

/// A submission's result. Everything but `Accepted` creates no job and charges nothing.
pub enum Submitted {
    /// A new job.
    Accepted(Box<JobRow>),
    /// The predictions were recorded, see [`StoredAs::ObjectToWrite`].
    Recorded,
    /// The idempotency key belongs to an earlier job.
    Repeated {
        /// The earlier job.
        job_id: JobId,
        /// The earlier request's digest.
        request_sha256: Vec<u8>,
    },
    /// The upload was deleted or has expired.
    UploadGone,
    /// Cleanup abandoned the submission before it was stored.
    Abandoned,
    /// The organization's storage quota is used up.
    StorageFull {
        /// Bytes that the organization stores.
        used: i64,
        /// The latest time at which space becomes free.
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
    /// The suite's submissions for the day are used up.
    DayFull {
        /// The suite.
        suite_id: SuiteId,
        /// Submissions per day.
        max: i64,
        /// The next day's start (UTC).
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
    /// The submissions that the suite's version permits are used up for good.
    SuiteUsedUp {
        /// Submissions for the version.
        max: i64,
    },
    /// The active job limit is reached.
    JobsFull {
        /// The organization's active jobs.
        active: i64,
        /// The latest time at which the oldest one ends.
        resets_at: Timestamp,
    },
    /// The units left for the month do not suffice.
    MonthFull {
        /// The limit's name.
        limit: &'static str,
        /// The units that the plan allows in a month.
        max: i64,
        /// The next month's start (UTC).
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
}

/// Returns the job for an organization's idempotency key, with its request's digest.
pub async fn repeated(
    db: impl sqlx::PgExecutor<'_>,
    org_id: &OrgId,
    key: &str,
) -> Result<Option<(JobId, Vec<u8>)>> {
    let row = sqlx::query!(
        r#"
        select
            id as "id: JobId",
            request_sha256
        from jobs
        where org_id = $1
          and idempotency_key = $2
        "#,
        org_id.as_str(),
        key
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.id, row.request_sha256)))
}

/// The behaviour for an organization whose rows another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfLocked {
    /// Leave its jobs out, so that the other organizations do not wait for it.
    Skip,
    /// Wait for the rows.
    Wait,
}

/// The results from a transaction that stores jobs.
#[derive(Default)]
pub struct Stored {
    /// Each job's result, in the same order; `None` for those that were left out, see
    /// [`IfLocked::Skip`].
    pub results: Vec<Option<Submitted>>,
    /// The notifications that the transaction recorded as sent. The caller sends them.
    pub notifications: Vec<JobNotification>,
}

/// Stores jobs and their charges in one transaction, and records predictions that are about to be
/// written. With `notifies`, it records a notification for each job,
/// so that no dispatcher needs to pick it.
///
/// The jobs must belong to one organization with [`IfLocked::Wait`], and a job that
/// [`needs_own_transaction`](NewJob::needs_own_transaction) must be the only one.
pub async fn submit(
    db: &mut PgConnection,
    jobs: &[NewJob],
    if_locked: IfLocked,
    notifies: bool,
) -> Result<Stored> {
    let mut org_ids: Vec<&str> = jobs.iter().map(|job| job.org_id.as_str()).collect();
    org_ids.sort_unstable();
    org_ids.dedup();
    let mut db = db.begin().await?;
    // Upload changes lock it before its organization's storage. So must this.
    let upload_is_usable = match jobs {
        [job] => lock_upload(&mut db, job).await?,
        _ => true,
    };
    if if_locked == IfLocked::Wait {
        for org_id in &org_ids {
            wait_for_lock(&mut db, org_id).await?;
        }
    }
    let locked = lock(&mut db, &org_ids).await?;
    let mut batch = Batch {
        upload_is_usable,
        orgs: read_limits(&mut db, locked).await?,
        repeated: find_repeated(&mut db, jobs).await?,
        accepted: Vec::with_capacity(jobs.len()),
        recorded: Vec::new(),
        holders: Vec::new(),
    };
    let mut results = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        results.push(batch.decide(&mut db, index, job).await?);
    }
    if batch.accepted.is_empty() && batch.recorded.is_empty() {
        db.rollback().await?;
        return Ok(Stored {
            results,
            ..Stored::default()
        });
    }
    let abandoned = accept_objects(&mut db, jobs, &batch.accepted).await?;
    batch.accepted.retain(|(index, _)| {
        let is_abandoned = abandoned.contains(&jobs[*index].id);
        if is_abandoned {
            results[*index] = Some(Submitted::Abandoned);
        }
        !is_abandoned
    });
    record_predictions(&mut db, &batch.recorded).await?;
    let notifications =
        job_rows::insert(&mut db, jobs, &batch.accepted, &batch.orgs, notifies).await?;
    for (index, created_at) in &batch.accepted {
        use_allowance(&mut db, &jobs[*index], &batch.holders, *created_at).await?;
    }
    db.commit().await?;
    for (index, created_at) in batch.accepted {
        let row = job_rows::row(&jobs[index], created_at);
        results[index] = Some(Submitted::Accepted(Box::new(row)));
    }
    Ok(Stored {
        results,
        notifications,
    })
}

/// The state in a transaction that stores jobs.
struct Batch<'a> {
    /// `false` if the only job's upload was deleted or has expired.
    upload_is_usable: bool,
    /// The organizations whose rows are locked.
    orgs: HashMap<OrgId, UsedLimits>,
    /// Idempotency keys' jobs, by organization and key, with their request digests.
    repeated: HashMap<(&'a str, &'a str), (JobId, Vec<u8>)>,
    /// Accepted jobs' indexes, and their submission times.
    accepted: Vec<(usize, Timestamp)>,
    /// The submissions whose predictions are about to be written.
    recorded: Vec<&'a NewJob>,
    /// The holders whose allowance the job uses, if it has its own transaction.
    holders: Vec<String>,
}

impl<'a> Batch<'a> {
    /// Decides about a submission. `None` if its organization was left out, and for an accepted job,
    /// whose row does not exist yet.
    async fn decide(
        &mut self,
        db: &mut PgConnection,
        index: usize,
        job: &'a NewJob,
    ) -> Result<Option<Submitted>> {
        let org_id = &job.org_id;
        let Some(limits) = self.orgs.get_mut(org_id) else {
            return Ok(None);
        };
        let key = job
            .idempotency_key
            .as_deref()
            .map(|key| (org_id.as_str(), key));
        if let Some((job_id, request_sha256)) = key.and_then(|key| self.repeated.get(&key)) {
            return Ok(Some(Submitted::Repeated {
                job_id: job_id.clone(),
                request_sha256: request_sha256.clone(),
            }));
        }
        if !self.upload_is_usable {
            return Ok(Some(Submitted::UploadGone));
        }
        if job.is_prediction() && !limits.month_is_locked {
            return Ok(None);
        }
        let created_at = limits.next_created_at;
        let allowance = match job.task.scored_suite() {
            Some(suite) => suite.allowance()?,
            None => None,
        };
        if let Some(allowance) = allowance {
            match allowance::permit(db, org_id, &allowance, created_at).await? {
                Decision::UsedUp { max } => return Ok(Some(Submitted::SuiteUsedUp { max })),
                Decision::DayUsedUp { max, resets_at } => {
                    return Ok(Some(Submitted::DayFull {
                        suite_id: allowance.suite_id.clone(),
                        max,
                        resets_at,
                        seconds: created_at.seconds_until(resets_at),
                    }));
                }
                Decision::Granted(holders) => self.holders = holders,
            }
        }
        if let Some(refused) = refused_by_limits(db, job, limits).await? {
            return Ok(Some(refused));
        }
        let n_jobs = job.n_jobs();
        limits.bytes += job.added_bytes();
        if job.is_object_to_write() {
            self.recorded.push(job);
            return Ok(Some(Submitted::Recorded));
        }
        limits.active_max = limits.active_max.map(|active| active + n_jobs);
        limits.accepted += n_jobs;
        limits.eval_items += job.eval_items();
        limits.predict_items += job.predict_items();
        limits.next_created_at = created_at.plus_micros(n_jobs);
        if let Some(key) = key {
            let job_id = job.id.clone();
            self.repeated.insert(
                key,
                (job_id, job.request_sha256.unwrap_or_default().to_vec()),
            );
        }
        self.accepted.push((index, created_at));
        Ok(None)
    }
}

/// Returns the refusal of a job that exceeds a limit of the plan.
async fn refused_by_limits(
    db: &mut PgConnection,
    job: &NewJob,
    limits: &mut UsedLimits,
) -> Result<Option<Submitted>> {
    let org_id = &job.org_id;
    let created_at = limits.next_created_at;
    let n_jobs = job.n_jobs();
    let is_below = |active: i64| active + n_jobs <= job.plan.concurrent_jobs;
    if !limits.active_max.is_some_and(is_below) {
        let (active, resets_at) = active(db, org_id).await?;
        // The jobs that this transaction accepts are not stored yet.
        let accepted = limits.accepted;
        limits.active_max = Some(active + accepted);
        if !is_below(active + accepted) {
            return Ok(Some(Submitted::JobsFull {
                active: active + accepted,
                resets_at,
            }));
        }
    }
    let month_limits = [
        (
            "eval_items_per_month",
            limits.eval_items + job.eval_items(),
            job.plan.eval_items_per_month,
        ),
        (
            Unit::PredictItems.limit(),
            limits.predict_items + job.predict_items(),
            Unit::PredictItems.max(&job.plan),
        ),
    ];
    // A limit that the job does not use may be exceeded, for example because it was lowered.
    let uses = [job.eval_items() > 0, job.is_prediction()];
    for ((limit, used, max), is_used) in month_limits.into_iter().zip(uses) {
        if is_used && used > max {
            let resets_at = usage::next_month(db, created_at).await?;
            return Ok(Some(Submitted::MonthFull {
                limit,
                max,
                resets_at,
                seconds: created_at.seconds_until(resets_at),
            }));
        }
    }
    // The size of an output is not known yet, so the storage must only not be full.
    let needed = job.added_bytes().max(i64::from(job.is_prediction()));
    if needed > 0 && limits.bytes + needed > job.plan.storage_bytes {
        let (resets_at, seconds) = storage::frees_at(db, org_id).await?;
        return Ok(Some(Submitted::StorageFull {
            used: limits.bytes,
            resets_at,
            seconds,
        }));
    }
    Ok(None)
}

/// Locks the upload of a job, if it has one. Returns `false` if it was deleted or has expired.
async fn lock_upload(db: &mut PgConnection, job: &NewJob) -> Result<bool> {
    match &job.input {
        StoredAs::Upload(upload_id) => upload::lock_usable(db, &job.org_id, upload_id).await,
        StoredAs::Row(_)
        | StoredAs::ObjectToWrite(_)
        | StoredAs::Object(_)
        | StoredAs::SuiteItems => Ok(true),
    }
}

/// Records that an accepted eval uses its suite's allowance, if it has one. The allowance is
/// locked since the decision.
async fn use_allowance(
    db: &mut PgConnection,
    job: &NewJob,
    holders: &[String],
    created_at: Timestamp,
) -> Result<()> {
    let Some((eval_id, eval)) = job.evaluation() else {
        return Ok(());
    };
    let Some(allowance) = eval.suite.allowance()? else {
        return Ok(());
    };
    allowance::record(
        db,
        &job.org_id,
        holders,
        Use::Submission(eval_id),
        allowance.suite_id,
        allowance.suite_version,
        created_at,
    )
    .await
}

/// Returns the jobs that exist for these submissions' idempotency keys, by organization and
/// key.
async fn find_repeated<'a>(
    db: &mut PgConnection,
    jobs: &'a [NewJob],
) -> Result<HashMap<(&'a str, &'a str), (JobId, Vec<u8>)>> {
    let keyed = jobs
        .iter()
        .filter_map(|job| Some((job.org_id.as_str(), job.idempotency_key.as_deref()?)));
    let (org_ids, keys): (Vec<&str>, Vec<&str>) = keyed.clone().unzip();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query!(
        r#"
        /* all tenants: one transaction stores the jobs of several organizations */
        select
            k.position as "position!",
            j.id as "id: JobId",
            j.request_sha256
        from unnest($1::text[], $2::text[]) with ordinality as k(org_id, idempotency_key, position)
        join jobs j on j.org_id = k.org_id
            and j.idempotency_key = k.idempotency_key
        "#,
        &org_ids as &[&str],
        &keys as &[&str]
    )
    .fetch_all(db)
    .await?;
    let keyed: Vec<_> = keyed.collect();
    let found = rows.into_iter().filter_map(|row| {
        let position = usize::try_from(row.position - 1).ok()?;
        Some((*keyed.get(position)?, (row.id, row.request_sha256)))
    });
    Ok(found.collect())
}

/// Records predictions that are about to be written to the artifact store, so that cleanup finds
/// them if they never belong to a job.
async fn record_predictions(db: &mut PgConnection, recorded: &[&NewJob]) -> Result<()> {
    if recorded.is_empty() {
        return Ok(());
    }
    let org_ids: Vec<_> = recorded.iter().map(|job| job.org_id.as_str()).collect();
    let job_ids: Vec<_> = recorded.iter().map(|job| job.id.as_str()).collect();
    let bytes: Vec<_> = recorded.iter().map(|job| job.added_bytes()).collect();
    sqlx::query!(
        "
        /* all tenants: one transaction stores the jobs of several organizations */
        insert into stored_predictions (org_id, job_id, bytes)
        select *
        from unnest($1::text[], $2::text[], $3::bigint[])
        ",
        &org_ids as &[&str],
        &job_ids as &[&str],
        &bytes
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Records that predictions in the artifact store belong to a job. Returns the jobs whose
/// submissions cleanup has abandoned: their objects may be gone.
async fn accept_objects(
    db: &mut PgConnection,
    jobs: &[NewJob],
    accepted: &[(usize, Timestamp)],
) -> Result<Vec<JobId>> {
    let with_object = accepted
        .iter()
        .map(|(index, _)| &jobs[*index])
        .filter(|job| matches!(job.input, StoredAs::Object(_)));
    let mut job_ids: Vec<JobId> = with_object.map(|job| job.id.clone()).collect();
    if job_ids.is_empty() {
        return Ok(job_ids);
    }
    let stored = storage::accept(db, &job_ids).await?;
    job_ids.retain(|job_id| !stored.contains(job_id));
    Ok(job_ids)
}

/// Returns the organization's active job count, and the latest time at which the oldest one
/// finishes: all attempts that are left, each at its full length. Without active jobs that
/// is now.
async fn active(db: &mut PgConnection, org_id: &OrgId) -> Result<(i64, Timestamp)> {
    let row = sqlx::query!(
        r#"
        select
            count(*) as "active!",
            coalesce(
                -- Attempts that are left, with the running one, each at its full length.
                (
                    array_agg(
                        coalesce(started_at, now())
                        + $2::float8 * interval '1 second'
                        * ($3 - attempts + (status = 'running')::integer)
                        order by created_at
                    )
                )[1],
                now()
            ) as "resets_at!: Timestamp"
        from jobs
        where org_id = $1
          and status in ('queued', 'running')
        "#,
        org_id.as_str(),
        ATTEMPT_TIMEOUT.as_secs_f64(),
        ATTEMPTS_MAX
    )
    .fetch_one(db)
    .await?;
    Ok((row.active, row.resets_at))
}
