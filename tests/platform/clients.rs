//! Third-party clients: grpcio, requests and connect receive the same data as our clients, and
//! trec_eval and scikit-learn compute the same scores.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assay_tests::demo_suite;
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};

use crate::harness::{Expect, World, long_test, org, skip, string, world};

/// The tolerance for differences from the library, as the order of summation may differ.
const TOLERANCE: f64 = 1e-12;

/// The metrics that agreement.py prints. They suit this crate's suites.
const METRICS: [&str; 7] = [
    "accuracy",
    "hit_rate@3",
    "ndcg@3",
    "mrr@3",
    "recall@3",
    "precision@3",
    "map@3",
];

/// The reason why a test cannot run on this machine.
pub struct MissingTool(pub String);

/// Returns the tool, or `None` if it is missing: the test is then skipped, see [`skip`]. Panics
/// instead if `TEST_REQUIRE_CLIENTS` is set.
pub fn or_skip<T>(found: Result<T, MissingTool>) -> Option<T> {
    match found {
        Ok(tool) => Some(tool),
        Err(MissingTool(why)) if std::env::var_os("TEST_REQUIRE_CLIENTS").is_some() => {
            panic!("TEST_REQUIRE_CLIENTS is set, but {why}")
        }
        Err(MissingTool(why)) => {
            skip(&why);
            None
        }
    }
}

/// Returns the folder with the clients' sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs a command and returns its output.
///
/// # Errors
/// `problem` with the last line of standard error, if the command cannot be started or fails.
pub fn run(command: &mut Command, problem: &str) -> Result<Output, MissingTool> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|_| MissingTool(problem.to_owned()))?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    Err(MissingTool(format!("{problem} ({last})")))
}

/// Returns a folder in the workspace's target folder that is filled once for each `key`, by the
/// first caller.
pub fn build_once(
    kind: &str,
    key: &[Vec<u8>],
    fill: impl FnOnce(&Path) -> Result<(), MissingTool>,
) -> Result<PathBuf, MissingTool> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    let folder = clients.join(format!("{kind}-{:016x}", hasher.finish()));
    fs::create_dir_all(&clients).unwrap();
    // Tests run concurrently, in this process and in others. Closing the file releases the lock.
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if folder.exists() {
        return Ok(folder);
    }
    // A killed process leaves a partial folder. Only a complete folder gets the final name.
    let part = folder.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).unwrap();
    }
    fs::create_dir(&part).unwrap();
    fill(&part)?;
    fs::rename(&part, &folder).unwrap();
    Ok(folder)
}

/// Returns a Python interpreter with the packages of a requirements file.
pub fn python_with(kind: &str, requirements: &Path) -> Result<PathBuf, MissingTool> {
    run(
        Command::new("python3").arg("--version"),
        "no python3 on PATH",
    )?;
    this_python_with(Path::new("python3"), kind, requirements)
}

/// Returns a Python interpreter with exactly the packages of a requirements file, without their
/// dependencies.
pub fn python_with_exactly(kind: &str, requirements: &Path) -> Result<PathBuf, MissingTool> {
    this_python_with_exactly(Path::new("python3"), kind, requirements)
}

/// Returns this interpreter with exactly the packages of a requirements file, without their dependencies.
pub fn this_python_with_exactly(
    python: &Path,
    kind: &str,
    requirements: &Path,
) -> Result<PathBuf, MissingTool> {
    python_environment(python, kind, requirements, &["--no-deps"])
}

/// Returns this interpreter with the packages of a requirements file.
pub fn this_python_with(
    python: &Path,
    kind: &str,
    requirements: &Path,
) -> Result<PathBuf, MissingTool> {
    python_environment(python, kind, requirements, &[])
}

fn python_environment(
    python: &Path,
    kind: &str,
    requirements: &Path,
    pip_options: &[&str],
) -> Result<PathBuf, MissingTool> {
    // Debian's python3 lacks the two modules. The key contains the version, as an environment of
    // another Python cannot be used.
    let which = [
        "-c",
        "import ensurepip, sys, venv; print(sys.executable, sys.version)",
    ];
    let which = run(
        Command::new(python).args(which),
        "no venv or pip for Python",
    )?
    .stdout;
    let folder = build_once(kind, &[which, fs::read(requirements).unwrap()], |part| {
        run(
            Command::new(python).args(["-m", "venv"]).arg(part),
            "Python cannot create a venv",
        )?;
        // Wheels only: compiling a package takes longer than all tests.
        let mut pip = Command::new(part.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--only-binary=:all:",
            // Python compiles what a test imports. Packages contain much more.
            "--no-compile",
            "-r",
        ]);
        run(
            pip.arg(requirements).args(pip_options),
            "pip cannot install the Python clients",
        )?;
        Ok(())
    })?;
    Ok(folder.join("bin/python"))
}

