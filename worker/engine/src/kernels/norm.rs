//! Layer norms, softmax and vector norms.

use super::dispatch::vectorized;
use super::elementary::exp;

/// A reduction's partial sums. The compiler holds them in vector registers.
const PARTS: usize = 16;

/// Sums `function` over all values, in a fixed order: partial sums over every 16th value, then their sum.
#[inline(always)]
fn sum_of(values: &[f32], mut function: impl FnMut(f32) -> f32) -> f32 {
    let mut parts = [0.0; PARTS];
    let (chunks, rest) = values.as_chunks::<PARTS>();
    for chunk in chunks {
        for (part, value) in parts.iter_mut().zip(chunk) {
            *part += function(*value);
        }
    }
    for (part, value) in parts.iter_mut().zip(rest) {
        *part += function(*value);
    }
    for width in [8, 4, 2, 1] {
        let (left, right) = parts.split_at_mut(width);
        for (left, right) in left.iter_mut().zip(right) {
            *left += *right;
        }
    }
    parts[0]
}

/// Returns the largest value, or −∞ if there is none. NaN is ignored.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    let mut parts = [f32::NEG_INFINITY; PARTS];
    let (chunks, rest) = values.as_chunks::<PARTS>();
    for chunk in chunks {
        for (part, value) in parts.iter_mut().zip(chunk) {
            *part = if *value > *part { *value } else { *part };
        }
    }
    parts
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |max, value| max.max(*value))
}

/// A layer norm with its parameters.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) eps: f32,
}

impl LayerNorm {
    /// Writes each `x` row's norm to `y`. The variance is the mean squared deviation.
    pub(crate) fn apply(&self, x: &[f32], y: &mut [f32]) {
        normalize_rows(self, x, y);
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.weight.capacity() + self.bias.capacity())
    }
}

vectorized! {
    fn normalize_rows(norm: &LayerNorm, x: &[f32], y: &mut [f32]) {
        let dim = norm.weight.len();
        for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
            let mean = sum_of(x, |value| value) / dim as f32;
            let variance = sum_of(x, |value| (value - mean) * (value - mean)) / dim as f32;
            let scale = 1.0 / (variance + norm.eps).sqrt();
            let parameters = norm.weight.iter().zip(&norm.bias);
            for ((x, y), (weight, bias)) in x.iter().zip(y).zip(parameters) {
                *y = (x - mean) * scale * weight + bias;
            }
        }
    }
}

vectorized! {
    /// Replaces scores by e^(score − largest score) and returns the sum.
    pub(crate) fn exponentials(scores: &mut [f32]) -> f32 {
        let max = largest(scores);
        for score in scores.iter_mut() {
            *score = exp(*score - max);
        }
        sum_of(scores, |value| value)
    }
}

vectorized! {
    /// Returns ln Σ e^score. It is not finite if a score is infinite or NaN.
    pub(crate) fn log_sum_exp(scores: &[f32]) -> f32 {
        let max = largest(scores);
        max + sum_of(scores, |score| exp(score - max)).ln()
    }
}

/// Scales a vector to length 1. A zero vector stays as it is.
pub(crate) fn normalize(vector: &mut [f32]) {
    let largest = vector
        .iter()
        .fold(0.0_f32, |max, value| max.max(value.abs()));
    if largest > 0.0 {
        // The squares of very small or large values would leave the f32 range.
        let squares = sum_of(vector, |value| (value / largest) * (value / largest));
        let scale = squares.sqrt();
        for value in vector.iter_mut() {
            *value = *value / largest / scale;
        }
    }
}
