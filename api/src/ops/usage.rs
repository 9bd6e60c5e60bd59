//! The usage of an organization: `/v1/usage`.

use std::collections::BTreeMap;

use assay_core::model::error::Errors;
use assay_core::model::permissions::UsageReader;
use assay_core::model::usage::{
    DAYS_DEFAULT, DAYS_MAX, SuiteUsage, Usage, UsageDay, UsageDays, UsageTotals,
};
use assay_core::model::validation;
use assay_core::store::allowance::DailyUse;
use assay_core::store::usage::{DayRow, MonthRow, SubmissionsRow};
use assay_core::{Error, OrgId, Result, Timestamp, store};

use crate::app::App;
use crate::generated::inputs;

/// Returns the usage of the organization in the current month, and the limits of its plan.
pub async fn get(app: &App, caller: &UsageReader) -> Result<Usage> {
    let (
        MonthRow {
            period_start,
            period_end,
            day_end,
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
    let suites = suites(app, caller.org_id(), day_end).await?;
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
        limits: plan.into(),
        suites,
    })
}

/// Returns the use of each suite that has a daily limit, or a submission of the organization on the
/// current day.
async fn suites(app: &App, org_id: &OrgId, resets_at: Timestamp) -> Result<Vec<SuiteUsage>> {
    let mut db = app.db.get().acquire().await?;
    let holders = store::allowance_holders::holders(&mut db, org_id).await?;
    let limited = store::allowance::daily_uses(&mut *db, org_id, &holders).await?;
    let mut suites: BTreeMap<String, SuiteUsage> = BTreeMap::new();
    for row in store::usage::submissions_today(&mut *db, org_id).await? {
        let SubmissionsRow {
            suite_id,
            submissions,
        } = row;
        let usage = SuiteUsage {
            suite_id,
            submissions_today: submissions,
            max_submissions_per_day: None,
            resets_at,
        };
        suites.insert(usage.suite_id.to_string(), usage);
    }
    // A limit counts in its own way.
    for row in limited {
        let DailyUse {
            suite_id,
            max_submissions_per_day,
            today,
        } = row;
        let usage = SuiteUsage {
            suite_id,
            submissions_today: today,
            max_submissions_per_day: Some(i64::from(max_submissions_per_day)),
            resets_at,
        };
        suites.insert(usage.suite_id.to_string(), usage);
    }
    Ok(suites.into_values().collect())
}

/// Returns the usage of the organization on each day of a range of at most [`DAYS_MAX`] days, by
/// default the last [`DAYS_DEFAULT`]. Both ends are included.
pub async fn days(
    app: &App,
    caller: &UsageReader,
    input: inputs::ListUsageDays,
) -> Result<UsageDays> {
    let inputs::ListUsageDays { from, to } = input;
    let mut errors = Errors::default();
    let from = from.map(|text| validation::date("from", &text));
    let from = errors.take(from.transpose());
    let to = to.map(|text| validation::date("to", &text));
    let to = errors.take(to.transpose());
    errors.finish()?;
    let to = match to {
        Some(to) => to,
        None => store::usage::today(&app.db.get()).await?,
    };
    let from = from.unwrap_or(to.minus_days(DAYS_DEFAULT - 1));
    if !(1..=DAYS_MAX).contains(&from.days_through(to)) {
        let message = format!(
            "must not be after `to`, {to}, and at most {} days before it",
            DAYS_MAX - 1
        );
        return Err(Error::field("from", "range", message));
    }
    // The charges of an organization with very many jobs take seconds to sum up.
    let org_id = caller.org_id();
    let _permit = app.concurrency.usage_days.acquire(org_id.as_str()).await?;
    let db = app.db.get();
    let read = store::usage::days(&db, org_id, from, to);
    let (rows, uncounted) = app.usage.with_uncounted(org_id, read).await?;
    let days = rows.into_iter().map(|row| {
        let DayRow {
            date,
            is_today,
            eval_items,
            eval_items_refunded,
            jobs,
            requests,
        } = row;
        UsageDay {
            date,
            eval_items,
            eval_items_refunded,
            jobs,
            requests: requests + if is_today { uncounted } else { 0 },
        }
    });
    Ok(UsageDays {
        days: days.collect(),
    })
}
