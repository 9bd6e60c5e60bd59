//! The worker process: its lease, its slots, the two sources of jobs (notifications and polling),
//! graceful shutdown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::job_queue::{self, OnJobNotification};
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::prometheus;
use assay_core::runtime::resource_metrics::ResourceMetrics;
use assay_core::runtime::settings::ADMIN_LISTEN;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::combined_requests::{CombinedRequests, WaitingRequests, combined_requests};
use assay_core::store::leases;
use assay_core::store::work::{self, Claim, SuccessfulAttempt};
use assay_core::store::{
    self, PoolProfile, RESPONSE_TIMEOUT, TaskConnections, within_response_timeout,
};
use assay_core::{BestEffort as _, Error, JobId, Result, WorkerId};
use assay_engine_client::Engines;
use futures_util::FutureExt as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::answer_cache::AnswerCache;
use crate::attempt;
use crate::boards::compute_boards;
use crate::checker;
use crate::context::AttemptContext;
use crate::settings::Settings;

/// Lease renewal interval. Several fit into one lease.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// The time that one renewal may take. On a half-open connection it must fail early enough for
/// another attempt.
const LEASE_RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a worker polls for jobs whose notification was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The connection count for combined statements: one each for claims and results.
const TASK_CONNECTIONS: u32 = 2;

/// The state that a worker process's tasks share.
struct Worker {
    id: WorkerId,
    context: AttemptContext,
    /// The claims of the jobs of tasks, which share statements.
    claims: CombinedRequests<Vec<JobId>, Vec<Claim>>,
    /// A permit for each attempt that may run at the same time.
    slots: Arc<Semaphore>,
    slots_max: u32,
    /// Set by the shutdown signal: then no further job is claimed.
    stopped: watch::Receiver<bool>,
    /// The jobs that this process runs, with the attempt number. The database may believe
    /// that it runs more: claims whose response was lost.
    running: Mutex<HashMap<JobId, i32>>,
    /// The attempts that run.
    attempts: TaskTracker,
    /// Notified when a slot becomes free after a job that was found by polling.
    slot_freed: Notify,
}

/// Claims and scores jobs until the shutdown signal (SIGTERM or SIGINT), then finishes the running
/// ones, at most for the setting `ASSAY_DRAIN_SECONDS`. `metrics` renders the Prometheus metrics
/// for the admin port.
///
/// # Errors
/// When the admin port cannot be bound, a setting is wrong, the database's schema does not
/// fit, or a background task ends before shutdown.
pub async fn run(settings: Settings, metrics: PrometheusHandle) -> Result<(), ProcessError> {
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.common.admin_listen).await?;
    let (db, follow_primary) = store::pool_with_task(
        &settings.common.database_url,
        settings.common.database_connections,
        "assay-worker",
        PoolProfile::WORK,
    )?;
    let mut tasks = BackgroundTasks::default();
    tasks.spawn_infallible("primary", follow_primary);
    process::ensure_schema_is_current(&db).await?;
    let task_connections = TaskConnections::new(db.clone(), TASK_CONNECTIONS);
    let (results, waiting_results) = combined_requests();
    let write_waiting = write_results(task_connections.clone(), waiting_results);
    tasks.spawn_infallible("results", write_waiting);
    let artifacts = Artifacts::open(&settings.common.artifacts).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let context = AttemptContext {
        results,
        engines: Engines::new(&settings.common.engines, artifacts.clone(), cores),
        artifacts,
        answers: AnswerCache::new(db.clone(), settings.answers_bytes_max),
        hfm_sha: settings.common.hfm_sha.clone(),
        spans: Spans::open("assay-worker", &settings.common, Sampling::Upstream)?,
        db: db.clone(),
    };
    let (stop, stopped) = watch::channel(false);
    let worker_id = WorkerId::random().map_err(Error::from)?;
    let (claims, waiting_claims) = combined_requests();
    let claim_waiting = claim_jobs(task_connections, worker_id.clone(), waiting_claims);
    tasks.spawn_infallible("claims", claim_waiting);
    let worker = Arc::new(Worker {
        stopped: stopped.clone(),
        id: worker_id,
        context,
        claims,
        slots: Arc::new(Semaphore::new(settings.slots as usize)),
        slots_max: settings.slots,
        running: Mutex::default(),
        attempts: TaskTracker::new(),
        slot_freed: Notify::new(),
    });
    within_response_timeout(leases::renew_lease(&db.get(), &worker.id, worker.slots_max)).await?;
    start_background_tasks(&mut tasks, &worker, &settings)?;
    if let Some(url) = &settings.checker_database_url {
        let (checker_db, follow_primary) = checker::open(url)?;
        tasks.spawn_infallible("checker_primary", follow_primary);
        checker::ensure_rights(&checker_db).await?;
        let check_drafts = checker::check_drafts(checker_db, stopped.clone());
        tasks.spawn_infallible(checker::CHECKER, check_drafts);
    }
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, {
            let db = db.clone();
            move || process::readiness_with_database(db.clone(), stopped.clone())
        }),
    );
    tracing::info!(
        worker_id = %worker.id,
        slots = settings.slots,
        admin = %settings.common.admin_listen,
        git_sha = settings.common.git_sha,
        "working"
    );

    let failure = tokio::select! {
        signal = process::shutdown_signal() => signal.err().map(ProcessError::from),
        failure = tasks.first_failure() => Some(failure),
    };
    if let Some(error) = failure {
        // Other workers reclaim its jobs now, not only when the lease expires.
        within_response_timeout(leases::delete_lease(&db.get(), &worker.id))
            .await
            .best_effort("deleting the lease");
        return Err(error);
    }
    stop.send_replace(true);
    tracing::info!("shutdown signal received, draining");
    let drained = async {
        let checker = settings
            .checker_database_url
            .as_ref()
            .map(|_| checker::CHECKER);
        for name in [JOB_NOTIFICATIONS, JOB_POLLING, BOARDS]
            .into_iter()
            .chain(checker)
        {
            tasks
                .join(name, settings.common.drain)
                .await
                .best_effort(name);
        }
        worker.attempts.close();
        worker.attempts.wait().await;
    };
    if tokio::time::timeout(settings.common.drain, drained)
        .await
        .is_err()
    {
        tracing::warn!("drain timeout reached, remaining jobs left to other workers");
    }
    // A renewal after this would keep a lease for a process that is gone.
    tasks.abort(LEASE_RENEWAL);
    within_response_timeout(leases::delete_lease(&db.get(), &worker.id))
        .await
        .best_effort("deleting the lease");
    drop(tasks);
    worker.context.spans.clone().close().await;
    process::close(&db).await;
    Ok(())
}

