//! Jobs from the submission to the result, and the queue between both.

pub mod allowance;
pub mod allowance_holders;
pub mod combined_submissions;
pub mod dependent_evals;
pub mod item_scores;
pub mod job;
pub mod job_notifications;
mod job_rows;
pub mod leases;
pub mod new_job;
pub mod queue;
pub mod queue_depth;
pub mod queue_snapshot;
pub mod submission;
pub mod trace;
pub mod work;
