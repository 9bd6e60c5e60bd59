//! The place of a job in the queue, and the estimate of its end.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use assay_core::model::job::{JobRow, JobStatus};
use assay_core::model::queue::{FirstEstimate, JobQueue, Queue, Speed};
use assay_core::store::queue_snapshot::{NOTIFIED_SORT_KEY, Snapshot, StoredSnapshot};
use assay_core::{Error, JobId, OrgId, Result, Timestamp};

/// The most jobs that are ordered. A job behind them has at least as many ahead.
pub const ORDERED_MAX: usize = 5_000;

/// The last queue snapshot that this process has read.
#[derive(Default)]
pub struct QueueEstimates(RwLock<Option<Arc<Known>>>);

/// A snapshot, arranged for lookups.
struct Known {
    snapshot: Snapshot,
    as_of: Timestamp,
    /// The index of each job in the order.
    places: HashMap<JobId, usize>,
    /// The job count in the order that workers were notified of: the first ones.
    notified: usize,
    costs: HashMap<OrgId, i64>,
    /// The database's time when the snapshot was read, and the time of the process's clock.
    read_at: (Timestamp, Instant),
}

impl QueueEstimates {
    fn known(&self) -> Option<Arc<Known>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the snapshot's time.
    pub fn as_of(&self) -> Option<Timestamp> {
        Some(self.known()?.as_of)
    }

    /// Replaces the snapshot.
    pub fn set(&self, stored: StoredSnapshot) {
        let snapshot = stored.snapshot;
        let places = snapshot.order.iter().enumerate();
        let known = Known {
            as_of: stored.as_of,
            places: places
                .map(|(index, place)| (place.job_id.clone(), index))
                .collect(),
            notified: snapshot
                .order
                .partition_point(|place| place.sort_key == NOTIFIED_SORT_KEY),
            costs: snapshot.costs.iter().cloned().collect(),
            read_at: (stored.read_at, Instant::now()),
            snapshot,
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(known));
    }

    /// Returns the speed of the workers, measured or assumed.
    pub fn speed(&self) -> Speed {
        self.known()
            .and_then(|known| known.snapshot.measured.speed)
            .unwrap_or(Speed::ASSUMED)
    }

    /// Returns the totals of the queue.
    ///
    /// # Errors
    /// `unavailable` until the first snapshot was read.
    pub fn totals(&self) -> Result<Queue> {
        let known = self
            .known()
            .ok_or_else(|| Error::unavailable("the queue has not been measured yet"))?;
        let snapshot = &known.snapshot;
        Ok(Queue {
            as_of: known.as_of,
            queued: snapshot.queued,
            running: snapshot.running,
            slots: snapshot.slots,
            oldest_seconds: snapshot.oldest_seconds,
            wait_seconds: snapshot.measured.wait_seconds,
        })
    }

    /// Returns the place and the estimates of a job that is queued or running. `weight` is that of the
    /// organization's plan.
    pub fn for_job(&self, job: &JobRow, weight: u32) -> Option<JobQueue> {
        if job.status.is_final() {
            return None;
        }
        let Some(known) = self.known() else {
            return Some(JobQueue::default());
        };
        Some(match job.status {
            JobStatus::Running => known.for_running(job),
            // Nothing is known about the end of the job that it waits for.
            _ if job.waits_for_job => JobQueue::default(),
            _ => match known.places.get(&job.id) {
                Some(index) => known.estimate(known.before(*index), known.as_of, job.cost),
                // Workers were notified of it after the snapshot.
                None if job.is_notified => {
                    known.estimate((known.notified, 0.0), known.as_of, job.cost)
                }
                // It was submitted after the snapshot, or is not ordered.
                None => known.estimate_new(&job.org_id, weight, job.cost),
            },
        })
    }

    /// Returns the estimate of a job that is about to be stored.
    pub fn for_new_job(&self, org_id: &OrgId, weight: u32, cost: i64) -> FirstEstimate {
        let Some(known) = self.known() else {
            return FirstEstimate::default();
        };
        let now = known.now();
        let queue = known.estimate_new(org_id, weight, cost);
        FirstEstimate {
            end_seconds: queue.estimated_end_at.map(|at| seconds_between(now, at)),
            end_by_seconds: queue.estimated_end_by.map(|at| seconds_between(now, at)),
        }
    }
}

