//! The bootstrap in one pass: an item's weight in a replicate is drawn from a Poisson
//! distribution with mean 1 (B. Efron 1979; for streams, N. Chamandy et al. 2012).
//!
//! The weights depend on the item's place in the suite only, so the same predictions have the same
//! standard error in any order.

/// Replicates: enough to know the standard error to about 5 %.
const REPLICATES: usize = 200;

/// Cumulative probabilities of 0, 1, 2 … in a Poisson distribution with mean 1, in units of 2^-16.
const CUMULATIVE: [u16; 8] = [24109, 48219, 60273, 64292, 65296, 65497, 65531, 65535];

/// Each bin's term sum, in each replicate.
pub(crate) struct Bootstrap<const BINS: usize> {
    sums: Vec<[f64; REPLICATES]>,
    weights: [f64; REPLICATES],
    n: usize,
}

impl<const BINS: usize> Default for Bootstrap<BINS> {
    fn default() -> Self {
        Self {
            sums: vec![[0.0; REPLICATES]; BINS],
            weights: [0.0; REPLICATES],
            n: 0,
        }
    }
}

impl<const BINS: usize> Bootstrap<BINS> {
    /// Adds an item's term to a bin. `draw` is what is drawn with the item: the item's place in the
    /// suite, or the number of its cluster.
    pub(crate) fn add(&mut self, draw: usize, bin: usize, term: f64) {
        self.n += 1;
        let mut drawn = [0_u16; REPLICATES];
        for (at, four) in drawn.chunks_mut(4).enumerate() {
            let bits = splitmix64((draw * REPLICATES.div_ceil(4) + at) as u64);
            four.iter_mut()
                .enumerate()
                .for_each(|(at, draw)| *draw = (bits >> (16 * at)) as u16);
        }
        let mut counts = [0_u16; REPLICATES];
        for bound in CUMULATIVE {
            counts
                .iter_mut()
                .zip(&drawn)
                .for_each(|(count, draw)| *count += u16::from(*draw >= bound));
        }
        for ((sum, weight), count) in self.sums[bin].iter_mut().zip(&mut self.weights).zip(counts) {
            *sum += f64::from(count) * term;
            *weight += f64::from(count);
        }
    }

    /// Returns the standard deviation over the replicates of a figure that is computed from the
    /// bins' sums and the item count. `None` with fewer than two items.
    pub(crate) fn stderr(&self, figure: impl Fn(&[f64; BINS], f64) -> f64) -> Option<f64> {
        if self.n < 2 {
            return None;
        }
        let replicate = |at: usize| {
            let sums: [f64; BINS] = std::array::from_fn(|bin| self.sums[bin][at]);
            // With few items a replicate may have none.
            (self.weights[at] > 0.0).then(|| figure(&sums, self.weights[at]))
        };
        let figures: Vec<f64> = (0..REPLICATES).filter_map(replicate).collect();
        let n = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / n;
        let squares: f64 = figures
            .iter()
            .map(|figure| (figure - mean) * (figure - mean))
            .sum();
        Some((squares / (n - 1.0).max(1.0)).sqrt())
    }
}

/// Returns the pseudo-random number at this place in the sequence (S. Vigna's splitmix64).
fn splitmix64(at: u64) -> u64 {
    let mut bits = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_of_mean_agrees_with_formula() {
        let terms: Vec<f64> = (0..5000).map(|at| f64::from(at % 17)).collect();
        let mut bootstrap = Bootstrap::<1>::default();
        terms
            .iter()
            .enumerate()
            .for_each(|(item, term)| bootstrap.add(item, 0, *term));
        let n = terms.len();
        let mean = terms.iter().sum::<f64>() / n as f64;
        let formula =
            super::super::confidence::stderr_of_mean(mean, n, terms.iter().copied()).unwrap();
        let found = bootstrap.stderr(|sums, n| sums[0] / n).unwrap();
        assert!((found / formula - 1.0).abs() < 0.15, "{found} {formula}");
        let drawn = bootstrap.weights.iter().sum::<f64>() / (n * REPLICATES) as f64;
        assert!((drawn - 1.0).abs() < 0.003, "{drawn}");
    }
}
