//! The service compared with programs that a user would write instead: `cargo bench-service`.
//!
//! In each round, each program is loaded in turn by the same clients: the platform as an operator
//! configures it, with its metrics scraped every second; floors, which are an axum server with at
//! most one statement per request and a worker that takes ids from Redis; and peers, which are
//! FastAPI with asyncpg and Celery. All use the same PostgreSQL and Redis on this machine.
//!
//! CPU time is summed over a program's processes, with PostgreSQL and Redis, without the load
//! generator. The output has medians over the rounds. A ratio is the median of each round's
//! ratios. `docs/benchmarks.md` describes the figures.

mod cpu;
mod floor;
mod growth;
mod installation;
mod load;
mod peers;
mod queue;
mod report;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_eval::score::{AnswerTable, Builder, Progress, score};
use assay_eval::{Answer, Metric};
use assay_tests::servers::Trouble;
use assay_tests::service_report::{self, Section};
use clap::Parser;
use serde_json::{Value, json};

use crate::cpu::Parts;
use crate::installation::{
    Installation, LARGE, Platform, READ_ROWS, SMALL, Size, Submission, plain,
};
use crate::load::{Load, Template, Until};
use crate::queue::TEN;
use crate::report::{Comparison, Figure, Rounds, Sample, Target};

const CONSTANT: &str = "axum: constant";
const SELECT: &str = "axum: select by key";
const INSERT_10: &str = "axum: insert of 10 items";
const INSERT_1000: &str = "axum: insert of 1,000 items";
const FASTAPI_SELECT: &str = "FastAPI: select by key";
const FASTAPI_INSERT_10: &str = "FastAPI: insert of 10 items";
const FASTAPI_INSERT_1000: &str = "FastAPI: insert of 1,000 items";
const JOB: &str = "GET /v1/jobs/{job_id}";
const ME: &str = "GET /v1/me";
const EVAL_10: &str = "POST /v1/evals, 10 items";
const EVAL_1000: &str = "POST /v1/evals, 1,000 items";
const EVAL_LARGE: &str = "POST /v1/evals, 4.9 MB";
const GRPC_10: &str = "CreateEval over gRPC, 10 items";
const GRPC_1000: &str = "CreateEval over gRPC, 1,000 items";
const GRPC_LARGE: &str = "CreateEval over gRPC, 4.9 MB of JSON";
const SCORER: &str = "the scorer alone, 4.9 MB";
const MANY_ORGS: &str = "submit and score 10 items, many organizations";
const ONE_ORG: &str = "submit and score 10 items, one organization";
const DRAIN: &str = "drain of queued jobs";
const DRAIN_FLOOR: &str = "drain by a bare Redis worker";
const DRAIN_CELERY: &str = "drain by Celery";
const IDLE: &str = "one job at idle";
const IDLE_FLOOR: &str = "one row at idle, bare Redis worker";

/// All programs, in the order of the report.
const PROGRAMS: [&str; 23] = [
    CONSTANT,
    SELECT,
    FASTAPI_SELECT,
    JOB,
    ME,
    INSERT_10,
    FASTAPI_INSERT_10,
    EVAL_10,
    GRPC_10,
    INSERT_1000,
    FASTAPI_INSERT_1000,
    EVAL_1000,
    GRPC_1000,
    EVAL_LARGE,
    GRPC_LARGE,
    SCORER,
    MANY_ORGS,
    ONE_ORG,
    DRAIN,
    DRAIN_FLOOR,
    DRAIN_CELERY,
    IDLE,
    IDLE_FLOOR,
];

const THOUSAND: Submission = Submission {
    suite: SMALL,
    predictions: SMALL,
};
const LARGEST: Submission = Submission {
    suite: LARGE,
    predictions: LARGE,
};

/// Number of connections for large submissions, whose bodies share the API's memory budget.
const LARGE_CONNECTIONS: usize = 4;