/// Returns a folder with these files of a client's folder and the installed npm packages.
pub fn node_with(client: &str, names: &[&str]) -> Result<PathBuf, MissingTool> {
    let version = run(
        Command::new("node").args(["-p", "process.versions.node.split('.')[0]"]),
        "no node on PATH",
    )?
    .stdout;
    let major: u32 = String::from_utf8_lossy(&version)
        .trim()
        .parse()
        .unwrap_or(0);
    if major < 20 {
        return Err(MissingTool(format!("node {major} is older than 20")));
    }
    run(Command::new("npm").arg("--version"), "no npm on PATH")?;
    // Node resolves packages relative to the module, so the client is copied too.
    let files: BTreeMap<_, _> = names
        .iter()
        .map(|name| (name, fs::read(sources().join(client).join(name)).unwrap()))
        .collect();
    let key: Vec<_> = files.values().cloned().collect();
    build_once(client, &key, |part| {
        for (name, content) in &files {
            fs::write(part.join(name), content).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(part);
        run(&mut npm, "npm cannot install the packages of a Node client")?;
        Ok(())
    })
}

/// Builds the Go client, with stubs that buf and the Go plugins generate from the .proto files.
pub fn go_client() -> Result<PathBuf, MissingTool> {
    let version = run(
        Command::new("go").args(["env", "GOVERSION"]),
        "no go on PATH",
    )?
    .stdout;
    let buf = node_with("buf", &["package.json", "package-lock.json", ".npmrc"])?
        .join("node_modules/.bin/buf");
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("proto");
    let names = ["main.go", "buf.gen.yaml", "go.mod", "go.sum"];
    let sources = names.map(|name| (name, fs::read(sources().join("go").join(name)).unwrap()));
    let mut key = vec![version];
    key.extend(sources.iter().map(|(_, content)| content.clone()));
    let mut contract: Vec<_> = fs::read_dir(protos.join("assay/v1"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    contract.sort();
    key.extend(contract.iter().map(|path| fs::read(path).unwrap()));
    let folder = build_once("go", &key, |part| {
        for (name, content) in &sources {
            fs::write(part.join(name), content).unwrap();
        }
        // Prevents downloads of another toolchain and versions that go.sum does not list.
        let go = |program: &Path| {
            let mut command = Command::new(program);
            command
                .current_dir(part)
                .env("GOTOOLCHAIN", "local")
                .env("GOFLAGS", "-mod=readonly");
            command
        };
        run(
            go(&buf).arg("generate").arg(&protos),
            "buf cannot generate stubs for Go",
        )?;
        run(
            go(Path::new("go")).args(["build", "-o", "client", "."]),
            "go cannot build its client",
        )?;
        Ok(())
    })?;
    Ok(folder.join("client"))
}

/// Builds a Go program from one folder of the clients.
pub fn go_program(client: &str) -> Result<PathBuf, MissingTool> {
    let version = run(
        Command::new("go").args(["env", "GOVERSION"]),
        "no go on PATH",
    )?
    .stdout;
    let sources = ["main.go", "go.mod", "go.sum"]
        .map(|name| (name, fs::read(sources().join(client).join(name)).unwrap()));
    let key: Vec<_> = [version]
        .into_iter()
        .chain(sources.iter().map(|(_, content)| content.clone()))
        .collect();
    let folder = build_once(client, &key, |part| {
        for (name, content) in &sources {
            fs::write(part.join(name), content).unwrap();
        }
        let mut build = Command::new("go");
        build
            .current_dir(part)
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-mod=readonly")
            .args(["build", "-ldflags=-s -w", "-o", "client", "."]);
        run(&mut build, "go cannot build a client")?;
        Ok(())
    })?;
    Ok(folder.join("client"))
}

/// Runs a slow preparation on the blocking thread pool. Returns `None` if a tool is missing.
pub async fn prepare<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, MissingTool> + Send + 'static,
) -> Option<T> {
    or_skip(tokio::task::spawn_blocking(make).await.unwrap())
}

/// Runs a program and returns the JSON that it prints.
pub async fn run_json(program: &Path, arguments: &[&Path], env: &[(&str, String)]) -> Value {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .envs(env.iter().map(|(name, value)| (name, value)));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(
            "ASSAY_TEST_WAIT_SECONDS",
            wait_timeout().as_secs().to_string(),
        )
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(2 * wait_timeout(), command.output()).await;
    let output = output
        .unwrap_or_else(|_| panic!("{arguments:?} timed out"))
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}:\n{stderr}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{stderr}"))
}

/// Returns the environment variables that clients read.
pub fn client_env(world: &World, predictions: &Path) -> Vec<(&'static str, String)> {
    let rest = world.stack.url();
    let grpc = rest.trim_start_matches("http://").to_owned();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("proto");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    vec![
        ("ASSAY_REST", rest),
        ("ASSAY_GRPC", grpc),
        ("ASSAY_API_KEY", world.org.key.clone()),
        ("ASSAY_SESSION", world.org.session.clone()),
        ("ASSAY_SUITE", demo_suite::SUITE_ID.to_owned()),
        ("ASSAY_PREDICTIONS", path(predictions)),
        ("ASSAY_PROTO", path(&proto)),
    ]
}

/// Returns the habit model's prediction for each item of `suite:lunch`.
async fn habit_predictions(world: &World) -> Vec<Value> {
    let items = world
        .key()
        .get("/v1/suites/suite:lunch/items?limit=1000")
        .await
        .unwrap()
        .body;
    let items = items["items"].as_array().unwrap();
    assert_eq!(items.len(), 400, "all items are on one page");
    items.iter().map(demo_suite::prediction).collect()
}

/// Changes predictions to cover every irregularity that a submission can have: empty, short,
/// repeated, unknown and missing ones.
fn irregular(mut predictions: Vec<Value>) -> Vec<Value> {
    for (at, line) in predictions.iter_mut().enumerate() {
        let ranking = line["prediction"].as_array_mut().unwrap();
        match at % 9 {
            1 => ranking.clear(),
            2 => ranking.truncate(2),
            // A repeated id: the ranks after it do not move up.
            3 => ranking.insert(1, ranking[0].clone()),
            4 => ranking.insert(0, json!("nothing")),
            5 => line["prediction"] = ranking[0].clone(),
            _ => {}
        }
    }
    // Some items are missing, and one prediction is for an unknown item.
    let mut at = 0;
    predictions.retain(|_| {
        at += 1;
        at % 11 != 0
    });
    predictions.push(json!({"item_id": "keine/für-uns", "prediction": ["ramen"]}));
    predictions
}

/// Returns the path of a file that only this test uses.
fn file(world: &World, name: &str) -> PathBuf {
    world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-{name}", world.stack.database.name))
}

fn write_lines(path: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).unwrap();
}

