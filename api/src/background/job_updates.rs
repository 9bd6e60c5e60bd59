//! Job updates: forwards the database's notifications about changed jobs, and about events, to the
//! requests that wait for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::store::job_notifications::{ALL_ORGS, CHANGED_CHANNEL};
use assay_core::store::{PrimaryPool, notifications::Notifications};
use assay_core::{JobId, OrgId};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// Longest time until a waiting request reads its job again, in case a notification was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A job's progress, by its notifications since the first request began to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// It has not changed.
    None,
    /// It has changed, but not finished.
    Changed,
    /// It may have finished.
    MayHaveFinished,
}

/// The jobs for which requests wait, by their ids, and the organizations whose events they wait for.
type Awaited = Mutex<HashMap<String, watch::Sender<Progress>>>;

/// The organizations with new events.
#[derive(Debug, PartialEq, Eq)]
pub enum OrgsWithEvents {
    /// Any organization, because notifications may have been missed.
    Any,
    /// The organizations with these ids.
    Some(HashSet<String>),
}

/// The organizations with events that were not looked at yet.
struct Announced {
    orgs: Mutex<OrgsWithEvents>,
    added: Notify,
}

/// The notifications about changed jobs, for the requests that wait for them.
#[derive(Clone)]
pub struct JobUpdates {
    awaited: Arc<Awaited>,
    announced: Arc<Announced>,
    /// Wakes up the dispatcher.
    finished: Arc<Notify>,
    stopped: watch::Receiver<bool>,
}

impl JobUpdates {
    /// Creates the channel. When `stopped` is set, all waiting ends.
    pub fn new(stopped: watch::Receiver<bool>) -> Self {
        Self {
            awaited: Arc::default(),
            announced: Arc::new(Announced {
                orgs: Mutex::new(OrgsWithEvents::Any),
                added: Notify::new(),
            }),
            finished: Arc::default(),
            stopped,
        }
    }

    /// Waits for new events, and returns the organizations that had some since the last call.
    pub async fn orgs_with_events(&self) -> OrgsWithEvents {
        let nothing = || OrgsWithEvents::Some(HashSet::new());
        loop {
            let added = self.announced.added.notified();
            let found = std::mem::replace(&mut *self.announced.lock(), nothing());
            if found != nothing() {
                return found;
            }
            added.await;
        }
    }

    /// Waits until a job has finished, or may have. Several may become one. For one task.
    pub async fn finished(&self) {
        self.finished.notified().await;
    }

    /// Wakes up the requests that send an organization's events, as a new event does.
    pub fn announce_events(&self, org_id: &OrgId) {
        self.announced.add(Some(org_id.as_str()));
    }

    /// Forwards the database's notifications until it is dropped.
    pub async fn forward_notifications(self, db: PrimaryPool) {
        let mut notifications = Notifications::marking_presence(db, CHANGED_CHANNEL);
        loop {
            self.forward(notifications.next().await.as_deref());
        }
    }

    /// Forwards a notification, or `None` if some may have been missed.
    fn forward(&self, changed: Option<&str>) {
        // A new event for all organizations may be one for each waiting request.
        let changed = changed.filter(|changed| *changed != ALL_ORGS);
        self.announced.add(changed);
        let awaited = lock(&self.awaited);
        if changed.is_none_or(|changed| !changed.contains(' ')) {
            self.finished.notify_one();
        }
        let Some(changed) = changed else {
            for job in awaited.values() {
                advance(job, Progress::MayHaveFinished);
            }
            return;
        };
        let (job_id, progress) = match changed.split_once(' ') {
            Some((job_id, _status)) => (job_id, Progress::Changed),
            None => (changed, Progress::MayHaveFinished),
        };
        if let Some(job) = awaited.get(job_id) {
            advance(job, progress);
        }
    }

    /// Subscribes to a job's updates. Subscribe before reading the job: then no later change is
    /// missed.
    pub fn subscribe(&self, job_id: &JobId) -> JobSubscription {
        self.subscribe_to(job_id.as_str())
    }

    /// Subscribes to an organization's events: each is as a job's end. Subscribe before
    /// reading the events.
    pub fn subscribe_to_org(&self, org_id: &OrgId) -> JobSubscription {
        self.subscribe_to(org_id.as_str())
    }

    fn subscribe_to(&self, id: &str) -> JobSubscription {
        let progress = lock(&self.awaited)
            .entry(id.to_owned())
            .or_insert_with(|| watch::Sender::new(Progress::None))
            .subscribe();
        JobSubscription {
            awaited: Arc::clone(&self.awaited),
            id: id.to_owned(),
            progress,
            stopped: self.stopped.clone(),
        }
    }
}

