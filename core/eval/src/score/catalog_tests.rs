//! Figures of the catalog's ids that predictions show.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::Metric;
use crate::suite::answers::Answer;

fn catalog(popularities: &[(&str, f64)]) -> Catalog {
    let mut builder = CatalogBuilder::default();
    for (id, popularity) in popularities {
        builder.push(id, *popularity).unwrap();
    }
    builder.finish().unwrap()
}

/// Returns a table with these items, whose answers are the id `a`.
fn table(metric: Metric, items: impl Iterator<Item = usize>) -> AnswerTable {
    let mut builder = Builder::new(metric, 0);
    for item in items {
        let answer = Answer::parse("\"a\"", &metric).unwrap();
        builder.push(&format!("i{item}"), &answer).unwrap();
    }
    builder.finish().unwrap()
}

/// A catalog and a submission.
struct Case {
    k: u64,
    catalog: Vec<(String, f64)>,
    /// `null` for an item without a prediction.
    rankings: Vec<Value>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let catalog = case["catalog"].as_object().unwrap();
        Self {
            k: case["k"].as_u64().unwrap(),
            catalog: catalog
                .iter()
                .map(|(id, popularity)| (id.clone(), popularity.as_f64().unwrap()))
                .collect(),
            rankings: case["rankings"].as_array().unwrap().clone(),
        }
    }

    /// Returns the metrics with the case's k.
    fn metrics(&self) -> Vec<Metric> {
        let k = self.k;
        let mut names = vec![format!("ndcg@{k}"), format!("hit_rate@{k}")];
        if k == 10 {
            names.extend(["accuracy", "jaccard", "f1_set"].map(str::to_owned));
        }
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    /// Scores the rankings in this order. Every item with a multiple of `sealed_each` is sealed.
    fn score(
        &self,
        metric: Metric,
        order: impl Iterator<Item = usize>,
        sealed_each: usize,
    ) -> Score {
        let n = self.rankings.len();
        let is_sealed = |item: &usize| item.is_multiple_of(sealed_each);
        let mut open = table(metric, (0..n).filter(|item| !is_sealed(item)));
        let sealed = table(metric, (0..n).filter(is_sealed));
        let pairs: Vec<(&str, f64)> = self
            .catalog
            .iter()
            .map(|(id, popularity)| (id.as_str(), *popularity))
            .collect();
        open.set_catalog(catalog(&pairs));
        let line =
            |item: usize| json!({"item_id": format!("i{item}"), "prediction": self.rankings[item]});
        let shown = order.filter(|item| !self.rankings[*item].is_null());
        let mut predictions: Vec<Value> = shown.map(line).collect();
        predictions.push(json!({"item_id": "unmatched", "prediction": [self.catalog[0].0]}));
        let bytes = json!(predictions).to_string();
        let sealed = (!sealed.is_empty()).then_some(&sealed);
        score(
            &open,
            sealed,
            metric,
            bytes.as_bytes(),
            &Progress::default(),
        )
        .unwrap()
    }

    fn figures(&self, metric: Metric) -> BTreeMap<String, f64> {
        let scored = self.score(metric, 0..self.rankings.len(), usize::MAX);
        scored.figures.public_metrics
    }
}

