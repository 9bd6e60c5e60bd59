//! The Python client in `clients/python`: its tests run against a stack, on the oldest and the newest
//! Python of this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use assay_tests::stack::Plan;
use assay_tests::{demo_suite, demonstration, playlist_suite};
use serde_json::json;

use crate::clients::{MissingTool, prepare, run, this_python_with};
use crate::harness::world_with;

/// The timeout for all tests of the client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

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
    let mut found: BTreeMap<(u32, u32), PathBuf> = BTreeMap::new();
    for python in candidates() {
        if let Some(version) = version(&python).filter(|version| *version >= OLDEST) {
            found.entry(version).or_insert(python);
        }
    }
    let requirements = folder().join("tests/requirements.txt");
    let mut chosen: Vec<PathBuf> = found.into_values().collect();
    if chosen.is_empty() {
        return Err(MissingTool("no Python 3.10 or newer on PATH".into()));
    }
    chosen.drain(1..chosen.len().max(2) - 1);
    let prepared = chosen
        .iter()
        .map(|python| this_python_with(python, "python-client", &requirements));
    prepared.collect()
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
    let Some(pythons) = prepare(oldest_and_newest).await else {
        return;
    };
    let world = world_with(Plan {
        engines: 1,
        ..Plan::default()
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
    let cuts = std::env::var("TEST_CUTS").unwrap_or_else(|_| "10".into());
    for python in pythons {
        let mut tests = tokio::process::Command::new(&python);
        tests
            .args(["-m", "pytest", "-p", "no:cacheprovider"])
            .current_dir(folder())
            .env("PYTHONPATH", folder().join("src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("ASSAY_TEST_UP", &file)
            .env("ASSAY_TEST_CUTS", &cuts)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(CLIENT_TIMEOUT, tests.output())
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
}
