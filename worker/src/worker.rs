//! A worker process: its lease, its slots, the two ways in which jobs come to it, and its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::job_queue::{self, OnBell};
use assay_core::runtime::process;
use assay_core::runtime::prometheus;
use assay_core::runtime::resource_metrics::Vitals;
use assay_core::runtime::settings::ADMIN_LISTEN;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, Bounds, within_response_timeout};
use assay_core::{CanFail as _, Error, JobId, Result, WorkerId};
use futures_util::FutureExt as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::answer_cache::Tables;
use crate::attempt::{self, Means};
use crate::settings::Settings;

/// How often the lease is renewed: several times before it would run out.
const BEAT: Duration = Duration::from_secs(2);

/// How long one renewal may take: on a connection that is dead without having been closed it must fail in time for others.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a worker looks for jobs whose bell it did not hear.
const LOOK_OUT: Duration = Duration::from_secs(1);

/// One process.
struct Worker {
    id: WorkerId,
    means: Means,
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
        Bounds::WORK,
    )?;
    process::refuse_old_schema(&db).await?;
    let means = Means {
        artifacts: Artifacts::open(&settings.common.artifacts).await?,
        tables: Tables::new(db.clone(), settings.answers_bytes_max),
        hfm_sha: settings.common.hfm_sha.clone(),
        spans: Spans::open("assay-worker", &settings.common, Sampling::Chosen)?,
        db: db.clone(),
    };
    let (stop, stopped) = watch::channel(false);
    let worker = Arc::new(Worker {
        stopped: stopped.clone(),
        id: WorkerId::random()?,
        means,
        slots: Arc::new(Semaphore::new(settings.slots as usize)),
        all_slots: settings.slots,
        held: Mutex::default(),
        freed: Notify::new(),
    });
    within_response_timeout(work::beat(&db, &worker.id)).await?;
    let admin = tokio::spawn(process::serve_operators(
        admin_listener,
        metrics,
        db.clone(),
        stopped.clone(),
    ));
    let vitals = tokio::spawn(Vitals::new(&settings.common, [("work", &db)])?.sample(None));
    let mut beat = tokio::spawn(beat(Arc::clone(&worker)));
    let mut look_out = tokio::spawn(look_out(Arc::clone(&worker)));
    let mut bells = std::pin::pin!(listen(&worker, &settings, stopped));
    tracing::info!(worker_id = %worker.id, slots = settings.slots, admin = %settings.common.admin_listen, git_sha = settings.common.git_sha, "working");

    // Without these the process would hold jobs that it does not finish: rather none than half a one.
    let broken = tokio::select! {
        told = process::told_to_end() => told.err(),
        ended = &mut beat => Some(Error::internal(format!("the lease is not renewed any more: {ended:?}"))),
        ended = &mut look_out => Some(Error::internal(format!("looking out ended: {ended:?}"))),
        () = &mut bells => Some(Error::internal("the queue is not listened to any more")),
    };
    if let Some(error) = broken {
        within_response_timeout(work::leave(&db, &worker.id))
            .await
            .can_fail("giving up the lease; it runs out by itself");
        return Err(error);
    }
    stop.send_replace(true);
    tracing::info!("told to end: finishing what was begun");
    let finished = async {
        bells.await;
        look_out.await.can_fail("looking out");
        worker
            .slots
            .acquire_many(worker.all_slots)
            .await
            .map(drop)
            .can_fail("waiting for the slots");
    };
    if tokio::time::timeout(settings.common.drain, finished)
        .await
        .is_err()
    {
        tracing::warn!("some jobs did not end in time; other workers take them over");
    }
    beat.abort();
    // What is still held is taken back at once, not when the lease runs out.
    within_response_timeout(work::leave(&db, &worker.id))
        .await
        .can_fail("giving up the lease; it runs out by itself");
    admin.abort();
    vitals.abort();
    worker.means.spans.clone().close().await;
    process::close(&db).await;
    Ok(())
}

