//! Suites and their items.

pub mod baselines;
pub mod ceiling;
pub mod draft;
pub mod grant;
pub mod item_sequence;
pub mod retirement;
pub mod skill;
pub mod slices;
pub mod submitter;
pub mod suite;
pub mod suite_edits;
pub mod suite_items;
