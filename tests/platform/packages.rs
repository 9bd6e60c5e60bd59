//! Publishing packages: what is refused, and what it leaves behind.

use std::path::{Path, PathBuf};

use assay_tests::databases::fresh_name;
use serde_json::{Value, json};

use crate::harness::{Expect, World};
use crate::serving::{package, serving_world};

/// Publishes a package with the operator's command.
pub async fn publish(world: &World, folder: &Path, org: Option<&str>) -> Result<Value, String> {
    let mut arguments = vec!["model", "publish", folder.to_str().unwrap()];
    arguments.extend(org.into_iter().flat_map(|org| ["--org", org]));
    let published = world.stack.operate(&arguments).await;
    published.map_err(|trouble| trouble.to_string())
}

/// Copies a package into a folder that a test may change.
pub fn copy(world: &World, name: &str) -> PathBuf {
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(fresh_name("package"));
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(package(name)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    folder
}

/// Returns a copy of a package with a changed `model.json`.
pub fn with_model(world: &World, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let folder = copy(world, name);
    let path = folder.join("model.json");
    let mut model = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut model);
    std::fs::write(path, model.to_string()).unwrap();
    folder
}

/// Returns the packages' file count in the artifact store.
fn stored_files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| match path.is_dir() {
            true => stored_files(&path),
            false => 1,
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_is_none_is_refused() {
    let world = serving_world().await;
    let models = world.stack.artifacts().join("models");
    let before = stored_files(&models);
    let write = |file: &str, content: &[u8]| {
        let folder = with_model(&world, "embedded", |model| model["version"] = json!("2"));
        std::fs::write(folder.join(file), content).unwrap();
        folder
    };
    let weights = std::fs::read(package("embedded").join("weights.safetensors")).unwrap();
    let huge_header = [&10_000_000_000_u64.to_le_bytes()[..], b"{}"].concat();
    let changed = |change: fn(&mut Value)| {
        with_model(&world, "embedded", |model| {
            model["version"] = json!("2");
            change(model);
        })
    };
    let golden = |change: fn(&mut Value)| {
        let folder = with_model(&world, "embedded", |model| model["version"] = json!("2"));
        let path = folder.join("golden.json");
        let mut golden = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut golden);
        std::fs::write(path, golden.to_string()).unwrap();
        folder
    };
    let missing = |file: &str| {
        let folder = copy(&world, "embedded");
        std::fs::remove_file(folder.join(file)).unwrap();
        folder
    };
    for (folder, message) in [
        (
            write(
                "weights.safetensors",
                b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00",
            ),
            "weights.safetensors: ",
        ),
        (
            write("weights.safetensors", &weights[..weights.len() - 1]),
            "weights.safetensors: ",
        ),
        (
            write("weights.safetensors", &huge_header),
            "weights.safetensors: ",
        ),
        (
            write("weights.safetensors", &vec![0; 10 << 20]),
            "it may have at most",
        ),
        (
            write("model.pkl", b"x"),
            "model.pkl is no file of a package",
        ),
        (
            write(
                "items.ndjson",
                b"{\"item_id\": \"a\", \"code\": \"1\"}\n{\"item_id\": \"b\", \"code\": \"1\"}\n",
            ),
            "items.ndjson line 2: ",
        ),
        (
            write("golden.json", b"{}"),
            "golden.json: missing field `requests`",
        ),
        (missing("golden.json"), "golden.json is missing"),
        (
            missing("weights.safetensors"),
            "weights.safetensors is missing",
        ),
        (
            changed(|model| model["serving"]["dim"] = json!(u64::MAX)),
            "model.json: ",
        ),
        (
            changed(|model| model["serving"]["activation"] = json!("step")),
            "model.json: ",
        ),
        (
            changed(|model| model["serving"]["engine"] = json!("nobody")),
            "ASSAY_ENGINES does not name",
        ),
        (
            changed(|model| model["id"] = json!("../../etc")),
            "id: must be",
        ),
        (
            changed(|model| drop(model.as_object_mut().unwrap().remove("serving"))),
            "`serving` is missing",
        ),
        (
            golden(|golden| {
                golden["requests"][0]["response"]["data"][0]["scores"][0] = json!(-1.9284);
            }),
            "requests[0]: data[0].scores[0] is -1.9284",
        ),
        (
            golden(|golden| {
                golden["requests"][2]["response"]["data"][0]["prediction"][0] = json!("dish-01");
            }),
            "requests[2]: data[0].prediction[0]",
        ),
    ] {
        let refused = publish(&world, &folder, None).await.unwrap_err();
        assert!(refused.contains(message), "{message}: {refused}");
    }
    assert_eq!(
        stored_files(&models),
        before,
        "a refused package leaves no file"
    );
    let card = world.key().get("/v1/models/embedded").await.unwrap().body;
    assert_eq!(card["version"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_published_once() {
    let world = serving_world().await;
    let again = publish(&world, &package("embedded"), None).await.unwrap();
    assert_eq!(again["published"], false);
    let changed = with_model(&world, "embedded", |model| {
        model["status"] = json!("stable");
    });
    let refused = publish(&world, &changed, None).await.unwrap_err();
    assert!(
        refused.contains("is published with other content"),
        "{refused}"
    );
    let nobody = format!("org_{}", "0".repeat(22));
    let refused = publish(&world, &package("embedded"), Some(&nobody))
        .await
        .unwrap_err();
    assert!(refused.contains("there is no organization"), "{refused}");
    let next = with_model(&world, "embedded", |model| model["version"] = json!("2"));
    publish(&world, &next, None).await.unwrap();
    let body = json!({"sequences": [{"sequence_id": "p", "events": []}]});
    let path = "/v1/models/embedded/predict";
    let current = world.key().post(path, &body).await.unwrap();
    assert_eq!(current.header("x-model-version"), "2");
    let mut pinned = body.clone();
    pinned["model_version"] = json!("1");
    let pinned = world.key().post(path, &pinned).await.expect_status(200);
    assert_eq!(pinned.header("x-model-version"), "1");
}
