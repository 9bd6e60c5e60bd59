//! Weight matrices, in the layouts for both kinds of products.

use super::dispatch::vectorized;
use super::sgemm::{Operand, multiply};

/// Outputs that a product with one row computes at once: eight vectors with four floats,
/// which hide the addition latency.
const WIDTH: usize = 32;

/// Multiplies a row by consecutive columns, and adds the products to `y`. One input's columns are
/// `stride` after the previous input's, and padded to a multiple of `WIDTH`.
///
/// Each output is one sum in `x`'s order, so it does not depend on anything else that is
/// computed.
#[inline(always)]
fn add_products(x: &[f32], weights: &[f32], stride: usize, y: &mut [f32]) {
    for (y, start) in y.chunks_mut(WIDTH).zip((0..).step_by(WIDTH)) {
        let mut sums = [0.0; WIDTH];
        sums[..y.len()].copy_from_slice(y);
        for (x, columns) in x.iter().zip(weights[start..].chunks(stride)) {
            if let Some((columns, _)) = columns.split_first_chunk::<WIDTH>() {
                for (sum, weight) in sums.iter_mut().zip(columns) {
                    *sum += x * weight;
                }
            }
        }
        y.copy_from_slice(&sums[..y.len()]);
    }
}

vectorized! {
    fn add_row(x: &[f32], weights: &[f32], stride: usize, y: &mut [f32]) {
        add_products(x, weights, stride, y);
    }
}

vectorized! {
    /// Adds each `x` row's products to the `y` row. A panel serves all rows while it is in
    /// the cache.
    fn add_panels(x: &[f32], panels: &[f32], n_in: usize, n_out: usize, y: &mut [f32]) {
        for (panel, start) in panels.chunks_exact(n_in * WIDTH).zip((0..).step_by(WIDTH)) {
            let end = (start + WIDTH).min(n_out);
            for (x, y) in x.chunks_exact(n_in).zip(y.chunks_exact_mut(n_out)) {
                add_products(x, panel, WIDTH, &mut y[start..end]);
            }
        }
    }
}

/// A linear layer with a bias, for products with one or several rows.
#[derive(Debug)]
pub(crate) struct Linear {
    /// One row per input, padded to `stride` outputs.
    weights: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    n_in: usize,
    stride: usize,
}

impl Linear {
    /// Creates a layer from weights `[n_out, n_in]` and a bias `[n_out]`, as PyTorch stores them.
    pub(crate) fn new(weights: &[f32], bias: Vec<f32>, n_in: usize) -> Self {
        let stride = bias.len().next_multiple_of(WIDTH);
        let mut transposed = vec![0.0; n_in * stride];
        for (output, row) in weights.chunks_exact(n_in).enumerate() {
            for (input, weight) in row.iter().enumerate() {
                transposed[input * stride + output] = *weight;
            }
        }
        Self {
            weights: transposed,
            bias,
            n_in,
            stride,
        }
    }

    pub(crate) fn n_out(&self) -> usize {
        self.bias.len()
    }

    /// Writes each `x` row's product to `y`, without the bias.
    pub(crate) fn product(&self, x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        self.add_product(x, y);
    }

    /// Writes each `x` row's product, with the bias, to `y`.
    pub(crate) fn apply(&self, x: &[f32], y: &mut [f32]) {
        for row in y.chunks_exact_mut(self.n_out()) {
            row.copy_from_slice(&self.bias);
        }
        self.add_product(x, y);
    }

    /// Adds each `x` row's product, with the bias, to `y`.
    pub(crate) fn add(&self, x: &[f32], y: &mut [f32]) {
        for row in y.chunks_exact_mut(self.n_out()) {
            for (y, bias) in row.iter_mut().zip(&self.bias) {
                *y += bias;
            }
        }
        self.add_product(x, y);
    }

    fn add_product(&self, x: &[f32], y: &mut [f32]) {
        // Packing a matrix for one row costs more than the product.
        if x.len() == self.n_in {
            return add_row(x, &self.weights, self.stride, y);
        }
        let x = Operand {
            data: x,
            rows: x.len() / self.n_in,
            columns: self.n_in,
            row_stride: self.n_in,
            column_stride: 1,
        };
        let weights = Operand {
            data: &self.weights,
            rows: self.n_in,
            columns: self.n_out(),
            row_stride: self.stride,
            column_stride: 1,
        };
        multiply(1.0, x, weights, 1.0, y, self.n_out());
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.weights.capacity() + self.bias.capacity())
    }
}

/// A linear layer without a bias. It computes each product row for itself, so a row's
/// result does not depend on the others.
#[derive(Debug)]
pub(crate) struct Panels {
    /// Blocks with `WIDTH` outputs: one row with `WIDTH` weights per input. The last block is padded.
    panels: Vec<f32>,
    n_in: usize,
    n_out: usize,
}

impl Panels {
    /// Creates a layer from weights `[n_out, n_in]`.
    pub(crate) fn new(weights: &[f32], n_in: usize) -> Self {
        let n_out = weights.len() / n_in;
        let mut panels = vec![0.0; n_out.next_multiple_of(WIDTH) * n_in];
        for (output, row) in weights.chunks_exact(n_in).enumerate() {
            let panel = &mut panels[output / WIDTH * WIDTH * n_in..];
            for (input, weight) in row.iter().enumerate() {
                panel[input * WIDTH + output % WIDTH] = *weight;
            }
        }
        Self {
            panels,
            n_in,
            n_out,
        }
    }

    pub(crate) fn n_out(&self) -> usize {
        self.n_out
    }

    /// Writes each `x` row's product to `y`.
    pub(crate) fn product(&self, x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        add_panels(x, &self.panels, self.n_in, self.n_out, y);
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.panels.capacity()
    }
}
