//! The operator's commands.

mod boards;
pub mod cli;
mod commands;
pub mod doctor;
mod error;
mod golden;
mod model_package;
mod publish;
mod receipts;
mod suites;
