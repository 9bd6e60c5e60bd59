//! One process's counters, the fallback for Redis.
//!
//! While Redis is available, they follow its reports and decide nothing. While it is unavailable,
//! they grant this process's share of what the last reports left.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::redis::Reply;
use super::verdict::{Allowance, Operation, THROTTLE_FIRST, THROTTLE_MAX, Verdict, WINDOW};

/// A second in microseconds, the unit for all timestamps in this file.
const SECOND: i64 = 1_000_000;

/// Keys that an access checks for expiry. Each key is checked once per [`WINDOW`] and
/// an access adds at most one, so two suffice.
const CHECKED_PER_ACCESS: usize = 2;

/// The requests in the last sixty seconds, in one-second buckets.
#[derive(Default)]
struct Window {
    /// Per second its latest request's timestamp and the count, oldest first.
    buckets: VecDeque<(i64, u32)>,
}

impl Window {
    fn expire(&mut self, now: i64) {
        while self
            .buckets
            .front()
            .is_some_and(|(latest, _)| latest + WINDOW * SECOND <= now)
        {
            self.buckets.pop_front();
        }
    }

    fn used(&self) -> i64 {
        self.buckets
            .iter()
            .map(|(_, count)| i64::from(*count))
            .sum()
    }

    fn add(&mut self, requests: u32, now: i64) {
        match self.buckets.back_mut() {
            Some((latest, count)) if *latest / SECOND >= now / SECOND => {
                (*latest, *count) = (now.max(*latest), *count + requests);
            }
            _ => self.buckets.push_back((now, requests)),
        }
    }

    /// Makes the sum equal to the reported one. Other processes' requests get the report's
    /// time. It is never before their own time, so none expires too early.
    fn follow(&mut self, used: i64, now: i64) {
        self.expire(now);
        let mut surplus = self.used() - used;
        if surplus < 0 {
            self.add(u32::try_from(-surplus).unwrap_or(u32::MAX), now);
        }
        while let Some((_, count)) = self.buckets.front_mut().filter(|_| surplus > 0) {
            let removed = surplus.min(i64::from(*count));
            *count -= u32::try_from(removed).unwrap_or(0);
            surplus -= removed;
            if *count == 0 {
                self.buckets.pop_front();
            }
        }
    }

    fn oldest(&self) -> Option<i64> {
        self.buckets.front().map(|(latest, _)| *latest)
    }

    fn is_live(&self, now: i64) -> bool {
        self.buckets
            .back()
            .is_some_and(|(latest, _)| latest + WINDOW * SECOND > now)
    }
}

/// An address's throttle after too many failed authentications.
#[derive(Default)]
struct Throttle {
    /// Its end, in seconds since 1970.
    until: i64,
    /// The consecutive throttle count, which doubles each one's duration.
    times: u32,
}

#[derive(Default)]
struct Counter {
    /// The requests that Redis reported last.
    reported: Window,
    /// That report's time by Redis's clock.
    reported_at: i64,
    /// The requests that this process admitted without Redis. They stay when Redis is available
    /// again: a Redis that comes and goes must not grant the share again each time.
    own: Window,
    throttle: Throttle,
}

impl Counter {
    fn expire(&mut self, now: i64) {
        self.reported.expire(now);
        self.own.expire(now);
    }

    fn is_live(&self, now: i64) -> bool {
        let is_throttled =
            self.throttle.times > 0 && self.throttle.until + THROTTLE_MAX > now / SECOND;
        is_throttled || self.reported.is_live(now) || self.own.is_live(now)
    }

    /// Returns this process's share of what the last report left. It is rounded up: a share of zero
    /// would refuse a caller that is still below the limit.
    fn share(&self, limit: u32, processes: u32) -> i64 {
        let left = (i64::from(limit) - self.reported.used()).max(0);
        let processes = i64::from(processes.max(1));
        (left + processes - 1) / processes
    }

    /// Returns the seconds until the oldest request expires, at least 1.
    fn wait(&self, now: i64) -> u32 {
        let oldest = self
            .reported
            .oldest()
            .into_iter()
            .chain(self.own.oldest())
            .min()
            .unwrap_or(now);
        let left = oldest + WINDOW * SECOND - now;
        u32::try_from((left + SECOND - 1) / SECOND)
            .unwrap_or(1)
            .max(1)
    }

    fn verdict(&self, limit: u32, processes: u32, refused_for: Option<u32>, now: i64) -> Verdict {
        let left = (self.share(limit, processes) - self.own.used()).max(0);
        let oldest = self
            .reported
            .oldest()
            .into_iter()
            .chain(self.own.oldest())
            .min()
            .unwrap_or(now);
        Verdict {
            refused_for,
            allowance: Allowance::new(limit, i64::from(limit) - left, oldest / SECOND),
        }
    }

    fn has_room(&self, limit: u32, processes: u32) -> bool {
        self.own.used() < self.share(limit, processes)
    }

    fn admit(&mut self, limit: u32, processes: u32, now: i64) -> Verdict {
        if !self.has_room(limit, processes) {
            return self.verdict(limit, processes, Some(self.wait(now)), now);
        }
        self.own.add(1, now);
        self.verdict(limit, processes, None, now)
    }

