//! `assay-worker`: scores jobs until it is told to end.

use std::process::ExitCode;

use assay_core::telemetry;
use assay_worker::run;
use assay_worker::settings::Settings;
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
    let settings = Settings::from_env(env!("ASSAY_GIT_SHA")).map_err(|bad| bad.to_string())?;
    let told = |error: assay_core::Error| error.cause.as_ref().map_or_else(|| error.message.to_string(), ToString::to_string);
    telemetry::logs(&settings.common).map_err(told)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    let done = runtime.block_on(run(settings)).map_err(told);
    // A score that was given up may still be computing; nothing waits for it.
    runtime.shutdown_background();
    done
}
