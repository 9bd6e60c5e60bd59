//! The command-line program in `clients/cli`, as a user runs it: against a stack, by its arguments,
//! standard streams and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use assay_tests::demo_suite;
use assay_tests::link::{Ending, Link};
use assay_tests::stack::StackSize;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::clients::or_skip;
use crate::harness::{
    Expect, World, cuts, in_time, org, pause, shared_world, string, with_setting, world, world_with,
};
use crate::{clients, device, feedback};

/// The program with one user's settings.
pub struct Cli<'w> {
    world: &'w World,
    /// The user's home.
    home: PathBuf,
    url: String,
    /// The `ASSAY_API_KEY` value; empty for none.
    key: String,
}

/// One run of the program that has ended.
pub struct Run {
    code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn assert(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
    }

    /// Returns the output of a run that succeeded as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.assert(0);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Returns the NDJSON lines of a run that succeeded.
    #[track_caller]
    fn lines(&self) -> Vec<Value> {
        self.assert(0);
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl<'w> Cli<'w> {
    /// Creates a user with the organization's API key in the environment.
    pub fn new(world: &'w World) -> Self {
        let name = assay_tests::databases::fresh_name("cli");
        let home = world.stack.ground.servers.folder().join(name);
        std::fs::create_dir(&home).unwrap();
        Self {
            world,
            home,
            url: world.stack.url(),
            key: world.org.key.clone(),
        }
    }

    /// Returns the same user with another credential; empty for none.
    pub fn with_key(self, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            ..self
        }
    }

    fn with_url(self, url: String) -> Self {
        Self { url, ..self }
    }

    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("ASSAY_PROFILE")
            .env_remove("ASSAY_CACHE")
            .env("NO_PROXY", "127.0.0.1")
            .env("ASSAY_BASE_URL", &self.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if self.key.is_empty() {
            command.env_remove("ASSAY_API_KEY");
        } else {
            command.env("ASSAY_API_KEY", &self.key);
        }
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command_of(&self.world.stack.ground.binaries.cli);
        command.args(arguments);
        command
    }

    /// Returns a command that a signal interrupts, also if this process ignores interrupts as processes
    /// in a script's background do.
    fn interruptible_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command_of(Path::new("env"));
        command
            .arg("--default-signal=INT")
            .arg(&self.world.stack.ground.binaries.cli)
            .args(arguments);
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "").await
    }

    /// Runs the program with a text on standard input.
    async fn run_with(&self, arguments: &[&str], stdin: &str) -> Run {
        ended(self.command(arguments), stdin).await
    }

    /// Runs a shell script with the program on `PATH`.
    pub async fn shell(&self, script: &str) -> Run {
        let mut command = self.command_of(Path::new("bash"));
        let folder = self.world.stack.ground.binaries.cli.parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(["-c", script])
            .env("PATH", format!("{}:{path}", folder.display()));
        ended(command, "").await
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.home.join(name), text).unwrap();
        name.to_owned()
    }

    /// Writes predictions that rank the dishes of each item in their order. `reverse` ranks them the
    /// other way round.
    pub async fn write_predictions(&self, name: &str, reverse: bool) -> String {
        let lines: String = self
            .run(&["items", demo_suite::SUITE_ID])
            .await
            .lines()
            .iter()
            .map(|item| {
                let mut options = demo_suite::by_habit(&item["input"]);
                if reverse {
                    options.reverse();
                }
                format!(
                    "{}\n",
                    json!({"item_id": item["item_id"], "prediction": options})
                )
            })
            .collect();
        self.write(name, &lines)
    }
}

async fn ended(mut command: Command, stdin: &str) -> Run {
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    let write = tokio::spawn(async move {
        // The program may end without reading all of it.
        let _ = input.write_all(text.as_bytes()).await;
    });
    let output = in_time("the end of the program", child.wait_with_output())
        .await
        .unwrap();
    write.await.unwrap();
    Run::of(&output)
}

