//! Decoding integer counts from a few real sums: the correct-item counts at each rank that
//! agree with a ranking's figures.
//!
//! Each lattice basis vector holds a count and the amount that one more item adds to each
//! sum, times a large factor. The basis is reduced (A. K. Lenstra, H. W. Lenstra and L. Lovász
//! 1982), and rounding finds the lattice point nearest to the observed sums (L. Babai 1986). The
//! figures have 53 bits and one submission's counts about 40, so the nearest point is the
//! solution.

/// The sums' factor. A 2^-44 error in a sum becomes a 2^-4 error.
const SCALE: f64 = (1_u64 << 40) as f64;

/// A decoder for the counts from linear figures.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// For each figure, the amount that one item at each rank adds to its sum.
    weights: Vec<Vec<f64>>,
    stages: Vec<Stage>,
}

/// A basis that is reduced for one scale.
#[derive(Debug, Clone)]
struct Stage {
    scale: f64,
    /// The basis vectors as integer counts, and their images.
    basis: Vec<(Vec<f64>, Vec<f64>)>,
    orthogonal: Vec<(Vec<f64>, f64)>,
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Returns a count vector's coordinates: the counts, then the scaled sums.
fn image(weights: &[Vec<f64>], counts: &[f64], scale: f64) -> Vec<f64> {
    counts
        .iter()
        .copied()
        .chain(weights.iter().map(|weights| scale * dot(weights, counts)))
        .collect()
}

/// Returns a basis's Gram-Schmidt vectors with their squared lengths.
fn orthogonal(basis: &[Vec<f64>]) -> Vec<(Vec<f64>, f64)> {
    let mut found: Vec<(Vec<f64>, f64)> = Vec::new();
    for vector in basis {
        let mut rest = vector.clone();
        // Twice, against rounding errors.
        for _ in 0..2 {
            for (other, square) in &found {
                let part = dot(&rest, other) / square;
                rest.iter_mut()
                    .zip(other)
                    .for_each(|(rest, other)| *rest -= part * other);
            }
        }
        let square = dot(&rest, &rest).max(1e-300);
        found.push((rest, square));
    }
    found
}

impl Decoder {
    /// Prepares the decoder for figures with these weights by rank.
    pub fn new(weights: Vec<Vec<f64>>) -> Self {
        let n = weights.first().map_or(0, Vec::len);
        let mut basis: Vec<Vec<f64>> = (0..n)
            .map(|at| {
                (0..n)
                    .map(|other| f64::from(u8::from(at == other)))
                    .collect()
            })
            .collect();
        let mut stages = Vec::new();
        // The scale grows in steps, so that no vector is ever much longer than the others and
        // floats suffice.
        let mut scale = 16.0;
        while scale <= SCALE {
            reduce(&weights, &mut basis, scale);
            let images: Vec<Vec<f64>> = basis
                .iter()
                .map(|counts| image(&weights, counts, scale))
                .collect();
            let orthogonal = orthogonal(&images);
            stages.push(Stage {
                scale,
                basis: basis.iter().cloned().zip(images).collect(),
                orthogonal,
            });
            scale *= 16.0;
        }
        Self { weights, stages }
    }

    /// Returns the counts nearest to `expected` that have these sums, or `None` if no counts have
    /// them.
    pub fn decode(&self, sums: &[f64], expected: &[f64]) -> Option<Vec<i64>> {
        let mut counts: Vec<f64> = expected.iter().map(|count| count.round()).collect();
        let left = |counts: &[f64]| -> Vec<f64> {
            self.weights
                .iter()
                .zip(sums)
                .map(|(weights, sum)| sum - dot(weights, counts))
                .collect()
        };
        // The sums' remainder shrinks from stage to stage as the scale grows.
        for Stage {
            scale,
            basis,
            orthogonal,
        } in &self.stages
        {
            let deviations = expected
                .iter()
                .zip(&counts)
                .map(|(expected, count)| expected - count);
            let mut target: Vec<f64> = deviations
                .chain(left(&counts).into_iter().map(|sum| sum * scale))
                .collect();
            for ((vector, image), (direction, square)) in basis.iter().zip(orthogonal).rev() {
                let times = (dot(&target, direction) / square).round();
                target
                    .iter_mut()
                    .zip(image)
                    .for_each(|(target, image)| *target -= times * image);
                counts
                    .iter_mut()
                    .zip(vector)
                    .for_each(|(count, of_vector)| *count += times * of_vector);
            }
        }
        let agrees = left(&counts).iter().all(|left| left.abs() < 1e-9);
        (agrees && counts.iter().all(|count| *count >= 0.0))
            .then(|| counts.into_iter().map(|count| count as i64).collect())
    }
}

/// Reduces a count basis by its image lengths.
fn reduce(weights: &[Vec<f64>], basis: &mut [Vec<f64>], scale: f64) {
    let mut at = 1;
    let mut steps = 0;
    while at < basis.len() && steps < 20_000 {
        steps += 1;
        for other in (0..at).rev() {
            let images: Vec<Vec<f64>> = basis[..=at]
                .iter()
                .map(|counts| image(weights, counts, scale))
                .collect();
            let (direction, square) = &orthogonal(&images[..=other])[other];
            let times = (dot(&images[at], direction) / square).round();
            if times != 0.0 {
                let (left, right) = basis.split_at_mut(at);
                right[0]
                    .iter_mut()
                    .zip(&left[other])
                    .for_each(|(count, other)| *count -= times * other);
            }
        }
        let images: Vec<Vec<f64>> = basis[..=at]
            .iter()
            .map(|counts| image(weights, counts, scale))
            .collect();
        let orthogonal = orthogonal(&images);
        let (before, square) = &orthogonal[at - 1];
        let projection = dot(&images[at], before) / square;
        if orthogonal[at].1 >= (0.99 - projection * projection) * square {
            at += 1;
        } else {
            basis.swap(at, at - 1);
            at = at.saturating_sub(1).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn decoder_finds_counts_at_ten_ranks() {
        let ranks = 1..=10;
        let first = ranks
            .clone()
            .map(|rank| f64::from(u8::from(rank == 1)))
            .collect();
        let reciprocal = ranks.clone().map(|rank| 1.0 / f64::from(rank)).collect();
        let discounted = ranks
            .map(|rank| 1.0 / (f64::from(rank) + 1.0).log2())
            .collect();
        let decoder = Decoder::new(vec![first, vec![1.0; 10], reciprocal, discounted]);
        let mut random = Random::new(7);
        for _ in 0..200 {
            let counts: Vec<i64> = (0..10)
                .map(|_| (0..50).filter(|_| random.below(2) == 1).count() as i64)
                .collect();
            // Disclosed figures are divided by the item count, as doubles.
            let sum = |weights: &Vec<f64>| {
                weights
                    .iter()
                    .zip(&counts)
                    .map(|(weight, count)| weight * *count as f64)
                    .sum::<f64>()
                    / 500.0
            };
            let sums: Vec<f64> = decoder
                .weights
                .iter()
                .map(|weights| sum(weights) * 500.0)
                .collect();
            assert_eq!(decoder.decode(&sums, &[25.0; 10]), Some(counts));
        }
    }
}
