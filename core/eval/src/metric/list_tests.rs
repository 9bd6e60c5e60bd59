//! Lists of the metrics in other files, which follow from the table. `TEST_WRITE_METRICS=1 cargo test -p
//! assay-eval metric::` writes them.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::table::ROWS;
use super::{Family, K, Metric, names};

/// Checks the text of a file of the repository, or writes it.
fn assert_current(path: &Path, text: &str) {
    if std::env::var_os("TEST_WRITE_METRICS").is_some() {
        std::fs::write(path, text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == text,
        "{} is out of date: run TEST_WRITE_METRICS=1 cargo test -p assay-eval metric::",
        path.display()
    );
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

#[test]
fn guide_lists_metrics_by_prediction() {
    const HEAD: &str = "| metrics | a prediction is |\n|---|---|\n";
    let path = in_repository("docs/guide.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once(HEAD).unwrap();
    let (table, after) = rest.split_once("\n\n").unwrap();
    // The rows of the document, in its order.
    let rows: [fn(Metric) -> bool; 6] = [
        |metric| metric.family() == Family::Rankings && !metric.compares_sets(),
        Metric::compares_sets,
        |metric| metric.family() == Family::Labels,
        |metric| metric.family() == Family::Numbers,
        |metric| metric.family() == Family::Probabilities,
        |metric| metric.family() == Family::Quantiles,
    ];
    assert_eq!(table.lines().count(), rows.len());
    let lines = table.lines().zip(rows).map(|(line, has_property)| {
        let (_, form) = line.split_once(" | ").unwrap();
        format!("| `{}` | {form}", names(has_property).join("`, `"))
    });
    let table = lines.collect::<Vec<_>>().join("\n");
    assert_current(&path, &format!("{before}{HEAD}{table}\n\n{after}"));
}

/// The Python client reads these lists, whose names end before the `@`.
#[test]
fn clients_list_metrics_by_prediction() {
    let names = |has_property: &dyn Fn(Metric) -> bool| -> Vec<&str> {
        let rows = ROWS.iter();
        let rows = rows.filter(|row| has_property(row.metric(K::DEFAULT)));
        rows.filter_map(|row| row.name.split('@').next()).collect()
    };
    let form = |family: Family| names(&|metric| metric.family() == family);
    let lists = json!({
        "description": "The metrics by the form of their predictions, and those that need a prediction for each item. Written by a test from the table in core/eval/src/metric/table.rs.",
        "by_prediction": {
            "rankings": form(Family::Rankings),
            "labels": form(Family::Labels),
            "numbers": form(Family::Numbers),
            "probabilities": form(Family::Probabilities),
            "quantiles": form(Family::Quantiles),
        },
        "of_all_items": names(&Metric::needs_all_predictions),
    });
    let text = serde_json::to_string_pretty(&lists).unwrap() + "\n";
    assert_current(&in_repository("clients/metrics.json"), &text);
}