const ONE: &str = r#"{"item_id": "person-00/day-0", "prediction": ["ramen"]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_of_the_readme_prints_the_score() {
    let has_jq = clients::run(
        std::process::Command::new("jq").arg("--version"),
        "no jq on PATH",
    );
    if or_skip(has_jq).is_none() {
        return;
    }
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let pipeline = readme
        .lines()
        .find(|line| line.starts_with("assay items suite:lunch | "))
        .unwrap();
    let model = "#!/bin/sh\nexec jq -c '{item_id, prediction: .input.options}'\n";
    let model = cli.write("model", model);
    cli.shell(&format!("chmod +x {model}")).await.assert(0);
    let run = cli.shell(&format!("set -o pipefail; {pipeline}")).await;
    run.assert(0);
    assert_eq!(run.err, "suite:lunch version 1, 400 items\n");
    let jobs = cli.run(&["jobs", "--suite", "suite:lunch"]).await.lines();
    assert_eq!(jobs.len(), 1);
    assert_eq!(run.out, format!("{}\n", jobs[0]["result"]["value"]));
    assert_eq!(jobs[0]["result"]["n_missing"], 0);
    // The same predictions are the same job.
    let again = cli.shell(pipeline).await;
    assert_eq!(again.out, run.out);
    assert_eq!(cli.run(&["jobs"]).await.lines().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_distinguish_outcomes() {
    let world = world().await;
    feedback::publish(&world, "1").await;
    let cli = Cli::new(&world);
    let (good, bad) = (
        cli.write_predictions("good.ndjson", false).await,
        cli.write_predictions("bad.ndjson", true).await,
    );
    let submit = async |file: &str, label: &str| {
        let arguments = ["submit", "suite:lunch", file, "--label", label, "--wait"];
        string(&cli.run(&arguments).await.json()["id"])
    };
    let first = submit(&good, "first").await;
    let second = submit(&bad, "second").await;
    let [first_value, second_value] = {
        let value = async |id: &str| {
            let job = cli.run(&["job", id]).await.json();
            job["result"]["value"].as_f64().unwrap()
        };
        [value(&first).await, value(&second).await]
    };
    let (better, worse) = if first_value > second_value {
        (first, second)
    } else {
        (second, first)
    };

    cli.run(&["whoami"]).await.assert(0);
    let file = ["items", "suite:lunch", "-q", "-o"];
    cli.run(&[&file[..], &["none/x"]].concat()).await.assert(1);
    cli.run(&["nonsense"]).await.assert(2);
    let without_address = cli.run(&["--base-url", "example.org", "whoami"]).await;
    without_address.assert(2);

    let anonymous = Cli::new(&world).with_key("");
    let run = anonymous.run(&["whoami"]).await;
    run.assert(3);
    for source in ["assay login", "ASSAY_API_KEY", "--profile"] {
        assert!(run.err.contains(source), "{}", run.err);
    }
    let stranger = Cli::new(&world).with_key("svc_live_0000000000000000000000000000000000000000");
    let run = stranger.run(&["whoami"]).await;
    run.assert(3);
    assert!(run.err.starts_with("invalid_token: "), "{}", run.err);
    assert!(run.err.contains("\nrequest req_"), "{}", run.err);
    cli.run(&["keys"]).await.assert(3);

    let unknown = format!("job_{}", "0".repeat(22));
    cli.run(&["job", &unknown]).await.assert(4);
    cli.run(&["cancel", &better]).await.assert(5);
    let stale = ["submit", "suite:lunch", &good, "--suite-version", "0"];
    let run = cli.run(&stale).await;
    run.assert(5);
    assert!(run.err.contains("assay items"), "{}", run.err);

    let twice = cli.write("twice.ndjson", &format!("{ONE}\n\n{ONE}\n"));
    let run = cli.run(&["submit", "suite:lunch", &twice]).await;
    run.assert(6);
    assert!(run.err.contains("twice.ndjson:3: item_id: "), "{}", run.err);
    cli.run(&["submit", "suite:lunch", "none.ndjson"])
        .await
        .assert(6);
    cli.run(&["submit", "suite:lunch", "table.csv"])
        .await
        .assert(6);

    let compare =
        async |a: &str, b: &str| cli.run(&["compare", a, b, "--fail-if-worse"]).await.code;
    assert_eq!(compare(&better, &worse).await, Some(0));
    assert_eq!(compare(&worse, &better).await, Some(9));
    let margin = ["compare", &worse, &better, "--fail-if-worse=0.9"];
    cli.run(&margin).await.assert(0);

    // Nobody listens on the first port.
    let unreachable = Cli::new(&world).with_url("http://127.0.0.1:1".into());
    let run = unreachable.run(&["whoami"]).await;
    run.assert(75);
    assert!(
        run.err.contains("no response from http://127.0.0.1:1"),
        "{}",
        run.err
    );

    // A reader that closes the output early is no failure, and hides none.
    for (arguments, code) in [
        (&["items", "suite:lunch"][..], 0),
        (&["compare", &worse, &better, "--fail-if-worse"], 9),
    ] {
        let mut child = cli.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let ended = in_time("the end of the program", child.wait()).await;
        assert_eq!(ended.unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_are_written_to_files_with_their_version() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let items = cli.run(&["items", "suite:lunch", "-q"]).await;
    assert_eq!(items.err, "", "quiet");
    cli.run(&["items", "suite:lunch", "-o", "items.ndjson"])
        .await
        .assert(0);
    let read = |name: &str| std::fs::read_to_string(cli.home.join(name)).unwrap();
    assert_eq!(read("items.ndjson"), items.out);
    assert_eq!(read("items.ndjson.version"), "1\n");
    let failed = cli.run(&["items", "suite:none", "-o", "none.ndjson"]).await;
    failed.assert(4);
    let left: Vec<_> = std::fs::read_dir(&cli.home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("none"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Only files are replaced.
    std::os::unix::fs::symlink("target.ndjson", cli.home.join("link.ndjson")).unwrap();
    cli.write("target.ndjson", "old");
    cli.run(&["items", "suite:lunch", "-o", "link.ndjson"])
        .await
        .assert(0);
    assert_eq!(read("target.ndjson"), items.out);
    let stdout = cli.shell("assay items suite:lunch -q -o - | cat").await;
    assert_eq!(stdout.out, items.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_have_the_format_that_is_set() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let write = async |format: &str| {
        let run = cli.run(&["items", "suite:lunch", "-q", "-f", format]).await;
        run.assert(0);
        run.out
    };
    let lines = write("ndjson").await;
    let items: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let array: Vec<Value> = serde_json::from_str(&write("json").await).unwrap();
    assert_eq!(array, items);
    let ids = items.iter().map(|item| item["item_id"].as_str().unwrap());
    assert_eq!(
        write("id").await.lines().collect::<Vec<_>>(),
        ids.collect::<Vec<_>>()
    );
    cli.run(&["items", "suite:lunch", "-f", "csv", "-o", "items.csv"])
        .await
        .assert(0);
    let table = std::fs::read_to_string(cli.home.join("items.csv")).unwrap();
    assert_eq!(table, write("csv").await);
    let mut rows = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(rows.headers().unwrap(), &["item_id", "input", "groups"][..]);
    let rows: Vec<Value> = rows
        .records()
        .map(|row| {
            let row = row.unwrap();
            let [input, groups]: [Value; 2] =
                [1, 2].map(|column| serde_json::from_str(&row[column]).unwrap());
            json!({"item_id": &row[0], "input": input, "groups": groups})
        })
        .collect();
    assert_eq!(rows, items);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_items_are_warned_of() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let file = cli.write(
        "two.ndjson",
        &format!("{ONE}\n{}\n", ONE.replace("person-00/day-0", "nobody")),
    );
    let run = cli.run(&["submit", "suite:lunch", &file, "--wait"]).await;
    run.assert(0);
    assert!(
        run.err.contains("399 of 400 items have no prediction"),
        "{}",
        run.err
    );
    assert!(
        run.err
            .contains("1 predictions are for items that the suite does not have"),
        "{}",
        run.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_of_jobs_that_do_not_succeed() {
    let world = world().await;
    // With these, one job is active at a time.
    let small = org(&world.stack, "free").await;
    world
        .stack
        .operate(&["plan", "set", "free", "--concurrent-jobs", "1"])
        .await
        .unwrap();
    let cli = Cli::new(&world).with_key(&small.key);
    let hold = world.hold_answers().await;
    let file = cli.write("one.ndjson", ONE);
    let submit = ["submit", "suite:lunch", &file];
    let id = string(&cli.run(&submit).await.json()["id"]);
    let second = cli.write("two.ndjson", &ONE.replace("ramen", "curry"));
    let run = cli.run(&["submit", "suite:lunch", &second]).await;
    run.assert(7);
    assert!(run.err.starts_with("quota_exceeded: "), "{}", run.err);

    let run = cli.run(&["job", &id, "--wait=1s"]).await;
    run.assert(124);
    assert!(run.err.contains(&format!("assay wait {id}")), "{}", run.err);
    cli.run(&["wait", &id, "--timeout", "1s"]).await.assert(124);

    let again = [&submit[..], &["--wait", "-v"]].concat();
    let mut waiting = cli.interruptible_command(&again).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        // From now on the program waits for the job.
        if line.contains("/v1/evals: 202") {
            break;
        }
    }
    pause("the program to poll", Duration::from_secs(1)).await;
    kill(
        Pid::from_raw(waiting.id().unwrap().cast_signed()),
        Signal::SIGINT,
    )
    .unwrap();
    assert_eq!(waiting.wait().await.unwrap().code(), Some(130));
    let mut said = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        said += &line;
    }
    assert!(
        said.contains(&format!(
            "The job continues; wait for it with: assay wait {id}"
        )),
        "{said}"
    );

    // The other job is cancelled, although the first one does not exist.
    let unknown = format!("job_{}", "0".repeat(22));
    let run = cli.run(&["cancel", &unknown, &id]).await;
    run.assert(4);
    assert!(run.err.contains(&unknown), "{}", run.err);
    assert!(run.out.contains(&id), "{}", run.out);
    drop(hold);
    for arguments in [&["wait", &id][..], &["job", &id, "--wait"]] {
        let run = cli.run(arguments).await;
        run.assert(8);
        assert!(run.err.contains("was cancelled"), "{}", run.err);
        assert!(run.out.contains("\"cancelled\""), "{}", run.out);
    }
    // The job was cancelled, so the same predictions are a new one.
    let again = cli.run(&[&submit[..], &["--wait"]].concat()).await.json();
    assert_ne!(string(&again["id"]), id);
    assert_eq!(again["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_submission_is_one_job_unless_fresh() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let file = cli.write("one.ndjson", ONE);
    let submit = async |more: &[&str]| {
        let arguments = [&["submit", "suite:lunch", &file][..], more].concat();
        cli.run(&arguments).await.json()
    };
    let first = submit(&["--meta", "commit=9f1c2e", "--meta", "seed=1"]).await;
    assert_eq!(first["metadata"], json!({"commit": "9f1c2e", "seed": "1"}));
    let same = submit(&["--meta", "seed=1", "--meta", "commit=9f1c2e"]).await;
    assert_eq!(same["id"], first["id"]);
    let packed = cli.home.join("one.ndjson.gz");
    let mut pack = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut pack, ONE.as_bytes()).unwrap();
    std::fs::write(&packed, pack.finish().unwrap()).unwrap();
    let packed = [
        "submit",
        "suite:lunch",
        "one.ndjson.gz",
        "--meta",
        "commit=9f1c2e",
        "--meta",
        "seed=1",
    ];
    assert_eq!(cli.run(&packed).await.json()["id"], first["id"]);
    for different in [&["--label", "x"][..], &["--fresh"], &["--fresh"], &[]] {
        assert_ne!(submit(different).await["id"], first["id"], "{different:?}");
    }
    let own = ["--idempotency-key", "mine"];
    assert_eq!(submit(&own).await["id"], submit(&own).await["id"]);
    assert_eq!(cli.run(&["jobs"]).await.lines().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_login_creates_a_profile() {
    let world = world_with(with_setting("ASSAY_DEVICE_LOGINS_PER_MINUTE", "1000")).await;
    let user = Cli::new(&world).with_key("");
    let login = async |decide: Option<&crate::harness::Org>| {
        let mut child = user.command(&["login"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut code = None;
        while let Some(line) = lines.next_line().await.unwrap() {
            code = line
                .strip_prefix("and confirm the code ")
                .map(str::to_owned);
            if code.is_some() {
                break;
            }
            assert!(line.contains("/device?"), "{line}");
        }
        let login = json!({"user_code": code.unwrap()});
        match decide {
            Some(org) => {
                device::approve(&world, &login, org).await;
            }
            None => device::deny(&world, &login).await,
        }
        let drain = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let ended = in_time("the end of the program", child.wait()).await;
        drain.await.unwrap();
        ended.unwrap().code()
    };
    assert_eq!(login(None).await, Some(3));
    assert_eq!(login(Some(&world.org)).await, Some(0));
    let file = user.home.join(".config/assay/config.toml");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let me = user.run(&["whoami"]).await.json();
    assert_eq!(string(&me["org_id"]), world.org.id);
    // The address is in the profile as well.
    let mut command = user.command(&["profiles"]);
    command.env_remove("ASSAY_BASE_URL");
    let profiles = ended(command, "").await.lines();
    assert_eq!(profiles[0]["base_url"], user.url);
    let shown = string(&profiles[0]["credential"]);
    assert!(
        shown.starts_with("svc_live_") && shown.chars().count() == 14,
        "{shown}"
    );
    user.run(&["logout"]).await.assert(0);
    user.run(&["whoami"]).await.assert(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_from_standard_input_is_checked_before_it_is_stored() {
    let world = shared_world().await;
    let user = Cli::new(&world).with_key("");
    let login = ["login", "--with-key", "--profile", "ci"];
    user.run_with(&login, "a password").await.assert(6);
    let unknown = "svc_live_0000000000000000000000000000000000000000\n";
    user.run_with(&login, unknown).await.assert(3);
    user.run(&["whoami", "--profile", "ci"]).await.assert(2);
    user.run_with(&login, &format!("{}\n", world.org.session))
        .await
        .assert(0);
    // The credential of a profile is sent to its address only.
    let elsewhere = [
        "whoami",
        "--profile",
        "ci",
        "--base-url",
        "http://127.0.0.1:1",
    ];
    let run = user.run(&elsewhere).await;
    run.assert(2);
    assert!(
        run.err.contains("the key of the profile \"ci\" is for"),
        "{}",
        run.err
    );
    let keys = user.run(&["keys", "--profile", "ci"]).await.lines();
    assert_eq!(keys[0]["name"], "ci");
    let logout = ["logout", "--profile", "ci"];
    user.run(&logout).await.assert(0);
    // The session has ended.
    world.owner().get("/v1/me").await.expect_status(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reports_what_is_wrong_and_sends_no_predictions() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let all = cli.write_predictions("all.ndjson", false).await;
    let report = cli.run(&["check", "suite:lunch", &all]).await.json();
    assert_eq!(report["n_matched"], 400);
    assert_eq!(report["n_missing"], 0);
    let wrong = format!(
        "{ONE}\n{}\n{ONE}\n{}\n",
        r#"{"item_id": "nobody", "prediction": ["ramen"]}"#,
        r#"{"item_id": "person-00/day-1", "prediction": 0.5}"#
    );
    let run = cli.run_with(&["check", "suite:lunch", "-"], &wrong).await;
    run.assert(6);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["n_unmatched"], 1);
    assert_eq!(
        report["first_unmatched"][0],
        json!({"item_id": "nobody", "place": "line 2"})
    );
    assert_eq!(report["first_missing"][0], "person-00/day-2");
    let errors: Vec<_> = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["field"])
        .collect();
    assert_eq!(errors, ["line 3.item_id", "line 4.prediction"]);
    assert!(run.err.contains("-:3: item_id: "), "{}", run.err);
    assert!(
        run.err.contains("398 of 400 items have no prediction"),
        "{}",
        run.err
    );
    assert_eq!(cli.run(&["jobs"]).await.out, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_score_equals_the_job() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let file = cli.write_predictions("all.ndjson", false).await;
    let job = cli
        .run(&["submit", "suite:lunch", &file, "--wait"])
        .await
        .json();
    let suite = world.stack.ground.servers.folder().join("lunch");
    let answers = suite.join("answers.ndjson");
    // No credential and no address is needed.
    let offline = Cli::new(&world).with_key("").with_url(String::new());
    let predictions = cli.home.join(&file).display().to_string();
    let score = async |more: &[&str]| {
        let arguments = [&["score", &predictions, "--answers"][..], more].concat();
        offline.run(&arguments).await.json()
    };
    let folder_score = score(&[suite.to_str().unwrap()]).await;
    assert!(folder_score["value"].is_f64(), "{folder_score}");
    for figure in folder_score.as_object().unwrap().keys() {
        assert_eq!(folder_score[figure], job["result"][figure], "{figure}");
    }
    // A file of answers has no clusters and slices.
    let file_score = score(&[answers.to_str().unwrap(), "--metric", "accuracy"]).await;
    for figure in ["value", "metrics", "n", "n_missing"] {
        assert_eq!(file_score[figure], folder_score[figure], "{figure}");
    }
    assert_eq!(file_score["ci_method"], "wilson");
    let missing = [
        "score",
        &predictions,
        "--answers",
        answers.to_str().unwrap(),
    ];
    offline.run(&missing).await.assert(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_has_the_requested_format() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let file = cli.write("one.ndjson", ONE);
    let label = "a,\"b\"\u{202e}c";
    let job = cli
        .run(&["submit", "suite:lunch", &file, "--label", label, "--wait"])
        .await
        .json();
    let id = string(&job["id"]);
    let jobs = async |format: &str| cli.run(&["jobs", "-f", format]).await;
    assert_eq!(jobs("id").await.out, format!("{id}\n"));
    let all = jobs("json").await.json();
    assert_eq!(all[0]["label"], label);
    let csv = jobs("csv").await.out;
    assert!(
        csv.starts_with("id,status,label,versions.suite_id,result.metric,result.value,"),
        "{csv}"
    );
    assert!(csv.contains(",\"a,\"\"b\"\""), "{csv}");
    let table = jobs("table").await.out;
    assert!(table.contains("STATUS") && table.contains(&id), "{table}");
    assert!(!table.contains('\u{202e}'), "{table}");
    let colored = cli
        .run(&["jobs", "-f", "table", "--color", "always"])
        .await
        .out;
    assert!(
        colored.contains("\u{1b}[32msucceeded\u{1b}[0m"),
        "{colored}"
    );
    let plain = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[32m"];
    let without_colors = plain
        .iter()
        .fold(colored, |text, code| text.replace(code, ""));
    assert_eq!(without_colors, table, "colors do not move columns");
    let shown = cli.run(&["job", &id, "-f", "table"]).await.out;
    assert!(shown.starts_with("accuracy 0.00"), "{shown}");
    let waterfall = cli.run(&["trace", &id, "-f", "table"]).await.out;
    assert!(waterfall.contains('█'), "{waterfall}");
    let trace = cli.run(&["trace", &id]).await.json();
    assert!(trace["resourceSpans"].is_array(), "{trace}");
    let watched = cli.run(&["jobs", "--watch", "-f", "id"]).await;
    assert_eq!(watched.out, format!("{id}\n"));
    let hostile = "x_at=\u{1b}[2J\u{1b}[2J\u{1b}[2J\u{1b}[2J\u{1b}[2J";
    let submit = [
        "submit",
        "suite:lunch",
        &file,
        "--label",
        "hostile",
        "--meta",
        hostile,
        "-f",
        "table",
    ];
    let shown = cli.run(&submit).await;
    shown.assert(0);
    assert!(!shown.out.contains('\u{1b}'), "{}", shown.out);
    let none = cli.run(&["jobs", "--label", "none"]).await;
    none.assert(0);
    assert_eq!(none.out, "");
    let recent = cli.run(&["jobs", "--since", "1h"]).await.lines();
    assert_eq!(recent.len(), 2);
    let suite = cli.run(&["suites", "suite:lunch"]).await.json();
    assert_eq!(suite["n_items"], 400);
    let suites = cli.run(&["suites"]).await.lines();
    assert_eq!(suites[0]["suite_id"], "suite:lunch");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_manages_the_organization() {
    let world = shared_world().await;
    let session = world.org.session.clone();
    let cli = Cli::new(&world).with_key(&session);
    let key = cli
        .run(&[
            "keys",
            "create",
            "nightly",
            "--scope",
            "jobs:read",
            "--scope",
            "suites:read",
        ])
        .await
        .json();
    assert!(string(&key["key"]).starts_with("svc_live_"), "{key}");
    let id = string(&key["id"]);
    let narrowed = ["keys", "update", &id, "--scope", "jobs:read"];
    assert_eq!(
        cli.run(&narrowed).await.json()["scopes"],
        json!(["jobs:read"])
    );
    let rotated = cli.run(&["keys", "rotate", &id]).await.json();
    assert_eq!(rotated["replaces"], id);
    let revoked = cli.run(&["keys", "revoke", &id]).await.json();
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    let invite = ["invites", "create", "ada@example.com", "--role", "viewer"];
    let invite = string(&cli.run(&invite).await.json()["id"]);
    assert_eq!(cli.run(&["invites"]).await.lines().len(), 1);
    cli.run(&["invites", "revoke", &invite]).await.assert(0);
    let claim = cli
        .run(&["domains", "claim", "hopper.example"])
        .await
        .json();
    assert_eq!(claim["record"]["type"], "TXT");
    cli.run(&["domains", "release", "hopper.example"])
        .await
        .assert(0);
    let members = cli.run(&["members"]).await.lines();
    assert_eq!(members[0]["role"], "owner");
    let only_owner = string(&members[0]["user_id"]);
    cli.run(&["members", "role", &only_owner, "viewer"])
        .await
        .assert(5);
    let created = [
        "webhooks",
        "create",
        "https://example.com/hook",
        "--event",
        "job.succeeded",
    ];
    cli.run(&[&created[..], &["-f", "id"]].concat())
        .await
        .assert(2);
    let webhook = cli.run(&created).await.json();
    assert!(
        string(&webhook["secret"]).starts_with("whsec_"),
        "{webhook}"
    );
    let webhook = string(&webhook["id"]);
    let disabled = cli
        .run(&["webhooks", "enable", &webhook, "false"])
        .await
        .json();
    assert_eq!(disabled["enabled"], false);
    assert_eq!(cli.run(&["webhooks", "deliveries", &webhook]).await.out, "");
    cli.run(&["webhooks", "delete", &webhook]).await.assert(0);
    assert_eq!(cli.run(&["webhooks"]).await.out, "");
    assert!(cli.run(&["usage"]).await.json()["totals"].is_object());
    assert!(!cli.run(&["usage", "--days"]).await.lines().is_empty());
    cli.run(&["models"]).await.assert(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_request_can_be_sent() {
    let world = shared_world().await;
    let cli = Cli::new(&world);
    let me = cli.run(&["api", "GET", "/v1/me"]).await.json();
    assert_eq!(me["principal"], "api_key");
    let page = [
        "api",
        "GET",
        "/v1/suites/suite:lunch/items",
        "-F",
        "limit=150",
    ];
    let first = cli.run(&page).await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 150);
    let pages = cli
        .run(&[&page[..], &["--paginate"]].concat())
        .await
        .lines();
    let items = pages
        .iter()
        .map(|page| page["items"].as_array().unwrap().len());
    assert_eq!(items.collect::<Vec<_>>(), [150, 150, 100]);
    let events = ["api", "GET", "/v1/events", "-F", "limit=1", "--paginate"];
    cli.run(&events).await.assert(0);
    let body = json!({"suite_id": "suite:lunch", "predictions": [
        {"item_id": "person-00/day-0", "prediction": ["ramen"]}]});
    let post = [
        "api",
        "POST",
        "/v1/evals",
        "--input",
        "-",
        "-H",
        "Idempotency-Key: k",
    ];
    let job = cli.run_with(&post, &body.to_string()).await.json();
    let again = cli.run_with(&post, &body.to_string()).await.json();
    assert_eq!(job["id"], again["id"]);
    let wrong = [
        "api",
        "POST",
        "/v1/evals",
        "-F",
        "suite_id=suite:none",
        "-F",
        "predictions=null",
    ];
    cli.run(&wrong).await.assert(6);
    cli.run(&["api", "GET", "v1/me"]).await.assert(2);
    cli.run(&["api", "TRACE", "/v1/me"]).await.assert(2);
    let verbose = cli.run(&["whoami", "-v"]).await;
    assert!(
        verbose.err.contains("GET /v1/me: 200 after "),
        "{}",
        verbose.err
    );
    assert!(!verbose.err.contains(&world.org.key), "{}", verbose.err);
    let opened = cli.run(&["open", "usage"]).await;
    assert_eq!(opened.out, format!("{}/usage\n", world.stack.url()));
    for shell in ["bash", "zsh", "fish"] {
        let script = cli.run(&["completions", shell]).await;
        assert!(script.out.contains("job-items"), "{shell}");
    }
    // The document and the program have the same table.
    let codes = cli.run(&["help", "exit-codes"]).await;
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/cli/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    for line in codes.out.lines() {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let row = readme
            .lines()
            .find(|row| row.starts_with(&format!("| {code} |")))
            .unwrap_or_else(|| panic!("{code} is not in the README"));
        assert_eq!(row.replace('`', ""), format!("| {code} | {meaning} |"));
    }
    assert!(
        cli.run(&["help", "submit"])
            .await
            .out
            .contains("--suite-version")
    );
    cli.run(&["help", "nonsense"]).await.assert(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_responses_create_no_second_job() {
    let world = world().await;
    world.widen_plans().await;
    let link = Link::to_api(world.stack.apis[0].listen.unwrap()).unwrap();
    let cli = Cli::new(&world).with_url(link.http_url());
    let rounds = cuts();
    let file = cli.write("one.ndjson", ONE);
    for round in 0..rounds {
        let label = format!("round {round}");
        let version = ["--suite-version", "1"];
        let submit = ["submit", "suite:lunch", &file, "--label", &label];
        // The one request of this run is the job's creation.
        link.lose_response(Ending::Closed);
        let run = cli.run(&[&submit[..], &version, &["-v"]].concat()).await;
        run.assert(0);
        assert!(run.err.contains("retrying in"), "{}", run.err);
    }
    let jobs = cli.run(&["jobs", "--since", "1h"]).await.lines();
    assert_eq!(jobs.len(), rounds as usize);
    let usage = cli.run(&["usage"]).await.json();
    assert_eq!(usage["totals"]["eval_items"], rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_upload_is_continued() {
    let world = world().await;
    world.widen_plans().await;
    let cli = Cli::new(&world);
    // Three parts of 16 MiB, and a fourth that is shorter. Each line is for another unknown item.
    let filler = "x".repeat(400);
    let lines: String = (0..130_000)
        .map(|number| format!("{{\"item_id\":\"{number}\",\"prediction\":[\"{filler}\"]}}\n"))
        .collect();
    let file = cli.write("large.ndjson", &lines);
    let submit = ["submit", "suite:lunch", &file, "-v", "--wait"];
    let mut first = cli.command(&submit).spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("/parts/") && line.contains(": 200") {
            break;
        }
    }
    first.kill().await.unwrap();
    let second = cli.run(&submit).await;
    let job = second.json();
    assert_eq!(job["result"]["n_submitted"], 130_000);
    let sent = second.err.lines().filter(|line| line.contains("/parts/"));
    assert!(sent.count() < 4, "no part is sent twice:\n{}", second.err);
    assert!(!second.err.contains("POST /v1/uploads:"), "{}", second.err);
    // The same file again is the same job, and nothing is charged twice.
    let third = cli.run(&submit).await.json();
    assert_eq!(third["id"], job["id"]);
    assert_eq!(cli.run(&["jobs"]).await.lines().len(), 1);
    let usage = cli.run(&["usage"]).await.json();
    assert_eq!(usage["totals"]["eval_items"], 130_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_standard_input_is_compressed_and_uploaded() {
    let world = world_with(StackSize::default()).await;
    world.widen_plans().await;
    let cli = Cli::new(&world);
    let lines: String = (0..200_000)
        .map(|number| format!("{{\"item_id\":\"unknown-{number}\",\"prediction\":[\"ramen\"]}}\n"))
        .collect();
    let submit = ["submit", "suite:lunch", "-", "--wait"];
    let job = cli.run_with(&submit, &lines).await.json();
    assert_eq!(job["result"]["n_submitted"], 200_000);
    let uploads = cli.run(&["api", "GET", "/v1/uploads"]).await.json();
    assert_eq!(
        uploads["uploads"][0]["content_encoding"], "gzip",
        "{uploads}"
    );
    let again = cli.run_with(&submit, &lines).await.json();
    assert_eq!(again["id"], job["id"]);
}
