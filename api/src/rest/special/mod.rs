//! The handlers that the declarations call special: their requests or responses have other forms than JSON objects.

mod audit;
mod boards;
mod drafts;
mod evals;
mod jobs;
mod predictions;
mod receipts;
mod serving;
mod sse;
mod suites;
mod uploads;

pub use audit::list_audit_entries;
pub use boards::get_leaderboard;
pub use drafts::{check_draft, create_draft, upload_draft_part};
pub use evals::create_eval;
pub use jobs::{get_job_trace, stream_job_output, watch_job};
pub use predictions::create_prediction;
pub use receipts::stream_suite_opening;
pub use serving::{embed, generate, predict};
pub use suites::{create_grant, retire_suite, update_suite};
pub use uploads::upload_predictions;
