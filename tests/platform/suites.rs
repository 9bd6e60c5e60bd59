//! `/v1/suites`

use assay_tests::demo_suite;
use serde_json::Value;

use crate::harness::{World, code, fault, faults, text, world};

#[tokio::test(flavor = "multi_thread")]
async fn suites_are_listed_with_all_their_fields() {
    let world = world().await;
    let listed = world.key().get("/v1/suites").await.unwrap();
    let suites = listed.body["suites"].as_array().unwrap();
    assert_eq!(suites.len(), 1);
    let mut fields: Vec<_> = suites[0]
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
        "ladder",
        "max_submissions",
        max,
        "n_sealed",
        release,
    ];
    let mut expected = [
        &protection[..],
        &[
            "description",
            "hfm_sha",
            "metric",
            "n_items",
            "per_item_feedback",
            "suite_id",
            "version",
        ],
    ]
    .concat();
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(
        (&suites[0]["n_items"], &suites[0]["version"]),
        (&400.into(), &"1".into())
    );
    assert_eq!(
        (&suites[0][release], &suites[0][max]),
        (&"exact".into(), &Value::Null)
    );
}

async fn page(world: &World, query: &str) -> assay_tests::client::Answer {
    world
        .key()
        .get(&format!("/v1/suites/suite:lunch/items{query}"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paging_gives_every_item_once_in_the_order_of_the_file() {
    let world = world().await;
    let folder = world.stack.ground.servers.folder().join("lunch");
    let file = std::fs::read_to_string(folder.join("items.ndjson")).unwrap();
    let published: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for limit in [1000, 400, 399, 7] {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let query = if cursor.is_empty() {
                format!("?limit={limit}")
            } else {
                format!("?limit={limit}&cursor={cursor}")
            };
            let answer = page(&world, &query).await;
            assert_eq!(answer.body["n_items"], 400, "{}", answer.body);
            items.extend(answer.body["items"].as_array().unwrap().clone());
            match &answer.body["next_cursor"] {
                Value::Null => break,
                next => cursor = text(next),
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
async fn bad_parameters_are_told_and_an_unknown_suite_is_404() {
    let world = world().await;
    for (query, expected) in [
        ("?limit=0", fault("limit", "range")),
        ("?limit=1001", fault("limit", "range")),
        ("?limit=99999999999999999999", fault("limit", "type")),
        ("?limit=ten", fault("limit", "type")),
        ("?cursor=", fault("cursor", "format")),
        ("?cursor=tampered", fault("cursor", "format")),
        // 999999:1, beyond the end, and 0:9, a version that never was.
        ("?cursor=OTk5OTk5OjE", fault("cursor", "format")),
        ("?cursor=MDo5", fault("cursor", "format")),
        ("?limt=5", fault("limt", "unknown_field")),
    ] {
        let answer = page(&world, query).await;
        assert_eq!(
            (answer.status, faults(&answer)),
            (422, vec![expected]),
            "{query}"
        );
    }
    for unknown in ["suite:none", "nonsense", "suite:%00"] {
        let answer = world
            .key()
            .get(&format!("/v1/suites/{unknown}/items"))
            .await
            .unwrap();
        assert_eq!(
            (answer.status, code(&answer)),
            (404, "not_found".to_owned()),
            "{unknown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_supersedes_and_paging_goes_on_through_the_old_one() {
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
        &format!("?cursor={}", text(&first.body["next_cursor"])),
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