    fn fail(&mut self, limit: u32, processes: u32, now: i64) -> Verdict {
        let now_seconds = now / SECOND;
        if self.throttle.until + THROTTLE_MAX <= now_seconds {
            self.throttle.times = 0;
        }
        if self.throttle.until <= now_seconds {
            if self.has_room(limit, processes) {
                self.own.add(1, now);
                return self.verdict(limit, processes, None, now);
            }
            self.throttle.until = now_seconds
                + THROTTLE_FIRST
                    .saturating_mul(1 << self.throttle.times.min(20))
                    .min(THROTTLE_MAX);
            self.throttle.times += 1;
        }
        let wait = u32::try_from(self.throttle.until - now_seconds).unwrap_or(u32::MAX);
        self.verdict(limit, processes, Some(wait), now)
    }

    fn follow(&mut self, reply: &Reply, now: i64) {
        // Replies to concurrent requests can be read in another order than Redis sent them.
        if reply.at >= self.reported_at {
            self.reported_at = reply.at;
            self.reported.follow(reply.used, now);
        }
    }
}

/// Counters by key. Expired ones are removed a few at a time, so that no access scans all
/// under the lock.
#[derive(Default)]
struct Counters {
    by_key: HashMap<Arc<str>, Counter>,
    /// Each key once, with the time when it is next checked for expiry, earliest first.
    checks: VecDeque<(i64, Arc<str>)>,
}

impl Counters {
    fn remove_expired(&mut self, now: i64) {
        for _ in 0..CHECKED_PER_ACCESS {
            let Some((_, key)) = self.checks.pop_front_if(|(at, _)| *at <= now) else {
                return;
            };
            if self
                .by_key
                .get(&key)
                .is_some_and(|counter| counter.is_live(now))
            {
                self.checks.push_back((now + WINDOW * SECOND, key));
            } else {
                self.by_key.remove(&key);
            }
        }
    }

    /// Calls `use_counter` with a key's counter. Does not store a new counter that has counted
    /// nothing.
    fn with<T>(&mut self, key: &str, now: i64, use_counter: impl FnOnce(&mut Counter) -> T) -> T {
        self.remove_expired(now);
        if let Some(counter) = self.by_key.get_mut(key) {
            counter.expire(now);
            return use_counter(counter);
        }
        let mut counter = Counter::default();
        let result = use_counter(&mut counter);
        if counter.is_live(now) {
            let key: Arc<str> = Arc::from(key);
            self.checks
                .push_back((now + WINDOW * SECOND, Arc::clone(&key)));
            self.by_key.insert(key, counter);
        }
        result
    }
}

/// All organizations' and addresses' counters.
#[derive(Default)]
pub(super) struct LocalCounters {
    requests: Counters,
    failures: Counters,
}

impl LocalCounters {
    fn counters(&mut self, operation: Operation) -> &mut Counters {
        match operation {
            Operation::Admit => &mut self.requests,
            Operation::Fail | Operation::Peek => &mut self.failures,
        }
    }

    /// Decides without Redis, as one among `processes` API processes.
    pub(super) fn decide(
        &mut self,
        operation: Operation,
        key: &str,
        limit: u32,
        processes: u32,
        now: i64,
    ) -> Verdict {
        self.counters(operation)
            .with(key, now, |counter| match operation {
                Operation::Admit => counter.admit(limit, processes, now),
                Operation::Fail => counter.fail(limit, processes, now),
                Operation::Peek => counter.verdict(limit, processes, None, now),
            })
    }

    /// Returns an address's refusal if this process knows that it is throttled.
    pub(super) fn throttled(&mut self, address: &str, limit: u32, now: i64) -> Option<Verdict> {
        let counter = self.failures.by_key.get(address)?;
        let left = u32::try_from(counter.throttle.until - now / SECOND)
            .ok()
            .filter(|left| *left > 0)?;
        let oldest = counter
            .reported
            .oldest()
            .or(counter.own.oldest())
            .unwrap_or(now);
        Some(Verdict {
            refused_for: Some(left),
            allowance: Allowance::new(limit, i64::from(limit), oldest / SECOND),
        })
    }

