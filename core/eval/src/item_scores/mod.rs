//! The stored values of a succeeded job's items: as little as a comparison between two jobs over
//! the same items needs.
//!
//! A job builds them with [`ItemScoresBuilder`]. The finished [`ItemScores`] are written as one
//! object, which [`Header`] reads in ranges.

mod builder;
mod format;
mod reader;

pub use builder::ItemScoresBuilder;
pub(crate) use format::Bits;
pub use format::{HEADER_BYTES, Header, ItemScores, Kind};

#[cfg(test)]
mod tests;
