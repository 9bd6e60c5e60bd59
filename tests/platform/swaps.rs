//! New versions of a model, published while requests are served.

use std::sync::atomic::{AtomicBool, Ordering};

use assay_core::model::package::{GOLDEN_FILE, ITEMS_FILE, MODEL_FILE, WEIGHTS_FILE};
use assay_engine::Model;
use assay_tests::client::Client;
use assay_tests::databases::{fresh_name, widen_plans};
use assay_tests::golden::{golden_json, ranking};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Expect, World, world_with};
use crate::packages::publish;
use crate::serve::packages::{Package, version};
use crate::serving::{sequence, totals};

const MODEL: &str = "swapped";

/// Publication count; `TEST_SWAPS` overrides it.
const VERSIONS: u64 = 8;

/// Concurrent caller count. With the publisher they have as many calls in progress as an
/// organization may have on two cores.
const CALLERS: usize = 3;

fn history() -> Vec<String> {
    [3, 17, 42].map(|number| format!("item-{number}")).to_vec()
}

fn load(package: &Package) -> Model {
    package.load().unwrap()
}

/// Publishes a package with the operator's command.
async fn publish_package(world: &World, package: &Package) {
    let servers = &world.stack.ground.servers;
    let folder = servers.folder().join(fresh_name("version"));
    std::fs::create_dir(&folder).unwrap();
    for (file, content) in [
        (MODEL_FILE, package.model_json()),
        (WEIGHTS_FILE, package.weights()),
        (ITEMS_FILE, package.items.clone().unwrap().into_bytes()),
        (
            GOLDEN_FILE,
            golden_json(&load(package), &history()).unwrap(),
        ),
    ] {
        std::fs::write(folder.join(file), content).unwrap();
    }
    let published = publish(world, &folder, None).await.unwrap();
    assert_eq!(published["published"], true);
}

/// Returns the version and the ranking of one request.
async fn served(client: &Client) -> (String, Vec<(String, f32)>) {
    let item_ids = history();
    let item_ids: Vec<_> = item_ids.iter().map(String::as_str).collect();
    let body = json!({"sequences": [sequence("s", &item_ids)]});
    let path = format!("/v1/models/{MODEL}/predict");
    let response = client.post(&path, &body).await.expect_status(200);
    let version = response.body["model_version"].as_str().unwrap().to_owned();
    assert_eq!(response.header("x-model-version"), version);
    let row = &response.body["data"][0];
    let items = row["prediction"].as_array().unwrap().iter();
    let items = items.map(|item| item.as_str().unwrap().to_owned());
    let scores = row["scores"].as_array().unwrap().iter();
    let scores = scores.map(|score: &Value| score.as_f64().unwrap() as f32);
    (version, items.zip(scores).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_swapped_without_failed_requests() {
    let world = world_with(StackSize {
        workers: 0,
        engines: 1,
        ..StackSize::default()
    })
    .await;
    widen_plans(&mut world.database().await).await.unwrap();
    let versions = std::env::var("TEST_SWAPS").map_or(VERSIONS, |number| number.parse().unwrap());
    let packages: Vec<Package> = (1..=versions)
        .map(|number| version(MODEL, number))
        .collect();
    let rankings: Vec<_> = packages
        .iter()
        .map(|one| ranking(&load(one), &history()).unwrap())
        .collect();
    assert!(rankings.windows(2).all(|pair| pair[0] != pair[1]));
    publish_package(&world, &packages[0]).await;
    let has_ended = AtomicBool::new(false);
    let (world, rankings, has_ended) = (&world, &rankings, &has_ended);
    let callers = join_all((0..CALLERS).map(|_| async move {
        let client = world.key();
        let (mut newest, mut requests) = (0, 0);
        while !has_ended.load(Ordering::Relaxed) {
            let (version, ranking) = served(&client).await;
            let version: usize = version.parse().unwrap();
            assert_eq!(ranking, rankings[version - 1], "version {version}");
            assert!(version >= newest, "{version} after {newest}");
            newest = version;
            requests += 1;
        }
        requests
    }));
    let publisher = async {
        let mut requests = 0;
        for (at, package) in packages.iter().enumerate().skip(1) {
            publish_package(world, package).await;
            // The next request is served by the new version.
            let (version, ranking) = served(&world.key()).await;
            assert_eq!(
                (version.as_str(), &ranking),
                (&*(at + 1).to_string(), &rankings[at])
            );
            requests += 1;
        }
        has_ended.store(true, Ordering::Relaxed);
        requests
    };
    let (by_callers, by_publisher): (Vec<i64>, i64) = tokio::join!(callers, publisher);
    assert!(
        by_callers.iter().all(|requests| *requests > 0),
        "{by_callers:?}"
    );
    let requests = by_publisher + by_callers.iter().sum::<i64>();
    assert_eq!(totals(world).await, (requests, 0, 0));
}
