//! The threads that compute sequences: one sequence per thread, as many threads as cores. There are
//! no batches, so a result has the same bits whatever else the engine computes.
//!
//! Admission is decided before anything waits. A sequence needs a permit, and the calls in progress
//! must leave a call enough time before its deadline: an engine that accepted more would finish
//! nothing in time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::runtime::prometheus;
use assay_engine::Scratch;
use assay_inference::ids;
use metrics::{Gauge, Histogram};
use tokio::sync::Notify;

/// Full calls for which there are permits, for each thread.
const CALLS_PER_THREAD: usize = 4;

/// The message size for which a permit is needed, in bytes. A call with long sequences needs
/// more permits than it has rows, so that waiting calls use bounded memory.
const BYTES_PER_PERMIT: usize = 64 * 1024;

/// A call's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for the result.
    Request,
    /// The call belongs to a job. Jobs use at most half the permits, except for a call that needs
    /// more and runs without other jobs.
    Job,
}

/// A call's rows.
pub trait Work: Send + Sync + 'static {
    /// Computes a row and stores its result. A long computation calls `should_stop` between its
    /// steps, and ends early if it returns `true`.
    fn compute(&self, row: usize, scratch: &mut Scratch, should_stop: &dyn Fn() -> bool);
}

/// The reason why a call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The call needs more permits than there are.
    TooLarge,
    /// Other calls have the permits, or the time before the deadline.
    Saturated,
}

/// The threads and their queue. Dropping it ends the threads after their current rows.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Notified when a call arrives.
    arrived: Condvar,
    threads: usize,
    permits_max: usize,
    permits_used: AtomicUsize,
    /// The permits that jobs use, which `permits_used` includes.
    permits_of_jobs: AtomicUsize,
    permits_used_gauge: Gauge,
    queue_gauge: Gauge,
    wait_seconds: Histogram,
}

#[derive(Default)]
struct Queue {
    /// The calls with rows that no thread has taken. Threads take one row from the first call and
    /// move the call to the end, so calls progress at the same rate.
    calls: VecDeque<Arc<QueuedCall>>,
    is_closed: bool,
}

struct QueuedCall {
    work: Arc<dyn Work>,
    rows: usize,
    /// The row count that threads have taken. Changed while the queue is locked.
    taken: AtomicUsize,
    unfinished: AtomicUsize,
    finished: Notify,
    /// Set when nobody waits for the call any more.
    is_abandoned: AtomicBool,
    row_time: Duration,
    admitted_at: Instant,
}

impl QueuedCall {
    fn waiting(&self) -> usize {
        self.rows.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system does not allow another thread.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let permits_max = threads * CALLS_PER_THREAD * ids::ROWS_MAX;
        metrics::gauge!(prometheus::ENGINE_PERMITS).set(permits_max as f64);
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            threads,
            permits_max,
            permits_used: AtomicUsize::new(0),
            permits_of_jobs: AtomicUsize::new(0),
            permits_used_gauge: metrics::gauge!(prometheus::ENGINE_PERMITS_USED),
            queue_gauge: metrics::gauge!(prometheus::ENGINE_QUEUE),
            wait_seconds: metrics::histogram!(prometheus::ENGINE_QUEUE_WAIT_SECONDS),
        });
        shared.permits_used_gauge.set(0.0);
        shared.queue_gauge.set(0.0);
        let pool = Self {
            shared: Arc::clone(&shared),
        };
        for number in 0..threads {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("sequence-{number}"))
                .spawn(move || compute_rows(&shared))?;
        }
        Ok(pool)
    }

    /// Checks that a permit is free now, before anything in a call is read.
    pub fn check(&self, priority: Priority) -> Result<(), NotAdmitted> {
        let shared = &self.shared;
        let is_full = |used: &AtomicUsize, max: usize| used.load(Ordering::Relaxed) >= max;
        let jobs_are_full = || is_full(&shared.permits_of_jobs, shared.permits_max / 2);
        if is_full(&shared.permits_used, shared.permits_max)
            || (priority == Priority::Job && jobs_are_full())
        {
            return Err(NotAdmitted::Saturated);
        }
        Ok(())
    }

    /// Takes the permits for a call with this many rows, in a message with this size.
    pub fn permits(
        &self,
        rows: usize,
        message_bytes: usize,
        priority: Priority,
    ) -> Result<Permits, NotAdmitted> {
        let count = rows.max(message_bytes.div_ceil(BYTES_PER_PERMIT));
        let shared = &self.shared;
        if count > shared.permits_max {
            return Err(NotAdmitted::TooLarge);
        }
        let half = shared.permits_max / 2;
        // A job's large call is admitted if no other job has permits.
        let job_permits = match priority {
            Priority::Request => 0,
            Priority::Job => count.min(half),
        };
        take(&shared.permits_of_jobs, job_permits, half)?;
        // Dropped if the other permits are not free.
        let mut permits = Permits {
            count: 0,
            job_permits,
            shared: Arc::clone(shared),
        };
        take(&shared.permits_used, count, shared.permits_max)?;
        permits.count = count;
        shared.permits_used_gauge.increment(count as f64);
        Ok(permits)
    }

    /// Returns the permit count.
    pub fn permits_max(&self) -> usize {
        self.shared.permits_max
    }

    /// Queues a call's rows, unless the calls before it leave too little time. `row_time` is
    /// one row's estimated time.
    ///
    /// # Errors
    /// [`NotAdmitted::Saturated`]. An idle pool admits every call, so a wrong estimate is corrected
    /// by the next measurement.
    pub fn queue(
        &self,
        work: Arc<dyn Work>,
        rows: usize,
        row_time: Duration,
        deadline: Option<Instant>,
        permits: Permits,
    ) -> Result<Admitted, NotAdmitted> {
        let shared = &self.shared;
        let call = Arc::new(QueuedCall {
            work,
            rows,
            taken: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(rows),
            finished: Notify::new(),
            is_abandoned: AtomicBool::new(false),
            row_time,
            admitted_at: Instant::now(),
        });
        let mut queue = shared.lock();
        if let Some(deadline) = deadline
            && !queue.calls.is_empty()
            && call.admitted_at + queue.time_until_done(&call, shared.threads) > deadline
        {
            return Err(NotAdmitted::Saturated);
        }
        if rows > 0 {
            queue.calls.push_back(Arc::clone(&call));
            shared.queue_gauge.increment(rows as f64);
        }
        drop(queue);
        match rows {
            1 => shared.arrived.notify_one(),
            _ => shared.arrived.notify_all(),
        }
        Ok(Admitted { call, permits })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.arrived.notify_all();
    }
}