const BOARDS: &str = "boards";
const JOB_NOTIFICATIONS: &str = "job_notifications";
const JOB_POLLING: &str = "job_polling";
const LEASE_RENEWAL: &str = "lease_renewal";

/// Starts the process's background tasks, except those of the pool and the admin port.
fn start_background_tasks(
    tasks: &mut BackgroundTasks,
    worker: &Arc<Worker>,
    settings: &Settings,
) -> Result<()> {
    let resource_metrics = ResourceMetrics::new(&settings.common, [("work", &worker.context.db)])?;
    tasks.spawn_infallible("resource_metrics", resource_metrics.sample(None));
    tasks.spawn_infallible(LEASE_RENEWAL, renew_leases(Arc::clone(worker)));
    tasks.spawn_infallible(JOB_POLLING, poll_for_jobs(Arc::clone(worker)));
    let computing = Arc::clone(worker);
    tasks.spawn_infallible(BOARDS, async move {
        compute_boards(&computing.context, computing.stopped.clone()).await;
    });
    tasks.spawn(JOB_NOTIFICATIONS, receive_notifications(worker, settings));
    Ok(())
}

/// Writes the attempt results.
async fn write_results(db: TaskConnections, waiting: WaitingRequests<SuccessfulAttempt, bool>) {
    let write = |attempts: Vec<SuccessfulAttempt>| {
        let db = db.clone();
        async move {
            db.execute(async |db| work::succeed_all(db, &attempts).await)
                .await
        }
    };
    waiting.execute(RESPONSE_TIMEOUT, write).await;
}

/// Claims the tasks' jobs.
async fn claim_jobs(
    db: TaskConnections,
    worker_id: WorkerId,
    waiting: WaitingRequests<Vec<JobId>, Vec<Claim>>,
) {
    let claim = |tasks: Vec<Vec<JobId>>| {
        let (db, worker_id) = (db.clone(), worker_id.clone());
        async move {
            let job_ids = tasks.concat();
            let mut claims = db
                .execute(async |db| work::claim_all(db, &worker_id, &job_ids).await)
                .await?;
            let claims_of = |job_ids: &Vec<JobId>| {
                let is_of_task = |claim: &mut Claim| job_ids.contains(&claim.job_id);
                claims.extract_if(.., is_of_task).collect()
            };
            Ok(tasks.iter().map(claims_of).collect())
        }
    };
    waiting.execute(RESPONSE_TIMEOUT, claim).await;
}

