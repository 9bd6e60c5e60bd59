//! Checks that every row of `docs/promises.md` and `docs/threats.md` names tests as proof, and that
//! these tests exist.

use std::path::{Path, PathBuf};

use assay_tests::service_report::{Section, chart, replace_tables};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Returns the last cells of a document's tables whose header ends with `proof`.
fn proofs(document: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs").join(document)).unwrap();
    let mut found = Vec::new();
    let mut within = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let last = cells[cells.len() - 1];
        match line.starts_with('|') {
            false => within = false,
            true if last == "proof" => within = true,
            true if within && !line.starts_with("|--") => {
                found.push((cells[0].to_owned(), last.to_owned()));
            }
            true => {}
        }
    }
    found
}

/// Returns `true` if the test exists: `file::test` or `folder::file::test` of this folder, or
/// `path/to/file.rs::test`.
fn is_there(test: &str) -> bool {
    let Some((place, name)) = test.rsplit_once("::") else {
        return false;
    };
    if place == "fuzz" {
        return root()
            .join(format!("tests/fuzz/targets/{name}.rs"))
            .exists();
    }
    let path = if place.ends_with(".rs") {
        root().join(place)
    } else {
        let file = place.replace("::", "/");
        root().join(format!("tests/platform/{file}.rs"))
    };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_its = |line: &str| {
        line.starts_with(&format!("fn {name}(")) || line.starts_with(&format!("async fn {name}("))
    };
    let Some(at) = lines.iter().position(|line| is_its(line)) else {
        return false;
    };
    lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with('#'))
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

/// Returns the problem of a row's proof, or `None` if all its tests exist.
fn problem(proof: &str, may_be_accepted: bool) -> Option<String> {
    let tests: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
    if tests.is_empty() && !(may_be_accepted && proof.contains("**accepted**")) {
        return Some(String::from("nothing proves it"));
    }
    tests
        .into_iter()
        .find(|test| !is_there(test))
        .map(|test| format!("there is no test {test}"))
}

#[test]
fn promises_and_threats_name_existing_tests() {
    for (document, least, may_be_accepted) in [("promises.md", 50, false), ("threats.md", 30, true)]
    {
        let rows = proofs(document);
        assert!(
            rows.len() >= least,
            "docs/{document} has only {} rows",
            rows.len()
        );
        let problems: Vec<_> = rows
            .iter()
            .filter_map(|(what, proof)| {
                Some(format!(
                    "docs/{document}: {what}: {}",
                    problem(proof, may_be_accepted)?
                ))
            })
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// The tables and charts of `docs/benchmarks.md` are those of the published figures.
#[test]
fn published_benchmarks_match_their_json() {
    let read = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let page = read("benchmarks.md");
    for section in [Section::Service, Section::Growth] {
        let figures = serde_json::from_str(&read(section.json_file())).unwrap();
        assert_eq!(
            replace_tables(&page, section, &figures).as_deref(),
            Some(&*page)
        );
        assert_eq!(chart(&figures), read(section.chart_file()));
    }
}

#[test]
fn row_with_missing_test_is_reported() {
    let here = "promises::row_with_missing_test_is_reported";
    assert_eq!(problem(&format!("`{here}`"), false), None);
    for (proof, may_be_accepted) in [
        ("", false),
        ("some day", true),
        ("**accepted**: so be it", false),
        ("`promises::no_such_test`", true),
        // The function exists but is not a test.
        ("`promises::is_there`", true),
        ("`nowhere::is_there`", true),
        ("`fuzz::no_such_target`", true),
        (&format!("`{here}` `promises::no_such_test`"), false),
    ] {
        assert!(problem(proof, may_be_accepted).is_some(), "{proof}");
    }
}
