//! A worker process: its lease, its slots, the two ways in which jobs come to it, and its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::job_queue::{self, OnJobNotification};
use assay_core::runtime::process;
use assay_core::runtime::prometheus;
use assay_core::runtime::resource_metrics::ResourceMetrics;
use assay_core::runtime::settings::ADMIN_LISTEN;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PoolProfile, within_response_timeout};
use assay_core::{BestEffort as _, Error, JobId, Result, WorkerId};
use futures_util::FutureExt as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::answer_cache::AnswerCache;
use crate::attempt::{self, AttemptContext};
use crate::settings::Settings;

/// How often the lease is renewed: several times before it would run out.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// How long one renewal may take: on a connection that is dead without having been closed it must fail in time for others.
const LEASE_RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a worker looks for jobs whose bell it did not hear.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One process.
struct Worker {
    id: WorkerId,
    context: AttemptContext,
    slots: Arc<Semaphore>,
    all_slots: u32,
    /// Set when the process was told to end: then nothing new is begun.
    stopped: watch::Receiver<bool>,
    /// What is being done, for telling it apart from what only the database believes.
    held: Mutex<HashMap<JobId, i32>>,
    /// Set when a slot came free after a job that was found by looking out.
    freed: Notify,
}

/// Works until the process is told to end (SIGTERM or SIGINT), then finishes what it has begun.
/// `metrics` is what operators are shown.
pub async fn run(settings: Settings, metrics: PrometheusHandle) -> Result<()> {
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.common.admin_listen).await?;
    let db = store::pool(
        &settings.common.database_url,
        settings.common.database_connections,
        "assay-worker",
        PoolProfile::WORK,
    )?;
    process::ensure_schema_is_current(&db).await?;
    let context = AttemptContext {
        artifacts: Artifacts::open(&settings.common.artifacts).await?,
        answers: AnswerCache::new(db.clone(), settings.answers_bytes_max),
        hfm_sha: settings.common.hfm_sha.clone(),
        spans: Spans::open("assay-worker", &settings.common, Sampling::Chosen)?,
        db: db.clone(),
    };
    let (stop, stopped) = watch::channel(false);
    let worker = Arc::new(Worker {
        stopped: stopped.clone(),
        id: WorkerId::random()?,
        context,
        slots: Arc::new(Semaphore::new(settings.slots as usize)),
        all_slots: settings.slots,
        held: Mutex::default(),
        freed: Notify::new(),
    });
    within_response_timeout(work::renew_lease(&db, &worker.id)).await?;
    let admin = tokio::spawn(process::serve_admin(
        admin_listener,
        metrics,
        db.clone(),
        stopped.clone(),
    ));
    let resource_metrics =
        tokio::spawn(ResourceMetrics::new(&settings.common, [("work", &db)])?.sample(None));
    let mut beat = tokio::spawn(renew_leases(Arc::clone(&worker)));
    let mut poll_for_jobs = tokio::spawn(poll_for_jobs(Arc::clone(&worker)));
    let mut bells = std::pin::pin!(listen(&worker, &settings, stopped));
    tracing::info!(worker_id = %worker.id, slots = settings.slots, admin = %settings.common.admin_listen, git_sha = settings.common.git_sha, "working");

    // Without these the process would hold jobs that it does not finish: rather none than half a one.
    let broken = tokio::select! {
        told = process::shutdown_signal() => told.err(),
        ended = &mut beat => Some(Error::internal(format!("the lease is not renewed any more: {ended:?}"))),
        ended = &mut poll_for_jobs => Some(Error::internal(format!("looking out ended: {ended:?}"))),
        () = &mut bells => Some(Error::internal("the queue is not listened to any more")),
    };
    if let Some(error) = broken {
        within_response_timeout(work::delete_lease(&db, &worker.id))
            .await
            .best_effort("giving up the lease; it runs out by itself");
        return Err(error);
    }
    stop.send_replace(true);
    tracing::info!("told to end: finishing what was begun");
    let finished = async {
        bells.await;
        poll_for_jobs.await.best_effort("looking out");
        worker
            .slots
            .acquire_many(worker.all_slots)
            .await
            .map(drop)
            .best_effort("waiting for the slots");
    };
    if tokio::time::timeout(settings.common.drain, finished)
        .await
        .is_err()
    {
        tracing::warn!("some jobs did not end in time; other workers take them over");
    }
    beat.abort();
    // What is still held is taken back at once, not when the lease runs out.
    within_response_timeout(work::delete_lease(&db, &worker.id))
        .await
        .best_effort("giving up the lease; it runs out by itself");
    admin.abort();
    resource_metrics.abort();
    worker.context.spans.clone().close().await;
    process::close(&db).await;
    Ok(())
}

