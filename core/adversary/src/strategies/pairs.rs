//! Every pair among a few submissions as a measurement: how many items are correct in both. Even if
//! the measurements are too few to solve for the answers, the answers' joint distribution given all
//! measurements determines most answers.
//!
//! Each of k submissions leaves an item out, or predicts a random candidate other than the most
//! frequent one. Their correct-item counts and all pairwise comparisons give k(k+1)/2 answer sums
//! over random sets of items and candidates.

use assay_eval::{DisclosurePolicy, Family};

use super::gaussian::Joint;
use super::guesses::Guesses;
use crate::platform::{Platform, Predicted};
use crate::random::Random;
use crate::suite::Public;

/// The maximum item count times candidates other than the most frequent one. More take too
/// long.
const UNKNOWNS_MAX: usize = 1500;

/// Returns `true` if the strategy applies.
pub fn applies(public: &Public, _: &[f64]) -> bool {
    let allowed = matches!(
        public.policy,
        DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_)
    );
    let others = public.candidates.len().saturating_sub(1);
    let is_small = (1..=UNKNOWNS_MAX).contains(&(others * public.n));
    allowed && public.is_complete && is_small && public.metric.family() == Family::Labels
}

/// Measures random item sets and their intersections in each organization.
pub fn run(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    let public = platform.public();
    let n = public.n;
    let open = public.n_open as f64 / n as f64;
    let others = public.candidates.len() - 1;
    // One unknown for each item and each candidate except the first, ordered by candidate.
    let share = |unknown: usize| public.frequencies[1 + unknown / n] * open;
    let mut joint = Joint::new((0..others * n).map(share).collect());
    if public.n == public.n_open {
        for candidate in 0..others {
            let candidate_weights: Vec<f64> = (0..others * n)
                .map(|unknown| f64::from(u8::from(unknown / n == candidate)))
                .collect();
            joint.observe_sum(
                &candidate_weights,
                public.frequencies[1 + candidate] * n as f64,
            );
        }
    }
    let mut n_measured = 0;
    for organization in 0..platform.caps().organizations as usize {
        let allowance = platform.left(organization) as usize;
        let costs = |k: usize| {
            if platform.caps().comparisons_count {
                k * (k + 1) / 2
            } else {
                k
            }
        };
        let submissions = (0..=allowance)
            .take_while(|k| costs(*k) <= allowance)
            .last()
            .unwrap_or(0);
        let mut sent: Vec<(Vec<f64>, usize, f64)> = Vec::new();
        for _ in 0..submissions {
            if n_measured >= 2 * others * n {
                break;
            }
            let mut set = vec![0.0; others * n];
            let mut predictions = vec![Predicted::Missing; n];
            for (item, predicted) in predictions.iter_mut().enumerate() {
                let candidate = random.below(others + 1);
                if candidate > 0 {
                    *predicted = Predicted::Label(candidate as u8);
                    set[(candidate - 1) * n + item] = 1.0;
                }
            }
            let Some(disclosed) = platform.submit(organization, &predictions) else {
                break;
            };
            let Some(accuracy) = disclosed.figure(public, "accuracy") else {
                return public.most_frequent();
            };
            let count = (accuracy * disclosed.n as f64).round();
            joint.observe_sum(&set, count);
            n_measured += 1;
            for (other, other_job, other_count) in &sent {
                let Some((_, found)) = platform.compare(organization, disclosed.job, *other_job)
                else {
                    break;
                };
                let n_differ = found.n_differ.map_or(0.0, |n| n as f64);
                let both: Vec<f64> = set
                    .iter()
                    .zip(other)
                    .map(|(one, other)| one * other)
                    .collect();
                joint.observe_sum(&both, (count + other_count - n_differ) / 2.0);
                n_measured += 1;
            }
            sent.push((set, disclosed.job, count));
        }
    }
    let likeliest = |item: usize| {
        let mean = |candidate: usize| joint.mean((candidate - 1) * n + item);
        // The probability that the item is open, without the other candidates'.
        let first = open - (1..=others).map(mean).sum::<f64>();
        (1..=others)
            .fold((0, first), |best, candidate| {
                if mean(candidate) > best.1 {
                    (candidate, mean(candidate))
                } else {
                    best
                }
            })
            .0 as u8
    };
    (0..n).map(likeliest).collect()
}
