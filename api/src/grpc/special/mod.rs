//! The rpcs that the declarations call special: they stream, or do not decode or encode their messages.

mod drafts;
mod evals;
mod jobs;
mod predictions;
mod raw;
mod receipts;
mod serving;
mod suite_edits;
mod suites;
mod uploads;

use axum::Router;

use crate::app::App;

pub use drafts::{
    DRAFT_MESSAGE_MAX, check_draft, create_draft, list_draft_items, upload_draft_part,
};
pub use evals::create_eval;
pub use jobs::{get_job_trace, watch_job};
pub use predictions::create_prediction;
pub use receipts::stream_suite_opening;
pub use serving::{embed, generate, predict, stream_generate, stream_job_output};
pub use suite_edits::{create_grant, update_suite};
pub use suites::list_suite_items;
pub use uploads::{PART_MESSAGE_MAX, upload_predictions};

/// Returns the routes of the rpcs whose messages tonic does not decode or encode. The router prefers
/// them to the routes of their services.
pub fn routes() -> Router<App> {
    evals::routes()
        .merge(predictions::routes())
        .merge(suites::routes())
        .merge(drafts::routes())
}
