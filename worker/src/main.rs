//! `assay-worker`: scores jobs until the shutdown signal, or one file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_core::runtime::prometheus::{self, Binary};
use assay_eval::Metric;
use assay_worker::settings::Settings;
use assay_worker::{run, score_command};
use clap::{Parser, Subcommand};

/// The worker of Assay. Settings come from environment variables; docs/configuration.md lists them.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Score jobs until the shutdown signal
    Run,
    /// Score a file of predictions by a suite's folder, here and now; prints the figures as JSON
    Score {
        /// The suite's folder, with suite.toml and answers.ndjson
        #[arg(long)]
        suite: PathBuf,
        /// The predictions: a line each or a JSON array, as they are or compressed with gzip or zstd
        #[arg(long)]
        predictions: PathBuf,
        /// A metric in place of the suite's
        #[arg(long)]
        metric: Option<Metric>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run => start(),
        Command::Score {
            suite,
            predictions,
            metric,
        } => score(&suite, &predictions, metric),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("assay-worker: {message}");
            ExitCode::FAILURE
        }
    }
}

fn score(suite: &Path, predictions: &Path, metric: Option<Metric>) -> Result<(), String> {
    let printed = score_command::score(suite, predictions, metric)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &printed).map_err(|error| error.to_string())?;
    writeln!(out).map_err(|error| error.to_string())
}

fn start() -> Result<(), String> {
    let settings = Settings::from_env(env!("ASSAY_GIT_SHA")).map_err(|bad| bad.to_string())?;
    let told = |error: assay_core::Error| error.cause_or_message();
    prometheus::init_logging(&settings.common).map_err(told)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let metrics = prometheus::init_metrics(Binary::Worker, &settings.common).map_err(told)?;
    let done = runtime.block_on(run(settings, metrics)).map_err(told);
    // A score that was given up may still be computing; nothing waits for it.
    runtime.shutdown_background();
    done
}
