//! The memory budget of a process: the bytes that it holds for clients, as request bodies that arrive and as responses that
//! are not read yet. Every byte is charged to a holder: an organization, a user without one, or a client address.
//!
//! A holder may hold at most half of what is free at the time. One holder alone gets a third of the budget; with twenty
//! holders that take all they can, a newcomer still gets a twentieth. (Choudhury and Hahne, Dynamic Queue Length Thresholds for
//! Shared-Memory Packet Switches, 1998.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{Error, Result};
use tokio::time::{Instant, sleep};

/// The longest wait for room.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which a waiting request looks for room. Waking all that wait at every release would cost more.
pub const ACQUIRE_INTERVAL: Duration = Duration::from_millis(50);
/// The largest number of requests that wait for room: of one holder, and of all.
const WAITING_MAX: (usize, usize) = (64, 1024);

/// See the module.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    total: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: u64,
    waiting: usize,
    holders: HashMap<Arc<str>, Holder>,
}

#[derive(Default)]
struct Holder {
    held: u64,
    waiting: usize,
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(Inner {
            total,
            state: Mutex::default(),
        }))
    }

    /// Charges bytes to a holder, and waits for room if need be. 503 if there is none in time, or too many wait already.
    pub async fn reserve(&self, holder: &str, bytes: u64) -> Result<Reservation> {
        let reservation = Reservation {
            budget: self.clone(),
            charge: Mutex::new(Charge {
                holder: holder.into(),
                bytes: 0,
            }),
        };
        reservation.grow(bytes).await?;
        Ok(reservation)
    }

    /// Charges bytes to a holder if there is room for them now.
    pub fn try_reserve(&self, holder: &Arc<str>, bytes: u64) -> Option<Reservation> {
        let charge = || {
            Mutex::new(Charge {
                holder: Arc::clone(holder),
                bytes,
            })
        };
        self.try_charge(holder, bytes).then(|| Reservation {
            budget: self.clone(),
            charge: charge(),
        })
    }

    /// The number of bytes that are held.
    pub fn held(&self) -> u64 {
        self.state().held
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_charge(&self, holder: &Arc<str>, bytes: u64) -> bool {
        let state = &mut *self.state();
        let free = self.0.total.saturating_sub(state.held);
        let own = state.holders.get(holder).map_or(0, |holder| holder.held);
        let fits = own.saturating_add(bytes) <= free / 2;
        if fits {
            state.charge(holder, bytes);
        }
        fits
    }
}

impl State {
    fn charge(&mut self, holder: &Arc<str>, bytes: u64) {
        self.held += bytes;
        self.holders.entry(Arc::clone(holder)).or_default().held += bytes;
    }

    fn release(&mut self, holder: &Arc<str>, bytes: u64) {
        self.held -= bytes;
        if let Some(own) = self.holders.get_mut(holder) {
            own.held -= bytes;
        }
        self.forget(holder);
    }

    /// Removes a holder that neither holds nor waits for anything.
    fn forget(&mut self, holder: &Arc<str>) {
        if self
            .holders
            .get(holder)
            .is_some_and(|own| own.held == 0 && own.waiting == 0)
        {
            self.holders.remove(holder);
        }
    }
}

/// A place among those who wait for room.
struct Waiting<'a> {
    budget: &'a Budget,
    holder: Arc<str>,
}

