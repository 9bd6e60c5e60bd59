//! Exports in the formats of other programs, which read them. `tests/clients/exports` names the programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use assay_exports::{
    BoardRow, Croissant, DEPLOYMENT_TYPES, EveryEval, ExportedFile, HuggingFace, ItemFields, Job,
    MODEL_AVAILABILITIES, ModelName, Receipt, Report, Suite, badge, bibtex, board_csv,
    citation_cff, hugging_face,
};
use assay_tests::demo_suite::{self, Random};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::boards;
use crate::cli::Cli;
use crate::clients::{MissingTool, prepare, this_python_with_exactly};
use crate::harness::{Expect, in_time, long_test, shared_world_without_workers, string, world};
use crate::python_client::interpreters;
use crate::visibility::publish_own;

/// The oldest Python that `every_eval_ever` supports.
const OLDEST: (u32, u32) = (3, 12);

/// The texts that break a format which takes them as they are.
const HOSTILE: [&str; 30] = [
    "\"",
    "'",
    "{",
    "}",
    "\\",
    "\\end{document}",
    "%",
    "$",
    "#",
    "&",
    "_",
    "^",
    "~",
    "]]>",
    "<script>alert(1)</script>",
    "<!--",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t",
    "\r",
    "\n",
    "\u{0}",
    "\u{1b}[2J",
    "\u{85}\u{2028}\u{feff}\u{ffff}",
    "\u{202e}\u{2066}\u{200f}",
    "😀👩\u{200d}🔬",
    "名前é",
    ": - #? !!python/object",
];

/// Installs the programs. Returns the Python that has them.
fn programs() -> Result<PathBuf, MissingTool> {
    let mut supported = interpreters(OLDEST)?;
    let python = supported.swap_remove(supported.len() - 1);
    let requirements =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/exports/requirements.txt");
    this_python_with_exactly(&python, "exports-python", &requirements)
}

/// Validates a folder's files. Returns each kind's file count.
async fn validate(python: PathBuf, folder: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/exports/validate.py");
    let mut command = tokio::process::Command::new(python);
    command
        .arg(script)
        .arg(folder)
        // Downloads are stored in the user's home.
        .env("HOME", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let printed = in_time("the validation", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&printed.stderr);
    assert!(printed.status.success(), "{errors}");
    serde_json::from_slice(&printed.stdout).unwrap()
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn write(folder: &Path, file: &str, content: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn pick<'a, T: ?Sized>(random: &mut Random, values: &[&'a T]) -> &'a T {
    values[random.below(values.len() as u64)]
}

/// Returns a random text with hostile parts, sometimes a very long one.
fn text(random: &mut Random) -> String {
    let n = [1, 3, 8, 200][random.below(4)];
    let mut text = String::new();
    for _ in 0..=random.below(n) {
        text.push_str(pick(random, &HOSTILE));
        text.push_str(pick(random, &["", " ", "word", "Votes of 1,000 persons"]));
    }
    text
}

fn maybe<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (random.below(2) == 1).then(|| make(random))
}

/// Returns a text that the API accepts as a name: one line with a letter.
fn name(random: &mut Random) -> String {
    format!("{}a", text(random))
}

fn share(random: &mut Random) -> f64 {
    f64::from(u32::try_from(random.below(10_001)).unwrap()) / 10_000.0
}

