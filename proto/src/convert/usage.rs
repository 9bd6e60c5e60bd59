//! Messages of `UsageService`.

use assay_core::model::usage::{SuiteUsage, Usage, UsageDay, UsageDays, UsageLimits, UsageTotals};

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
            suites,
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
            suites: suites.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<SuiteUsage> for v1::SuiteUsage {
    fn from(usage: SuiteUsage) -> Self {
        let SuiteUsage {
            suite_id,
            submissions_today,
            max_submissions_per_day,
            resets_at,
        } = usage;
        Self {
            suite_id: suite_id.into(),
            submissions_today,
            max_submissions_per_day,
            resets_at: Some(timestamp(resets_at)),
        }
    }
}

impl From<UsageDays> for v1::ListUsageDaysResponse {
    fn from(listing: UsageDays) -> Self {
        let UsageDays { days } = listing;
        Self {
            days: days.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<UsageDay> for v1::UsageDay {
    fn from(day: UsageDay) -> Self {
        let UsageDay {
            date,
            eval_items,
            eval_items_refunded,
            jobs,
            requests,
        } = day;
        Self {
            date: date.to_string(),
            eval_items,
            eval_items_refunded,
            jobs,
            requests,
        }
    }
}