/// Hears bells on a thread of its own: the queue's future is not one that can be spawned.
fn listen(
    worker: &Arc<Worker>,
    settings: &Settings,
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let on_job_notification: OnJobNotification = {
        let worker = Arc::clone(worker);
        Arc::new(move |job_id| on_job_notification(Arc::clone(&worker), job_id).boxed())
    };
    let (url, prefix, slots) = (
        settings.common.redis_url.clone(),
        settings.common.redis_prefix.clone(),
        settings.slots as usize,
    );
    let runtime = tokio::runtime::Handle::current();
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        runtime
            .block_on(job_queue::listen(
                &url,
                &prefix,
                slots,
                on_job_notification,
                stopped,
            ))
            .best_effort("listening to the queue");
        // Nobody listens when the drain took too long.
        let _ = done.send(());
    });
    async { ended.await.best_effort("listening to the queue") }
}

async fn on_job_notification(worker: Arc<Worker>, job_id: JobId) {
    let Ok(slot) = Arc::clone(&worker.slots).acquire_owned().await else {
        return;
    };
    if *worker.stopped.borrow() {
        return;
    }
    match within_response_timeout(work::claim(&worker.context.db, &worker.id, &job_id)).await {
        Ok(Some(claim)) => worker.attempt(claim, slot).await,
        // Cancelled, taken by another, or rung twice.
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(%job_id, %error, "a job could not be claimed; its bell is rung again");
        }
    }
}

/// Claims jobs whose bell was lost, or was never rung because Redis is away: as many as there are free slots for.
async fn poll_for_jobs(worker: Arc<Worker>) {
    let mut stopped = worker.stopped.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = worker.freed.notified() => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        while let Ok(slot) = Arc::clone(&worker.slots).try_acquire_owned() {
            if *stopped.borrow() {
                return;
            }
            let claim =
                match within_response_timeout(work::claim_next(&worker.context.db, &worker.id))
                    .await
                {
                    Ok(Some(claim)) => claim,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "cannot look for jobs");
                        break;
                    }
                };
            let worker = Arc::clone(&worker);
            tokio::spawn(async move {
                worker.attempt(claim, slot).await;
                worker.freed.notify_one();
            });
        }
    }
}

/// Renews the lease, and gives up what the database believes this process to hold although it does not.
async fn renew_leases(worker: Arc<Worker>) {
    loop {
        let busy = worker.all_slots as usize - worker.slots.available_permits();
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "busy").set(busy as f64);
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "free")
            .set((worker.all_slots as usize - busy) as f64);
        metrics::gauge!(prometheus::WORKER_ANSWERS_BYTES)
            .set(worker.context.answers.bytes() as f64);
        in_time(work::renew_lease(&worker.context.db, &worker.id))
            .await
            .best_effort("renewing the lease");
        let held: Vec<JobId> = worker.held().keys().cloned().collect();
        let held: Vec<&str> = held.iter().map(JobId::as_str).collect();
        match in_time(work::orphan_unknown_claims(
            &worker.context.db,
            &worker.id,
            &held,
        ))
        .await
        {
            Ok(0) => {}
            Ok(jobs) => tracing::warn!(
                jobs,
                "jobs that were claimed and never heard of were given up"
            ),
            failed => failed.map(drop).best_effort("giving lost claims up"),
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
    fn held(&self) -> MutexGuard<'_, HashMap<JobId, i32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, claim: Claim, slot: OwnedSemaphorePermit) {
        let held = RunningAttempt::new(self, &claim);
        attempt::attempt(&self.context, &claim).await;
        drop(held);
        drop(slot);
    }
}

/// A job in the process's account, for as long as it is worked on, however that ends.
struct RunningAttempt<'a> {
    worker: &'a Worker,
    job_id: JobId,
    attempt: i32,
}

impl<'a> RunningAttempt<'a> {
    fn new(worker: &'a Worker, claim: &Claim) -> Self {
        worker.held().insert(claim.job_id.clone(), claim.attempt);
        Self {
            worker,
            job_id: claim.job_id.clone(),
            attempt: claim.attempt,
        }
    }
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        let mut held = self.worker.held();
        // A later attempt at the same job may be here already.
        if held.get(&self.job_id) == Some(&self.attempt) {
            held.remove(&self.job_id);
        }
    }
}
