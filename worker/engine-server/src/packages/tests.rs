use std::path::{Path, PathBuf};

use assay_core::model::package::{
    GOLDEN_FILE, ITEMS_FILE, MANIFEST_FILE, MODEL_FILE, Manifest, WEIGHTS_FILE,
};
use assay_engine::{Model, ModelSpec, item_table_bytes_max, network_bytes};
use bytes::Bytes;

use super::*;

/// An artifact store in its own folder, removed on drop.
struct Store {
    folder: PathBuf,
    artifacts: Artifacts,
}

impl Store {
    async fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("assay-packages-{name}-{}", std::process::id()));
        let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
        Self { folder, artifacts }
    }

    /// Stores files under a package name, with this manifest.
    async fn put(&self, version: &str, manifest: &[u8], files: &[(&str, Vec<u8>)]) -> PackageName {
        let name = PackageName::new(None, "next", version, manifest).unwrap();
        for (file, content) in files {
            let key = name.object(file);
            self.artifacts
                .put(&key, content.clone().into())
                .await
                .unwrap();
        }
        let manifest = Bytes::copy_from_slice(manifest);
        self.artifacts
            .put(&name.object(MANIFEST_FILE), manifest)
            .await
            .unwrap();
        name
    }

    async fn publish(&self, version: &str, files: &[(&str, Vec<u8>)]) -> PackageName {
        let manifest = manifest(files);
        self.put(version, &manifest, files).await
    }

    fn packages(&self, memory: u64) -> Packages {
        Packages::new(self.artifacts.clone(), memory)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn manifest(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let files = files
        .iter()
        .map(|(name, content)| (*name, content.as_slice()));
    serde_json::to_vec(&Manifest::of(files)).unwrap()
}

fn golden() -> Vec<(&'static str, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/three-levels");
    [MODEL_FILE, WEIGHTS_FILE, ITEMS_FILE, GOLDEN_FILE]
        .map(|name| (name, std::fs::read(folder.join(name)).unwrap()))
        .to_vec()
}

/// Returns the golden files with one changed.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = golden();
    let (_, content) = files.iter_mut().find(|(file, _)| *file == name).unwrap();
    change(content);
    files
}

fn model_bytes() -> u64 {
    let files = golden();
    let files = assay_engine::PackageFiles {
        model: &files[0].1,
        weights: &files[1].1,
        items: Some(&files[2].1),
    };
    Model::load(&files).unwrap().bytes() as u64
}

/// Returns the memory that is reserved while these files are loaded.
fn load_bytes(files: &[(&str, Vec<u8>)]) -> u64 {
    let spec = ModelSpec::parse(&files[0].1).unwrap();
    let (weights, items) = (files[1].1.len() as u64, files[2].1.len() as u64);
    let table = item_table_bytes_max(items, spec.level_sizes.len());
    weights + network_bytes(&spec) + items + table
}

/// Returns the memory in which this many golden packages fit, but not another one.
fn memory_of(packages: u64) -> u64 {
    (packages - 1) * model_bytes() + load_bytes(&golden())
}

async fn error(packages: &Packages, name: &PackageName) -> LoadError {
    packages.get(name).await.map(drop).unwrap_err()
}

fn is_loaded(packages: &Packages, name: &PackageName) -> bool {
    matches!(
        packages.lock().entries.get(name),
        Some(Entry::Loaded { .. })
    )
}

#[tokio::test]
async fn concurrent_callers_share_one_load() {
    let store = Store::new("concurrent").await;
    let name = store.publish("1", &golden()).await;
    let packages = store.packages(u64::MAX);
    let loads = (0..16).map(|_| packages.get(&name));
    let loaded = futures_util::future::try_join_all(loads).await.unwrap();
    assert!(
        loaded
            .iter()
            .all(|package| Arc::ptr_eq(package, &loaded[0]))
    );
    let again = packages.loaded(&name).unwrap();
    assert!(Arc::ptr_eq(&again, &loaded[0]));
    assert_eq!(packages.lock().used, model_bytes());
}

#[tokio::test]
async fn least_recently_used_package_is_unloaded() {
    let store = Store::new("lru").await;
    let mut names = Vec::new();
    for version in ["1", "2", "3"] {
        names.push(store.publish(version, &golden()).await);
    }
    let packages = store.packages(memory_of(2));
    let first = packages.get(&names[0]).await.unwrap();
    packages.get(&names[1]).await.unwrap();
    assert!(packages.loaded(&names[0]).is_some());
    packages.get(&names[2]).await.unwrap();
    let loaded: Vec<bool> = names
        .iter()
        .map(|name| is_loaded(&packages, name))
        .collect();
    assert_eq!(loaded, [true, false, true]);
    packages.get(&names[1]).await.unwrap();
    assert!(!is_loaded(&packages, &names[0]));
    // A call that still uses the package is not disturbed.
    assert_eq!(first.model.bytes() as u64, model_bytes());
    assert_eq!(packages.lock().used, 2 * model_bytes());
}

