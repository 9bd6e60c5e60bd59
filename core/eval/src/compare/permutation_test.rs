//! The permutation test for paired differences: if two jobs are equally good, each difference has
//! either sign with the same probability (R. A. Fisher 1935).

use std::collections::HashMap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_distr::{Binomial, Distribution as _, StandardNormal};

/// Random sign assignments. The p-value is a multiple of 1/10,000.
const DRAWS: u64 = 9_999;

/// The most differences for which all assignments are enumerated.
const ENUMERATED_MAX: u64 = 13;

/// Distinct sizes that are stored, the largest ones. The smaller differences' sum is
/// approximated by a normal distribution: no square exceeds 1/512 of the variance, so
/// the approximation changes no probability by more than 5e-5 (W. Feller, on the expansion by F. Y.
/// Edgeworth, whose odd terms vanish here).
const SIZES_MAX: usize = 512;

/// The seed for the random assignments: fixed, so that a comparison is reproducible.
const SEED: u64 = 1;

/// Returns the generator of random assignments, which always has the same numbers.
pub(crate) fn seeded_generator() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(SEED)
}

/// The difference sizes that are not 0, and the test over them.
#[derive(Default)]
pub struct PermutationTest {
    /// Difference counts by size. The key is the size's bits.
    sizes: HashMap<u64, u64>,
    /// The smallest size that is stored.
    least: f64,
    /// The squares' sum over the differences that are not stored.
    rest_variance: f64,
}

impl PermutationTest {
    /// Adds a difference with this size.
    pub fn add(&mut self, size: f64) {
        if size < self.least {
            self.rest_variance += size * size;
            return;
        }
        *self.sizes.entry(size.to_bits()).or_default() += 1;
        if self.sizes.len() >= 2 * SIZES_MAX {
            let sizes = self.by_size();
            self.rest_variance += sizes[SIZES_MAX..]
                .iter()
                .map(|(size, count)| size * size * *count as f64)
                .sum::<f64>();
            self.least = sizes[SIZES_MAX - 1].0;
            self.sizes = sizes[..SIZES_MAX]
                .iter()
                .map(|(size, count)| (size.to_bits(), *count))
                .collect();
        }
    }

    /// Returns the stored sizes with their counts, the largest first.
    fn by_size(&self) -> Vec<(f64, u64)> {
        let mut sizes: Vec<_> = self
            .sizes
            .iter()
            .map(|(bits, count)| (f64::from_bits(*bits), *count))
            .collect();
        sizes.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        sizes
    }

    /// Returns the probability that the differences' absolute sum is at least `observed`.
    pub fn p_value(&self, observed: f64) -> f64 {
        let sizes = self.by_size();
        // Tolerates an equal sum's rounding.
        let threshold = observed
            - 1e-12
                * sizes
                    .iter()
                    .map(|(size, count)| size * *count as f64)
                    .sum::<f64>();
        let n: u64 = sizes.iter().map(|(_, count)| count).sum();
        if n <= ENUMERATED_MAX && self.rest_variance == 0.0 {
            return enumerate(&sizes, threshold);
        }
        let reached = RandomSums::new(&sizes, self.rest_variance.sqrt())
            .take(DRAWS as usize)
            .filter(|sum| sum.abs() >= threshold)
            .count();
        // The observed assignment counts as one more draw.
        (reached as f64 + 1.0) / (DRAWS as f64 + 1.0)
    }
}

/// Returns the share among all sign assignments whose absolute sum is at least `threshold`.
fn enumerate(sizes: &[(f64, u64)], threshold: f64) -> f64 {
    let sizes: Vec<f64> = sizes
        .iter()
        .flat_map(|(size, count)| std::iter::repeat_n(*size, *count as usize))
        .collect();
    let sum = |assignment: u32| {
        sizes
            .iter()
            .enumerate()
            .map(|(at, size)| {
                if assignment >> at & 1 == 1 {
                    *size
                } else {
                    -size
                }
            })
            .sum::<f64>()
    };
    let assignments = 1_u32 << sizes.len();
    let reached = (0..assignments).filter(|assignment| sum(*assignment).abs() >= threshold);
    reached.count() as f64 / f64::from(assignments)
}

/// An iterator over sums with random signs.
struct RandomSums {
    /// Sizes with one difference each.
    single: Vec<f64>,
    /// Sizes with 2 to 64 differences: the positive count is the one-bit count among as many
    /// random bits.
    few: Vec<(f64, u64)>,
    /// Sizes with more differences: the positive count is one draw from a binomial
    /// distribution.
    many: Vec<(f64, u64, Binomial)>,
    /// The standard deviation of the sum over the differences that are not stored.
    rest_stddev: f64,
    random: Xoshiro256PlusPlus,
}

impl RandomSums {
    fn new(sizes: &[(f64, u64)], rest_stddev: f64) -> Self {
        let single = sizes
            .iter()
            .filter(|(_, count)| *count == 1)
            .map(|(size, _)| *size)
            .collect();
        let few = sizes
            .iter()
            .filter(|(_, count)| (2..=64).contains(count))
            .copied()
            .collect();
        let many = sizes.iter().filter(|(_, count)| *count > 64);
        let many = many
            .filter_map(|(size, count)| {
                Binomial::new(*count, 0.5)
                    .ok()
                    .map(|pluses| (*size, *count, pluses))
            })
            .collect();
        Self {
            single,
            few,
            many,
            rest_stddev,
            random: seeded_generator(),
        }
    }
}

impl Iterator for RandomSums {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let mut sum = 0.0;
        for sizes in self.single.chunks(64) {
            let signs = self.random.next_u64();
            // The sign is the float's highest bit, which avoids branches that cannot be
            // predicted.
            sum += sizes
                .iter()
                .enumerate()
                .map(|(at, size)| f64::from_bits(size.to_bits() ^ (signs >> at & 1) << 63))
                .sum::<f64>();
        }
        for (size, count) in &self.few {
            let pluses = (self.random.next_u64() >> (64 - count)).count_ones();
            sum += size * (2.0 * f64::from(pluses) - *count as f64);
        }
        for (size, count, pluses) in &self.many {
            sum += size * (2.0 * pluses.sample(&mut self.random) as f64 - *count as f64);
        }
        if self.rest_stddev > 0.0 {
            let normal: f64 = self.random.sample(StandardNormal);
            sum += self.rest_stddev * normal;
        }
        Some(sum)
    }
}