/// Handles job notifications until the shutdown signal, on its own thread: the queue's future
/// is not `Send`.
fn receive_notifications(
    worker: &Arc<Worker>,
    settings: &Settings,
) -> impl Future<Output = Result<()>> + Send + use<> {
    let handler: OnJobNotification = {
        let worker = Arc::clone(worker);
        Arc::new(move |job_ids| on_job_notification(Arc::clone(&worker), job_ids).boxed())
    };
    let url = settings.common.redis_url.clone();
    let prefix = settings.common.redis_prefix.clone();
    let stopped = worker.stopped.clone();
    let runtime = tokio::runtime::Handle::current();
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let listened = runtime.block_on(job_queue::listen(&url, &prefix, handler, stopped));
        // Nobody receives it after the drain timeout.
        let _ = done.send(listened);
    });
    async {
        ended
            .await
            .unwrap_or_else(|_| Err(Error::internal("the thread of the job queue panicked")))
    }
}

/// Claims a task's jobs when a slot is free, and starts their attempts. A task has one large job
/// or several small ones, so one slot suffices for all.
async fn on_job_notification(worker: Arc<Worker>, job_ids: Vec<JobId>) {
    let Ok(slot) = Arc::clone(&worker.slots).acquire_owned().await else {
        return;
    };
    if *worker.stopped.borrow() {
        return;
    }
    match worker.claims.execute(job_ids.clone()).await {
        // The others were cancelled, claimed by another worker, or notified twice.
        Ok(claims) => worker.start_attempts(claims, slot, FoundBy::Notification),
        Err(error) => {
            let first_job_id = job_ids.first().map(JobId::as_str);
            tracing::warn!(
                first_job_id,
                jobs = job_ids.len(),
                error = error.log_text(),
                "claim failed, jobs will be notified again"
            );
        }
    }
}

/// Claims jobs whose notification was lost, or was never sent because Redis is unavailable: as many
/// as there are free slots.
async fn poll_for_jobs(worker: Arc<Worker>) {
    let mut stopped = worker.stopped.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = worker.slot_freed.notified() => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        while let Ok(slot) = Arc::clone(&worker.slots).try_acquire_owned() {
            if *stopped.borrow() {
                return;
            }
            match within_response_timeout(work::claim_next(&worker.context.db.get(), &worker.id))
                .await
            {
                Ok(None) => break,
                Ok(Some(claim)) => worker.start_attempts(vec![claim], slot, FoundBy::Polling),
                Err(error) => {
                    tracing::warn!(error = error.log_text(), "polling for jobs failed");
                    break;
                }
            }
        }
    }
}

/// Renews the lease, and orphans claims that this process does not run.
async fn renew_leases(worker: Arc<Worker>) {
    loop {
        let busy = worker.slots_max as usize - worker.slots.available_permits();
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "busy").set(busy as f64);
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "free")
            .set((worker.slots_max as usize - busy) as f64);
        metrics::gauge!(prometheus::WORKER_ANSWERS_BYTES)
            .set(worker.context.answers.bytes() as f64);
        in_time(leases::renew_lease(
            &worker.context.db.get(),
            &worker.id,
            worker.slots_max,
        ))
        .await
        .best_effort("renewing the lease");
        let running: Vec<JobId> = worker.running().keys().cloned().collect();
        let running: Vec<&str> = running.iter().map(JobId::as_str).collect();
        match in_time(leases::orphan_unknown_claims(
            &worker.context.db.get(),
            &worker.id,
            &running,
        ))
        .await
        {
            Ok(0) => {}
            Ok(jobs) => tracing::warn!(jobs, "claims without a running attempt orphaned"),
            failed => failed.map(drop).best_effort("orphaning unknown claims"),
        }
        tokio::time::sleep(LEASE_RENEWAL_INTERVAL).await;
    }
}

async fn in_time<T>(renewal: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LEASE_RENEWAL_TIMEOUT, renewal)
        .await
        .unwrap_or_else(|late| Err(Error::unavailable(late)))
}

