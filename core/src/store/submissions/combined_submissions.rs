//! Concurrent requests' submissions, combined into one transaction.
//!
//! A transaction that stores one job costs much more for its round trips, its locks and its commit
//! than for the rows. Submissions that arrive while a transaction is executed therefore share the
//! next one. A submission that arrives alone is stored at once.
//!
//! An organization whose rows are locked by another transaction must not delay the others. The
//! common transaction leaves it out, and its submissions get their own transaction, which
//! waits for the locks. So does every organization after an error, which may be caused by
//! one.

use std::collections::{HashMap, VecDeque};

use super::new_job::NewJob;
use super::submission::{IfLocked, Submitted};
use crate::model::error::{Code, Error};
use crate::model::ids::OrgId;
use crate::store::db::combined_requests::{
    self, CombinedRequests, Queue, Schedule, WaitingRequests, pop_open, respond, respond_with_error,
};
use crate::store::db::is_connection_error;

/// The most jobs that one transaction stores.
const JOBS_MAX: usize = 64;

/// The most submissions of one organization that wait.
const WAITING_MAX: usize = 1000;

/// A submission whose request waits for the result.
type Waiting = combined_requests::Waiting<NewJob, Submitted>;

/// The sender of submissions. A submission stores a job and its charge, or records its predictions, or
/// neither.
pub type CombinedSubmissions = CombinedRequests<NewJob, Submitted>;

/// The results of a transaction: see [`Stored::results`](super::submission::Stored::results).
type Results = combined_requests::Results<Submitted>;

impl WaitingRequests<NewJob, Submitted> {
    /// Stores submissions until all senders are dropped. `submit` executes one transaction.
    pub async fn store<F>(self, submit: impl Fn(Vec<NewJob>, IfLocked) -> F)
    where
        F: Future<Output = Results>,
    {
        self.run(Queues::default(), |jobs, transaction| {
            submit(jobs, transaction.if_locked())
        })
        .await;
    }
}

/// A transaction with submissions.
enum Transaction {
    /// Of several organizations.
    Common,
    /// Of one organization.
    Own(OrgId),
}

impl Transaction {
    fn if_locked(&self) -> IfLocked {
        match self {
            Self::Common => IfLocked::Skip,
            Self::Own(_) => IfLocked::Wait,
        }
    }
}

/// The submissions that wait for a transaction.
#[derive(Default)]
struct Queues {
    /// Those for the common transaction, by organization.
    common: HashMap<OrgId, VecDeque<Waiting>>,
    /// The organizations in `common`, in turn order.
    turns: VecDeque<OrgId>,
    /// Set while a common transaction is executed.
    common_runs: bool,
    /// Those of organizations with a transaction of their own.
    own: HashMap<OrgId, Queue<NewJob, Submitted>>,
}

impl Schedule<NewJob, Submitted> for Queues {
    type Batch = Transaction;

    fn add(&mut self, waiting: Waiting) {
        let org_id = waiting.request.org_id.clone();
        let needs_own = match waiting.request.needs_own_transaction() {
            Ok(needs_own) => needs_own,
            Err(error) => return waiting.respond(Err(error)),
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
            return waiting.respond(Err(error));
        }
        queue.push_back(waiting);
    }

    /// Returns the common transaction before those of single organizations.
    fn next(&mut self) -> Option<(Transaction, Vec<Waiting>)> {
        if !self.common_runs {
            let waiting = self.take_common();
            self.common_runs = !waiting.is_empty();
            if self.common_runs {
                return Some((Transaction::Common, waiting));
            }
        }
        self.take_own()
    }

    fn finish(&mut self, transaction: Transaction, waiting: Vec<Waiting>, results: Results) {
        match transaction {
            Transaction::Common => self.finish_common(waiting, results),
            Transaction::Own(org_id) => {
                // If unavailable, the requests have waited for a lock, or the database is.
                let is_unavailable = |error: &Error| error.code == Code::Unavailable;
                let queue = self.own.entry(org_id).or_default();
                queue.finish_batch(waiting, results, is_unavailable);
            }
        }
    }
}

impl Queues {
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

    /// Takes the next transaction's submissions for an organization that has its own. Forgets
    /// organizations without submissions.
    fn take_own(&mut self) -> Option<(Transaction, Vec<Waiting>)> {
        let must_be_alone = |job: &NewJob| job.needs_own_transaction().unwrap_or(true);
        let taken = self.own.iter_mut().find_map(|(org_id, queue)| {
            let waiting = queue.take(JOBS_MAX, must_be_alone)?;
            Some((Transaction::Own(org_id.clone()), waiting))
        });
        if taken.is_none() {
            self.own.retain(|_, queue| queue.runs);
        }
        taken
    }

    fn finish_common(&mut self, waiting: Vec<Waiting>, results: Results) {
        self.common_runs = false;
        let left_out = match results {
            Ok(results) => respond(waiting, results),
            Err(error) if is_connection_error(&error) => {
                respond_with_error(waiting, &error);
                Vec::new()
            }
            // An organization or job may be the cause.
            Err(_) => waiting,
        };
        for waiting in left_out {
            let org_id = waiting.request.org_id.clone();
            let queue = self.own.entry(org_id.clone()).or_default();
            queue.waiting.push_back(waiting);
            // Later submissions by the organization stay behind the earlier ones.
            queue
                .waiting
                .extend(self.common.remove(&org_id).unwrap_or_default());
        }
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
    use crate::model::suite::{BoardMode, SuiteAverage, SuiteText, SuiteVisibility};
    use crate::model::timestamp::Timestamp;
    use crate::store::db::combined_requests::combined_requests;
    use crate::store::new_job::{NewEval, NewTask, StoredAs};
    use crate::store::suite::SuiteRow;

    fn job(org_id: &OrgId, label: &str) -> NewJob {
        let suite = SuiteRow {
            seen_by: Some(org_id.clone()),
            suite_id: "suite:test".parse().unwrap(),
            version: "1".into(),
            content_id: 1,
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
            cluster: None,
            cluster_is_hidden: false,
            n_clusters: None,
            slices: sqlx::types::Json(Vec::new()),
            baselines: Vec::new(),
            ceiling: None,
            average: SuiteAverage::Item,
            labels: Vec::new(),
            quantiles: Vec::new(),
            skill: None,
            suite_commitment: String::new(),
            is_retired: false,
            owner: None,
            visibility: SuiteVisibility::Listed,
            metadata: sqlx::types::Json(SuiteText::default()),
            errata: sqlx::types::Json(Vec::new()),
            is_suspended: false,
            is_removed: false,
            published_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            can_submit: true,
        };
        let plan = Plan::with_equal_limits(1);
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

    /// Each transaction's job labels, and whether it waited for locks.
    type Transactions = Arc<Mutex<Vec<(String, IfLocked)>>>;

    /// Submissions whose transactions wait for a permit. Jobs whose label starts with "locked" are
    /// not in common transactions. A transaction with a job labelled "bad" fails.
    fn submissions() -> (Arc<CombinedSubmissions>, Arc<Semaphore>, Transactions) {
        let (submissions, waiting) = combined_requests();
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
            stored.push(tokio::spawn(async move { submissions.execute(job).await }));
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
