//! A process's memory budget: the bytes in request bodies that arrive and in responses that are not
//! read yet. Every byte is charged to a holder: an organization, a user without one, or a
//! client address.
//!
//! A holder may hold at most half the bytes that are free at that time. A single holder thus
//! gets a third of the budget. With twenty holders that take all they can, a newcomer still gets a
//! twentieth. (Choudhury and Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches, 1998.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{Error, Result};
use tokio::time::{Instant, sleep};

/// Longest time that a request waits for memory.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a waiting request tries again. Waking all waiting requests at every release
/// would cost more.
pub const ACQUIRE_INTERVAL: Duration = Duration::from_millis(50);
/// The most waiting requests by one holder.
const WAITING_PER_HOLDER_MAX: usize = 64;
/// The most waiting requests in total.
const WAITING_MAX: usize = 1024;

/// The largest response that needs no own charge, in bytes: its request's charge covers it.
const SMALL_RESPONSE: u64 = 16 * 1024;

/// A process's memory budget. Clones share it.
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
    /// Creates a budget with `total` bytes.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(Inner {
            total,
            state: Mutex::default(),
        }))
    }

    /// Charges bytes to a holder, and waits if the holder has no room for them.
    ///
    /// # Errors
    /// 503 if there is no room within [`ACQUIRE_TIMEOUT`], or if too many requests wait already.
    pub async fn reserve(&self, holder: &str, bytes: u64) -> Result<Reservation> {
        let reservation = Reservation {
            budget: self.clone(),
            charge: Mutex::new(Charge {
                holder: holder.into(),
                bytes: 0,
                response: 0,
            }),
        };
        reservation.grow(bytes).await?;
        Ok(reservation)
    }

    /// Charges bytes to a holder if there is room for them now; does not wait.
    pub fn try_reserve(&self, holder: &Arc<str>, bytes: u64) -> Option<Reservation> {
        let charge = || {
            Mutex::new(Charge {
                holder: Arc::clone(holder),
                bytes,
                response: 0,
            })
        };
        self.try_charge(holder, bytes).then(|| Reservation {
            budget: self.clone(),
            charge: charge(),
        })
    }

    /// Returns how many bytes are charged to all holders together.
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
        self.remove_if_idle(holder);
    }

    /// Removes a holder without charges and waiting requests.
    fn remove_if_idle(&mut self, holder: &Arc<str>) {
        if self
            .holders
            .get(holder)
            .is_some_and(|own| own.held == 0 && own.waiting == 0)
        {
            self.holders.remove(holder);
        }
    }
}

/// A request that waits for memory, counted until it is dropped.
struct Waiting<'a> {
    budget: &'a Budget,
    holder: Arc<str>,
}

impl<'a> Waiting<'a> {
    /// Counts a waiting request. Returns `None` if too many wait.
    fn enter(budget: &'a Budget, holder: &Arc<str>) -> Option<Self> {
        let state = &mut *budget.state();
        let own = state.holders.entry(Arc::clone(holder)).or_default();
        let may_wait = own.waiting < WAITING_PER_HOLDER_MAX && state.waiting < WAITING_MAX;
        if may_wait {
            own.waiting += 1;
            state.waiting += 1;
        }
        state.remove_if_idle(holder);
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
        state.remove_if_idle(&self.holder);
    }
}

/// Bytes that are charged to a holder until the reservation is dropped.
pub struct Reservation {
    budget: Budget,
    charge: Mutex<Charge>,
}

struct Charge {
    holder: Arc<str>,
    bytes: u64,
    /// The part that is for the response.
    response: u64,
}

/// A request's and its response's reservation, stored in both their extensions.
pub type SharedReservation = Arc<Reservation>;

impl Reservation {
    fn charge(&self) -> MutexGuard<'_, Charge> {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges more bytes if there is room for them now; does not wait.
    pub fn try_grow(&self, bytes: u64) -> bool {
        let charge = &mut *self.charge();
        let fits = self.budget.try_charge(&charge.holder, bytes);
        if fits {
            charge.bytes += bytes;
        }
        fits
    }

