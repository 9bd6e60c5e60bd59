//! `assay-api`: serves REST and gRPC, delivers webhooks, writes the receipt log, and runs the
//! operator's commands.

use std::process::ExitCode;

use assay_api::admin::cli::{self, Arguments, Command, CommandError, LogArguments};
use assay_api::deliver::process;
use assay_api::settings::{DelivererSettings, LogSettings, Settings};
use assay_api::{receipt_log, serve};
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::prometheus::{self, Binary};

/// Returns memory to the system after the clients that needed it have disconnected. The system's
/// own allocator keeps it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    if let Command::Openapi { git_sha } = arguments.command {
        let git_sha = git_sha.then_some(env!("ASSAY_GIT_SHA"));
        println!("{:#}", assay_api::openapi::document(git_sha));
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("assay-api: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ProcessError::from)?;
    match arguments.command {
        Command::Serve => Ok(runtime.block_on(run_server())?),
        Command::Deliver => Ok(runtime.block_on(run_deliverer())?),
        Command::Log(LogArguments { command: None }) => Ok(runtime.block_on(run_log())?),
        _ => runtime.block_on(cli::run(arguments)),
    }
}

async fn run_server() -> Result<(), ProcessError> {
    let settings = Settings::from_env(env!("ASSAY_GIT_SHA"))?;
    prometheus::init_logging(&settings.common.log, &settings.common.log_format)?;
    let metrics = prometheus::init_metrics(Binary::Api, &settings.common.git_sha)?;
    serve(settings, metrics).await
}

async fn run_log() -> Result<(), ProcessError> {
    let settings = LogSettings::from_env()?;
    prometheus::init_logging(&settings.log, &settings.log_format)?;
    let metrics = prometheus::init_metrics(Binary::Log, env!("ASSAY_GIT_SHA"))?;
    receipt_log::process::run(settings, metrics).await
}

async fn run_deliverer() -> Result<(), ProcessError> {
    let settings = DelivererSettings::from_env()?;
    prometheus::init_logging(&settings.log, &settings.log_format)?;
    let metrics = prometheus::init_metrics(Binary::Deliverer, env!("ASSAY_GIT_SHA"))?;
    process::run(settings, metrics).await
}
