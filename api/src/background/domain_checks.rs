//! Looks the records of verified domains up again, so that a domain that was sold admits nobody to its former owner.
//!
//! Every API process runs this. A domain is leased before it is looked up, so two processes do not look it up at once, and another one
//! looks it up a minute later if a process dies in between.

use std::time::Duration;

use assay_core::model::email_domain::DomainRecord;
use assay_core::store::email_domain::{self, Due};
use assay_core::store::within_response_timeout;
use assay_core::{BestEffort as _, Result};
use futures_util::future::join_all;

use crate::app::App;

/// How often to look for domains that are due.
const TICK: Duration = Duration::from_secs(60);

/// How many domains are looked up at once.
const BATCH: usize = 20;

/// Checks domains for as long as it is polled.
pub async fn run(app: App) {
    loop {
        let checked = round(&app).await;
        let is_full = checked.as_ref().is_ok_and(|checked| *checked == BATCH);
        checked.best_effort("checking verified domains; the next round does it");
        if !is_full {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Checks at most [`BATCH`] domains, and returns how many.
async fn round(app: &App) -> Result<usize> {
    let due = within_response_timeout(email_domain::lease_due(
        &app.db,
        app.settings.domain_check_days,
        BATCH as i64,
    ))
    .await?;
    for checked in join_all(due.iter().map(|due| check(app, due))).await {
        checked.best_effort("checking a verified domain; it is checked again in a minute");
    }
    Ok(due.len())
}

async fn check(app: &App, due: &Due) -> Result<()> {
    let Due {
        org_id,
        domain,
        token,
        ..
    } = due;
    let record = DomainRecord::new(domain, token);
    // A name server in trouble does not say that the record is missing.
    let Ok(shown) = app.dns.texts(&record.name).await else {
        return within_response_timeout(email_domain::postpone_check(&app.db, org_id, due)).await;
    };
    let is_found = shown.contains(&record.value);
    let recorded = within_response_timeout(email_domain::record_check(
        &app.db,
        org_id,
        due,
        is_found,
        app.settings.domain_check_days,
    ))
    .await?;
    if let Some((misses, is_disabled)) = recorded
        && !is_found
    {
        tracing::warn!(%org_id, misses, auto_join_disabled = is_disabled, "record of a verified domain not found");
    }
    Ok(())
}