    /// Charges more bytes, and waits if the holder has no room for them.
    ///
    /// # Errors
    /// 503, as [`Budget::reserve`].
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

    /// Charges the memory that a response takes at its peak, in addition to what was charged for it
    /// before. Called before the response is read from anywhere.
    ///
    /// # Errors
    /// 503, as [`Budget::reserve`].
    pub async fn reserve_response(&self, bytes: u64) -> Result<()> {
        self.grow(bytes).await?;
        self.charge().response += bytes;
        Ok(())
    }

    /// Charges the memory for a stream's next message, if it is more than what is charged for the
    /// response already. A stream holds one message at a time.
    ///
    /// # Errors
    /// 503, as [`Budget::reserve`].
    pub async fn reserve_response_of(&self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.response());
        self.reserve_response(more).await
    }

    /// Returns the bytes that are charged for the response.
    pub fn response(&self) -> u64 {
        self.charge().response
    }

    /// Sets the charge for everything but the response, in bytes, without waiting for room, because the
    /// memory exists already. Later requests wait for it instead.
    pub fn set(&self, bytes: u64) {
        let charge = &mut *self.charge();
        let response = charge.response;
        self.set_charge(charge, bytes + response);
    }

    /// Sets the charge for the response, which now exists, in bytes.
    pub fn set_response(&self, bytes: u64) {
        let charge = &mut *self.charge();
        let other = charge.bytes.saturating_sub(charge.response);
        self.set_charge(charge, other + bytes);
        charge.response = bytes;
    }

    fn set_charge(&self, charge: &mut Charge, bytes: u64) {
        let state = &mut *self.budget.state();
        if bytes >= charge.bytes {
            state.charge(&charge.holder, bytes - charge.bytes);
        } else {
            state.release(&charge.holder, charge.bytes - bytes);
        }
        charge.bytes = bytes;
    }

    /// Reports a response, or a streamed message, that is larger than what was charged for it: its
    /// memory was not counted before it existed.
    pub fn check_response(&self, bytes: u64) {
        let charged = self.response();
        if bytes > charged.max(SMALL_RESPONSE) {
            tracing::error!(bytes, charged, "response larger than its charge");
        }
    }

    /// Moves the charge to another holder, and waits if that holder has no room for it.
    ///
    /// # Errors
    /// 503, as [`Budget::reserve`]. The charge then stays with the present holder.
    pub async fn move_to(&self, holder: &str) -> Result<()> {
        let bytes = self.charge().bytes;
        // The new holder is charged before the old one is released, so that the bytes are charged
        // at all times.
        let moved = self.budget.reserve(holder, bytes).await?;
        let (charge, moved) = (&mut *self.charge(), &mut *moved.charge());
        moved.response = charge.response;
        std::mem::swap(charge, moved);
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

/// Returns the 503 for a request for which there is no memory.
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
    async fn newcomer_gets_room_among_twenty_greedy_holders() {
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
    async fn request_without_room_waits_then_fails() {
        let budget = Budget::new(300);
        let held = budget.reserve("a", 100).await.unwrap();
        let freed = async {
            sleep(Duration::from_secs(1)).await;
            held.set(0);
        };
        let (granted, ()) = tokio::join!(budget.reserve("a", 50), freed);
        let granted = granted.unwrap();
        let start = Instant::now();
        assert!(granted.grow(100).await.is_err());
        assert!(start.elapsed() >= ACQUIRE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_limited() {
        let budget = Budget::new(300);
        let _held = budget.reserve("a", 100).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_HOLDER_MAX)
            .map(|_| {
                tokio::spawn({
                    let budget = budget.clone();
                    async move { budget.reserve("a", 50).await }
                })
            })
            .collect();
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        assert!(budget.reserve("a", 50).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO, "refused without waiting");
        assert!(
            budget.reserve("b", 50).await.is_ok(),
            "another holder has room"
        );
        for task in waiting {
            assert!(task.await.unwrap().is_err());
        }
        assert_eq!(budget.held(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn moved_bytes_leave_the_old_holder() {
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