#[derive(Parser)]
struct Arguments {
    /// Number of times that each program is loaded
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each load in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of concurrent connections; a divisor of 3,200
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Number of organizations
    #[arg(long, default_value_t = 50)]
    orgs: usize,
    /// Number of API processes
    #[arg(long, default_value_t = 1)]
    apis: usize,
    /// Number of workers
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Compare an installation that has stored this many jobs with one that has stored 1,000
    #[arg(long)]
    stored_jobs: Option<u64>,
    /// Load only the programs whose names contain this text
    #[arg(long, default_value = "")]
    only: String,
    /// Replace the published figures in `docs`
    #[arg(long)]
    publish: bool,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

impl Arguments {
    const fn size(&self) -> Size {
        Size {
            orgs: self.orgs,
            apis: self.apis,
            workers: self.workers,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new();
    let done = runtime
        .map_err(Trouble::because("cannot start the runtime"))
        .and_then(|runtime| match arguments[..] {
            ["floor-api", listen] => {
                let listen = listen.parse().map_err(Trouble::because("no address"));
                runtime.block_on(floor::serve(listen?))
            }
            ["floor-worker"] => runtime.block_on(floor::work()),
            _ => {
                let arguments = Arguments::parse();
                runtime.block_on(async {
                    match arguments.stored_jobs {
                        Some(stored_jobs) => growth::measure(&arguments, stored_jobs).await,
                        None => measure(&arguments).await,
                    }
                })
            }
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("cargo bench-service: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Trouble> {
    let mut installation = Installation::start(arguments.size()).await?;
    let _scraping = scrape_apis(&installation.platform);
    let mut rounds: Rounds = PROGRAMS.map(|name| (name.to_owned(), Vec::new())).into();
    for round in 0..=arguments.rounds {
        eprintln!("round {round} of {}; 0 is the warm-up", arguments.rounds);
        for (name, samples) in &mut rounds {
            if !name.contains(&arguments.only) {
                continue;
            }
            let sample = one(&mut installation, name, arguments).await?;
            eprintln!("  {name}: {:.0} per second", sample.per_second);
            if round > 0 {
                samples.push(sample);
            }
        }
        queue::clear(&mut installation).await?;
        installation.remove_artifacts()?;
        installation.reset_floor().await?;
    }
    installation.stop().await?;
    report(arguments, Section::Service, &rounds, &comparisons())
}

/// Prints the figures, and writes them with the chart into `docs` if they are to be published, or
/// into the target folder.
fn report(
    arguments: &Arguments,
    section: Section,
    rounds: &Rounds,
    comparisons: &[Comparison],
) -> Result<(), Trouble> {
    let mut figures = report::summary(rounds, comparisons);
    if let Some(figures) = figures.as_object_mut() {
        figures.insert("rounds".into(), json!(arguments.rounds));
        figures.insert("seconds".into(), json!(arguments.seconds));
        figures.insert("connections".into(), json!(arguments.connections));
        figures.insert("processors".into(), processors());
    }
    println!("{}", service_report::markdown(&figures));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = workspace.join(if arguments.publish { "docs" } else { "target" });
    let save = |name: &str, text: String| -> Result<(), Trouble> {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(Trouble::because(format!("cannot write {name}")))
    };
    save(section.json_file(), format!("{figures:#}\n"))?;
    save(section.chart_file(), service_report::chart(&figures))?;
    if arguments.publish {
        let page = std::fs::read_to_string(folder.join("benchmarks.md"))
            .map_err(Trouble::because("cannot read benchmarks.md"))?;
        let page = service_report::replace_tables(&page, section, &figures)
            .ok_or_else(|| Trouble::new("benchmarks.md has no place for the tables"))?;
        save("benchmarks.md", page)?;
    }
    eprintln!("The figures are in {}.", folder.display());
    Ok(())
}

/// Returns the number of processors and their model.
fn processors() -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({"count": count, "model": model})
}

/// Scrapes the metrics of the API processes until the result is dropped.
fn scrape_apis(platform: &Platform) -> tokio::task::JoinSet<()> {
    let apis = platform.site.stack.apis.iter();
    apis.map(|api| scrape(api.admin)).collect()
}

async fn scrape(admin: SocketAddr) {
    loop {
        if let Ok(response) = reqwest::get(format!("http://{admin}/metrics")).await {
            let _ = response.bytes().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Measures one program once.
async fn one(
    installation: &mut Installation,
    name: &str,
    arguments: &Arguments,
) -> Result<Sample, Trouble> {
    let length = Duration::from_secs(arguments.seconds);
    let connections = arguments.connections;
    let floor = (
        vec![installation.floor_address],
        installation.floor_parts(None),
        connections,
    );
    let fastapi = (
        vec![installation.fastapi_address],
        installation.fastapi_parts(),
        connections,
    );
    let apis = installation.api_addresses();
    let platform = (apis.clone(), installation.platform_parts(&[]), connections);
    let large = (
        apis,
        installation.platform_parts(&[]),
        LARGE_CONNECTIONS.min(connections),
    );
    let key = &installation.platform.site.org.key;
    let loaded = |under_load: (Vec<SocketAddr>, Parts, usize), template: Template| {
        under_test(under_load, vec![template], length)
    };
    match name {
        CONSTANT => loaded(floor, plain("/constant", None)).await,
        SELECT => under_test(floor, installation.selects().await?, length).await,
        FASTAPI_SELECT => under_test(fastapi, installation.selects().await?, length).await,
        JOB => {
            let jobs = finished_jobs(installation).await?;
            let reads = jobs
                .iter()
                .map(|id| installation.get(&format!("/v1/jobs/{id}")));
            under_test(platform, reads.collect(), length).await
        }
        ME => loaded(platform, installation.get("/v1/me")).await,
        INSERT_10 => loaded(floor, plain("/submissions", Some(TEN.json()))).await,
        INSERT_1000 => loaded(floor, plain("/submissions", Some(THOUSAND.json()))).await,
        FASTAPI_INSERT_10 => loaded(fastapi, plain("/submissions", Some(TEN.json()))).await,
        FASTAPI_INSERT_1000 => loaded(fastapi, plain("/submissions", Some(THOUSAND.json()))).await,
        EVAL_10 => loaded(platform, installation.rest(TEN, key)).await,
        EVAL_1000 => loaded(platform, installation.rest(THOUSAND, key)).await,
        EVAL_LARGE => loaded(large, installation.rest(LARGEST, key)).await,
        GRPC_10 => loaded(platform, installation.grpc(TEN)).await,
        GRPC_1000 => loaded(platform, installation.grpc(THOUSAND)).await,
        GRPC_LARGE => loaded(large, installation.grpc(LARGEST)).await,
        SCORER => score_alone(length),
        MANY_ORGS => {
            queue::clear(installation).await?;
            let orgs = installation.platform.keys.len();
            queue::submit_and_score(installation, orgs, connections, length).await
        }
        ONE_ORG => {
            queue::clear(installation).await?;
            queue::submit_and_score(installation, 1, connections, length).await
        }
        DRAIN => {
            queue::clear(installation).await?;
            queue::drain_platform(installation, connections).await
        }
        DRAIN_FLOOR => queue::drain_floor(installation).await,
        DRAIN_CELERY => queue::drain_celery(installation).await,
        IDLE => {
            queue::clear(installation).await?;
            queue::latency_of_platform(installation).await
        }
        IDLE_FLOOR => queue::latency_of_floor(installation).await,
        _ => Err(Trouble::new(format!("there is no program {name}"))),
    }
}

/// Loads a server for `length`.
async fn under_test(
    (addresses, parts, connections): (Vec<SocketAddr>, Parts, usize),
    templates: Vec<Template>,
    length: Duration,
) -> Result<Sample, Trouble> {
    let before = cpu::used(&parts);
    let until = Until::Elapsed(length);
    let load = load::generate(addresses, Arc::new(templates), connections, until).await?;
    Ok(Sample::new(&load, &before, &cpu::used(&parts)))
}

/// Returns the ids of different finished jobs.
async fn finished_jobs(installation: &mut Installation) -> Result<Vec<String>, Trouble> {
    let count = READ_ROWS.into();
    loop {
        let sql = "select id from jobs where status = 'succeeded' and org_id = $1 limit $2";
        let ids: Vec<String> = sqlx::query_scalar(sql)
            .bind(&installation.platform.site.org.id)
            .bind(i64::from(READ_ROWS))
            .fetch_all(&mut installation.platform.site.database)
            .await
            .map_err(Trouble::because("cannot read jobs"))?;
        if ids.len() == count {
            return Ok(ids);
        }
        let addresses = installation.api_addresses();
        let submit = vec![installation.rest(TEN, &installation.platform.site.org.key)];
        load::generate(addresses, Arc::new(submit), 1, Until::Sent(count)).await?;
        queue::clear(installation).await?;
    }
}

/// Scores the predictions of the largest submission on this thread, with the answers in memory. The
/// other cores do the same: cores share caches and execution units, and a server uses all of them.
fn score_alone(length: Duration) -> Result<Sample, Trouble> {
    let table = answers()?;
    let document = LARGEST.predictions().to_string();
    let score = || {
        let progress = Progress::default();
        score(
            &table,
            None,
            Metric::Accuracy,
            document.as_bytes(),
            &progress,
        )
        .map_err(|failure| Trouble::new(format!("cannot score: {failure:?}")))
    };
    let used = || {
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
            .map_or(Duration::ZERO, Duration::from)
    };
    let parts = |used: Duration| [("scorer", used)].into();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let end = Instant::now() + length;
    std::thread::scope(|threads| {
        for _ in 1..cores {
            threads.spawn(|| while Instant::now() < end && score().is_ok() {});
        }
        let (began, before) = (Instant::now(), used());
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let start = Instant::now();
            score()?;
            latencies.push(start.elapsed());
        }
        latencies.sort_unstable();
        let load = Load {
            requests: latencies.len(),
            wall: began.elapsed(),
            latencies,
        };
        Ok(Sample::new(&load, &parts(before), &parts(used())))
    })
}

fn answers() -> Result<AnswerTable, Trouble> {
    let no_answers = || Trouble::because("cannot build the answers");
    let mut builder = Builder::new(Metric::Accuracy, LARGE);
    for (item_id, answer) in LARGEST.answers() {
        builder
            .push(&item_id, &Answer::Label(answer.into()))
            .map_err(no_answers())?;
    }
    builder.finish().map_err(no_answers())
}

/// Returns the comparisons of the report with their targets.
fn comparisons() -> Vec<Comparison> {
    use Figure::{Cpu, CpuOf, P50, P99, PerSecond};
    use Target::{AtLeast, AtMost};
    [
        (JOB, Some(SELECT), PerSecond, AtLeast(0.6)),
        (JOB, Some(SELECT), Cpu, AtMost(1.8)),
        (JOB, Some(CONSTANT), PerSecond, AtLeast(0.12)),
        (JOB, Some(FASTAPI_SELECT), PerSecond, AtLeast(3.0)),
        (ME, Some(SELECT), PerSecond, AtLeast(0.7)),
        (ME, Some(FASTAPI_SELECT), PerSecond, AtLeast(3.0)),
        (EVAL_10, Some(INSERT_10), PerSecond, AtLeast(0.6)),
        (EVAL_10, Some(INSERT_10), Cpu, AtMost(1.8)),
        (EVAL_10, Some(FASTAPI_INSERT_10), PerSecond, AtLeast(3.0)),
        (GRPC_10, Some(EVAL_10), PerSecond, AtLeast(0.9)),
        (EVAL_1000, None, Cpu, AtMost(1_500.0)),
        (
            EVAL_1000,
            Some(FASTAPI_INSERT_1000),
            PerSecond,
            AtLeast(3.0),
        ),
        (GRPC_1000, Some(EVAL_1000), PerSecond, AtLeast(0.9)),
        (GRPC_LARGE, Some(EVAL_LARGE), PerSecond, AtLeast(0.9)),
        (MANY_ORGS, None, PerSecond, AtLeast(1_200.0)),
        (MANY_ORGS, None, Cpu, AtMost(1_200.0)),
        (ONE_ORG, Some(MANY_ORGS), PerSecond, AtLeast(0.5)),
        (DRAIN, Some(DRAIN_FLOOR), PerSecond, AtLeast(0.6)),
        (DRAIN, Some(DRAIN_CELERY), PerSecond, AtLeast(2.0)),
        (IDLE, Some(IDLE_FLOOR), P50, AtMost(2.0)),
        (IDLE, Some(IDLE_FLOOR), P99, AtMost(3.0)),
        (EVAL_LARGE, Some(SCORER), CpuOf("API"), AtMost(3.0)),
    ]
    .map(|(subject, against, figure, target)| Comparison {
        subject: subject.to_owned(),
        against: against.map(str::to_owned),
        figure,
        target,
    })
    .into()
}
