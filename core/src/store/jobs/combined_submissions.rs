//! Submissions of concurrent requests, combined into one transaction.
//!
//! A transaction that stores one job costs much more for its round trips, its locks and its commit
//! than for the rows. Submissions that arrive while a transaction is executed therefore share the
//! next one. A submission that arrives alone is stored at once.
//!
//! An organization whose rows are locked by another transaction must not delay the others. The
//! common transaction leaves it out, and its submissions get a transaction of their own, which
//! waits for the locks. So does every organization after an error, which may be caused by one of
//! them.

use std::collections::{HashMap, VecDeque};

use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use super::new_job::NewJob;
use super::submission::{IfLocked, Submitted};
use crate::model::error::{Code, Error, Result};
use crate::model::ids::OrgId;
use crate::store::db::is_of_connection;

/// The largest number of jobs that one transaction stores.
const JOBS_MAX: usize = 64;

/// The largest number of submissions that are received at once.
const RECEIVED_MAX: usize = 256;

/// The largest number of submissions of one organization that wait.
const WAITING_MAX: usize = 1000;

/// A submission whose request waits for the result.
struct Waiting {
    job: NewJob,
    result: oneshot::Sender<Result<Submitted>>,
}

/// The sender of submissions.
pub struct CombinedSubmissions(mpsc::Sender<Waiting>);

/// The submissions that wait, for the task that stores them.
pub struct WaitingSubmissions(mpsc::Receiver<Waiting>);

/// Creates submissions. They wait until [`WaitingSubmissions::store`] runs.
pub fn combined_submissions() -> (CombinedSubmissions, WaitingSubmissions) {
    let (sender, receiver) = mpsc::channel(RECEIVED_MAX);
    (CombinedSubmissions(sender), WaitingSubmissions(receiver))
}

impl CombinedSubmissions {
    /// Stores a job and its charge, or records its predictions, or neither. If the request is cancelled, the job may be stored
    /// nevertheless.
    ///
    /// # Errors
    /// The error of the transaction. `unavailable` if too many submissions of the organization
    /// wait.
    pub async fn store(&self, job: NewJob) -> Result<Submitted> {
        let ended = || Error::unavailable("the task that stores submissions has ended");
        let (result, stored) = oneshot::channel();
        let waiting = Waiting { job, result };
        self.0.send(waiting).await.map_err(|_| ended())?;
        stored.await.map_err(|_| ended())?
    }
}

/// The results of a transaction: see [`Stored::results`](super::submission::Stored::results).
type Results = Result<Vec<Option<Submitted>>>;

/// Executes a transaction, and returns the jobs with the results.
type Transaction = BoxFuture<'static, (Vec<Waiting>, Results)>;

