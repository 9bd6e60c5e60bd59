//! The model catalog, packages, and model calls.

pub mod catalog;
pub mod engine_address;
pub mod package;
pub mod published_model;
pub mod sequence;
pub mod sequence_list;
pub mod served_model;
pub mod serving;
pub mod serving_options;
