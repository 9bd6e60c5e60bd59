//! The timeout for every wait, in tests and in the programs that launch stacks.
//!
//! A test asserts no duration, because a busy machine stretches each. It waits for events,
//! and asserts their order and their counts. The timeout only ends a run in which an awaited event
//! never happens, so it is generous, and longer on a busy machine.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// The timeout of a wait on a quiet machine: three rounds of the slowest background task, which
/// runs every minute. An event that just missed one round, or two, is still awaited.
const QUIET_TIMEOUT: Duration = Duration::from_secs(180);

/// The CPU time of the measurement.
const MEASURED_CPU_TIME: Duration = Duration::from_millis(40);

/// The maximum slowness: even a starved run ends.
const SLOWNESS_MAX: f64 = 10.0;

/// The slowness from which it is reported.
const REPORTED_SLOWNESS: f64 = 1.5;

/// Returns the timeout of each wait: 180 s, multiplied by the machine's slowness.
///
/// The slowness is the wall time of a short CPU task divided by its CPU time: 1 on a quiet machine,
/// and 7 on one with two cores and 14 busy threads. It is at least 1 and at most 10. The first call
/// in a process measures it, which takes 40 ms of CPU time, and reports a slowness above 1.5 on
/// standard error.
pub fn wait_timeout() -> Duration {
    static TIMEOUT: OnceLock<Duration> = OnceLock::new();
    *TIMEOUT.get_or_init(|| {
        let slowness = slowness();
        let timeout = QUIET_TIMEOUT.mul_f64(slowness);
        if slowness > REPORTED_SLOWNESS {
            eprintln!(
                "the machine is busy: a CPU task takes {slowness:.1} times its CPU time, waits end after {} s",
                timeout.as_secs()
            );
        }
        timeout
    })
}

/// Measures how much longer than its CPU time a CPU task of the calling thread takes.
fn slowness() -> f64 {
    let Some(cpu_began) = thread_cpu_time() else {
        return 1.0;
    };
    let began = Instant::now();
    // Short pieces, so that the task has the same length in optimized and unoptimized builds. It
    // never sleeps: the scheduler prefers a thread that has just slept, which would hide the load.
    loop {
        std::hint::black_box((0..10_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)));
        let Some(now) = thread_cpu_time() else {
            return 1.0;
        };
        let used = now.saturating_sub(cpu_began);
        if used >= MEASURED_CPU_TIME {
            let ratio = began.elapsed().as_secs_f64() / used.as_secs_f64();
            return ratio.clamp(1.0, SLOWNESS_MAX);
        }
    }
}

/// Returns the CPU time of the calling thread, or `None` if the system does not measure it.
fn thread_cpu_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .ok()
        .map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_bounded_and_constant() {
        let timeout = wait_timeout();
        assert!((QUIET_TIMEOUT..=QUIET_TIMEOUT.mul_f64(SLOWNESS_MAX)).contains(&timeout));
        assert_eq!(timeout, wait_timeout());
    }
}
