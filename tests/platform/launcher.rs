//! `cargo demo` and `cargo up`: what they promise about themselves.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{ground, text};

fn program(name: &str) -> PathBuf {
    // Cargo tells tests where the binaries of their own package are.
    match name {
        "demo" => env!("CARGO_BIN_EXE_demo").into(),
        _ => env!("CARGO_BIN_EXE_up").into(),
    }
}

/// Whether a process is there. A dead one that nobody has asked after yet is not.
fn lives(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

fn gone(pids: &[u64], patience: Duration) -> Vec<u64> {
    let began = Instant::now();
    loop {
        let left: Vec<u64> = pids.iter().copied().filter(|pid| lives(*pid)).collect();
        if left.is_empty() || began.elapsed() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child that does not outlive its test, also when that fails.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn up(arguments: &[&str]) -> (Ending, Value) {
    drop(ground());
    let mut child = Command::new(program("up"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    let child = Ending(child);
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
fn the_demonstration_prints_two_scores_and_leaves_nothing() {
    drop(ground());
    let output = Command::new(program("demo")).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in [
        "past choices first (REST)    0.",
        "menu order (gRPC)            0.",
        "/trace",
        "cargo up",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_stack_says_where_everything_is_and_ends_at_ctrl_c_or_when_it_is_killed() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let (mut child, described) = up(&["--apis", "2", "--workers", "3"]);
        let processes = pids(&described);
        assert!(
            processes.len() >= 5 && processes.iter().all(|pid| lives(*pid)),
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
            assert!(!text(&described[name]).is_empty(), "{name}");
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
                text(&described["env"]["ASSAY_DATABASE_URL"]),
            )
            .output()
            .unwrap();
        assert!(
            operator.status.success(),
            "{}",
            String::from_utf8_lossy(&operator.stderr)
        );
        let asked = Command::new("kill")
            .args([format!("-{signal}"), child.0.id().to_string()])
            .status()
            .unwrap();
        assert!(asked.success());
        child.0.wait().unwrap();
        assert_eq!(
            gone(&processes, Duration::from_secs(5)),
            Vec::<u64>::new(),
            "signal {signal}"
        );
        let socket = text(&described["redis_url"]).replace("redis+unix://", "");
        assert!(
            !described["pids"]["redis"].is_u64() || !std::path::Path::new(&socket).exists(),
            "no socket is left"
        );
    }
}