impl Announced {
    /// Adds a notification's organization, or any organization if some may have been missed.
    fn add(&self, changed: Option<&str>) {
        match (changed, &mut *self.lock()) {
            (Some(id), OrgsWithEvents::Some(orgs)) if id.starts_with("org_") => {
                orgs.insert(id.to_owned());
            }
            (None, orgs) => *orgs = OrgsWithEvents::Any,
            _ => return,
        }
        self.added.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, OrgsWithEvents> {
        self.orgs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(awaited: &Awaited) -> MutexGuard<'_, HashMap<String, watch::Sender<Progress>>> {
    awaited.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes up the requests that wait for the job. A job that may have finished stays so: a request
/// can skip a notification that another one follows quickly.
fn advance(job: &watch::Sender<Progress>, progress: Progress) {
    job.send_modify(|current| *current = progress.max(*current));
}

/// A request's subscription to a job's updates.
pub struct JobSubscription {
    awaited: Arc<Awaited>,
    id: String,
    progress: watch::Receiver<Progress>,
    stopped: watch::Receiver<bool>,
}

impl JobSubscription {
    /// Returns `true` if all waiting ends because the process shuts down.
    pub fn is_shutting_down(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until the job may have changed, then returns `true`. Returns `false` if `until` is
    /// reached or the process shuts down.
    pub async fn changed_before(&mut self, until: Instant) -> bool {
        self.reaches_before(Progress::Changed, until).await
    }

    /// Waits until the job may have finished, then returns `true`. Returns `false` if `until` is
    /// reached or the process shuts down.
    pub async fn finished_before(&mut self, until: Instant) -> bool {
        self.reaches_before(Progress::MayHaveFinished, until).await
    }

    async fn reaches_before(&mut self, awaited: Progress, until: Instant) -> bool {
        if Instant::now() >= until || *self.stopped.borrow() {
            return false;
        }
        let next_poll = until.min(Instant::now() + POLL_INTERVAL);
        let progress = &mut self.progress;
        let reached = async {
            // The sender lives as long as this receiver.
            while progress.changed().await.is_ok() && *progress.borrow_and_update() < awaited {}
        };
        tokio::select! {
            reached = timeout_at(next_poll, reached) => reached.is_ok() || next_poll < until,
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
        }
    }
}

impl Drop for JobSubscription {
    fn drop(&mut self) {
        let mut awaited = lock(&self.awaited);
        let is_last = awaited
            .get(&self.id)
            .is_some_and(|job| job.receiver_count() == 1);
        if is_last {
            awaited.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shorter than [`POLL_INTERVAL`].
    const SOON: Duration = Duration::from_millis(200);

    fn updates() -> (watch::Sender<bool>, JobUpdates) {
        let (stop, stopped) = watch::channel(false);
        (stop, JobUpdates::new(stopped))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wake_up_for_their_own_job() {
        let (_stop, updates) = updates();
        let (own, other) = (JobId::random().unwrap(), JobId::random().unwrap());
        let mut subscription = updates.subscribe(&own);
        updates.forward(Some(other.as_str()));
        assert!(!subscription.changed_before(Instant::now() + SOON).await);
        updates.forward(Some(&format!("{own} running")));
        assert!(!subscription.finished_before(Instant::now() + SOON).await);
        updates.forward(Some(own.as_str()));
        let began = Instant::now();
        assert!(subscription.finished_before(began + SOON).await);
        assert!(began.elapsed() < SOON);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_job_is_not_hidden_by_later_notification() {
        let (_stop, updates) = updates();
        let job_id = JobId::random().unwrap();
        for missed in [None, Some(job_id.as_str())] {
            let mut subscription = updates.subscribe(&job_id);
            updates.forward(missed);
            updates.forward(Some(&format!("{job_id} running")));
            assert!(subscription.finished_before(Instant::now() + SOON).await);
        }
    }

    #[tokio::test]
    async fn organizations_with_events_are_returned_once() {
        let (_stop, updates) = updates();
        assert_eq!(updates.orgs_with_events().await, OrgsWithEvents::Any);
        for changed in ["org_1", "org_2", "job_1", "org_1"] {
            updates.forward(Some(changed));
        }
        let both = HashSet::from(["org_1", "org_2"].map(String::from));
        assert_eq!(updates.orgs_with_events().await, OrgsWithEvents::Some(both));
        let none = tokio::time::timeout(SOON, updates.orgs_with_events()).await;
        assert!(none.is_err(), "{none:?}");
        for changed in [None, Some(ALL_ORGS)] {
            updates.forward(changed);
            updates.forward(Some("org_1"));
            assert_eq!(updates.orgs_with_events().await, OrgsWithEvents::Any);
        }
    }

    #[tokio::test]
    async fn jobs_are_forgotten_with_their_last_request() {
        let (_stop, updates) = updates();
        let job_id = JobId::random().unwrap();
        let first = updates.subscribe(&job_id);
        let second = updates.subscribe(&job_id);
        drop(first);
        assert_eq!(lock(&updates.awaited).len(), 1);
        drop(second);
        assert!(lock(&updates.awaited).is_empty());
    }
}
