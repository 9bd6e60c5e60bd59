//! The quality of job end estimates: `cargo bench -p assay-tests --bench estimates`.
//!
//! Organizations submit evals with mixed sizes to a private installation, whose workers are killed
//! and replaced. The output compares each job's first estimate, which its row keeps, with its end.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::demo_suite::Random;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::{self, Site};
use assay_tests::stack::{Ground, StackSize};
use clap::Parser;
use futures_util::future::try_join_all;
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    /// Number of jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// Number of organizations
    #[arg(long, default_value_t = 6)]
    orgs: usize,
    /// Number of jobs that each organization keeps queued or running
    #[arg(long, default_value_t = 10)]
    active: usize,
    /// Largest number of predictions of a job; the sizes are log-uniform
    #[arg(long, default_value_t = 200_000.0)]
    predictions: f64,
    /// Seconds between two times at which a worker is killed, and another one added
    #[arg(long, default_value_t = 20)]
    kill_every: u64,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

/// Jobs have `SIZES + 1` sizes.
const SIZES: u32 = 20;

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The share of the jobs that ended before their estimate, and the median of the estimated durations
/// divided by the actual ones.
const REPORT: &str = "
    select
        count(*),
        count(first_estimated_end_by),
        coalesce(avg((finished_at <= first_estimated_end_by)::integer), 0)::float8,
        coalesce(
            percentile_cont(0.5) within group (
                order by extract(epoch from first_estimated_end_by - created_at) / extract(epoch from finished_at - created_at)
            ),
            0
        )::float8
    from jobs
    where status = 'succeeded'";

async fn measure(arguments: Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    let Site {
        mut stack,
        mut database,
        ..
    } = Site::start(
        &ground,
        StackSize {
            workers: 2,
            ..StackSize::default()
        },
    )
    .await?;
    let left = AtomicUsize::new(arguments.jobs);
    let mut orgs = Vec::new();
    for _ in 0..arguments.orgs {
        let org = site::create_org(&stack, "team").await?;
        let client = Client::new(stack.url(), Some(&org.key));
        let mut bodies = Vec::new();
        for size in 0..=SIZES {
            let predictions = arguments
                .predictions
                .powf(f64::from(size) / f64::from(SIZES));
            bodies.push(site::upload_predictions(&client, predictions as usize).await?);
        }
        orgs.push((client, bodies));
    }
    let submitting = orgs
        .iter()
        .flat_map(|org| (0..arguments.active).map(move |_| org))
        .enumerate()
        .map(|(seed, (client, bodies))| submit(client, bodies, seed as u64, &left));
    let submitting = try_join_all(submitting);
    let killing = async {
        loop {
            tokio::time::sleep(Duration::from_secs(arguments.kill_every)).await;
            let added = stack.launch_worker()?;
            let killed = std::mem::replace(&mut stack.workers[0], added);
            killed.guarded.signal(libc::SIGKILL);
            // The next kill ends another worker.
            stack.workers.rotate_left(1);
            eprintln!("{} jobs left", left.load(Ordering::Relaxed));
        }
    };
    tokio::select! {
        submitted = submitting => submitted.map(drop)?,
        failed = killing => return failed,
    }
    let (finished, estimated, in_time, ratio): (i64, i64, f64, f64) = sqlx::query_as(REPORT)
        .fetch_one(&mut database)
        .await
        .map_err(Trouble::because("the jobs cannot be read"))?;
    println!("{finished} jobs have succeeded, {estimated} of them with an estimate");
    println!("{:.1} % ended before it", in_time * 100.0);
    println!("the estimated duration is {ratio:.2} times the actual one, at the median");
    Ok(())
}

/// Runs one job after the other, while any are left.
async fn submit(
    client: &Client,
    bodies: &[Value],
    seed: u64,
    left: &AtomicUsize,
) -> Result<(), Trouble> {
    let mut sizes = Random::new(seed);
    let take = |left: usize| left.checked_sub(1);
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        .is_ok()
    {
        site::run_eval(client, &bodies[sizes.below(bodies.len() as u64)]).await?;
    }
    Ok(())
}
