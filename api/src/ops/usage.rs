//! The usage of an organization: `GET /v1/usage`.

use assay_core::model::permissions::Caller;
use assay_core::model::usage::{Usage, UsageLimits, UsageTotals};
use assay_core::store::usage::MonthRow;
use assay_core::{Result, store};

use crate::app::App;

/// Number of attempts to read the month while no counted request is written. The counts are written
/// once a second.
const MONTH_ATTEMPTS: u32 = 3;

/// Returns the usage of the organization in the current month, and the limits of its plan.
pub async fn get(app: &App, caller: &Caller) -> Result<Usage> {
    let (
        MonthRow {
            period_start,
            period_end,
            eval_items,
            requests,
            active_jobs,
            stored_bytes,
        },
        pending,
    ) = month(app, caller).await?;
    let plan = caller.plan();
    Ok(Usage {
        org_id: caller.org_id().clone(),
        plan: caller.org().plan.clone(),
        period_start,
        period_end,
        totals: UsageTotals {
            eval_items,
            requests: requests + pending,
        },
        active_jobs,
        stored_bytes,
        limits: UsageLimits {
            concurrent_jobs: plan.concurrent_jobs,
            eval_items_per_month: plan.eval_items_per_month,
            storage_bytes: plan.storage_bytes,
        },
    })
}

/// Returns the stored month, and the number of requests that it does not contain yet. The sum can
/// lag, and is never too high.
async fn month(app: &App, caller: &Caller) -> Result<(MonthRow, i64)> {
    let mut attempts = 0;
    loop {
        let pending = app.usage.pending(caller.org_id());
        let row = store::usage::month(&app.db, caller.org_id()).await?;
        attempts += 1;
        // Requests that were written during the read may be in both numbers.
        if app.usage.is_disjoint(&pending) {
            return Ok((row, pending.requests));
        }
        if attempts == MONTH_ATTEMPTS {
            return Ok((row, 0));
        }
    }
}
