//! `cargo pages`: measures the time in which the server renders each page of the dashboard, for an
//! organization with many jobs and an installation with many suites.
//!
//! Runs optimized binaries, one API process and one client. Prints the median and the 95th
//! percentile of each page in milliseconds, from sending the request until the page is read.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::demo_suite;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, StackSize};
use clap::Parser;
use sqlx::Executor as _;

const WARM_UP: usize = 5;

/// Print the median and the 95th percentile of the time of each page, in milliseconds.
#[derive(Parser)]
#[command(bin_name = "cargo pages")]
struct Arguments {
    /// Number of jobs of the organization
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// Number of suites
    #[arg(long, default_value_t = 50)]
    suites: u32,
    /// Number of requests for each page
    #[arg(long, default_value_t = 100)]
    requests: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("cargo pages: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let servers = Servers::start(&|line| eprintln!("{line}"))?;
    let ground = Arc::new(Ground::new(servers, binaries));
    let mut site = Site::start(&ground, StackSize::default()).await?;
    let job_id = fill(&mut site, arguments).await?;
    let signed_in = ["session", "create", "--email", &site.org.owner_email];
    let session = site.stack.operate(&signed_in).await?;
    let session = session["token"].as_str().unwrap_or_default();
    let client = Client::new(site.stack.url(), None);
    let suite = demo_suite::SUITE_ID;
    let paths = [
        String::from("/"),
        String::from("/suites"),
        format!("/suites/{suite}"),
        format!("/suites/{suite}/items"),
        format!("/suites/{suite}/submit"),
        format!("/suites/{suite}/history"),
        String::from("/submit"),
        String::from("/jobs"),
        format!("/jobs?suite_id={suite}&status=succeeded"),
        format!("/jobs/{job_id}"),
        String::from("/compare"),
        String::from("/usage"),
        String::from("/models"),
        String::from("/keys"),
        String::from("/members"),
        String::from("/domains"),
        String::from("/settings"),
        String::from("/terms"),
        String::from("/account"),
        String::from("/search?q=none"),
    ];
    println!(
        "{} jobs, {} suites, {} requests per page\n\n| page | p50 in ms | p95 in ms |\n|---|---|---|",
        arguments.jobs, arguments.suites, arguments.requests
    );
    for path in &paths {
        let mut times = Vec::with_capacity(arguments.requests);
        for at in 0..WARM_UP + arguments.requests {
            let request = client
                .request("GET", path)
                .header("Accept", "text/html")
                .header("Cookie", format!("__Host-assay_session={session}"));
            let began = Instant::now();
            let page = client.send(request).await?;
            if page.status != 200 {
                return Err(Trouble::new(format!("{path} returned {}", page.status)));
            }
            if at >= WARM_UP {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        println!("| `{path}` | {:.1} | {:.1} |", at(0.5), at(0.95));
    }
    Ok(())
}

/// Stores copies of a scored job of the organization, and of the suite under other names. Returns
/// the id of the job.
async fn fill(site: &mut Site, arguments: &Arguments) -> Result<String, Trouble> {
    let client = Client::new(site.stack.url(), Some(&site.org.key));
    let body = site.submissions(1).await?.remove(0);
    let accepted = client.post("/v1/evals", &body).await?;
    let job_id = accepted.body["id"].as_str().unwrap_or_default().to_owned();
    client.get(&format!("/v1/jobs/{job_id}?wait=30")).await?;
    let Arguments { jobs, suites, .. } = arguments;
    // Without triggers and foreign keys, which the copies fulfil.
    let copy = format!(
        "set session_replication_role = replica;
         do $$
         declare
             columns text;
         begin
             select string_agg(quote_ident(attname), ', ') into columns
             from pg_attribute
             where attrelid = 'jobs'::regclass and attnum > 0 and not attisdropped
               and attgenerated = '' and attname not in ('id', 'created_at', 'idempotency_key');
             execute 'insert into jobs (id, created_at, ' || columns || ')
                 select ''job_'' || left(md5(n::text), 22), created_at - n * interval ''1 minute'', ' || columns || '
                 from jobs, generate_series(1, {jobs}) n';
             select string_agg(quote_ident(attname), ', ') into columns
             from pg_attribute
             where attrelid = 'suites'::regclass and attnum > 0 and not attisdropped
               and attgenerated = '' and attname not in ('suite_id', 'content_id');
             execute 'insert into suites (suite_id, content_id, ' || columns || ')
                 select suite_id || ''-'' || n, -1000000 * content_id - n, ' || columns || '
                 from suites, generate_series(1, {suites}) n';
             insert into suite_commitments (suite_id, suite_version, commitment, committed_at, payload)
                 select suite_id || '-' || n, suite_version, commitment, committed_at, payload
                 from suite_commitments, generate_series(1, {suites}) n;
         end
         $$;
         set session_replication_role = origin"
    );
    let failed = || Trouble::because("cannot store jobs and suites");
    let database = &mut site.database;
    database
        .execute(sqlx::AssertSqlSafe(copy))
        .await
        .map_err(failed())?;
    database.execute("analyze").await.map_err(failed())?;
    Ok(job_id)
}
