//! One-time codes for callers without a credential: sign-in link tokens, and device login
//! codes.
//!
//! Each code look-up takes a connection to the database. Here is how few a stranger can take,
//! however many codes they try and however often they repeat one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::model::device::POLL_INTERVAL_SECONDS;
use assay_core::model::secret::SecretHash;
use assay_core::{Error, Result};

use super::concurrency::{ConcurrencyLimit, ConcurrencyPermit};
use super::recent::Recent;

/// The look-ups that one address can have in progress.
const LOOKUPS_OF_ADDRESS: usize = 2;
/// The look-ups that all addresses together can have in progress.
const LOOKUPS: usize = 8;
/// The longest time that a look-up waits for others.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The time for which sign-in callbacks are remembered: longer than a browser keeps what ties it
/// to one.
const CALLBACK_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The time after a device login's poll in which the database is not asked about the same code: it
/// would refuse each poll in the interval.
const REPEATED_POLL: Duration = Duration::from_secs(1);

/// One-time code look-ups, device logins' last polls, and sign-in callbacks.
pub struct OneTimeCodes {
    lookups: ConcurrencyLimit,
    polls: Mutex<Recent<SecretHash, ()>>,
    callbacks: Mutex<Recent<SecretHash, ()>>,
}

impl Default for OneTimeCodes {
    fn default() -> Self {
        Self {
            lookups: ConcurrencyLimit::new(LOOKUPS_OF_ADDRESS, LOOKUPS, WAIT_MAX),
            polls: Mutex::new(Recent::new(REPEATED_POLL)),
            callbacks: Mutex::new(Recent::new(CALLBACK_LIFETIME)),
        }
    }
}

impl OneTimeCodes {
    /// Waits until the address may look up a code. The permit is held until the look-up has ended.
    ///
    /// # Errors
    /// 503 if the wait takes too long.
    pub async fn look_up(&self, address: &str) -> Result<ConcurrencyPermit> {
        self.lookups.acquire(address).await
    }

    /// Refuses a device login's poll that follows another one to this process at once. The database
    /// decides about the others.
    ///
    /// # Errors
    /// 429 with the interval's seconds.
    pub fn check_poll(&self, code: &SecretHash) -> Result<()> {
        match self.polls().get(code, Instant::now()) {
            None => Ok(()),
            Some(()) => Err(Error::polled_too_fast(
                POLL_INTERVAL_SECONDS,
                POLL_INTERVAL_SECONDS,
            )),
        }
    }

    /// Records a poll with a response.
    pub fn record_poll(&self, code: SecretHash) {
        self.polls().insert(code, (), Instant::now());
    }

    /// Returns `true` for the first callback from a sign-in with a provider to this process. The
    /// provider refuses a callback's code that is sent to another process.
    pub fn is_first_callback(&self, state: SecretHash) -> bool {
        let mut callbacks = self
            .callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_first = callbacks.get(&state, now).is_none();
        callbacks.insert(state, (), now);
        is_first
    }

    fn polls(&self) -> MutexGuard<'_, Recent<SecretHash, ()>> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
