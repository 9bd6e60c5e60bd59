//! The permutation test of paired differences: if two are equally good, each difference could as well have had the other
//! sign. (R. A. Fisher 1935.)

use std::collections::HashMap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_distr::{Binomial, Distribution as _, StandardNormal};

/// How many ways of giving signs are drawn: the p-value is a multiple of a ten-thousandth.
const DRAWS: u64 = 9_999;

/// Of so few differences all ways are gone through.
const FEW: u64 = 13;

/// So many different sizes are kept. The sum of the smaller ones is taken to be normal: the square of none of them is more
/// than a 512th of the variance, and so this moves no probability by more than 5e-5 (W. Feller, on the expansion of F. Y.
/// Edgeworth, whose odd terms vanish here).
const KEPT: usize = 512;

/// The draws are always the same.
const SEED: u64 = 1;

/// The sizes of the differences that are not 0.
#[derive(Default)]
pub struct PermutationTest {
    /// How many there are of each size, by its bits.
    sizes: HashMap<u64, u64>,
    /// Smaller ones are not kept.
    least: f64,
    /// The sum of the squares of those that are not.
    rest: f64,
}

impl PermutationTest {
    /// Adds a difference of this size.
    pub fn add(&mut self, size: f64) {
        if size < self.least {
            self.rest += size * size;
            return;
        }
        *self.sizes.entry(size.to_bits()).or_default() += 1;
        if self.sizes.len() >= 2 * KEPT {
            let sizes = self.by_size();
            self.rest += sizes[KEPT..]
                .iter()
                .map(|(size, count)| size * size * *count as f64)
                .sum::<f64>();
            self.least = sizes[KEPT - 1].0;
            self.sizes = sizes[..KEPT]
                .iter()
                .map(|(size, count)| (size.to_bits(), *count))
                .collect();
        }
    }

    /// The largest first.
    fn by_size(&self) -> Vec<(f64, u64)> {
        let mut sizes: Vec<_> = self
            .sizes
            .iter()
            .map(|(bits, count)| (f64::from_bits(*bits), *count))
            .collect();
        sizes.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        sizes
    }

    /// How likely it is that the sum is as far from 0 as `observed`, or farther.
    pub fn p_value(&self, observed: f64) -> f64 {
        let sizes = self.by_size();
        // What rounding leaves of a sum that is the same.
        let enough = observed
            - 1e-12
                * sizes
                    .iter()
                    .map(|(size, count)| size * *count as f64)
                    .sum::<f64>();
        let n: u64 = sizes.iter().map(|(_, count)| count).sum();
        if n <= FEW && self.rest == 0.0 {
            return all(&sizes, enough);
        }
        let reached = Draws::new(&sizes, self.rest.sqrt())
            .take(DRAWS as usize)
            .filter(|sum| sum.abs() >= enough)
            .count();
        // What was observed is one of the ways.
        (reached as f64 + 1.0) / (DRAWS as f64 + 1.0)
    }
}

/// Of all ways of giving signs, the share of those with such a sum.
fn all(sizes: &[(f64, u64)], enough: f64) -> f64 {
    let sizes: Vec<f64> = sizes
        .iter()
        .flat_map(|(size, count)| std::iter::repeat_n(*size, *count as usize))
        .collect();
    let sum = |way: u32| {
        sizes
            .iter()
            .enumerate()
            .map(|(at, size)| if way >> at & 1 == 1 { *size } else { -size })
            .sum::<f64>()
    };
    let ways = 1_u32 << sizes.len();
    (0..ways).filter(|way| sum(*way).abs() >= enough).count() as f64 / f64::from(ways)
}

/// Sums with signs that were drawn.
struct Draws {
    single: Vec<f64>,
    /// Sizes that up to 64 have: how many of them have a plus is the number of ones among so many bits.
    few: Vec<(f64, u64)>,
    /// Sizes that more have: it is one draw.
    many: Vec<(f64, u64, Binomial)>,
    rest: f64,
    random: Xoshiro256PlusPlus,
}

impl Draws {
    fn new(sizes: &[(f64, u64)], rest: f64) -> Self {
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
            rest,
            random: Xoshiro256PlusPlus::seed_from_u64(SEED),
        }
    }
}

impl Iterator for Draws {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let mut sum = 0.0;
        for sizes in self.single.chunks(64) {
            let signs = self.random.next_u64();
            // A sign is the highest bit of a number: no branch that could not be foretold.
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
        if self.rest > 0.0 {
            let normal: f64 = self.random.sample(StandardNormal);
            sum += self.rest * normal;
        }
        Some(sum)
    }
}
