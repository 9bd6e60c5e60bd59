//! Statistics: confidence intervals, the bootstrap, calibration, and sums without rounding errors.

pub(crate) mod bootstrap;
pub mod calibration;
pub mod compensated_sum;
pub(crate) mod confidence;