/// Returns `true` if a value is an RFC 3339 timestamp in UTC with microseconds.
fn is_timestamp(value: &Value) -> bool {
    let form = "dddd-dd-ddTdd:dd:dd.ddddddZ";
    let matches = |(given, wanted): (char, char)| {
        if wanted == 'd' {
            given.is_ascii_digit()
        } else {
            given == wanted
        }
    };
    value
        .as_str()
        .is_some_and(|text| text.len() == form.len() && text.chars().zip(form.chars()).all(matches))
}

/// Returns `true` if a value is an id: the prefix and 22 letters or digits.
fn is_id(value: &Value, prefix: &str) -> bool {
    let rest = value.as_str().and_then(|text| text.strip_prefix(prefix));
    rest.is_some_and(|rest| {
        rest.len() == 22 && rest.chars().all(|letter| letter.is_ascii_alphanumeric())
    })
}

/// Removes the fields of a job that differ between jobs, after a check of their format.
fn comparable(mut job: Value) -> Value {
    job = as_javascript_writes(job);
    let fields = job.as_object_mut().unwrap();
    let id = fields.remove("id").unwrap();
    assert!(is_id(&id, "job_"), "{id}");
    assert!(is_id(&fields.remove("request_id").unwrap(), "req_"));
    let timestamps: Vec<_> = ["created_at", "started_at", "finished_at"]
        .map(|name| fields.remove(name).unwrap())
        .into();
    assert!(timestamps.iter().all(is_timestamp), "{timestamps:?}");
    // Equal format and time zone, so the strings sort like the timestamps.
    assert!(
        timestamps.is_sorted_by_key(Value::to_string),
        "{timestamps:?}"
    );
    let trace_url = string(&fields.remove("trace_url").unwrap());
    assert!(
        trace_url.starts_with("http")
            && trace_url.ends_with(&format!("/v1/jobs/{}/trace", string(&id))),
        "{trace_url}"
    );
    // An eval that has ended has no place in the queue and no fields of prediction jobs. Messages show
    // them as null.
    for name in ["predict_result", "eval_job_id", "queue"] {
        assert!(fields.remove(name).is_none_or(|value| value.is_null()));
    }
    let versions = fields["versions"].as_object_mut().unwrap();
    for name in ["model_id", "model_version"] {
        assert!(versions.remove(name).is_none_or(|value| value.is_null()));
    }
    job
}

