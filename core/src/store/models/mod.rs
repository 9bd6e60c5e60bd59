//! The model catalog, and what model calls are charged.

pub mod catalog;
pub mod serving;
