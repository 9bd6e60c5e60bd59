//! A process's attempts: claims due deliveries, sends them, and records the results.
//!
//! An attempt whose process dies is repeated when its lease expires, so every event is delivered at
//! least once. Arbitrarily many processes can deliver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::webhook::{DeliveryError, retry_delay};
use assay_core::runtime::prometheus;
use assay_core::store::delivery::{self, AttemptResult, ClaimedDelivery, InProgress};
use assay_core::store::notifications::Notifications;
use assay_core::store::{PrimaryPool, within_response_timeout};
use assay_core::{BestEffort as _, OrgId, Result, WebhookId};
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::deliver::sender::Sender;

/// Time after which a process looks for due deliveries without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two searches. Attempts that end meanwhile are replaced together.
const CLAIM_INTERVAL: Duration = Duration::from_millis(10);

/// Time after which it is tried again to record a result.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two delay measurements.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// Delivers until `stopped` is set, then finishes the attempts in progress. At most `limit` attempts
/// are in progress.
pub async fn run(
    db: PrimaryPool,
    sender: Arc<Sender>,
    limit: usize,
    mut stopped: watch::Receiver<bool>,
) {
    let notifications = Notifications::new(db.clone(), delivery::DUE_CHANNEL);
    // A stream keeps its state, also a subscription's, while the loop is busy with attempts.
    let notifications = stream::unfold(notifications, |mut notifications| async {
        notifications.next().await;
        notifications.discard_buffered();
        Some(((), notifications))
    });
    tokio::pin!(notifications);
    let mut attempts = Attempts {
        db,
        sender,
        limit,
        running: JoinSet::new(),
        by_webhook: HashMap::new(),
    };
    let mut next_claim = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = is_set(&mut stopped) => break,
            Some(ended) = attempts.running.join_next() => {
                // An attempt that panicked is counted until the process ends.
                if let Ok(webhook_id) = ended {
                    attempts.forget(&webhook_id);
                }
                // An attempt's place can be the one that a due delivery waits for.
                next_claim = next_claim.min(Instant::now() + CLAIM_INTERVAL);
            }
            () = sleep_until(next_claim), if attempts.running.len() < limit => {
                let interval = match within_response_timeout(attempts.claim()).await {
                    Ok(0) => POLL_INTERVAL,
                    Ok(_) => CLAIM_INTERVAL,
                    failed => {
                        failed.best_effort("claiming deliveries; retried in a second");
                        POLL_INTERVAL
                    }
                };
                next_claim = Instant::now() + interval;
            }
            Some(()) = notifications.next() => {
                next_claim = next_claim.min(Instant::now() + CLAIM_INTERVAL);
            }
        }
    }
    while attempts.running.join_next().await.is_some() {}
}

/// Waits until the shutdown signal, or its sender's end.
async fn is_set(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Exports the delivery delay until it is dropped.
pub async fn measure_delay(db: PrimaryPool) {
    loop {
        let measured = within_response_timeout(async { delivery::longest_delay(&db.get()).await });
        let delay = measured.await.unwrap_or(f64::NAN);
        metrics::gauge!(prometheus::WEBHOOK_DELAY_SECONDS).set(delay);
        tokio::time::sleep(MEASURE_INTERVAL).await;
    }
}

/// The attempts in progress.
struct Attempts {
    db: PrimaryPool,
    sender: Arc<Sender>,
    limit: usize,
    running: JoinSet<WebhookId>,
    by_webhook: HashMap<WebhookId, (OrgId, i64)>,
}

impl Attempts {
    /// Claims due deliveries for the free places, starts their attempts, and returns their number.
    async fn claim(&mut self) -> Result<usize> {
        let in_progress = self.by_webhook.iter();
        let in_progress = in_progress.map(|(webhook_id, (org_id, attempts))| InProgress {
            org_id: org_id.clone(),
            webhook_id: webhook_id.clone(),
            attempts: *attempts,
        });
        let in_progress: Vec<InProgress> = in_progress.collect();
        let free = self.limit - self.running.len();
        let claimed = delivery::claim(&self.db.get(), &in_progress, free as i64).await?;
        let count = claimed.len();
        for one in claimed {
            let (org_id, webhook_id) = (one.org_id.clone(), one.webhook_id.clone());
            let counted = self.by_webhook.entry(webhook_id.clone());
            counted.or_insert_with(|| (org_id.clone(), 0)).1 += 1;
            let (db, sender) = (self.db.clone(), Arc::clone(&self.sender));
            self.running.spawn(async move {
                attempt(&db, &sender, one).await;
                webhook_id
            });
        }
        Ok(count)
    }

    fn forget(&mut self, webhook_id: &WebhookId) {
        if let Some((_, attempts)) = self.by_webhook.get_mut(webhook_id) {
            *attempts -= 1;
            if *attempts == 0 {
                self.by_webhook.remove(webhook_id);
            }
        }
    }
}

/// Makes an attempt, and records its result. If that fails, the attempt is repeated.
async fn attempt(db: &PrimaryPool, sender: &Sender, claimed: ClaimedDelivery) {
    let started = Instant::now();
    let sent = sender.send(&claimed).await;
    let duration = started.elapsed();
    let response = sent.as_ref().ok();
    let status = response.map(|response| response.status);
    let error = match &sent {
        Ok(received) if (200..300).contains(&received.status) => None,
        Ok(_) => Some(DeliveryError::Status),
        Err(error) => Some(*error),
    };
    let outcome = error.map_or("delivered", DeliveryError::as_str);
    metrics::counter!(prometheus::WEBHOOK_ATTEMPTS, "outcome" => outcome).increment(1);
    metrics::histogram!(prometheus::WEBHOOK_ATTEMPT_SECONDS).record(duration);
    let ClaimedDelivery {
        org_id,
        webhook_id,
        id,
        attempt,
        failures,
        ..
    } = &claimed;
    tracing::debug!(%org_id, %webhook_id, delivery_id = %id, attempt, outcome, status, "delivery attempted");
    let is_gone = status == Some(410);
    let retry_in = error.filter(|_| !is_gone).and_then(|_| {
        let failures = usize::try_from(failures + 1).unwrap_or(usize::MAX);
        let asked = response.and_then(|response| response.retry_after);
        retry_delay(failures, rand::random(), asked)
    });
    let result = AttemptResult {
        response_status: status.map(i32::from),
        error,
        duration_ms: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
        retry_in,
        is_gone,
    };
    for is_last in [false, false, true] {
        let record = async { delivery::record(&db.get(), org_id, &claimed, &result).await };
        match within_response_timeout(record).await {
            Err(_) if !is_last => tokio::time::sleep(RECORD_INTERVAL).await,
            recorded => {
                recorded.best_effort("recording the result of a delivery; the attempt is repeated");
                return;
            }
        }
    }
}
