//! An engine's circuit breaker: after repeated failures, calls are refused without being sent.

use std::time::Duration;

use tokio::time::Instant;

/// Consecutive failures that open the circuit.
const CONSECUTIVE_FAILURES: u32 = 5;

/// Recent calls that are remembered. The circuit opens if half failed.
const RECENT_CALLS: u32 = 20;

/// Time for which the circuit is open at first. It doubles with each failed trial call.
pub const OPEN_TIME_MIN: Duration = Duration::from_secs(1);

/// Maximum time for which the circuit is open.
pub const OPEN_TIME_MAX: Duration = Duration::from_secs(30);

/// A circuit breaker. It reads no clock: the caller passes the current time.
///
/// Each admitted call must end with [`Breaker::succeed`], [`Breaker::fail`] or [`Breaker::release`].
#[derive(Debug)]
pub struct Breaker {
    state: State,
    /// The change count between closed and open. Calls that were admitted before a change say
    /// nothing about the state after it.
    epoch: u64,
    consecutive: u32,
    /// One bit for each recent call, the latest first. 1 is a failure.
    recent: u32,
    n_recent: u32,
    open_time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        since: Instant,
        until: Instant,
    },
    /// One trial call is in progress.
    Trial,
}

/// One call's admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    epoch: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed,
            epoch: 0,
            consecutive: 0,
            recent: 0,
            n_recent: 0,
            open_time: OPEN_TIME_MIN,
        }
    }
}

impl Breaker {
    /// Admits a call, or returns `None` while the circuit is open. The first call after the open
    /// time is the trial call; until it ends, no other call is admitted.
    pub fn admit(&mut self, now: Instant) -> Option<Pass> {
        match self.state {
            State::Closed => {}
            State::Open { until, .. } if until <= now => {
                self.state = State::Trial;
                self.epoch += 1;
            }
            State::Open { .. } | State::Trial => return None,
        }
        Some(Pass { epoch: self.epoch })
    }

    /// Records that a call succeeded. Returns `true` if this closes the circuit.
    pub fn succeed(&mut self, pass: Pass) -> bool {
        if pass.epoch != self.epoch {
            return false;
        }
        match self.state {
            State::Trial => {
                *self = Self {
                    epoch: self.epoch,
                    ..Self::default()
                };
                true
            }
            _ => {
                self.record(false);
                false
            }
        }
    }

    /// Records that a call failed. Returns `true` if this opens the circuit, also if that happens
    /// again after a trial call.
    pub fn fail(&mut self, pass: Pass, now: Instant) -> bool {
        if pass.epoch != self.epoch {
            return false;
        }
        self.open_time = match self.state {
            State::Trial => (self.open_time * 2).min(OPEN_TIME_MAX),
            _ => {
                self.record(true);
                let failed = self.recent.count_ones();
                let is_half = self.n_recent == RECENT_CALLS && failed * 2 >= RECENT_CALLS;
                if self.consecutive < CONSECUTIVE_FAILURES && !is_half {
                    return false;
                }
                OPEN_TIME_MIN
            }
        };
        self.state = State::Open {
            since: now,
            until: now + self.open_time,
        };
        self.epoch += 1;
        true
    }

    /// Records that a call ended without saying anything about the engine, such as a cancelled
    /// call. If it was the trial call, the next call is the trial.
    pub fn release(&mut self, pass: Pass, now: Instant) {
        if pass.epoch == self.epoch && self.state == State::Trial {
            self.state = State::Open {
                since: now,
                until: now,
            };
        }
    }

    /// Records that the engine, which did not respond before, responds again. The next call is the
    /// trial, after at least [`OPEN_TIME_MIN`]: an engine that fails at every call is not called
    /// more often than that.
    pub fn recover(&mut self) {
        if let State::Open { since, until } = &mut self.state {
            *until = (*until).min(*since + OPEN_TIME_MIN);
        }
    }

    /// Returns `true` unless all calls are admitted.
    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    fn record(&mut self, is_failure: bool) {
        self.consecutive = if is_failure { self.consecutive + 1 } else { 0 };
        self.recent = (self.recent << 1 | u32::from(is_failure)) & ((1 << RECENT_CALLS) - 1);
        self.n_recent = (self.n_recent + 1).min(RECENT_CALLS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn call(breaker: &mut Breaker, is_failure: bool, now: Instant) -> bool {
        let pass = breaker.admit(now).expect("the circuit is closed");
        if is_failure {
            breaker.fail(pass, now)
        } else {
            breaker.succeed(pass)
        }
    }

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for n in 1..=5 {
            assert_eq!(call(&mut breaker, true, now), n == 5);
        }
        breaker
    }

    #[test]
    fn five_consecutive_failures_open() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for is_failure in [true, true, true, true, false, true, true, true, true] {
            assert!(!call(&mut breaker, is_failure, now));
        }
        assert!(call(&mut breaker, true, now) && breaker.is_open());
        assert_eq!(breaker.admit(now + SECOND / 2), None);
    }

    #[test]
    fn failures_in_half_of_recent_calls_open() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        // Every second call fails: the 20th call is the 10th failure.
        for n in 1..20 {
            assert!(!call(&mut breaker, n % 2 == 0, now), "{n}");
        }
        assert!(call(&mut breaker, true, now));
        let mut breaker = Breaker::default();
        // Nine failures in any 20 calls do not open.
        for n in 0..200 {
            assert!(
                !call(&mut breaker, n % 20 % 2 == 0 && n % 20 < 18, now),
                "{n}"
            );
        }
    }

    #[test]
    fn trial_call_closes() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let trial = breaker.admit(now + SECOND).unwrap();
        assert_eq!(breaker.admit(now + SECOND), None, "one trial at a time");
        assert!(breaker.succeed(trial) && !breaker.is_open());
        for n in 1..=5 {
            assert_eq!(call(&mut breaker, true, now), n == 5, "counts start again");
        }
    }

    #[test]
    fn open_time_doubles_up_to_maximum() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let open_time = SECOND * seconds;
            assert_eq!(breaker.admit(now + open_time - SECOND / 10), None);
            now += open_time;
            let trial = breaker.admit(now).unwrap();
            assert!(breaker.fail(trial, now));
        }
    }

    #[test]
    fn cancelled_trial_lets_next_call_try() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let trial = breaker.admit(now + SECOND).unwrap();
        breaker.release(trial, now + SECOND);
        let trial = breaker.admit(now + SECOND).unwrap();
        assert!(breaker.succeed(trial));
    }

    #[test]
    fn calls_from_before_opening_are_ignored() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        let earlier: Vec<_> = (0..8).map(|_| breaker.admit(now).unwrap()).collect();
        for pass in &earlier[..5] {
            breaker.fail(*pass, now);
        }
        assert!(!breaker.succeed(earlier[5]) && breaker.is_open());
        let trial = breaker.admit(now + SECOND).unwrap();
        assert!(!breaker.fail(earlier[6], now + SECOND));
        breaker.release(earlier[7], now + SECOND);
        assert_eq!(
            breaker.admit(now + SECOND),
            None,
            "the trial is in progress"
        );
        assert!(breaker.succeed(trial));
    }

    #[test]
    fn recovery_shortens_open_time() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        breaker.recover();
        assert_eq!(breaker.admit(now), None, "the minimum holds");
        for _ in 0..4 {
            now += OPEN_TIME_MAX;
            let trial = breaker.admit(now).unwrap();
            breaker.fail(trial, now);
        }
        assert_eq!(breaker.admit(now + SECOND), None);
        breaker.recover();
        assert!(breaker.admit(now + SECOND).is_some());
    }
}
