//! Arithmetic on vectors and matrices of 32-bit floats, in a fixed order of summation.

pub(crate) mod activate;
mod dispatch;
pub(crate) mod elementary;
pub(crate) mod matrix;
pub(crate) mod norm;
mod sgemm;

pub(crate) use sgemm::{Operand, multiply};
