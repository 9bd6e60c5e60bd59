//! `cargo chaos`: 10,000 jobs while everything that can be killed is killed, and an account of them.

use std::process::ExitCode;
use std::sync::Arc;

use assay_tests::binaries;
use assay_tests::chaos::{self, Scale};
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::Ground;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Submit many jobs to 2 api processes and 3 workers while these are killed and frozen, Redis is emptied and restarted,
/// and PostgreSQL crashes. Then say what became of each. Exits with 1 if a promise was broken.
#[derive(Parser)]
#[command(bin_name = "cargo chaos")]
struct Arguments {
    /// Number of jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// From which the order of the faults is made
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run binaries that are not optimized
    #[arg(long)]
    debug: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match report(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            eprintln!("cargo chaos: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn report(arguments: Arguments) -> Result<bool, Trouble> {
    let binaries = binaries::build(!arguments.debug)?;
    let ground = Arc::new(Ground::new(Servers::start(&|line| eprintln!("{line}"))?, binaries));
    let scale = Scale::of(arguments.jobs, arguments.seed);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} accepted  {elapsed}").map_err(Trouble::because("no such bar"))?;
    let bar = ProgressBar::new(u64::try_from(arguments.jobs).unwrap_or(u64::MAX)).with_style(style);
    let report = chaos::run(&ground, scale, &|accepted| bar.set_position(u64::try_from(accepted).unwrap_or(u64::MAX))).await?;
    bar.finish();
    println!("seed {}\n{report}", arguments.seed);
    Ok(report.is_clean())
}
