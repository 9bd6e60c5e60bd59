//! The operator's commands.

pub mod cli;
mod commands;
mod error;
mod golden;
mod model_package;
mod publish;
mod suite_audit;
