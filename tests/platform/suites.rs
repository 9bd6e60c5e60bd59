//! The `/v1/suites` endpoints: the list of suites and the pages of their items.

use assay_tests::demo_suite;
use serde_json::Value;

use crate::feedback;
use crate::harness::{Expect, World, field_error, field_errors, shared_world, string, world};

#[tokio::test(flavor = "multi_thread")]
async fn suites_are_listed_with_all_their_fields() {
    let world = shared_world().await;
    let listed = world.key().get("/v1/suites").await.unwrap();
    let suites = listed.body["suites"].as_array().unwrap();
    // Other tests publish suites in this world.
    let lunch = suites
        .iter()
        .find(|suite| suite["suite_id"] == "suite:lunch");
    let lunch = lunch.unwrap();
    let mut fields: Vec<_> = lunch
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    let [release, max] = ["release", "max_submissions_per_day"];
    let protection = [
        "access",
        "clip",
        "closes_at",
        "board",
        "ladder",
        "max_submissions",
        max,
        "n_sealed",
        release,
    ];
    let mut expected = [
        &protection[..],
        &[
            "average",
            "baselines",
            "can_submit",
            "citation",
            "cluster",
            "cluster_is_hidden",
            "contact",
            "description",
            "errata",
            "hfm_sha",
            "labels",
            "license",
            "links",
            "lower_is_better",
            "metric",
            "n_clusters",
            "n_items",
            "owner",
            "per_item_feedback",
            "published_at",
            "quantiles",
            "sequence",
            "slices",
            "status",
            "suite_commitment",
            "suite_id",
            "tags",
            "title",
            "updated_at",
            "version",
            "visibility",
        ],
    ]
    .concat();
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(
        (&lunch["n_items"], &lunch["version"]),
        (&400.into(), &"1".into())
    );
    assert_eq!(
        (&lunch[release], &lunch[max]),
        (&"exact".into(), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_is_returned_in_its_current_version() {
    let world = world().await;
    let path = format!("/v1/suites/{}", feedback::SUITE_ID);
    for version in ["1", "2"] {
        feedback::publish(&world, version).await;
        let suite = world.key().get(&path).await.expect_status(200);
        assert_eq!(suite.body["version"], version);
        let listed = world.key().get("/v1/suites").await.unwrap().body["suites"].clone();
        assert!(listed.as_array().unwrap().contains(&suite.body), "{listed}");
    }
    for id in ["suite:none", "suite:", "lunch", "suite:LUNCH"] {
        world
            .key()
            .get(&format!("/v1/suites/{id}"))
            .await
            .expect_error(404, "not_found");
    }
}

async fn page(world: &World, query: &str) -> assay_tests::client::Response {
    world
        .key()
        .get(&format!("/v1/suites/suite:lunch/items{query}"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paging_returns_items_once_in_order() {
    let world = shared_world().await;
    let folder = world.stack.ground.servers.folder().join("lunch");
    let file = std::fs::read_to_string(folder.join("items.ndjson")).unwrap();
    let published: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for limit in [1000, 400, 399, 7] {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let query = if cursor.is_empty() {
                format!("?limit={limit}")
            } else {
                format!("?limit={limit}&cursor={cursor}")
            };
            let response = page(&world, &query).await;
            assert_eq!(response.body["n_items"], 400, "{}", response.body);
            items.extend(response.body["items"].as_array().unwrap().clone());
            match &response.body["next_cursor"] {
                Value::Null => break,
                next => cursor = string(next),
            }
        }
        assert_eq!(items, published, "limit {limit}");
    }
    assert_eq!(
        page(&world, "").await.body["items"]
            .as_array()
            .unwrap()
            .len(),
        400,
        "500 is the default"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_page_parameters_are_rejected() {
    let world = shared_world().await;
    for (query, expected) in [
        ("?limit=0", field_error("limit", "range")),
        ("?limit=1001", field_error("limit", "range")),
        ("?limit=99999999999999999999", field_error("limit", "type")),
        ("?limit=ten", field_error("limit", "type")),
        ("?cursor=", field_error("cursor", "format")),
        ("?cursor=tampered", field_error("cursor", "format")),
        // 999999:1 is after the end, and 0:9 names a version that never existed.
        ("?cursor=OTk5OTk5OjE", field_error("cursor", "format")),
        ("?cursor=MDo5", field_error("cursor", "format")),
        ("?limt=5", field_error("limt", "unknown_field")),
    ] {
        let response = page(&world, query).await.expect_status(422);
        assert_eq!(field_errors(&response), vec![expected], "{query}");
    }
    for unknown in ["suite:none", "nonsense", "suite:%00"] {
        world
            .key()
            .get(&format!("/v1/suites/{unknown}/items"))
            .await
            .expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paging_continues_through_superseded_version() {
    let world = world().await;
    let first = page(&world, "?limit=100").await;
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-lunch-2", world.stack.database.name));
    demo_suite::write(&folder).unwrap();
    let head = std::fs::read_to_string(folder.join("suite.toml")).unwrap();
    std::fs::write(
        folder.join("suite.toml"),
        head.replace("version = \"1\"", "version = \"2\""),
    )
    .unwrap();
    let published = world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(published["published"], true);
    let again = world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(again["published"], false, "the same again changes nothing");
    std::fs::write(
        folder.join("suite.toml"),
        head.replace("version = \"1\"", "version = \"2\"")
            .replace("accuracy", "mrr@3"),
    )
    .unwrap();
    let refused = world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("a published version never changes"),
        "{refused}"
    );

    assert_eq!(
        world.key().get("/v1/suites").await.unwrap().body["suites"][0]["version"],
        "2"
    );
    assert_eq!(page(&world, "").await.body["suite_version"], "2");
    let next = page(
        &world,
        &format!("?cursor={}", string(&first.body["next_cursor"])),
    )
    .await;
    assert_eq!(
        (
            &next.body["suite_version"],
            next.body["items"].as_array().unwrap().len()
        ),
        (&"1".into(), 300)
    );
}
