//! The serving operations through the API, compared with the engine alone.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::model::package::{GOLDEN_FILE, ITEMS_FILE, MODEL_FILE, WEIGHTS_FILE};
use assay_engine::Model;
use assay_tests::client::Client;
use assay_tests::golden::golden_json;
use assay_tests::servers::Trouble;
use assay_tests::site::Site;
use assay_tests::stack::{Ground, StackSize};
use serde_json::{Value, json};

use crate::support::{Package, Rng, THREE_LEVELS, random_ids};
use crate::{
    Arguments, CALLERS, N_EVENTS, Sample, TOP_K, call_for, compute_for, connect, cpu_of, median,
    requests, resident_mb, sample,
};

/// Concurrent callers in the second load through the API.
const MANY_CALLERS: usize = 64;

/// Callers in the overload. One address may have 200 connections.
const OVERLOAD_CALLERS: usize = 120;

/// The suite's item count.
const SUITE_ITEMS: usize = 10_000;

const MODEL: &str = "bench";
const SUITE: &str = "suite:bench";

/// A load through the API.
struct Loaded {
    /// The requests with a result. Its CPU time is the engine's.
    served: Sample,
    /// The API process's CPU time.
    api_cpu: Duration,
    /// The refused requests' times with 503, in ascending order.
    refused: Vec<Duration>,
}

impl Loaded {
    fn api_cpu_ms(&self) -> f64 {
        let requests = self.served.sequences + self.refused.len();
        1e3 * self.api_cpu.as_secs_f64() / requests as f64
    }
}

/// A round's measurements.
struct Round {
    engine: Sample,
    rest: Loaded,
    job: Loaded,
    bare: Sample,
    engine_callers: Sample,
    rest_callers: Loaded,
    rest_many: Loaded,
}

/// An installation with a model, and what is sent to it.
struct Installation {
    site: Site,
    model: Arc<Model>,
    histories: Arc<Vec<Vec<String>>>,
    package: String,
}

/// Measures and prints the report.
pub async fn compare(arguments: &Arguments, ground: &Arc<Ground>) -> Result<(), Trouble> {
    let plan = StackSize {
        engines: 1,
        ..StackSize::default()
    };
    let site = Site::start(ground, plan).await?;
    let package = Package::random(&THREE_LEVELS, 1);
    let published = publish_model(&site, package).await?;
    let mut rng = Rng(2);
    let histories = (0..64).map(|_| random_ids(&THREE_LEVELS, N_EVENTS, &mut rng));
    let installation = Installation {
        site,
        histories: Arc::new(histories.collect()),
        model: Arc::new(published.0),
        package: published.1,
    };
    report_requests(arguments, &installation).await?;
    report_overload(arguments, &installation).await?;
    report_suite(&installation).await?;
    report_failures(arguments, installation).await
}

/// Publishes a package with the operator's command. Returns the model, and the package's name.
async fn publish_model(site: &Site, mut package: Package) -> Result<(Model, String), Trouble> {
    package.model["id"] = MODEL.into();
    let folder = site.stack.ground.servers.folder().join("bench-model");
    let model = package.load().map_err(Trouble::because("no model"))?;
    let history = random_ids(&THREE_LEVELS, N_EVENTS, &mut Rng(3));
    let golden = golden_json(&model, &history).map_err(Trouble::because("no ranking"))?;
    let items = package.items.clone().unwrap_or_default().into_bytes();
    write(
        &folder,
        &[
            (MODEL_FILE, package.model_json()),
            (WEIGHTS_FILE, package.weights()),
            (ITEMS_FILE, items),
            (GOLDEN_FILE, golden),
        ],
    )?;
    let path = folder.to_string_lossy();
    let published = site.stack.operate(&["model", "publish", &path]).await?;
    let name = published["package"].as_str().unwrap_or_default().to_owned();
    Ok((model, name))
}

