//! Requests that Redis counts together.
//!
//! A Redis call costs much more than counting a request. Requests that arrive while Redis counts
//! others are therefore counted by the next call, one call for each organization.

use std::collections::HashMap;

use futures_util::future::join_all;
use redis::RedisResult;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::redis::{RedisCounters, Reply};

/// The most requests that are counted together, and that wait meanwhile.
const REQUESTS_MAX: usize = 256;

/// A request to count.
struct Request {
    who: Box<str>,
    limit: u32,
    counted: oneshot::Sender<RedisResult<Reply>>,
}

/// The requests that wait to be counted.
pub(super) struct Admissions {
    sender: mpsc::Sender<Request>,
    receiver: Mutex<mpsc::Receiver<Request>>,
}

impl Default for Admissions {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        let receiver = Mutex::new(receiver);
        Self { sender, receiver }
    }
}

impl Admissions {
    /// Counts an organization's request. [`Admissions::count_all`] must run.
    pub(super) async fn count(&self, who: &str, limit: u32) -> RedisResult<Reply> {
        let (counted, reply) = oneshot::channel();
        let request = Request {
            who: who.into(),
            limit,
            counted,
        };
        let abandoned =
            || redis::RedisError::from((redis::ErrorKind::Io, "the call was abandoned"));
        self.sender.send(request).await.map_err(|_| abandoned())?;
        reply.await.map_err(|_| abandoned())?
    }

    /// Counts the requests that wait, until it is dropped. Abandons those that Redis is counting
    /// when `unavailable` returns.
    pub(super) async fn count_all<F: Future<Output = ()>>(
        &self,
        counters: &RedisCounters,
        unavailable: impl Fn() -> F,
    ) {
        let mut receiver = self.receiver.lock().await;
        let mut waiting = Vec::with_capacity(REQUESTS_MAX);
        while receiver.recv_many(&mut waiting, REQUESTS_MAX).await > 0 {
            let mut groups: HashMap<(Box<str>, u32), Vec<_>> = HashMap::new();
            for Request {
                who,
                limit,
                counted,
            } in waiting.drain(..)
            {
                // The others were cancelled.
                if !counted.is_closed() {
                    groups.entry((who, limit)).or_default().push(counted);
                }
            }
            let calls = groups
                .into_iter()
                .map(|((who, limit), requests)| count_together(counters, who, limit, requests));
            tokio::select! {
                _ = join_all(calls) => {}
                () = unavailable() => {}
            }
        }
    }
}

/// Counts one organization's requests by one call.
async fn count_together(
    counters: &RedisCounters,
    who: Box<str>,
    limit: u32,
    requests: Vec<oneshot::Sender<RedisResult<Reply>>>,
) {
    match counters.admit(&who, limit, requests.len()).await {
        Ok(replies) => {
            for (request, reply) in requests.into_iter().zip(replies) {
                // A request that was cancelled meanwhile does not read it.
                drop(request.send(Ok(reply)));
            }
        }
        Err(error) => {
            for request in requests {
                drop(request.send(Err(error.clone())));
            }
        }
    }
}
