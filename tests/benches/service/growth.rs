//! The platform with many stored jobs compared with the platform with few: two installations on the
//! same servers, which are loaded in turn.

use std::sync::Arc;

use assay_tests::servers::Trouble;
use assay_tests::service_report::Section;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::installation::{Installation, Platform};
use crate::report::{Comparison, Figure, Rounds, Target};
use crate::{
    Arguments, DRAIN, EVAL_10, EVAL_1000, EVAL_LARGE, IDLE, JOB, MANY_ORGS, ME, ONE_ORG, queue,
};

/// Jobs of the installation with few.
const FEW: u64 = 1_000;

/// Jobs that are inserted at once.
const BATCH: u64 = 1_000_000;

const PROGRAMS: [&str; 9] = [
    JOB, ME, EVAL_10, EVAL_1000, EVAL_LARGE, MANY_ORGS, ONE_ORG, DRAIN, IDLE,
];

/// The tables that are filled, and the columns that differ from the example's, as expressions over a
/// row `c` from the numbered copies.
const COPIED: [(&str, &[(&str, &str)]); 3] = [
    (
        "jobs",
        &[
            ("id", "c.id"),
            ("org_id", "c.org_id"),
            ("created_at", "c.created_at"),
            ("available_at", "c.created_at"),
            ("requested_at", "c.created_at"),
            ("dispatched_at", "c.created_at"),
            ("started_at", "c.created_at"),
            ("finished_at", "c.finished_at"),
            ("cleaned_up_at", "c.finished_at"),
            ("scores_key", "null"),
            (
                "idempotency_key",
                "case when c.n % 2 = 0 then md5(c.n::text) end",
            ),
        ],
    ),
    (
        "job_attempts",
        &[
            ("org_id", "c.org_id"),
            ("job_id", "c.id"),
            ("started_at", "c.created_at"),
            ("ended_at", "c.finished_at"),
        ],
    ),
    (
        "usage_ledger",
        &[
            ("org_id", "c.org_id"),
            ("job_id", "c.id"),
            ("created_at", "c.created_at"),
        ],
    ),
];

/// Measures both installations, and reports the figures for the one with `stored_jobs` jobs divided
/// by the other's.
pub async fn measure(arguments: &Arguments, stored_jobs: u64) -> Result<(), Trouble> {
    let mut installation = Installation::start(arguments.size()).await?;
    let ground = Arc::clone(&installation.platform.site.stack.ground);
    let mut other = Platform::start(&ground, arguments.size()).await?;
    let _scraping = [&installation.platform, &other].map(crate::scrape_apis);
    for jobs in [FEW, stored_jobs] {
        // The first jobs are scored, so that the others can be copies.
        crate::finished_jobs(&mut installation).await?;
        store(&mut installation.platform, jobs).await?;
        std::mem::swap(&mut installation.platform, &mut other);
    }
    let name = |program: &str, jobs: u64| format!("{program}, {jobs} stored jobs");
    let programs = PROGRAMS
        .iter()
        .filter(|name| name.contains(&arguments.only));
    let programs: Vec<&str> = programs.copied().collect();
    let mut rounds: Rounds = programs
        .iter()
        .flat_map(|program| [FEW, stored_jobs].map(|jobs| (name(program, jobs), Vec::new())))
        .collect();
    for round in 0..=arguments.rounds {
        eprintln!("round {round} of {}; 0 is the warm-up", arguments.rounds);
        for (at, (name, samples)) in rounds.iter_mut().enumerate() {
            let sample = crate::one(&mut installation, programs[at / 2], arguments).await?;
            eprintln!("  {name}: {:.0} per second", sample.per_second);
            if round > 0 {
                samples.push(sample);
            }
            queue::clear(&mut installation).await?;
            installation.remove_artifacts()?;
            std::mem::swap(&mut installation.platform, &mut other);
        }
    }
    installation.stop().await?;
    other.stop().await?;
    let comparison = |program: &str, figure, target| Comparison {
        subject: name(program, stored_jobs),
        against: Some(name(program, FEW)),
        figure,
        target,
    };
    let comparisons: Vec<Comparison> = programs
        .iter()
        .flat_map(|program| {
            let mut comparisons =
                vec![comparison(program, Figure::PerSecond, Target::AtLeast(0.9))];
            if *program != DRAIN {
                comparisons.push(comparison(program, Figure::Cpu, Target::AtMost(1.1)));
            }
            comparisons
        })
        .collect();
    crate::report(arguments, Section::Growth, &rounds, &comparisons)
}

/// Stores copies of the first organization's finished job until there are `jobs` more, submitted
/// by all organizations in the last 90 days. With each are its attempt and its charge; every second
/// one has an idempotency key.
async fn store(platform: &mut Platform, jobs: u64) -> Result<(), Trouble> {
    let database = &mut platform.site.database;
    let failed = || Trouble::because("cannot store jobs");
    // Without triggers and foreign keys, which the copies fulfil.
    let prepare = "set session_replication_role = replica;
        create temporary table numbered_orgs as
            select id as org_id, row_number() over () - 1 as number from orgs where id in (select org_id from api_keys);
        create temporary table example as select * from jobs where status = 'succeeded' limit 1;
        create temporary table copies (n bigint, id text, org_id text, created_at timestamptz, finished_at timestamptz)";
    database.execute(prepare).await.map_err(failed())?;
    for first in (0..jobs).step_by(usize::try_from(BATCH).unwrap_or(usize::MAX)) {
        let last = jobs.min(first + BATCH) - 1;
        let number = format!(
            "truncate copies;
             insert into copies
             select n, 'job_' || left(md5(n::text), 22), o.org_id, at, at + interval '10 ms'
             from (
                 select n, now() - interval '90 days' * (({jobs} - n)::float8 / {jobs}) as at
                 from generate_series({first}, {last}) n
             ) numbered
             join numbered_orgs o on o.number = n % (select count(*) from numbered_orgs)"
        );
        database
            .execute(AssertSqlSafe(number))
            .await
            .map_err(failed())?;
        for (table, changed) in COPIED {
            copy(database, table, changed).await?;
        }
        eprintln!("{} of {jobs} jobs stored", last + 1);
    }
    database
        .execute("set session_replication_role = origin")
        .await
        .map_err(failed())?;
    // As autovacuum does later, which is never parallel.
    database
        .execute("vacuum (analyze, parallel 0)")
        .await
        .map_err(failed())?;
    Ok(())
}

/// Copies the example's row in a table for each row in `copies`, with these columns `changed`.
async fn copy(
    database: &mut PgConnection,
    table: &str,
    changed: &[(&str, &str)],
) -> Result<(), Trouble> {
    let failed = || Trouble::because(format!("cannot fill {table}"));
    let columns = "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' and attidentity = ''";
    let columns: Vec<String> = sqlx::query_scalar(columns)
        .bind(table)
        .fetch_all(&mut *database)
        .await
        .map_err(failed())?;
    let values = columns.iter().map(|column| {
        let found = changed.iter().find(|(name, _)| name == column);
        found.map_or_else(|| format!("e.{column}"), |(_, value)| (*value).to_owned())
    });
    let example_row = match table {
        "jobs" => "example e",
        _ => &format!("{table} e join example on example.id = e.job_id"),
    };
    let insert = format!(
        "insert into {table} ({}) select {} from copies c, {example_row}",
        columns.join(", "),
        values.collect::<Vec<_>>().join(", ")
    );
    database
        .execute(AssertSqlSafe(insert))
        .await
        .map_err(failed())?;
    Ok(())
}
