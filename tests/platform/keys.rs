//! `/v1/keys`

use assay_core::model::secret;
use serde_json::json;

use crate::harness::{error_code, org, string, world};

#[tokio::test(flavor = "multi_thread")]
async fn new_key_is_shown_once() {
    let world = world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": " nightly "}))
        .await
        .unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let key = string(&made.body["key"]);
    assert!(secret::read(&key).is_some());
    assert_eq!(made.body["name"], "nightly");
    assert!(
        key.starts_with(&string(&made.body["prefix"])) && string(&made.body["prefix"]).len() == 13
    );
    assert!(made.body["last_used_at"].is_null() && made.body["revoked_at"].is_null());
    assert_eq!(world.client(&key).get("/v1/me").await.unwrap().status, 200);

    let listed = world.owner().get("/v1/keys").await.unwrap();
    let keys = listed.body["keys"].as_array().unwrap();
    assert_eq!(
        keys.iter()
            .map(|key| string(&key["name"]))
            .collect::<Vec<_>>(),
        ["nightly", "ci"],
        "newest first"
    );
    assert!(!listed.body.to_string().contains(&key));
    assert!(
        keys[0]["last_used_at"].is_string(),
        "its last use is recorded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_returns_401() {
    let world = world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": "old"}))
        .await
        .unwrap();
    let id = string(&made.body["id"]);
    let client = world.client(&string(&made.body["key"]));
    let path = format!("/v1/keys/{id}");
    let revoked = world
        .owner()
        .send(world.owner().request("DELETE", &path))
        .await
        .unwrap();
    assert_eq!(revoked.status, 200);
    let refused = client.get("/v1/me").await.unwrap();
    assert_eq!(
        (refused.status, error_code(&refused)),
        (401, "key_revoked".to_owned())
    );
    let again = world
        .owner()
        .send(world.owner().request("DELETE", &path))
        .await
        .unwrap();
    assert_eq!(
        (again.status, &again.body["revoked_at"]),
        (200, &revoked.body["revoked_at"]),
        "the first timestamp stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_key_returns_404() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    let theirs = world.client(&other.session).get("/v1/keys").await.unwrap();
    let id = string(&theirs.body["keys"][0]["id"]);
    let mut responses = Vec::new();
    for id in [id.as_str(), "key_0000000000000000000000", "nonsense"] {
        let response = world
            .owner()
            .send(world.owner().request("DELETE", &format!("/v1/keys/{id}")))
            .await
            .unwrap();
        assert_eq!(response.status, 404);
        responses.push((
            error_code(&response),
            string(&response.body["error"]["message"]),
        ));
    }
    assert!(
        responses.iter().all(|response| *response == responses[0]),
        "{responses:?}"
    );
    assert_eq!(
        world.client(&other.key).get("/v1/me").await.unwrap().status,
        200,
        "the key still works"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_hashed_and_never_logged() {
    let world = world().await;
    world.key().get("/v1/me").await.unwrap();
    world.owner().get("/v1/me").await.unwrap();
    let secrets = [&world.org.key, &world.org.session];
    for table in ["api_keys", "sessions"] {
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select t::text from {table} t"
        )))
        .fetch_all(&mut world.database().await)
        .await
        .unwrap();
        assert!(
            !rows.is_empty()
                && !secrets
                    .iter()
                    .any(|secret| rows.iter().any(|row| row.contains(*secret)))
        );
    }
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(
            !log.is_empty() && !secrets.iter().any(|secret| log.contains(&secret[..20])),
            "{log}"
        );
    }
}
