//! The Python client in `clients/python`: its tests run against a stack, on the oldest and the newest
//! Python of this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assay_tests::stack::StackSize;
use assay_tests::wait::wait_timeout;
use assay_tests::{demo_suite, demonstration, playlist_suite};
use serde_json::{Value, json};

use crate::clients::{MissingTool, prepare, run, this_python_with};
use crate::harness::{World, cuts, long_test, string, world_with};

/// The names of interpreters that the client supports. `python3` may be older.
const NAMES: [&str; 6] = [
    "python3",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
];

/// The oldest version of Python that the client supports.
const OLDEST: (u32, u32) = (3, 10);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python")
}

/// Returns the oldest and the newest supported Python of this machine, with the packages of the
/// tests.
fn oldest_and_newest() -> Result<Vec<PathBuf>, MissingTool> {
    let mut chosen = supported()?;
    chosen.drain(1..chosen.len().max(2) - 1);
    chosen.iter().map(|python| with_packages(python)).collect()
}

/// Returns the newest supported Python of this machine, with the packages of the tests.
pub fn newest() -> Result<PathBuf, MissingTool> {
    let supported = supported()?;
    with_packages(&supported[supported.len() - 1])
}

/// Returns a command of a Python that imports the client from its sources.
pub fn command(python: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(python);
    command
        .env("PYTHONPATH", folder().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn with_packages(python: &Path) -> Result<PathBuf, MissingTool> {
    let requirements = folder().join("tests/requirements.txt");
    this_python_with(python, "python-client", &requirements)
}

/// Returns one interpreter for each supported version of Python on this machine, the oldest first.
/// There is at least one.
fn supported() -> Result<Vec<PathBuf>, MissingTool> {
    interpreters(OLDEST)
}

/// Returns one interpreter for each version of Python on this machine from this one on, the oldest first.
/// There is at least one.
pub fn interpreters(oldest: (u32, u32)) -> Result<Vec<PathBuf>, MissingTool> {
    let mut found: BTreeMap<(u32, u32), PathBuf> = BTreeMap::new();
    for python in candidates() {
        if let Some(version) = version(&python).filter(|version| *version >= oldest) {
            found.entry(version).or_insert(python);
        }
    }
    if found.is_empty() {
        let (major, minor) = oldest;
        let missing = format!("no Python {major}.{minor} or newer on PATH");
        return Err(MissingTool(missing));
    }
    Ok(found.into_values().collect())
}

/// Returns the interpreters on PATH and those that pyenv has installed.
fn candidates() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = NAMES.map(PathBuf::from).into();
    let root = std::env::var_os("PYENV_ROOT").unwrap_or_default();
    let versions = std::fs::read_dir(Path::new(&root).join("versions"));
    let installed = versions.into_iter().flatten().flatten();
    all.extend(installed.map(|version| version.path().join("bin/python3")));
    all
}

/// Returns the version of an interpreter that has venv and pip.
fn version(python: &Path) -> Option<(u32, u32)> {
    let code = "import ensurepip, sys, venv; print(sys.version_info.major, sys.version_info.minor)";
    let printed = run(Command::new(python).args(["-c", code]), "")
        .ok()?
        .stdout;
    let printed = String::from_utf8(printed).ok()?;
    let (major, minor) = printed.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_works_against_a_stack() {
    long_test!("runs the tests of the Python client with three versions of Python");
    let Some(pythons) = prepare(oldest_and_newest).await else {
        return;
    };
    let world = world_with(StackSize {
        engines: 1,
        ..StackSize::default()
    })
    .await;
    demonstration::publish_playlist(&world.stack).await.unwrap();
    world.widen_plans().await;
    let up = json!({
        "rest": world.stack.url(),
        "api_key": world.org.key,
        "owner_session": world.org.session,
        "suite_id": demo_suite::SUITE_ID,
        "model_id": demonstration::MODEL_ID,
        "model_suite_id": playlist_suite::SUITE_ID,
    });
    let file = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-up.json", world.stack.database.name));
    std::fs::write(&file, up.to_string()).unwrap();
    for python in pythons {
        let mut tests = command(&python);
        tests
            .args(["-m", "pytest", "-p", "no:cacheprovider"])
            .current_dir(folder())
            .env("ASSAY_TEST_UP", &file)
            .env("ASSAY_TEST_CUTS", cuts().to_string());
        run_tests(tests, &python).await;
    }
}

/// The metrics for which the offline scorer is compared with jobs: one of each name.
const METRICS: [&str; 27] = [
    "accuracy",
    "auc",
    "auc_ovr",
    "balanced_accuracy",
    "brier",
    "ccc",
    "ece@15",
    "exact_match",
    "f1_macro",
    "f1_micro",
    "f1_set",
    "hit_rate@3",
    "jaccard",
    "kappa",
    "kendall",
    "log_loss",
    "mae",
    "map@5",
    "mcc",
    "mrr@10",
    "ndcg@10",
    "pearson",
    "precision@5",
    "r2",
    "recall@10",
    "rmse",
    "spearman",
];

/// Scores the golden vectors of a metric by a job. Writes the answers and the predictions below
/// `folder`, and returns the case for the scorer's tests.
async fn scored_by_job(
    world: &World,
    folder: &Path,
    metric: &str,
    clip: Option<[f64; 2]>,
) -> Value {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let read = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(vectors.join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let names = ["figures.json", "rankings.json", "classes.json"];
    let cases = names.map(read).concat();
    let case = cases
        .iter()
        .find(|case| case["values"].get(metric).is_some())
        .unwrap_or_else(|| panic!("no vector for {metric}"));
    let lines = |field: &str, values: &mut dyn Iterator<Item = Value>| -> String {
        values
            .map(|value| format!("{}\n", json!({"item_id": value[0], field: value[1]})))
            .collect()
    };
    let answers = case["answers"].as_array().unwrap();
    let name = format!(
        "{}{}",
        metric.replace('@', "-"),
        clip.map_or("", |_| "-clipped")
    );
    let suite = folder.join(&name);
    std::fs::create_dir(&suite).unwrap();
    let mut head = format!("suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{metric}\"\n");
    if let Some(clip) = clip {
        head += &format!("clip = {clip:?}\n");
    }
    let items = answers.iter().map(|answer| json!([answer[0], {}]));
    let predictions: String = case["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|prediction| format!("{prediction}\n"))
        .collect();
    for (file, text) in [
        ("suite.toml", head),
        ("items.ndjson", lines("input", &mut items.into_iter())),
        (
            "answers.ndjson",
            lines("answer", &mut answers.iter().cloned()),
        ),
        ("predictions.ndjson", predictions),
    ] {
        std::fs::write(suite.join(file), text).unwrap();
    }
    let published = ["suite", "publish", suite.to_str().unwrap()];
    world.stack.operate(&published).await.unwrap();
    let body = json!({"suite_id": format!("suite:{name}"), "predictions": case["predictions"]});
    let job = world.key().post("/v1/evals", &body).await.unwrap().body;
    assert!(job["id"].is_string(), "{metric}: {job}");
    let job = world.wait_until_finished(&string(&job["id"])).await;
    assert_eq!(job["status"], "succeeded", "{metric}: {job}");
    json!({
        "metric": metric,
        "clip": clip,
        "answers": format!("{name}/answers.ndjson"),
        "predictions": format!("{name}/predictions.ndjson"),
        "result": job["result"],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_scorer_equals_the_jobs_of_all_metrics() {
    long_test!("compiles the scorer for Python and scores with all metrics");
    let Some(python) = prepare(newest).await else {
        return;
    };
    let world = world_with(StackSize::default()).await;
    world.widen_plans().await;
    let servers = world.stack.ground.servers.folder();
    let folder = servers.join(format!("{}-scores", world.stack.database.name));
    std::fs::create_dir(&folder).unwrap();
    let mut cases = Vec::new();
    for metric in METRICS {
        cases.push(scored_by_job(&world, &folder, metric, None).await);
    }
    for (metric, clip) in [("rmse", [0.25, 1.5]), ("log_loss", [0.1, 2.0])] {
        cases.push(scored_by_job(&world, &folder, metric, Some(clip)).await);
    }
    let file = folder.join("cases.json");
    std::fs::write(&file, Value::from(cases).to_string()).unwrap();
    // Python finds an extension module by this name.
    let module = folder.join("assay_scorer.abi3.so");
    std::fs::copy(&world.stack.ground.binaries.scorer, module).unwrap();
    let sources = self::folder().join("src");
    let path = std::env::join_paths([sources.as_path(), folder.as_path()]).unwrap();
    let mut tests = command(&python);
    tests
        .args([
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "tests/test_score.py",
        ])
        .current_dir(self::folder())
        .env("PYTHONPATH", path)
        .env("ASSAY_TEST_REQUIRE_SCORER", "1")
        .env("ASSAY_TEST_SCORES", &file);
    run_tests(tests, &python).await;
}

/// Runs tests of the client, and panics with their output if one fails.
async fn run_tests(mut tests: tokio::process::Command, python: &Path) {
    tests.env(
        "ASSAY_TEST_WAIT_SECONDS",
        wait_timeout().as_secs().to_string(),
    );
    let timeout = (4 + cuts() / 8) * wait_timeout();
    let output = tokio::time::timeout(timeout, tests.output())
        .await
        .unwrap_or_else(|_| panic!("{} timed out", python.display()))
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}\n{}",
        python.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