impl Known {
    /// Returns the present time, by the database's clock.
    fn now(&self) -> Timestamp {
        let (at, instant) = self.read_at;
        plus_seconds(at, instant.elapsed().as_secs_f64())
    }

    fn for_running(&self, job: &JobRow) -> JobQueue {
        let end_at = self.snapshot.measured.speed.map(|speed| {
            // Progress is stored once a second, so a short job has none.
            let left = (1.0 - job.progress.unwrap_or(0.0)) * speed.seconds(1, job.cost);
            plus_seconds(self.now(), left)
        });
        JobQueue {
            ahead: 0,
            estimated_start_at: None,
            estimated_end_at: end_at,
            estimated_end_by: end_at.and_then(|end_at| self.end_by(end_at)),
        }
    }

    /// Returns the number of jobs before a job that is in the order, and the run time of those that
    /// wait for a notification.
    fn before(&self, index: usize) -> (usize, f64) {
        let last = index
            .checked_sub(1)
            .and_then(|last| self.snapshot.order.get(last));
        (index, last.map_or(0.0, |last| last.seconds_through))
    }

    /// Returns the number of jobs before a job that is submitted now, and the run time of those that
    /// wait for a notification.
    fn before_new(&self, org_id: &OrgId, weight: u32, cost: i64) -> (usize, f64) {
        let own = self.costs.get(org_id).copied().unwrap_or(0);
        let sort_key = own.saturating_add(cost) as f64 / f64::from(weight.max(1));
        let order = &self.snapshot.order;
        let ahead = order
            .iter()
            .filter(|place| place.sort_key <= sort_key)
            .count();
        let (_, seconds) = self.before(ahead);
        // Jobs that are not ordered are behind the others, and before a job that is behind those.
        let unordered = self.snapshot.queued as f64 - order.len() as f64;
        if ahead >= ORDERED_MAX && unordered > 0.0 {
            return (ahead, seconds * (1.0 + unordered / ahead as f64));
        }
        (ahead, seconds)
    }

    /// Estimates a job that is not in the snapshot. The queue is assumed to be as long now as it was
    /// then: other jobs have arrived since, too.
    fn estimate_new(&self, org_id: &OrgId, weight: u32, cost: i64) -> JobQueue {
        self.estimate(self.before_new(org_id, weight, cost), self.now(), cost)
    }

    /// Estimates a waiting job, `from` a time on. `ahead` jobs are before it; `seconds` is the run time
    /// of those that wait for a notification.
    fn estimate(&self, (ahead, seconds): (usize, f64), from: Timestamp, cost: i64) -> JobQueue {
        let now = self.now();
        let snapshot = &self.snapshot;
        let times = snapshot
            .measured
            .speed
            .filter(|_| snapshot.slots > 0)
            .map(|speed| {
                let slots = snapshot.slots as f64;
                let free_slots = (snapshot.slots - snapshot.running).max(0) as f64;
                // With a free slot, the first jobs start when their notifications arrive.
                let wait = if free_slots > 0.0 && seconds == 0.0 {
                    0.0
                } else {
                    (snapshot.busy_seconds + seconds) / slots
                };
                let wait = wait.max(snapshot.measured.start_seconds.unwrap_or(0.0));
                let start_at = plus_seconds(from, wait).max(now);
                (start_at, plus_seconds(start_at, speed.seconds(1, cost)))
            });
        JobQueue {
            ahead: i64::try_from(ahead.min(ORDERED_MAX)).unwrap_or(0),
            estimated_start_at: times.map(|(start_at, _)| start_at),
            estimated_end_at: times.map(|(_, end_at)| end_at),
            estimated_end_by: times.and_then(|(_, end_at)| self.end_by(end_at)),
        }
    }

    /// Returns the time before which nine of ten jobs with this estimated end have ended.
    fn end_by(&self, end_at: Timestamp) -> Option<Timestamp> {
        let now = self.now();
        let seconds = seconds_between(now, end_at);
        let ratio = self.snapshot.measured.end_by_ratio?;
        Some(plus_seconds(now, (seconds * ratio).max(seconds)))
    }
}

fn seconds_between(start: Timestamp, end: Timestamp) -> f64 {
    (end.unix_micros() - start.unix_micros()) as f64 / 1e6
}

fn plus_seconds(at: Timestamp, seconds: f64) -> Timestamp {
    at.plus_micros((seconds * 1e6) as i64)
}
