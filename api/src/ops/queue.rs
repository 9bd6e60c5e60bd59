//! The totals of the queue: `GET /v1/queue`.

use assay_core::Result;
use assay_core::model::permissions::JobReader;
use assay_core::model::queue::Queue;

use crate::app::App;

/// Returns the totals of the queue, as they were last measured.
///
/// # Errors
/// `unavailable` in the first second of an installation.
pub async fn get(app: &App, _caller: &JobReader) -> Result<Queue> {
    app.jobs.queue.totals()
}
