//! `cargo latency`: measures the time of a small submission on an idle installation, from the
//! request to the score.
//!
//! Runs optimized binaries, one API process, two workers and one job at a time, with 100
//! predictions each. Prints two latencies: of the client (from sending the request until it has
//! read `succeeded` with `?wait`), and of the platform (`finished_at` − `created_at`).

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, StackSize};
use serde_json::Value;

const WARM_UP: usize = 50;
const JOBS: usize = 500;

#[tokio::main]
async fn main() -> ExitCode {
    match measure().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("cargo latency: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    let mut site = Site::start(
        &ground,
        StackSize {
            workers: 2,
            ..StackSize::default()
        },
    )
    .await?;
    let client = Client::new(site.stack.url(), Some(&site.org.key));
    let body = site.submissions(4).await?.remove(0);
    let count = body["predictions"].as_array().map_or(0, Vec::len);
    let mut seen = Vec::new();
    for job in 0..WARM_UP + JOBS {
        let took = one(&client, &body).await?;
        if job >= WARM_UP {
            seen.push(took);
        }
    }
    let recorded = sqlx::query_scalar::<_, f64>(
        "select (extract(epoch from finished_at - created_at) * 1000)::float8 from (select * from jobs order by created_at desc limit $1) j",
    );
    let recorded = recorded
        .bind(i64::try_from(JOBS).unwrap_or(0))
        .fetch_all(&mut site.database)
        .await
        .map_err(Trouble::because("cannot read the jobs"))?;
    println!("{JOBS} jobs of {count} predictions, one at a time");
    print("request to succeeded, measured by the client", seen);
    print("created_at to finished_at", recorded);
    site.stack.stop();
    ground.clear(&site.stack.database).await
}

/// Submits a job and returns the milliseconds until `succeeded` was read.
async fn one(client: &Client, body: &Value) -> Result<f64, Trouble> {
    let began = Instant::now();
    let queued = client.post("/v1/evals", body).await?;
    let path = format!(
        "/v1/jobs/{}?wait=30",
        queued.body["id"].as_str().unwrap_or_default()
    );
    let job = client.get(&path).await?;
    match job.body["status"].as_str() {
        Some("succeeded") => Ok(began.elapsed().as_secs_f64() * 1000.0),
        _ => Err(Trouble::new(format!("a job did not succeed: {}", job.body))),
    }
}

fn print(name: &str, mut millis: Vec<f64>) {
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| {
        millis
            .get(((millis.len() as f64 - 1.0) * share).round() as usize)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{name}: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
