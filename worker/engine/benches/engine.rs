//! Engine benchmarks on one core: `cargo bench -p assay-engine`. A model has width 64, two
//! blocks and 10,000 items, and a sequence has 50 events. `tests/peers/engine.py` compares the engine
//! with PyTorch and onnxruntime.

use assay_engine::{
    EmbedOptions, GenerateMode, GenerateOptions, Model, Pooling, PredictOptions, Scratch, Sequence,
};
use divan::Bencher;

#[path = "../tests/support.rs"]
#[expect(dead_code, reason = "tests use the rest of this file")]
mod support;

use support::{ONE_LEVEL, Package, Rng, Sizes, THREE_LEVELS, events, random_ids, sequence};

fn main() {
    divan::main();
}

/// The models: three levels with 256 codes, and one level with 10,000.
const MODELS: [&str; 2] = ["three levels", "one level"];

fn sizes(name: &str) -> &'static Sizes {
    if name == MODELS[0] {
        &THREE_LEVELS
    } else {
        &ONE_LEVEL
    }
}

/// Measures a call with a random history.
fn measure(
    bencher: Bencher,
    name: &str,
    n_events: usize,
    call: impl Fn(&Model, &mut Scratch, &Sequence<'_>),
) {
    let sizes = sizes(name);
    let model = Package::random(sizes, 1)
        .load()
        .unwrap_or_else(|error| unreachable!("{error}"));
    let ids = random_ids(sizes, n_events, &mut Rng(2));
    let events = events(&ids);
    let mut scratch = Scratch::default();
    bencher.bench_local(|| call(&model, &mut scratch, &sequence(&events)));
}

fn embed(model: &Model, scratch: &mut Scratch, sequence: &Sequence<'_>, pooling: Pooling) {
    let options = EmbedOptions {
        pooling,
        normalize: false,
    };
    let _ = divan::black_box(model.embed(scratch, sequence, &options, &|| false));
}

#[divan::bench(args = [10, 50])]
fn encode(bencher: Bencher, n_events: usize) {
    measure(bencher, MODELS[0], n_events, |model, scratch, sequence| {
        embed(model, scratch, sequence, Pooling::Last);
    });
}

#[divan::bench]
fn encode_all_positions(bencher: Bencher) {
    measure(bencher, MODELS[0], 50, |model, scratch, sequence| {
        embed(model, scratch, sequence, Pooling::Mean);
    });
}

#[divan::bench(args = MODELS)]
fn encode_and_head(bencher: Bencher, name: &str) {
    measure(bencher, name, 50, |model, scratch, sequence| {
        let _ = divan::black_box(model.logits(scratch, sequence, &|| false));
    });
}

#[divan::bench(args = MODELS)]
fn predict_top_10(bencher: Bencher, name: &str) {
    measure(bencher, name, 50, |model, scratch, sequence| {
        let options = PredictOptions::default();
        let _ = divan::black_box(model.predict(scratch, sequence, &options, &|| false));
    });
}

#[divan::bench(args = MODELS)]
fn predict_100_options(bencher: Bencher, name: &str) {
    let ids = random_ids(sizes(name), 100, &mut Rng(3));
    let given: Vec<&str> = ids.iter().map(String::as_str).collect();
    measure(bencher, name, 50, |model, scratch, sequence| {
        let sequence = Sequence {
            options: Some(&given),
            ..*sequence
        };
        let options = PredictOptions::default();
        let _ = divan::black_box(model.predict(scratch, &sequence, &options, &|| false));
    });
}

fn generate(bencher: Bencher, name: &str, mode: GenerateMode) {
    measure(bencher, name, 50, |model, scratch, sequence| {
        let options = GenerateOptions {
            n_events: 5,
            n_continuations: 1,
            mode,
            exclude_seen: false,
        };
        let _ = divan::black_box(model.generate(scratch, sequence, "p1", &options, &|| false));
    });
}

#[divan::bench(args = MODELS)]
fn generate_5_events(bencher: Bencher, name: &str) {
    generate(bencher, name, GenerateMode::Beam);
}

#[divan::bench(args = MODELS)]
fn sample_5_events(bencher: Bencher, name: &str) {
    let mode = GenerateMode::Sample {
        temperature: 1.0,
        seed: 7,
    };
    generate(bencher, name, mode);
}

#[divan::bench(args = MODELS, sample_count = 20)]
fn load(bencher: Bencher, name: &str) {
    let package = Package::random(sizes(name), 1);
    let (model, weights) = (package.model_json(), package.weights());
    bencher.bench_local(|| {
        Model::load(&assay_engine::PackageFiles {
            model: &model,
            weights: &weights,
            items: package.items.as_ref().map(String::as_bytes),
        })
    });
}
