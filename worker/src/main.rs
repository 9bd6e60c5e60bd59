//! `assay-worker`: scores jobs until it is told to end.

use std::process::ExitCode;

use assay_core::settings::{LOG, LOG_FORMAT, Reader};
use assay_worker::{run, settings};
use clap::{Parser, Subcommand};

/// The worker of Assay. Settings come from the environment; the README lists them.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Score jobs until told to end
    Run,
}

fn main() -> ExitCode {
    let Arguments { command: Command::Run } = Arguments::parse();
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("assay-worker: {message}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), String> {
    let mut read = Reader::from_env();
    let (filter, format): (String, String) = (read.get(&LOG), read.get(&LOG_FORMAT));
    let settings = settings::Settings::read(&mut read, env!("ASSAY_GIT_SHA"));
    read.finish().map_err(|bad| bad.to_string())?;
    let told = |error: assay_core::Error| error.cause.as_ref().map_or_else(|| error.message.to_string(), ToString::to_string);
    assay_core::telemetry::logs(&filter, &format).map_err(told)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    let done = runtime.block_on(run(settings)).map_err(told);
    // A score that was given up may still be computing; nothing waits for it.
    runtime.shutdown_background();
    done
}
