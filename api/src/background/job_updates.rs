//! Waiting for jobs to change, without polling: the database says which job has, and this process passes it on.

use std::time::Duration;

use assay_core::JobId;
use assay_core::store::dispatch::CHANGED_CHANNEL;
use assay_core::store::{PgPool, notifications::Notifications};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};

/// How long one looks again at the latest, for the case that a notification was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The news of changed jobs. An empty text says that some may have been missed.
#[derive(Clone)]
pub struct JobUpdates {
    news: broadcast::Sender<String>,
    stopped: watch::Receiver<bool>,
}

impl JobUpdates {
    /// Nobody is waiting yet. When `stopped` is set, nobody waits any more.
    pub fn new(stopped: watch::Receiver<bool>) -> Self {
        Self {
            news: broadcast::Sender::new(1024),
            stopped,
        }
    }

    /// Passes the database's news on for as long as it is polled.
    pub async fn forward_notifications(self, db: PgPool) {
        let mut notifications = Notifications::marking_presence(db, CHANGED_CHANNEL);
        loop {
            let changed = notifications.next().await.unwrap_or_default();
            // Nobody may be waiting.
            let _ = self.news.send(changed);
        }
    }

    /// Begins to listen. What changes from here on is changed_before, so that whoever looks after this misses nothing.
    pub fn listen(&self) -> JobSubscription {
        JobSubscription {
            news: self.news.subscribe(),
            stopped: self.stopped.clone(),
        }
    }
}

/// One who waits.
pub struct JobSubscription {
    news: broadcast::Receiver<String>,
    stopped: watch::Receiver<bool>,
}

impl JobSubscription {
    /// Whether nobody waits any more, because this process ends.
    pub fn is_shutting_down(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until it makes sense to look at the job again. `false`: the time is over, or this process ends.
    pub async fn changed_before(&mut self, job_id: &JobId, until: Instant) -> bool {
        if Instant::now() >= until || *self.stopped.borrow() {
            return false;
        }
        let again = until.min(Instant::now() + POLL_INTERVAL);
        tokio::select! {
            _ = timeout_at(again, wait_for_notification(&mut self.news, job_id)) => true,
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
        }
    }
}

/// Returns when the job has changed, or may have.
async fn wait_for_notification(news: &mut broadcast::Receiver<String>, job_id: &JobId) {
    while news
        .recv()
        .await
        .is_ok_and(|changed| !changed.is_empty() && changed != job_id.as_str())
    {}
}
