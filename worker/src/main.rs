//! `assay-worker`: scores jobs or computes with models until the shutdown signal, or scores one
//! file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::prometheus::{self, Binary};
use assay_engine_server::settings::Settings as EngineSettings;
use assay_eval::Metric;
use assay_worker::settings::{CheckerSettings, Settings};
use assay_worker::{checker, run, score_command};
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
    /// Check and publish the drafts of suites until the shutdown signal
    Check,
    /// Compute with models for the API and the workers until the shutdown signal, without a database
    Serve,
    /// Score a file of predictions with a suite's folder, offline, and print the figures as JSON
    Score {
        /// The folder of the suite, with suite.toml and answers.ndjson
        #[arg(long)]
        suite: PathBuf,
        /// The predictions: NDJSON, a JSON array or CSV, uncompressed or compressed with gzip or zstd
        #[arg(long)]
        predictions: PathBuf,
        /// A metric to use instead of the suite's
        #[arg(long)]
        metric: Option<Metric>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run => start().map_err(|error| error.to_string()),
        Command::Check => start_checker().map_err(|error| error.to_string()),
        Command::Serve => start_engine().map_err(|error| error.to_string()),
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

fn start() -> Result<(), ProcessError> {
    let settings = Settings::from_env(env!("ASSAY_GIT_SHA"))?;
    prometheus::init_logging(&settings.common.log, &settings.common.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let metrics = prometheus::init_metrics(Binary::Worker, &settings.common.git_sha)?;
    let result = runtime.block_on(run(settings, metrics));
    // A blocking thread may still compute a score whose attempt was cancelled. Nothing waits for
    // it.
    runtime.shutdown_background();
    result
}

fn start_checker() -> Result<(), ProcessError> {
    let settings = CheckerSettings::from_env(env!("ASSAY_GIT_SHA"))?;
    prometheus::init_logging(&settings.log, &settings.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let metrics = prometheus::init_metrics(Binary::Worker, &settings.git_sha)?;
    let result = runtime.block_on(checker::run(settings, metrics));
    // A blocking thread may still check a draft whose time is over. Nothing waits for it.
    runtime.shutdown_background();
    result
}

fn start_engine() -> Result<(), ProcessError> {
    let settings = EngineSettings::from_env(env!("ASSAY_GIT_SHA"))?;
    prometheus::init_logging(&settings.log, &settings.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(assay_engine_server::worker_threads())
        .enable_all()
        .build()?;
    let metrics = prometheus::init_metrics(Binary::Engine, &settings.git_sha)?;
    let result = runtime.block_on(assay_engine_server::run(settings, metrics));
    // A load that nobody waits for may still run.
    runtime.shutdown_background();
    result
}
