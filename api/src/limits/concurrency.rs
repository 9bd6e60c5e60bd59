//! How much of one kind of work may be under way in this process, in all and for one holder: an organization, or a client
//! address. A turn is taken when the work starts; while a client still sends, it holds memory of the budget and no turn. The
//! holder that has fewest turns is served first: one that has none waits for no more than one piece of work.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{Error, Result};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of requests of one holder that wait for a turn of one kind.
const WAITING_MAX: usize = 1000;

/// Whose turn it is.
pub struct Turns {
    patience: Duration,
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
    turns: usize,
    waiting: VecDeque<(u64, oneshot::Sender<Turn>)>,
}

/// A turn, which ends when it is dropped.
pub struct Turn {
    holder: Arc<str>,
    shared: Arc<Shared>,
}

impl Turns {
    /// So many of one holder and of all, each waiting no longer than `patience`.
    pub fn new(of_one: usize, of_all: usize, patience: Duration) -> Self {
        let state = Mutex::new(State {
            free: of_all,
            holders: HashMap::new(),
            next: 0,
        });
        Self {
            patience,
            shared: Arc::new(Shared { of_one, state }),
        }
    }

    /// Waits for a turn. 503 when it takes too long, or when too many of the holder's requests wait already.
    pub async fn take(&self, holder: &str) -> Result<Turn> {
        let refused =
            || Error::overloaded("The server is busy with other requests. Retry with backoff.");
        let receiver = self.shared.enter(holder).ok_or_else(refused)?;
        self.shared.grant();
        timeout(self.patience, receiver)
            .await
            .map_err(|_| refused())?
            .map_err(Error::internal)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, holder: &str) -> Option<oneshot::Receiver<Turn>> {
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

    /// Gives free turns to those who wait.
    fn grant(self: &Arc<Self>) {
        loop {
            // The lock must be free again: one who has given up drops the turn, which frees it.
            let next = self.state().take_next(self.of_one);
            let Some((holder, waits)) = next else { return };
            drop(waits.send(Turn {
                holder,
                shared: Arc::clone(self),
            }));
        }
    }
}

impl State {
    /// The one who waits longest, of the holders with the fewest turns.
    fn take_next(&mut self, of_one: usize) -> Option<(Arc<str>, oneshot::Sender<Turn>)> {
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
            .retain(|_, own| own.turns > 0 || !own.waiting.is_empty());
        if self.free == 0 {
            return None;
        }
        let waiting = self
            .holders
            .iter_mut()
            .filter(|(_, own)| own.turns < of_one);
        let first = waiting.filter_map(|(holder, own)| {
            own.waiting
                .front()
                .map(|(since, _)| (own.turns, *since))
                .map(|key| (key, holder, own))
        });
        let (_, holder, own) = first.min_by_key(|(key, ..)| *key)?;
        let (_, waits) = own.waiting.pop_front()?;
        own.turns += 1;
        self.free -= 1;
        Some((Arc::clone(holder), waits))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let state = &mut *self.shared.state();
            state.free += 1;
            if let Some(own) = state.holders.get_mut(&self.holder) {
                own.turns -= 1;
            }
        }
        self.shared.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn holder_without_a_turn_is_served_first() {
        let turns = Arc::new(Turns::new(4, 4, PATIENCE));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(turns.take("greedy").await.unwrap());
        }
        let take = |holder: &'static str| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(holder).await })
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
        let turns = Turns::new(1, 1, PATIENCE);
        let held = turns.take("one").await.unwrap();
        assert!(turns.take("one").await.is_err());
        assert!(
            timeout(Duration::from_secs(1), turns.take("other"))
                .await
                .is_err()
        );
        drop(held);
        drop(turns.take("other").await.unwrap());
        drop(turns.take("one").await.unwrap());
        assert_eq!(turns.shared.state().free, 1);
        assert!(
            turns
                .shared
                .state()
                .holders
                .values()
                .all(|own| own.turns == 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limits_are_given() {
        let turns = Turns::new(2, 3, PATIENCE);
        let _held = [
            turns.take("one").await.unwrap(),
            turns.take("one").await.unwrap(),
            turns.take("other").await.unwrap(),
        ];
        assert!(turns.take("one").await.is_err());
        assert!(turns.take("other").await.is_err());
    }
}
