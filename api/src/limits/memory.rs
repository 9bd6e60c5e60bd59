//! The same counters in this process's memory, for as long as Redis is away.

use std::collections::HashMap;
use std::collections::VecDeque;

use super::{THROTTLE, Verdict, WINDOW, allowance};

/// Above this many keys the dead ones are dropped.
const KEYS: usize = 10_000;

/// A second in microseconds: moments are told in these.
const SECOND: i64 = 1_000_000;

#[derive(Default)]
struct Window {
    /// Moment of the latest request of a second, and their count, oldest first.
    buckets: VecDeque<(i64, u32)>,
}

impl Window {
    fn forget(&mut self, now: i64) {
        while self.buckets.front().is_some_and(|(latest, _)| latest + WINDOW * SECOND <= now) {
            self.buckets.pop_front();
        }
    }

    fn used(&self) -> i64 {
        self.buckets.iter().map(|(_, count)| i64::from(*count)).sum()
    }

    fn count(&mut self, now: i64) {
        match self.buckets.back_mut() {
            Some((latest, count)) if *latest / SECOND >= now / SECOND => (*latest, *count) = (now.max(*latest), *count + 1),
            _ => self.buckets.push_back((now, 1)),
        }
    }

    /// In how many seconds the oldest counts no more.
    fn wait(&self, now: i64) -> u32 {
        let left = self.buckets.front().map_or(WINDOW * SECOND, |(latest, _)| latest + WINDOW * SECOND - now);
        u32::try_from((left + SECOND - 1) / SECOND).unwrap_or(1).max(1)
    }

    fn verdict(&self, limit: u32, refused_for: Option<u32>, now: i64) -> Verdict {
        let oldest = self.buckets.front().map_or(now, |(latest, _)| *latest);
        Verdict { refused_for, allowance: allowance(limit, self.used(), oldest / SECOND) }
    }
}

#[derive(Default)]
struct Throttle {
    until: i64,
    times: u32,
}

#[derive(Default)]
pub(super) struct Memory {
    requests: HashMap<String, Window>,
    failures: HashMap<String, Window>,
    throttles: HashMap<String, Throttle>,
}

/// The window of a key, without what is too old; room is made first when there are very many.
fn window<'a>(windows: &'a mut HashMap<String, Window>, key: &str, now: i64) -> &'a mut Window {
    if windows.len() >= KEYS && !windows.contains_key(key) {
        windows.retain(|_, window| window.buckets.back().is_some_and(|(latest, _)| latest + WINDOW * SECOND > now));
    }
    let window = windows.entry(key.to_owned()).or_default();
    window.forget(now);
    window
}

impl Memory {
    pub(super) fn admit(&mut self, who: &str, limit: u32, now: i64) -> Verdict {
        let window = window(&mut self.requests, who, now);
        if window.used() >= i64::from(limit) {
            return window.verdict(limit, Some(window.wait(now)), now);
        }
        window.count(now);
        window.verdict(limit, None, now)
    }

    pub(super) fn peek(&mut self, address: &str, limit: u32, now: i64) -> Verdict {
        window(&mut self.failures, address, now).verdict(limit, None, now)
    }

    pub(super) fn fail(&mut self, address: &str, limit: u32, now: i64) -> Verdict {
        let window = window(&mut self.failures, address, now);
        let now_seconds = now / SECOND;
        let (first, longest) = THROTTLE;
        if self.throttles.len() >= KEYS {
            self.throttles.retain(|_, throttle| throttle.until > now_seconds - longest);
        }
        let throttle = self.throttles.entry(address.to_owned()).or_default();
        if throttle.until + longest <= now_seconds {
            throttle.times = 0;
        }
        if throttle.until <= now_seconds {
            if window.used() < i64::from(limit) {
                window.count(now);
                return window.verdict(limit, None, now);
            }
            throttle.until = now_seconds + first.saturating_mul(1 << throttle.times.min(20)).min(longest);
            throttle.times += 1;
        }
        window.verdict(limit, Some(u32::try_from(throttle.until - now_seconds).unwrap_or(u32::MAX)), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_any_sixty_seconds_no_more_than_the_limit_is_admitted() {
        let mut memory = Memory::default();
        let mut admitted = Vec::new();
        // Ten a second, never at the beginning of one.
        for now in (0..300 * SECOND).step_by(100_000).map(|now| now + 90_001) {
            if memory.admit("org", 10, now).refused_for.is_none() {
                admitted.push(now);
            }
        }
        for from in &admitted {
            assert!(admitted.iter().filter(|at| (*from..from + 60 * SECOND).contains(*at)).count() <= 10);
        }
        assert_eq!(admitted.len(), 50);
    }

    #[test]
    fn one_a_second_is_sixty_a_minute() {
        let mut memory = Memory::default();
        assert!((0..300).all(|second| memory.admit("org", 60, second * SECOND + 500_000).refused_for.is_none()));
    }

    #[test]
    fn a_refusal_says_when_the_oldest_counts_no_more() {
        let mut memory = Memory::default();
        let at = |seconds: f64| (seconds * 1e6) as i64;
        memory.admit("org", 1, at(100.7));
        let refused = memory.admit("org", 1, at(130.0));
        assert_eq!(refused.refused_for, Some(31));
        assert_eq!(refused.allowance.reset, 160);
        assert_eq!(memory.admit("org", 1, at(160.6)).refused_for, Some(1));
        assert_eq!(memory.admit("org", 1, at(160.7)).refused_for, None);
        assert_eq!(memory.admit("other", 1, at(130.0)).refused_for, None);
    }

    #[test]
    fn the_throttle_doubles_up_to_a_quarter_of_an_hour() {
        let mut memory = Memory::default();
        let mut now = 0;
        let mut waits = Vec::new();
        while waits.len() < 6 {
            match memory.fail("a", 10, now * SECOND).refused_for {
                Some(wait) => {
                    waits.push(wait);
                    now += i64::from(wait);
                }
                None => now += 1,
            }
        }
        assert_eq!(waits, [60, 120, 240, 480, 900, 900]);
    }
}
