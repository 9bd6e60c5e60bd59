//! Boards, their entries and computations, and receipts with their log.

pub mod board;
pub mod board_computation;
pub mod moderation;
pub mod receipt;
pub mod receipt_log;
