//! Activation functions.

use super::dispatch::vectorized;
use super::elementary::{erf, exp, tanh};
use crate::spec::Activation;

vectorized! {
    /// Adds the bias to each row and applies the activation function.
    pub(crate) fn activate(rows: &mut [f32], bias: &[f32], activation: Activation) {
        match activation {
            Activation::Relu => apply(rows, bias, relu),
            Activation::Gelu => apply(rows, bias, |x| {
                0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
            }),
            // Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2.
            Activation::GeluTanh => apply(rows, bias, |x| {
                0.5 * x * (1.0 + tanh(0.797_884_6 * (x + 0.044_715 * x * x * x)))
            }),
            Activation::Silu => apply(rows, bias, |x| x / (1.0 + exp(-x))),
        }
    }
}

/// Returns max(x, 0); NaN stays NaN.
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 * x }
}

#[inline(always)]
fn apply(rows: &mut [f32], bias: &[f32], function: impl Fn(f32) -> f32) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value = function(*value + bias);
        }
    }
}
