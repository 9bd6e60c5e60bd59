//! The audit log, events, and the members that can see them.

pub mod audit;
pub mod event;
pub mod member;
