//! Measurements over jobs from their submission to their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_tests::servers::Trouble;
use assay_tests::site;
use sqlx::PgConnection;

use crate::cpu::{self, Parts};
use crate::floor;
use crate::installation::{Installation, SMALL, Submission, plain};
use crate::load::{self, Connection, Load, Template, Until};
use crate::report::Sample;

/// The submission for these measurements.
pub const TEN: Submission = Submission {
    suite: SMALL,
    predictions: 10,
};

/// A drain's job count.
const DRAINED: usize = 3_200;
/// Jobs whose latency is measured in a round.
const ALONE: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Submits as the first `orgs` organizations while a worker scores, until all jobs are finished.
/// The latencies are the submissions'.
///
/// # Errors
/// If a request fails.
pub async fn submit_and_score(
    installation: &mut Installation,
    orgs: usize,
    connections: usize,
    length: Duration,
) -> Result<Sample, Trouble> {
    let workers = installation.workers().await?;
    let parts = installation.platform_parts(&workers);
    let keys = installation.platform.keys.iter().take(orgs);
    let templates: Vec<Template> = keys.map(|key| installation.rest(TEN, key)).collect();
    let addresses = installation.api_addresses();
    let began = Instant::now();
    let before = cpu::used(&parts);
    let load = load::generate(
        addresses,
        Arc::new(templates),
        connections,
        Until::Elapsed(length),
    )
    .await?;
    site::drain(&mut installation.platform.site.database).await?;
    let load = Load {
        wall: began.elapsed(),
        ..load
    };
    Ok(Sample::new(&load, &before, &cpu::used(&parts)))
}

/// Scores all jobs that are queued.
///
/// # Errors
/// If the worker does not start.
pub async fn clear(installation: &mut Installation) -> Result<(), Trouble> {
    let _workers = installation.workers().await?;
    site::drain(&mut installation.platform.site.database).await?;
    Ok(())
}

/// Queues jobs from all organizations, and starts the workers.
///
/// # Errors
/// If a request fails.
pub async fn drain_platform(
    installation: &mut Installation,
    connections: usize,
) -> Result<Sample, Trouble> {
    let keys = installation.platform.keys.iter().take(DRAINED);
    let templates: Vec<Template> = keys.map(|key| installation.rest(TEN, key)).collect();
    let addresses = installation.api_addresses();
    let start = now(&mut installation.platform.site.database).await?;
    let requests = Until::Sent(DRAINED);
    load::generate(addresses, Arc::new(templates), connections, requests).await?;
    clear(installation).await?;
    let sql = "select extract(epoch from max(finished_at) - min(finished_at))::float8, count(*) from jobs where created_at >= $1::timestamptz and status = 'succeeded'";
    drained(&mut installation.platform.site.database, sql, &start).await
}

/// Queues the floor's rows, and starts its worker.
///
/// # Errors
/// If the worker does not start.
pub async fn drain_floor(installation: &mut Installation) -> Result<Sample, Trouble> {
    let start = queue_rows(installation).await?;
    let sql = "select id from submissions where status = 'queued'";
    let ids: Vec<String> = sqlx::query_scalar(sql)
        .fetch_all(&mut installation.floor_database)
        .await
        .map_err(Trouble::because("cannot read the rows"))?;
    let no_redis = || Trouble::because("cannot fill the floor's queue");
    let client = redis::Client::open(installation.platform.site.stack.ground.servers.redis_url());
    let mut redis = client
        .map_err(no_redis())?
        .get_multiplexed_async_connection()
        .await
        .map_err(no_redis())?;
    redis::cmd("LPUSH")
        .arg(floor::QUEUE)
        .arg(ids)
        .exec_async(&mut redis)
        .await
        .map_err(no_redis())?;
    let _worker = installation.floor_worker()?;
    rows_drained(installation, &start).await
}

/// Queues rows for Celery, and starts its worker.
///
/// # Errors
/// If Celery does not start.
pub async fn drain_celery(installation: &mut Installation) -> Result<Sample, Trouble> {
    let start = queue_rows(installation).await?;
    installation.peers.enqueue()?;
    let _worker = installation.peers.celery()?;
    rows_drained(installation, &start).await
}

