//! Request limits: rate, concurrency and memory.
//!
//! This file holds the rate limits: sixty one-second buckets per organization, and the
//! failed-authentication throttle per address. Redis counts for all processes. While it is
//! unavailable, each process grants its share from its own counters. Requests that arrive while
//! Redis counts others are counted together.

pub mod address;
mod admissions;
pub mod concurrency;
pub mod concurrency_limits;
mod local_counters;
pub mod one_time_codes;
mod process_time;
mod recent;
mod redis;
pub mod rejections;
pub mod request_memory;
mod verdict;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::runtime::prometheus;
use assay_core::runtime::redis_connection::Connection;
use assay_core::store::{PgPool, PrimaryPool, presence};
use assay_core::{Code, Error, Result, Timestamp};
use tokio::sync::watch;

use self::admissions::Admissions;
use self::local_counters::LocalCounters;
use self::process_time::process_time;
use self::redis::{RedisCounters, Reply};
use self::verdict::Operation;
pub use self::verdict::{Allowance, Verdict};
use crate::limits::address::counting_prefixes;

/// [Process time](process_time) without a reply after which a request starts a Redis probe.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(250);
/// Process time without a reply after which a probe fails.
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// Longest time that a request waits for Redis, however little processor time the process gets.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between probes while Redis is unavailable. No request waits for these.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two readings of the API process count.
const PROCESSES_INTERVAL: Duration = Duration::from_secs(2);

/// The state of the circuit breaker around Redis. It decides which counters count requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaker {
    /// Redis counts.
    Closed,
    /// Redis counts, but a reply was late or failed, and a Redis probe is running.
    Probing,
    /// Redis is unavailable: this process's counters count.
    Open,
}

/// A Redis call's outcome.
enum RedisOutcome {
    Decided(Verdict),
    /// Redis is unavailable.
    Unavailable,
    /// This process got too little processor time to find out whether Redis is available.
    Starved,
}

/// Organizations' rate limits, and the failed-authentication throttle.
pub struct Limits {
    counters: RedisCounters,
    admissions: Admissions,
    local: Mutex<LocalCounters>,
    breaker: watch::Sender<Breaker>,
    /// The live API process count, as last read. They share what is granted while Redis is
    /// unavailable.
    processes: AtomicU32,
    /// The failed authentications that an address may have in a minute.
    failures_per_minute: u32,
}

impl Limits {
    /// The time after which the connection to Redis fails a call by itself. Requests stop waiting
    /// much earlier.
    pub const CONNECTION_TIMEOUT: Duration = WAIT_MAX;

    /// Creates limits whose Redis keys start with `prefix`, and that allow an address
    /// `failures_per_minute` failed authentications.
    pub fn new(connection: Connection, prefix: &str, failures_per_minute: u32) -> Self {
        metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(0.0);
        Self {
            counters: RedisCounters::new(connection, prefix),
            admissions: Admissions::default(),
            local: Mutex::default(),
            breaker: watch::Sender::new(Breaker::Closed),
            processes: AtomicU32::new(1),
            failures_per_minute,
        }
    }

    /// Counts a request by the organization (or the user without one), unless the limit is
    /// reached.
    ///
    /// # Errors
    /// `unavailable` if this process got too little processor time to read Redis's reply.
    pub async fn admit(&self, who: &str, limit: u32) -> Result<Verdict> {
        match self.call(Operation::Admit, who, limit).await {
            RedisOutcome::Decided(verdict) => Ok(verdict),
            RedisOutcome::Unavailable => Ok(self.decide(Operation::Admit, who, limit)),
            RedisOutcome::Starved => Err(Error::unavailable(
                "the process was too slow to read the reply of Redis",
            )),
        }
    }

    /// Counts a failed authentication for an address and its wider prefixes, unless a limit is
    /// reached.
    async fn fail(&self, address: &str) -> Verdict {
        let mut verdict = self.fail_prefix(address, self.failures_per_minute).await;
        for (prefix, times) in counting_prefixes(address).into_iter().skip(1) {
            if verdict.refused_for.is_some() {
                break;
            }
            let prefix_verdict = self
                .fail_prefix(&prefix, self.failures_per_minute.saturating_mul(times))
                .await;
            if prefix_verdict.refused_for.is_some() {
                verdict = Verdict {
                    refused_for: prefix_verdict.refused_for,
                    allowance: Allowance {
                        remaining: 0,
                        ..verdict.allowance
                    },
                };
            }
        }
        verdict
    }

    async fn fail_prefix(&self, prefix: &str, limit: u32) -> Verdict {
        // Until the throttle ends, Redis would return the same.
        let throttled = self
            .local()
            .throttled(prefix, limit, Timestamp::now().unix_micros());
        match throttled {
            Some(verdict) => verdict,
            None => self.failures(Operation::Fail, prefix, limit).await,
        }
    }

    /// Counts a failed authentication. Returns `failure`, or 429 if the address is throttled now.
    pub async fn record_failure(&self, address: &str, failure: Error) -> (Error, Allowance) {
        let verdict = self.fail(address).await;
        (
            verdict.refused_for.map_or(failure, throttled_error),
            verdict.allowance,
        )
    }

    /// Returns 429 if this process knows that the address is throttled. Counts nothing and does not
    /// call Redis.
    pub fn throttled(&self, address: &str) -> Option<(Error, Allowance)> {
        let verdict = self.local().throttled(
            address,
            self.failures_per_minute,
            Timestamp::now().unix_micros(),
        )?;
        Some((throttled_error(verdict.refused_for?), verdict.allowance))
    }

    /// Returns the allowance for an address without a valid credential. Counts nothing.
    pub async fn address_allowance(&self, address: &str) -> Allowance {
        self.failures(Operation::Peek, address, self.failures_per_minute)
            .await
            .allowance
    }

