//! Operators' input: the catalog of a suite of rankings.

use std::collections::HashSet;
use std::ops::ControlFlow;

use assay_eval::prediction;
use assay_eval::score::{Builder, Catalog, Progress, Scorer};
use assay_eval::suite::{CatalogLine, FolderCatalog};
use assay_eval::{Answer, Metric};
use serde_json::json;

use super::json::Json;

/// A catalog is accepted exactly if a plain parser finds an id and a popularity in each line. It equals
/// itself after being written and read, and its figures are finite.
pub fn catalogs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let expected = plain(text);
    match FolderCatalog::parse(text, Metric::Accuracy) {
        Ok((folder, catalog)) => {
            assert_eq!(Some(&folder.lines), expected.as_ref());
            assert_eq!(catalog.len(), folder.lines.len());
            assert_round_trip(&folder);
            assert_figures(&folder.lines, catalog);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("catalog.ndjson"), "{message}");
            assert_eq!(expected, None, "{message}");
        }
    }
    assert!(FolderCatalog::parse(text, Metric::Mae).is_err());
}

/// Returns the lines of a catalog, or `None` if one of them is invalid.
fn plain(text: &str) -> Option<Vec<CatalogLine>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut ids = HashSet::new();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Option<Vec<CatalogLine>> = lines
        .map(|line| {
            let line = Json::read(line.as_bytes())?;
            let Json::Object(fields) = &line else {
                return None;
            };
            let [Json::Text(id)] = line.at("id")[..] else {
                return None;
            };
            let [Json::Number(popularity)] = line.at("popularity")[..] else {
                return None;
            };
            let is_valid = fields.len() == 2
                && (1..=512).contains(&id.len())
                && !id.contains('\0')
                && popularity.is_finite()
                && *popularity > 0.0;
            (is_valid && ids.insert(id.clone())).then(|| CatalogLine {
                id: id.clone(),
                popularity: *popularity,
            })
        })
        .collect();
    lines.filter(|lines| !lines.is_empty())
}

fn assert_round_trip(folder: &FolderCatalog) {
    let mut written = Vec::new();
    folder
        .lines
        .iter()
        .for_each(|line| line.write(&mut written));
    let written = String::from_utf8(written).unwrap();
    let again = FolderCatalog::parse(&written, Metric::Accuracy);
    let (again, _) = again.unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(again.lines, folder.lines);
    assert_eq!(again.sha256, folder.sha256);
}

/// Shows the first ten ids, once each.
fn assert_figures(lines: &[CatalogLine], catalog: Catalog) {
    let shown: Vec<&str> = lines.iter().take(10).map(|line| line.id.as_str()).collect();
    let mut builder = Builder::new(Metric::Accuracy, 1);
    builder.push("i", &Answer::Label("a".into())).unwrap();
    let mut table = builder.finish().unwrap();
    table.set_catalog(catalog);
    let predictions = json!([{"item_id": "i", "prediction": shown}]).to_string();
    let progress = Progress::default();
    let mut scorer = Scorer::new(&table, Metric::Accuracy, &progress);
    let read = prediction::read(predictions.as_bytes(), &mut scorer);
    assert!(matches!(read, Ok(ControlFlow::Continue(()))));
    let metrics = scorer.finish().unwrap().figures.public_metrics;
    let covered = shown.len() as f64 / lines.len() as f64;
    assert_eq!(metrics["coverage@10"], covered);
    assert!((0.0..=1.0).contains(&metrics["gini@10"]), "{metrics:?}");
    for name in ["popularity@10", "novelty@10"] {
        assert!(
            metrics[name].is_finite() && metrics[name] >= 0.0,
            "{metrics:?}"
        );
    }
}
