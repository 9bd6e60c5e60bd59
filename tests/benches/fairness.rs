//! The shares of organizations in the workers' slots: `cargo bench -p assay-tests --bench fairness`.
//!
//! Each measurement has a private installation, whose organizations keep some evals queued or
//! running. The output has the waiting times and each organization's share.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_core::Timestamp;
use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::{self, Site};
use assay_tests::stack::{Ground, StackSize};
use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use serde_json::Value;
use sqlx::PgConnection;

#[derive(Parser)]
struct Arguments {
    /// The measurements, or all if none is named
    measurements: Vec<Measurement>,
    /// Seconds for which organizations submit in each measurement. Jobs count against their
    /// organization for 60 s
    #[arg(long, default_value_t = 80)]
    seconds: u64,
    /// Number of predictions of a small job
    #[arg(long, default_value_t = 8_000)]
    predictions: usize,
    /// Number of predictions of a job of the flood, divided by that of a small job
    #[arg(long, default_value_t = 1_000)]
    factor: usize,
    /// Number of predictions of the large job
    #[arg(long, default_value_t = 10_000_000)]
    large: usize,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Measurement {
    /// The waiting times of 19 organizations during the flood of another one
    Flood,
    /// The shares of organizations of different weights
    Weights,
    /// The share of the slots that one organization uses alone
    Alone,
    /// The waiting time of a large job under a load of small ones
    Large,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// An organization that submits jobs.
#[derive(Clone, Copy)]
struct Submitter {
    plan: &'static str,
    /// The number of predictions of each job.
    predictions: usize,
    /// The number of jobs that are queued or running at any time.
    active: usize,
    /// The time until the first job, in seconds.
    after: u64,
}

/// The jobs of one organization.
#[derive(sqlx::FromRow)]
struct Used {
    /// The time until the first attempt of each job, in seconds. Jobs that still wait count with the
    /// time until the end of the measurement. Those of the first ten seconds are left out.
    waits: Vec<f64>,
    /// The predictions of the jobs that have succeeded.
    finished_cost: i64,
    /// The time for which jobs ran, in seconds.
    run_seconds: f64,
    /// The number of attempts.
    attempts: i64,
}

async fn measure(arguments: &Arguments) -> Result<(), Trouble> {
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries::build(Profile::Release)?,
    ));
    let is_measured =
        |one| arguments.measurements.is_empty() || arguments.measurements.contains(&one);
    if is_measured(Measurement::Flood) {
        measure_flood(&ground, arguments).await?;
    }
    if is_measured(Measurement::Weights) {
        measure_weights(&ground, arguments).await?;
    }
    if is_measured(Measurement::Alone) {
        measure_alone(&ground, arguments).await?;
    }
    if is_measured(Measurement::Large) {
        measure_large(&ground, arguments).await?;
    }
    Ok(())
}

impl Arguments {
    /// An organization that always has ten small jobs.
    fn small(&self) -> Submitter {
        Submitter {
            plan: "team",
            predictions: self.predictions,
            active: 10,
            after: 0,
        }
    }
}

async fn measure_flood(ground: &Arc<Ground>, arguments: &Arguments) -> Result<(), Trouble> {
    let small = arguments.small();
    let flood = Submitter {
        predictions: arguments.predictions * arguments.factor,
        active: 50,
        ..small
    };
    for slots in [2, 16] {
        let without = run(ground, arguments, slots, &[small; 20]).await?;
        let mut submitters = [small; 20];
        submitters[0] = flood;
        let with = run(ground, arguments, slots, &submitters).await?;
        let [without, with] = [&without, &with].map(|used| p95_of_waits(&used[1..]));
        println!(
            "{slots} slots: p95 wait {without:.2} s, with a flood {with:.2} s: {:.2} times",
            with / without
        );
    }
    Ok(())
}

async fn measure_weights(ground: &Arc<Ground>, arguments: &Arguments) -> Result<(), Trouble> {
    let weighted = ["free", "dev", "team"].map(|plan| Submitter {
        plan,
        predictions: 20_000,
        active: 20,
        after: 0,
    });
    let used = run(ground, arguments, 2, &weighted).await?;
    let total: i64 = used.iter().map(|used| used.finished_cost).sum();
    let shares: Vec<_> = used
        .iter()
        .map(|used| format!("{:.2}", used.finished_cost as f64 / total as f64 * 7.0))
        .collect();
    println!("weights 1, 2 and 4: shares {}", shares.join(", "));
    Ok(())
}

