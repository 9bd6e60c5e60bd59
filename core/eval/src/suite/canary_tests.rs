//! No error about hidden files quotes a value.

use std::collections::HashSet;

use super::bad_suite::{BadSuite, BadSuiteCode};
use super::suite_files::in_memory;
use super::{SuiteDefinition, SuiteFolder};

/// In each hidden value of the inputs below.
const CANARY: &str = "CANARY77";

/// The number in each hidden number.
const NUMBER: &str = "77031";

/// Returns the error of a suite with 60 items whose answers are these in turn.
fn error(metric: &str, keys: &str, answers: &[&str], others: &[(&str, &str)]) -> Option<BadSuite> {
    let head = format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n{keys}\n");
    SuiteDefinition::parse(&head).unwrap();
    let line = |at: usize| format!("{{\"item_id\":\"i{at}\",\"input\":{{}}}}\n");
    let items: String = (0..60).map(line).collect();
    let answer = |at: usize| {
        let answer = answers[at % answers.len()];
        match answer.strip_prefix("LINE ") {
            Some(line) => format!("{line}\n"),
            None => format!("{{\"item_id\":\"i{at}\",\"answer\":{answer}}}\n"),
        }
    };
    let answers: String = (0..60).map(answer).collect();
    let files = in_memory(&head, &items, &answers, others.iter().copied());
    let errors = SuiteFolder::read_files(&files, None).err()?;
    errors.into_iter().next()
}

