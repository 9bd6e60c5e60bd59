//! Repeated checks of verified domains, so that users in a domain that was sold do not join its
//! former owner's organization.
//!
//! Every API process runs them. A process leases a domain before the look-up, so that two processes
//! do not check it at the same time. If the process dies, another one checks the domain a minute
//! later.

use std::time::Duration;

use assay_core::model::audit::{Actor, Change};
use assay_core::model::email_domain::DomainRecord;
use assay_core::store::audit;
use assay_core::store::email_domain::{self, DueCheck};
use assay_core::store::within_response_timeout;
use assay_core::{BestEffort as _, Result};
use futures_util::future::join_all;

use crate::app::App;

/// Time between two searches for domains that are due.
const TICK: Duration = Duration::from_secs(60);

/// The most domains that are looked up concurrently.
const BATCH: usize = 20;

/// Checks domains until it is dropped.
pub async fn run(app: App) {
    loop {
        let checked = round(&app).await;
        let is_full = checked.as_ref().is_ok_and(|checked| *checked == BATCH);
        checked.best_effort("checking verified domains; the next round retries");
        if !is_full {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Checks at most [`BATCH`] domains, and returns their number.
async fn round(app: &App) -> Result<usize> {
    let due = within_response_timeout(email_domain::lease_due(
        &app.db.get(),
        app.settings.domain_check_days,
        BATCH as i64,
    ))
    .await?;
    for checked in join_all(due.iter().map(|due| check(app, due))).await {
        checked.best_effort("checking a verified domain; retried in a minute");
    }
    Ok(due.len())
}

/// Records a check's result, and in the audit log that it disabled `auto_join`.
async fn record_result(app: &App, due: &DueCheck, is_found: bool) -> Result<Option<(i32, bool)>> {
    let (org_id, days) = (&due.org_id, app.settings.domain_check_days);
    let mut transaction = app.db.get().begin().await?;
    let recorded =
        email_domain::record_check(&mut *transaction, org_id, due, is_found, days).await?;
    if let Some((_, true)) = recorded {
        let disabled = Change::auto_join(&due.domain, true, false);
        audit::record(&mut transaction, org_id, &Actor::PLATFORM, &[disabled]).await?;
    }
    transaction.commit().await?;
    Ok(recorded)
}

/// Looks one domain up and records the result.
async fn check(app: &App, due: &DueCheck) -> Result<()> {
    let DueCheck {
        org_id,
        domain,
        token,
        ..
    } = due;
    let record = DomainRecord::new(domain, token);
    // A failed look-up does not mean that the record is missing.
    let Ok(records) = app.dns.txt_records(&record.name).await else {
        return within_response_timeout(email_domain::postpone_check(&app.db.get(), org_id, due))
            .await;
    };
    let is_found = records.contains(&record.value);
    let recorded = within_response_timeout(record_result(app, due, is_found)).await?;
    if let Some((misses, is_disabled)) = recorded
        && !is_found
    {
        tracing::warn!(%org_id, misses, auto_join_disabled = is_disabled, "record of a verified domain not found");
    }
    Ok(())
}
