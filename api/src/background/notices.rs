//! Notices: the events and emails that no request causes. Keys that expire soon, usage that has
//! reached a limit for its month, and the emails that users have turned on.
//!
//! Every API process looks for them once a minute. A notice is recorded in its event's transaction,
//! so two processes do not send it twice. An email is lost if the process dies before it is sent;
//! its event is not.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_core::model::event::EventType;
use assay_core::model::key::ApiKey;
use assay_core::store::{self, within_response_timeout};
use assay_core::{BestEffort as _, OrgId, Result};

use crate::app::App;
use crate::background::mail;

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// Largest key count of a transaction, which requests with these keys may wait for.
const BATCH: i64 = 10;

/// The most users whose news are taken in a transaction.
const USERS: i64 = 100;

/// Sends notices until it is dropped.
pub async fn run(app: App) {
    loop {
        expiring_keys(&app)
            .await
            .best_effort("sending notices of expiring keys; the next round retries");
        within_response_timeout(usage_thresholds(&app))
            .await
            .best_effort("storing events of usage; the next round retries");
        news(&app)
            .await
            .best_effort("sending emails about jobs and usage; the next round retries");
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn usage_thresholds(app: &App) -> Result<()> {
    let mut transaction = app.db.get().begin().await?;
    store::event::insert_usage_thresholds(&mut transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// Sends the emails that users have turned on. Those that do not fit into the queue wait for the
/// next round.
async fn news(app: &App) -> Result<()> {
    while app.mailer.has_room_for_notices() {
        let mut db = app.db.get().acquire().await?;
        let taken = store::mail_preferences::take_news(&mut db, USERS);
        let (news, users) = within_response_timeout(taken).await?;
        for news in news {
            app.mailer
                .enqueue(mail::news(&app.settings.public_url, &news));
        }
        if users < USERS as usize {
            break;
        }
    }
    Ok(())
}

async fn expiring_keys(app: &App) -> Result<()> {
    while within_response_timeout(batch_of_expiring_keys(app)).await? == BATCH as usize {}
    Ok(())
}

/// Stores the events about keys that expire soon, and queues the emails: one for an address and an
/// organization. Returns the key count.
async fn batch_of_expiring_keys(app: &App) -> Result<usize> {
    let mut expiring: BTreeMap<OrgId, Vec<ApiKey>> = BTreeMap::new();
    let mut emails = Vec::new();
    let mut transaction = app.db.get().begin().await?;
    let taken = store::key::take_expiring(&mut transaction, BATCH).await?;
    for (org_id, key_id) in &taken {
        if let Some((key, _)) = store::key::lock(&mut transaction, org_id, key_id).await? {
            store::event::insert(&mut transaction, org_id, EventType::KeyExpiring, &key).await?;
            expiring.entry(org_id.clone()).or_default().push(key);
        }
    }
    for (org_id, keys) in &expiring {
        let org = store::org::name(&mut *transaction, org_id).await?;
        let creators: Vec<_> = keys.iter().map(|key| &key.created_by).collect();
        let addresses =
            store::key::notified_addresses(&mut *transaction, org_id, &creators).await?;
        for address in addresses {
            // Members can create keys, so nobody gets more such emails than invites.
            if store::auth::count_notice(&mut *transaction, &address).await? {
                emails.push(mail::keys_expiring(&address, &org, keys));
            }
        }
    }
    transaction.commit().await?;
    for email in emails {
        app.mailer.enqueue(email);
    }
    Ok(taken.len())
}
