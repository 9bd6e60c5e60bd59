//! An attempt's phases, for its trace.

use std::time::{Duration, Instant};

use assay_core::store::work::Phase;

/// An attempt's finished phases, as offsets from its start.
pub struct Phases {
    /// The attempt's start.
    pub start: Instant,
    /// The phases that have ended.
    pub finished: Vec<Phase>,
}

impl Phases {
    /// Starts an attempt's clock.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            finished: Vec::new(),
        }
    }

    /// Returns the microseconds since the attempt's start.
    pub fn offset_us(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Records a phase: the time that `work` takes.
    pub async fn record<T>(&mut self, name: &'static str, work: impl Future<Output = T>) -> T {
        let start_us = self.offset_us();
        let output = work.await;
        self.finished.push(Phase {
            name,
            start_us,
            end_us: self.offset_us(),
        });
        output
    }
}

/// The unit for all durations in an attempt whose figures are hidden. Callers can read them in the
/// trace, and the exact scoring duration could disclose figures.
const HIDDEN_UNIT: Duration = Duration::from_millis(50);

impl Phases {
    /// Waits until the attempt's duration is a multiple of [`HIDDEN_UNIT`], and rounds each phase's
    /// start down and its end up to such multiples.
    pub async fn hide_duration(&mut self) {
        let unit = i64::try_from(HIDDEN_UNIT.as_micros()).unwrap_or(i64::MAX);
        let rest = unit - self.offset_us().rem_euclid(unit);
        tokio::time::sleep(Duration::from_micros(rest.unsigned_abs())).await;
        for phase in &mut self.finished {
            phase.start_us = phase.start_us.div_euclid(unit) * unit;
            phase.end_us = (phase.end_us.div_euclid(unit) + 1) * unit;
        }
    }
}
