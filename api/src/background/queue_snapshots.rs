//! Snapshots of the queue: one process stores one each second, and every process reads it, to
//! estimate when jobs end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use assay_core::model::queue::Speed;
use assay_core::store::queue_snapshot::{self, Measured, Place, Snapshot};
use assay_core::store::{
    Connection as _, PgConnection, queue, queue_depth, within_response_timeout,
};
use assay_core::{BestEffort as _, Result};
use tokio::sync::watch;

use crate::app::App;
use crate::queue::estimates::ORDERED_MAX;
use crate::queue::measurements::measure;
use crate::queue::order::Order;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time between two measurements of finished jobs.
const MEASUREMENT_INTERVAL: Duration = Duration::from_secs(5);

/// Stores and reads snapshots until `stop` is set.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) {
    let mut measured_at = None::<Instant>;
    loop {
        within_response_timeout(refresh(&app, &mut measured_at))
            .await
            .best_effort("measuring the queue; the estimates are older meanwhile");
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn refresh(app: &App, measured_at: &mut Option<Instant>) -> Result<()> {
    store(app, measured_at).await?;
    let read = queue_snapshot::read(&app.db.get(), app.queue.as_of()).await?;
    if let Some(stored) = read {
        app.queue.set(stored);
    }
    Ok(())
}

/// Stores a snapshot, unless another process has just done it.
async fn store(app: &App, measured_at: &mut Option<Instant>) -> Result<()> {
    let mut connection = app.db.get().acquire().await?;
    let mut db = connection.begin().await?;
    let Some(before) = queue_snapshot::try_begin(&mut db).await? else {
        db.rollback().await?;
        return Ok(());
    };
    let measured = if measured_at.is_none_or(|at| at.elapsed() >= MEASUREMENT_INTERVAL) {
        *measured_at = Some(Instant::now());
        measure(&queue_snapshot::measured_attempts(&mut *db).await?)
    } else {
        before
    };
    let snapshot = take(&mut db, measured).await?;
    queue_snapshot::store(&mut *db, &snapshot).await?;
    db.commit().await?;
    Ok(())
}

async fn take(db: &mut PgConnection, measured: Measured) -> Result<Snapshot> {
    let speed = measured.speed.unwrap_or(Speed::ASSUMED);
    let depth = queue_depth::measure(&mut *db).await?;
    let busy = queue::busy(&mut *db, i64::MAX).await?;
    let mut active: HashMap<_, _> = queue::recent_costs(&mut *db).await?;
    let mut costs = active.clone();
    for (org_id, cost) in queue_snapshot::active_costs(&mut *db).await? {
        *costs.entry(org_id).or_default() += cost;
    }
    let mut busy_seconds = 0.0;
    for jobs in busy.jobs {
        let count = usize::try_from(jobs.jobs()).unwrap_or(0);
        busy_seconds += speed.seconds(count, jobs.remaining_cost);
        *active.entry(jobs.org_id).or_default() += jobs.cost;
    }
    let waiting = queue::waiting(db, &active, ORDERED_MAX, i64::MAX).await?;
    let mut order = Order::new(waiting, 0);
    let mut seconds_through = 0.0;
    let places = std::iter::from_fn(|| order.take()).take(ORDERED_MAX);
    let places = places.map(|(job, sort_key)| {
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
        measured,
        busy_seconds,
        order: places.collect(),
        costs: costs.into_iter().collect(),
    })
}