#[test]
fn errors_of_hidden_files_quote_no_value() {
    const SEALED: &str =
        "release = \"sealed(0.1)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z";
    const BASELINE: &str =
        "[[baselines]]\nname = \"People\"\nfile = \"people.ndjson\"\nkind = \"human\"";
    const BASELINE_CSV: &str =
        "[[baselines]]\nname = \"People\"\nfile = \"people.csv\"\nkind = \"human\"";
    let long = format!("\"{}\"", CANARY.repeat(9_000));
    let text = format!("\"{CANARY}\"");
    let mut n = 0;
    let mut codes = HashSet::new();
    let mut check = |found: Option<BadSuite>, input: &str| {
        let found = found.unwrap_or_else(|| panic!("no error: {input}"));
        let shown = format!(
            "{found} {found:?} {}",
            serde_json::to_string(&found).unwrap()
        );
        assert!(
            !shown.contains(CANARY) && !shown.contains(NUMBER),
            "{input}: {shown}"
        );
        codes.insert(found.code);
        n += 1;
    };
    for (metric, answers) in [
        ("accuracy", &["77031"][..]),
        ("accuracy", &["{\"CANARY77\":-77031}"]),
        ("accuracy", &["{\"CANARY77\":1e101}"]),
        ("accuracy", &["{\"CANARY77\":\"CANARY77\"}"]),
        ("accuracy", &["{\"CANARY77\":0}"]),
        ("accuracy", &["[\"CANARY77\",\"CANARY77\"]"]),
        ("accuracy", &["[77031]"]),
        ("accuracy", &["\"CANARY77\\u0000\""]),
        ("accuracy", &["[\"CANARY77\\u0000\"]"]),
        ("accuracy", &["\"CANARY77\\x\""]),
        ("accuracy", &["\"CANARY77"]),
        ("accuracy", &["CANARY77"]),
        ("accuracy", &["NaN"]),
        ("accuracy", &["true"]),
        ("accuracy", &[&long]),
        ("exact_match", &["{\"CANARY77\":1}"]),
        ("f1_macro", &["[\"CANARY77\"]"]),
        ("auc", &["77031"]),
        ("auc", &["\"CANARY77\"", "\"x\"", "\"CANARY77y\""]),
        ("auc", &["\"CANARY77\""]),
        ("auc_ovr", &["\"CANARY77\"", "\"x\""]),
        ("mcc", &["\"CANARY77\""]),
        ("rmse", &["77031"]),
        ("rmse", &["\"CANARY77\""]),
        ("rmse", &["77031e60"]),
        ("rmse", &["77031e600"]),
        ("r2", &["77031", "77031"]),
        ("tvd", &["{\"CANARY77\":0.77031,\"b\":0.5}"]),
        ("tvd", &["{\"CANARY77\":-0.77031,\"b\":0.5}"]),
        ("tvd", &["{\"CANARY77\":1}"]),
        ("tvd", &["{\"CANARY77\":0.5,\"CANARY77\":0.5}"]),
        ("tvd", &["[\"CANARY77\"]"]),
        ("wasserstein", &["\"CANARY77\"", "\"x\""]),
        ("jsd", &["\"CANARY77\""]),
        ("accuracy", &["\"x\",\"CANARY77\":1"]),
        ("accuracy", &["\"CANARY77\",\"n\":77031"]),
        ("tvd", &["{\"a\":0.5,\"CANARY77\":0.5},\"n\":-77031"]),
        ("tvd", &["{\"a\":0.5,\"CANARY77\":0.5},\"n\":\"CANARY77\""]),
        ("accuracy", &["\"x\",\"groups\":{\"person\":77031}"]),
        ("accuracy", &["\"x\",\"groups\":\"CANARY77\""]),
        (
            "accuracy",
            &["\"x\",\"groups\":{\"person\":\"CANARY77\\n\"}"],
        ),
        ("accuracy", &["\"x\",\"answer\":\"CANARY77\""]),
        ("accuracy", &["LINE \"CANARY77\""]),
        (
            "accuracy",
            &["LINE {\"item_id\":77031,\"answer\":\"CANARY77\"}"],
        ),
        ("accuracy", &["LINE {\"item_id\":\"i0\",\"CANARY77\":1}"]),
        (
            "accuracy",
            &["LINE {\"item_id\":\"\",\"answer\":\"CANARY77\"}"],
        ),
        (
            "accuracy",
            &["LINE {\"item_id\":\"i0\",\"answer\":\"CANARY77\"}"],
        ),
        (
            "accuracy",
            &[
                "LINE {\"item_id\":\"other\",\"answer\":\"CANARY77\"}",
                "\"x\"",
            ],
        ),
    ] {
        check(error(metric, "", answers, &[]), &answers.concat());
    }
    let labels = "labels = [\"a\", \"b\"]";
    for (metric, answers) in [
        ("tvd", &["{\"a\":0.5,\"CANARY77\":0.5}"][..]),
        ("brier", &["\"CANARY77\""]),
        ("kappa_quadratic", &["\"CANARY77\"", "\"a\""]),
    ] {
        check(error(metric, labels, answers, &[]), &answers.concat());
    }
    let rare: Vec<&str> = (0..60)
        .map(|at| if at == 7 { "\"x\"" } else { text.as_str() })
        .collect();
    check(error("mcc", SEALED, &rare, &[]), "sealed");
    let ladder = "release = \"ladder(0.5)\"";
    let folder = error("accuracy", ladder, &rare, &[]);
    assert!(folder.is_none(), "{folder:?}");
    let unknown = "{\"item_id\":\"other\",\"answers\":[\"CANARY77\"]}\n";
    let others = [("retest.ndjson", unknown)];
    check(error("accuracy", "", &[&text, "\"x\""], &others), unknown);
    for answers in [
        "CANARY77",
        "[77031]",
        "[]",
        "\"CANARY77\"",
        "{\"CANARY77\":1}",
        "[\"CANARY77\\u0000\"]",
        "[{\"CANARY77\":77031}]",
        "[\"CANARY77\"],\"CANARY77\":1",
        "[\"CANARY77\"]",
    ] {
        let retest = format!("{{\"item_id\":\"i0\",\"answers\":{answers}}}\n");
        let others = [("retest.ndjson", retest.as_str())];
        check(error("accuracy", "", &[&text, "\"x\""], &others), &retest);
    }
    for answers in [
        "[{\"CANARY77\":0.77031,\"x\":0.1}]",
        "[{\"CANARY77\":1.77031}]",
        "[{\"CANARY77\":0.5,\"CANARY77\":0.5}]",
        "[\"CANARY77\"]",
        "[77031]",
    ] {
        let retest = format!("{{\"item_id\":\"i0\",\"answers\":{answers}}}\n");
        let others = [("retest.ndjson", retest.as_str())];
        check(error("brier", "", &[&text, "\"x\""], &others), &retest);
    }
    for (metric, prediction) in [
        ("accuracy", "77031"),
        ("accuracy", "{\"CANARY77\":\"CANARY77\"}"),
        ("accuracy", "\"CANARY77\\u0000\""),
        ("accuracy", "\"CANARY77"),
        ("accuracy", "CANARY77"),
        (
            "accuracy",
            "\"CANARY77\"}\n{\"item_id\":\"i0\",\"prediction\":\"CANARY77\"",
        ),
        ("brier", "{\"CANARY77\":0.77031,\"x\":0.5}"),
        ("brier", "{\"CANARY77\":1.77031}"),
        ("brier", "{\"CANARY77\":0.5,\"CANARY77\":0.5}"),
        ("brier", "\"CANARY77\""),
    ] {
        let file = format!("{{\"item_id\":\"i0\",\"prediction\":{prediction}}}\n");
        let others = [("people.ndjson", file.as_str())];
        check(error(metric, BASELINE, &[&text, "\"x\""], &others), &file);
    }
    for file in [
        "CANARY77,b\nCANARY77,CANARY77\n",
        "item_id,prediction\ni0,\"CANARY77\n",
        "item_id,prediction\ni0,CANARY77,CANARY77\n",
        "item_id,prediction\nother,CANARY77\n",
    ] {
        let others = [("people.csv", file)];
        check(
            error("accuracy", BASELINE_CSV, &[&text, "\"x\""], &others),
            file,
        );
    }
    assert!(n > 75);
    for code in [
        BadSuiteCode::Syntax,
        BadSuiteCode::Required,
        BadSuiteCode::Type,
        BadSuiteCode::Duplicate,
        BadSuiteCode::Unmatched,
        BadSuiteCode::Metric,
        BadSuiteCode::Seal,
    ] {
        assert!(codes.contains(&code), "{code:?}");
    }
}

#[test]
fn warnings_quote_no_answer() {
    let head =
        "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"f1_macro\"\ncluster = \"person\"\n";
    let (mut items, mut answers) = (String::new(), String::new());
    for at in 0..60 {
        items += &format!(
            "{{\"item_id\":\"i{at}\",\"input\":{{}},\"groups\":{{\"person\":\"p{at}\"}}}}\n"
        );
        let answer = if at % 9 == 0 { CANARY } else { "x" };
        answers += &format!("{{\"item_id\":\"i{at}\",\"answer\":\"{answer}\"}}\n");
    }
    let warnings = SuiteFolder::parse(head, &items, &answers)
        .unwrap()
        .lint()
        .unwrap();
    assert!(
        !warnings.is_empty() && !warnings.concat().contains(CANARY),
        "{warnings:?}"
    );
}
