//! The usage of an organization: `GET /v1/usage`.

use assay_core::model::permissions::UsageReader;
use assay_core::model::usage::{Usage, UsageLimits, UsageTotals};
use assay_core::store::usage::MonthRow;
use assay_core::{Result, store};

use crate::app::App;

/// Returns the usage of the organization in the current month, and the limits of its plan.
pub async fn get(app: &App, caller: &UsageReader) -> Result<Usage> {
    let (
        MonthRow {
            period_start,
            period_end,
            eval_items,
            requests,
            predict_items,
            generated_events,
            embeddings,
            active_jobs,
            stored_bytes,
        },
        uncounted,
    ) = app
        .usage
        .with_uncounted(
            caller.org_id(),
            store::usage::month(&app.db.get(), caller.org_id()),
        )
        .await?;
    let plan = caller.plan();
    Ok(Usage {
        org_id: caller.org_id().clone(),
        plan: caller.org().plan.clone(),
        period_start,
        period_end,
        totals: UsageTotals {
            eval_items,
            requests: requests + uncounted,
            predict_items,
            generated_events,
            embeddings,
        },
        active_jobs,
        stored_bytes,
        limits: UsageLimits {
            concurrent_jobs: plan.concurrent_jobs,
            eval_items_per_month: plan.eval_items_per_month,
            storage_bytes: plan.storage_bytes,
            predict_items_per_month: plan.predict_items_per_month,
            generated_events_per_month: plan.generated_events_per_month,
            embeddings_per_month: plan.embeddings_per_month,
        },
    })
}
