//! The measurements of finished jobs: the speed of the workers, how long jobs wait, and how far the
//! estimates were off.

use assay_core::model::queue::{Speed, WaitSeconds};
use assay_core::store::queue_snapshot::{Measured, MeasuredAttempt};

/// The number of jobs with an estimate that are needed to say by when nine of ten jobs end.
const RATIOS_MIN: usize = 20;

/// The quantile of the ratios from which `estimated_end_by` is computed. It is above 0.9 as a margin,
/// because the load changes before a job ends.
const END_BY_QUANTILE: f64 = 0.95;

/// The ratio of two costs above which jobs are of different sizes.
const SIZES_RATIO_MIN: f64 = 4.0;

/// The cost up to which jobs of one size are assumed to be dominated by their overhead, in items.
const OVERHEAD_DOMINATES_MAX: f64 = 10_000.0;

/// Measures attempts.
pub fn measure(attempts: &[MeasuredAttempt]) -> Measured {
    let waits = sorted(attempts.iter().map(|attempt| attempt.waited));
    let started_after = sorted(attempts.iter().filter_map(|attempt| attempt.started_after));
    let ratios = sorted(attempts.iter().filter_map(|attempt| attempt.ratio));
    Measured {
        speed: speed(attempts),
        start_seconds: quantile(&started_after, 0.5),
        end_by_ratio: quantile(&ratios, END_BY_QUANTILE).filter(|_| ratios.len() >= RATIOS_MIN),
        wait_seconds: quantile(&waits, 0.5)
            .zip(quantile(&waits, 0.95))
            .map(|(p50, p95)| WaitSeconds { p50, p95 }),
    }
}

/// Returns the speed of the workers: a line through the medians of the third with the smallest jobs
/// and of the third with the largest ones. Medians, because some attempts wait for a busy machine.
fn speed(attempts: &[MeasuredAttempt]) -> Option<Speed> {
    let mut jobs: Vec<(f64, f64)> = attempts
        .iter()
        .filter_map(|attempt| Some((attempt.cost.max(1) as f64, attempt.ran?.max(1e-6))))
        .collect();
    jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let third = jobs.len().div_ceil(3);
    let (small_cost, small_seconds) = medians(&jobs[..third])?;
    let (large_cost, large_seconds) = medians(&jobs[jobs.len() - third..])?;
    let assumed = Speed::ASSUMED.items_per_second;
    if large_cost >= SIZES_RATIO_MIN * small_cost && large_seconds > small_seconds {
        let items_per_second = (large_cost - small_cost) / (large_seconds - small_seconds);
        let overhead_seconds = small_seconds - small_cost / items_per_second;
        return Some(Speed {
            items_per_second,
            overhead_seconds: overhead_seconds.max(1e-6),
        });
    }
    // Jobs of one size do not show which part of the time is overhead.
    Some(if large_cost <= OVERHEAD_DOMINATES_MAX {
        Speed {
            items_per_second: assumed,
            overhead_seconds: (large_seconds - large_cost / assumed).max(1e-6),
        }
    } else {
        Speed {
            items_per_second: large_cost / large_seconds,
            overhead_seconds: Speed::ASSUMED.overhead_seconds,
        }
    })
}

/// Returns the median cost and the median duration.
fn medians(jobs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let costs = sorted(jobs.iter().map(|(cost, _)| *cost));
    let seconds = sorted(jobs.iter().map(|(_, seconds)| *seconds));
    Some((quantile(&costs, 0.5)?, quantile(&seconds, 0.5)?))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the smallest value that this share of the values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(cost: i64, ran: f64) -> MeasuredAttempt {
        MeasuredAttempt {
            cost,
            waited: 0.0,
            started_after: None,
            ran: Some(ran),
            ratio: None,
        }
    }

    #[test]
    fn speed_is_measured_over_jobs_of_all_sizes() {
        let with_cost = |cost: i64| attempt(cost, 0.01 + cost as f64 / 50_000.0);
        let mut attempts: Vec<_> = (0..90).map(|n| with_cost(1 << (n % 20))).collect();
        // Some attempts wait for a busy machine.
        attempts.extend((0..5).map(|n| attempt(1 << n, 60.0)));
        let speed = measure(&attempts).speed.unwrap();
        for cost in [1, 100, 10_000, 1_000_000] {
            let ratio = speed.seconds(1, cost) / (0.01 + cost as f64 / 50_000.0);
            assert!((0.7..1.5).contains(&ratio), "{speed:?}: {cost} {ratio}");
        }
    }

    #[test]
    fn jobs_of_one_size_have_their_own_duration() {
        for (cost, seconds) in [(1, 0.003), (200, 0.5), (1_000_000, 3.0)] {
            let speed = measure(&vec![attempt(cost, seconds); 5]).speed.unwrap();
            let ratio = speed.seconds(1, cost) / seconds;
            assert!((0.99..1.01).contains(&ratio), "{speed:?}: {cost} {ratio}");
        }
    }

    #[test]
    fn figures_are_absent_without_enough_jobs() {
        assert_eq!(measure(&[]), Measured::default());
        let rated = MeasuredAttempt {
            ratio: Some(2.0),
            ..attempt(1, 0.1)
        };
        assert_eq!(measure(&vec![rated; 19]).end_by_ratio, None);
        assert_eq!(measure(&vec![rated; 20]).end_by_ratio, Some(2.0));
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(10.0));
        assert_eq!(quantile(&values, 0.9), Some(18.0));
        assert_eq!(quantile(&values, 0.95), Some(19.0));
    }
}
