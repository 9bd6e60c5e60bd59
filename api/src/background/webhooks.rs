//! Webhooks in the API process: stores new events' deliveries, and disables webhooks whose
//! receivers are gone or have failed for days.
//!
//! A webhook has a position in the event feed. Its deliveries are stored in the transaction that
//! moves the position, so each event has exactly one. Every API process does this; a lock on the
//! webhook lets one at a time.

use std::collections::HashSet;
use std::time::Duration;

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::event::EventType;
use assay_core::model::webhook::WebhookChange;
use assay_core::runtime::prometheus;
use assay_core::store::delivery::{self, Payload};
use assay_core::store::{self, audit, event, webhook, within_response_timeout};
use assay_core::{BestEffort as _, Error, OrgId, Result, WebhookId};
use futures_util::{StreamExt as _, stream};
use rand::seq::SliceRandom as _;
use tokio::time::{Instant, timeout};

use crate::app::App;
use crate::background::event_data::render;
use crate::background::job_updates::OrgsWithEvents;
use crate::background::mail;

/// Time after which all webhooks are looked at, in case a notification was missed.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which events are read again that are not shown yet, because an earlier transaction is
/// open. It doubles up to the longest one.
const REREAD_DELAY: Duration = Duration::from_millis(50);
const REREAD_DELAY_MAX: Duration = Duration::from_secs(1);

/// A transaction's largest event count.
const EVENTS_MAX: i64 = 100;

/// Time after which a round takes no further webhook from an organization with a backlog. Events
/// that other organizations have meanwhile are then in the next one.
const ROUND_DURATION: Duration = Duration::from_millis(100);

/// The most webhooks whose deliveries are stored at the same time.
const PARALLEL: usize = 4;

/// Time between two searches for webhooks that are to be disabled.
const DISABLE_INTERVAL: Duration = Duration::from_secs(1);

/// Stores deliveries and disables webhooks until it is dropped.
pub async fn run(app: App) {
    tokio::join!(store_deliveries(&app), disable_unreachable(&app));
}

async fn store_deliveries(app: &App) {
    // The organizations whose webhooks may be behind; `None` for all.
    let mut behind = None::<HashSet<String>>;
    let mut backlogged = HashSet::new();
    let mut delay = Duration::ZERO;
    loop {
        let is_up_to_date = behind.as_ref().is_some_and(HashSet::is_empty);
        let wait = if is_up_to_date { SCAN_INTERVAL } else { delay };
        match timeout(wait, app.jobs.updates.orgs_with_events()).await {
            Ok(OrgsWithEvents::Some(announced)) => {
                if let Some(behind) = &mut behind {
                    behind.extend(announced);
                }
            }
            Ok(OrgsWithEvents::Any) => behind = None,
            Err(_) if is_up_to_date => behind = None,
            Err(_) => {}
        }
        let ids: Option<Vec<String>> = behind.as_ref().map(|ids| ids.iter().cloned().collect());
        match round(app, ids.as_deref(), &backlogged).await {
            Ok(Round {
                orgs,
                with_backlog,
                is_advanced,
            }) => {
                behind = Some(orgs);
                backlogged = with_backlog;
                delay = match is_advanced {
                    true => Duration::ZERO,
                    false => (delay * 2).clamp(REREAD_DELAY, REREAD_DELAY_MAX),
                };
            }
            failed => {
                failed
                    .map(drop)
                    .best_effort("searching for new events; retried in a second");
                delay = REREAD_DELAY_MAX;
            }
        }
    }
}

/// A round's result.
struct Round {
    /// The organizations with webhooks that were behind at the round's start.
    orgs: HashSet<String>,
    /// Those that have more events than were stored, or whose webhooks were not reached.
    with_backlog: HashSet<String>,
    /// `true` if a webhook's position has changed.
    is_advanced: bool,
}

/// Stores deliveries for these organizations' webhooks that are behind, in random order. An
/// organization with many events must not delay the others: those with a backlog come last.
async fn round(
    app: &App,
    org_ids: Option<&[String]>,
    backlogged: &HashSet<String>,
) -> Result<Round> {
    let db = app.db.get();
    let mut behind = within_response_timeout(webhook::list_behind(&db, org_ids)).await?;
    behind.shuffle(&mut rand::rng());
    behind.sort_by_key(|(org_id, _)| backlogged.contains(org_id.as_str()));
    let mut round = Round {
        orgs: behind
            .iter()
            .map(|(org_id, _)| org_id.to_string())
            .collect(),
        with_backlog: HashSet::new(),
        is_advanced: false,
    };
    let started = Instant::now();
    let stored = stream::iter(behind).map(|(org_id, webhook_id)| async move {
        if backlogged.contains(org_id.as_str()) && started.elapsed() > ROUND_DURATION {
            return (org_id, Ok(Stored::Later));
        }
        let stored = within_response_timeout(store_batch(app, &org_id, &webhook_id)).await;
        (org_id, stored)
    });
    let mut stored = stored.buffer_unordered(PARALLEL);
    while let Some((org_id, stored)) = stored.next().await {
        match stored {
            Ok(Stored::Nothing) => {}
            Ok(Stored::All) => round.is_advanced = true,
            Ok(stored) => {
                round.is_advanced |= stored == Stored::Some;
                round.with_backlog.insert(org_id.to_string());
            }
            // One webhook must not stop the others.
            failed => failed
                .map(drop)
                .best_effort("storing deliveries of a webhook; the next round retries"),
        }
    }
    drop(stored);
    Ok(round)
}

