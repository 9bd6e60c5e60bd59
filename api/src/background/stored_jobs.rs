//! Jobs that this process has stored, on their way to the dispatcher.
//!
//! While no other job waits for a notification, the transaction that stores a small job records its
//! notification as sent, and the dispatcher only sends it. Otherwise the dispatcher picks the jobs
//! to notify workers about, in queue order.

use std::sync::atomic::{AtomicUsize, Ordering};

use assay_core::store::job_notifications::JobNotification;
use assay_core::store::submission::{Stored, Submitted};
use tokio::sync::{Mutex, Notify, mpsc};

/// The most transactions whose notifications wait for the dispatcher.
const WAITING_MAX: usize = 256;

/// The jobs that this process has stored since its dispatcher's last round.
pub struct StoredJobs {
    /// The job count for which the queue has room, as far as this process knows. Zero while
    /// other jobs wait for a notification, and while Redis is unavailable.
    room: AtomicUsize,
    /// Set if jobs were stored that the dispatcher must pick. Several may become one.
    to_pick: Notify,
    sender: mpsc::Sender<Vec<JobNotification>>,
    receiver: Mutex<mpsc::Receiver<Vec<JobNotification>>>,
}

impl Default for StoredJobs {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self {
            room: AtomicUsize::new(0),
            to_pick: Notify::new(),
            sender,
            receiver: Mutex::new(receiver),
        }
    }
}

impl StoredJobs {
    /// Returns `true` if a transaction that stores these jobs may record their notifications, and
    /// takes the room for them. The next round finds room that the transaction did not use.
    pub fn take_room(&self, jobs: usize) -> bool {
        self.room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
                room.checked_sub(jobs)
            })
            .is_ok()
    }

    /// Sets how many jobs the queue has room.
    pub fn set_room(&self, jobs: usize) {
        self.room.store(jobs, Ordering::Relaxed);
    }

    /// Hands a transaction's jobs to the dispatcher.
    pub fn announce(&self, stored: &mut Stored) {
        let notifications = std::mem::take(&mut stored.notifications);
        let is_accepted = |result: &&Option<_>| matches!(result, Some(Submitted::Accepted(_)));
        if stored.results.iter().filter(is_accepted).count() > notifications.len() {
            self.to_pick.notify_one();
        }
        if !notifications.is_empty() && self.sender.try_send(notifications).is_err() {
            tracing::warn!("dispatcher behind, workers find stored jobs when they poll");
        }
    }

    /// Waits until jobs were stored that the dispatcher must pick.
    pub async fn to_pick(&self) {
        self.to_pick.notified().await;
    }

    /// Waits for notifications to send, and takes all that wait.
    pub async fn to_send(&self) -> Vec<JobNotification> {
        let mut receiver = self.receiver.lock().await;
        let mut taken = Vec::new();
        receiver.recv_many(&mut taken, WAITING_MAX).await;
        taken.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_take_no_more_than_the_room() {
        let stored = StoredJobs::default();
        assert!(!stored.take_room(1));
        stored.set_room(3);
        assert!(stored.take_room(2));
        assert!(!stored.take_room(2));
        assert!(stored.take_room(1));
    }
}
