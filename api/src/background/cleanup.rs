//! Cleanup: removes objects that are no longer needed, and rows after their retention period.
//!
//! Every API process starts a round once a minute. An advisory lock lets one process work at a
//! time. It uses its own connection, so that no request waits for it, and each statement handles a
//! bounded row count. The next round continues where a round stops.

use std::time::{Duration, Instant};

use assay_core::model::job::JobStatus;
use assay_core::model::{package, upload};
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::store::cleanup::{self, BATCH};
use assay_core::store::old_rows::{self, OldRows};
use assay_core::store::{self, PgConnection, PoolProfile, audit, auth, event, usage};
use assay_core::{BestEffort as _, OrgId, Result, Timestamp};
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;

use crate::app::App;
use crate::settings::Retention;

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time between a process's searches for old rows. Retention periods are days, and the search
/// for jobs visits every organization.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The most objects that are removed concurrently.
const PARALLEL: usize = 16;

/// Cleans up until `stop` is set. The future may be dropped in mid-round.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) {
    let mut retained = None;
    loop {
        round(&app, &mut retained)
            .await
            .best_effort("cleaning up; the next round continues");
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn round(app: &App, retained: &mut Option<Instant>) -> Result<()> {
    let mut db = store::connect(&app.db.get(), "assay-cleanup", PoolProfile::CLEANUP).await?;
    if cleanup::lead(&mut db).await? {
        let mut cleaner = Cleaner {
            db: &mut db,
            artifacts: &app.artifacts,
        };
        // A failure for one kind of object must not stop the others' cleanup.
        cleaner
            .expired_rows()
            .await
            .best_effort("deleting expired sign-in links, workers and charges");
        cleaner
            .job_objects()
            .await
            .best_effort("removing the objects of finished jobs");
        cleaner
            .unneeded_predictions()
            .await
            .best_effort("removing the predictions of jobs that did not enter a board");
        cleaner
            .abandoned_predictions()
            .await
            .best_effort("removing the predictions of abandoned submissions");
        cleaner
            .item_scores()
            .await
            .best_effort("removing expired item scores");
        cleaner
            .uploads()
            .await
            .best_effort("removing the objects of ended uploads");
        cleaner
            .deleted_orgs()
            .await
            .best_effort("removing the objects of deleted organizations");
        if retained.is_none_or(|at| at.elapsed() >= RETENTION_INTERVAL) {
            cleaner.old_rows(&app.settings.retention).await?;
            *retained = Some(Instant::now());
        }
    }
    store::disconnect(db).await;
    Ok(())
}

/// One cleanup round.
struct Cleaner<'a> {
    db: &'a mut PgConnection,
    artifacts: &'a Artifacts,
}

