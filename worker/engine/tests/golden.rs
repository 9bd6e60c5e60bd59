//! PyTorch's figures in double precision on the same weights: see `golden/generate.py`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use assay_engine::{
    EmbedOptions, Event, Model, PackageFiles, Pooling, PredictOptions, RankedItem, Scratch,
    Sequence,
};
use serde::Deserialize;

/// The largest difference between two figures. Scores that are closer may have another order.
const TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    events: Vec<GoldenEvent>,
    options: Option<Vec<String>>,
    used: usize,
    n_unknown: usize,
    embedding_last: Vec<f64>,
    embedding_mean: Vec<f64>,
    logits: Vec<f64>,
    /// The known options, or all catalog items.
    scores: HashMap<String, f64>,
    /// The best items among all.
    top: Option<Vec<(String, f64)>>,
}

#[derive(Deserialize)]
struct GoldenEvent {
    item_id: String,
    r#type: Option<String>,
}

fn load(folder: &Path) -> (Model, Golden) {
    let read = |name: &str| fs::read(folder.join(name));
    let items = read("items.ndjson").ok();
    let model = Model::load(&PackageFiles {
        model: &read("model.json").unwrap(),
        weights: &read("weights.safetensors").unwrap(),
        items: items.as_deref(),
    });
    let golden = serde_json::from_slice(&read("golden.json").unwrap()).unwrap();
    (model.unwrap(), golden)
}

/// Asserts that values agree.
fn assert_close(name: &str, values: &[f32], expected: &[f64]) {
    assert_eq!(values.len(), expected.len(), "{name}");
    let differences = values
        .iter()
        .zip(expected)
        .map(|(value, expected)| (f64::from(*value) - expected).abs());
    let largest = differences.fold(0.0, f64::max);
    assert!(largest <= TOLERANCE, "{name}: {largest:e}");
}

/// Asserts that a ranking has the expected items and scores. Neighbours whose expected scores are
/// almost equal may be exchanged.
fn assert_ranking(name: &str, ranked: &[RankedItem<'_>], expected: &[(String, f64)]) {
    let ids: Vec<&str> = ranked.iter().map(|item| item.item_id).collect();
    let scores: Vec<f32> = ranked.iter().map(|item| item.score.unwrap()).collect();
    let expected_scores: Vec<f64> = expected.iter().map(|(_, score)| *score).collect();
    assert_close(name, &scores, &expected_scores);
    for (place, (item_id, score)) in expected.iter().enumerate() {
        let found = ids.iter().position(|id| id == item_id);
        let is_exchanged = |found: usize| (expected_scores[found] - score).abs() < TOLERANCE;
        assert!(
            found.is_some_and(|found| found == place || is_exchanged(found)),
            "{name}: {item_id} is at {found:?} instead of {place}: {ids:?}"
        );
    }
}

fn check(name: &str, model: &Model, case: &Case, scratch: &mut Scratch) {
    let events: Vec<Event<'_>> = case
        .events
        .iter()
        .map(|event| Event {
            item_id: &event.item_id,
            event_type: event.r#type.as_deref(),
        })
        .collect();
    let sequence = Sequence {
        events: &events,
        ..Sequence::default()
    };
    for (pooling, expected) in [
        (Pooling::Last, &case.embedding_last),
        (Pooling::Mean, &case.embedding_mean),
    ] {
        let mut embed = |normalize| {
            let options = EmbedOptions { pooling, normalize };
            model
                .embed(scratch, &sequence, &options, &|| false)
                .unwrap()
        };
        let found = embed(false);
        assert_eq!(found.counts.n_used, case.used, "{name}");
        assert_eq!(found.counts.n_unknown, case.n_unknown, "{name}");
        assert_close(&format!("{name}: {pooling:?}"), &found.vector, expected);
        let length = expected
            .iter()
            .map(|value| value * value)
            .sum::<f64>()
            .sqrt();
        let unit: Vec<f64> = expected.iter().map(|value| value / length).collect();
        assert_close(
            &format!("{name}: unit {pooling:?}"),
            &embed(true).vector,
            &unit,
        );
    }
    let logits = model.logits(scratch, &sequence, &|| false).unwrap();
    assert_close(&format!("{name}: logits"), &logits.values, &case.logits);

    // The exact scores of the options, or all items.
    let all: Vec<&str> = match (&case.options, model.items()) {
        (Some(options), _) => options.iter().map(String::as_str).collect(),
        (None, Some(items)) => (0..items.len())
            .filter_map(|at| items.item_at(at))
            .collect(),
        (None, None) => panic!("{name} has neither options nor items"),
    };
    let mut predict = |options, top_k| {
        let sequence = Sequence {
            options,
            ..sequence
        };
        let parameters = PredictOptions {
            top_k,
            exclude_seen: false,
        };
        model
            .predict(scratch, &sequence, &parameters, &|| false)
            .unwrap()
            .items
    };
    let mut expected: Vec<(String, f64)> = case.scores.clone().into_iter().collect();
    expected.sort_by(|one, other| other.1.total_cmp(&one.1));
    let ranked = predict(Some(&all), None);
    assert_eq!(ranked.len(), all.len(), "{name}");
    let (known, unknown) = ranked.split_at(expected.len());
    assert_ranking(&format!("{name}: options"), known, &expected);
    assert!(unknown.iter().all(|item| item.score.is_none()), "{name}");
    if let Some(top) = &case.top {
        assert_ranking(&format!("{name}: top"), &predict(None, Some(10)), top);
    }
}

#[test]
fn figures_equal_those_of_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(folder).unwrap();
    let packages: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("golden.json").exists())
        .collect();
    assert!(packages.len() >= 5, "{packages:?}");
    let mut scratch = Scratch::default();
    for package in packages {
        let (model, golden) = load(&package);
        assert!(!golden.cases.is_empty());
        for (at, case) in golden.cases.iter().enumerate() {
            let name = format!("{} case {at}", package.display());
            check(&name, &model, case, &mut scratch);
        }
    }
}
