//! What `docs/promises.md` and `docs/threats.md` name as proof is there, and no row goes without.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// The last cells of a document's tables whose heads end with `proof`.
fn proofs(document: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs").join(document)).unwrap();
    let (mut found, mut within) = (Vec::new(), false);
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

/// Whether there is such a test: `file::test` of this folder, or `path/to/file.rs::test`.
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
        root().join(format!("tests/platform/{place}.rs"))
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

/// What is wrong with a row, if anything is.
fn fault(proof: &str, may_be_accepted: bool) -> Option<String> {
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
fn every_promise_and_every_threat_has_tests_that_are_there() {
    for (document, least, may_be_accepted) in [("promises.md", 50, false), ("threats.md", 30, true)]
    {
        let rows = proofs(document);
        assert!(
            rows.len() >= least,
            "docs/{document} has only {} rows",
            rows.len()
        );
        let faults: Vec<_> = rows
            .iter()
            .filter_map(|(what, proof)| {
                Some(format!(
                    "docs/{document}: {what}: {}",
                    fault(proof, may_be_accepted)?
                ))
            })
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn a_row_without_a_test_or_with_one_that_is_not_there_is_noticed() {
    let here = "promises::a_row_without_a_test_or_with_one_that_is_not_there_is_noticed";
    assert_eq!(fault(&format!("`{here}`"), false), None);
    for (proof, may_be_accepted) in [
        ("", false),
        ("some day", true),
        ("**accepted**: so be it", false),
        ("`promises::no_such_test`", true),
        // There is such a function, and it is no test.
        ("`promises::is_there`", true),
        ("`nowhere::is_there`", true),
        ("`fuzz::no_such_target`", true),
        (&format!("`{here}` `promises::no_such_test`"), false),
    ] {
        assert!(fault(proof, may_be_accepted).is_some(), "{proof}");
    }
}
