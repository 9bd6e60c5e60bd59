//! `cargo chaos`: load on private stacks during injected faults, and a report of every submission.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_tests::binaries::{self, Profile};
use assay_tests::chaos::{self, Scale};
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::Ground;
use assay_tests::steady::{self, OutageMin};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

/// Submit many jobs to 2 API processes and 3 workers while these are killed and frozen, Redis is
/// flushed and restarted, and PostgreSQL crashes. Then report the outcome. Exits with 1 if a job is
/// lost, created twice or wrong.
#[derive(Parser)]
#[command(bin_name = "cargo chaos", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// Seed of the order of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run unoptimized binaries
    #[arg(long, global = true)]
    debug: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Replace all processes one after the other, again and again, under a steady load
    Restarts {
        /// Number of times that all processes are replaced
        #[arg(long, default_value_t = 20)]
        rounds: usize,
        /// Requests a second
        #[arg(long, default_value_t = 200)]
        rate: u32,
    },
    /// Submit jobs while the links between clients, API processes, workers, PostgreSQL and Redis
    /// are delayed, stalled, cut, made half-open, and cut between a commit and its response
    Network {
        /// Number of jobs
        #[arg(long, default_value_t = 5_000)]
        jobs: usize,
        /// Seed of the order of the faults
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Kill PostgreSQL's primary under load and promote its standby; then repeat with a frozen
    /// primary
    Failover {
        /// Number of jobs for each of the two
        #[arg(long, default_value_t = 5_000)]
        jobs: usize,
    },
    /// Make Redis unavailable in each way under a steady load: stopped, frozen, blackholed, flushed
    Redis {
        /// Duration of each outage in seconds
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Requests a second
        #[arg(long, default_value_t = 200)]
        rate: u32,
    },
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
    let binaries = binaries::build(Profile::release_if(!arguments.debug))?;
    if let Some(Command::Failover { jobs }) = arguments.command {
        let mut is_clean = true;
        for frozen in [false, true] {
            let ground = Arc::new(Ground::new(
                chaos::servers_with_standby()?,
                binaries.clone(),
            ));
            is_clean &= run(&ground, Scale::failover(jobs, frozen)).await?;
        }
        return Ok(is_clean);
    }
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    match arguments.command {
        None => run(&ground, Scale::of(arguments.jobs, arguments.seed)).await,
        Some(Command::Network { jobs, seed }) => run(&ground, Scale::network(jobs, seed)).await,
        Some(Command::Failover { .. }) => Ok(true),
        Some(Command::Restarts { rounds, rate }) => {
            let bar = bar(rounds, "rounds")?;
            let report =
                steady::restarts(&ground, rounds, rate, &|done| position(&bar, done)).await?;
            bar.finish();
            println!("{rate} requests/s\n{report}");
            Ok(report.is_clean())
        }
        Some(Command::Redis { seconds, rate }) => {
            println!("{rate} requests/s, {seconds} s each");
            let length = OutageMin {
                time: Duration::from_secs(seconds),
                jobs: 0,
            };
            let stretches = steady::without_redis(&ground, length, rate, &|stretch| {
                println!("{stretch}");
            })
            .await?;
            Ok(stretches
                .iter()
                .all(|stretch| stretch.seen.failed.is_empty()))
        }
    }
}

async fn run(ground: &Arc<Ground>, scale: Scale) -> Result<bool, Trouble> {
    let bar = bar(scale.jobs, "accepted")?;
    let seed = scale.seed;
    let report = chaos::run(ground, scale, &|accepted| position(&bar, accepted)).await?;
    bar.finish();
    println!("seed {seed}\n{report}");
    Ok(report.is_clean() && report.is_fast())
}

fn bar(length: usize, unit: &str) -> Result<ProgressBar, Trouble> {
    let style =
        ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {unit}  {{elapsed}}"));
    let style = style.map_err(Trouble::because("invalid template of the progress bar"))?;
    Ok(ProgressBar::new(u64::try_from(length).unwrap_or(u64::MAX)).with_style(style))
}

fn position(bar: &ProgressBar, at: usize) {
    bar.set_position(u64::try_from(at).unwrap_or(u64::MAX));
}
