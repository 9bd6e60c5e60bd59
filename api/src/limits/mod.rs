//! Rate limits: sixty one-second buckets per organization, and the throttle of failed authentication per address. Redis
//! counts for all processes. While it is unavailable each process grants its share from memory.

pub mod concurrency;
mod local_counters;
mod redis;
pub mod rejections;
pub mod request_memory;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::runtime::prometheus;
use assay_core::runtime::redis_connection::Connection;
use assay_core::store::{PgPool, presence};
use assay_core::{Code, Error, Result, Timestamp};
use tokio::sync::watch;

use self::local_counters::Memory;
use self::redis::{Counters, Probe};
use crate::http::client_address::counting_prefixes;

/// A window's length in seconds.
const WINDOW: i64 = 60;
/// After this [process time](process_time) without a reply, a request has Redis probed.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(250);
/// The probe fails after this process time without a reply.
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// No request waits longer for Redis, however little processor time the process gets.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between probes while Redis is unavailable. No request waits for these.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Steps in which process time is measured.
const STEP: Duration = Duration::from_millis(25);
/// How often the number of API processes is read.
const PROCESSES_INTERVAL: Duration = Duration::from_secs(2);
/// Throttle durations in seconds: the first, and the longest.
const THROTTLE: (i64, i64) = (60, 15 * 60);

/// The numbers of the `X-RateLimit-*` headers.
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

/// What is done to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Count a request, unless it is one too many.
    Admit,
    /// Count a failed authentication, unless it is one too many.
    Fail,
    /// Read the failed authentications.
    Peek,
}

/// Where requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaker {
    /// In Redis.
    Closed,
    /// In Redis, which has not replied in time to somebody; whether it replies at all is being probed.
    Probing,
    /// In memory.
    Open,
}

/// What came of a call to Redis.
enum Called {
    Decided(Verdict),
    /// Redis is unavailable.
    Unavailable,
    /// This process was too slow to find out whether Redis is available.
    Starved,
}

/// The counters.
pub struct Limits {
    counters: Counters,
    memory: Mutex<Memory>,
    breaker: Arc<watch::Sender<Breaker>>,
    /// Live API processes, as last read. They share what is granted from memory.
    processes: AtomicU32,
    failures: u32,
}

impl Limits {
    /// How long a connection waits for Redis before it gives up by itself. Requests do so much earlier.
    pub const CONNECTION_TIMEOUT: Duration = WAIT_MAX;

    /// Counters under `prefix`; `failures` is the number of failed authentications that an address has in a minute.
    pub fn new(connection: Connection, prefix: &str, failures: u32) -> Self {
        metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(0.0);
        Self {
            counters: Counters::new(connection, prefix),
            memory: Mutex::default(),
            breaker: Arc::new(watch::Sender::new(Breaker::Closed)),
            processes: AtomicU32::new(1),
            failures,
        }
    }

    /// Counts a request of the organization (or of the user without one), unless it is one too many.
    ///
    /// # Errors
    /// `unavailable`, when this process had too little processor time to hear what Redis decided.
    pub async fn admit(&self, who: &str, limit: u32) -> Result<Verdict> {
        match self.call(Operation::Admit, who, limit).await {
            Called::Decided(verdict) => Ok(verdict),
            Called::Unavailable => Ok(self.decide(Operation::Admit, who, limit)),
            Called::Starved => Err(Error::unavailable(
                "the process was too slow to read the reply of Redis",
            )),
        }
    }