impl Worker {
    fn running(&self) -> MutexGuard<'_, HashMap<JobId, i32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an attempt at each job. They occupy the slot together.
    fn start_attempts(
        self: &Arc<Self>,
        claims: Vec<Claim>,
        slot: OwnedSemaphorePermit,
        found_by: FoundBy,
    ) {
        let slot = Arc::new(slot);
        for claim in claims {
            let (worker, slot) = (Arc::clone(self), Arc::clone(&slot));
            self.attempts.spawn(async move {
                let running = RunningAttempt::new(&worker, &claim);
                attempt::attempt(&worker.context, &claim).await;
                drop(running);
                drop(slot);
                if found_by == FoundBy::Polling {
                    worker.slot_freed.notify_one();
                }
            });
        }
    }
}

/// A claimed job's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    Notification,
    Polling,
}

/// An entry in the running-job list, removed on drop: also when the attempt panics.
struct RunningAttempt<'a> {
    worker: &'a Worker,
    job_id: JobId,
    attempt: i32,
}

impl<'a> RunningAttempt<'a> {
    fn new(worker: &'a Worker, claim: &Claim) -> Self {
        worker.running().insert(claim.job_id.clone(), claim.attempt);
        Self {
            worker,
            job_id: claim.job_id.clone(),
            attempt: claim.attempt,
        }
    }
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        let mut running = self.worker.running();
        // A later attempt at the same job may have started here already.
        if running.get(&self.job_id) == Some(&self.attempt) {
            running.remove(&self.job_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use assay_core::runtime::settings::Reader;

    use super::*;

    /// Starts the background tasks for a worker whose PostgreSQL and Redis are unavailable.
    async fn started(folder: &std::path::Path) -> (watch::Sender<bool>, BackgroundTasks) {
        let settings = [
            (
                "ASSAY_DATABASE_URL",
                "postgres://nobody@127.0.0.1:9/none".to_owned(),
            ),
            ("ASSAY_REDIS_URL", "redis://127.0.0.1:9".to_owned()),
            ("ASSAY_ARTIFACTS", folder.display().to_string()),
        ];
        let given = settings.map(|(name, value)| (name.to_owned(), value));
        let settings = Settings::read(Reader::new(given), "test").unwrap();
        let common = &settings.common;
        let (db, follow_primary) =
            store::pool_with_task(&common.database_url, 1, "test", PoolProfile::WORK).unwrap();
        let (stop, stopped) = watch::channel(false);
        let mut tasks = BackgroundTasks::default();
        let (results, waiting_results) = combined_requests();
        let task_connections = TaskConnections::new(db.clone(), TASK_CONNECTIONS);
        let write_waiting = write_results(task_connections.clone(), waiting_results);
        tasks.spawn_infallible("results", write_waiting);
        let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
        let context = AttemptContext {
            results,
            engines: Engines::new(&[], artifacts.clone(), 1),
            artifacts,
            answers: AnswerCache::new(db.clone(), 0),
            hfm_sha: common.hfm_sha.clone(),
            spans: Spans::open("test", common, Sampling::Upstream).unwrap(),
            db,
        };
        let worker_id = WorkerId::random().unwrap();
        let (claims, waiting_claims) = combined_requests();
        let claim_waiting = claim_jobs(task_connections, worker_id.clone(), waiting_claims);
        tasks.spawn_infallible("claims", claim_waiting);
        let worker = Arc::new(Worker {
            stopped,
            id: worker_id,
            context,
            claims,
            slots: Arc::new(Semaphore::new(1)),
            slots_max: 1,
            running: Mutex::default(),
            attempts: TaskTracker::new(),
            slot_freed: Notify::new(),
        });
        tasks.spawn_infallible("primary", follow_primary);
        start_background_tasks(&mut tasks, &worker, &settings).unwrap();
        (stop, tasks)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn early_end_of_each_task_is_a_failure() {
        let folder = std::env::temp_dir().join(format!("assay-worker-{}", std::process::id()));
        let (_stop, tasks) = started(&folder).await;
        let names = tasks.names();
        assert_eq!(
            names,
            [
                BOARDS,
                "claims",
                JOB_NOTIFICATIONS,
                JOB_POLLING,
                LEASE_RENEWAL,
                "primary",
                "resource_metrics",
                "results"
            ]
        );
        drop(tasks);
        for name in names {
            let (_stop, mut tasks) = started(&folder).await;
            tasks.abort(name);
            let failure = tasks.first_failure().await.to_string();
            assert!(
                failure.starts_with(&format!("the background task {name} failed")),
                "{failure}"
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