fn write(folder: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), Trouble> {
    let cannot = || Trouble::because(format!("cannot write {}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot())?;
    for (file, content) in files {
        std::fs::write(folder.join(file), content).map_err(cannot())?;
    }
    Ok(())
}

async fn report_requests(
    arguments: &Arguments,
    installation: &Installation,
) -> Result<(), Trouble> {
    let Installation {
        site,
        model,
        histories,
        package,
    } = installation;
    let time = Duration::from_millis(arguments.milliseconds);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engine = &site.stack.engines[0];
    let direct = connect(engine).await?;
    let name = package.parse();
    let one = requests(&name.map_err(Trouble::because("no package"))?, histories, 1);
    let client = Client::new(site.stack.url(), Some(&site.org.key));
    let submission = site.submissions(1).await?.swap_remove(0);
    let job = client.post("/v1/evals", &submission).await?;
    let job_path = format!("/v1/jobs/{}", job.body["id"].as_str().unwrap_or_default());
    let predict = Call::predictions(histories);
    let get_job = Call {
        path: job_path,
        bodies: Vec::new(),
    };
    // The first calls load the package and open connections.
    let warm_up = Duration::from_millis(300);
    load_for(installation, &predict, MANY_CALLERS, warm_up).await?;
    call_for(engine, &direct, &one, CALLERS, warm_up).await?;
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds {
        rounds.push(Round {
            engine: call_for(engine, &direct, &one, 1, time).await?,
            rest: load_for(installation, &predict, 1, time).await?,
            job: load_for(installation, &get_job, 1, time).await?,
            bare: compute_for(model, histories, cores, time),
            engine_callers: call_for(engine, &direct, &one, CALLERS, time).await?,
            rest_callers: load_for(installation, &predict, CALLERS, time).await?,
            rest_many: load_for(installation, &predict, MANY_CALLERS, time).await?,
        });
        eprintln!("round {round} of {} through the API", arguments.rounds);
    }
    println!("\nthrough the API, medians of the rounds");
    let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    print(
        "engine alone, 1 caller: p50, ms",
        of(|round| 1e3 * round.engine.median.as_secs_f64()),
    );
    print(
        "REST, 1 caller: p50, ms",
        of(|round| 1e3 * round.rest.served.median.as_secs_f64()),
    );
    print(
        "REST, 1 caller: p99, ms",
        of(|round| 1e3 * round.rest.served.p99.as_secs_f64()),
    );
    print(
        "p50 added by the API, ms",
        of(|round| {
            1e3 * (round.rest.served.median.as_secs_f64() - round.engine.median.as_secs_f64())
        }),
    );
    print(
        "fastest request, added by the API, ms",
        of(|round| {
            1e3 * (round.rest.served.fastest.as_secs_f64() - round.engine.fastest.as_secs_f64())
        }),
    );
    print(
        "CPU of the API, ms per request",
        of(|round| round.rest.api_cpu_ms()),
    );
    print(
        "CPU of the API / that of GET /v1/jobs/{job_id}",
        of(|round| round.rest.api_cpu_ms() / round.job.api_cpu_ms()),
    );
    print(
        &format!("engine, {CALLERS} callers / crate alone, per CPU second"),
        of(|round| round.engine_callers.per_cpu_second() / round.bare.per_cpu_second()),
    );
    print(
        &format!("REST, {CALLERS} callers / engine alone, per CPU second of the engine"),
        of(|round| {
            round.rest_callers.served.per_cpu_second() / round.engine_callers.per_cpu_second()
        }),
    );
    print(
        &format!("REST, {CALLERS} callers / engine alone, per second"),
        of(|round| round.rest_callers.served.per_second() / round.engine_callers.per_second()),
    );
    print(
        &format!("REST, {MANY_CALLERS} callers / crate alone, per CPU second of the engine"),
        of(|round| round.rest_many.served.per_cpu_second() / round.bare.per_cpu_second()),
    );
    print(
        &format!("REST, {MANY_CALLERS} callers: requests per second"),
        of(|round| round.rest_many.served.per_second()),
    );
    let slowest = rounds.iter().map(|round| round.rest.served.p99).max();
    print(
        "REST, 1 caller: largest p99 of a round, ms",
        1e3 * slowest.unwrap_or_default().as_secs_f64(),
    );
    Ok(())
}

/// Prints throughput, refusals and memory with more callers than are served.
async fn report_overload(
    arguments: &Arguments,
    installation: &Installation,
) -> Result<(), Trouble> {
    let predict = Call::predictions(&installation.histories);
    let time = 2 * Duration::from_millis(arguments.milliseconds);
    let api = &installation.site.stack.apis[0];
    let mut best: f64 = 0.0;
    for callers in [2, 8, CALLERS, MANY_CALLERS] {
        let loaded = load_for(installation, &predict, callers, time).await?;
        best = best.max(loaded.served.per_second());
    }
    load_for(installation, &predict, OVERLOAD_CALLERS, time).await?;
    let before = resident_mb(api);
    let loaded = load_for(installation, &predict, OVERLOAD_CALLERS, time).await?;
    println!("\n{OVERLOAD_CALLERS} callers at once, which send again after each response");
    print(
        "results per second / those of the best load",
        loaded.served.per_second() / best,
    );
    let refused = &loaded.refused;
    let at = |part: usize| {
        refused
            .get(refused.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    println!("{:<66} {:>9}", "requests refused with 503", refused.len());
    print("refusals: p50, ms", 1e3 * at(50).as_secs_f64());
    print("refusals: p99, ms", 1e3 * at(99).as_secs_f64());
    print("CPU of the API, ms per request", loaded.api_cpu_ms());
    print("memory of the API, MB", before);
    print(
        "memory of the API after the second load, MB",
        resident_mb(api),
    );
    Ok(())
}

/// Prints what other routes and predictions do while the engine is frozen and after it was killed,
/// and the time until it serves again.
async fn report_failures(
    arguments: &Arguments,
    mut installation: Installation,
) -> Result<(), Trouble> {
    let predict = Call::predictions(&installation.histories);
    let other = Call {
        path: String::from("/v1/me"),
        bodies: Vec::new(),
    };
    let time = 6 * Duration::from_millis(arguments.milliseconds);
    let p99_of = |mut times: Vec<Duration>| {
        times.sort_unstable();
        1e3 * times[times.len() * 99 / 100].as_secs_f64()
    };
    let (_, served) = tokio::join!(
        send_for(&installation, &predict, 8, time),
        send_for(&installation, &other, 1, time)
    );
    let healthy = p99_of(served?.served);
    println!("\nGET /v1/me with one caller, while 8 callers send predictions");
    print("engine healthy: p99, ms", healthy);
    let listen = installation.site.stack.engines[0].listen;
    let listen = listen.ok_or_else(|| Trouble::new("the engine has no address"))?;
    for (name, signal) in [("frozen", libc::SIGSTOP), ("killed", libc::SIGKILL)] {
        installation.site.stack.engines[0].guarded.signal(signal);
        let (refused, others) = tokio::join!(
            send_for(&installation, &predict, 8, time),
            send_for(&installation, &other, 1, time)
        );
        let (refused, others) = (refused?.refused, p99_of(others?.served));
        let last = refused.last().copied().unwrap_or_default();
        // The first calls wait until the deadline; after them the circuit breaker is open.
        let at = |part: usize| 1e3 * refused[refused.len() * part / 1000].as_secs_f64();
        print(&format!("engine {name}: p99, ms"), others);
        print(
            &format!("engine {name}: p99 / with a healthy engine"),
            others / healthy,
        );
        println!(
            "{:<66} {:>9}",
            format!("engine {name}: predictions refused with 503"),
            refused.len()
        );
        print(&format!("engine {name}: refusals, p50, ms"), at(500));
        print(&format!("engine {name}: refusals, p99, ms"), at(990));
        print(
            &format!("engine {name}: slowest refusal, ms"),
            1e3 * last.as_secs_f64(),
        );
        let recovered_at = if signal == libc::SIGSTOP {
            installation.site.stack.engines[0]
                .guarded
                .signal(libc::SIGCONT);
            Instant::now()
        } else {
            let engine = installation.site.stack.launch_engine(listen)?;
            engine.ready().await?;
            installation.site.stack.engines[0] = engine;
            Instant::now()
        };
        while !send_for(&installation, &predict, 1, Duration::from_millis(1))
            .await?
            .refused
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        print(
            &format!("engine {name}: time until it serves again, s"),
            recovered_at.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}

/// Predicts and scores a suite with one call.
async fn report_suite(installation: &Installation) -> Result<(), Trouble> {
    let Installation { site, model, .. } = installation;
    let histories = publish_suite(site).await?;
    let client = Client::new(site.stack.url(), Some(&site.org.key));
    let (worker, engine) = (&site.stack.workers[0], &site.stack.engines[0]);
    let memory = resident_mb(worker);
    let start = Instant::now();
    let before = cpu_of(worker)? + cpu_of(engine)?;
    let body = json!({"model_id": MODEL, "suite_id": SUITE, "evaluate": true});
    let prediction = client.post("/v1/predictions", &body).await?.body;
    let id = |job: &Value, field: &str| job[field].as_str().unwrap_or_default().to_owned();
    let eval_id = id(&prediction, "eval_job_id");
    let eval = client.wait_until_finished(&eval_id, &|_| {}).await?;
    let wall = start.elapsed();
    let cpu = cpu_of(worker)? + cpu_of(engine)? - before;
    let memory_after = resident_mb(worker);
    if eval["status"] != "succeeded" {
        return Err(Trouble::new(format!("the eval has no score: {eval}")));
    }
    let done = client
        .get(&format!("/v1/jobs/{}", id(&prediction, "id")))
        .await?
        .body;
    let before = cpu_of(worker)?;
    let body = json!({"suite_id": SUITE, "input_ref": done["result"]["output_ref"]});
    let by_hand = client.post("/v1/evals", &body).await?.body;
    let by_hand = client
        .wait_until_finished(&id(&by_hand, "id"), &|_| {})
        .await?;
    let scoring = cpu_of(worker)? - before;
    if by_hand["status"] != "succeeded" || by_hand["result"]["value"] != eval["result"]["value"] {
        return Err(Trouble::new(format!("the scores differ: {by_hand} {eval}")));
    }
    let bare = compute_for(model, &Arc::new(histories), 1, Duration::from_secs(4));
    let alone = SUITE_ITEMS as f64 * bare.cpu_ms() / 1e3;
    println!("\nsuite of {SUITE_ITEMS} items, predicted and scored with one call");
    print("time until the score, s", wall.as_secs_f64());
    print("CPU of worker and engine, s", cpu.as_secs_f64());
    print("CPU of the crate alone, s", alone);
    print("CPU of scoring the output again, s", scoring.as_secs_f64());
    print(
        "CPU / (crate alone + scoring)",
        cpu.as_secs_f64() / (alone + scoring.as_secs_f64()),
    );
    print("memory of the worker before it, MB", memory);
    print("memory of the worker after it, MB", memory_after);
    Ok(())
}

/// Publishes the suite, and returns its items' histories.
async fn publish_suite(site: &Site) -> Result<Vec<Vec<String>>, Trouble> {
    let mut rng = Rng(4);
    let histories: Vec<_> = (0..SUITE_ITEMS)
        .map(|_| random_ids(&THREE_LEVELS, N_EVENTS, &mut rng))
        .collect();
    let (mut items, mut answers) = (String::new(), String::new());
    for (index, history) in histories.iter().enumerate() {
        let _ = writeln!(
            items,
            "{}",
            json!({"item_id": format!("u{index}"), "input": {"past": history}})
        );
        let answer = format!("item-{}", rng.below(THREE_LEVELS.n_items));
        let _ = writeln!(
            answers,
            "{}",
            json!({"item_id": format!("u{index}"), "answer": answer})
        );
    }
    let suite = format!(
        "suite_id = \"{SUITE}\"\nversion = \"1\"\nmetric = \"mrr@10\"\n[sequence]\nevents = \"past\"\n"
    );
    let folder = site.stack.ground.servers.folder().join("bench-suite");
    write(
        &folder,
        &[
            ("suite.toml", suite.into_bytes()),
            ("items.ndjson", items.into_bytes()),
            ("answers.ndjson", answers.into_bytes()),
        ],
    )?;
    let path = folder.to_string_lossy();
    site.stack.operate(&["suite", "publish", &path]).await?;
    Ok(histories)
}

/// A request: a `GET` if it has no bodies, otherwise a `POST` with one body.
struct Call {
    path: String,
    bodies: Vec<String>,
}

impl Call {
    fn predictions(histories: &[Vec<String>]) -> Self {
        let body = |history: &Vec<String>| {
            let events = history.iter().map(|item_id| json!({"item_id": item_id}));
            let events: Vec<_> = events.collect();
            let sequence = json!({"sequence_id": "u1", "events": events});
            json!({"sequences": [sequence], "top_k": TOP_K}).to_string()
        };
        Self {
            path: format!("/v1/models/{MODEL}/predict"),
            bodies: histories.iter().map(body).collect(),
        }
    }
}

/// Sends requests with concurrent callers for this time.
async fn load_for(
    installation: &Installation,
    call: &Call,
    callers: usize,
    time: Duration,
) -> Result<Loaded, Trouble> {
    let site = &installation.site;
    let (api, engine) = (&site.stack.apis[0], &site.stack.engines[0]);
    let (start, engine_cpu, api_cpu) = (Instant::now(), cpu_of(engine)?, cpu_of(api)?);
    let Responses { served, refused } = send_for(installation, call, callers, time).await?;
    Ok(Loaded {
        served: sample(
            served.len(),
            start.elapsed(),
            cpu_of(engine)? - engine_cpu,
            served,
        )?,
        api_cpu: cpu_of(api)? - api_cpu,
        refused,
    })
}

/// The times of requests.
struct Responses {
    /// Those with a result.
    served: Vec<Duration>,
    /// Those that were refused with 503, in ascending order.
    refused: Vec<Duration>,
}

async fn send_for(
    installation: &Installation,
    call: &Call,
    callers: usize,
    time: Duration,
) -> Result<Responses, Trouble> {
    let site = &installation.site;
    let client = Client::new(site.stack.url(), Some(&site.org.key));
    let method = if call.bodies.is_empty() {
        "GET"
    } else {
        "POST"
    };
    let caller = async |number: usize, start: Instant| {
        let (mut served, mut refused) = (Vec::new(), Vec::new());
        for sent in number.. {
            if start.elapsed() >= time {
                break;
            }
            let mut request = client.request(method, &call.path);
            if !call.bodies.is_empty() {
                let body = call.bodies[sent % call.bodies.len()].clone();
                request = request
                    .header("content-type", "application/json")
                    .body(body);
            }
            let sent_at = Instant::now();
            let response = request
                .send()
                .await
                .map_err(Trouble::because("no response"))?;
            let status = response.status().as_u16();
            let body = response
                .bytes()
                .await
                .map_err(Trouble::because("no body"))?;
            match status {
                200 => served.push(sent_at.elapsed()),
                503 => refused.push(sent_at.elapsed()),
                _ => {
                    return Err(Trouble::new(format!(
                        "{status}: {}",
                        String::from_utf8_lossy(&body)
                    )));
                }
            }
        }
        Ok::<_, Trouble>((served, refused))
    };
    let start = Instant::now();
    let results = futures_util::future::join_all((0..callers).map(|number| caller(number, start)));
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for result in results.await {
        let (more_served, more_refused) = result?;
        served.extend(more_served);
        refused.extend(more_refused);
    }
    refused.sort_unstable();
    Ok(Responses { served, refused })
}

fn print(name: &str, figure: f64) {
    println!("{name:<66} {figure:>9.3}");
}
