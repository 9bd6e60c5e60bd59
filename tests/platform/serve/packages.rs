//! The packages of these tests.

use std::path::Path;

use assay_core::model::package::{ITEMS_FILE, MODEL_FILE, WEIGHTS_FILE};
use assay_engine::{Model, PackageFiles};

#[expect(
    clippy::duplicate_mod,
    reason = "the tests include the fuzz targets, which include it too"
)]
#[path = "../../../worker/engine/tests/support.rs"]
#[expect(
    dead_code,
    reason = "the tests of the engine use the rest of this file"
)]
mod support;

pub use support::{Package, Rng};
use support::{SMALL, Sizes};

/// A package's files, each with its content.
pub type Files = Vec<(&'static str, Vec<u8>)>;

/// A sequence with this many events takes about 0.2 s in the slow package.
pub const SLOW_EVENTS: usize = 512;

/// Returns a package whose figures PyTorch has computed.
pub fn golden(name: &str) -> Files {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../worker/engine/tests/golden");
    [MODEL_FILE, WEIGHTS_FILE, ITEMS_FILE]
        .map(|file| (file, std::fs::read(folder.join(name).join(file)).unwrap()))
        .to_vec()
}

/// Returns a package in which one continuation of 50 events takes more than half a minute.
pub fn slow() -> Files {
    random(&Sizes {
        dim: 256,
        layers: 8,
        heads: 4,
        context_length: SLOW_EVENTS,
        ..SMALL
    })
}

/// Returns a small package in which each item id contains `marker`.
pub fn with_items(marker: &str) -> Files {
    let mut files = random(&SMALL);
    let (_, items) = files.last_mut().unwrap();
    let renamed = String::from_utf8(std::mem::take(items)).unwrap();
    *items = renamed.replace("item-", &format!("{marker}-")).into_bytes();
    files
}

/// Returns a package without an item table, whose items are codes.
pub fn without_items() -> Files {
    let mut files = random(&SMALL);
    files.retain(|(name, _)| *name != ITEMS_FILE);
    files
}

/// Returns a small model's version. Each version has other weights.
pub fn version(model_id: &str, version: u64) -> Package {
    let mut package = Package::random(&SMALL, version);
    package.model["id"] = model_id.into();
    package.model["version"] = version.to_string().into();
    package
}

fn random(sizes: &Sizes) -> Files {
    let package = Package::random(sizes, 1);
    vec![
        (MODEL_FILE, package.model_json()),
        (WEIGHTS_FILE, package.weights()),
        (ITEMS_FILE, package.items.unwrap().into_bytes()),
    ]
}

/// Loads a package in this process.
pub fn load(files: &Files) -> Model {
    let file = |name: &str| {
        let mut named = files.iter().filter(|(file, _)| *file == name);
        named.next().map(|(_, content)| content.as_slice())
    };
    Model::load(&PackageFiles {
        model: file(MODEL_FILE).unwrap(),
        weights: file(WEIGHTS_FILE).unwrap(),
        items: file(ITEMS_FILE),
    })
    .unwrap()
}
