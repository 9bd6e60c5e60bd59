//! Waiting for jobs to end, without polling: the database says which job has ended, and this process passes it on.

use std::time::Duration;

use assay_core::JobId;
use assay_core::store::dispatch::ENDED_CHANNEL;
use assay_core::store::{PgPool, notifications::Notifications};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};

/// How long one looks again at the latest, for the case that a notification was missed.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The news of ended jobs. An empty text says that some may have been missed.
#[derive(Clone)]
pub struct Endings {
    news: broadcast::Sender<String>,
    stopped: watch::Receiver<bool>,
}

impl Endings {
    /// Nobody is waiting yet. When `stopped` is set, nobody waits any more.
    pub fn new(stopped: watch::Receiver<bool>) -> Self {
        Self { news: broadcast::Sender::new(1024), stopped }
    }

    /// Passes the database's news on for as long as it is polled.
    pub async fn pass_on(self, db: PgPool) {
        let mut notifications = Notifications::new(db, ENDED_CHANNEL);
        loop {
            let ended = notifications.next().await.unwrap_or_default();
            // Nobody may be waiting.
            let _ = self.news.send(ended);
        }
    }

    /// Begins to listen. What ends from here on is heard, so that whoever looks after this misses nothing.
    pub fn listen(&self) -> Ear {
        Ear { news: self.news.subscribe(), stopped: self.stopped.clone() }
    }
}

/// One who waits.
pub struct Ear {
    news: broadcast::Receiver<String>,
    stopped: watch::Receiver<bool>,
}

impl Ear {
    /// Waits until it makes sense to look at the job again. `false`: the time is over, or this process ends.
    pub async fn heard(&mut self, job_id: &JobId, until: Instant) -> bool {
        if Instant::now() >= until || *self.stopped.borrow() {
            return false;
        }
        let again = until.min(Instant::now() + LOOK_AGAIN);
        tokio::select! {
            _ = timeout_at(again, told(&mut self.news, job_id)) => true,
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
        }
    }
}

/// Returns when the job has ended, or may have.
async fn told(news: &mut broadcast::Receiver<String>, job_id: &JobId) {
    while news.recv().await.is_ok_and(|ended| !ended.is_empty() && ended != job_id.as_str()) {}
}