impl WaitingSubmissions {
    /// Stores submissions until all senders are dropped. `submit` executes one transaction.
    pub async fn store<F>(
        mut self,
        submit: impl Fn(Vec<NewJob>, IfLocked) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = Results> + Send + 'static,
    {
        let start = move |waiting: Vec<Waiting>, if_locked| -> Transaction {
            let jobs = waiting.iter().map(|waiting| waiting.job.clone()).collect();
            let results = submit(jobs, if_locked);
            Box::pin(async move { (waiting, results.await) })
        };
        let mut queues = Queues::default();
        let mut common: OptionFuture<Transaction> = None.into();
        let mut common_runs = false;
        let mut own = FuturesUnordered::new();
        let mut received = Vec::with_capacity(RECEIVED_MAX);
        let mut senders_exist = true;
        loop {
            if !common_runs {
                let next = queues.take_common();
                common_runs = !next.is_empty();
                common = common_runs.then(|| start(next, IfLocked::Skip)).into();
            }
            for (org_id, next) in queues.take_own() {
                let transaction = start(next, IfLocked::Wait);
                own.push(async move { (org_id, transaction.await) });
            }
            tokio::select! {
                count = self.0.recv_many(&mut received, RECEIVED_MAX), if senders_exist => {
                    senders_exist = count > 0;
                    for waiting in received.drain(..) {
                        queues.add(waiting);
                    }
                }
                Some((waiting, results)) = &mut common, if common_runs => {
                    common_runs = false;
                    queues.finish_common(waiting, results);
                }
                Some((org_id, (waiting, results))) = own.next() => {
                    queues.finish_own(&org_id, waiting, results);
                }
                else => return,
            }
        }
    }
}

/// The submissions that wait for a transaction.
#[derive(Default)]
struct Queues {
    /// Those for the common transaction, by organization.
    common: HashMap<OrgId, VecDeque<Waiting>>,
    /// The organizations in `common`, in the order of their turns.
    turns: VecDeque<OrgId>,
    /// Those of organizations with a transaction of their own.
    own: HashMap<OrgId, OwnQueue>,
}

#[derive(Default)]
struct OwnQueue {
    waiting: VecDeque<Waiting>,
    /// The number of submissions that are stored one by one, because a transaction with them
    /// failed.
    one_by_one: usize,
    /// Set while a transaction of the organization is executed.
    runs: bool,
}

impl Queues {
    fn add(&mut self, waiting: Waiting) {
        let org_id = waiting.job.org_id.clone();
        let needs_own = match waiting.job.needs_own_transaction() {
            Ok(needs_own) => needs_own,
            Err(error) => return drop(waiting.result.send(Err(error))),
        };
        let queue = if needs_own || self.own.contains_key(&org_id) {
            &mut self.own.entry(org_id).or_default().waiting
        } else {
            let queue = self.common.entry(org_id.clone()).or_default();
            if queue.is_empty() {
                self.turns.push_back(org_id);
            }
            queue
        };
        if queue.len() >= WAITING_MAX {
            let error =
                Error::overloaded("The server is busy with other requests. Retry with backoff.");
            return drop(waiting.result.send(Err(error)));
        }
        queue.push_back(waiting);
    }

    /// Takes the submissions of the next common transaction. Organizations alternate.
    fn take_common(&mut self) -> Vec<Waiting> {
        let mut taken = Vec::new();
        while taken.len() < JOBS_MAX
            && let Some(org_id) = self.turns.pop_front()
        {
            let Some(queue) = self.common.get_mut(&org_id) else {
                continue;
            };
            taken.extend(pop_open(queue));
            if queue.is_empty() {
                self.common.remove(&org_id);
            } else {
                self.turns.push_back(org_id);
            }
        }
        taken
    }

    /// Takes the submissions of the next transaction of each organization that has its own, unless
    /// one runs. Forgets organizations without submissions.
    fn take_own(&mut self) -> Vec<(OrgId, Vec<Waiting>)> {
        let mut taken = Vec::new();
        for (org_id, queue) in &mut self.own {
            if queue.runs {
                continue;
            }
            let next = queue.take();
            if !next.is_empty() {
                queue.runs = true;
                taken.push((org_id.clone(), next));
            }
        }
        self.own.retain(|_, queue| queue.runs);
        taken
    }

    fn finish_common(&mut self, waiting: Vec<Waiting>, results: Results) {
        let left_out = match results {
            Ok(results) => respond(waiting, results),
            Err(error) if is_of_connection(&error) => {
                respond_with_error(waiting, &error);
                Vec::new()
            }
            // One of the organizations or jobs may be the cause.
            Err(_) => waiting,
        };
        for waiting in left_out {
            let org_id = waiting.job.org_id.clone();
            let queue = self.own.entry(org_id.clone()).or_default();
            queue.waiting.push_back(waiting);
            // Later submissions of the organization stay behind the earlier ones.
            queue
                .waiting
                .extend(self.common.remove(&org_id).unwrap_or_default());
        }
    }

