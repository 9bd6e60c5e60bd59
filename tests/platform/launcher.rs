//! `cargo demo` and `cargo up`: their output and their shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use assay_tests::binaries;
use assay_tests::wait::wait_timeout;
use serde_json::Value;

use crate::harness::{ground, string};

/// Returns the command that starts a launcher, whose path cargo sets at compile time.
fn launcher(path: &str) -> Command {
    // The launcher would let cargo build the binaries again, with another package selection's
    // features, which takes minutes and replaces the binaries that other tests run.
    drop(ground());
    let mut command = Command::new(path);
    command.env("CARGO", "true");
    command
}

/// Returns `true` if a process runs. A zombie does not.
fn is_alive(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

/// Waits until the processes have exited. Returns those that still run after [`wait_timeout`].
fn wait_for_exit(pids: &[u64]) -> Vec<u64> {
    let start = Instant::now();
    loop {
        let left: Vec<u64> = pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
        if left.is_empty() || start.elapsed() > wait_timeout() {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child process that is killed when the test ends, even if the test fails.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // The child may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn up(arguments: &[&str]) -> (KilledOnDrop, Value) {
    let mut child = launcher(env!("CARGO_BIN_EXE_up"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    let child = KilledOnDrop(child);
    BufReader::new(stdout).read_line(&mut line).unwrap();
    (child, serde_json::from_str(&line).unwrap())
}

fn pids(described: &Value) -> Vec<u64> {
    let pids = &described["pids"];
    let list = |name: &str| {
        pids[name]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_u64)
            .collect::<Vec<_>>()
    };
    let servers = ["postgres", "redis"]
        .into_iter()
        .filter_map(|name| pids[name].as_u64());
    [list("api"), list("workers")]
        .concat()
        .into_iter()
        .chain(servers)
        .collect()
}

#[test]
fn demo_prints_two_scores() {
    let output = launcher(env!("CARGO_BIN_EXE_demo")).output().unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{output_text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in [
        "past choices first (REST)    0.",
        "menu order (gRPC)            0.",
        "/trace",
        "cargo up",
    ] {
        assert!(output_text.contains(part), "{part}: {output_text}");
    }
}

#[test]
fn stack_prints_addresses_and_stops_completely() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let (mut child, described) = up(&["--apis", "2", "--workers", "3"]);
        let processes = pids(&described);
        assert!(
            processes.len() >= 5 && processes.iter().all(|pid| is_alive(*pid)),
            "{described}"
        );
        assert_eq!(described["apis"].as_array().unwrap().len(), 2);
        for name in [
            "rest",
            "grpc",
            "database_url",
            "redis_url",
            "org_id",
            "owner_session",
            "api_key",
            "suite_id",
            "mails",
        ] {
            assert!(!string(&described[name]).is_empty(), "{name}");
        }
        let operator = Command::new(&ground().binaries.api)
            .args([
                "org",
                "create",
                "--name",
                "Mine",
                "--owner-email",
                "me@example.org",
            ])
            .env(
                "ASSAY_DATABASE_URL",
                string(&described["env"]["ASSAY_DATABASE_URL"]),
            )
            .output()
            .unwrap();
        assert!(
            operator.status.success(),
            "{}",
            String::from_utf8_lossy(&operator.stderr)
        );
        let kill_status = Command::new("kill")
            .args([format!("-{signal}"), child.0.id().to_string()])
            .status()
            .unwrap();
        assert!(kill_status.success());
        child.0.wait().unwrap();
        assert_eq!(
            wait_for_exit(&processes),
            Vec::<u64>::new(),
            "signal {signal}"
        );
        let socket = string(&described["redis_url"]).replace("redis+unix://", "");
        assert!(
            !described["pids"]["redis"].is_u64() || !std::path::Path::new(&socket).exists(),
            "the socket is removed"
        );
    }
}

/// The crates that cargo compiles twice in one build, with different features: for the programs, and
/// for sqlx's macros and the build scripts, which run in the compiler.
const COMPILED_FOR_MACROS: [&str; 34] = [
    "base64",
    "crypto-common",
    "ctutils",
    "digest",
    "form_urlencoded",
    "futures-channel",
    "futures-sink",
    "futures-util",
    "getrandom",
    "hashbrown",
    "hybrid-array",
    "idna",
    "indexmap",
    "libc",
    "linux-raw-sys",
    "num-traits",
    "once_cell",
    "rand",
    "regex-automata",
    "regex-syntax",
    "ring",
    "rustix",
    "rustls",
    "serde_core",
    "serde_json",
    "sha2",
    "slab",
    "smallvec",
    "sqlx-core",
    "subtle",
    "tokio",
    "tokio-stream",
    "url",
    "winnow",
];

/// Returns the crates that the selected packages need, each with its version and its features.
fn crates(selection: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges=normal,build", "--prefix=none"])
        .args(["--no-dedupe", "--format={p}\t{f}"])
        .args(selection)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| line.replace(" (proc-macro)", ""))
        .collect()
}

#[test]
fn demo_compiles_each_crate_once() {
    let [launcher, programs] = binaries::demo_selections().map(|selection| crates(&selection));
    assert_eq!(launcher, programs, "both builds select the same features");
    let mut builds = BTreeMap::<&str, usize>::new();
    for line in &launcher {
        let (name, _features) = line.split_once('\t').unwrap();
        *builds.entry(name).or_default() += 1;
    }
    let repeated = builds.into_iter().filter(|(_, builds)| *builds > 1);
    let names: BTreeSet<&str> = repeated
        .map(|(name, _)| name.split(' ').next().unwrap())
        .collect();
    assert_eq!(names, BTreeSet::from(COMPILED_FOR_MACROS));
}

/// `cargo queries` writes what the other crates need to build, so it must build without them.
#[test]
fn queries_needs_no_crate_with_statements() {
    let needed = crates(&["-p", "assay-tests", "--no-default-features"]);
    let with_statements = ["assay-core ", "assay-api ", "assay-worker "];
    let found = needed
        .iter()
        .filter(|line| with_statements.iter().any(|name| line.starts_with(name)));
    assert_eq!(found.collect::<Vec<_>>(), [] as [&String; 0]);
    assert!(
        needed.iter().any(|line| line.starts_with("sqlx ")),
        "{needed:?}"
    );
}
