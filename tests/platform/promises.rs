//! Checks that every row of `docs/promises.md` and `docs/threats.md` names tests as proof, and that
//! these tests exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use assay_tests::service_report::{Section, chart, replace_tables};

use crate::harness::list_files;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// A row of a table whose last column is headed `proof`.
struct Row {
    /// The heading above the table.
    section: String,
    /// The first cell.
    what: String,
    /// The last cell.
    proof: String,
}

impl Row {
    /// Returns the tests that the row names.
    fn tests(&self) -> impl Iterator<Item = &str> {
        named_tests(&self.proof)
    }
}

/// Returns the tests that a proof names.
fn named_tests(proof: &str) -> impl Iterator<Item = &str> {
    proof.split('`').skip(1).step_by(2)
}

/// Returns the rows of a document's tables of proofs.
fn proofs(document: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("docs").join(document)).unwrap();
    let mut found = Vec::new();
    let mut within = false;
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let last = cells[cells.len() - 1];
        match line.starts_with('|') {
            false => within = false,
            true if last == "proof" => within = true,
            true if within && !line.starts_with("|--") => {
                found.push(Row {
                    section: section.clone(),
                    what: cells[0].to_owned(),
                    proof: last.to_owned(),
                });
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
    let tests: Vec<&str> = named_tests(proof).collect();
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
            .filter_map(|row| {
                Some(format!(
                    "docs/{document}: {}: {}",
                    row.what,
                    problem(&row.proof, may_be_accepted)?
                ))
            })
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// The documents with tables of proofs.
const DOCUMENTS: [&str; 2] = ["promises.md", "threats.md"];

/// Returns `true` if a document names this platform test as a proof.
pub fn is_proof(test: &str) -> bool {
    proving_tests().contains(test)
}

/// Returns the tests that the documents name as proofs.
fn proving_tests() -> BTreeSet<String> {
    let rows = DOCUMENTS.into_iter().flat_map(proofs);
    rows.flat_map(|row| row.tests().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Returns the platform tests that begin with `long_test!`: they run only with `TEST_ALL=1`.
fn long_tests() -> BTreeSet<String> {
    let folder = root().join("tests/platform");
    let mut found = BTreeSet::new();
    for path in list_files(&folder) {
        let module = path.strip_prefix(&folder).unwrap().with_extension("");
        let module = module.to_string_lossy().replace('/', "::");
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        let Ok(file) = syn::parse_file(&source) else {
            continue;
        };
        for item in file.items {
            let syn::Item::Fn(function) = item else {
                continue;
            };
            if let Some(syn::Stmt::Macro(first)) = function.block.stmts.first()
                && first.mac.path.is_ident("long_test")
            {
                found.insert(format!("{module}::{}", function.sig.ident));
            }
        }
    }
    found
}

/// The default set of tests leaves out the long ones, but it still says something about each kind
/// of promise.
#[test]
fn every_section_has_a_test_of_the_default_set() {
    let long = long_tests();
    let mut sections = BTreeMap::<String, bool>::new();
    for row in proofs("promises.md") {
        let has_default = row.tests().any(|test| !long.contains(test));
        *sections.entry(row.section).or_default() |= has_default;
    }
    let without: Vec<_> = sections.iter().filter(|(_, has)| !**has).collect();
    assert!(without.is_empty(), "{without:?}");
    let proofs = long.intersection(&proving_tests()).count();
    println!(
        "{} tests run only with TEST_ALL=1, and {proofs} of them prove a promise or a defence",
        long.len()
    );
    assert!(proofs > 0, "the long tests are not found");
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
