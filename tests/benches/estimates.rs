//! The quality of the estimates of when jobs end: `cargo bench -p assay-tests --bench estimates`.
//!
//! Organizations submit evals of mixed sizes to a private installation, whose workers are killed and
//! replaced. The output compares the first estimate of each job, which its row keeps, with its end.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::databases;
use assay_tests::demo_suite::{self, Random};
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, Plan, Stack};
use clap::Parser;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

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
    #[arg(long, default_value_t = 20_000.0)]
    predictions: f64,
    /// Seconds between two times at which a worker is killed, and another one added
    #[arg(long, default_value_t = 20)]
    kill_every: u64,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

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
    } = Site::start(&ground, Plan::default()).await?;
    let left = AtomicUsize::new(arguments.jobs);
    let clients = try_join_all((0..arguments.orgs).map(|_| client(&stack))).await?;
    let submitting = clients
        .iter()
        .flat_map(|client| (0..arguments.active).map(move |_| client))
        .enumerate()
        .map(|(number, client)| submit(client, number as u64, &left, &arguments));
    let submitting = try_join_all(submitting);
    let killing = async {
        loop {
            tokio::time::sleep(Duration::from_secs(arguments.kill_every)).await;
            let added = stack.launch_worker()?;
            let killed = std::mem::replace(&mut stack.workers[0], added);
            killed.guarded.signal(libc::SIGKILL);
            // The others get their turn.
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

/// Creates an organization, and returns a client with its key.
async fn client(stack: &Stack) -> Result<Client, Trouble> {
    let email = format!("{}@example.org", databases::fresh_name("owner"));
    let created = [
        "org",
        "create",
        "--name",
        "Acme",
        "--plan",
        "team",
        "--owner-email",
        &email,
    ];
    let created = stack.operate(&created).await?;
    let org_id = created["org_id"].as_str().unwrap_or_default().to_owned();
    let key = ["key", "create", "--org", &org_id, "--name", "bench"];
    let key = stack.operate(&key).await?;
    Ok(Client::new(stack.url(), key["key"].as_str()))
}

/// Submits one job after the other, while any are left.
async fn submit(
    client: &Client,
    number: u64,
    left: &AtomicUsize,
    arguments: &Arguments,
) -> Result<(), Trouble> {
    let mut sizes = Random::new(number);
    let take = |left: usize| left.checked_sub(1);
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        .is_ok()
    {
        let n = arguments
            .predictions
            .powf(sizes.below(1_000_000) as f64 / 1e6) as usize;
        let predictions: Vec<Value> = (0..n)
            .map(|item| json!({"item_id": format!("item-{item}"), "prediction": ["ramen"]}))
            .collect();
        let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": predictions});
        let mut job = client.post("/v1/evals", &body).await?;
        while !matches!(job.status, 200 | 202) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            job = client.post("/v1/evals", &body).await?;
        }
        let path = format!(
            "/v1/jobs/{}?wait=30",
            job.body["id"].as_str().unwrap_or_default()
        );
        while job.body["status"] != "succeeded" {
            job = client.get(&path).await?;
        }
    }
    Ok(())
}
