//! Boards with their entries, and receipts.

pub mod board;
pub mod receipt;