    fn finish_own(&mut self, org_id: &OrgId, waiting: Vec<Waiting>, results: Results) {
        let Some(queue) = self.own.get_mut(org_id) else {
            return;
        };
        queue.runs = false;
        match results {
            // The lock of the month was taken by another transaction in between.
            Ok(results) => {
                for waiting in respond(waiting, results).into_iter().rev() {
                    queue.waiting.push_front(waiting);
                }
            }
            // The requests have waited for a lock, or the database is unavailable.
            Err(error) if error.code == Code::Unavailable || waiting.len() == 1 => {
                respond_with_error(waiting, &error);
            }
            Err(_) => {
                queue.one_by_one += waiting.len();
                for waiting in waiting.into_iter().rev() {
                    queue.waiting.push_front(waiting);
                }
            }
        }
    }
}

impl OwnQueue {
    /// Takes the submissions of the next transaction.
    fn take(&mut self) -> Vec<Waiting> {
        let mut taken = Vec::new();
        while taken.len() < JOBS_MAX
            && let Some(waiting) = pop_open(&mut self.waiting)
        {
            let is_alone =
                self.one_by_one > 0 || waiting.job.needs_own_transaction().unwrap_or(true);
            if is_alone && !taken.is_empty() {
                self.waiting.push_front(waiting);
                break;
            }
            taken.push(waiting);
            if is_alone {
                self.one_by_one = self.one_by_one.saturating_sub(1);
                break;
            }
        }
        taken
    }
}

/// Removes the first submission whose request still waits.
fn pop_open(queue: &mut VecDeque<Waiting>) -> Option<Waiting> {
    while let Some(waiting) = queue.pop_front() {
        if !waiting.result.is_closed() {
            return Some(waiting);
        }
    }
    None
}

/// Sends the results to the requests. Returns the submissions that were left out.
fn respond(waiting: Vec<Waiting>, results: Vec<Option<Submitted>>) -> Vec<Waiting> {
    let mut left_out = Vec::new();
    for (waiting, result) in waiting.into_iter().zip(results) {
        match result {
            // A request that was cancelled meanwhile does not read it.
            Some(submitted) => drop(waiting.result.send(Ok(submitted))),
            None => left_out.push(waiting),
        }
    }
    left_out
}

fn respond_with_error(waiting: Vec<Waiting>, error: &Error) {
    for waiting in waiting {
        drop(waiting.result.send(Err(error.shared())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::model::error_details::SuiteAccess;
    use crate::model::ids::JobId;
    use crate::model::org::Plan;
    use crate::model::queue::FirstEstimate;
    use crate::model::span_context::SpanContext;
    use crate::model::suite::BoardMode;
    use crate::store::new_job::{NewEval, NewTask, StoredAs};
    use crate::store::suite::SuiteRow;

    fn job(org_id: &OrgId, label: &str) -> NewJob {
        let suite = SuiteRow {
            suite_id: "suite:test".parse().unwrap(),
            version: "1".into(),
            metric: "accuracy".into(),
            n_items: 1,
            per_item_feedback: false,
            description: String::new(),
            release: "exact".into(),
            max_submissions_per_day: None,
            max_submissions: None,
            access: SuiteAccess::Everyone,
            clip: None,
            ladder_start: None,
            ladder_step: None,
            ladder_levels: None,
            n_sealed: 0,
            closes_at: None,
            board: BoardMode::Off,
            sequence_events: None,
            sequence_options: None,
            suite_commitment: String::new(),
            is_retired: false,
        };
        let plan = Plan::of_equal_limits(1);
        NewJob {
            id: JobId::random().unwrap(),
            org_id: org_id.clone(),
            plan,
            request_id: String::new(),
            label: Some(label.into()),
            metadata: None,
            hfm_sha: String::new(),
            task: NewTask::Eval(NewEval {
                suite: Arc::new(suite),
                charged_items: 1,
            }),
            input: StoredAs::Row(Bytes::new()),
            n_submitted: 1,
            estimate: FirstEstimate::default(),
            idempotency_key: None,
            request_sha256: None,
            elapsed_us: 0,
            span: SpanContext::new(),
            is_exported: false,
            client_span: None,
        }
    }

    /// The labels of the jobs of each transaction, and whether it waited for locks.
    type Transactions = Arc<Mutex<Vec<(String, IfLocked)>>>;

    /// Submissions whose transactions wait for a permit. Jobs whose label starts with "locked" are
    /// left out of common transactions. A transaction with a job labelled "bad" fails.
    fn submissions() -> (Arc<CombinedSubmissions>, Arc<Semaphore>, Transactions) {
        let (submissions, waiting) = combined_submissions();
        let permits = Arc::new(Semaphore::new(0));
        let transactions = Transactions::default();
        let (allowed, recorded) = (Arc::clone(&permits), Arc::clone(&transactions));
        let submit = move |jobs: Vec<NewJob>, if_locked| {
            let labels: Vec<_> = jobs.iter().flat_map(|job| job.label.clone()).collect();
            recorded.lock().unwrap().push((labels.join(" "), if_locked));
            let allowed = Arc::clone(&allowed);
            async move {
                allowed.acquire().await.unwrap().forget();
                if labels.iter().any(|label| label == "bad") {
                    return Err(Error::internal("bad"));
                }
                let left_out =
                    |label: &String| if_locked == IfLocked::Skip && label.starts_with("locked");
                Ok(labels
                    .iter()
                    .map(|label| (!left_out(label)).then_some(Submitted::UploadGone))
                    .collect())
            }
        };
        tokio::spawn(waiting.store(submit));
        (Arc::new(submissions), permits, transactions)
    }

    /// Submits jobs with these labels concurrently, after one that occupies the first transaction.
    /// Returns `true` for each that was stored.
    async fn submit(labels: &[(&OrgId, &str)]) -> (Vec<bool>, Vec<(String, IfLocked)>) {
        let (submissions, permits, transactions) = submissions();
        let first = job(&OrgId::random().unwrap(), "first");
        let jobs: Vec<_> = std::iter::once(first)
            .chain(labels.iter().map(|(org_id, label)| job(org_id, label)))
            .collect();
        let mut stored = Vec::new();
        for job in jobs {
            let submissions = Arc::clone(&submissions);
            stored.push(tokio::spawn(async move { submissions.store(job).await }));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        permits.add_permits(Semaphore::MAX_PERMITS / 2);
        let stored = join_all(stored).await.into_iter();
        let stored = stored.map(|stored| stored.unwrap().is_ok()).collect();
        let transactions = transactions.lock().unwrap().clone();
        (stored, transactions)
    }

    #[tokio::test]
    async fn organizations_alternate_in_shared_transaction() {
        let [a, b] = [(); 2].map(|()| OrgId::random().unwrap());
        let (stored, transactions) =
            submit(&[(&a, "a1"), (&a, "a2"), (&a, "a3"), (&b, "b1"), (&b, "b2")]).await;
        assert_eq!(stored, [true; 6]);
        let expected = ["first", "a1 b1 a2 b2 a3"].map(|labels| (labels.into(), IfLocked::Skip));
        assert_eq!(transactions, expected);
    }

    #[tokio::test]
    async fn locked_organization_gets_its_own_transaction() {
        let [a, b] = [(); 2].map(|()| OrgId::random().unwrap());
        let (stored, transactions) = submit(&[(&a, "locked1"), (&b, "b"), (&a, "locked2")]).await;
        assert_eq!(stored, [true; 4]);
        let expected = [
            ("first".into(), IfLocked::Skip),
            ("locked1 b locked2".into(), IfLocked::Skip),
            ("locked1 locked2".into(), IfLocked::Wait),
        ];
        assert_eq!(transactions, expected);
    }

    #[tokio::test]
    async fn failing_job_does_not_fail_others() {
        let [a, b] = [(); 2].map(|()| OrgId::random().unwrap());
        let (stored, transactions) = submit(&[(&a, "a1"), (&a, "bad"), (&b, "b")]).await;
        assert_eq!(stored, [true, true, false, true]);
        let mut waited: Vec<_> = transactions[2..].iter().map(|(labels, _)| labels).collect();
        waited.sort();
        assert_eq!(waited, ["a1", "a1 bad", "b", "bad"]);
    }
}
