//! The operator's commands.

pub mod commands;
mod suite_audit;
