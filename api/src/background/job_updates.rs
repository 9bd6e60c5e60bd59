//! Updates of jobs: forwards the database's notifications of changed jobs to the requests that wait
//! for them.

use std::time::Duration;

use assay_core::JobId;
use assay_core::store::job_notifications::CHANGED_CHANNEL;
use assay_core::store::{PgPool, notifications::Notifications};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};

/// Longest time until a waiting request reads its job again, in case a notification was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The notifications of changed jobs, by job id. An empty id means that notifications may have been
/// missed.
#[derive(Clone)]
pub struct JobUpdates {
    changed_ids: broadcast::Sender<String>,
    stopped: watch::Receiver<bool>,
}

impl JobUpdates {
    /// Creates the channel. When `stopped` is set, all waiting ends.
    pub fn new(stopped: watch::Receiver<bool>) -> Self {
        Self {
            changed_ids: broadcast::Sender::new(1024),
            stopped,
        }
    }

    /// Forwards the database's notifications until it is dropped.
    pub async fn forward_notifications(self, db: PgPool) {
        let mut notifications = Notifications::marking_presence(db, CHANGED_CHANNEL);
        loop {
            let changed = notifications.next().await.unwrap_or_default();
            // Sending fails if no request is waiting.
            let _ = self.changed_ids.send(changed);
        }
    }

    /// Subscribes to updates. Subscribe before reading the job: then no later change is missed.
    pub fn subscribe(&self) -> JobSubscription {
        JobSubscription {
            changed_ids: self.changed_ids.subscribe(),
            stopped: self.stopped.clone(),
        }
    }
}

/// A request's subscription to updates.
pub struct JobSubscription {
    changed_ids: broadcast::Receiver<String>,
    stopped: watch::Receiver<bool>,
}

impl JobSubscription {
    /// Returns `true` if all waiting ends because the process shuts down.
    pub fn is_shutting_down(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until the job may have changed, then returns `true`. Returns `false` if `until` is
    /// reached or the process shuts down.
    pub async fn changed_before(&mut self, job_id: &JobId, until: Instant) -> bool {
        if Instant::now() >= until || *self.stopped.borrow() {
            return false;
        }
        let next_poll = until.min(Instant::now() + POLL_INTERVAL);
        tokio::select! {
            _ = timeout_at(next_poll, wait_for_notification(&mut self.changed_ids, job_id)) => true,
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
        }
    }
}

/// Waits until the job has changed or may have changed.
async fn wait_for_notification(changed_ids: &mut broadcast::Receiver<String>, job_id: &JobId) {
    while changed_ids
        .recv()
        .await
        .is_ok_and(|changed| !changed.is_empty() && changed != job_id.as_str())
    {}
}