/// Converts integral floats to integers, as JavaScript writes 1.0 as 1.
pub fn as_javascript_writes(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|float| float.fract() == 0.0) => {
            json!(number.as_f64().unwrap() as i64)
        }
        Value::Array(values) => values.into_iter().map(as_javascript_writes).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, as_javascript_writes(value)))
            .collect(),
        other => other,
    }
}

/// Submits all predictions of a file in one request and returns the job's result.
async fn submit_and_wait(world: &World, suite_id: &str, predictions: &[Value]) -> Value {
    // A new organization for each call, so that the plan's limits do not interfere.
    let key = world.client(&org(&world.stack, "team").await.key);
    let made = key
        .post(
            "/v1/evals",
            &json!({"suite_id": suite_id, "predictions": predictions}),
        )
        .await
        .expect_status(202);
    let job = key
        .wait_until_finished(&string(&made.body["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    job["result"].clone()
}

/// Publishes a suite's folder once for each metric, and returns the suites' ids.
async fn published_by_metric(
    world: &World,
    suite: &Path,
    name: &str,
) -> Vec<(&'static str, String)> {
    let mut published = Vec::new();
    for metric in METRICS {
        let suite_id = format!("suite:{name}-{}", metric.replace('@', "-"));
        let folder = file(world, &suite_id.replace(':', "-"));
        fs::create_dir(&folder).unwrap();
        for part in ["items.ndjson", "answers.ndjson"] {
            fs::copy(suite.join(part), folder.join(part)).unwrap();
        }
        fs::write(
            folder.join("suite.toml"),
            format!("suite_id = \"{suite_id}\"\nversion = \"1\"\nmetric = \"{metric}\"\n"),
        )
        .unwrap();
        world
            .stack
            .operate(&["suite", "publish", folder.to_str().unwrap()])
            .await
            .unwrap();
        published.push((metric, suite_id));
    }
    published
}

fn assert_close(ours: &Value, theirs: &Value, what: &str) {
    let ours = ours.as_f64().unwrap();
    let theirs = theirs.as_f64().unwrap();
    assert!(
        (ours - theirs).abs() <= TOLERANCE,
        "{what}: ours {ours}, theirs {theirs}"
    );
}

/// Python clients use REST and gRPC, a Node client uses gRPC-web.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_clients_return_same_eval() {
    let Some(node) = prepare(|| {
        node_with(
            "node",
            &[
                "package.json",
                "package-lock.json",
                ".npmrc",
                "grpc_web.mjs",
            ],
        )
    })
    .await
    else {
        return;
    };
    let Some(python) =
        prepare(|| python_with("python", &sources().join("python/requirements.txt"))).await
    else {
        return;
    };
    let world = world().await;
    let path = file(&world, "clients.ndjson");
    let mut predictions = habit_predictions(&world).await;
    // Rankings only, as each client encodes them itself: an empty one, and non-ASCII characters.
    predictions[7]["prediction"] = json!([]);
    predictions.push(json!({"item_id": "keine/für-uns", "prediction": ["拉麺", "\"\\"]}));
    write_lines(&path, &predictions);
    let env = client_env(&world, &path);

    let rest = run_json(&python, &[&sources().join("python/rest.py")], &env).await;
    let grpc = run_json(&python, &[&sources().join("python/grpc_client.py")], &env).await;
    let web = run_json(Path::new("node"), &[&node.join("grpc_web.mjs")], &env).await;

    let job = comparable(rest["job"].clone());
    assert_eq!(job["status"], "succeeded", "{job}");
    assert_eq!(
        (&job["label"], &job["org_id"]),
        (&json!("clients"), &json!(world.org.id))
    );
    assert_eq!(job["result"]["n_submitted"], 401);
    assert_eq!(job, comparable(grpc["job"].clone()));
    assert_eq!(job, comparable(web["job"].clone()));

    for (answers, status) in [
        (&rest, json!(404)),
        (&grpc, json!("NOT_FOUND")),
        (&web, json!("NOT_FOUND")),
    ] {
        let message = &rest["error"]["message"];
        let wanted = json!({"code": "not_found", "status": status, "message": message, "request_id_header_matches": true});
        assert_eq!(answers["error"], wanted);
        assert_eq!(
            answers["principals"],
            json!({"key": "api_key", "session": "session"})
        );
        assert!(
            is_id(&answers["headers"]["x-request-id"], "req_"),
            "{answers}"
        );
        assert_eq!(answers["headers"]["x-ratelimit-limit"], "1000");
    }
    assert_eq!(web["principal_over_http2"], "api_key");

    assert_eq!(
        grpc["health"],
        json!({"": "SERVING", "assay.v1.JobService": "SERVING"})
    );
    assert!(
        grpc["reflected_methods"]
            .as_array()
            .unwrap()
            .contains(&json!("GetJob")),
        "{grpc}"
    );
    // Both versions of reflection: Python uses one, Node the other.
    for listed in [&grpc["services"], &web["services"]] {
        for service in services() {
            assert!(
                listed.as_array().unwrap().contains(&json!(service)),
                "{service} is not in {listed}"
            );
        }
    }
    let headers = [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-request-id",
    ];
    assert_eq!(
        grpc["without_credential"],
        json!({"status": "UNAUTHENTICATED", "reason": "UNAUTHENTICATED", "headers": headers})
    );
    let unknown = json!({"/assay.v1.JobService/Nothing": "UNIMPLEMENTED", "/assay.v1.Nothing/Get": "UNIMPLEMENTED"});
    assert_eq!(grpc["unknown_methods"], unknown);
}

/// Returns the services that the .proto files declare.
fn services() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("proto")
        .join("assay/v1");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let named = |text: String| -> Vec<String> {
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("service ")?.split_whitespace().next());
        names.map(|name| format!("assay.v1.{name}")).collect()
    };
    let services: Vec<_> = files.flat_map(named).collect();
    assert!(!services.is_empty(), "no services are declared");
    services
}