    async fn failures(&self, operation: Operation, prefix: &str, limit: u32) -> Verdict {
        match self.call(operation, prefix, limit).await {
            RedisOutcome::Decided(verdict) => verdict,
            // Failures grant nothing, so a starved process cannot grant anything twice.
            RedisOutcome::Unavailable | RedisOutcome::Starved => {
                self.decide(operation, prefix, limit)
            }
        }
    }

    /// Reads the API process count every [`PROCESSES_INTERVAL`], until it is dropped.
    pub async fn keep_counting_processes(&self, db: &PrimaryPool) {
        loop {
            self.count_processes(&db.get()).await;
            tokio::time::sleep(PROCESSES_INTERVAL).await;
        }
    }

    async fn count_processes(&self, db: &PgPool) {
        match presence::count(db).await {
            Ok(count) => {
                let processes = u32::try_from(count).unwrap_or(u32::MAX).max(1);
                if self.processes.swap(processes, Ordering::Relaxed) != processes {
                    tracing::info!(processes, "number of API processes changed");
                }
            }
            Err(error) => tracing::warn!(
                error = error.log_text(),
                "API processes not counted, last number used"
            ),
        }
    }

    fn local(&self) -> MutexGuard<'_, LocalCounters> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides without Redis, by this process's share.
    fn decide(&self, operation: Operation, who: &str, limit: u32) -> Verdict {
        let now = Timestamp::now().unix_micros();
        self.local().decide(
            operation,
            who,
            limit,
            self.processes.load(Ordering::Relaxed),
            now,
        )
    }

    /// Lets Redis decide, within [`WAIT_MAX`].
    async fn call(&self, operation: Operation, who: &str, limit: u32) -> RedisOutcome {
        let decided = tokio::time::timeout(WAIT_MAX, self.try_call(operation, who, limit)).await;
        decided.unwrap_or(RedisOutcome::Starved)
    }

    async fn try_call(&self, operation: Operation, who: &str, limit: u32) -> RedisOutcome {
        let mut breaker = self.breaker.subscribe();
        // A second attempt covers a call that failed although Redis is available: Redis was
        // restarted, or the connection broke.
        for _ in 0..2 {
            if *breaker.borrow_and_update() == Breaker::Open {
                return RedisOutcome::Unavailable;
            }
            let mut call = pin!(self.call_redis(operation, who, limit));
            let reply = loop {
                tokio::select! {
                    biased;
                    reply = &mut call => break reply,
                    _ = breaker.wait_for(|breaker| *breaker == Breaker::Open) => return RedisOutcome::Unavailable,
                    () = process_time(RESPONSE_TIMEOUT) => self.request_probe("no reply in time"),
                }
            };
            match reply {
                Ok(reply) => {
                    self.local()
                        .follow(operation, who, &reply, Timestamp::now().unix_micros());
                    return RedisOutcome::Decided(reply.verdict);
                }
                Err(error) => {
                    self.request_probe(&error.to_string());
                    let _ = breaker
                        .wait_for(|breaker| *breaker != Breaker::Probing)
                        .await;
                }
            }
        }
        RedisOutcome::Unavailable
    }

    async fn call_redis(
        &self,
        operation: Operation,
        who: &str,
        limit: u32,
    ) -> ::redis::RedisResult<Reply> {
        match operation {
            Operation::Admit => self.admissions.count(who, limit).await,
            Operation::Fail => self.counters.fail(who, limit).await,
            Operation::Peek => self.counters.peek(who, limit).await,
        }
    }

    /// Lets Redis count the requests that wait for it, until it is dropped.
    pub async fn keep_admitting(&self) {
        let unavailable = || {
            let mut breaker = self.breaker.subscribe();
            async move {
                // An error means that the breaker no longer exists, and neither does this.
                let _ = breaker.wait_for(|breaker| *breaker == Breaker::Open).await;
            }
        };
        self.admissions.count_all(&self.counters, unavailable).await;
    }

    /// Requests a Redis probe unless one is running.
    fn request_probe(&self, problem: &str) {
        self.breaker.send_if_modified(|breaker| {
            let is_closed = *breaker == Breaker::Closed;
            if is_closed {
                tracing::debug!(problem, "Redis call late or failed, probing");
                *breaker = Breaker::Probing;
            }
            is_closed
        });
    }

    /// Probes Redis whenever it is requested, until it is dropped. If a probe fails, this process
    /// counts requests until a probe succeeds.
    pub async fn keep_probing_redis(&self) {
        let mut breaker = self.breaker.subscribe();
        while breaker
            .wait_for(|breaker| *breaker == Breaker::Probing)
            .await
            .is_ok()
        {
            self.probe().await;
        }
    }

    /// Opens the breaker if Redis does not confirm a write, and closes it when it does. A Redis
    /// that replies but refuses to write, because it is full or a replica, counts as unavailable.
    async fn probe(&self) {
        let probe = self.counters.probe();
        if !probe.succeeds(PROBE_TIMEOUT).await {
            self.breaker.send_replace(Breaker::Open);
            metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(1.0);
            tracing::warn!("Redis unavailable, requests counted in memory");
            while !probe.succeeds(PROBE_TIMEOUT).await {
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
            metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(0.0);
            tracing::info!("Redis available, requests counted there");
        }
        self.breaker.send_replace(Breaker::Closed);
    }
}

/// Returns the 429 for a throttled address.
fn throttled_error(seconds: u32) -> Error {
    let message = "Too many failed authentications from this address. Wait before you try again.";
    Error::new(Code::RateLimited, message).with_retry_after(seconds)
}
