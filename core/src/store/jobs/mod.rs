//! Jobs after their submission: the queue, the attempts and the results.

pub mod allowance;
pub mod allowance_holders;
pub mod dependent_evals;
pub mod finalization;
pub mod item_scores;
pub mod job;
pub mod job_notifications;
pub mod leases;
pub mod queue;
pub mod queue_depth;
pub mod queue_snapshot;
pub mod trace;
pub mod work;
