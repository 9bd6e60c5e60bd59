//! Queue snapshots: one process stores one each second, and every process reads it, to
//! estimate when jobs end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use assay_core::model::queue::Speed;
use assay_core::store::queue_snapshot::{self, Measured, NOTIFIED_SORT_KEY, Place, Snapshot};
use assay_core::store::{
    Connection as _, PgConnection, queue, queue_depth, within_response_timeout,
};
use assay_core::{BestEffort as _, OrgId, Result};
use tokio::sync::watch;

use crate::app::App;
use crate::queue::estimates::ORDERED_MAX;
use crate::queue::measurements::measure;
use crate::queue::order::{ChoiceCounts, Order};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The age at which the attempts in the last hour and the last minute are read again.
const FINISHED_AGE_MAX: Duration = Duration::from_secs(5);

/// The finished jobs, as this process has read them.
struct Finished {
    read_at: Instant,
    measured: Measured,
    /// The cost of each organization's jobs that started recently.
    recent_costs: HashMap<OrgId, i64>,
}

/// Stores and reads snapshots until `stop` is set.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) {
    let mut finished = None::<Finished>;
    loop {
        within_response_timeout(refresh(&app, &mut finished))
            .await
            .best_effort("measuring the queue; the estimates are older meanwhile");
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn refresh(app: &App, finished: &mut Option<Finished>) -> Result<()> {
    store(app, finished).await?;
    let read = queue_snapshot::read(&app.db.get(), app.jobs.queue.as_of()).await?;
    if let Some(stored) = read {
        app.jobs.queue.set(stored);
    }
    Ok(())
}

/// Stores a snapshot, unless another process has just done it.
async fn store(app: &App, finished: &mut Option<Finished>) -> Result<()> {
    let mut connection = app.db.get().acquire().await?;
    let mut db = connection.begin().await?;
    if !queue_snapshot::try_begin(&mut db).await? {
        db.rollback().await?;
        return Ok(());
    }
    let known = match finished.take() {
        Some(known) if known.read_at.elapsed() < FINISHED_AGE_MAX => known,
        _ => Finished {
            read_at: Instant::now(),
            measured: measure(&queue_snapshot::measured_attempts(&mut *db).await?),
            recent_costs: queue::recent_costs(&mut *db).await?,
        },
    };
    let snapshot = take(&mut db, &known).await?;
    *finished = Some(known);
    queue_snapshot::store(&mut *db, &snapshot).await?;
    db.commit().await?;
    Ok(())
}

async fn take(db: &mut PgConnection, finished: &Finished) -> Result<Snapshot> {
    let Finished {
        measured,
        recent_costs,
        ..
    } = finished;
    let speed = measured.speed.unwrap_or(Speed::ASSUMED);
    let depth = queue_depth::measure(&mut *db).await?;
    let busy = queue::busy(&mut *db, i64::MAX).await?;
    let mut active = recent_costs.clone();
    let mut busy_seconds = 0.0;
    for jobs in busy.jobs {
        let count = usize::try_from(jobs.jobs()).unwrap_or(0);
        busy_seconds += speed.seconds(count, jobs.remaining_cost);
        *active.entry(jobs.org_id).or_default() += jobs.cost;
    }
    let mut costs = active.clone();
    for (org_id, cost) in queue_snapshot::waiting_costs(&mut *db).await? {
        *costs.entry(org_id).or_default() += cost;
    }
    let notified = queue_snapshot::notified_jobs(&mut *db, ORDERED_MAX).await?;
    let waiting = queue::waiting(db, &active, ORDERED_MAX, i64::MAX).await?;
    let mut order = Order::new(waiting, speed, ChoiceCounts::default());
    // Their run time is a part of the busy time.
    let notified = notified.into_iter().map(|job_id| Place {
        job_id,
        sort_key: NOTIFIED_SORT_KEY,
        seconds_through: 0.0,
    });
    let mut seconds_through = 0.0;
    let waiting = std::iter::from_fn(|| order.take()).map(|(job, sort_key)| {
        seconds_through += speed.seconds(1, job.cost);
        Place {
            job_id: job.job_id,
            sort_key,
            seconds_through,
        }
    });
    Ok(Snapshot {
        queued: depth.queued as i64,
        running: depth.running as i64,
        slots: i64::from(busy.slots),
        oldest_seconds: depth.queued_seconds,
        measured: *measured,
        busy_seconds,
        order: notified.chain(waiting).take(ORDERED_MAX).collect(),
        costs: costs.into_iter().collect(),
    })
}
