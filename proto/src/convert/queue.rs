//! Messages of `QueueService`, and the place of a job.

use assay_core::model::queue::{JobQueue, Queue, WaitSeconds};

use super::timestamp;
use crate::v1;

impl From<Queue> for v1::Queue {
    fn from(queue: Queue) -> Self {
        let Queue {
            as_of,
            queued,
            running,
            slots,
            oldest_seconds,
            wait_seconds,
        } = queue;
        Self {
            as_of: Some(timestamp(as_of)),
            queued,
            running,
            slots,
            oldest_seconds,
            wait_seconds: wait_seconds.map(|WaitSeconds { p50, p95 }| v1::WaitSeconds { p50, p95 }),
        }
    }
}

impl From<JobQueue> for v1::JobQueue {
    fn from(queue: JobQueue) -> Self {
        let JobQueue {
            ahead,
            estimated_start_at,
            estimated_end_at,
            estimated_end_by,
        } = queue;
        Self {
            ahead,
            estimated_start_at: estimated_start_at.map(timestamp),
            estimated_end_at: estimated_end_at.map(timestamp),
            estimated_end_by: estimated_end_by.map(timestamp),
        }
    }
}