fn random_suite(random: &mut Random, number: usize) -> Value {
    let suite_id = pick(
        random,
        &[
            "suite:lunch",
            "suite:acme.votes",
            "suite:data",
            "suite:con",
            "suite:a_b.-c",
        ],
    );
    let citation = |random: &mut Random| {
        match random.below(4) {
        0 => text(random),
        1 => "@misc{acme_votes, title={Votes}, year={2026}}".into(),
        2 => "@article{k, author = {Ada Lovelace and van der Berg, Jr., Jo and {Acme Inc.}}, title = \"A {B} \\'e \\& c\", year = 2026, doi = {10.1234/x.y-z}, url = {https://acme.example/a_b}}".into(),
        _ => format!("@book{{b, title={{{}}}}}", text(random)),
    }
    };
    let license = |random: &mut Random| {
        let licenses = [
            "CC-BY-4.0",
            "MIT OR Apache-2.0",
            "https://acme.example/license",
            "LicenseRef-own",
        ];
        pick(random, &licenses).to_owned()
    };
    let owner = |random: &mut Random| json!({"name": name(random), "handle": "acme", "domain": maybe(random, |_| "acme.example")});
    json!({
        "suite_id": suite_id,
        "version": pick(random, &["1", "2026-01+b"]),
        "description": maybe(random, text).unwrap_or_default(),
        "title": name(random),
        "owner": maybe(random, owner),
        "visibility": pick(random, &["private", "listed", "public"]),
        "license": maybe(random, license),
        "citation": maybe(random, citation),
        "tags": [format!("tag-{number}"), "votes"],
        "published_at": "2026-11-20T09:10:41.002118Z",
    })
}

/// Returns a job with its receipts.
fn random_job(random: &mut Random, suite: &Value, number: usize) -> (Value, Vec<Value>) {
    let job_id = format!("job_{number:022}");
    let metric = pick(
        random,
        &[
            "accuracy", "ndcg@10", "rmse", "log_loss", "brier", "r2", "kendall", "pinball",
        ],
    );
    let value = match metric {
        "rmse" | "log_loss" | "pinball" => share(random) * 1e9,
        "r2" => 1.0 - share(random) * 1e6,
        _ => share(random),
    };
    let ci95 = maybe(random, |_| [value - 0.01, value + 0.01]);
    let figures: &[&str] = match random.below(3) {
        0 => &["open", "sealed"],
        1 => &["all", "board"],
        _ => &["all"],
    };
    let receipts = figures.iter().enumerate().map(|(at, figures)| {
        json!({
            "id": format!("rcp_{number:021}{at}"),
            "job_id": job_id,
            "statement": {"predicate": {
                "suite_id": suite["suite_id"], "suite_version": "1", "suite_commitment": "ab".repeat(32), "hfm_sha": "0".repeat(40),
                "metric": metric, "release": "exact", "figures": figures, "value": value, "ci95": ci95,
                "ci_method": ci95.map(|_| "normal"), "n": 1 + random.below(100_000), "finished_at": "2026-11-20T09:10:41.002118Z",
            }},
            "log": maybe(random, |_| json!({"origin": "assay.example/log", "index": 2})),
        })
    });
    let receipts = receipts.collect();
    let job = json!({
        "id": job_id,
        "label": maybe(random, text),
        "versions": {"model_id": maybe(random, |_| "model:clicks")},
        "result": {"metric": metric, "stderr": maybe(random, |_| 0.005), "by_publisher": random.below(2) == 1},
    });
    (job, receipts)
}

