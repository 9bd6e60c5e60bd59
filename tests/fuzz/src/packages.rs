//! Packages of models: `model.json`, `items.ndjson` and `weights.safetensors`, separated by `%%`
//! lines. Without weights, random ones are made for models that are small.

use std::collections::HashSet;

use assay_engine::{
    Event, GenerateMode, GenerateOptions, ItemTable, Model, ModelSpec, PackageError, PackageFiles,
    PredictOptions, Ranking, Refusal, Scratch, Sequence,
};
use serde_json::{Value, json};

use super::Seeded;

#[path = "../../../worker/engine/tests/support.rs"]
#[expect(
    dead_code,
    reason = "the tests of the engine use the rest of this file"
)]
mod support;

/// Largest ratio between a loaded model's memory and its files: matrices are padded, and 16-bit
/// floats are widened.
const GROWTH_MAX: usize = 16;

/// An accepted item table is complete and in order, an accepted package is computed without a panic
/// and in bounded memory, and an error names its file.
pub fn packages(data: &[u8]) {
    let (model, rest) = split(data);
    let (items, weights) = split(rest);
    let items = (!items.is_empty()).then_some(items);
    let Some(spec) = checked(ModelSpec::parse(model)) else {
        return;
    };
    if let Some(table) = items.and_then(|items| checked(ItemTable::parse(items, &spec.level_sizes)))
    {
        assert_complete(&table, &spec);
        assert!(table.bytes() <= GROWTH_MAX * data.len());
        if weights.is_empty() && is_small(&spec) {
            let made = with_random_weights(&spec, &table, data);
            operate(&made, data);
        }
    }
    let files = PackageFiles {
        model,
        weights,
        items,
    };
    let header = checked(assay_engine::check_weights_header(&spec, weights));
    if let Some(model) = checked(Model::load(&files)) {
        assert!(
            header.is_some(),
            "the header of accepted weights is refused"
        );
        assert!(model.bytes() <= GROWTH_MAX * data.len());
        operate(&model, data);
    }
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    const SEPARATOR: &[u8] = b"\n%%\n";
    let mut windows = data.windows(SEPARATOR.len());
    match windows.position(|window| window == SEPARATOR) {
        Some(at) => (&data[..at], &data[at + SEPARATOR.len()..]),
        None => (data, &[]),
    }
}

/// Returns the value, after asserting that an error is a short sentence that begins with its file.
fn checked<T>(result: Result<T, PackageError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with(error.file.name()), "{message}");
            assert!(message.chars().count() < 500, "{message}");
            None
        }
    }
}

fn assert_complete(table: &ItemTable, spec: &ModelSpec) {
    assert!(!table.is_empty());
    let mut previous: Option<&[u32]> = None;
    for position in 0..table.len() {
        let item_id = table.item_at(position).unwrap();
        let code = table.code_at(position).unwrap();
        assert!((1..=512).contains(&item_id.len()) && !item_id.contains('\0'));
        assert_eq!(table.position_of(item_id), Some(position));
        assert_eq!(table.code_of(item_id), Some(code));
        assert!(previous < Some(code), "{previous:?} {code:?}");
        assert_eq!(code.len(), spec.level_sizes.len());
        assert!(
            code.iter()
                .zip(&spec.level_sizes)
                .all(|(code, size)| (*code as usize) < *size)
        );
        previous = Some(code);
    }
    assert_eq!(table.item_at(table.len()), None);
}

fn is_small(spec: &ModelSpec) -> bool {
    spec.dim <= 16
        && spec.layers <= 2
        && spec.context_length <= 16
        && spec.level_sizes.len() <= 4
        && spec.level_sizes.iter().all(|size| *size <= 64)
}

