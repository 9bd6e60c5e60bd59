//! Requests that wait for a task, which executes several at once.
//!
//! The task is the same for statements and transactions. A [`Schedule`] holds the waiting requests,
//! and decides which of them are executed together.

use std::collections::VecDeque;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use crate::model::error::{Error, Result};

/// The largest number of requests that are received at once, and of those that wait to be received.
pub const RECEIVED_MAX: usize = 256;

/// A request whose caller waits for the response.
pub struct Waiting<Q, A> {
    /// The request.
    pub request: Q,
    response: oneshot::Sender<Result<A>>,
}

impl<Q, A> Waiting<Q, A> {
    /// Responds to the caller. A caller that has cancelled the request does not read it.
    pub fn respond(self, response: Result<A>) {
        drop(self.response.send(response));
    }
}

/// The requests of a batch, in their order.
pub type Requests<Q, A> = Vec<Waiting<Q, A>>;

/// The result of a batch: a response to each request, or `None` if the request was left out.
pub type Results<A> = Result<Vec<Option<A>>>;

/// The waiting requests, and the order in which they are executed.
pub trait Schedule<Q, A> {
    /// The kind of a batch. Its requests are executed together.
    type Batch;

    /// Adds a request.
    fn add(&mut self, waiting: Waiting<Q, A>);

    /// Removes and returns the requests of a batch that can be executed now.
    fn next(&mut self) -> Option<(Self::Batch, Requests<Q, A>)>;

    /// Responds to the requests of a batch that was executed, or adds them again.
    fn finish(&mut self, batch: Self::Batch, waiting: Requests<Q, A>, results: Results<A>);

    /// Returns `false` if other requests must stay with their senders until a batch has finished.
    fn is_receiving(&self) -> bool {
        true
    }
}

/// Sends one kind of requests.
pub struct CombinedRequests<Q, A>(mpsc::Sender<Waiting<Q, A>>);

/// The receiver of requests, for the task that executes them.
pub struct WaitingRequests<Q, A>(mpsc::Receiver<Waiting<Q, A>>);

/// Creates combined requests. They wait until the task of [`WaitingRequests`] runs.
pub fn combined_requests<Q, A>() -> (CombinedRequests<Q, A>, WaitingRequests<Q, A>) {
    let (sender, receiver) = mpsc::channel(RECEIVED_MAX);
    (CombinedRequests(sender), WaitingRequests(receiver))
}

impl<Q, A> CombinedRequests<Q, A> {
    /// Executes a request and returns its response. A request whose caller does not wait any more
    /// may be executed nevertheless.
    ///
    /// # Errors
    /// The error of the statement or transaction. `unavailable` after its time limit, or if too many
    /// requests wait.
    pub async fn execute(&self, request: Q) -> Result<A> {
        let ended = || Error::unavailable("the task that executes requests has ended");
        let (response, executed) = oneshot::channel();
        let waiting = Waiting { request, response };
        self.0.send(waiting).await.map_err(|_| ended())?;
        executed.await.map_err(|_| ended())?
    }
}

impl<Q: Clone, A> WaitingRequests<Q, A> {
    /// Executes requests until all senders are dropped. `execute` executes a batch.
    pub(in crate::store) async fn run<S, F>(
        mut self,
        mut schedule: S,
        execute: impl Fn(Vec<Q>, &S::Batch) -> F,
    ) where
        S: Schedule<Q, A>,
        F: Future<Output = Results<A>>,
    {
        let mut executed = FuturesUnordered::new();
        let mut received = Vec::with_capacity(RECEIVED_MAX);
        let mut senders_exist = true;
        loop {
            while let Some((batch, waiting)) = schedule.next() {
                let requests = waiting.iter().map(|waiting| waiting.request.clone());
                let results = execute(requests.collect(), &batch);
                executed.push(async move { (batch, waiting, results.await) });
            }
            let receives = senders_exist && schedule.is_receiving();
            tokio::select! {
                count = self.0.recv_many(&mut received, RECEIVED_MAX), if receives => {
                    senders_exist = count > 0;
                    received.drain(..).for_each(|waiting| schedule.add(waiting));
                }
                Some((batch, waiting, results)) = executed.next() => {
                    schedule.finish(batch, waiting, results);
                }
                else => return,
            }
        }
    }
}

/// A queue whose requests are executed by one batch at a time.
///
/// If a batch of several requests fails, one of them may be the cause. Then each is executed alone,
/// unless the database is unavailable.
pub struct Queue<Q, A> {
    /// The requests in their order.
    pub waiting: VecDeque<Waiting<Q, A>>,
    /// The number of requests that are executed alone, because a batch with them failed.
    one_by_one: usize,
    /// Set while a batch is executed.
    pub runs: bool,
}

impl<Q, A> Default for Queue<Q, A> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            one_by_one: 0,
            runs: false,
        }
    }
}

impl<Q, A> Queue<Q, A> {
    /// Removes the requests of the next batch, at most `max`, unless a batch is executed.
    /// `must_be_alone` returns `true` for a request that always has its own batch.
    pub fn take(
        &mut self,
        max: usize,
        must_be_alone: impl Fn(&Q) -> bool,
    ) -> Option<Requests<Q, A>> {
        let mut taken = Vec::new();
        while !self.runs
            && taken.len() < max
            && let Some(waiting) = pop_open(&mut self.waiting)
        {
            let is_alone = self.one_by_one > 0 || must_be_alone(&waiting.request);
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
        self.runs |= !taken.is_empty();
        (!taken.is_empty()).then_some(taken)
    }

    /// Responds to the requests of a batch. Those that were left out, or that must be executed alone,
    /// are the next ones. `is_unavailable` returns `true` for an error that no request has caused.
    pub fn finish_batch(
        &mut self,
        waiting: Requests<Q, A>,
        results: Results<A>,
        is_unavailable: impl Fn(&Error) -> bool,
    ) {
        self.runs = false;
        let again = match results {
            Ok(results) => respond(waiting, results),
            Err(error) if waiting.len() == 1 || is_unavailable(&error) => {
                return respond_with_error(waiting, &error);
            }
            Err(_) => {
                self.one_by_one += waiting.len();
                waiting
            }
        };
        for waiting in again.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}

/// Removes the first request whose caller still waits.
pub fn pop_open<Q, A>(queue: &mut VecDeque<Waiting<Q, A>>) -> Option<Waiting<Q, A>> {
    while let Some(waiting) = queue.pop_front() {
        if !waiting.response.is_closed() {
            return Some(waiting);
        }
    }
    None
}

/// Sends the responses to the callers. Returns the requests that were left out.
pub fn respond<Q, A>(waiting: Requests<Q, A>, responses: Vec<Option<A>>) -> Requests<Q, A> {
    let mut left_out = Vec::new();
    for (waiting, response) in waiting.into_iter().zip(responses) {
        match response {
            Some(response) => waiting.respond(Ok(response)),
            None => left_out.push(waiting),
        }
    }
    left_out
}

/// Sends an error to all callers.
pub fn respond_with_error<Q, A>(waiting: Requests<Q, A>, error: &Error) {
    for waiting in waiting {
        waiting.respond(Err(error.shared()));
    }
}