fn cases() -> Vec<Value> {
    let vectors = include_str!("../../../../tests/vectors/catalogs.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    vectors.as_array().unwrap().clone()
}

#[test]
fn figures_agree_with_recbole() {
    let cases = cases();
    assert_eq!(cases.len(), 120);
    let mut worst = [0.0_f64; 2];
    let mut n_undefined = 0;
    for expected in &cases {
        let case = Case::of(expected);
        let is_recbole = expected["recbole"].as_bool().unwrap();
        let expected = expected["figures"].as_object().unwrap();
        n_undefined += usize::from(expected.len() == 1);
        for metric in case.metrics() {
            let found = case.figures(metric);
            assert_eq!(found.len(), expected.len());
            for (name, expected) in expected {
                let found = found[&format!("{name}@{}", case.k)];
                let expected = expected.as_f64().unwrap();
                let far = (found - expected).abs() / expected.abs().max(1.0);
                assert!(far <= 1e-12, "{metric} {name}: {found} {expected}");
                let worst = &mut worst[usize::from(is_recbole)];
                *worst = worst.max(far);
            }
        }
    }
    assert_eq!(n_undefined, 4);
    println!("by definition {:e}, RecBole {:e}", worst[0], worst[1]);
}

#[test]
fn neither_order_nor_seals_change_figures() {
    for expected in cases() {
        let case = Case::of(&expected);
        let n = case.rankings.len();
        let metric = case.metrics()[0];
        let figures = case.figures(metric);
        let backwards = case.score(metric, (0..n).rev(), usize::MAX);
        assert_eq!(backwards.figures.public_metrics, figures);
        for sealed_each in [2, 3] {
            // 7919 is a prime number, so this is a permutation.
            let order = (0..n).map(|item| item * 7919 % n);
            let scored = case.score(metric, order, sealed_each);
            assert_eq!(scored.figures.public_metrics, figures);
            assert!(scored.sealed.unwrap().figures.public_metrics.is_empty());
        }
    }
}

#[test]
fn every_policy_discloses_figures_of_catalog() {
    let case = Case::of(&cases()[0]);
    let figures = case
        .score(
            "accuracy".parse().unwrap(),
            0..case.rankings.len(),
            usize::MAX,
        )
        .figures;
    let names = ["coverage@10", "gini@10", "popularity@10", "novelty@10"];
    let policy = |text: &str| text.parse::<DisclosurePolicy>().unwrap();
    for text in ["exact", "sealed(0.5)"] {
        let shown = policy(text).disclose(figures.clone(), None).unwrap();
        assert_eq!(shown.metrics.len(), figures.metrics.len() + 4);
        for name in names {
            assert_eq!(shown.metrics[name], figures.public_metrics[name]);
        }
        assert!(shown.public_metrics.is_empty());
    }
    let shown = policy("rounded(2)")
        .disclose(figures.clone(), None)
        .unwrap();
    assert_eq!(
        names.map(|name| shown.metrics[name]),
        [0.55, 0.53, 4.93, 7.1]
    );
    let ladder = Ladder {
        start: 0.1,
        step: 0.1,
        levels: 8,
    };
    let mut level = 0;
    let shown = policy("ladder(0.1)").disclose(figures.clone(), Some((ladder, &mut level)));
    assert_eq!(shown.unwrap().metrics, figures.public_metrics);
}

#[test]
fn extreme_popularities_have_finite_figures() {
    let metric: Metric = "hit_rate@3".parse().unwrap();
    let figures = |popularities: &[(&str, f64)], ranking: Value| {
        let mut open = table(metric, 0..1);
        open.set_catalog(catalog(popularities));
        let bytes = json!([{"item_id": "i0", "prediction": ranking}]).to_string();
        let scored = score(&open, None, metric, bytes.as_bytes(), &Progress::default());
        let found = scored.unwrap().figures.public_metrics;
        ["coverage@3", "gini@3", "popularity@3", "novelty@3"].map(|name| found[name])
    };
    let largest = [("a", f64::MAX), ("b", f64::MAX), ("c", 5e-324)];
    assert_eq!(
        figures(&largest, json!(["a"])),
        [1.0 / 3.0, 2.0 / 3.0, f64::MAX, 1.0]
    );
    let [coverage, gini, popularity, novelty] = figures(&largest, json!(["c", "b", "a"]));
    assert_eq!([coverage, gini], [1.0, 0.0]);
    assert!((popularity / f64::MAX - 2.0 / 3.0).abs() < 1e-15);
    assert!(
        (novelty - (1.0 + 1.0 + 1025.0 + 1074.0) / 3.0).abs() < 1e-9,
        "{novelty}"
    );
    assert_eq!(
        figures(&[("a", 5e-324)], json!("a")),
        [1.0, 0.0, 5e-324, 0.0]
    );
}

#[test]
fn scoring_takes_four_bytes_for_each_id() {
    let mut builder = CatalogBuilder::default();
    for id in 0..10_000 {
        builder
            .push(&format!("id-{id:07}"), f64::from(id + 1))
            .unwrap();
    }
    let catalog = builder.finish().unwrap();
    assert_eq!(catalog.job_bytes(), 40_000);
    assert!(catalog.bytes() <= 42 * 10_000, "{}", catalog.bytes());
    let mut open = table(Metric::Accuracy, 0..1);
    let before = open.bytes();
    let bytes = catalog.bytes();
    open.set_catalog(catalog);
    assert_eq!(open.bytes(), before + bytes);
}

#[test]
fn bad_ids_are_rejected() {
    let mut builder = CatalogBuilder::default();
    assert_eq!(builder.push("a", 1.0), Ok(()));
    assert_eq!(builder.push("a", 2.0), Err("id \"a\" is repeated".into()));
    for popularity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(builder.push("b", popularity).is_err());
    }
    assert_eq!(builder.finish().unwrap().len(), 1);
    assert!(CatalogBuilder::default().finish().is_err());
}
