//! Measured times for a package's operations, from which admission estimates how long calls
//! take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assay_engine::GenerateMode;

use crate::call::Operation;

/// Moving averages of a package's operation times.
#[derive(Debug, Default)]
pub struct Times {
    predict: Average,
    generate: Average,
    embed: Average,
}

impl Times {
    /// Returns the estimated time to compute one sequence, or zero before the first measurement.
    pub fn estimate(&self, operation: &Operation) -> Duration {
        let nanoseconds = self.of(operation).0.load(Ordering::Relaxed);
        Duration::from_nanos(nanoseconds).saturating_mul(steps(operation))
    }

    /// Adds the time in which one sequence was computed.
    pub fn add(&self, operation: &Operation, time: Duration) {
        self.of(operation).add(time / steps(operation));
    }

    fn of(&self, operation: &Operation) -> &Average {
        match operation {
            Operation::Predict { .. } => &self.predict,
            Operation::Generate { .. } => &self.generate,
            Operation::Embed(_) => &self.embed,
        }
    }
}

/// Returns how many steps in one sequence take about the same time, at least 1.
fn steps(operation: &Operation) -> u32 {
    let Operation::Generate { parameters, .. } = operation else {
        return 1;
    };
    let steps = parameters
        .first()
        .map_or(1, |parameters| match parameters.mode {
            GenerateMode::Beam => parameters.n_events,
            GenerateMode::Sample { .. } => parameters.n_events * parameters.n_continuations,
        });
    u32::try_from(steps).unwrap_or(u32::MAX).max(1)
}

/// A moving average, in nanoseconds; 0 before the first measurement.
#[derive(Debug, Default)]
struct Average(AtomicU64);

impl Average {
    fn add(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // A measurement that is lost to another thread's does not matter.
        let average = match self.0.load(Ordering::Relaxed) {
            0 => time,
            average => average - average / 8 + time / 8,
        };
        self.0.store(average.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use assay_engine::{EmbedOptions, GenerateOptions, Pooling};

    use super::*;
    use crate::texts::Texts;

    fn generate(n_events: usize, n_continuations: usize, mode: GenerateMode) -> Operation {
        Operation::Generate {
            sequence_ids: Texts::default(),
            parameters: vec![GenerateOptions {
                n_events,
                n_continuations,
                mode,
                exclude_seen: false,
            }],
        }
    }

    #[test]
    fn estimates_follow_measurements() {
        let embed = Operation::Embed(EmbedOptions {
            pooling: Pooling::Last,
            normalize: true,
        });
        let times = Times::default();
        assert_eq!(times.estimate(&embed), Duration::ZERO);
        times.add(&embed, Duration::from_millis(8));
        assert_eq!(times.estimate(&embed), Duration::from_millis(8));
        times.add(&embed, Duration::from_millis(16));
        assert_eq!(times.estimate(&embed), Duration::from_millis(9));
    }

    #[test]
    fn estimate_of_generation_counts_events() {
        let times = Times::default();
        times.add(
            &generate(2, 3, GenerateMode::Beam),
            Duration::from_millis(20),
        );
        let longer = times.estimate(&generate(5, 1, GenerateMode::Beam));
        assert_eq!(longer, Duration::from_millis(50));
        let sample = GenerateMode::Sample {
            temperature: 1.0,
            seed: 1,
        };
        let samples = times.estimate(&generate(5, 3, sample));
        assert_eq!(samples, Duration::from_millis(150));
    }
}