    /// Counts a failed authentication of an address and of the prefixes around it, unless it is one too many.
    async fn fail(&self, address: &str) -> Verdict {
        let mut verdict = self.fail_prefix(address, self.failures).await;
        for (prefix, times) in counting_prefixes(address).into_iter().skip(1) {
            if verdict.refused_for.is_some() {
                break;
            }
            let wider = self
                .fail_prefix(&prefix, self.failures.saturating_mul(times))
                .await;
            if wider.refused_for.is_some() {
                verdict = Verdict {
                    refused_for: wider.refused_for,
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
        // Redis would say the same until then.
        let throttled = self
            .memory()
            .throttled(prefix, limit, Timestamp::now().unix_micros());
        match throttled {
            Some(verdict) => verdict,
            None => self.failures(Operation::Fail, prefix, limit).await,
        }
    }

    /// Counts a failed authentication, and returns the error for the caller: the failure, or that it was one too many.
    pub async fn failed(&self, address: &str, failure: Error) -> (Error, Allowance) {
        let verdict = self.fail(address).await;
        (
            verdict.refused_for.map_or(failure, throttled),
            verdict.allowance,
        )
    }

    /// The error of an address that is known here to be throttled. Asks nobody and counts nothing.
    pub fn throttled(&self, address: &str) -> Option<(Error, Allowance)> {
        let verdict =
            self.memory()
                .throttled(address, self.failures, Timestamp::now().unix_micros())?;
        Some((throttled(verdict.refused_for?), verdict.allowance))
    }

    /// The allowance of an address without a valid credential. Counts nothing.
    pub async fn address(&self, address: &str) -> Allowance {
        self.failures(Operation::Peek, address, self.failures)
            .await
            .allowance
    }

    async fn failures(&self, operation: Operation, prefix: &str, limit: u32) -> Verdict {
        match self.call(operation, prefix, limit).await {
            Called::Decided(verdict) => verdict,
            // Nothing is granted here that a starved process could grant twice.
            Called::Unavailable | Called::Starved => self.decide(operation, prefix, limit),
        }
    }

    /// Reads the number of API processes again and again.
    pub async fn keep_counting_processes(&self, db: &PgPool) {
        loop {
            self.count_processes(db).await;
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
            Err(error) => tracing::warn!(%error, "API processes not counted, last number used"),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides by this process's share.
    fn decide(&self, operation: Operation, who: &str, limit: u32) -> Verdict {
        let now = Timestamp::now().unix_micros();
        self.memory().decide(
            operation,
            who,
            limit,
            self.processes.load(Ordering::Relaxed),
            now,
        )
    }

    /// Lets Redis decide.
    async fn call(&self, operation: Operation, who: &str, limit: u32) -> Called {
        let decided = tokio::time::timeout(WAIT_MAX, self.try_call(operation, who, limit)).await;
        decided.unwrap_or(Called::Starved)
    }

    async fn try_call(&self, operation: Operation, who: &str, limit: u32) -> Called {
        let mut breaker = self.breaker.subscribe();
        // Once more, if it failed and Redis is available nevertheless: it was restarted, or the connection broke.
        for _ in 0..2 {
            if *breaker.borrow_and_update() == Breaker::Open {
                return Called::Unavailable;
            }
            let mut call = pin!(self.counters.run(operation, who, limit));
            let reply = loop {
                tokio::select! {
                    biased;
                    reply = &mut call => break reply,
                    _ = breaker.wait_for(|breaker| *breaker == Breaker::Open) => return Called::Unavailable,
                    () = process_time(RESPONSE_TIMEOUT) => self.probe("no reply in time"),
                }
            };
            match reply {
                Ok(reply) => {
                    self.memory()
                        .follow(operation, who, &reply, Timestamp::now().unix_micros());
                    return Called::Decided(reply.verdict);
                }
                Err(error) => {
                    self.probe(&error.to_string());
                    let _ = breaker
                        .wait_for(|breaker| *breaker != Breaker::Probing)
                        .await;
                }
            }
        }
        Called::Unavailable
    }

    /// Probes Redis, unless that is being done. If the probe fails, requests are counted in memory until one succeeds.
    fn probe(&self, problem: &str) {
        let starts = self.breaker.send_if_modified(|breaker| {
            let starts = *breaker == Breaker::Closed;
            if starts {
                *breaker = Breaker::Probing;
            }
            starts
        });
        if starts {
            tokio::spawn(probe(
                Arc::clone(&self.breaker),
                self.counters.probe(),
                problem.to_owned(),
            ));
        }
    }
}

/// Opens the breaker if Redis does not reply to a probe, and closes it when it does. A Redis that replies and refuses to
/// write, because it is full or a replica, is of no use either.
async fn probe(breaker: Arc<watch::Sender<Breaker>>, probe: Probe, problem: String) {
    if probe.succeeds(PROBE_TIMEOUT).await {
        tracing::debug!(problem, "Redis replied late");
        breaker.send_replace(Breaker::Closed);
        return;
    }
    breaker.send_replace(Breaker::Open);
    metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(1.0);
    tracing::warn!(problem, "Redis unavailable, requests counted in memory");
    while !probe.succeeds(PROBE_TIMEOUT).await {
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    breaker.send_replace(Breaker::Closed);
    metrics::gauge!(prometheus::RATELIMIT_DEGRADED).set(0.0);
    tracing::info!("Redis available, requests counted there");
}

/// Waits until this process itself was able to work for so long. A timer that fires late counts as one step: while the
/// process gets no processor time it cannot read replies either, so that time says nothing about Redis. With each step
/// the runtime has read what had arrived.
async fn process_time(duration: Duration) {
    for _ in 0..duration.as_millis() / STEP.as_millis() {
        tokio::time::sleep(STEP).await;
    }
}

fn throttled(seconds: u32) -> Error {
    let message = "Too many failed authentications from this address. Wait before you try again.";
    Error {
        retry_after: Some(seconds),
        ..Error::new(Code::RateLimited, message)
    }
}

/// `oldest` is the second of the oldest bucket that lives.
fn allowance(limit: u32, used: i64, oldest: i64) -> Allowance {
    Allowance {
        limit,
        remaining: u32::try_from(i64::from(limit) - used).unwrap_or(0),
        reset: oldest + WINDOW,
    }
}
