//! The test for paired differences whose signs are random under the hypothesis (R. A. Fisher 1935),
//! without random draws: p-values far below 1/10,000 are needed for many pairs.

use std::f64::consts::{LN_2, PI};

use statrs::distribution::{ContinuousCDF as _, Normal};

use crate::compare::mcnemar;

/// The most differences for which the distribution is enumerated.
const ENUMERATED_MAX: usize = 26;

/// The most sign assignments that are counted one by one.
const COUNTED_MAX: u64 = 1 << 20;

/// No p-value over more differences is below this many sign assignments.
const ASSIGNMENTS_MIN: f64 = 1_000.0;

/// Sums that differ by less than this part of the largest possible sum are equal but for rounding.
const ROUNDING: f64 = 1e-12;

/// Returns the two-sided p-value for the sum over these differences, none 0, if each sign is as
/// likely as the other. It is exact for at most `ENUMERATED_MAX` differences, for differences with
/// one size, and if few sign assignments reach the sum. Otherwise it is the saddlepoint
/// approximation. Sorts the differences by size, so that their order does not matter.
pub fn p_value(differences: &mut [f64]) -> f64 {
    differences.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()).then(a.total_cmp(b)));
    let (Some(smallest), Some(largest)) = (differences.first(), differences.last()) else {
        return 1.0;
    };
    let (smallest, largest) = (smallest.abs(), largest.abs());
    if largest - smallest <= ROUNDING * largest {
        let more = differences.iter().filter(|d| **d > 0.0).count() as u64;
        return mcnemar(more, differences.len() as u64 - more);
    }
    let observed = differences.iter().sum::<f64>().abs();
    if differences.len() <= ENUMERATED_MAX {
        return enumerated(differences, observed);
    }
    let sizes = || differences.iter().map(|d| d.abs() / largest);
    let approximate = saddlepoint(sizes, observed / largest, 2.0 * step(differences, largest));
    let assignments = (LN_2 * differences.len() as f64).exp();
    // Far in the tail the distribution is not smooth, but the assignments can be counted.
    let is_countable = approximate * assignments <= 2.0 * COUNTED_MAX as f64;
    let counted = is_countable.then(|| count_extreme(differences, observed));
    counted
        .flatten()
        .map_or(approximate, |count| 2.0 * count as f64 / assignments)
        .clamp(ASSIGNMENTS_MIN / assignments, 1.0)
}

/// Returns how many sign assignments have a sum that is at least `observed`, which is positive.
/// `None` if there are more than `COUNTED_MAX`.
fn count_extreme(differences: &[f64], observed: f64) -> Option<u64> {
    /// Counts the non-empty sets with these sizes, which ascend, whose sum is at most `slack`.
    fn count(sizes: &[f64], slack: f64, counted: &mut u64) {
        let n_single = sizes.partition_point(|size| size.abs() <= slack);
        *counted += n_single as u64;
        for (at, size) in sizes[..n_single].iter().enumerate() {
            let (larger, rest) = (&sizes[at + 1..], slack - size.abs());
            let has_room = larger.first().is_some_and(|next| next.abs() <= rest);
            if !has_room || *counted > COUNTED_MAX {
                break;
            }
            count(larger, rest, counted);
        }
    }

    // A negative sign takes twice the size from the largest possible sum.
    let total: f64 = differences.iter().map(|d| d.abs()).sum();
    let slack = (total - observed) / 2.0 + ROUNDING * total;
    // All signs are positive.
    let mut counted = 1;
    count(differences, slack, &mut counted);
    (counted <= COUNTED_MAX).then_some(counted)
}

/// Returns the share among all sign assignments whose absolute sum is at least `observed`: how many
/// pairs of sums, one from each half, there are.
fn enumerated(differences: &[f64], observed: f64) -> f64 {
    let total: f64 = differences.iter().map(|d| d.abs()).sum();
    let threshold = observed - ROUNDING * total;
    if threshold <= 0.0 {
        return 1.0;
    }
    let (one, other) = differences.split_at(differences.len() / 2);
    let (one, other) = (sorted_sums(one), sorted_sums(other));
    // Each larger sum in the one half reaches the threshold with more sums in the other.
    let mut smallest = other.len();
    let mut reached = 0_u64;
    for sum in &one {
        while smallest > 0 && sum + other[smallest - 1] >= threshold {
            smallest -= 1;
        }
        reached += (other.len() - smallest) as u64;
    }
    // The distribution is symmetric.
    2.0 * reached as f64 * (-LN_2 * differences.len() as f64).exp()
}

/// Returns all sign assignments' sums, in ascending order.
fn sorted_sums(differences: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for difference in differences {
        let size = difference.abs();
        let (mut low, mut high) = (0, 0);
        let mut merged = Vec::with_capacity(2 * sums.len());
        while low < sums.len() || high < sums.len() {
            // The list's lower copy is never ahead of the higher one.
            if low < sums.len() && sums[low] - size <= sums[high] + size {
                merged.push(sums[low] - size);
                low += 1;
            } else {
                merged.push(sums[high] + size);
                high += 1;
            }
        }
        sums = merged;
    }
    sums
}

/// Returns the greatest common divisor of all sizes, relative to the largest size; 0 if
/// there is none above a ten-thousandth.
fn step(differences: &[f64], largest: f64) -> f64 {
    const SMALLEST: f64 = 1e-4;
    // Multiples that were computed from fractions differ by a few units in the last place.
    const TOLERANCE: f64 = 1e-9;

    let mut step = 0.0;
    for difference in differences {
        let mut other = difference.abs() / largest;
        while other > TOLERANCE {
            let remainder = step % other;
            // A remainder just below the divisor is a multiple, too.
            let remainder = if other - remainder < TOLERANCE {
                0.0
            } else {
                remainder
            };
            (step, other) = (other, remainder);
        }
        if step < SMALLEST {
            return 0.0;
        }
    }
    step
}

