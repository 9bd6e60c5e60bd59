//! Nothing of a history leaves the engine, and the process has no credential.

use std::collections::BTreeSet;

use assay_core::model::package::ITEMS_FILE;
use assay_core::runtime::prometheus::Binary;
use assay_tests::stack::launch_engine;
use assay_tests::wait::wait_timeout;
use tonic::Code;

use super::calls::{self, History, Operation};
use super::{Engine, packages};
use crate::harness::{ground, scrape, wait_until};
use crate::telemetry::{assert_in_the_table, sum};

/// A marker of item ids, event types, options and sequence ids.
const CANARY: &str = "canary7f3a";

#[tokio::test(flavor = "multi_thread")]
async fn histories_are_neither_logged_nor_labels() {
    let engine = Engine::start(&[("ASSAY_LOG", "trace")]).await;
    let package = engine.publish("1", &packages::with_items(CANARY)).await;
    let marked = |text: &str| format!("{CANARY}-{text}");
    let history = History {
        sequence_id: marked("sequence"),
        events: vec![marked("1"), marked("unknown"), marked("2")],
        types: vec![marked("view"), String::new(), marked("buy")],
        options: Some(vec![marked("3"), marked("option")]),
    };
    let long = History {
        events: vec![marked("1"); 100],
        ..history.clone()
    };
    for is_strict in [false, true] {
        for operation in [
            Operation::Predict {
                is_strict,
                exclude_seen: true,
            },
            Operation::Sample { seed: 1 },
            Operation::Beam { n_events: 2 },
        ] {
            let call = calls::request(&package, operation, &[&history, &long]);
            engine.infer(calls::typed(call.clone())).await.unwrap();
            let response = engine.infer(call.clone()).await.unwrap();
            assert!(calls::rows(&response, operation, 2).len() == 2);
            let mut malformed = call;
            malformed.inputs[0].shape[0] = 1;
            malformed
                .parameters
                .insert(marked("parameter"), CANARY.into());
            malformed.id = marked("id");
            let status = engine.infer(malformed).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(!format!("{status:?}").contains(CANARY), "{status:?}");
        }
    }
    let mut files = packages::with_items(CANARY);
    let (_, items) = files
        .iter_mut()
        .find(|(name, _)| *name == ITEMS_FILE)
        .unwrap();
    items.extend_from_slice(
        format!("{{\"item_id\": \"{CANARY}-x\", \"code\": \"{CANARY}\"}}\n").as_bytes(),
    );
    let invalid = engine.publish("2", &files).await;
    let status = engine
        .infer(calls::predict(&invalid, &[]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let log = std::fs::read_to_string(&engine.process.log).unwrap();
    assert!(log.contains("package loaded") && log.contains("package not loaded"));
    assert!(
        log.contains("items.ndjson line "),
        "the line of the error is logged"
    );
    let quoted: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(CANARY))
        .take(3)
        .collect();
    assert!(quoted.is_empty(), "{quoted:?}");
    // Gauges of the runtime are sampled every few seconds.
    wait_until("the metrics of the runtime", async || {
        sum(&engine.process, "assay_runtime_tasks", &[]).await > 0.0
    })
    .await;
    let metrics = scrape(&engine.process).await;
    assert!(!metrics.contains(CANARY) && !metrics.contains("next-1"));
    assert_in_the_table(&metrics, Binary::Engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_has_no_credential_and_no_connection() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    engine.infer(calls::predict(&package, &[])).await.unwrap();
    let pid = engine.process.guarded.pid();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    for word in [
        "ASSAY_DATABASE_URL",
        "ASSAY_REDIS_URL",
        "ASSAY_SMTP_URL",
        "postgres://",
    ] {
        assert!(!environment.contains(word), "{word}");
    }
    let own = [engine.process.listen.unwrap(), engine.process.admin].map(|address| address.port());
    let ports = local_ports(pid);
    assert!(!ports.is_empty(), "no socket of the engine is found");
    assert!(
        ports.iter().all(|port| own.contains(port)),
        "{ports:?} instead of {own:?}"
    );
}

/// Returns the local ports of a process's TCP sockets. A connection that the process has opened
/// itself has its own port.
fn local_ports(pid: u32) -> BTreeSet<u16> {
    let sockets: BTreeSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|target| {
            let target = target.to_str()?;
            Some(
                target
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.filter_map(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let (_, port) = columns[1].rsplit_once(':')?;
        sockets
            .contains(columns[9])
            .then(|| u16::from_str_radix(port, 16).unwrap())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_does_not_start_with_a_credential() {
    let ground = ground();
    let folder = ground.servers.folder();
    for name in ["ASSAY_DATABASE_URL", "ASSAY_REDIS_URL_FILE"] {
        let settings = [(name, "postgres://secret")];
        let process = launch_engine(&ground.binaries.worker, folder, folder, &settings).unwrap();
        let exit = process.guarded.wait(wait_timeout()).unwrap();
        assert!(!exit.success());
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(log.contains(&format!("{name}: must not be set")), "{log}");
        assert!(!log.contains("secret"), "{log}");
    }
}
