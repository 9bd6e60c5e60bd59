//! The operator's commands.

pub mod cli;
mod commands;
mod error;
mod publish;
mod suite_audit;
