//! One reader for every path: the same prediction file has the same verdict, and its first error in the
//! same place, over REST, in the dashboard, in `assay`, in the Python client with and without the scorer,
//! and in `assay-worker score`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::multipart;
use serde_json::json;

use crate::clients::prepare;
use crate::dashboard::visitor::Visitor;
use crate::disclosure::{publish_folder, write_files};
use crate::harness::{World, long_test, string, world};
use crate::{python_client, uploads};

/// The files' suites, each with its metric, and its answers to the items `a`, `b` and `c`.
const SUITES: [(&str, &str, [&str; 3]); 3] = [
    ("labels", "exact_match", [r#""x""#, r#""x""#, r#""x""#]),
    ("numbers", "rmse", ["1", "2", "3"]),
    ("chances", "log_loss", [r#""x""#, r#""y""#, r#""x""#]),
];

/// A prediction file.
struct File {
    name: &'static str,
    suite: &'static str,
    content: Vec<u8>,
    /// `accepted`, or the first error's place.
    verdict: &'static str,
}

fn row(item_id: &str, prediction: &str) -> String {
    format!(r#"{{"item_id":"{item_id}","prediction":{prediction}}}"#)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

fn utf16(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

/// Returns the files with JSON.
fn json_files() -> Vec<File> {
    let (a, b) = (row("a", r#""x""#), row("b", r#""y""#));
    let two = format!("{a}\n{b}\n");
    let long = "x".repeat(1 << 20);
    let second = |line: &str| format!("{a}\n{line}\n").into_bytes();
    let all: Vec<(&'static str, Vec<u8>, &'static str)> = vec![
        ("plain.ndjson", two.clone().into(), "accepted"),
        ("plain.jsonl", two.clone().into(), "accepted"),
        ("crlf.ndjson", two.replace('\n', "\r\n").into(), "accepted"),
        (
            "blank.ndjson",
            format!("\n \n{a}\n\n{b}\n\n").into(),
            "accepted",
        ),
        ("mark.ndjson", format!("\u{feff}{two}").into(), "accepted"),
        ("unended.ndjson", format!("{a}\n{b}").into(), "accepted"),
        ("array.json", format!("[{a},{b}]").into(), "accepted"),
        ("array.ndjson", format!("[{a},{b}]\n").into(), "accepted"),
        ("lines.json", two.clone().into(), "accepted"),
        ("mark.json", format!("\u{feff}[{a},{b}]").into(), "accepted"),
        (
            "pretty.json",
            format!("\n[\n  {a},\n  {b}\n]\n").into(),
            "accepted",
        ),
        ("json.csv", two.clone().into(), "accepted"),
        ("no-name", two.clone().into(), "accepted"),
        (
            "failed.ndjson",
            second(r#"{"item_id":"b","error":{"code":"x"}}"#),
            "accepted",
        ),
        (
            "more-fields.ndjson",
            second(r#"{"item_id":"b","prediction":"y","p":[1,{"q":null}]}"#),
            "accepted",
        ),
        ("unknown.ndjson", second(&row("zz", r#""x""#)), "accepted"),
        ("gzip.ndjson.gz", gzip(two.as_bytes()), "accepted"),
        ("gzip.ndjson", gzip(two.as_bytes()), "accepted"),
        ("plain.ndjson.gz", two.clone().into(), "accepted"),
        (
            "mark.ndjson.gz",
            gzip(format!("\u{feff}{two}").as_bytes()),
            "accepted",
        ),
        (
            "members.ndjson.gz",
            [gzip(a.as_bytes()), gzip(b"\n"), gzip(b.as_bytes())].concat(),
            "accepted",
        ),
        (
            "zeros.ndjson.gz",
            [gzip(two.as_bytes()), vec![0; 700]].concat(),
            "accepted",
        ),
        (
            "newline.ndjson.gz",
            [gzip(two.as_bytes()), b"\r\n".to_vec()].concat(),
            "accepted",
        ),
        ("zstd.ndjson.zst", zstd(two.as_bytes()), "accepted"),
        ("zstd.json", zstd(format!("[{a}]").as_bytes()), "accepted"),
        (
            "frames.ndjson.zst",
            [zstd(a.as_bytes()), zstd(b"\n"), zstd(b.as_bytes())].concat(),
            "accepted",
        ),
        (
            "skippable.ndjson.zst",
            [
                b"\x50\x2a\x4d\x18\x04\0\0\0abcd".to_vec(),
                zstd(two.as_bytes()),
            ]
            .concat(),
            "accepted",
        ),
        (
            "newline.ndjson.zst",
            [zstd(two.as_bytes()), b"\n".to_vec()].concat(),
            "accepted",
        ),
        (
            "cut.ndjson.gz",
            gzip(two.as_bytes())[..30].to_vec(),
            "compression",
        ),
        (
            "cut.ndjson.zst",
            zstd(two.as_bytes())[..20].to_vec(),
            "compression",
        ),
        (
            "more.ndjson.gz",
            [gzip(two.as_bytes()), b"more".to_vec()].concat(),
            "compression",
        ),
        ("empty.ndjson", Vec::new(), "predictions"),
        ("white.ndjson", b" \n\r\n".to_vec(), "predictions"),
        ("empty.json", b"[]".to_vec(), "predictions"),
        ("open.json", format!("[{a},{b}").into(), "predictions"),
        ("start.json", b"[".to_vec(), "predictions"),
        ("comma.json", format!("[{a},").into(), "predictions"),
        (
            "cut.json",
            format!("[{a},{}", &b[..b.len() - 4]).into(),
            "predictions",
        ),
        ("crlf.json", "[\r\n{\"item_id\":}]".into(), "predictions[0]"),
        ("inner.json", b"[[\"x\"]]".to_vec(), "predictions[0]"),
        ("more.json", format!("[{a}] {b}").into(), "predictions"),
        (
            "second.json",
            format!("[{a},{{\"item_id\":}}]").into(),
            "predictions[1]",
        ),
        (
            "mistyped.json",
            format!("[{a},{}]", row("b", "1")).into(),
            "predictions[1]",
        ),
        (
            "repeated.json",
            format!("[{b},{a},{a}]").into(),
            "predictions[2]",
        ),
        ("text.ndjson", b"hello\n".to_vec(), "line 1"),
        (
            "object.json",
            format!("{{\"predictions\":[{a}]}}").into(),
            "line 1",
        ),
        (
            "broken.ndjson",
            second(r#"{"item_id":"b","prediction":"y",}"#),
            "line 2",
        ),
        ("two-in-line.ndjson", format!("{a} {b}\n").into(), "line 1"),
        ("array-line.ndjson", second(r#"["b","y"]"#), "line 2"),
        ("no-id.ndjson", second(r#"{"prediction":"y"}"#), "line 2"),
        ("no-value.ndjson", second(r#"{"item_id":"b"}"#), "line 2"),
        ("half-mark.ndjson", b"\xef\xbb".to_vec(), "line 1"),
        (
            "failed-scores.ndjson",
            second(r#"{"item_id":"b","error":{},"scores":[]}"#),
            "line 2",
        ),
        (
            "half-character-ignored.ndjson",
            second(r#"{"item_id":"b","prediction":"y","n":["\ud800",1e400]}"#),
            "accepted",
        ),
        (
            "zero-key.ndjson",
            second(r#"{"item_id":"b","prediction":"y","\u0000repeated":1}"#),
            "accepted",
        ),
        ("null.ndjson", second(&row("b", "null")), "line 2"),
        ("true.ndjson", second(&row("b", "true")), "line 2"),
        ("number.ndjson", second(&row("b", "1")), "line 2"),
        ("ranking.ndjson", second(&row("b", r#"["y"]"#)), "line 2"),
        (
            "mixed-ranking.ndjson",
            second(&row("b", r#"["y",1]"#)),
            "line 2",
        ),
        (
            "number-id.ndjson",
            second(r#"{"item_id":2,"prediction":"y"}"#),
            "line 2",
        ),
        ("empty-id.ndjson", second(&row("", r#""y""#)), "line 2"),
        (
            "long-id.ndjson",
            second(&row(&"ä".repeat(257), r#""y""#)),
            "line 2",
        ),
        ("nul-id.ndjson", second(&row(r"\u0000", r#""y""#)), "line 2"),
        ("nul.ndjson", second(&row("b", r#""\u0000""#)), "line 2"),
        (
            "half-character.ndjson",
            second(&row("b", r#""\ud800""#)),
            "line 2",
        ),
        (
            "repeated-key.ndjson",
            second(r#"{"item_id":"b","prediction":"y","item_id":"c"}"#),
            "line 2",
        ),
        ("repeated.ndjson", format!("{b}\n\n{b}\n").into(), "line 3"),
        (
            "repeated-unknown.ndjson",
            format!("{a}\n{0}\n{0}\n", row("zz", r#""x""#)).into(),
            "line 3",
        ),
        (
            "latin.ndjson",
            [
                second("")[..a.len() + 1].to_vec(),
                b"{\"item_id\":\"\xe9\",\"prediction\":\"y\"}".to_vec(),
            ]
            .concat(),
            "line 2",
        ),
        ("utf-16.ndjson", utf16(&two), "line 1"),
        ("returns.ndjson", two.replace('\n', "\r").into(), "line 1"),
        (
            "long.ndjson",
            second(&row("b", &format!("\"{long}\""))),
            "line 2",
        ),
        (
            "long.json",
            format!("[{a},{}]", row("b", &format!("\"{long}\""))).into(),
            "predictions[1]",
        ),
    ];
    let chances = [
        ("edge.ndjson", r#"{"x":0.999999}"#, "accepted"),
        ("chances.ndjson", r#"{"x":0.25,"y":0.75}"#, "accepted"),
        ("no-chances.ndjson", "{}", "line 1"),
        ("sum.ndjson", r#"{"x":0.25,"y":0.65}"#, "line 1"),
        ("range.ndjson", r#"{"x":1.5,"y":-0.5}"#, "line 1"),
        ("text-chance.ndjson", r#"{"x":"1"}"#, "line 1"),
        ("repeated-label.ndjson", r#"{"x":0.5,"x":0.5}"#, "line 1"),
    ];
    let numbers = [
        ("numbers.ndjson", "-2.5e3", "accepted"),
        ("nan.ndjson", "NaN", "line 1"),
        ("infinite.ndjson", "-Infinity", "line 1"),
        ("digits.ndjson", "1e400", "line 1"),
        ("range-number.ndjson", "1e51", "line 1"),
    ];
    let of = |suite: &'static str| {
        move |(name, value, verdict): (&'static str, &'static str, &'static str)| File {
            name,
            suite,
            content: format!("{}\n", row("a", value)).into(),
            verdict,
        }
    };
    let labels = all.into_iter().map(|(name, content, verdict)| File {
        name,
        suite: "labels",
        content,
        verdict,
    });
    labels
        .chain(chances.into_iter().map(of("chances")))
        .chain(numbers.into_iter().map(of("numbers")))
        .collect()
}

/// Returns the files with tables.
fn tables() -> Vec<File> {
    let long = "x".repeat(200_000);
    let all: Vec<(&'static str, &'static str, Vec<u8>, &'static str)> = vec![
        (
            "table.csv",
            "labels",
            "item_id,prediction\na,x\nb,y\n".into(),
            "accepted",
        ),
        (
            "table.ndjson",
            "labels",
            "item_id,prediction\na,x\n".into(),
            "accepted",
        ),
        (
            "crlf.csv",
            "labels",
            "item_id,prediction\r\na,x\r\n\r\nb,y".into(),
            "accepted",
        ),
        (
            "mark.csv",
            "labels",
            "\u{feff}item_id,prediction\na,x\n".into(),
            "accepted",
        ),
        (
            "mark-quoted.csv",
            "labels",
            "\u{feff}\"item_id\",\"prediction\"\n\"a\",\"x\"\n".into(),
            "accepted",
        ),
        (
            "columns.csv",
            "labels",
            "n,prediction,note,item_id\n1,x,\"a, \"\"b\"\"\nc\",a\n".into(),
            "accepted",
        ),
        (
            "absent.csv",
            "labels",
            "item_id,prediction\na,x\nb,\n".into(),
            "accepted",
        ),
        (
            "empty-text.csv",
            "labels",
            "item_id,prediction\na,\"\"\n".into(),
            "accepted",
        ),
        (
            "digits.csv",
            "labels",
            "item_id,prediction\na,1\nb,007\n".into(),
            "accepted",
        ),
        (
            "cell.csv",
            "labels",
            format!("item_id,prediction\na,{long}\n").into(),
            "accepted",
        ),
        (
            "table.csv.gz",
            "labels",
            gzip(b"item_id,prediction\na,x\n"),
            "accepted",
        ),
        (
            "table.csv.zst",
            "labels",
            zstd(b"item_id,prediction\na,x\n"),
            "accepted",
        ),
        (
            "numbers.csv",
            "numbers",
            "item_id,prediction\na,1\nb, -2.5e3 \nc,\"3\"\n".into(),
            "accepted",
        ),
        (
            "chances.csv",
            "chances",
            "item_id,prediction\na,\"{\"\"x\"\":1}\"\n".into(),
            "accepted",
        ),
        (
            "header-only.csv",
            "labels",
            "item_id,prediction\n".into(),
            "predictions",
        ),
        ("empty.csv", "labels", Vec::new(), "predictions"),
        (
            "no-column.csv",
            "labels",
            "item_id,value\na,x\n".into(),
            "line 1",
        ),
        (
            "other-columns.csv",
            "labels",
            "id,label\na,x\n".into(),
            "line 1",
        ),
        (
            "semicolons.csv",
            "labels",
            "item_id;prediction\na;x\n".into(),
            "line 1",
        ),
        (
            "twice.csv",
            "labels",
            "item_id,prediction,prediction\na,x,y\n".into(),
            "line 1",
        ),
        (
            "short.csv",
            "labels",
            "item_id,prediction\na,x\nb\n".into(),
            "line 3",
        ),
        (
            "wide.csv",
            "labels",
            "item_id,prediction\na,x,y\n".into(),
            "line 2",
        ),
        (
            "open.csv",
            "labels",
            "item_id,prediction\na,x\nb,\"y\nc,z\n".into(),
            "line 3",
        ),
        (
            "stray.csv",
            "labels",
            "item_id,prediction\na,x\"y\nb,y\n".into(),
            "line 2",
        ),
        (
            "after-quote.csv",
            "labels",
            "item_id,prediction\na,\"x\"y\n".into(),
            "line 2",
        ),
        (
            "two-stray.csv",
            "labels",
            "item_id,prediction\na,\"x\nb,\"\nc,z\n".into(),
            "line 2",
        ),
        (
            "no-id.csv",
            "labels",
            "item_id,prediction\n,x\n".into(),
            "line 2",
        ),
        (
            "repeated.csv",
            "labels",
            "item_id,prediction\na,x\nb,x\na,y\n".into(),
            "line 4",
        ),
        (
            "broken-cell.csv",
            "chances",
            "item_id,prediction\na,\"{x:1}\"\n".into(),
            "line 2",
        ),
        (
            "ranking.csv",
            "labels",
            "item_id,prediction\na,\"[\"\"x\"\"]\"\n".into(),
            "line 2",
        ),
        (
            "nan.csv",
            "numbers",
            "item_id,prediction\na,1\nb,nan\n".into(),
            "line 3",
        ),
        (
            "arabic.csv",
            "numbers",
            "item_id,prediction\na,\u{661}\n".into(),
            "line 2",
        ),
        (
            "nul-quoted.csv",
            "labels",
            "item_id,prediction\na,\"\0\n\"\n".into(),
            "line 2",
        ),
        (
            "nul-open.csv",
            "labels",
            "item_id,prediction\na,\"\n\0".into(),
            "line 3",
        ),
        (
            "cells.csv",
            "labels",
            format!("item_id,prediction\na,x{}\n", ",".repeat(20_000)).into(),
            "line 2",
        ),
        (
            "comma.csv",
            "numbers",
            "item_id,prediction\na,\"1,5\"\n".into(),
            "line 2",
        ),
        (
            "hexadecimal.csv",
            "numbers",
            "item_id,prediction\na,0x10\n".into(),
            "line 2",
        ),
        (
            "latin.csv",
            "labels",
            b"item_id,prediction\na,x\nb,\xe9\n".to_vec(),
            "line 3",
        ),
        (
            "utf-16.csv",
            "labels",
            utf16("item_id,prediction\na,x\n"),
            "line 1",
        ),
        (
            "returns.csv",
            "labels",
            "item_id,prediction\ra,x\r".into(),
            "line 1",
        ),
        (
            "nul.csv",
            "labels",
            "item_id,prediction\na,\0\n".into(),
            "line 2",
        ),
        (
            "long.csv",
            "labels",
            format!("item_id,prediction\na,{}\nb,y\n", "x".repeat(1 << 20)).into(),
            "line 2",
        ),
        (
            "cut.csv.gz",
            "labels",
            gzip(b"item_id,prediction\na,x\n")[..20].to_vec(),
            "compression",
        ),
    ];
    all.into_iter()
        .map(|(name, suite, content, verdict)| File {
            name,
            suite,
            content,
            verdict,
        })
        .collect()
}

/// Returns the first place that a text names; `accepted` if it names none.
fn place_in(text: &str, file: &str) -> String {
    // Programs name `FILE:LINE`, and the platform `line LINE`.
    let text = text.replace(&format!("{file}:"), "line ");
    let starts = text.char_indices().map(|(at, _)| &text[at..]);
    for start in starts {
        let digits =
            |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
        if let Some(rest) = start.strip_prefix("line ") {
            let line = digits(rest);
            if !line.is_empty() {
                return format!("line {line}");
            }
        }
        if let Some(rest) = start.strip_prefix("predictions[") {
            return format!("predictions[{}]", digits(rest));
        }
    }
    if text.contains("at least one prediction")
        || text.contains("the array ends in the middle")
        || text.contains("after the end of the array")
    {
        "predictions".into()
    } else if text.contains("truncated") {
        "compression".into()
    } else {
        format!("no place: {text}")
    }
}

async fn publish(world: &World, folder: &Path) {
    for (name, metric, answers) in SUITES {
        let head = format!("suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{metric}\"\n");
        // A byte order mark and CRLF, as programs on Windows write them.
        let lines = |field: &str, values: [&str; 3]| {
            let lines = ["a", "b", "c"].into_iter().zip(values);
            let lines = lines.map(|(item_id, value)| {
                format!("{{\"item_id\":\"{item_id}\",\"{field}\":{value}}}\r\n")
            });
            String::from("\u{feff}") + &lines.collect::<String>()
        };
        let suite = folder.join(name);
        let (items, answers) = (lines("input", ["{}"; 3]), lines("answer", answers));
        write_files(&suite, &head, &items, &answers);
        publish_folder(world, &suite).await.unwrap();
    }
}

/// Sends a file as an upload, and scores it.
async fn over_rest(world: &World, file: &File) -> String {
    let key = world.key();
    let encoding = match file.content.as_slice() {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50, 0x2a, 0x4d, 0x18, ..] => "zstd",
        _ => "identity",
    };
    let form = if file.name.contains(".csv") {
        "text/csv"
    } else {
        "application/x-ndjson"
    };
    let body = json!({"kind": "predictions", "content_type": form, "content_encoding": encoding});
    let upload = key.post("/v1/uploads", &body).await.unwrap().body;
    let upload_id = string(&upload["id"]);
    let sent = uploads::put(&key, &upload_id, 1, file.content.clone()).await;
    assert_eq!(sent.status, 200, "{}: {}", file.name, sent.body);
    let ready = uploads::complete(&key, &upload_id).await;
    if ready.status != 200 {
        let first = &ready.body["error"]["details"]["fields"][0];
        return place_in(
            &format!("{} {}", first["field"], first["message"]),
            file.name,
        );
    }
    let eval =
        json!({"suite_id": format!("suite:{}", file.suite), "input_ref": upload["input_ref"]});
    let job = key.post("/v1/evals", &eval).await.unwrap();
    assert_eq!(job.status, 202, "{}: {}", file.name, job.body);
    let job = world.wait_until_finished(&string(&job.body["id"])).await;
    match job["status"].as_str() {
        Some("succeeded") => "accepted".into(),
        _ => place_in(&string(&job["error"]["message"]), file.name),
    }
}

/// Sends a file with the dashboard's form, and reads the page that checks it.
async fn in_dashboard(visitor: &mut Visitor, file: &File) -> String {
    let action = format!("/suites/suite:{}/submissions", file.suite);
    let page = visitor
        .open(&format!("/suites/suite:{}/submit", file.suite))
        .await;
    let fields = page.form(&action, &[]).into_iter();
    let fields = fields.filter(|(name, _)| name != "file");
    let form = fields.fold(multipart::Form::new(), |form, (name, value)| {
        form.text(name, value)
    });
    let part = multipart::Part::bytes(file.content.clone()).file_name(file.name);
    let sent = visitor.form(&action).multipart(form.part("file", part));
    let sent = visitor.send(sent).await;
    if sent.status == 422 {
        assert!(sent.text.contains("not empty"), "{}", sent.text);
        return "predictions".into();
    }
    let checked = visitor.open(sent.location()).await;
    if checked.text.contains("The file is checked") {
        return "accepted".into();
    }
    place_in(&checked.text, file.name)
}

/// Runs a program, and returns its standard error unless it succeeds.
fn stderr_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(text)
}

fn verdict_of(failed: Option<String>, file: &str) -> String {
    failed.map_or_else(|| "accepted".into(), |text| place_in(&text, file))
}

/// Returns the Python client's verdicts by file and way.
fn in_python(
    world: &World,
    python: &Path,
    folder: &Path,
    files: &[File],
) -> BTreeMap<String, BTreeMap<String, String>> {
    let module = folder.join("assay_scorer.abi3.so");
    std::fs::copy(&world.stack.ground.binaries.scorer, module).unwrap();
    let cases: Vec<_> = files
        .iter()
        .map(|file| json!([file.name, file.suite]))
        .collect();
    std::fs::write(folder.join("cases.json"), json!(cases).to_string()).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = sources.join("../clients/python/src");
    let path = std::env::join_paths([client.as_path(), folder]).unwrap();
    let output = Command::new(python)
        .arg(sources.join("platform/files/verdicts.py"))
        .current_dir(folder)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ASSAY_BASE_URL", world.stack.url())
        .env("ASSAY_API_KEY", &world.org.key)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_reads_a_file_in_the_same_way() {
    long_test!("sends a hundred files over eight paths");
    let Some(python) = prepare(python_client::newest).await else {
        return;
    };
    let world = world().await;
    world.widen_plans().await;
    let name = assay_tests::databases::fresh_name("files");
    let folder: PathBuf = world.stack.ground.servers.folder().join(name);
    publish(&world, &folder).await;
    let files: Vec<File> = json_files().into_iter().chain(tables()).collect();
    for file in &files {
        std::fs::write(folder.join(file.name), &file.content).unwrap();
    }
    let python_verdicts = in_python(&world, &python, &folder, &files);
    let mut visitor = Visitor::signed_in(&world, &world.org.session);
    let binaries = &world.stack.ground.binaries;
    let mut wrong = Vec::new();
    for file in &files {
        let suite_id = format!("suite:{}", file.suite);
        let cli = |arguments: &[&str]| {
            let mut command = Command::new(&binaries.cli);
            command
                .args(arguments)
                .current_dir(&folder)
                .env("HOME", &folder)
                .env("NO_PROXY", "127.0.0.1")
                .env("ASSAY_BASE_URL", world.stack.url())
                .env("ASSAY_API_KEY", &world.org.key);
            verdict_of(stderr_of(&mut command), file.name)
        };
        let mut score = Command::new(&binaries.worker);
        score
            .args(["score", "--suite", file.suite, "--predictions", file.name])
            .current_dir(&folder);
        let mut verdicts = BTreeMap::from([
            ("REST", over_rest(&world, file).await),
            ("dashboard", in_dashboard(&mut visitor, file).await),
            ("assay check", cli(&["check", &suite_id, file.name])),
            (
                "assay submit",
                cli(&["submit", &suite_id, file.name, "--wait"]),
            ),
            (
                "assay score",
                cli(&["score", file.name, "--answers", file.suite]),
            ),
            (
                "assay-worker score",
                verdict_of(stderr_of(&mut score), file.name),
            ),
        ]);
        for (way, verdict) in &python_verdicts[file.name] {
            // Python reads zstd from version 3.14 on.
            if verdict.contains("needs Python 3.14") && file.content.starts_with(b"\x28\xb5")
                || verdict.contains("needs Python 3.14") && file.content.starts_with(b"\x50\x2a")
            {
                continue;
            }
            let verdict = match verdict.as_str() {
                "accepted" => "accepted".into(),
                text => place_in(text, file.name),
            };
            verdicts.insert(way.as_str(), verdict);
        }
        for (path, verdict) in verdicts {
            if verdict != file.verdict {
                wrong.push(format!(
                    "{} by {path}: {verdict}, not {}",
                    file.name, file.verdict
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} files:\n{}",
        wrong.len(),
        files.len(),
        wrong.join("\n")
    );
}