#[tokio::test(flavor = "multi_thread")]
async fn lunch_metrics_match_reference_libraries() {
    long_test!("installs scikit-learn and SciPy");
    let Some(python) =
        prepare(|| python_with("agreement", &sources().join("agreement-requirements.txt"))).await
    else {
        return;
    };
    let world = world().await;
    let suite = file(&world, "lunch");
    demo_suite::write(&suite).unwrap();
    let by_metric = published_by_metric(&world, &suite, "agreed").await;
    let habit_predictions = habit_predictions(&world).await;
    for (name, predictions) in [
        ("habit_predictions", habit_predictions.clone()),
        ("irregular", irregular(habit_predictions)),
    ] {
        let path = file(&world, name);
        write_lines(&path, &predictions);
        let theirs = run_json(
            &python,
            &[&sources().join("agreement.py"), &suite, &path],
            &[],
        )
        .await;
        let ours = submit_and_wait(&world, demo_suite::SUITE_ID, &predictions).await;
        assert_close(&ours["value"], &theirs["accuracy"], name);
        for (metric, suite_id) in &by_metric {
            let ours = submit_and_wait(&world, suite_id, &predictions).await;
            assert_eq!((&ours["metric"], &ours["n"]), (&json!(metric), &json!(400)));
            assert_close(
                &ours["value"],
                &theirs[metric],
                &format!("{metric} of {name}"),
            );
        }
    }
}

/// Runs only if `TEST_REAL_SUITE` names the folder of a suite that contains files `pred_*.ndjson`.
#[tokio::test(flavor = "multi_thread")]
async fn real_suite_metrics_match_reference_libraries() {
    let Some(suite) = std::env::var_os("TEST_REAL_SUITE").map(PathBuf::from) else {
        return;
    };
    let Some(python) =
        prepare(|| python_with("agreement", &sources().join("agreement-requirements.txt"))).await
    else {
        return;
    };
    let world = world().await;
    let published = world
        .stack
        .operate(&["suite", "publish", suite.to_str().unwrap()])
        .await
        .unwrap();
    let by_metric = published_by_metric(&world, &suite, "real").await;
    let files = fs::read_dir(&suite)
        .unwrap()
        .map(|file| file.unwrap().path());
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("pred_"))
    };
    let files: Vec<_> = files.filter(named).collect();
    assert!(
        !files.is_empty(),
        "there is no pred_*.ndjson in {}",
        suite.display()
    );
    for path in files {
        let predictions: Vec<Value> = fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let theirs = run_json(
            &python,
            &[&sources().join("agreement.py"), &suite, &path],
            &[],
        )
        .await;
        let own = submit_and_wait(&world, &string(&published["suite_id"]), &predictions).await;
        assert_close(
            &own["value"],
            &theirs[string(&own["metric"])],
            &path.to_string_lossy(),
        );
        for (metric, suite_id) in &by_metric {
            let ours = submit_and_wait(&world, suite_id, &predictions).await;
            assert_close(
                &ours["value"],
                &theirs[metric],
                &format!("{metric} of {}", path.display()),
            );
        }
    }
}
