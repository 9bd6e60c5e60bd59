//! The embedded engine compared with its crate alone, and serving through the API:
//! `cargo bench-serving`.
//!
//! In each round, the same predictions (width 64, 50 events, top 10 among 10,000 items) are computed
//! by the crate in this process, on one thread and on all cores, and by `assay-worker serve`, one
//! sequence per call, 32 per call, and by 16 concurrent callers. The output has CPU time per
//! sequence and throughput, with the median differences and ratios to the crate alone, and a
//! process's memory with a package as large as the demonstration model.
//!
//! The engine's CPU time is its process's, without this program. Throughput is per machine second
//! and per second of the engine's CPU time: this program needs cores, too.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::model::package::{
    ITEMS_FILE, MANIFEST_FILE, MODEL_FILE, Manifest, PackageName, WEIGHTS_FILE,
};
use assay_core::runtime::artifacts::Artifacts;
use assay_engine::{Model, PredictOptions, Scratch};
use assay_inference::ids;
use assay_inference::tensors::TensorsBuilder;
use assay_inference::v2::ModelInferRequest;
use assay_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use assay_tests::binaries::{self, Profile};
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::{Ground, Process, launch_engine};
use clap::Parser;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use tonic::transport::Channel;

#[path = "../../../worker/engine/tests/support.rs"]
#[expect(
    dead_code,
    reason = "the tests of the engine use the rest of this file"
)]
mod support;

mod platform;

use support::{Package, Rng, Sizes, THREE_LEVELS, events, random_ids, sequence};

/// A model whose package has the size of the demonstration model.
const DEMONSTRATION: Sizes = Sizes {
    dim: 48,
    base_size: 64,
    n_items: 500,
    ..THREE_LEVELS
};

const N_EVENTS: usize = 50;
const TOP_K: i64 = 10;
const CALLERS: usize = 16;
const ROWS: usize = 32;

type Client = GrpcInferenceServiceClient<Channel>;

#[derive(Parser)]
struct Arguments {
    /// Number of rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Duration of each measurement in milliseconds
    #[arg(long, default_value_t = 1500)]
    milliseconds: u64,
    /// Measure only what needs the API
    #[arg(long)]
    only_platform: bool,
    /// Ignored; cargo passes it to benchmarks
    #[arg(long)]
    bench: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    sequences: usize,
    wall: Duration,
    cpu: Duration,
    fastest: Duration,
    median: Duration,
    p99: Duration,
}

impl Sample {
    fn cpu_ms(&self) -> f64 {
        1e3 * self.cpu.as_secs_f64() / self.sequences as f64
    }

    fn per_second(&self) -> f64 {
        self.sequences as f64 / self.wall.as_secs_f64()
    }

