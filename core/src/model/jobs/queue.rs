//! The job queue: its totals, a job's place in it, and the workers' speed, by which a job's run time
//! is estimated.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::timestamp::Timestamp;

/// The time that a job's items may take, in seconds; above it the job is long. Jobs are not
/// preempted, so long jobs may occupy only some slots.
const LONG_SECONDS: f64 = 5.0;

/// At most one among this many choices takes the job that has waited longest. Jobs that are chosen only
/// for their age get at most this share of the run time.
pub const CHOICES_PER_OLDEST: u32 = 8;

/// The place of a job in the queue, and the estimate of its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobQueue {
    /// The number of jobs before this one that no worker has claimed, counted up to 5,000. Zero for a
    /// running job.
    #[schema(minimum = 0, maximum = 5000)]
    pub ahead: i64,
    /// The median estimate of the start. Null for a running job, and if nothing is known.
    pub estimated_start_at: Option<Timestamp>,
    /// The median estimate of the end. Null if no job has succeeded in the last hour, if no worker is
    /// alive, and while the job waits for another one.
    pub estimated_end_at: Option<Timestamp>,
    /// The time before which nine of ten such jobs end. Null if fewer than 20 jobs were estimated and
    /// have succeeded in the last hour.
    pub estimated_end_by: Option<Timestamp>,
}

/// The time from a job's submission to its end, as it is estimated before the job is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FirstEstimate {
    /// The median, in seconds.
    pub end_seconds: Option<f64>,
    /// The time that nine in ten such jobs do not exceed, in seconds.
    pub end_by_seconds: Option<f64>,
}

/// The totals of the queue, over all organizations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Queue {
    /// The time at which the queue was measured.
    pub as_of: Timestamp,
    /// The number of jobs that wait for a worker, counted up to 100,000.
    #[schema(minimum = 0)]
    pub queued: i64,
    /// The number of running jobs.
    #[schema(minimum = 0)]
    pub running: i64,
    /// The number of jobs that the live workers can run at once.
    #[schema(minimum = 0)]
    pub slots: i64,
    /// The age of the oldest job that waits for a worker, in seconds. Zero if none waits.
    #[schema(minimum = 0)]
    pub oldest_seconds: f64,
    /// The waiting times of the latest jobs that started in the last hour. Null if none did.
    pub wait_seconds: Option<WaitSeconds>,
}

/// Quantiles of waiting times, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct WaitSeconds {
    /// The time that half of the jobs did not exceed.
    #[schema(minimum = 0)]
    pub p50: f64,
    /// The time that 95 % of the jobs did not exceed.
    #[schema(minimum = 0)]
    pub p95: f64,
}

/// The speed of the workers: a job takes the overhead, and the time of the items that it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// The item count that one slot processes in a second.
    pub items_per_second: f64,
    /// The time that a job takes in addition to its items, in seconds.
    pub overhead_seconds: f64,
}

impl Speed {
    /// The speed that is assumed until jobs have been measured.
    pub const ASSUMED: Self = Self {
        items_per_second: 200_000.0,
        overhead_seconds: 0.002,
    };

    /// Returns the estimated run time for jobs that cost this many items together, in seconds.
    pub fn seconds(self, jobs: usize, cost: i64) -> f64 {
        self.overhead_seconds * jobs as f64 + cost as f64 / self.items_per_second
    }

    /// Returns the largest cost for a job that is not long, in items. The overhead does not count:
    /// otherwise every job would be long while the platform is slow, and half the slots idle.
    pub fn cost_of_short_jobs_max(self) -> i64 {
        (LONG_SECONDS * self.items_per_second) as i64
    }

    /// Returns the cost for sequences that take this many microseconds each, in items: at least one
    /// item for each.
    pub fn cost_of_sequences(self, sequences: i64, micros_each: i64) -> i64 {
        let items = (micros_each as f64 / 1e6 * self.items_per_second).max(1.0);
        (sequences as f64 * items) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_cost_the_items_of_the_same_time() {
        let speed = Speed {
            items_per_second: 1_000.0,
            overhead_seconds: 6.0,
        };
        assert_eq!(speed.cost_of_sequences(10, 5_000), 50);
        assert_eq!(speed.cost_of_sequences(10, 5), 10);
        assert_eq!(speed.cost_of_short_jobs_max(), 5_000);
        assert!((speed.seconds(2, 500) - 12.5).abs() < 1e-12);
    }
}
