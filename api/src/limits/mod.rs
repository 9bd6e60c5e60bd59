//! How many requests may come: sixty one-second buckets per organization, and the throttle of failed authentication
//! per address. Counted in Redis over all processes; in memory, per process, while Redis is away or slow.

mod memory;
mod redis;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::redis::aio::ConnectionManager;
use assay_core::{Timestamp, telemetry};

use self::memory::Memory;
use self::redis::Counters;

/// A window's length in seconds.
const WINDOW: i64 = 60;
/// How long an answer of Redis is waited for.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often the wait may begin anew.
const ROUNDS: u32 = 10;
/// How long Redis is left alone after it did not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Waiting times of the throttle, in seconds: the first, and the longest.
const THROTTLE: (i64, i64) = (60, 15 * 60);

/// What the `X-RateLimit-*` headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Requests (or failures) in any sixty consecutive seconds.
    pub limit: u32,
    /// How many are left.
    pub remaining: u32,
    /// When the oldest that counts will count no more, in seconds since 1970.
    pub reset: i64,
    /// The same, in seconds from now.
    pub reset_in: u32,
}

/// An allowance, and what it means for the request at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// After how many seconds to try again, if the request is refused.
    pub refused_for: Option<u32>,
    /// What is left.
    pub allowance: Allowance,
}

/// The counters.
pub struct Limits {
    counters: Counters,
    memory: Mutex<Memory>,
    failures: u32,
    started: Instant,
    /// How often Redis answered.
    answers: AtomicU64,
    /// Milliseconds after `started` until which Redis is left alone.
    paused_until: AtomicU64,
}

impl Limits {
    /// Counters under `prefix`; `failures` is the number of failed authentications in a minute that are borne.
    pub fn new(connection: ConnectionManager, prefix: &str, failures: u32) -> Self {
        Self {
            counters: Counters::new(connection, prefix),
            memory: Mutex::default(),
            failures,
            started: Instant::now(),
            answers: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
        }
    }

    /// Counts a request of the organization (or of the person without one), unless it is one too many.
    pub async fn admit(&self, who: &str, limit: u32) -> Verdict {
        self.ask(self.counters.admit(who, limit), |memory, now| memory.admit(who, limit, now)).await
    }

    /// Counts a failed authentication.
    pub async fn fail(&self, address: &str) -> Verdict {
        let limit = self.failures;
        self.ask(self.counters.fail(address, limit), |memory, now| memory.fail(address, limit, now)).await
    }

    /// The allowance of an address without a valid credential. Counts nothing.
    pub async fn address(&self, address: &str) -> Allowance {
        let limit = self.failures;
        self.ask(self.counters.peek(address, limit), |memory, now| memory.peek(address, limit, now)).await.allowance
    }

    /// Asks Redis within our patience, otherwise our own memory.
    async fn ask(
        &self,
        redis: impl Future<Output = ::redis::RedisResult<Verdict>>,
        memory: impl FnOnce(&mut Memory, i64) -> Verdict,
    ) -> Verdict {
        if !self.paused() {
            let problem = match self.answered(redis).await {
                Some(Ok(verdict)) => {
                    metrics::gauge!(telemetry::LIMITS_DEGRADED).set(0.0);
                    return verdict;
                }
                Some(Err(error)) => error.to_string(),
                None => String::from("no answer in time"),
            };
            self.pause();
            metrics::gauge!(telemetry::LIMITS_DEGRADED).set(1.0);
            tracing::warn!(%problem, "requests are counted in memory: Redis does not answer");
        }
        let now = Timestamp::now().unix_seconds();
        let mut own = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        memory(&mut own, now)
    }

    /// The answer, or nothing when Redis is slow. A timer that is late itself, or answers that others were given in the
    /// meantime, say that this process is slow and not Redis: then the wait begins anew, for a while.
    async fn answered<T>(&self, redis: impl Future<Output = T>) -> Option<T> {
        let mut redis = std::pin::pin!(redis);
        for _ in 0..ROUNDS {
            let (began, answers) = (Instant::now(), self.answers.load(Ordering::Relaxed));
            tokio::select! {
                biased;
                answer = &mut redis => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return Some(answer);
                }
                () = tokio::time::sleep(PATIENCE) => {}
            }
            if began.elapsed() < 2 * PATIENCE && self.answers.load(Ordering::Relaxed) == answers {
                return None;
            }
        }
        None
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn paused(&self) -> bool {
        self.millis() < self.paused_until.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        let until = self.millis().saturating_add(u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX));
        self.paused_until.store(until, Ordering::Relaxed);
    }
}

fn allowance(limit: u32, used: i64, oldest: Option<i64>, now: i64) -> Allowance {
    let reset = oldest.unwrap_or(now) + WINDOW;
    Allowance {
        limit,
        remaining: u32::try_from(i64::from(limit) - used).unwrap_or(0),
        reset,
        reset_in: u32::try_from((reset - now).max(1)).unwrap_or(u32::MAX),
    }
}
