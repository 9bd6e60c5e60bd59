//! Tables in all formats, compared with other implementations, and their errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::HashSet;

use assay_eval::suite::{BadSuiteCode, SuiteFolder};
use assay_tables::{TableErrors, columns, read_suite};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Files, errors, head, lines};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const VECTORS: &str = include_str!("../../../tests/vectors/tables.json");

fn vectors() -> Value {
    serde_json::from_str(VECTORS).unwrap()
}

fn decoded(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().unwrap()).unwrap()
}

/// Returns the inputs in lines of items.
fn inputs(items: &str) -> Vec<Value> {
    let input = |line: &str| serde_json::from_str::<Value>(line).unwrap()["input"].clone();
    items.lines().map(input).collect()
}

fn is_equal(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Null, Value::String(text)) => text.is_empty(),
        (Value::Number(found), Value::Number(expected)) => {
            found.to_string() == expected.to_string() || found.as_f64() == expected.as_f64()
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| is_equal(a, b))
        }
        _ => found == expected,
    }
}

#[test]
fn csv_fields_equal_those_of_python() {
    let cases = vectors()["csv"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 1_000);
    for case in &cases {
        let csv = case["csv"].as_str().unwrap();
        let columns: Vec<&str> = case["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        let text = serde_json::to_string(&columns).unwrap();
        for (data, key) in [
            (format!("text = {text}"), "rows"),
            (String::new(), "values"),
        ] {
            let [items, _] = lines(&head("accuracy", "v.csv", &data), "v.csv", csv.as_bytes())
                .unwrap_or_else(|errors| panic!("{csv}: {errors:?}"));
            let found = inputs(&items);
            let expected = case[key].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{csv}");
            for (found, expected) in found.iter().zip(expected) {
                let fields = found.as_object().unwrap();
                assert!(fields.keys().eq(columns.iter()), "{csv}: {found}");
                for (found, expected) in fields.values().zip(expected.as_array().unwrap()) {
                    assert!(
                        is_equal(found, expected),
                        "{csv}: {found} instead of {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn parquet_values_equal_those_of_pyarrow() {
    let vectors = vectors();
    let rows = vectors["parquet"]["rows"].as_array().unwrap();
    for (compression, file) in vectors["parquet"]["files"].as_object().unwrap() {
        let head = head("accuracy", "v.parquet", "");
        let [items, answers] = lines(&head, "v.parquet", &decoded(file)).unwrap();
        for (found, expected) in inputs(&items).iter().zip(rows) {
            let expected = expected.as_object().unwrap();
            assert_eq!(found.as_object().unwrap().len(), expected.len() - 1);
            for (name, found) in found.as_object().unwrap() {
                let expected = &expected[name];
                let is_float = ["half", "float"].contains(&name.as_str());
                // Shorter floats have the shortest text that is read as the same number.
                let as_float = |value: &Value| value.as_f64().map(|number| number as f32);
                let is_equal = match is_float {
                    true => as_float(found) == as_float(expected),
                    false => found == expected || is_equal(found, expected),
                };
                assert!(
                    is_equal,
                    "{compression} {name}: {found} instead of {expected}"
                );
            }
        }
        assert_eq!(items.lines().count(), rows.len());
        assert!(answers.starts_with("{\"item_id\":\"row-1\",\"answer\":\"x\"}\n"));
    }
}

#[test]
fn unsupported_types_are_named() {
    for (name, file) in vectors()["unsupported"].as_object().unwrap() {
        let bytes = decoded(file);
        let TableErrors { errors, n_errors } =
            errors(&head("accuracy", "v.parquet", ""), "v.parquet", &bytes);
        assert_eq!(n_errors, 1, "{name}: {errors:?}");
        assert_eq!(
            (errors[0].code, errors[0].field.as_deref()),
            (BadSuiteCode::Type, Some("x"))
        );
        // A dropped column may have any type.
        let dropped = head("accuracy", "v.parquet", "drop = [\"x\"]");
        let [items, _] = lines(&dropped, "v.parquet", &bytes).unwrap();
        assert_eq!(items, "{\"item_id\":\"row-1\",\"input\":{}}\n");
    }
}

#[test]
fn formats_of_one_frame_have_same_commitment() {
    let vectors = vectors();
    let frames = &vectors["frames"];
    let text = |name: &str| frames[name].as_str().unwrap().as_bytes().to_vec();
    let rows: Vec<Value> = String::from_utf8(text("ndjson"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let pretty = serde_json::to_string_pretty(&rows).unwrap().into_bytes();
    let keys = "id = \"row\"\ncluster = \"person\"\ndrop = [\"income\"]";
    let mut found = HashSet::new();
    for (file, bytes) in [
        ("v.csv", text("pandas_csv")),
        ("w.csv", text("arrow_csv")),
        ("v.ndjson", text("ndjson")),
        ("v.json", pretty),
        ("v.parquet", decoded(&frames["parquet"])),
    ] {
        let head = head("accuracy", file, keys).replace("\"y\"", "\"vote\"");
        let [items, answers] = lines(&head, file, &bytes).unwrap();
        let files = Files::from([
            ("suite.toml".to_owned(), head.into_bytes()),
            (file.to_owned(), bytes),
        ]);
        let names = columns(file, &files).unwrap();
        let expected = "row person age score income city day weight vote";
        assert_eq!(names.join(" "), expected, "{file}");
        let folder = read_suite(&files, None).unwrap();
        assert_eq!(folder.n_clusters, Some(12));
        let plain = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\ncluster = \"person\"\n";
        let published = SuiteFolder::parse(plain, &items, &answers).unwrap();
        let commitment = folder.opening([7; 32]).commitment();
        assert_eq!(commitment, published.opening([7; 32]).commitment());
        assert_eq!(folder.content_sha256, published.content_sha256);
        found.insert((items, answers, commitment));
    }
    assert_eq!(found.len(), 1, "{found:#?}");
    let (items, _, _) = found.into_iter().next().unwrap();
    assert!(
        items.starts_with("{\"item_id\":\"r0\",\"input\":{\"age\":76,\"score\":"),
        "{items}"
    );
}

#[test]
fn columns_have_their_roles() {
    let csv = "id,person,party,zip,age,people,y,email\n\
               a,p1,left,007,\"\",12,\"{\"\"yes\"\": 0.25, \"\"no\"\": 0.75}\",x@y.z\n\
               b,p2,right,,30,,yes,\nc,p2,right,,30,,no,\n";
    let data = "id = \"id\"\ncluster = \"person\"\nhidden_groups = [\"party\"]\nn = \"people\"\ndrop = [\"email\"]";
    let [items, answers] = lines(&head("tvd", "v.csv", data), "v.csv", csv.as_bytes()).unwrap();
    assert_eq!(
        items,
        "{\"item_id\":\"a\",\"input\":{\"zip\":\"007\",\"age\":\"\"},\"groups\":{\"person\":\"p1\"}}\n\
         {\"item_id\":\"b\",\"input\":{\"zip\":null,\"age\":\"30\"},\"groups\":{\"person\":\"p2\"}}\n\
         {\"item_id\":\"c\",\"input\":{\"zip\":null,\"age\":\"30\"},\"groups\":{\"person\":\"p2\"}}\n"
    );
    assert_eq!(
        answers,
        "{\"item_id\":\"a\",\"answer\":{\"yes\":0.25,\"no\":0.75},\"n\":12,\"groups\":{\"party\":\"left\"}}\n\
         {\"item_id\":\"b\",\"answer\":\"yes\",\"groups\":{\"party\":\"right\"}}\n\
         {\"item_id\":\"c\",\"answer\":\"no\",\"groups\":{\"party\":\"right\"}}\n"
    );
    let data = "inputs = [\"zip\", \"age\"]\ntext = [\"age\"]\ngroups = [\"person\"]";
    let csv = "age,person,zip,y\n1.50,7,1e3,2.50\n2,8,-0,3\n";
    let [items, answers] = lines(&head("rmse", "v.csv", data), "v.csv", csv.as_bytes()).unwrap();
    assert_eq!(
        items,
        "{\"item_id\":\"row-1\",\"input\":{\"age\":\"1.50\",\"zip\":1000},\"groups\":{\"person\":\"7\"}}\n\
         {\"item_id\":\"row-2\",\"input\":{\"age\":\"2\",\"zip\":0},\"groups\":{\"person\":\"8\"}}\n"
    );
    assert_eq!(
        answers,
        "{\"item_id\":\"row-1\",\"answer\":2.5}\n{\"item_id\":\"row-2\",\"answer\":3}\n"
    );
}

#[test]
fn arrays_are_read_as_lines() {
    let head = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";
    let items = "[\n {\"item_id\": \"a\", \"input\": {\"x\": [1, 2]}},\n {\"item_id\": \"b\",\n  \"input\": {}}\n]";
    let answers =
        "[{\"item_id\": \"a\", \"answer\": \"x\"}, {\"item_id\": \"b\", \"answer\": \"y\"}]";
    let files = |items: &str, answers: &str| {
        let texts = [
            ("suite.toml", head),
            ("items.json", items),
            ("answers.json", answers),
        ];
        texts
            .map(|(name, text)| (name.to_owned(), text.into()))
            .into()
    };
    let found: Files = files(items, answers);
    let folder = read_suite(&found, None).unwrap();
    assert_eq!(folder.items[0].input.get(), "{\"x\":[1,2]}");
    let error = |items: &str, answers: &str| {
        let found: Files = files(items, answers);
        read_suite(&found, None).err().unwrap()[0].to_string()
    };
    assert_eq!(
        error(&items.replace("\"b\"", "\"a\""), answers),
        "items.json:3: item_id \"a\" is repeated; it is also in line 2"
    );
    assert_eq!(
        error(items, &answers.replace("\"b\"", "\"c\"")),
        "items.json:3: item \"b\" has no answer in answers.json"
    );
    assert_eq!(
        error(items, "[1"),
        "answers.json:1: ends before the array does"
    );
    assert_eq!(
        error("[{\"item_id\": NaN}]", answers),
        "items.json:1: is not valid JSON; NaN and infinity are not numbers"
    );
}

#[test]
fn errors_name_line_column_and_kind() {
    use BadSuiteCode as Code;
    let long = format!("id,y\n{},a\n", "x".repeat(513));
    let large = format!("id,y\na,{}\n", "x".repeat(64 * 1024));
    let record = format!("id,y\na,{}\n", "x".repeat(1024 * 1024));
    let input = format!("id,x,y\na,{},b\n", "x".repeat(256 * 1024));
    let wide = (0..1_001).map(|at| format!("c{at},")).collect::<String>() + "y\n";
    let id = "id = \"id\"";
    for (data, csv, code, line, column) in [
        (id, "id,y\na\n", Code::Syntax, 2, None),
        (id, "id,y\na,\"b\nc\n", Code::Syntax, 2, None),
        (id, "id,y\na,b\"c\n", Code::Syntax, 2, None),
        (id, "id,y\ra,b\r", Code::Syntax, 1, None),
        (id, "id,y,id\na,b,c\n", Code::Duplicate, 1, None),
        (id, "", Code::Required, 0, None),
        (id, "id,y\n", Code::Required, 0, None),
        (id, "key,y\na,b\n", Code::UnknownColumn, 1, None),
        (id, "id,answer\na,b\n", Code::UnknownColumn, 1, None),
        ("", "x,,y\n1,2,3\n", Code::Value, 1, Some(2)),
        (id, "id,y\na,\n", Code::Required, 2, Some(2)),
        (id, "id,y\n,b\n", Code::Required, 2, Some(1)),
        (id, "id,y\n\"\",b\n", Code::Required, 2, Some(1)),
        (id, "id,y\na,b\n\na,c\n", Code::Duplicate, 4, Some(1)),
        (id, &long, Code::TooLong, 2, Some(1)),
        (id, &large, Code::Metric, 2, Some(2)),
        (id, &record, Code::TooLong, 2, None),
        (id, &input, Code::TooLong, 2, None),
        ("", &wide, Code::TooLong, 1, None),
        (id, "id,y\na,[1\n", Code::Syntax, 2, Some(2)),
        (id, "id,x,y\na,1e999,b\n", Code::Value, 2, Some(2)),
        ("cluster = \"p\"", "p,y\n,b\n", Code::Required, 2, Some(1)),
        ("cluster = \"p\"", "p,y\n\"\",b\n", Code::Value, 2, Some(1)),
        ("n = \"p\"", "p,y\n0,b\n", Code::Type, 2, Some(1)),
        ("n = \"p\"", "p,y\n7,b\n", Code::Metric, 2, Some(2)),
    ] {
        let TableErrors { errors, n_errors } =
            errors(&head("accuracy", "v.csv", data), "v.csv", csv.as_bytes());
        let shown: String = csv.chars().take(60).collect();
        assert!(n_errors >= 1, "{shown}");
        let first = &errors[0];
        assert_eq!(
            (first.code, first.line, first.column),
            (code, line, column),
            "{shown}: {first:?}"
        );
        assert_eq!(first.file, "v.csv");
    }
    let latin = errors(
        &head("accuracy", "v.csv", ""),
        "v.csv",
        b"x,y\n\xe9,a\nb,c\n\xe9,d\n",
    );
    assert_eq!(
        (latin.n_errors, latin.errors[0].code, latin.errors[1].line),
        (2, Code::Encoding, 4)
    );
    for (metric, y, code) in [
        ("rmse", "x", Code::Type),
        ("rmse", "1e999", Code::Value),
        ("auc", "x", Code::Metric),
    ] {
        let csv = format!("x,y\n1,{y}\n2,{y}\n");
        let found = errors(&head(metric, "v.csv", ""), "v.csv", csv.as_bytes());
        assert_eq!(found.errors[0].code, code, "{metric} {y}");
    }
    let many: String = (0..250).map(|at| format!("i{at},\n")).collect();
    let found = errors(
        &head("accuracy", "v.csv", id),
        "v.csv",
        format!("id,y\n{many}").as_bytes(),
    );
    assert_eq!((found.errors.len(), found.n_errors), (100, 250));
    assert_eq!(found.errors[99].line, 101);
    for (file, text, code, line) in [
        (
            "v.ndjson",
            "{\"y\": \"a\"}\n{\"y\": \"a\", \"x\": 1}\n",
            Code::UnknownColumn,
            2,
        ),
        (
            "v.ndjson",
            "{\"y\": \"a\", \"y\": \"b\"}\n",
            Code::Duplicate,
            1,
        ),
        (
            "v.ndjson",
            "{\"y\": \"a\"}\n\n{\"y\": \"a\", \"y\": \"b\"}\n",
            Code::Duplicate,
            3,
        ),
        ("v.ndjson", "{\"y\": \"a\"}\n[1]\n", Code::Type, 2),
        ("v.ndjson", "{\"y\": NaN}\n", Code::Syntax, 1),
        ("v.ndjson", "{\"y\": \"\\ud800\"}\n", Code::Value, 1),
        (
            "v.ndjson",
            "{\"x\": {\"a\": 1e999}, \"y\": \"a\"}\n",
            Code::Syntax,
            1,
        ),
        ("v.ndjson", "", Code::Required, 0),
        ("v.json", "{}", Code::Syntax, 1),
        (
            "v.json",
            "[\n{\"y\": \"a\"},\n{\"y\": null}\n]",
            Code::Required,
            3,
        ),
        ("v.parquet", "PAR1 and so on PAR1", Code::Syntax, 0),
    ] {
        let found = errors(&head("accuracy", file, ""), file, text.as_bytes());
        let first = found.errors.first().unwrap_or_else(|| panic!("{text}"));
        assert_eq!((first.code, first.line), (code, line), "{text}: {first:?}");
    }
    let missing = errors(&head("accuracy", "v.csv", ""), "w.csv", b"");
    assert_eq!(missing.errors[0].code, Code::Required);
}

#[test]
fn errors_quote_no_answer() {
    const CANARY: &str = "CANARY77";
    let id = "id = \"id\"";
    for (metric, data, file, text) in [
        ("rmse", id, "v.csv", "id,y\na,CANARY77\n"),
        ("rmse", id, "v.csv", "id,y\na,[CANARY77\n"),
        ("accuracy", id, "v.csv", "id,y\na,\"CANARY77\n"),
        ("accuracy", id, "v.csv", "id,y\na,CANARY77\"\n"),
        ("accuracy", id, "v.csv", "id,y\na,CANARY77,CANARY77\n"),
        (
            "accuracy",
            id,
            "v.csv",
            "CANARY77,CANARY77\nCANARY77,CANARY77\n",
        ),
        ("accuracy", id, "v.csv", "a,CANARY77\nb,CANARY77\n"),
        ("accuracy", id, "v.csv", "id,y\na,CANARY77\na,CANARY77\n"),
        (
            "accuracy",
            id,
            "v.csv",
            "id,y\na,\"{\"\"CANARY77\"\": \"\"CANARY77\"\"}\"\n",
        ),
        (
            "accuracy",
            id,
            "v.csv",
            "id,y\na,\"[\"\"CANARY77\"\", \"\"CANARY77\"\"]\"\n",
        ),
        ("auc", id, "v.csv", "id,y\na,CANARY77\nb,x\nc,CANARY77y\n"),
        ("auc", id, "v.csv", "id,y\na,CANARY77\n"),
        ("tvd", id, "v.csv", "id,y\na,\"{\"\"CANARY77\"\": 0.5}\"\n"),
        (
            "accuracy",
            id,
            "v.ndjson",
            "{\"id\": \"a\", \"y\": CANARY77}\n",
        ),
        (
            "accuracy",
            id,
            "v.ndjson",
            "{\"id\": \"a\", \"y\": \"CANARY77\n",
        ),
        (
            "accuracy",
            id,
            "v.ndjson",
            "{\"id\": \"a\", \"y\": {\"CANARY77\": \"CANARY77\"}}\n",
        ),
        (
            "accuracy",
            id,
            "v.ndjson",
            "{\"id\": \"a\", \"y\": \"a\"}\n{\"id\": \"b\", \"CANARY77\": \"a\"}\n",
        ),
        (
            "accuracy",
            id,
            "v.ndjson",
            "{\"id\": \"a\", \"y\": \"CANARY77\", \"y\": \"CANARY77\"}\n",
        ),
        ("accuracy", id, "v.ndjson", "\"CANARY77\"\n"),
        (
            "rmse",
            id,
            "v.json",
            "[{\"id\": \"a\", \"y\": \"CANARY77\"}]",
        ),
        (
            "accuracy",
            id,
            "v.json",
            "[{\"id\": \"a\", \"y\": \"CANARY77\"}",
        ),
        ("accuracy", id, "v.json", "[CANARY77]"),
        ("accuracy", id, "v.parquet", "PAR1CANARY77PAR1"),
    ] {
        let found = errors(&head(metric, file, data), file, text.as_bytes());
        assert!(found.n_errors > 0, "{text}");
        assert!(!format!("{found:?}").contains(CANARY), "{text}: {found:?}");
    }
    let bytes = vectors()["parquet"]["files"]["none"].clone();
    let mut bytes = decoded(&bytes);
    // A page that is cut, and a footer that is not.
    bytes[200..2_000].fill(0xff);
    let found = errors(&head("accuracy", "v.parquet", ""), "v.parquet", &bytes);
    assert!(found.n_errors > 0);
}

/// The library of Parquet panics on some of these files.
#[test]
fn damaged_parquet_gives_lines_or_errors() {
    let original = decoded(&vectors()["frames"]["parquet"]);
    let head = head("accuracy", "v.parquet", "id = \"row\"").replace("\"y\"", "\"vote\"");
    let mut random = StdRng::seed_from_u64(7);
    let mut n_errors = 0;
    for _ in 0..2_000 {
        let mut bytes = original.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = random.random(),
                1 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << random.random_range(0..8),
            }
        }
        match lines(&head, "v.parquet", &bytes) {
            Ok([items, answers]) => assert_eq!(items.lines().count(), answers.lines().count()),
            Err(found) => {
                assert!(found.errors.iter().all(|error| error.message.len() < 300));
                n_errors += 1;
            }
        }
    }
    assert!(n_errors > 200, "{n_errors}");
}

/// Random bytes in CSV and JSON give lines that a suite takes, or errors.
#[test]
fn random_tables_give_lines_or_errors() {
    let pieces = [
        "y",
        "id",
        ",",
        "\"",
        "\n",
        "\r\n",
        "1",
        "-0",
        "1e9",
        "007",
        "x",
        "ü",
        "[",
        "]",
        "{",
        "}",
        ":",
        "null",
        "\\",
        "\\u00e9",
        " ",
        "true",
        "\u{feff}",
        "\0",
        "\"y\"",
        "\"id\"",
        "{\"y\":\"a\",\"id\":1}",
        "id,y\n",
    ];
    let mut random = StdRng::seed_from_u64(7);
    let mut n_valid = 0;
    for round in 0..20_000 {
        let file = ["v.csv", "v.ndjson", "v.json"][round % 3];
        let mut text = match (file, round % 2) {
            ("v.csv", 0) => String::from("id,y\n"),
            ("v.json", 0) => String::from("[{\"y\":\"a\",\"id\":1}"),
            _ => String::new(),
        };
        for _ in 0..random.random_range(0..12) {
            text += pieces[random.random_range(0..pieces.len())];
        }
        let metric = ["accuracy", "rmse", "ndcg@3"][round % 5 % 3];
        let id = ["", "id = \"id\""][round % 7 % 2];
        let Ok([items, answers]) = lines(&head(metric, file, id), file, text.as_bytes()) else {
            continue;
        };
        let plain = format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n");
        let folder = SuiteFolder::parse(&plain, &items, &answers)
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
        // The lines are those that are published.
        assert_eq!(folder.items.len(), items.lines().count());
        n_valid += 1;
    }
    assert!(n_valid > 50, "{n_valid}");
}