async fn measure_alone(ground: &Arc<Ground>, arguments: &Arguments) -> Result<(), Trouble> {
    for slots in [2, 4] {
        for predictions in [200_000, 1_000_000] {
            let alone = Submitter {
                predictions,
                active: 20,
                ..arguments.small()
            };
            let used = run(ground, arguments, slots, &[alone]).await?;
            let share = used[0].run_seconds / (slots as f64 * arguments.seconds as f64);
            println!(
                "one organization alone with jobs of {:.2} s: {:.1} % of {slots} slots",
                used[0].run_seconds / used[0].attempts as f64,
                share * 100.0
            );
        }
    }
    Ok(())
}

async fn measure_large(ground: &Arc<Ground>, arguments: &Arguments) -> Result<(), Trouble> {
    let small = arguments.small();
    let large = Submitter {
        predictions: arguments.large,
        active: 1,
        after: 10,
        ..small
    };
    let mut submitters = [small; 6];
    submitters[0] = large;
    let used = run(ground, arguments, 2, &submitters).await?;
    println!(
        "jobs of {} predictions under a load of small ones waited at most {:.2} s",
        arguments.large,
        used[0].waits.iter().copied().fold(0.0, f64::max)
    );
    Ok(())
}

fn p95_of_waits(used: &[Used]) -> f64 {
    let mut waits: Vec<f64> = used.iter().flat_map(|used| used.waits.clone()).collect();
    waits.sort_by(f64::total_cmp);
    let rank = (waits.len() as f64 * 0.95).ceil() as usize;
    waits
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

const USED: &str = "
    with attempts as (
        select
            a.job_id,
            min(a.started_at) as started_at,
            count(*) as attempts,
            sum(extract(epoch from least(a.ended_at, $3) - a.started_at)) as run_seconds
        from job_attempts a
        where a.org_id = $1
          and a.started_at < $3
        group by a.job_id
    )
    select
        coalesce(
            array_agg(extract(epoch from coalesce(a.started_at, $3) - j.created_at)::float8)
                filter (where j.created_at between $2 + interval '10 seconds' and $3),
            '{}'
        ) as waits,
        coalesce(sum(j.cost) filter (where j.status = 'succeeded'), 0)::bigint as finished_cost,
        coalesce(sum(a.run_seconds), 0)::float8 as run_seconds,
        coalesce(sum(a.attempts), 0)::bigint as attempts
    from jobs j
    left join attempts a on a.job_id = j.id
    where j.org_id = $1";

/// Starts an installation with this number of slots, lets organizations submit, and returns what
/// each of them used.
async fn run(
    ground: &Arc<Ground>,
    arguments: &Arguments,
    slots: usize,
    submitters: &[Submitter],
) -> Result<Vec<Used>, Trouble> {
    let mut plan = StackSize::default();
    plan.env.extend([
        ("ASSAY_WORKER_SLOTS".to_owned(), slots.to_string()),
        // All organizations have the same address.
        (
            "ASSAY_CONNECTIONS_PER_ADDRESS".to_owned(),
            "1000".to_owned(),
        ),
    ]);
    let Site {
        stack,
        mut database,
        ..
    } = Site::start(ground, plan).await?;
    for (plan, weight) in [("free", "1"), ("dev", "2"), ("team", "4")] {
        stack
            .operate(&["plan", "set", plan, "--queue-weight", weight])
            .await?;
    }
    let mut orgs = Vec::new();
    for submitter in submitters {
        let org = site::create_org(&stack, submitter.plan).await?;
        let client = Client::new(stack.url(), Some(&org.key));
        let body = site::upload_predictions(&client, submitter.predictions).await?;
        orgs.push((org.id, client, body));
    }
    let submitting = try_join_all(
        orgs.iter()
            .zip(submitters)
            .flat_map(|(org, submitter)| (0..submitter.active).map(move |_| (org, submitter)))
            .map(|((_, client, body), submitter)| submit(client, body, submitter.after)),
    );
    let time = Duration::from_secs(arguments.seconds);
    let began = now(&mut database).await?;
    if let Ok(Err(failed)) = tokio::time::timeout(time, submitting).await {
        return Err(failed);
    }
    let ended = now(&mut database).await?;
    let mut used = Vec::new();
    for (org_id, ..) in &orgs {
        let org_use = sqlx::query_as(USED)
            .bind(org_id)
            .bind(began)
            .bind(ended)
            .fetch_one(&mut database)
            .await
            .map_err(Trouble::because("the jobs cannot be read"))?;
        used.push(org_use);
    }
    Ok(used)
}

async fn now(database: &mut PgConnection) -> Result<Timestamp, Trouble> {
    sqlx::query_scalar("select now()")
        .fetch_one(database)
        .await
        .map_err(Trouble::because("the time cannot be read"))
}

/// Runs one job after the other, the first after some seconds.
async fn submit(client: &Client, body: &Value, after: u64) -> Result<Infallible, Trouble> {
    tokio::time::sleep(Duration::from_secs(after)).await;
    loop {
        site::run_eval(client, body).await?;
    }
}