impl Queue {
    /// Estimates the time until a call that arrives now is done: calls progress at the same rate, so
    /// each other call computes at most as many rows before that.
    fn time_until_done(&self, call: &QueuedCall, threads: usize) -> Duration {
        let rows_of = |rows: usize| u32::try_from(rows).unwrap_or(u32::MAX);
        let own = call.row_time.saturating_mul(rows_of(call.rows));
        let total = self.calls.iter().fold(own, |total, other| {
            let rows = other.waiting().min(call.rows);
            total.saturating_add(other.row_time.saturating_mul(rows_of(rows)))
        });
        total / rows_of(threads.max(1))
    }

    /// Takes a row from the first call.
    fn take(&mut self) -> Option<(Arc<QueuedCall>, usize)> {
        let call = self.calls.pop_front()?;
        let row = call.taken.fetch_add(1, Ordering::Relaxed);
        if row + 1 < call.rows {
            self.calls.push_back(Arc::clone(&call));
        }
        Some((call, row))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a row. Returns `None` when the pool is dropped.
    fn next(&self) -> Option<(Arc<QueuedCall>, usize)> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(taken) = queue.take() {
                return Some(taken);
            }
            queue = self
                .arrived
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Takes permits, unless more than `max` would be used then.
fn take(used: &AtomicUsize, count: usize, max: usize) -> Result<(), NotAdmitted> {
    let more = |used: usize| Some(used + count).filter(|used| *used <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .map_err(|_| NotAdmitted::Saturated)?;
    Ok(())
}

fn compute_rows(shared: &Shared) {
    let mut scratch = Scratch::default();
    while let Some((call, row)) = shared.next() {
        shared.queue_gauge.decrement(1.0);
        shared.wait_seconds.record(call.admitted_at.elapsed());
        let should_stop = || call.is_abandoned.load(Ordering::Relaxed);
        let compute = || call.work.compute(row, &mut scratch, &should_stop);
        // A thread that ended would leave its share in all later calls undone. The caller sees a
        // missing result.
        if catch_unwind(AssertUnwindSafe(compute)).is_err() {
            scratch = Scratch::default();
        }
        if call.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            call.finished.notify_one();
        }
    }
}

/// A call's permits, returned on drop.
pub struct Permits {
    count: usize,
    job_permits: usize,
    shared: Arc<Shared>,
}

impl Permits {
    /// Returns the permit count.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared
            .permits_of_jobs
            .fetch_sub(self.job_permits, Ordering::Relaxed);
        shared.permits_used.fetch_sub(self.count, Ordering::Relaxed);
        shared.permits_used_gauge.decrement(self.count as f64);
    }
}

/// A call in the queue. Dropping it removes the rows that no thread has taken, and stops those that
/// are being computed.
pub struct Admitted {
    call: Arc<QueuedCall>,
    permits: Permits,
}

impl Admitted {
    /// Waits until all rows are done.
    pub async fn finished(&self) {
        while self.call.unfinished.load(Ordering::Acquire) > 0 {
            self.call.finished.notified().await;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.call.is_abandoned.store(true, Ordering::Relaxed);
        if self.call.waiting() == 0 {
            return;
        }
        let shared = &self.permits.shared;
        let mut queue = shared.lock();
        let removed = self.call.waiting();
        queue.calls.retain(|call| !Arc::ptr_eq(call, &self.call));
        drop(queue);
        shared.queue_gauge.decrement(removed as f64);
    }
}

#[cfg(test)]
mod tests;
