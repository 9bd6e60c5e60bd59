//! `assay`: Assay's command-line program.

mod arguments;
mod client;
mod commands;
mod failure;
/// The code that `cargo contract` writes.
mod generated {
    #[rustfmt::skip]
    pub mod operations;
}
mod messages;
mod operations;
mod output;
mod predictions;
mod profiles;
mod proxy;
mod retries;
mod upload;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::Arguments;
use failure::Exit;

fn main() -> ExitCode {
    // Argument errors end the program with 2, as all programs with clap do.
    let arguments = Arguments::parse();
    messages::handle_interrupts();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.exit == Exit::OutputClosed => ExitCode::SUCCESS,
        Err(failure) => {
            messages::print(&failure.to_string());
            ExitCode::from(failure.exit as u8)
        }
    }
}