    fn per_cpu_second(&self) -> f64 {
        self.sequences as f64 / self.cpu.as_secs_f64()
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(arguments: &Arguments) -> Result<(), Trouble> {
    let binaries = binaries::build(Profile::Dist)?;
    let servers = Servers::start(&|line| eprintln!("{line}"))?;
    let ground = Arc::new(Ground::new(servers, binaries));
    if !arguments.only_platform {
        compare_engine(arguments, &ground).await?;
    }
    platform::compare(arguments, &ground).await
}

/// Compares the engine's process with its crate alone.
async fn compare_engine(arguments: &Arguments, ground: &Ground) -> Result<(), Trouble> {
    let (worker, folder) = (&ground.binaries.worker, ground.servers.folder());
    let packages = folder.join("bench-packages");
    let artifacts = Artifacts::create(&packages.to_string_lossy())
        .await
        .map_err(Trouble::because("no folder for packages"))?;
    let large = Package::random(&THREE_LEVELS, 1);
    let name = publish(&artifacts, "1", &large).await?;
    let model = Arc::new(large.load().map_err(Trouble::because("no model"))?);
    let mut rng = Rng(2);
    let histories: Vec<Vec<String>> = (0..64)
        .map(|_| random_ids(&THREE_LEVELS, N_EVENTS, &mut rng))
        .collect();
    let histories = Arc::new(histories);
    let process = launch_engine(worker, &packages, folder, &[])?;
    process.ready().await?;
    let client = connect(&process).await?;
    let one = requests(&name, &histories, 1);
    let many = requests(&name, &histories, ROWS);
    let time = Duration::from_millis(arguments.milliseconds);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // The first calls load the package and start threads.
    call_for(&process, &client, &one, 1, Duration::from_millis(200)).await?;
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds {
        let alone = compute_for(&model, &histories, 1, time);
        let single = call_for(&process, &client, &one, 1, time).await?;
        let batch = call_for(&process, &client, &many, 1, time).await?;
        let bare = compute_for(&model, &histories, cores, time);
        let callers = call_for(&process, &client, &one, CALLERS, time).await?;
        eprintln!("round {round} of {}", arguments.rounds);
        rounds.push([alone, single, batch, bare, callers]);
    }
    report(&rounds, cores);
    report_memory(ground, &packages, &artifacts).await
}

fn report(rounds: &[[Sample; 5]], cores: usize) {
    let names = [
        String::from("crate alone, 1 thread"),
        String::from("engine, 1 sequence per call"),
        format!("engine, {ROWS} sequences per call"),
        format!("crate alone, {cores} threads"),
        format!("engine, {CALLERS} callers"),
    ];
    println!(
        "{:<30} {:>12} {:>12} {:>12} {:>12}",
        "medians", "CPU ms/seq.", "seq./s", "min ms/call", "p50 ms/call"
    );
    for (index, name) in names.iter().enumerate() {
        let of =
            |figure: fn(&Sample) -> f64| median(rounds.iter().map(|round| figure(&round[index])));
        println!(
            "{name:<30} {:>12.3} {:>12.0} {:>12.3} {:>12.3}",
            of(Sample::cpu_ms),
            of(Sample::per_second),
            of(|sample| 1e3 * sample.fastest.as_secs_f64()),
            of(|sample| 1e3 * sample.median.as_secs_f64()),
        );
    }
    let of = |figure: fn(&[Sample; 5]) -> f64| median(rounds.iter().map(figure));
    println!("\nmedians of the rounds");
    println!(
        "CPU added to a call of 1 sequence, ms          {:>8.3}",
        of(|[alone, single, ..]| single.cpu_ms() - alone.cpu_ms())
    );
    println!(
        "CPU added to a sequence of {ROWS}, ms              {:>8.3}",
        of(|[alone, _, batch, ..]| batch.cpu_ms() - alone.cpu_ms())
    );
    println!(
        "fastest call / fastest computation            {:>8.2}",
        of(|[alone, single, ..]| single.fastest.as_secs_f64() / alone.fastest.as_secs_f64())
    );
    println!(
        "{CALLERS} callers / crate alone, per second           {:>8.2}",
        of(|[.., bare, callers]| callers.per_second() / bare.per_second())
    );
    println!(
        "{CALLERS} callers / crate alone, per CPU second       {:>8.2}",
        of(|[.., bare, callers]| callers.per_cpu_second() / bare.per_cpu_second())
    );
}

/// Prints the resident memory of a process with a package of the size of the demonstration model.
async fn report_memory(
    ground: &Ground,
    packages: &Path,
    artifacts: &Artifacts,
) -> Result<(), Trouble> {
    let (worker, folder) = (&ground.binaries.worker, ground.servers.folder());
    let package = Package::random(&DEMONSTRATION, 1);
    let files = package.weights().len() + package.items.as_ref().map_or(0, String::len);
    let name = publish(artifacts, "2", &package).await?;
    let process = launch_engine(worker, packages, folder, &[])?;
    process.ready().await?;
    let empty = resident_mb(&process);
    let client = connect(&process).await?;
    let histories = vec![random_ids(&DEMONSTRATION, N_EVENTS, &mut Rng(3)); ROWS];
    let requests = requests(&name, &histories, 1);
    call_for(&process, &client, &requests, 1, Duration::from_millis(50)).await?;
    let loaded = resident_mb(&process);
    call_for(
        &process,
        &client,
        &requests,
        CALLERS,
        Duration::from_secs(3),
    )
    .await?;
    println!(
        "\nresident memory with a package of {} KB: {empty:.1} MB before its first use, {loaded:.1} MB \
         after it, {:.1} MB after 3 s of {CALLERS} callers",
        files / 1000,
        resident_mb(&process)
    );
    Ok(())
}

async fn publish(
    artifacts: &Artifacts,
    version: &str,
    package: &Package,
) -> Result<PackageName, Trouble> {
    let items = package.items.clone().unwrap_or_default().into_bytes();
    let files = [
        (MODEL_FILE, package.model_json()),
        (WEIGHTS_FILE, package.weights()),
        (ITEMS_FILE, items),
    ];
    let manifest = Manifest::of(files.iter().map(|(name, content)| (*name, &content[..])));
    let manifest = serde_json::to_vec(&manifest).map_err(Trouble::because("no manifest"))?;
    let name = PackageName::new(None, "bench", version, &manifest)
        .map_err(Trouble::because("no package"))?;
    let files = files.into_iter().chain([(MANIFEST_FILE, manifest)]);
    for (file, content) in files {
        artifacts
            .put(&name.object(file), content.into())
            .await
            .map_err(Trouble::because("the package cannot be stored"))?;
    }
    Ok(name)
}

async fn connect(process: &Process) -> Result<Client, Trouble> {
    let address = process
        .listen
        .ok_or_else(|| Trouble::new("the engine has no address"))?;
    GrpcInferenceServiceClient::connect(format!("http://{address}"))
        .await
        .map_err(Trouble::because("cannot connect to the engine"))
}

/// Returns calls that predict for all histories, this number in each.
fn requests(
    name: &PackageName,
    histories: &[Vec<String>],
    rows: usize,
) -> Arc<Vec<ModelInferRequest>> {
    let request = |histories: &[Vec<String>]| {
        let mut tensors = TensorsBuilder::default();
        let rows = histories
            .iter()
            .map(|history| history.iter().map(String::as_str));
        tensors.push_rows(ids::ITEM_IDS, N_EVENTS, rows);
        let lengths = vec![N_EVENTS as i64; histories.len()];
        tensors.push(ids::LENGTHS, &[histories.len(), 1], lengths);
        let mut request = ModelInferRequest {
            model_name: name.to_string(),
            model_version: name.version().to_owned(),
            ..ModelInferRequest::default()
        };
        tensors.into_request(&mut request);
        let parameters = [
            (ids::OPERATION, "predict".into()),
            (ids::TOP_K, TOP_K.into()),
        ];
        request
            .parameters
            .extend(parameters.map(|(name, value)| (name.to_owned(), value)));
        request
    };
    Arc::new(histories.chunks(rows).map(request).collect())
}

/// Calls the engine with concurrent callers for this time.
async fn call_for(
    process: &Process,
    client: &Client,
    requests: &Arc<Vec<ModelInferRequest>>,
    callers: usize,
    time: Duration,
) -> Result<Sample, Trouble> {
    let (start, cpu) = (Instant::now(), cpu_of(process)?);
    let mut tasks = Vec::new();
    for caller in 0..callers {
        let (mut client, requests) = (client.clone(), Arc::clone(requests));
        tasks.push(tokio::spawn(async move {
            let (mut sequences, mut times) = (0, Vec::new());
            for request in requests.iter().cycle().skip(caller) {
                if start.elapsed() >= time {
                    break;
                }
                let request = request.clone();
                let rows = usize::try_from(request.inputs[0].shape[0]).unwrap_or_default();
                let call_start = Instant::now();
                client.model_infer(request).await?;
                times.push(call_start.elapsed());
                sequences += rows;
            }
            Ok::<_, tonic::Status>((sequences, times))
        }));
    }
    let (mut sequences, mut times) = (0, Vec::new());
    for task in tasks {
        let done = task.await.map_err(Trouble::because("a caller panicked"))?;
        let (more, more_times) = done.map_err(Trouble::because("a call failed"))?;
        sequences += more;
        times.extend(more_times);
    }
    sample(sequences, start.elapsed(), cpu_of(process)? - cpu, times)
}

/// Computes with the crate on this number of threads for this time.
fn compute_for(
    model: &Arc<Model>,
    histories: &Arc<Vec<Vec<String>>>,
    threads: usize,
    time: Duration,
) -> Sample {
    let start = Instant::now();
    let compute = || {
        let mut scratch = Scratch::default();
        let cpu = thread_cpu();
        let mut times = Vec::new();
        let options = PredictOptions {
            top_k: Some(10),
            exclude_seen: false,
        };
        for history in histories.iter().cycle() {
            if start.elapsed() >= time {
                break;
            }
            let row_start = Instant::now();
            let events = events(history);
            let ranking = model.predict(&mut scratch, &sequence(&events), &options, &|| false);
            let _ = std::hint::black_box(ranking);
            times.push(row_start.elapsed());
        }
        (thread_cpu() - cpu, times)
    };
    let results: Vec<(Duration, Vec<Duration>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compute)).collect();
        let results = threads.into_iter().filter_map(|thread| thread.join().ok());
        results.collect()
    });
    let cpu = results.iter().map(|(cpu, _)| *cpu).sum();
    let times: Vec<Duration> = results.into_iter().flat_map(|(_, times)| times).collect();
    sample(times.len(), start.elapsed(), cpu, times)
        .unwrap_or_else(|trouble| unreachable!("{trouble}"))
}

fn sample(
    sequences: usize,
    wall: Duration,
    cpu: Duration,
    mut times: Vec<Duration>,
) -> Result<Sample, Trouble> {
    times.sort_unstable();
    let fastest = times.first().copied();
    let fastest = fastest.ok_or_else(|| Trouble::new("nothing was computed in the time"))?;
    Ok(Sample {
        sequences,
        wall,
        cpu,
        fastest,
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    })
}

fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn cpu_of(process: &Process) -> Result<Duration, Trouble> {
    let pid = i32::try_from(process.guarded.pid()).map_err(Trouble::because("no process id"))?;
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).and_then(ClockId::now);
    clock
        .map(Duration::from)
        .map_err(Trouble::because("the engine has ended"))
}

fn resident_mb(process: &Process) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.guarded.pid()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0 / 1e6
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
