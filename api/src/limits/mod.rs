//! How many requests may come: sixty one-second buckets per organization, and the throttle of failed authentication
//! per address. Counted in Redis over all processes; in memory, per process, while Redis is away or slow.

mod memory;
mod redis;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assay_core::connection::Connection;
use assay_core::{Code, Error, Timestamp, telemetry};

use self::memory::Memory;
use self::redis::Counters;

/// A window's length in seconds.
const WINDOW: i64 = 60;
/// How long an answer of Redis is waited for. Long enough that a machine that is busy for a moment is not taken for a
/// Redis that is away: then every process would admit the whole allowance for itself.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often Redis is asked whether it is back, while requests are counted in memory and wait for nothing.
const PROBE: Duration = Duration::from_millis(500);
/// Waiting times of the throttle, in seconds: the first, and the longest.
const THROTTLE: (i64, i64) = (60, 15 * 60);

/// What the `X-RateLimit-*` headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Requests (or failures) in any sixty consecutive seconds.
    pub limit: u32,
    /// How many are left.
    pub remaining: u32,
    /// When the oldest that counts will count no more, in seconds since 1970, rounded down.
    pub reset: i64,
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
    /// Whether Redis did not answer, and is not known to be back.
    away: Arc<AtomicBool>,
}

impl Limits {
    /// Counters under `prefix`; `failures` is the number of failed authentications in a minute that are borne.
    pub fn new(connection: Connection, prefix: &str, failures: u32) -> Self {
        metrics::gauge!(telemetry::RATELIMIT_DEGRADED).set(0.0);
        Self { counters: Counters::new(connection, prefix), memory: Mutex::default(), failures, away: Arc::default() }
    }

    /// Counts a request of the organization (or of the person without one), unless it is one too many.
    pub async fn admit(&self, who: &str, limit: u32) -> Verdict {
        self.ask(self.counters.admit(who, limit), |memory, now| memory.admit(who, limit, now)).await
    }

    async fn fail(&self, address: &str) -> Verdict {
        let limit = self.failures;
        self.ask(self.counters.fail(address, limit), |memory, now| memory.fail(address, limit, now)).await
    }

    /// Counts a failed authentication, and returns what the caller is told of it: the failure, or that it was one too many.
    pub async fn failed(&self, address: &str, failure: Error) -> (Error, Allowance) {
        let verdict = self.fail(address).await;
        let message = "Too many failed authentications from this address. Wait before you try again.";
        let told = match verdict.refused_for {
            None => failure,
            Some(seconds) => Error { retry_after: Some(seconds), ..Error::new(Code::RateLimited, message) },
        };
        (told, verdict.allowance)
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
        if !self.away.load(Ordering::Relaxed) {
            let problem = match tokio::time::timeout(PATIENCE, redis).await {
                Ok(Ok(verdict)) => return verdict,
                Ok(Err(error)) => error.to_string(),
                Err(_) => String::from("no answer in time"),
            };
            self.count_in_memory(&problem);
        }
        let now = Timestamp::now().unix_micros();
        let mut own = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory(&mut own, now)
    }

    /// From here on nobody waits for Redis, until it answers one who asks for nothing else.
    fn count_in_memory(&self, problem: &str) {
        if self.away.swap(true, Ordering::Relaxed) {
            return;
        }
        metrics::gauge!(telemetry::RATELIMIT_DEGRADED).set(1.0);
        tracing::warn!(problem, "Redis does not answer: requests are counted in memory");
        let (away, probe) = (Arc::clone(&self.away), self.counters.probe());
        tokio::spawn(async move {
            // One that answers and does not write, because it is full or a replica, is of no use either.
            while !probe.succeeds(PATIENCE).await {
                tokio::time::sleep(PROBE).await;
            }
            away.store(false, Ordering::Relaxed);
            metrics::gauge!(telemetry::RATELIMIT_DEGRADED).set(0.0);
            tracing::info!("Redis answers again: requests are counted there");
        });
    }
}

/// `oldest` is the second of the oldest bucket that lives.
fn allowance(limit: u32, used: i64, oldest: i64) -> Allowance {
    Allowance { limit, remaining: u32::try_from(i64::from(limit) - used).unwrap_or(0), reset: oldest + WINDOW }
}
