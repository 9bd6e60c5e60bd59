//! The result when counting a request or a failed authentication. The counters in Redis and this
//! process's share it.

use assay_core::{Code, Error};

/// Window length in which requests and failures are counted, in seconds.
pub(super) const WINDOW: i64 = 60;
/// An address's first throttle duration, in seconds. Each further throttle doubles it.
pub(super) const THROTTLE_FIRST: i64 = 60;
/// Longest throttle duration, in seconds.
pub(super) const THROTTLE_MAX: i64 = 15 * 60;

/// The `X-RateLimit-*` headers' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The requests (or failed authentications) that any sixty consecutive seconds may
    /// have.
    pub limit: u32,
    /// The requests that are left now.
    pub remaining: u32,
    /// The time at which the oldest counted request leaves the window, in seconds since 1970,
    /// rounded down.
    pub reset: i64,
}

impl Allowance {
    /// Returns the allowance after `used` of `limit` requests. `oldest` is the oldest bucket's
    /// second in the window.
    pub(super) fn new(limit: u32, used: i64, oldest: i64) -> Self {
        Self {
            limit,
            remaining: u32::try_from(i64::from(limit) - used).unwrap_or(0),
            reset: oldest + WINDOW,
        }
    }
}

/// The decision about a request, with the allowance that its response reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Seconds until a retry makes sense if the request is refused; `None` if it is admitted.
    pub refused_for: Option<u32>,
    /// The allowance after this request.
    pub allowance: Allowance,
}

impl Verdict {
    /// Returns the 429 for a request beyond the rate limit.
    pub fn rate_limited(self) -> Error {
        let seconds = self.refused_for.unwrap_or(1);
        let message = format!(
            "More than {} requests in a minute. Wait {seconds} s.",
            self.allowance.limit
        );
        Error::new(Code::RateLimited, message).with_retry_after(seconds)
    }
}

/// An operation on a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Counts a request unless the limit is reached.
    Admit,
    /// Counts a failed authentication unless the limit is reached.
    Fail,
    /// Reads the failed authentications without counting.
    Peek,
}