impl Cleaner<'_> {
    /// Deletes workers that are gone, expired sign-in links and device logins, and idempotency keys'
    /// expired charges.
    async fn expired_rows(&mut self) -> Result<()> {
        cleanup::delete_expired_workers(&mut *self.db).await?;
        store::serving::delete_expired_keys(&mut *self.db).await?;
        store::device::delete_expired(&mut *self.db).await?;
        auth::delete_expired(self.db).await
    }

    /// Removes finished jobs' input, and the item scores and outputs of attempts whose result
    /// was not used.
    async fn job_objects(&mut self) -> Result<()> {
        loop {
            let jobs = cleanup::list_cleanup_candidates(&mut *self.db).await?;
            let mut objects = Vec::with_capacity(jobs.len());
            for cleanup::CleanupCandidate {
                job_id,
                org_id,
                input_key,
                attempts,
                scores_key,
                is_succeeded,
                keeps_predictions,
                output_upload_id,
            } in &jobs
            {
                let mut keys: Vec<String> = match output_upload_id {
                    None => (1..=*attempts)
                        .map(|attempt| Artifacts::scores_key(org_id, job_id, attempt))
                        .filter(|key| scores_key.as_ref() != Some(key))
                        .collect(),
                    // Most jobs' only attempt is the one whose output counts.
                    Some(_) if *attempts == i32::from(*is_succeeded) => Vec::new(),
                    Some(upload_id) => {
                        let last = is_succeeded.then_some(*attempts);
                        let written = self
                            .artifacts
                            .list_under(&upload::prefix(org_id, upload_id))
                            .await?;
                        let is_unused = |key: &String| {
                            last.is_none_or(|attempt| !upload::is_output_of(key, attempt))
                        };
                        written.into_iter().filter(is_unused).collect()
                    }
                };
                if !keeps_predictions {
                    keys.extend(input_key.clone());
                }
                objects.push((job_id.to_string(), keys));
            }
            let removed = remove(self.artifacts, objects).await;
            let keeping: Vec<String> = jobs
                .iter()
                .filter(|job| job.keeps_predictions)
                .map(|job| job.job_id.to_string())
                .collect();
            cleanup::mark_cleaned_up(&mut *self.db, &removed, &keeping).await?;
            if is_done(jobs.len(), removed.len()) {
                return Ok(());
            }
        }
    }

    /// Removes predictions that were kept for a board and did not enter it before its close.
    async fn unneeded_predictions(&mut self) -> Result<()> {
        loop {
            let unneeded = cleanup::unneeded_predictions(&mut *self.db).await?;
            let objects = unneeded
                .iter()
                .map(|unneeded| {
                    let keys = unneeded.input_key.iter().cloned().collect();
                    (unneeded.job_id.to_string(), keys)
                })
                .collect();
            let removed = remove(self.artifacts, objects).await;
            cleanup::forget_predictions(&mut *self.db, &removed).await?;
            if is_done(unneeded.len(), removed.len()) {
                return Ok(());
            }
        }
    }

    /// Removes predictions whose submissions did not become jobs, because the client
    /// disconnected or the process died.
    async fn abandoned_predictions(&mut self) -> Result<()> {
        loop {
            let abandoned = cleanup::abandon_predictions(&mut *self.db).await?;
            let mut objects = Vec::with_capacity(abandoned.len());
            for cleanup::Abandoned { org_id, job_id } in &abandoned {
                objects.push((
                    job_id.to_string(),
                    vec![Artifacts::predictions_key(org_id, job_id)],
                ));
            }
            let removed = remove(self.artifacts, objects).await;
            cleanup::delete_abandoned_predictions(&mut *self.db, &removed).await?;
            if is_done(abandoned.len(), removed.len()) {
                return Ok(());
            }
        }
    }

    /// Removes expired item scores. Withdraws them from their jobs first, so that no request reads
    /// a removed object.
    async fn item_scores(&mut self) -> Result<()> {
        loop {
            let expired = cleanup::expired_item_scores(&mut *self.db).await?;
            let job_ids: Vec<String> = expired
                .iter()
                .map(|expired| expired.job_id.to_string())
                .collect();
            cleanup::withdraw_item_scores(&mut *self.db, &job_ids).await?;
            let objects = expired
                .iter()
                .map(|expired| {
                    let keys = expired.scores_key.iter().cloned().collect();
                    (expired.job_id.to_string(), keys)
                })
                .collect();
            let removed = remove(self.artifacts, objects).await;
            cleanup::delete_expired_item_scores(&mut *self.db, &removed).await?;
            if is_done(expired.len(), removed.len()) {
                return Ok(());
            }
        }
    }

    /// Ends expired uploads, and removes all objects of ended uploads, including parts that were
    /// never recorded.
    async fn uploads(&mut self) -> Result<()> {
        while cleanup::expire_uploads(self.db).await? >= BATCH {}
        loop {
            let ended = cleanup::ended_uploads(&mut *self.db).await?;
            let mut removals = Vec::with_capacity(ended.len());
            for cleanup::EndedUpload { org_id, id } in &ended {
                removals.push(remove_under(
                    self.artifacts.clone(),
                    id.to_string(),
                    upload::prefix(org_id, id),
                ));
            }
            let removed = in_parallel(removals).await;
            cleanup::mark_uploads_removed(&mut *self.db, &removed).await?;
            if is_done(ended.len(), removed.len()) {
                return Ok(());
            }
        }
    }

    /// Removes deleted organizations' objects. Removal is idempotent, so the next round
    /// continues if the process dies here.
    async fn deleted_orgs(&mut self) -> Result<()> {
        for org_id in cleanup::deleted_orgs(&mut *self.db).await? {
            self.artifacts.delete_under(org_id.as_str()).await?;
            self.artifacts
                .delete_under(&package::org_prefix(&org_id))
                .await?;
            cleanup::mark_org_removed(&mut *self.db, &org_id).await?;
            tracing::info!(%org_id, "objects of a deleted organization removed");
        }
        Ok(())
    }

    /// Deletes rows after their retention period.
    async fn old_rows(&mut self, retention: &Retention) -> Result<()> {
        let Retention {
            job_days,
            cancelled_job_days,
            upload_days,
            session_days,
            record_days,
        } = *retention;
        let mut jobs = 0;
        let mut last = String::new();
        loop {
            let orgs = old_rows::orgs_after(&mut *self.db, &last).await?;
            for org_id in &orgs {
                jobs += self
                    .old_jobs(org_id, JobStatus::Succeeded, job_days)
                    .await?;
                jobs += self.old_jobs(org_id, JobStatus::Failed, job_days).await?;
                jobs += self
                    .old_jobs(org_id, JobStatus::Cancelled, cancelled_job_days)
                    .await?;
            }
            match orgs.last() {
                Some(org_id) => last = org_id.to_string(),
                None => break,
            }
        }
        record_deleted("jobs", jobs);
        // Uploads are deleted after the jobs that refer to them.
        for (rows, days) in [
            (OldRows::Sessions, session_days),
            (OldRows::Keys, record_days),
            (OldRows::Invites, record_days),
            (OldRows::DomainClaims, record_days),
            (OldRows::UsageDays, usage::REQUEST_RETENTION_DAYS),
            (OldRows::Uploads, upload_days),
            (OldRows::AuditEntries, audit::RETENTION_DAYS),
            (OldRows::Events, event::RETENTION_DAYS),
            (OldRows::SharedEvents, event::RETENTION_DAYS),
            (OldRows::WebhookPayloads, event::RETENTION_DAYS),
        ] {
            self.delete_old(rows, days)
                .await
                .best_effort("deleting old rows");
        }
        Ok(())
    }

    /// Deletes one kind of old rows, in batches.
    async fn delete_old(&mut self, rows: OldRows, days: u32) -> Result<()> {
        let mut deleted = 0;
        loop {
            let batch = old_rows::delete_old(self.db, rows, days).await?;
            deleted += batch;
            if batch < BATCH as u64 {
                record_deleted(rows.as_str(), deleted);
                return Ok(());
            }
        }
    }

    /// Deletes one organization's old jobs in one status, and returns their number.
    async fn old_jobs(&mut self, org_id: &OrgId, status: JobStatus, days: u32) -> Result<u64> {
        let mut deleted = 0;
        let mut after = None::<Timestamp>;
        loop {
            // Some jobs in a batch may be retained, so the next batch starts after its last job.
            let jobs = old_rows::old_jobs(&mut *self.db, org_id, status, days, after).await?;
            let Some(last) = jobs.last() else {
                return Ok(deleted);
            };
            after = Some(last.created_at);
            let job_ids: Vec<String> = jobs.into_iter().map(|job| job.id).collect();
            deleted += old_rows::delete_jobs(&mut *self.db, &job_ids).await?;
        }
    }
}