/// Returns the approximate probability that the sizes' absolute sum with random signs is at
/// least `observed` (R. Lugannani and S. Rice 1980), with the first continuity correction by
/// H. E. Daniels (1987) if sums are multiples of `span` apart.
fn saddlepoint<I: Iterator<Item = f64>>(sizes: impl Fn() -> I, observed: f64, span: f64) -> f64 {
    let variance: f64 = sizes().map(|size| size * size).sum();
    // The cumulant generating function's derivative is concave, and its tangent at 0 is above
    // it. So Newton's method starts below the solution and stays there.
    let mut at = observed / variance;
    for _ in 0..100 {
        let (mut sum, mut slope) = (0.0, 0.0);
        for size in sizes() {
            let tanh = (at * size).tanh();
            sum += size * tanh;
            slope += size * size * (1.0 - tanh * tanh);
        }
        let change = (observed - sum) / slope;
        if !change.is_finite() {
            // No finite solution: all differences have one sign.
            return 0.0;
        }
        at += change;
        if change.abs() <= 1e-12 * at {
            break;
        }
    }
    let (mut generating, mut curvature) = (0.0, 0.0);
    for size in sizes() {
        let x = at * size;
        generating += x + (-2.0 * x).exp().ln_1p() - LN_2;
        let tanh = x.tanh();
        curvature += size * size * (1.0 - tanh * tanh);
    }
    let w = (2.0 * (at * observed - generating)).max(0.0).sqrt();
    let step = if span > 0.0 {
        -(-span * at).exp_m1() / span
    } else {
        at
    };
    let u = step * curvature.sqrt();
    // Near the middle both terms grow without bound, and their difference is small.
    let correction = if w < 1e-3 {
        0.0
    } else {
        (-w * w / 2.0).exp() / (2.0 * PI).sqrt() * (1.0 / u - 1.0 / w)
    };
    2.0 * (Normal::standard().sf(w) + correction)
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    /// Returns the exact p-value for differences that are integers, by convolution.
    fn convolved(differences: &[i32]) -> f64 {
        let total: i32 = differences.iter().map(|d| d.abs()).sum();
        let mut shares = vec![0.0; 2 * total as usize + 1];
        shares[total as usize] = 1.0;
        for size in differences.iter().map(|d| d.unsigned_abs() as usize) {
            let mut next = vec![0.0; shares.len()];
            for (at, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                next[at - size] += share / 2.0;
                next[at + size] += share / 2.0;
            }
            shares = next;
        }
        let observed = differences.iter().sum::<i32>().abs();
        let reached = |at: &usize| (*at as i32 - total).abs() >= observed;
        (0..shares.len()).filter(reached).map(|at| shares[at]).sum()
    }

    fn p_value_of(differences: &[i32]) -> f64 {
        let mut differences: Vec<f64> = differences.iter().map(|d| f64::from(*d) / 7.0).collect();
        p_value(&mut differences)
    }

    #[test]
    fn few_differences_are_enumerated() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for n in 1..=ENUMERATED_MAX {
            let sizes = if n.is_multiple_of(3) { 1..=2 } else { 1..=40 };
            let differences: Vec<i32> = (0..n)
                .map(|_| {
                    random.random_range(sizes.clone())
                        * if random.random_bool(0.7) { 1 } else { -1 }
                })
                .collect();
            let (exact, found) = (convolved(&differences), p_value_of(&differences));
            assert!(
                (found / exact - 1.0).abs() < 1e-9,
                "{differences:?} {exact} {found}"
            );
        }
        assert_eq!(p_value(&mut []), 1.0);
        assert!(p_value(&mut [0.25]) > 1.0 - 1e-12);
        assert!(p_value(&mut [0.25, -0.25]) > 1.0 - 1e-12);
    }

    #[test]
    fn p_values_are_close_to_convolution() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut compared = 0;
        let mut worst: f64 = 1.0;
        for round in 0..4_000 {
            let n = random.random_range(27..=80);
            // Few sizes, sizes in one magnitude, and a few sizes that are larger than all others.
            let size = |random: &mut Xoshiro256PlusPlus| match round % 5 {
                0 => random.random_range(1..=2),
                1 => random.random_range(1..=5),
                2 => random.random_range(20..=30),
                3 => random.random_range(1..=200),
                _ => (2.0 / random.random_range(0.005..1.0_f64)) as i32,
            };
            let share = random.random_range(0.5..1.0);
            let differences: Vec<i32> = (0..n)
                .map(|_| size(&mut random) * if random.random_bool(share) { 1 } else { -1 })
                .collect();
            let exact = convolved(&differences);
            let found = p_value_of(&differences);
            let least = ASSIGNMENTS_MIN * 0.5_f64.powi(n);
            assert!(
                found >= least.min(1.0) * (1.0 - 1e-9),
                "{differences:?} {found}"
            );
            if (1e-12..=1e-2).contains(&exact) && exact > least {
                compared += 1;
                let ratio = found / exact;
                if (ratio - 1.0).abs() > (worst - 1.0).abs() {
                    worst = ratio;
                }
            }
        }
        println!("{compared} p-values, the worst is {worst} times the exact one");
        assert!(compared > 1_000, "{compared}");
        assert!((worst - 1.0).abs() <= 0.2);
    }
}
