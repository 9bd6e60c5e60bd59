//! Dispatcher round durations: `cargo bench -p assay-tests --bench queue`.
//!
//! Fills a private database with waiting jobs from many organizations, and with jobs that have
//! finished in the last minute. Each round reads the occupied slots and the candidates, and records
//! the first ones' notifications, as the dispatcher does. It is rolled back, so that all rounds are
//! equal. The output has quantiles over the durations.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::model::queue::Speed;
use assay_core::store::{
    Connection as _, PgConnection, PoolProfile, job_notifications, pool, queue,
};
use assay_core::{OrgId, Result};
use assay_tests::binaries::{self, Profile};
use assay_tests::databases;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::{Ground, Stack, StackSize};
use clap::Parser;

/// The number of organizations among which a round chooses 128 jobs: those of the smallest sort keys and of
/// the oldest jobs.
const CANDIDATES: std::ops::RangeInclusive<usize> = 128..=145;

#[derive(Parser)]
struct Arguments {
    /// Number of organizations that wait
    #[arg(long, default_value_t = 2_000)]
    orgs: i64,
    /// Number of jobs that wait
    #[arg(long, default_value_t = 100_000)]
    jobs: i64,
    /// Number of jobs that have started in the last minute
    #[arg(long, default_value_t = 60_000)]
    recent: i64,
    /// Number of rounds
    #[arg(long, default_value_t = 1_000)]
    rounds: usize,
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

const FILL: &str = "
    -- Without triggers and foreign keys.
    set session_replication_role = replica;
    insert into orgs (id, name, plan)
    select 'org_queue' || n, 'Queue', (array['free', 'dev', 'team'])[1 + n % 3]
    from generate_series(1, :orgs) n;
    insert into jobs (id, org_id, type, request_id, hfm_sha, suite_id, suite_version, input_key, n_submitted, request_sha256,
        created_at, requested_at, available_at, trace_id, cost)
    select 'job_queue' || n, 'org_queue' || 1 + n % :orgs, 'eval', '', '', 'suite:queue', '1', 'x', 1, '',
        t, t, t, '', 1 + n * 7919 % 100000
    from generate_series(1, :jobs) n
    cross join lateral (select now() - interval '1 minute' + n * interval '1 microsecond' as t) at;
    insert into jobs (id, org_id, type, request_id, hfm_sha, suite_id, suite_version, n_submitted, request_sha256,
        created_at, requested_at, available_at, trace_id, cost, status, finished_at, error_code)
    select 'job_ended' || n, 'org_queue' || 1 + n % :orgs, 'eval', '', '', 'suite:queue', '1', 1, '',
        t, t, t, '', 10, 'failed', now(), 'internal'
    from generate_series(1, :recent) n
    cross join lateral (select now() - interval '2 minutes' + n * interval '1 microsecond' as t) at;
    insert into job_attempts (org_id, job_id, attempt, worker_id, started_at, ended_at, outcome, cost)
    select org_id, id, 1, 'worker', now() + interval '5 minutes', now(), 'failed', cost
    from jobs
    where status = 'failed';
    insert into workers (id, seen_at, slots) values ('worker', now() + interval '1 hour', 16);
    analyze;";

async fn measure(arguments: Arguments) -> std::result::Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    let plan = StackSize {
        apis: 0,
        workers: 0,
        ..StackSize::default()
    };
    let stack = Stack::start(&ground, plan).await?;
    let mut database = databases::connect(&stack.database.owner_url).await?;
    let fill = [
        (":orgs", arguments.orgs),
        (":jobs", arguments.jobs),
        (":recent", arguments.recent),
    ];
    let sql = fill.iter().fold(FILL.to_owned(), |sql, (name, value)| {
        sql.replace(name, &value.to_string())
    });
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&mut database)
        .await
        .map_err(Trouble::because("the database cannot be filled"))?;

    let pool = pool(&stack.database.api_url, 1, "bench", PoolProfile::REQUESTS)
        .map_err(Trouble::because("no pool"))?;
    let mut db = pool
        .acquire()
        .await
        .map_err(Trouble::because("no connection"))?;
    let mut durations = Vec::new();
    let mut recent_costs = (HashMap::new(), None::<Instant>);
    for _ in 0..arguments.rounds {
        let began = Instant::now();
        round(&mut db, &mut recent_costs)
            .await
            .map_err(Trouble::because("a round has failed"))?;
        durations.push(began.elapsed());
    }
    durations.sort();
    println!(
        "a round with {} waiting jobs of {} organizations:",
        arguments.jobs, arguments.orgs
    );
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        let at = ((durations.len() as f64 * share).ceil() as usize).clamp(1, durations.len()) - 1;
        println!("{name:>5} {:8.1} ms", durations[at].as_secs_f64() * 1e3);
    }
    Ok(())
}

/// The costs of recent jobs, and the time at which they were read.
type RecentCosts = (HashMap<OrgId, i64>, Option<Instant>);

async fn round(db: &mut PgConnection, recent_costs: &mut RecentCosts) -> Result<()> {
    let mut transaction = db.begin().await?;
    job_notifications::try_lead(&mut transaction).await?;
    let busy = queue::busy(&mut *transaction, Speed::ASSUMED.cost_of_short_jobs_max()).await?;
    if recent_costs
        .1
        .is_none_or(|at| at.elapsed() > Duration::from_secs(1))
    {
        *recent_costs = (
            queue::recent_costs(&mut *transaction).await?,
            Some(Instant::now()),
        );
    }
    let waiting = queue::waiting(&mut *transaction, &recent_costs.0, 128, i64::MAX).await?;
    assert!(
        CANDIDATES.contains(&waiting.len()),
        "{} candidates",
        waiting.len()
    );
    let chosen: Vec<_> = waiting
        .iter()
        .flat_map(|org| org.jobs.first())
        .take(busy.slots as usize)
        .map(|job| job.job_id.clone())
        .collect();
    job_notifications::record(&mut *transaction, &chosen).await?;
    transaction.rollback().await?;
    Ok(())
}