/// Returns a model with a table's items and random weights, some extreme.
fn with_random_weights(spec: &ModelSpec, table: &ItemTable, data: &[u8]) -> Model {
    let mut seeded = Seeded::of(data);
    let sizes = support::Sizes {
        dim: spec.dim,
        layers: spec.layers,
        heads: spec.heads,
        context_length: spec.context_length,
        levels: spec.level_sizes.len(),
        base_size: spec.level_sizes[0],
        n_items: 0,
        activation: ["relu", "gelu", "gelu_tanh", "silu"][seeded.below(4)],
        event_types: &[],
    };
    let mut package = support::Package::random(&sizes, seeded.below(1 << 31) as u64);
    if seeded.below(4) == 0 {
        let at = seeded.below(package.tensors.len());
        let factor = [0.0, 1e-30, 1e10, 1e38][seeded.below(4)];
        for value in &mut package.tensors[at].values {
            *value = (*value * factor).clamp(f32::MIN, f32::MAX);
        }
    }
    let line = |position| {
        let code = table.code_at(position).unwrap();
        // A codebook with several resolutions has smaller codes, which are valid here too.
        let code: Vec<String> = code.iter().map(u32::to_string).collect();
        let item_id: Value = json!(table.item_at(position));
        format!(
            "{{\"code\": \"{}\", \"item_id\": {item_id}}}\n",
            code.join("-")
        )
    };
    package.items = Some((0..table.len()).map(line).collect());
    package.load().unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the operations with a history from the model's items and unknown ones.
fn operate(model: &Model, data: &[u8]) {
    let mut seeded = Seeded::of(data);
    let Some(items) = model.items() else {
        let refused = rank(model, &[], None, 10, false);
        assert_eq!(refused.unwrap_err(), Refusal::NoItemTable);
        return;
    };
    let mut item = || items.item_at(seeded.below(items.len() + 1));
    let history: Vec<String> = (0..data.len() % 20)
        .map(|_| item().unwrap_or("unknown item").to_owned())
        .collect();
    let events = support::events(&history);
    if assert_rankings(model, items, &events, &mut seeded) {
        assert_continuations(model, items, &events, &mut seeded);
    }
}

/// Asserts that a beam finds items with their exact scores, and as many as there are. Returns `false`
/// if the weights are so large that a score is not finite.
fn assert_rankings(
    model: &Model,
    items: &ItemTable,
    events: &[Event<'_>],
    seeded: &mut Seeded,
) -> bool {
    let all: Vec<&str> = (0..items.len())
        .filter_map(|at| items.item_at(at))
        .collect();
    let exact = match rank(model, events, Some(&all), all.len(), false) {
        Ok(exact) => bits(&exact),
        Err(refusal) => {
            assert_eq!(refusal, Refusal::NotFinite);
            return false;
        }
    };
    assert_eq!(exact.len(), all.len());
    let top_k = 1 + seeded.below(12);
    let found = rank(model, events, None, top_k, false).unwrap();
    assert_eq!(found.items.len(), top_k.min(items.len()));
    assert!(bits(&found).is_subset(&exact));
    let seen: HashSet<&str> = events
        .iter()
        .map(|event| event.item_id)
        .filter(|item_id| items.position_of(item_id).is_some())
        .collect();
    let unseen = rank(model, events, None, top_k, true).unwrap();
    assert_eq!(unseen.items.len(), top_k.min(items.len() - seen.len()));
    assert!(unseen.items.iter().all(|item| !seen.contains(item.item_id)));
    assert!(bits(&unseen).is_subset(&exact));
    true
}

/// Returns a ranking's items with their scores' bits.
fn bits<'a>(ranking: &Ranking<'a>) -> HashSet<(&'a str, u32)> {
    ranking
        .items
        .iter()
        .map(|item| (item.item_id, item.score.unwrap().to_bits()))
        .collect()
}

fn assert_continuations(
    model: &Model,
    items: &ItemTable,
    events: &[Event<'_>],
    seeded: &mut Seeded,
) {
    let mode = match seeded.below(2) {
        0 => GenerateMode::Beam,
        _ => GenerateMode::Sample {
            temperature: [0.01, 1.0, 5.0][seeded.below(3)],
            seed: seeded.below(1 << 31) as u64,
        },
    };
    let options = GenerateOptions {
        n_events: 1 + seeded.below(3),
        n_continuations: 1 + seeded.below(10),
        mode,
        exclude_seen: seeded.below(2) == 0,
    };
    let sequence = Sequence {
        events,
        ..Sequence::default()
    };
    let mut scratch = Scratch::default();
    let found = model.generate(&mut scratch, &sequence, "p1", &options, &|| false);
    // Later steps have other histories, whose scores may not be finite.
    let Ok(found) = found else { return };
    assert!(found.continuations.len() <= options.n_continuations);
    for continuation in found.continuations {
        let ids = continuation.item_ids;
        assert!(continuation.score.is_finite() && ids.len() <= options.n_events);
        assert!(ids.iter().all(|id| items.position_of(id).is_some()));
    }
}

fn rank<'a>(
    model: &'a Model,
    events: &'a [Event<'a>],
    options: Option<&'a [&'a str]>,
    top_k: usize,
    exclude_seen: bool,
) -> Result<Ranking<'a>, Refusal> {
    let sequence = Sequence {
        events,
        options,
        ..Sequence::default()
    };
    let parameters = PredictOptions {
        top_k: Some(top_k),
        exclude_seen,
    };
    model.predict(&mut Scratch::default(), &sequence, &parameters, &|| false)
}
