//! Suites and their items.

pub mod item_sequence;
pub mod slices;
pub mod suite;
pub mod suite_items;
