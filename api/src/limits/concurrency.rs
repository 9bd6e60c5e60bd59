//! Concurrency limits: how many operations of one kind this process runs at once, in total and per
//! holder (an organization or a client address).
//!
//! An operation acquires its permit when the work starts. A request whose body still arrives holds
//! memory from the budget but no permit. The holder with the fewest permits is served first, so a
//! holder without one waits for at most one operation.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{Error, Result};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The most requests by one holder that wait for one kind of permit.
const WAITING_MAX: usize = 1000;

/// A limit on one kind of concurrent operations.
pub struct ConcurrencyLimit {
    acquire_timeout: Duration,
    shared: Arc<Shared>,
}

struct Shared {
    max_per_holder: usize,
    state: Mutex<State>,
}

struct State {
    free_permits: usize,
    holders: HashMap<Arc<str>, Holder>,
    /// The next waiter's sequence number.
    next_waiter: u64,
}

#[derive(Default)]
struct Holder {
    permits: usize,
    /// The waiters with their sequence numbers, oldest first.
    waiting: VecDeque<(u64, oneshot::Sender<ConcurrencyPermit>)>,
}

/// The permission to run one operation, released when it is dropped.
pub struct ConcurrencyPermit {
    holder: Arc<str>,
    shared: Arc<Shared>,
}

impl ConcurrencyLimit {
    /// Creates a limit with `max_per_holder` permits for each holder and `max` in total. A request
    /// waits at most `acquire_timeout` for its permit.
    pub fn new(max_per_holder: usize, max: usize, acquire_timeout: Duration) -> Self {
        let state = Mutex::new(State {
            free_permits: max,
            holders: HashMap::new(),
            next_waiter: 0,
        });
        Self {
            acquire_timeout,
            shared: Arc::new(Shared {
                max_per_holder,
                state,
            }),
        }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// 503 if the wait takes longer than the timeout, or if too many requests by the holder wait
    /// already.
    pub async fn acquire(&self, holder: &str) -> Result<ConcurrencyPermit> {
        let refused =
            || Error::overloaded("The server is busy with other requests. Retry with backoff.");
        let receiver = self.shared.enter(holder).ok_or_else(refused)?;
        self.shared.grant();
        timeout(self.acquire_timeout, receiver)
            .await
            .map_err(|_| refused())?
            .map_err(Error::internal)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, holder: &str) -> Option<oneshot::Receiver<ConcurrencyPermit>> {
        let state = &mut *self.state();
        let own = state.holders.entry(holder.into()).or_default();
        if own.waiting.len() >= WAITING_MAX {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        own.waiting.push_back((state.next_waiter, sender));
        state.next_waiter += 1;
        Some(receiver)
    }

    /// Grants free permits to waiters.
    fn grant(self: &Arc<Self>) {
        loop {
            // Release the lock before sending: a waiter that timed out drops the permit at once,
            // which locks again.
            let next = self.state().take_next(self.max_per_holder);
            let Some((holder, waiter)) = next else { return };
            drop(waiter.send(ConcurrencyPermit {
                holder,
                shared: Arc::clone(self),
            }));
        }
    }
}

impl State {
    /// Removes and returns the longest waiter among the holders with the fewest permits.
    fn take_next(
        &mut self,
        max_per_holder: usize,
    ) -> Option<(Arc<str>, oneshot::Sender<ConcurrencyPermit>)> {
        for own in self.holders.values_mut() {
            // Waiters that timed out must not get a permit.
            while own
                .waiting
                .front()
                .is_some_and(|(_, waiter)| waiter.is_closed())
            {
                own.waiting.pop_front();
            }
        }
        self.holders
            .retain(|_, own| own.permits > 0 || !own.waiting.is_empty());
        if self.free_permits == 0 {
            return None;
        }
        let waiting = self
            .holders
            .iter_mut()
            .filter(|(_, own)| own.permits < max_per_holder);
        let first = waiting.filter_map(|(holder, own)| {
            own.waiting
                .front()
                .map(|(since, _)| (own.permits, *since))
                .map(|key| (key, holder, own))
        });
        let (_, holder, own) = first.min_by_key(|(key, ..)| *key)?;
        let (_, waiter) = own.waiting.pop_front()?;
        own.permits += 1;
        self.free_permits -= 1;
        Some((Arc::clone(holder), waiter))
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        {
            let state = &mut *self.shared.state();
            state.free_permits += 1;
            if let Some(own) = state.holders.get_mut(&self.holder) {
                own.permits -= 1;
            }
        }
        self.shared.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn holder_without_permit_is_served_first() {
        let limit = Arc::new(ConcurrencyLimit::new(4, 4, TEST_TIMEOUT));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(limit.acquire("greedy").await.unwrap());
        }
        let take = |holder: &'static str| {
            let limit = Arc::clone(&limit);
            tokio::spawn(async move { limit.acquire(holder).await })
        };
        let more: Vec<_> = (0..20).map(|_| take("greedy")).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let first = take("newcomer");
        tokio::time::sleep(Duration::from_millis(1)).await;
        held.pop();
        let permit = timeout(Duration::from_millis(1), first)
            .await
            .unwrap()
            .unwrap();
        assert!(permit.is_ok());
        assert!(more.iter().all(|task| !task.is_finished()));
    }

    #[tokio::test(start_paused = true)]
    async fn permit_granted_after_timeout_is_free_again() {
        let limit = ConcurrencyLimit::new(1, 1, TEST_TIMEOUT);
        let held = limit.acquire("one").await.unwrap();
        assert!(limit.acquire("one").await.is_err());
        assert!(
            timeout(Duration::from_secs(1), limit.acquire("other"))
                .await
                .is_err()
        );
        drop(held);
        drop(limit.acquire("other").await.unwrap());
        drop(limit.acquire("one").await.unwrap());
        assert_eq!(limit.shared.state().free_permits, 1);
        assert!(
            limit
                .shared
                .state()
                .holders
                .values()
                .all(|own| own.permits == 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn limits_per_holder_and_in_total_hold() {
        let limit = ConcurrencyLimit::new(2, 3, TEST_TIMEOUT);
        let _held = [
            limit.acquire("one").await.unwrap(),
            limit.acquire("one").await.unwrap(),
            limit.acquire("other").await.unwrap(),
        ];
        assert!(limit.acquire("one").await.is_err());
        assert!(limit.acquire("other").await.is_err());
    }
}
