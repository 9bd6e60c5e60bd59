//! How much of one kind of work may be under way in this process, in all and for one holder: an organization, or a client
//! address. A turn is taken when the work starts; while a client still sends, it holds memory of the budget and no turn. The
//! holder that has fewest permits is served first: one that has none waits for no more than one piece of work.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{Error, Result};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of requests of one holder that wait for a turn of one kind.
const WAITING_MAX: usize = 1000;

/// Whose turn it is.
pub struct ConcurrencyLimit {
    wait_max: Duration,
    shared: Arc<Shared>,
}

struct Shared {
    of_one: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    holders: HashMap<Arc<str>, Holder>,
    /// The number of the next that waits.
    next: u64,
}

#[derive(Default)]
struct Holder {
    permits: usize,
    waiting: VecDeque<(u64, oneshot::Sender<ConcurrencyPermit>)>,
}

/// A turn, which ends when it is dropped.
pub struct ConcurrencyPermit {
    holder: Arc<str>,
    shared: Arc<Shared>,
}

impl ConcurrencyLimit {
    /// So many of one holder and of all, each waiting no longer than `wait_max`.
    pub fn new(of_one: usize, of_all: usize, wait_max: Duration) -> Self {
        let state = Mutex::new(State {
            free: of_all,
            holders: HashMap::new(),
            next: 0,
        });
        Self {
            wait_max,
            shared: Arc::new(Shared { of_one, state }),
        }
    }

    /// Waits for a turn. 503 when it takes too long, or when too many of the holder's requests wait already.
    pub async fn acquire(&self, holder: &str) -> Result<ConcurrencyPermit> {
        let refused =
            || Error::overloaded("The server is busy with other requests. Retry with backoff.");
        let receiver = self.shared.enter(holder).ok_or_else(refused)?;
        self.shared.grant();
        timeout(self.wait_max, receiver)
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
        own.waiting.push_back((state.next, sender));
        state.next += 1;
        Some(receiver)
    }

    /// Gives free permits to those who wait.
    fn grant(self: &Arc<Self>) {
        loop {
            // The lock must be free again: one who has given up drops the turn, which frees it.
            let next = self.state().take_next(self.of_one);
            let Some((holder, waits)) = next else { return };
            drop(waits.send(ConcurrencyPermit {
                holder,
                shared: Arc::clone(self),
            }));
        }
    }
}

impl State {
    /// The one who waits longest, of the holders with the fewest permits.
    fn take_next(
        &mut self,
        of_one: usize,
    ) -> Option<(Arc<str>, oneshot::Sender<ConcurrencyPermit>)> {
        for own in self.holders.values_mut() {
            // Those who have given up since do not count.
            while own
                .waiting
                .front()
                .is_some_and(|(_, waits)| waits.is_closed())
            {
                own.waiting.pop_front();
            }
        }
        self.holders
            .retain(|_, own| own.permits > 0 || !own.waiting.is_empty());
        if self.free == 0 {
            return None;
        }
        let waiting = self
            .holders
            .iter_mut()
            .filter(|(_, own)| own.permits < of_one);
        let first = waiting.filter_map(|(holder, own)| {
            own.waiting
                .front()
                .map(|(since, _)| (own.permits, *since))
                .map(|key| (key, holder, own))
        });
        let (_, holder, own) = first.min_by_key(|(key, ..)| *key)?;
        let (_, waits) = own.waiting.pop_front()?;
        own.permits += 1;
        self.free -= 1;
        Some((Arc::clone(holder), waits))
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        {
            let state = &mut *self.shared.state();
            state.free += 1;
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
    async fn holder_without_a_turn_is_served_first() {
        let permits = Arc::new(ConcurrencyLimit::new(4, 4, TEST_TIMEOUT));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(permits.acquire("greedy").await.unwrap());
        }
        let take = |holder: &'static str| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move { permits.acquire(holder).await })
        };
        let more: Vec<_> = (0..20).map(|_| take("greedy")).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let first = take("newcomer");
        tokio::time::sleep(Duration::from_millis(1)).await;
        held.pop();
        let turn = timeout(Duration::from_millis(1), first)
            .await
            .unwrap()
            .unwrap();
        assert!(turn.is_ok());
        assert!(more.iter().all(|waits| !waits.is_finished()));
    }

    #[tokio::test(start_paused = true)]
    async fn turn_given_to_one_who_has_given_up_is_free_again() {
        let permits = ConcurrencyLimit::new(1, 1, TEST_TIMEOUT);
        let held = permits.acquire("one").await.unwrap();
        assert!(permits.acquire("one").await.is_err());
        assert!(
            timeout(Duration::from_secs(1), permits.acquire("other"))
                .await
                .is_err()
        );
        drop(held);
        drop(permits.acquire("other").await.unwrap());
        drop(permits.acquire("one").await.unwrap());
        assert_eq!(permits.shared.state().free, 1);
        assert!(
            permits
                .shared
                .state()
                .holders
                .values()
                .all(|own| own.permits == 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limits_are_given() {
        let permits = ConcurrencyLimit::new(2, 3, TEST_TIMEOUT);
        let _held = [
            permits.acquire("one").await.unwrap(),
            permits.acquire("one").await.unwrap(),
            permits.acquire("other").await.unwrap(),
        ];
        assert!(permits.acquire("one").await.is_err());
        assert!(permits.acquire("other").await.is_err());
    }
}
