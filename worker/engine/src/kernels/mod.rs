//! Arithmetic on 32-bit float vectors and matrices, in a fixed summation order.

pub(crate) mod activate;
mod dispatch;
pub(crate) mod elementary;
pub(crate) mod matrix;
pub(crate) mod norm;
mod sgemm;

pub(crate) use sgemm::{Operand, multiply};
