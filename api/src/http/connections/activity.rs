//! A connection's activity: its open requests, the bytes that its client has not read, and the
//! time since which the client is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::timeouts::{HEADERS_TIMEOUT, IDLE_TIMEOUT, READ_TIMEOUT};
use super::version::HttpVersion;
use crate::limits::request_memory::ACQUIRE_TIMEOUT;

/// Response bytes that one connection may leave unread. Further requests on it wait until they
/// are read.
const UNREAD_MAX: u64 = 8 * 1024 * 1024;
/// Open requests on one HTTP/2 connection up to which a request without memory still gets a 503
/// with a body. A client that reads nothing would hold all refusals' bodies, so further
/// streams are reset.
const REFUSALS_MAX: usize = 8;
/// Interval at which a request checks whether the client has read enough.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// Time in which an HTTP/2 connection's streams can be reset one by one, before the connection
/// is closed.
const RESET_GRACE: Duration = Duration::from_secs(15);

/// An action that the client did not take in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Overdue {
    /// Sending a request. The connection is shut down gracefully.
    Request,
    /// Completing a request's headers.
    Headers,
    /// Reading a response.
    Reading,
}

/// A connection's activity. Timestamps are milliseconds since its start.
pub struct ConnectionActivity {
    version: HttpVersion,
    started_at: Instant,
    /// Requests that have started and whose responses are not dropped yet.
    open: AtomicUsize,
    /// The time at which the last request started or finished, or response bytes were sent.
    last_active: AtomicU64,
    /// The response bytes that the client has not read completely.
    unread: AtomicU64,
    /// Those bytes that hyper holds and has not written to the socket.
    unsent: AtomicU64,
    /// The time at which bytes were last written, or at which the first unsent bytes were handed to
    /// hyper.
    last_sent: AtomicU64,
    /// The present pause's end.
    paused_until: AtomicU64,
    /// `true` if reading may be paused: not on a connection that carries many clients'
    /// requests.
    can_pause: bool,
    /// The time since which a request's headers arrive, or 0. Used for HTTP/1 only, where
    /// bytes between two requests must be headers.
    headers_since: AtomicU64,
}

impl ConnectionActivity {
    pub(super) fn new(version: HttpVersion, can_pause: bool) -> Self {
        // The first bytes have arrived already.
        let headers_since = AtomicU64::new(u64::from(version == HttpVersion::Http1));
        let zero = || AtomicU64::new(0);
        Self {
            version,
            started_at: Instant::now(),
            open: AtomicUsize::new(0),
            last_active: zero(),
            unread: zero(),
            unsent: zero(),
            last_sent: zero(),
            paused_until: zero(),
            can_pause,
            headers_since,
        }
    }

    /// Returns `true` if the connection has a budget for control frames: one with HTTP/2 that carries one
    /// client's requests.
    pub(super) fn counts_control_frames(&self) -> bool {
        self.version == HttpVersion::Http2 && self.can_pause
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn record_active(&self) {
        self.last_active.store(self.now(), Ordering::Relaxed);
    }

    /// Records that bytes have arrived.
    pub(super) fn record_incoming(&self) {
        if self.version == HttpVersion::Http1 && self.open.load(Ordering::Relaxed) == 0 {
            // Only the first bytes set the time.
            let _ = self.headers_since.compare_exchange(
                0,
                self.now().max(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Waits until the client has read enough from earlier responses.
    pub async fn wait_until_read(&self) {
        while self.unread.load(Ordering::Relaxed) >= UNREAD_MAX {
            sleep(READ_INTERVAL).await;
        }
    }

    /// Pauses reading for the time that a request would wait for memory. A client whose requests
    /// are refused at once would otherwise send them again at once.
    pub(super) fn pause(&self) {
        if self.can_pause {
            let until = self.now() + u64::try_from(ACQUIRE_TIMEOUT.as_millis()).unwrap_or_default();
            self.paused_until.store(until, Ordering::Relaxed);
        }
    }

    /// Returns the present pause's end, or `None` if reading is not paused.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        let until =
            self.started_at + Duration::from_millis(self.paused_until.load(Ordering::Relaxed));
        (until > Instant::now()).then_some(until)
    }

    /// Returns `true` if a request without memory is refused by resetting its stream.
    pub(super) fn resets_refused(&self) -> bool {
        self.version == HttpVersion::Http2 && self.open.load(Ordering::Relaxed) > REFUSALS_MAX
    }

    /// Adds a response's bytes that the client has to read.
    pub(super) fn add_unread(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes a response's bytes that was read or dropped.
    pub(super) fn remove_unread(&self, bytes: u64) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Records that hyper took bytes to send.
    pub(super) fn record_queued(&self, bytes: usize) {
        if self.unsent.fetch_add(bytes as u64, Ordering::Relaxed) == 0 {
            self.last_sent.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Records that bytes were written to the socket.
    pub(super) fn record_sent(&self, bytes: usize) {
        self.unsent.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.last_sent.store(self.now(), Ordering::Relaxed);
        self.record_active();
    }

    /// Returns the client's next action and its deadline, or `None` if the client waits for
    /// the server. The time that a request may take is limited by its own layer.
    fn next_deadline(&self) -> Option<(Instant, Overdue)> {
        let after = |time: &AtomicU64, timeout: Duration| {
            self.started_at + Duration::from_millis(time.load(Ordering::Relaxed)) + timeout
        };
        if self.unsent.load(Ordering::Relaxed) > 0 {
            let timeout = if self.version == HttpVersion::Http1 {
                READ_TIMEOUT
            } else {
                READ_TIMEOUT + RESET_GRACE
            };
            return Some((after(&self.last_sent, timeout), Overdue::Reading));
        }
        if self.open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let request = (after(&self.last_active, IDLE_TIMEOUT), Overdue::Request);
        let has_headers_started = self.headers_since.load(Ordering::Relaxed) > 0;
        Some(if has_headers_started {
            let headers = after(&self.headers_since, HEADERS_TIMEOUT);
            request.min((headers, Overdue::Headers))
        } else {
            request
        })
    }

    /// Waits until the client misses a deadline.
    pub(super) async fn overdue(&self) -> Overdue {
        loop {
            // The deadline can move forward during the sleep, for example when headers start to
            // arrive, so the sleep is short.
            let mut wake_at = Instant::now() + HEADERS_TIMEOUT / 2;
            if let Some((deadline, overdue)) = self.next_deadline() {
                if deadline <= Instant::now() {
                    return overdue;
                }
                wake_at = wake_at.min(deadline);
            }
            sleep_until(wake_at).await;
        }
    }
}

/// A request that is open until this is dropped.
pub(super) struct OpenRequest {
    pub(super) activity: Arc<ConnectionActivity>,
}

impl OpenRequest {
    pub(super) fn new(activity: &Arc<ConnectionActivity>) -> Self {
        activity.open.fetch_add(1, Ordering::Relaxed);
        activity.headers_since.store(0, Ordering::Relaxed);
        activity.record_active();
        Self {
            activity: Arc::clone(activity),
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity.open.fetch_sub(1, Ordering::Relaxed);
        self.activity.record_active();
    }
}
