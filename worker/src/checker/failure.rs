//! The end of a draft that failed.

use assay_core::Result;
use assay_core::model::draft::{DraftFailure, DraftReport};
use assay_core::store::draft_check::{self, ClaimedDraft};
use assay_core::store::{PrimaryPool, escrow};

/// Ends a draft that has failed, and deletes its files.
pub async fn fail(
    db: &PrimaryPool,
    draft: &ClaimedDraft,
    code: DraftFailure,
    message: &str,
    report: Option<&DraftReport>,
) -> Result<()> {
    let mut transaction = db.get().begin().await?;
    if draft_check::finish_failed(&mut transaction, draft, code, message, report).await? {
        escrow::delete(&mut transaction, &draft.org_id, &draft.id).await?;
        transaction.commit().await?;
        tracing::info!(draft_id = %draft.id, code = %code, "draft failed");
    }
    Ok(())
}