    /// Records Redis's decision.
    pub(super) fn follow(&mut self, operation: Operation, key: &str, reply: &Reply, now: i64) {
        self.counters(operation).with(key, now, |counter| {
            counter.follow(reply, now);
            if let (Operation::Fail, Some(seconds)) = (operation, reply.verdict.refused_for) {
                counter.throttle = Throttle {
                    until: now / SECOND + i64::from(seconds),
                    times: counter.throttle.times.max(1),
                };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(used: i64, at: i64) -> Reply {
        Reply {
            verdict: Verdict {
                refused_for: None,
                allowance: Allowance::new(60, used, 0),
            },
            used,
            at,
        }
    }

    fn admitted(
        counters: &mut LocalCounters,
        key: &str,
        limit: u32,
        processes: u32,
        now: i64,
    ) -> usize {
        (0..1000)
            .filter(|_| {
                counters
                    .decide(Operation::Admit, key, limit, processes, now)
                    .refused_for
                    .is_none()
            })
            .count()
    }

    #[test]
    fn sixty_seconds_admit_at_most_limit() {
        let mut counters = LocalCounters::default();
        let mut admitted = Vec::new();
        // Ten requests a second, never at its start.
        for now in (0..300 * SECOND).step_by(100_000).map(|now| now + 90_001) {
            if counters
                .decide(Operation::Admit, "org", 10, 1, now)
                .refused_for
                .is_none()
            {
                admitted.push(now);
            }
        }
        for from in &admitted {
            assert!(
                admitted
                    .iter()
                    .filter(|at| (*from..from + 60 * SECOND).contains(*at))
                    .count()
                    <= 10
            );
        }
        assert_eq!(admitted.len(), 50);
    }

    #[test]
    fn one_request_per_second_is_admitted() {
        let mut counters = LocalCounters::default();
        let admits = |second| {
            counters
                .decide(Operation::Admit, "org", 60, 1, second * SECOND + 500_000)
                .refused_for
                .is_none()
        };
        assert!((0..300).all(admits));
    }

    #[test]
    fn refusal_reports_expiry_of_oldest_request() {
        let mut counters = LocalCounters::default();
        let at = |seconds: f64| (seconds * 1e6) as i64;
        let mut admit = |key, now| counters.decide(Operation::Admit, key, 1, 1, now);
        admit("org", at(100.7));
        let refused = admit("org", at(130.0));
        assert_eq!(refused.refused_for, Some(31));
        assert_eq!(refused.allowance.reset, 160);
        assert_eq!(admit("org", at(160.6)).refused_for, Some(1));
        assert_eq!(admit("org", at(160.7)).refused_for, None);
        assert_eq!(admit("other", at(130.0)).refused_for, None);
    }

    #[test]
    fn throttle_doubles_up_to_fifteen_minutes() {
        let mut counters = LocalCounters::default();
        let mut now = 0;
        let mut waits = Vec::new();
        while waits.len() < 6 {
            match counters
                .decide(Operation::Fail, "a", 10, 1, now * SECOND)
                .refused_for
            {
                Some(wait) => {
                    waits.push(wait);
                    now += i64::from(wait);
                }
                None => now += 1,
            }
        }
        assert_eq!(waits, [60, 120, 240, 480, 900, 900]);
    }

    #[test]
    fn fallback_shares_remaining_allowance() {
        let mut counters = LocalCounters::default();
        counters.follow(Operation::Admit, "org", &reply(50, 1), SECOND);
        assert_eq!(
            admitted(&mut counters, "org", 60, 4, 2 * SECOND),
            3,
            "a quarter of the remaining ten, rounded up"
        );
        assert_eq!(admitted(&mut counters, "unknown", 60, 4, 2 * SECOND), 15);
        counters.follow(Operation::Admit, "full", &reply(60, 1), SECOND);
        assert_eq!(admitted(&mut counters, "full", 60, 4, 2 * SECOND), 0);
        // A minute later, the report's and this process's requests have expired.
        assert_eq!(admitted(&mut counters, "full", 60, 4, 61 * SECOND), 15);
        assert_eq!(admitted(&mut counters, "org", 60, 4, 63 * SECOND), 15);
    }

    #[test]
    fn flapping_redis_grants_share_once() {
        let mut counters = LocalCounters::default();
        let mut total = 0;
        for round in 0..20 {
            counters.follow(Operation::Admit, "org", &reply(0, round), round * SECOND);
            total += admitted(&mut counters, "org", 60, 4, round * SECOND);
        }
        assert_eq!(total, 15);
    }

    #[test]
    fn late_report_does_not_lower_the_count() {
        let mut counters = LocalCounters::default();
        counters.follow(Operation::Admit, "org", &reply(60, 2), SECOND);
        counters.follow(Operation::Admit, "org", &reply(10, 1), SECOND);
        assert_eq!(admitted(&mut counters, "org", 60, 1, SECOND), 0);
        // A later report lowers it: the first bucket's twenty have expired by then.
        counters.follow(Operation::Admit, "org", &reply(40, 3), 2 * SECOND);
        assert_eq!(admitted(&mut counters, "org", 60, 1, 2 * SECOND), 20);
    }

    #[test]
    fn expired_and_peeked_keys_are_dropped() {
        let mut counters = LocalCounters::default();
        for number in 0..1000 {
            counters.decide(Operation::Peek, &format!("peeked {number}"), 10, 1, 0);
        }
        assert_eq!(counters.failures.by_key.len(), 0);
        for number in 0..10_000 {
            counters.decide(Operation::Admit, &format!("old {number}"), 10, 1, 0);
        }
        for number in 0..10_000 {
            counters.decide(
                Operation::Admit,
                &format!("new {number}"),
                10,
                1,
                60 * SECOND,
            );
        }
        let Counters { by_key, checks } = &counters.requests;
        assert_eq!((by_key.len(), checks.len()), (10_000, 10_000));
        assert!(by_key.keys().all(|key| key.starts_with("new")));
    }
}
