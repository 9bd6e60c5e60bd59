//! Statistics: confidence intervals, clusters, the bootstrap, calibration bins and sums that do not
//! depend on order.

pub(crate) mod bootstrap;
pub mod calibration;
pub(crate) mod clustered;
pub mod compensated_sum;
pub mod confidence;

#[cfg(test)]
mod coverage_tests;
