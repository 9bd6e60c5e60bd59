//! Job submissions: the decision about each, and the statements that store several at once.

pub mod combined_submissions;
mod job_rows;
mod locked_orgs;
pub mod new_job;
pub mod submission;
