//! `GET /v1/usage`

use assay_core::principal::Caller;
use assay_core::store::usage::MonthRow;
use assay_core::usage::{Usage, UsageLimits, UsageTotals};
use assay_core::{Result, store};

use crate::app::App;

/// What the organization has used of its plan in the present month.
pub async fn get(app: &App, caller: &Caller) -> Result<Usage> {
    // First what is not added up yet: what is added up in between is then counted twice for a moment, never left out.
    let pending = app.requests.pending(caller.org_id());
    let MonthRow { period_start, period_end, eval_items, requests, active_jobs } = store::usage::month(&app.db, caller.org_id()).await?;
    let plan = caller.plan();
    Ok(Usage {
        org_id: caller.org_id().clone(),
        plan: caller.org().plan.clone(),
        period_start,
        period_end,
        totals: UsageTotals { eval_items, requests: requests + pending },
        active_jobs,
        limits: UsageLimits { concurrent_jobs: plan.concurrent_jobs, eval_items_per_month: plan.eval_items_per_month },
    })
}
