//! The extension module `assay_scorer`: `assay-eval` for the Python client.
//!
//! It converts arguments and errors. All scoring rules are `assay-eval`'s.

mod chunks;
mod scoring;

/// The scorer of Assay: computes the figures of a job locally.
#[pyo3::pymodule]
mod assay_scorer {
    #[pymodule_export]
    use crate::scoring::{check, read_suite, score};
}