impl<'a> Waiting<'a> {
    /// `None` if too many wait.
    fn enter(budget: &'a Budget, holder: &Arc<str>) -> Option<Self> {
        let state = &mut *budget.state();
        let (of_one, of_all) = WAITING_MAX;
        let own = state.holders.entry(Arc::clone(holder)).or_default();
        let may_wait = own.waiting < of_one && state.waiting < of_all;
        if may_wait {
            own.waiting += 1;
            state.waiting += 1;
        }
        state.forget(holder);
        may_wait.then(|| Self {
            budget,
            holder: Arc::clone(holder),
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let state = &mut *self.budget.state();
        state.waiting -= 1;
        if let Some(own) = state.holders.get_mut(&self.holder) {
            own.waiting -= 1;
        }
        state.forget(&self.holder);
    }
}

/// Bytes that are charged to a holder until this is dropped.
pub struct Reservation {
    budget: Budget,
    charge: Mutex<Charge>,
}

struct Charge {
    holder: Arc<str>,
    bytes: u64,
}

/// The reservation of a request and of its response. In the extensions of both.
pub type Held = Arc<Reservation>;

impl Reservation {
    fn charge(&self) -> MutexGuard<'_, Charge> {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges more bytes if there is room for them.
    pub fn try_grow(&self, bytes: u64) -> bool {
        let charge = &mut *self.charge();
        let fits = self.budget.try_charge(&charge.holder, bytes);
        if fits {
            charge.bytes += bytes;
        }
        fits
    }

    /// Charges more bytes, and waits for room if need be. 503 as [`Budget::reserve`].
    pub async fn grow(&self, bytes: u64) -> Result<()> {
        if self.try_grow(bytes) {
            return Ok(());
        }
        let holder = Arc::clone(&self.charge().holder);
        let _waiting = Waiting::enter(&self.budget, &holder).ok_or_else(no_room)?;
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        while Instant::now() < deadline {
            sleep(ACQUIRE_INTERVAL).await;
            if self.try_grow(bytes) {
                return Ok(());
            }
        }
        Err(no_room())
    }

    /// Sets the number of charged bytes to that of memory that exists already, whether or not there is room: what comes next
    /// waits for it.
    pub fn set(&self, bytes: u64) {
        let charge = &mut *self.charge();
        let state = &mut *self.budget.state();
        if bytes >= charge.bytes {
            state.charge(&charge.holder, bytes - charge.bytes);
        } else {
            state.release(&charge.holder, charge.bytes - bytes);
        }
        charge.bytes = bytes;
    }

    /// Charges all of it to another holder from now on, and waits for that holder's room if need be.
    pub async fn move_to(&self, holder: &str) -> Result<()> {
        let bytes = self.charge().bytes;
        // The new holder is charged first: at no time are the bytes nobody's.
        let moved = self.budget.reserve(holder, bytes).await?;
        std::mem::swap(&mut *self.charge(), &mut *moved.charge());
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let charge = self
            .charge
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        self.budget.state().release(&charge.holder, charge.bytes);
    }
}

/// The refusal of a request for which there is no room.
pub fn no_room() -> Error {
    Error::overloaded(
        "The server holds too much data for you or in all. Read the responses, send fewer requests at once, and retry with backoff.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_holder_gets_a_third() {
        let budget = Budget::new(3000);
        let held = budget.reserve("a", 900).await.unwrap();
        assert!(held.try_grow(100));
        assert!(!held.try_grow(1));
        assert!(budget.reserve("a", 1).await.is_err());
        drop(held);
        assert_eq!(budget.held(), 0);
        assert!(budget.reserve("a", 1000).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn newcomer_gets_room_beside_twenty_greedy_holders() {
        let budget = Budget::new(192 << 20);
        let mut held = Vec::new();
        for holder in 0..20 {
            held.push(
                budget
                    .reserve(&format!("greedy-{holder}"), 0)
                    .await
                    .unwrap(),
            );
        }
        while held.iter().filter(|held| held.try_grow(64 << 10)).count() > 0 {}
        let newcomer = budget.reserve("newcomer", 5 << 20).await;
        assert!(newcomer.is_ok(), "{} are held", budget.held());
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_for_room_and_is_refused_without_any() {
        let budget = Budget::new(300);
        let held = budget.reserve("a", 100).await.unwrap();
        let freed = async {
            sleep(Duration::from_secs(1)).await;
            held.set(0);
        };
        let (granted, ()) = tokio::join!(budget.reserve("a", 50), freed);
        let granted = granted.unwrap();
        let began = Instant::now();
        assert!(granted.grow(100).await.is_err());
        assert!(began.elapsed() >= ACQUIRE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn only_some_may_wait() {
        let budget = Budget::new(300);
        let _held = budget.reserve("a", 100).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_MAX.0)
            .map(|_| {
                tokio::spawn({
                    let budget = budget.clone();
                    async move { budget.reserve("a", 50).await }
                })
            })
            .collect();
        sleep(Duration::from_millis(10)).await;
        let began = Instant::now();
        assert!(budget.reserve("a", 50).await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait");
        assert!(budget.reserve("b", 50).await.is_ok(), "others have room");
        for waits in waiting {
            assert!(waits.await.unwrap().is_err());
        }
        assert_eq!(budget.held(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn moved_bytes_are_charged_to_the_new_holder_alone() {
        let budget = Budget::new(3000);
        let held = budget.reserve("address", 1000).await.unwrap();
        held.move_to("org").await.unwrap();
        assert_eq!(budget.held(), 1000);
        assert!(budget.reserve("org", 1).await.is_err());
        assert!(budget.reserve("address", 1).await.is_ok());
        drop(held);
        assert_eq!(budget.held(), 0);
    }
}
