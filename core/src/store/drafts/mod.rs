//! Organizations' drafts: their rows, their files, and what the checker does with them.

pub mod draft;
pub mod draft_check;
pub mod escrow;