#[tokio::test]
async fn package_larger_than_the_memory_is_refused() {
    let store = Store::new("memory").await;
    let name = store.publish("1", &golden()).await;
    let (bytes, memory) = (load_bytes(&golden()), load_bytes(&golden()) - 1);
    let packages = store.packages(memory);
    assert_eq!(
        error(&packages, &name).await,
        LoadError::TooLarge { bytes, memory }
    );
    assert_eq!(packages.lock().used, 0);
    assert!(model_bytes() <= load_bytes(&golden()));
}

#[tokio::test]
async fn memory_of_other_loads_is_not_used() {
    let store = Store::new("reserved").await;
    let name = store.publish("1", &golden()).await;
    let packages = store.packages(memory_of(1));
    let reservation = packages.reserve(model_bytes() / 2).unwrap();
    assert_eq!(error(&packages, &name).await, LoadError::NoMemory);
    drop(reservation);
    tokio::time::sleep(FAILURE_LIFETIME).await;
    assert!(packages.get(&name).await.is_ok());
}

#[tokio::test]
async fn unknown_package_is_not_found() {
    let store = Store::new("unknown").await;
    let name: PackageName = "models/next/1/0123456789abcdef".parse().unwrap();
    assert_eq!(
        error(&store.packages(u64::MAX), &name).await,
        LoadError::NotFound
    );
}

#[tokio::test]
async fn changed_files_are_rejected() {
    let store = Store::new("changed").await;
    let packages = store.packages(u64::MAX);
    let good = manifest(&golden());
    for (version, file) in [("1", MODEL_FILE), ("2", WEIGHTS_FILE), ("3", ITEMS_FILE)] {
        let files = changed(file, |content| *content.last_mut().unwrap() ^= 1);
        let name = store.put(version, &good, &files).await;
        let message = error(&packages, &name).await.to_string();
        assert!(
            message.contains(&format!("The SHA-256 of {file}")),
            "{message}"
        );
    }
    let files = changed(WEIGHTS_FILE, |content| content.truncate(content.len() - 1));
    let name = store.put("4", &good, &files).await;
    let message = error(&packages, &name).await.to_string();
    assert!(message.contains("weights.safetensors has"), "{message}");
    let name = store.put("5", &good, &golden()[..1]).await;
    let message = error(&packages, &name).await.to_string();
    assert!(
        message.contains("weights.safetensors is missing"),
        "{message}"
    );
    assert_eq!(packages.lock().used, 0);
}

#[tokio::test]
async fn changed_manifest_is_rejected() {
    let store = Store::new("manifest").await;
    let packages = store.packages(u64::MAX);
    let name = store.publish("1", &golden()).await;
    let other = manifest(&changed(WEIGHTS_FILE, |content| content.push(0)));
    let key = name.object(MANIFEST_FILE);
    store.artifacts.put(&key, other.into()).await.unwrap();
    let message = error(&packages, &name).await.to_string();
    assert!(
        message.contains("manifest.json is not the one"),
        "{message}"
    );
    let long = vec![b' '; 5000];
    let name = store.put("2", &long, &[]).await;
    let message = error(&packages, &name).await.to_string();
    assert!(
        message.contains("manifest.json has 5000 bytes"),
        "{message}"
    );
}

#[tokio::test]
async fn sizes_are_checked_before_files_are_read() {
    let store = Store::new("sizes").await;
    let packages = store.packages(u64::MAX);
    for (version, file) in [("1", MODEL_FILE), ("2", WEIGHTS_FILE)] {
        let mut manifest = Manifest::of(
            golden()
                .iter()
                .map(|(name, content)| (*name, content.as_slice())),
        );
        let entry = manifest.files.iter_mut().find(|entry| entry.name == file);
        entry.unwrap().bytes = 1 << 40;
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let name = store.put(version, &manifest, &golden()).await;
        let message = error(&packages, &name).await.to_string();
        assert!(
            message.contains(&format!("{file} has 1099511627776 bytes")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn invalid_item_table_is_not_quoted_in_the_log() {
    let store = Store::new("quoted").await;
    let files = changed(ITEMS_FILE, |content| {
        content.extend_from_slice(b"{\"item_id\": \"canary-7f3a\", \"code\": \"none\"}\n");
    });
    let name = store.publish("1", &files).await;
    let error = error(&store.packages(u64::MAX), &name).await;
    assert!(matches!(error, LoadError::Invalid { .. }));
    let logged = error.log_text();
    assert!(
        logged.contains("items.ndjson line ") && !logged.contains("canary"),
        "{logged}"
    );
}

#[tokio::test]
async fn failed_load_is_repeated_after_its_lifetime() {
    let store = Store::new("repeated").await;
    let packages = store.packages(u64::MAX);
    let manifest = manifest(&golden());
    let name = PackageName::new(None, "next", "1", &manifest).unwrap();
    assert_eq!(error(&packages, &name).await, LoadError::NotFound);
    store.put("1", &manifest, &golden()).await;
    tokio::time::sleep(FAILURE_LIFETIME).await;
    assert!(packages.get(&name).await.is_ok());
}
