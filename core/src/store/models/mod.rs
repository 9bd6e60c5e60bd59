//! The catalog of models, and the charges of their calls.

pub mod catalog;
pub mod serving;