fn export_job(random: &mut Random, folder: &Path, number: usize) {
    let suite = random_suite(random, number);
    let (job, receipts) = random_job(random, &suite, number);
    let (suite, job): (Suite, Job) = (read(&suite), read(&job));
    let receipts: Vec<Receipt> = receipts.iter().map(read).collect();
    let entry = maybe(random, |random| {
        read(&json!({"job_id": job.id, "name": name(random), "withdrawn_at": null}))
    });
    let mut model = ModelName::of(&name(random), &job, entry.as_ref());
    // The export asks for another name if one has no letter.
    model.name.push('b');
    let report = Report {
        base_url: "https://assay.example",
        job: &job,
        suite: &suite,
        receipts: &receipts,
        model,
    };
    let facts = EveryEval {
        deployment_type: pick(random, &DEPLOYMENT_TYPES),
        model_availability: pick(random, &MODEL_AVAILABILITIES),
    };
    let ExportedFile { path, content } = facts.record(&report).unwrap();
    write(folder, &path, &content);
    let (dataset_id, task_id) = (text(random), name(random));
    let benchmark = HuggingFace {
        dataset_id: &dataset_id,
        task_id: &task_id,
    };
    let file = hugging_face(&report, benchmark).unwrap();
    assert!(!file.content.contains("verifyToken"));
    let path = format!("hf/{}", file.path);
    write(folder, &path, &file.content);
    let last = receipts.last().unwrap();
    let expected = json!({
        "dataset": {"id": one_line(&dataset_id), "task_id": one_line(&task_id)},
        "value": last.statement.predicate.value,
        "url": format!("https://assay.example/receipts/{}", last.id),
    });
    write(
        folder,
        &path.replace(".yaml", ".expected.json"),
        &expected.to_string(),
    );
    write(
        folder,
        &format!("cff/{number}.cff"),
        &citation_cff(&report).unwrap().content,
    );
    write(
        folder,
        &format!("bib/{number}.bib"),
        &bibtex(&report).unwrap().content,
    );
    write(
        folder,
        &format!("badge/{number}.svg"),
        &badge(&suite.title, &last.statement),
    );
}

/// Returns a text as exports show it: without control and bidirectional characters.
fn one_line(text: &str) -> String {
    let mut shown = String::new();
    for character in text.replace("\r\n", "\n").chars() {
        match character {
            '\u{feff}' | '\u{200f}' | '\u{202e}' | '\u{2066}' => {}
            '\u{2028}' => shown.push(' '),
            '\u{ffff}' => shown.push('\u{fffd}'),
            _ if character.is_control() => shown.push(' '),
            _ => shown.push(character),
        }
    }
    shown
}

fn export_suite(random: &mut Random, folder: &Path, number: usize) {
    let suite: Suite = read(&random_suite(random, number));
    let keys: Vec<String> = (0..random.below(6))
        .map(|at| format!("{}{at}", text(random)))
        .collect();
    let (mut lines, mut fields) = (String::new(), ItemFields::default());
    let n = 1 + random.below(4);
    for item in 0..n {
        let mut input = Map::new();
        for (at, key) in keys.iter().enumerate() {
            let value = match (at + random.below(2)) % 6 {
                0 => json!(text(random)),
                1 => json!(random.below(100)),
                2 => json!(share(random)),
                3 => json!(random.below(2) == 1),
                4 => Value::Null,
                _ => json!([1, {"a": 2}]),
            };
            input.insert(key.clone(), value);
        }
        let input = Value::Object(input);
        fields.add(&input);
        lines.push_str(&format!(
            "{}\n",
            json!({"item_id": format!("{}{item}", text(random)), "input": input, "groups": {}})
        ));
    }
    let items = folder.join(format!("croissant/{number}.ndjson"));
    write(folder, &format!("croissant/{number}.ndjson"), &lines);
    let document = Croissant {
        base_url: "https://assay.example",
        suite: &suite,
        version: "1",
        items_url: items.to_str().unwrap(),
        items_sha256: &hex::encode(Sha256::digest(&lines)),
        fields: &fields,
    };
    write(
        folder,
        &format!("croissant/{number}.json"),
        &document.document().to_string(),
    );
    let ids = (1..=fields.fields().count()).map(|at| format!("items/input-{at}"));
    let ids: Vec<String> = std::iter::once("items/item_id".into()).chain(ids).collect();
    let expected = json!({"n": n, "fields": ids});
    write(
        folder,
        &format!("croissant/{number}.expected.json"),
        &expected.to_string(),
    );
}

