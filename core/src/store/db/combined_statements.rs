//! Concurrent requests' statements, combined into one.
//!
//! A statement that finds or changes one row by its key costs much more for its round trip, its
//! execution and using a connection than for the row. Requests that arrive while the statement
//! before is executed therefore share the next one. A request that arrives alone is executed at
//! once. Nothing is cached: a statement starts after the requests that it serves, and sees all that
//! was committed before them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use super::combined_requests::{
    CombinedRequests, Queue, RECEIVED_MAX, Requests, Results, Schedule, Waiting, WaitingRequests,
};
use super::pool::within;
use crate::model::error::Result;

/// Longest time for a statement that finds rows. A database that takes longer counts as
/// unavailable: lookups that wait for it would only accumulate.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1800);

/// Lookups by key, for one kind of rows.
pub type CombinedLookups<K, V> = CombinedRequests<K, Option<V>>;

/// One statement at a time, for all requests that wait.
impl<Q, A> Schedule<Q, A> for Queue<Q, A> {
    type Batch = ();

    fn add(&mut self, waiting: Waiting<Q, A>) {
        self.waiting.push_back(waiting);
    }

    fn next(&mut self) -> Option<((), Requests<Q, A>)> {
        self.take(RECEIVED_MAX, |_| false)
            .map(|waiting| ((), waiting))
    }

    fn finish(&mut self, (): (), waiting: Requests<Q, A>, results: Results<A>) {
        self.finish_batch(waiting, results, super::is_connection_error);
    }

    /// During a statement, requests wait in the channel, whose bound makes further ones wait.
    fn is_receiving(&self) -> bool {
        !self.runs
    }
}

impl<Q: Clone, A> WaitingRequests<Q, A> {
    /// Executes requests until all senders are dropped. `execute_all` executes one statement, within
    /// `time_limit`, and returns the responses in the order of the requests.
    pub async fn execute<F>(self, time_limit: Duration, execute_all: impl Fn(Vec<Q>) -> F)
    where
        F: Future<Output = Result<Vec<A>>>,
    {
        self.run(Queue::default(), |requests, ()| {
            let responses = within(time_limit, execute_all(requests));
            async { Ok(responses.await?.into_iter().map(Some).collect()) }
        })
        .await;
    }
}

impl<K: Clone + Eq + Hash, V: Clone> WaitingRequests<K, Option<V>> {
    /// Executes lookups until all senders are dropped. `find_all` executes the statement for
    /// distinct keys, and returns the rows that exist.
    pub async fn find<F>(self, find_all: impl Fn(Vec<K>) -> F)
    where
        F: Future<Output = Result<HashMap<K, V>>>,
    {
        self.execute(LOOKUP_TIMEOUT, |keys| {
            let distinct: HashSet<K> = keys.iter().cloned().collect();
            let rows = find_all(distinct.into_iter().collect());
            async move {
                let rows = rows.await?;
                Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::model::error::{Code, Error};
    use crate::store::db::combined_requests::combined_requests;

    /// Each statement's keys.
    type Statements = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Lookups whose statement waits for a permit, records its keys, and finds even keys'
    /// squares.
    fn squares() -> (Arc<CombinedLookups<u32, u32>>, Arc<Semaphore>, Statements) {
        let (lookups, waiting) = combined_requests();
        let permits = Arc::new(Semaphore::new(0));
        let statements = Arc::new(Mutex::new(Vec::new()));
        let (allowed, recorded) = (Arc::clone(&permits), Arc::clone(&statements));
        tokio::spawn(waiting.find(move |mut keys: Vec<u32>| {
            let (allowed, recorded) = (Arc::clone(&allowed), Arc::clone(&recorded));
            async move {
                keys.sort_unstable();
                recorded.lock().unwrap().push(keys.clone());
                allowed.acquire().await.unwrap().forget();
                if keys.contains(&13) {
                    return Err(Error::internal("13"));
                }
                let even = keys.into_iter().filter(|key| key % 2 == 0);
                Ok(even.map(|key| (key, key * key)).collect())
            }
        }));
        (Arc::new(lookups), permits, statements)
    }

    /// Lets all tasks run until they wait: a test's runtime has one thread.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn lookups_that_wait_share_one_statement() {
        let (lookups, permits, statements) = squares();
        let find = |key| {
            let lookups = Arc::clone(&lookups);
            tokio::spawn(async move { lookups.execute(key).await.unwrap() })
        };
        let alone = find(2);
        settle().await;
        let others: Vec<_> = [4, 3, 4, 6].into_iter().map(find).collect();
        settle().await;
        permits.add_permits(2);
        assert_eq!(alone.await.unwrap(), Some(4));
        let found = join_all(others).await.into_iter().map(Result::unwrap);
        assert_eq!(
            found.collect::<Vec<_>>(),
            [Some(16), None, Some(16), Some(36)]
        );
        assert_eq!(*statements.lock().unwrap(), [vec![2], vec![3, 4, 6]]);
    }

    #[tokio::test]
    async fn lookup_that_fails_does_not_fail_others() {
        let (lookups, permits, statements) = squares();
        permits.add_permits(3);
        let (first, second) = tokio::join!(lookups.execute(13), lookups.execute(2));
        assert_eq!(first.unwrap_err().code, Code::Internal);
        assert_eq!(second.unwrap(), Some(4));
        assert_eq!(
            *statements.lock().unwrap(),
            [vec![2, 13], vec![13], vec![2]]
        );
    }

    #[tokio::test]
    async fn cancelled_lookup_is_not_executed() {
        let (lookups, permits, statements) = squares();
        let before = tokio::spawn({
            let lookups = Arc::clone(&lookups);
            async move { lookups.execute(2).await }
        });
        settle().await;
        let cancelled = tokio::time::timeout(Duration::from_millis(5), lookups.execute(8)).await;
        assert!(cancelled.is_err());
        permits.add_permits(2);
        before.await.unwrap().unwrap();
        assert_eq!(lookups.execute(10).await.unwrap(), Some(100));
        assert_eq!(*statements.lock().unwrap(), [vec![2], vec![10]]);
    }
}
