//! What is under way on a connection, and since when its client has done nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::response::READ_TIMEOUT;
use super::{HEAD_TIMEOUT, Http, IDLE_TIMEOUT};
use crate::limits::request_memory::ACQUIRE_TIMEOUT;

/// The bytes of responses that one connection may leave unread. Further requests on it wait until they are read.
const UNREAD_MAX: u64 = 8 * 1024 * 1024;
/// The requests of one HTTP/2 connection that may be open while the memory budget is spent and still get 503 with a body. A
/// client that reads nothing would hold the bodies of all refusals, so streams beyond are reset.
const REFUSALS_MAX: usize = 8;
/// The interval at which a request looks whether enough was read.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// The time that the streams of an HTTP/2 connection have to be reset one by one, before the connection is closed.
const RESET_GRACE: Duration = Duration::from_secs(15);

/// What a client has let a time pass for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Overdue {
    /// To send a request. It is told that the connection ends.
    Request,
    /// To send the headers of a request that it had begun.
    Headers,
    /// To read a response.
    Reading,
}

/// See the module. Times are milliseconds since it began.
pub struct Account {
    http: Http,
    began: Instant,
    /// Requests that were begun and whose responses have not been dropped.
    open: AtomicUsize,
    /// When the last of these began or ended.
    moved: AtomicU64,
    /// The bytes of the responses that are not read whole.
    unread: AtomicU64,
    /// Those of them that are to be written to the socket.
    unsent: AtomicU64,
    /// When the last of these were written, or the first of them came.
    sent: AtomicU64,
    /// Until when nothing is read from it.
    paused: AtomicU64,
    /// Whether it may be paused: not one that carries requests of many clients.
    may_pause: bool,
    /// Since when something comes that is not a request yet; 0: nothing does. Of HTTP/1 only, where it must be headers.
    heard: AtomicU64,
}

impl Account {
    pub(super) fn new(http: Http, may_pause: bool) -> Self {
        // Its first bytes are there.
        let heard = AtomicU64::new(u64::from(http == Http::One));
        let zero = || AtomicU64::new(0);
        Self {
            http,
            began: Instant::now(),
            open: AtomicUsize::new(0),
            moved: zero(),
            unread: zero(),
            unsent: zero(),
            sent: zero(),
            paused: zero(),
            may_pause,
            heard,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn moved(&self) {
        self.moved.store(self.now(), Ordering::Relaxed);
    }

    pub(super) fn heard(&self) {
        if self.http == Http::One && self.open.load(Ordering::Relaxed) == 0 {
            // The first of them counts.
            let _ = self.heard.compare_exchange(
                0,
                self.now().max(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Waits until the client has read enough of the responses before.
    pub async fn room(&self) {
        while self.unread.load(Ordering::Relaxed) >= UNREAD_MAX {
            sleep(READ_INTERVAL).await;
        }
    }

    /// Reads nothing from the connection for as long as a request would wait for memory: a client whose requests are refused at
    /// once would only send them again at once.
    pub(super) fn pause(&self) {
        if self.may_pause {
            let until = self.now() + u64::try_from(ACQUIRE_TIMEOUT.as_millis()).unwrap_or_default();
            self.paused.store(until, Ordering::Relaxed);
        }
    }

    /// Until when nothing is read.
    pub(super) fn paused(&self) -> Option<Instant> {
        let until = self.began + Duration::from_millis(self.paused.load(Ordering::Relaxed));
        (until > Instant::now()).then_some(until)
    }

    /// Whether a request that finds no memory is refused by a reset of its stream.
    pub(super) fn resets_refused(&self) -> bool {
        self.http == Http::Two && self.open.load(Ordering::Relaxed) > REFUSALS_MAX
    }

    pub(super) fn unread_more(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn unread_less(&self, bytes: u64) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn handed(&self, bytes: usize) {
        if self.unsent.fetch_add(bytes as u64, Ordering::Relaxed) == 0 {
            self.sent.store(self.now(), Ordering::Relaxed);
        }
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.unsent.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.sent.store(self.now(), Ordering::Relaxed);
        self.moved();
    }

    /// What the client must do next, and until when. `None`: it waits for the server; the deadline of a request is the business
    /// of its layer.
    fn due(&self) -> Option<(Instant, Overdue)> {
        let after = |time: &AtomicU64, timeout: Duration| {
            self.began + Duration::from_millis(time.load(Ordering::Relaxed)) + timeout
        };
        if self.unsent.load(Ordering::Relaxed) > 0 {
            let timeout = if self.http == Http::One {
                READ_TIMEOUT
            } else {
                READ_TIMEOUT + RESET_GRACE
            };
            return Some((after(&self.sent, timeout), Overdue::Reading));
        }
        if self.open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let request = (after(&self.moved, IDLE_TIMEOUT), Overdue::Request);
        let is_heard = self.heard.load(Ordering::Relaxed) > 0;
        Some(if is_heard {
            request.min((after(&self.heard, HEAD_TIMEOUT), Overdue::Headers))
        } else {
            request
        })
    }

    /// Returns when the client has let a time pass.
    pub(super) async fn overdue(&self) -> Overdue {
        loop {
            // What is due may come to be due earlier while this sleeps, as when headers begin: so not for long.
            let mut wake = Instant::now() + HEAD_TIMEOUT / 2;
            if let Some((due, overdue)) = self.due() {
                if due <= Instant::now() {
                    return overdue;
                }
                wake = wake.min(due);
            }
            sleep_until(wake).await;
        }
    }
}

/// A request that is under way.
pub(super) struct Open {
    pub(super) account: Arc<Account>,
}

impl Open {
    pub(super) fn new(account: &Arc<Account>) -> Self {
        account.open.fetch_add(1, Ordering::Relaxed);
        account.heard.store(0, Ordering::Relaxed);
        account.moved();
        Self {
            account: Arc::clone(account),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.account.open.fetch_sub(1, Ordering::Relaxed);
        self.account.moved();
    }
}