/// A webhook's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// Its position has not changed.
    Nothing,
    /// All visible events' deliveries are stored.
    All,
    /// Some events' deliveries are stored, and there may be more.
    Some,
    /// It was left to the next round.
    Later,
}

/// Stores the deliveries for a webhook's next events.
async fn store_batch(app: &App, org_id: &OrgId, webhook_id: &WebhookId) -> Result<Stored> {
    let mut transaction = app.db.get().begin().await?;
    let Some(reader) = webhook::lock_reader(&mut transaction, org_id, webhook_id).await? else {
        return Ok(Stored::Nothing);
    };
    let (types, cursor) = (&reader.events, reader.cursor);
    let page = event::list(&mut *transaction, org_id, types, cursor, EVENTS_MAX).await?;
    if page.next == cursor {
        return Ok(Stored::Nothing);
    }
    let stored = match page.rows.len() == EVENTS_MAX as usize {
        true => Stored::Some,
        false => Stored::All,
    };
    let events = render(app, org_id, page.rows).await?;
    let payloads = events.into_iter().map(|event| {
        Ok(Payload {
            body: serde_json::to_string(&event).map_err(Error::internal)?,
            event_id: event.id,
        })
    });
    let payloads: Vec<Payload> = payloads.collect::<Result<_>>()?;
    delivery::insert_all(&mut transaction, org_id, webhook_id, &payloads).await?;
    webhook::set_position(&mut transaction, org_id, webhook_id, page.next).await?;
    transaction.commit().await?;
    Ok(stored)
}

async fn disable_unreachable(app: &App) {
    loop {
        disable_round(app)
            .await
            .best_effort("disabling webhooks; retried in a second");
        tokio::time::sleep(DISABLE_INTERVAL).await;
    }
}

async fn disable_round(app: &App) -> Result<()> {
    let db = app.db.get();
    let unreachable = within_response_timeout(webhook::list_unreachable(&db)).await?;
    for (org_id, webhook_id) in &unreachable {
        within_response_timeout(disable(app, org_id, webhook_id))
            .await
            .best_effort("disabling a webhook; retried in a second");
    }
    Ok(())
}

/// Disables a webhook, with its audit log entry and its event, and queues emails to the owners.
async fn disable(app: &App, org_id: &OrgId, webhook_id: &WebhookId) -> Result<()> {
    let mut transaction = app.db.get().begin().await?;
    // Another process may have disabled it, or a delivery may have succeeded meanwhile.
    let reason = webhook::lock_unreachable(&mut transaction, org_id, webhook_id).await?;
    let Some(reason) = reason else { return Ok(()) };
    let change = WebhookChange {
        disabled_reason: Some(Some(reason)),
        ..WebhookChange::default()
    };
    let disabled = webhook::update(&mut transaction, org_id, webhook_id, &change).await?;
    let entry = Change::webhook(AuditType::WebhookDisabled, webhook_id)
        .field("enabled", true, false)
        .field("disabled_reason", (), reason);
    audit::record(&mut transaction, org_id, &Actor::PLATFORM, &[entry]).await?;
    let r#type = EventType::WebhookDisabled;
    event::insert(&mut transaction, org_id, r#type, &disabled).await?;
    let org = store::org::name(&mut *transaction, org_id).await?;
    let owners = store::key::notified_addresses(&mut *transaction, org_id, &[]).await?;
    let mut emails = Vec::new();
    for owner in owners {
        if store::auth::count_notice(&mut *transaction, &owner).await? {
            emails.push(mail::webhook_disabled(&owner, &org, &disabled));
        }
    }
    transaction.commit().await?;
    for email in emails {
        app.mailer.enqueue(email);
    }
    metrics::counter!(prometheus::WEBHOOKS_DISABLED, "reason" => reason.as_str()).increment(1);
    tracing::info!(%org_id, %webhook_id, reason = reason.as_str(), "webhook disabled");
    Ok(())
}
