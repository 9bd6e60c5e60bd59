//! Messages of `UsageService`.

use assay_core::model::usage::{Usage, UsageLimits, UsageTotals};

use super::timestamp;
use crate::v1;

impl From<Usage> for v1::Usage {
    fn from(usage: Usage) -> Self {
        let Usage {
            org_id,
            plan,
            period_start,
            period_end,
            totals,
            active_jobs,
            stored_bytes,
            limits,
        } = usage;
        let UsageTotals {
            eval_items,
            requests,
            predict_items,
            generated_events,
            embeddings,
        } = totals;
        let UsageLimits {
            concurrent_jobs,
            eval_items_per_month,
            storage_bytes,
            predict_items_per_month,
            generated_events_per_month,
            embeddings_per_month,
        } = limits;
        Self {
            org_id: org_id.into(),
            plan,
            period_start: Some(timestamp(period_start)),
            period_end: Some(timestamp(period_end)),
            totals: Some(v1::UsageTotals {
                eval_items,
                requests,
                predict_items,
                generated_events,
                embeddings,
            }),
            active_jobs,
            stored_bytes,
            limits: Some(v1::UsageLimits {
                concurrent_jobs,
                eval_items_per_month,
                storage_bytes,
                predict_items_per_month,
                generated_events_per_month,
                embeddings_per_month,
            }),
        }
    }
}
