//! Telemetry costs: `cargo bench -p assay-tests --bench cost [-- --rounds N] [--seconds N]`.
//!
//! Three API processes with this build share one database: one without metrics and traces, one with
//! metrics that is scraped every second, and one that also exports every trace to a collector. Each
//! round loads each in turn, by the same clients with the same requests. The output has,
//! for each process, requests per second and its own CPU time per request, and the medians over the
//! rounds of their ratios to the first process.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_api::settings::Settings;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::prometheus::{self, Binary};
use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site::Site;
use assay_tests::stack::{Ground, Process, StackSize};
use clap::Parser;
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use serde_json::Value;
use tonic::{Request, Response, Status};

/// The name under which this program serves without metrics.
const SILENT: &str = "assay-api-silent";

/// Number of concurrent clients.
const CLIENTS: usize = 8;

#[derive(Parser)]
struct Arguments {
    /// Number of times that each process is loaded
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Duration of each load in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = if std::env::args().nth(1).as_deref() == Some("serve") {
        serve().await
    } else {
        measure(Arguments::parse()).await
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Serves like `assay-api serve`, but without metrics if the program has the name [`SILENT`].
async fn serve() -> Result<(), Trouble> {
    let trouble = |error: ProcessError| Trouble::new(error.to_string());
    let settings = Settings::from_env("cost").map_err(|bad| Trouble::new(bad.to_string()))?;
    prometheus::init_logging(&settings.common.log, &settings.common.log_format).map_err(trouble)?;
    let silent = std::env::args()
        .next()
        .is_some_and(|name| name.ends_with(SILENT));
    let handle = if silent {
        PrometheusBuilder::new().build_recorder().handle()
    } else {
        prometheus::init_metrics(Binary::Api, &settings.common.git_sha).map_err(trouble)?
    };
    assay_api::serve(settings, handle).await.map_err(trouble)
}

/// A trace collector that discards all spans.
struct Collector;

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn measure(arguments: Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Release)?;
    let ground = Arc::new(Ground::new(
        Servers::start(&|line| eprintln!("{line}"))?,
        binaries,
    ));
    let mut site = Site::start(
        &ground,
        StackSize {
            apis: 1,
            workers: 1,
            ..StackSize::default()
        },
    )
    .await?;
    let body = site.submissions(400).await?.remove(0);

    let collector =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let collector = collector.map_err(Trouble::because("no port for a collector"))?;
    let collecting = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Collector))
        .serve(collector);
    let collecting = tokio::spawn(collecting);
    let own =
        std::env::current_exe().map_err(Trouble::because("cannot tell where this program is"))?;
    let silent = ground.servers.folder().join(SILENT);
    std::fs::copy(&own, &silent).map_err(Trouble::because("cannot copy this program"))?;
    let mut processes = vec![
        site.stack.launch_as_api(&silent, &[])?,
        site.stack.launch_as_api(&own, &[])?,
    ];
    site.stack
        .set("ASSAY_OTLP_ENDPOINT", &format!("http://{collector}"));
    processes.push(site.stack.launch_as_api(&own, &[])?);
    for process in &processes {
        process.ready().await?;
    }
    let scraping: Vec<_> = processes[1..]
        .iter()
        .map(|process| tokio::spawn(scrape(process.admin)))
        .collect();

    let asks = [("GET", "/v1/me", Value::Null), ("POST", "/v1/evals", body)];
    for (method, path, body) in asks {
        let mut seen = vec![Vec::new(); processes.len()];
        for round in 0..=arguments.rounds {
            for (process, seen) in processes.iter().zip(&mut seen) {
                let taken = load(
                    process,
                    &site.org.key,
                    method,
                    path,
                    &body,
                    Duration::from_secs(arguments.seconds),
                )
                .await?;
                // The first round is a warm-up.
                if round > 0 {
                    seen.push(taken);
                }
            }
            assay_tests::site::drain(&mut site.database).await?;
        }
        println!(
            "{method} {path}, {} rounds of {} s",
            arguments.rounds, arguments.seconds
        );
        for (name, of) in [
            "neither metrics nor traces",
            "metrics",
            "metrics and traces",
        ]
        .into_iter()
        .zip(&seen)
        {
            let ratio = |figure: fn(&Measurement) -> f64| {
                median(
                    of.iter()
                        .zip(&seen[0])
                        .map(|(taken, first)| figure(taken) / figure(first)),
                )
            };
            let per_second = median(of.iter().map(Measurement::per_second));
            let micros = median(of.iter().map(Measurement::cpu_micros));
            let per_second_ratio = ratio(Measurement::per_second);
            let cpu_ratio = ratio(Measurement::cpu_micros);
            println!(
                "  {name:27} {per_second:6.0} requests/s ({per_second_ratio:.3}), {micros:5.0} µs CPU per request ({cpu_ratio:.3})"
            );
        }
    }
    scraping.iter().for_each(tokio::task::JoinHandle::abort);
    collecting.abort();
    drop(processes);
    site.stack.stop();
    ground.clear(&site.stack.database).await
}

async fn scrape(admin: std::net::SocketAddr) {
    loop {
        if let Ok(answer) = reqwest::get(format!("http://{admin}/metrics")).await {
            let _ = answer.bytes().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The measurements of a process under load.
#[derive(Clone)]
struct Measurement {
    requests: usize,
    wall: Duration,
    cpu: Duration,
}

impl Measurement {
    fn per_second(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

async fn load(
    process: &Process,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
    length: Duration,
) -> Result<Measurement, Trouble> {
    let url = process
        .listen
        .map_or_else(String::new, |listen| format!("http://{listen}"));
    let began = Instant::now();
    let before = cpu(process)?;
    let asking = (0..CLIENTS).map(|_| {
        let client = Client::new(url.clone(), Some(key));
        let method = method.to_owned();
        let path = path.to_owned();
        let body = body.clone();
        tokio::spawn(async move {
            let mut requests = 0;
            while began.elapsed() < length {
                let request = client.request(&method, &path);
                let request = if body.is_null() {
                    request
                } else {
                    request.json(&body)
                };
                let answer = client.send(request).await?;
                if answer.status >= 300 {
                    return Err(Trouble::new(format!(
                        "{path}: {} {}",
                        answer.status, answer.body
                    )));
                }
                requests += 1;
            }
            Ok::<usize, Trouble>(requests)
        })
    });
    let mut requests = 0;
    for asked in asking.collect::<Vec<_>>() {
        requests += asked
            .await
            .map_err(Trouble::because("a client panicked"))??;
    }
    Ok(Measurement {
        requests,
        wall: began.elapsed(),
        cpu: cpu(process)?.saturating_sub(before),
    })
}

/// Returns the CPU time of a process, in user and system mode.
fn cpu(process: &Process) -> Result<Duration, Trouble> {
    let path = format!("/proc/{}/schedstat", process.guarded.pid());
    let tasks = Path::new("/proc")
        .join(process.guarded.pid().to_string())
        .join("task");
    let mut nanos = 0_u64;
    for task in std::fs::read_dir(tasks)
        .map_err(Trouble::because(format!("{path} cannot be read")))?
        .flatten()
    {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += stat
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
