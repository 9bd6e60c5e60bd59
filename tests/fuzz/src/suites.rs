//! What operators publish: the three texts of a suite's folder, with lines of `%%` between them, and a model's card.

use std::collections::HashSet;

use assay_core::Answer;
use assay_core::model::ModelFile;
use assay_core::suite_folder::{FolderItem, SuiteFolder};
use serde_json::{Value, json};

/// What is taken is whole and consistent, and written anew it is the same suite; what is refused is told with its file.
pub fn suites(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parts: Vec<&str> = text.split("\n%%\n").collect();
    if let [suite, items, answers] = parts[..] {
        match SuiteFolder::parse(suite, items, answers) {
            Ok(folder) => taken(&folder),
            Err(error) => {
                let told = error.to_string();
                assert!(["suite.toml", "items.ndjson", "answers.ndjson"].iter().any(|file| told.starts_with(file)), "{told}");
            }
        }
    }
    if let Ok(file) = serde_json::from_str::<ModelFile>(text) {
        let again: ModelFile = serde_json::from_value(serde_json::to_value(&file).unwrap()).unwrap();
        assert_eq!(file.faults(), again.faults());
    }
}

fn taken(folder: &SuiteFolder) {
    let SuiteFolder { suite_id, version, metric, per_item_feedback, description, release, max_submissions_per_day, items, content_sha256 } =
        folder;
    assert!(!items.is_empty());
    let mut seen = HashSet::new();
    for FolderItem { item_id, input, answer } in items {
        assert!(seen.insert(item_id) && (1..=512).contains(&item_id.len()) && !item_id.contains('\0'));
        assert!(serde_json::from_str::<Value>(input.get()).unwrap().is_object());
        assert!(!Answer::parse(answer.get(), metric).unwrap().relevant().is_empty());
    }
    let head = [
        ("suite_id", json!(suite_id.as_str())),
        ("version", json!(version)),
        ("metric", json!(metric.to_string())),
        ("per_item_feedback", json!(per_item_feedback)),
        ("release", json!(release.to_string())),
    ];
    let mut suite: String = head.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    suite += &max_submissions_per_day.map_or_else(String::new, |max| format!("max_submissions_per_day = {max}\n"));
    // TOML writes texts like JSON, but for one character.
    suite += &format!("description = {}\n", json!(description).to_string().replace('\u{7f}', "\\u007f"));
    let line = |item: &FolderItem, name: &str, value: &str| format!("{{\"item_id\": {}, \"{name}\": {value}}}\n", json!(item.item_id));
    // A value may go over several lines nowhere, but within it there may be a carriage return.
    let of = |name: &str, value: fn(&FolderItem) -> &str| items.iter().map(|item| line(item, name, value(item))).collect::<String>();
    let again = SuiteFolder::parse(&suite, &of("input", |item| item.input.get()), &of("answer", |item| item.answer.get()));
    let again = again.unwrap_or_else(|error| panic!("{error}\n{suite}"));
    assert_eq!(again.content_sha256, *content_sha256);
    assert_eq!(again.items.len(), items.len());
}