fn export_board(random: &mut Random, folder: &Path, number: usize) {
    let row = |random: &mut Random| {
        json!({
            "entry_id": format!("ent_{}", random.below(1_000_000)),
            "name": maybe(random, text), "org_name": maybe(random, text), "org_domain": maybe(random, |_| "acme.example"),
            "url": maybe(random, |_| "https://acme.example/x?a=1,2"), "by_publisher": random.below(2) == 1,
            "tier": 1, "rank_low": 1, "rank_high": 2, "value": -share(random), "ci95": maybe(random, |random| [-share(random), share(random)]),
            "n_missing": 0, "n_submissions": 3, "n_withdrawn": 0, "entered_at": "2026-11-20T09:10:41.002118Z",
            "withdrawn_at": null, "receipt_id": maybe(random, |_| "rcp_1"),
        })
    };
    let rows: Vec<Value> = (0..random.below(4)).map(|_| row(random)).collect();
    let csv = board_csv(&rows.iter().map(read::<BoardRow>).collect::<Vec<_>>());
    write(folder, &format!("csv/{number}.csv"), &csv);
    write(
        folder,
        &format!("csv/{number}.expected.json"),
        &expected_board(&rows).to_string(),
    );
}

/// Returns the cells that a reader of CSV gets for the rows of a board.
fn expected_board(rows: &[Value]) -> Value {
    let columns = [
        "entry_id",
        "name",
        "org_name",
        "org_domain",
        "url",
        "by_publisher",
        "tier",
        "rank_low",
        "rank_high",
        "value",
        "ci95_low",
        "ci95_high",
        "n_missing",
        "n_submissions",
        "n_withdrawn",
        "entered_at",
        "withdrawn_at",
        "receipt_id",
    ];
    let cell = |row: &Value, column: &str| {
        let value = match column {
            "ci95_low" => &row["ci95"][0],
            "ci95_high" => &row["ci95"][1],
            _ => &row[column],
        };
        match value {
            Value::Null => String::new(),
            Value::String(text) => {
                let shown = one_line(text);
                let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r'])
                    || shown.starts_with(['=', '+', '-', '@']);
                if is_formula {
                    format!("'{shown}")
                } else {
                    shown
                }
            }
            Value::Number(number) => number.as_f64().unwrap().to_string(),
            other => other.to_string(),
        }
    };
    let rows = rows
        .iter()
        .map(|row| columns.map(|column| cell(row, column)));
    std::iter::once(columns.map(str::to_owned))
        .chain(rows)
        .collect()
}

/// Writes this many exports of each format, made from random resources with hostile texts.
fn generate(folder: &Path, n: usize) {
    let mut random = Random::new(7);
    for number in 0..n {
        export_job(&mut random, folder, number);
        export_suite(&mut random, folder, number);
        export_board(&mut random, folder, number);
    }
}

fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_exports_are_valid_for_other_programs() {
    long_test!("validates 1,000 exports of each format");
    let Some(python) = prepare(programs).await else {
        return;
    };
    let folder = fresh_folder("exports-generated");
    generate(&folder, 1000);
    let counts = validate(python, &folder).await;
    let expected = json!({"eee": 1000, "hf": 1000, "cff": 1000, "bib": 1000, "croissant": 1000, "badge": 1000, "csv": 1000});
    assert_eq!(counts, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_of_jobs_are_valid_for_other_programs() {
    let Some(python) = prepare(programs).await else {
        return;
    };
    let world = world().await;
    let cli = Cli::new(&world);
    let folder = fresh_folder("exports");
    generate(&folder, 5);
    let path = folder.to_str().unwrap();

    // A job of the operator's suite, and one of an organization's own suite with texts.
    let predictions = cli.write_predictions("lunch.ndjson", false).await;
    let own = publish_own(&world, "votes").await;
    let texts = json!({
        "title": "\"Votes\" {of} 1_000 & <more>",
        "description": "Lines: yes\n- # no",
        "license": "CC-BY-4.0",
        "citation": "@article{votes, author = {Lovelace, Ada}, title = {Votes}, year = 2026}",
        "tags": ["votes"],
    });
    let suite = format!("/v1/suites/{own}");
    world.key().patch(&suite, &texts).await.expect_status(200);
    let own_predictions = cli.write(
        "own.ndjson",
        "{\"item_id\": \"i0\", \"prediction\": \"a0\"}\n",
    );
    let mut receipts = Vec::new();
    for (suite, file, label) in [
        (demo_suite::SUITE_ID, &predictions, "=model \\{x}"),
        (&own, &own_predictions, "b: c"),
    ] {
        let submitted = ["submit", suite, file, "--label", label, "--wait"];
        let job = cli.run(&submitted).await.json();
        let job_id = string(&job["id"]);
        let receipt = cli.run(&["receipt", &job_id]).await.json();
        for (format, below) in [
            ("eee", ""),
            ("hf", "/hf"),
            ("bibtex", "/bib"),
            ("cff", "/cff"),
        ] {
            let out = format!("{path}{below}");
            let mut arguments = vec!["export", &job_id, "--format", format, "--out", &out];
            if format == "hf" {
                arguments.extend(["--dataset-id", "acme/votes", "--task-id", "default"]);
            }
            let written = cli.run(&arguments).await;
            written.assert(0);
            assert!(written.err.contains(path), "{}", written.err);
            // Without a folder, the program prints the same.
            arguments.drain(4..6);
            let printed = cli.run(&arguments).await;
            printed.assert(0);
            let name = written.err.trim();
            assert_eq!(printed.out, fs::read_to_string(name).unwrap(), "{format}");
            if format == "cff" {
                fs::rename(name, format!("{out}/{job_id}.cff")).unwrap();
            }
        }
        let expected = json!({
            "dataset": {"id": "acme/votes", "task_id": "default"},
            "value": job["result"]["value"],
            "url": format!("{}/receipts/{}", world.stack.url(), string(&receipt["id"])),
        });
        let file = format!("hf/.eval_results/assay-{job_id}.expected.json");
        write(&folder, &file, &expected.to_string());
        receipts.push((job, receipt));
    }
    let counts = validate(python, &folder).await;
    assert_eq!(
        counts,
        json!({"eee": 7, "hf": 7, "cff": 7, "bib": 7, "croissant": 5, "badge": 5, "csv": 5})
    );

    // The record has the figures of the API, and nothing else.
    let (job, receipt) = &receipts[0];
    let record = cli
        .run(&[
            "export",
            job["id"].as_str().unwrap(),
            "--format",
            "eee",
            "--developer",
            "Acme",
            "--model",
            "gpt",
        ])
        .await
        .json();
    let [result] = record["evaluation_results"].as_array().unwrap().as_slice() else {
        panic!("{record}");
    };
    let score = &result["score_details"];
    assert_eq!(score["score"], job["result"]["value"]);
    let interval = &score["uncertainty"]["confidence_interval"];
    assert_eq!(
        json!([interval["lower"], interval["upper"]]),
        job["result"]["ci95"]
    );
    assert_eq!(score["uncertainty"]["num_samples"], job["result"]["n"]);
    let details = &record["source_metadata"]["additional_details"];
    assert_eq!(details["receipt_id"], receipt["id"]);
    let commitment = &receipt["statement"]["predicate"]["suite_commitment"];
    assert_eq!(&details["suite_commitment"], commitment);
    assert_eq!(record["model_info"]["id"], "Acme/gpt");
    assert_eq!(
        record["source_metadata"]["evaluator_relationship"],
        "third_party"
    );
    let unknown = json!({"deployment_type": "unknown", "model_availability": "unknown"});
    assert_eq!(record["model_info"]["additional_details"], unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_without_figures_says_why() {
    let world = shared_world_without_workers().await;
    let cli = Cli::new(&world);
    let one = cli.write(
        "one.ndjson",
        "{\"item_id\": \"person-00/day-0\", \"prediction\": [\"ramen\"]}\n",
    );
    let job = cli
        .run(&["submit", demo_suite::SUITE_ID, &one])
        .await
        .json();
    let job_id = string(&job["id"]);
    let run = cli.run(&["export", &job_id, "--format", "eee"]).await;
    run.assert(1);
    assert!(
        run.err.contains("only a succeeded eval has one"),
        "{}",
        run.err
    );
    cli.run(&["export", &job_id, "--format", "hf"])
        .await
        .assert(2);
    cli.run(&["export", &job_id, "--format", "json"])
        .await
        .assert(2);
    let unknown = format!("job_{}", "0".repeat(22));
    cli.run(&["export", &unknown, "--format", "cff"])
        .await
        .assert(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn board_is_csv_and_public_receipts_have_badges() {
    let Some(python) = prepare(programs).await else {
        return;
    };
    let world = world().await;
    boards::publish(&world).await;
    let (key, anonymous) = (world.key(), world.anonymous());
    let job_id = boards::job(&key).await;
    let entry = json!({"name": "=1+1, \"a\"", "url": "https://acme.example/?a=1,2"});
    let path = format!("/v1/jobs/{job_id}/board");
    key.post(&path, &entry).await.expect_status(201);
    let path = "/v1/suites/suite:board/board";
    let has_receipt = |board: &Value| board["entries"][0]["receipt_id"].is_string();
    let board = boards::board_when(&key, "suite:board", "a row with a receipt", has_receipt).await;
    let accepts_csv = || {
        world
            .key()
            .request("GET", path)
            .header("accept", "text/csv")
    };
    let csv = accepts_csv().send().await.unwrap();
    assert_eq!(csv.status(), 200);
    let headers = csv.headers();
    assert_eq!(
        headers["content-type"],
        "text/csv; charset=utf-8; header=present"
    );
    assert_eq!(headers["vary"], "accept");
    let etag = headers["etag"].to_str().unwrap().to_owned();
    let text = csv.text().await.unwrap();
    assert!(text.contains("\"'=1+1, \"\"a\"\"\""), "{text}");
    // The tag of one form is not that of the other.
    let json = key.get(path).await.expect_status(200);
    assert_ne!(json.header("etag"), etag);
    let unchanged = accepts_csv().header("if-none-match", &etag).send().await;
    assert_eq!(unchanged.unwrap().status(), 304);
    let folder = fresh_folder("exports-board");
    write(&folder, "csv/board.csv", &text);
    let rows: Vec<Value> = board["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let mut row = row.clone();
            let by_publisher = row["by_publisher"].as_bool().unwrap_or(false);
            row["by_publisher"] = json!(by_publisher);
            row
        })
        .collect();
    write(
        &folder,
        "csv/board.expected.json",
        &expected_board(&rows).to_string(),
    );

    // A badge exists while a public board shows the receipt.
    let receipt_id = string(&board["entries"][0]["receipt_id"]);
    let badge = format!("/badges/{receipt_id}.svg");
    let badge_of = |path: String| anonymous.request("GET", &path).send();
    let other = format!("/badges/rcp_{}.svg", "0".repeat(22));
    for hidden in [badge.clone(), other.clone()] {
        assert_eq!(badge_of(hidden).await.unwrap().status(), 404);
    }
    let set = [
        "board",
        "set",
        "--suite",
        "suite:board",
        "--version",
        "1",
        "--visibility",
        "public",
    ];
    world.stack.operate(&set).await.unwrap();
    let shown = badge_of(badge.clone()).await.unwrap();
    assert_eq!(shown.status(), 200);
    for (name, value) in [
        ("content-type", "image/svg+xml"),
        ("cache-control", "public, max-age=60"),
        (
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'",
        ),
    ] {
        assert_eq!(shown.headers()[name], value, "{name}");
    }
    let svg = shown.text().await.unwrap();
    assert!(
        svg.contains("suite:board") && svg.contains("exact_match"),
        "{svg}"
    );
    write(&folder, "badge/board.svg", &svg);
    for hidden in [
        other,
        badge.replace(".svg", ""),
        badge.replace(".svg", ".png"),
    ] {
        assert_eq!(badge_of(hidden).await.unwrap().status(), 404);
    }
    let counts = validate(python, &folder).await;
    assert_eq!(counts, json!({"badge": 1, "csv": 1}));
}