/// Inserts queued rows for the floor's or Celery's worker, and returns the time before it.
async fn queue_rows(installation: &mut Installation) -> Result<String, Trouble> {
    installation.reset_floor().await?;
    let start = now(&mut installation.floor_database).await?;
    let sql = "insert into submissions (id, org_id, status, payload) select gen_random_uuid()::text, 'org', 'queued', $1 from generate_series(1, $2)";
    sqlx::query(sql)
        .bind(TEN.predictions())
        .bind(i64::try_from(DRAINED).unwrap_or(0))
        .execute(&mut installation.floor_database)
        .await
        .map_err(Trouble::because("cannot queue rows"))?;
    Ok(start)
}

/// Waits until all rows are finished.
async fn rows_drained(installation: &mut Installation, start: &str) -> Result<Sample, Trouble> {
    let database = &mut installation.floor_database;
    let began = Instant::now();
    let open = "select exists(select from submissions where status <> 'succeeded')";
    while sqlx::query_scalar(open)
        .fetch_one(&mut *database)
        .await
        .map_err(Trouble::because("cannot read the rows"))?
    {
        if began.elapsed() > TIMEOUT {
            return Err(Trouble::new("the rows were not drained in time"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let sql = "select extract(epoch from max(finished_at) - min(finished_at))::float8, count(*) from submissions where created_at >= $1::timestamptz";
    drained(database, sql, start).await
}

/// Returns a drain's sample: its jobs by the time from the first end to the last one, so that
/// the worker's start does not count.
async fn drained(
    database: &mut PgConnection,
    sql: &'static str,
    start: &str,
) -> Result<Sample, Trouble> {
    let (seconds, jobs): (f64, i64) = sqlx::query_as(sql)
        .bind(start)
        .fetch_one(database)
        .await
        .map_err(Trouble::because("cannot read the finished jobs"))?;
    if usize::try_from(jobs) != Ok(DRAINED) {
        return Err(Trouble::new(format!(
            "{jobs} jobs of {DRAINED} were drained"
        )));
    }
    Ok(Sample {
        per_second: DRAINED as f64 / seconds,
        ..Sample::default()
    })
}

async fn now(database: &mut PgConnection) -> Result<String, Trouble> {
    sqlx::query_scalar("select clock_timestamp()::text")
        .fetch_one(database)
        .await
        .map_err(Trouble::because("cannot read the time"))
}

/// Measures platform jobs one at a time, from the request to the response with `succeeded`.
///
/// # Errors
/// If a request fails.
pub async fn latency_of_platform(installation: &Installation) -> Result<Sample, Trouble> {
    let workers = installation.workers().await?;
    let parts = installation.platform_parts(&workers);
    let submit = installation.rest(TEN, &installation.platform.site.org.key);
    let wait = |id: &str| installation.get(&format!("/v1/jobs/{id}?wait=30"));
    one_at_a_time(installation.api_addresses()[0], &submit, wait, &parts).await
}

/// Measures floor rows one at a time.
///
/// # Errors
/// If a request fails.
pub async fn latency_of_floor(installation: &Installation) -> Result<Sample, Trouble> {
    let worker = installation.floor_worker()?;
    let parts = installation.floor_parts(Some(&worker));
    let submit = plain("/queued", Some(TEN.json()));
    let wait = |id: &str| plain(&format!("/queued/{id}"), None);
    one_at_a_time(installation.floor_address, &submit, wait, &parts).await
}

async fn one_at_a_time(
    address: std::net::SocketAddr,
    submit: &Template,
    wait: impl Fn(&str) -> Template,
    parts: &Parts,
) -> Result<Sample, Trouble> {
    let mut connection = Connection::open(address, false).await?;
    let mut latencies = Vec::new();
    // The first jobs warm the worker up.
    let mut began = Instant::now();
    let mut before = cpu::used(parts);
    for number in 0..ALONE + 20 {
        if number == 20 {
            (began, before) = (Instant::now(), cpu::used(parts));
        }
        let sent = Instant::now();
        let queued: serde_json::Value = serde_json::from_slice(&connection.exchange(submit).await?)
            .map_err(Trouble::because("the response is not JSON"))?;
        let id = queued["id"].as_str().unwrap_or_default();
        let finished: serde_json::Value =
            serde_json::from_slice(&connection.exchange(&wait(id)).await?)
                .map_err(Trouble::because("the response is not JSON"))?;
        if finished["status"] != "succeeded" {
            return Err(Trouble::new(format!("a job did not succeed: {finished}")));
        }
        if number >= 20 {
            latencies.push(sent.elapsed());
        }
    }
    latencies.sort_unstable();
    let load = Load {
        requests: latencies.len(),
        wall: began.elapsed(),
        latencies,
    };
    Ok(Sample::new(&load, &before, &cpu::used(parts)))
}