/// Hears bells on a thread of its own: the queue's future is not one that can be spawned.
fn listen(
    worker: &Arc<Worker>,
    settings: &Settings,
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let on_bell: OnBell = {
        let worker = Arc::clone(worker);
        Arc::new(move |job_id| on_bell(Arc::clone(&worker), job_id).boxed())
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
            .block_on(job_queue::listen(&url, &prefix, slots, on_bell, stopped))
            .can_fail("listening to the queue");
        // Nobody listens when the drain took too long.
        let _ = done.send(());
    });
    async { ended.await.can_fail("listening to the queue") }
}

async fn on_bell(worker: Arc<Worker>, job_id: JobId) {
    let Ok(slot) = Arc::clone(&worker.slots).acquire_owned().await else {
        return;
    };
    if *worker.stopped.borrow() {
        return;
    }
    match within_response_timeout(work::claim(&worker.means.db, &worker.id, &job_id)).await {
        Ok(Some(claim)) => worker.attempt(claim, slot).await,
        // Cancelled, taken by another, or rung twice.
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(%job_id, %error, "a job could not be claimed; its bell is rung again")
        }
    }
}

/// Claims jobs whose bell was lost, or was never rung because Redis is away: as many as there are free slots for.
async fn look_out(worker: Arc<Worker>) {
    let mut stopped = worker.stopped.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_OUT) => {}
            () = worker.freed.notified() => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        while let Ok(slot) = Arc::clone(&worker.slots).try_acquire_owned() {
            if *stopped.borrow() {
                return;
            }
            let claim =
                match within_response_timeout(work::claim_unheard(&worker.means.db, &worker.id))
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
async fn beat(worker: Arc<Worker>) {
    loop {
        let busy = worker.all_slots as usize - worker.slots.available_permits();
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "busy").set(busy as f64);
        metrics::gauge!(prometheus::WORKER_SLOTS, "state" => "free")
            .set((worker.all_slots as usize - busy) as f64);
        metrics::gauge!(prometheus::WORKER_ANSWERS_BYTES).set(worker.means.tables.bytes() as f64);
        in_time(work::beat(&worker.means.db, &worker.id))
            .await
            .can_fail("renewing the lease");
        let held: Vec<JobId> = worker.held().keys().cloned().collect();
        let held: Vec<&str> = held.iter().map(JobId::as_str).collect();
        match in_time(work::disown(&worker.means.db, &worker.id, &held)).await {
            Ok(0) => {}
            Ok(jobs) => tracing::warn!(
                jobs,
                "jobs that were claimed and never heard of were given up"
            ),
            failed => failed.map(drop).can_fail("giving lost claims up"),
        }
        tokio::time::sleep(BEAT).await;
    }
}

async fn in_time<T>(renewal: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(BEAT_TIMEOUT, renewal)
        .await
        .unwrap_or_else(|late| Err(Error::unavailable(late)))
}

impl Worker {
    fn held(&self) -> MutexGuard<'_, HashMap<JobId, i32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, claim: Claim, slot: OwnedSemaphorePermit) {
        let held = Held::new(self, &claim);
        attempt::attempt(&self.means, &claim).await;
        drop(held);
        drop(slot);
    }
}

/// A job in the process's account, for as long as it is worked on, however that ends.
struct Held<'a> {
    worker: &'a Worker,
    job_id: JobId,
    attempt: i32,
}

impl<'a> Held<'a> {
    fn new(worker: &'a Worker, claim: &Claim) -> Self {
        worker.held().insert(claim.job_id.clone(), claim.attempt);
        Self {
            worker,
            job_id: claim.job_id.clone(),
            attempt: claim.attempt,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.worker.held();
        // A later attempt at the same job may be here already.
        if held.get(&self.job_id) == Some(&self.attempt) {
            held.remove(&self.job_id);
        }
    }
}