/// Counts and logs deleted rows.
fn record_deleted(kind: &'static str, rows: u64) {
    metrics::counter!(prometheus::ROWS_DELETED, "kind" => kind).increment(rows);
    if rows > 0 {
        tracing::info!(kind, rows, "old rows deleted");
    }
}

/// Removes each id's objects, several ids concurrently. Returns the ids whose objects are all
/// removed.
async fn remove(artifacts: &Artifacts, objects: Vec<(String, Vec<String>)>) -> Vec<String> {
    in_parallel(
        objects
            .into_iter()
            .map(|(id, keys)| remove_keys(artifacts.clone(), id, keys))
            .collect(),
    )
    .await
}

async fn in_parallel(removals: Vec<impl Future<Output = Option<String>>>) -> Vec<String> {
    let removed: Vec<Option<String>> = stream::iter(removals)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    removed.into_iter().flatten().collect()
}

async fn remove_keys(artifacts: Artifacts, id: String, keys: Vec<String>) -> Option<String> {
    for key in keys {
        if let Err(error) = artifacts.delete(&key).await {
            tracing::warn!(key, error = error.log_text(), "object not removed");
            return None;
        }
    }
    Some(id)
}

async fn remove_under(artifacts: Artifacts, id: String, prefix: String) -> Option<String> {
    match artifacts.delete_under(&prefix).await {
        Ok(()) => Some(id),
        Err(error) => {
            tracing::warn!(prefix, error = error.log_text(), "objects not removed");
            None
        }
    }
}

/// Returns `true` if a batch was the last one. If some objects were not removed, the next
/// batch would contain them again, so it counts as the last one too.
fn is_done(found: usize, removed: usize) -> bool {
    found < BATCH || removed < found
}
