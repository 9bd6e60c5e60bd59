//! `/v1/keys`

use assay_core::model::secret;
use serde_json::json;

use crate::harness::{code, org, text, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_works_at_once_and_is_known_by_its_prefix() {
    let world = world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": " nightly "}))
        .await
        .unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let key = text(&made.body["key"]);
    assert!(secret::read(&key).is_some());
    assert_eq!(made.body["name"], "nightly");
    assert!(key.starts_with(&text(&made.body["prefix"])) && text(&made.body["prefix"]).len() == 13);
    assert!(made.body["last_used_at"].is_null() && made.body["revoked_at"].is_null());
    assert_eq!(world.client(&key).get("/v1/me").await.unwrap().status, 200);

    let listed = world.owner().get("/v1/keys").await.unwrap();
    let keys = listed.body["keys"].as_array().unwrap();
    assert_eq!(
        keys.iter()
            .map(|key| text(&key["name"]))
            .collect::<Vec<_>>(),
        ["nightly", "ci"],
        "newest first"
    );
    assert!(!listed.body.to_string().contains(&key));
    assert!(keys[0]["last_used_at"].is_string(), "its use is noted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_once_and_stays_revoked() {
    let world = world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": "old"}))
        .await
        .unwrap();
    let (id, client) = (
        text(&made.body["id"]),
        world.client(&text(&made.body["key"])),
    );
    let path = format!("/v1/keys/{id}");
    let revoked = world
        .owner()
        .send(world.owner().request("DELETE", &path))
        .await
        .unwrap();
    assert_eq!(revoked.status, 200);
    let refused = client.get("/v1/me").await.unwrap();
    assert_eq!(
        (refused.status, code(&refused)),
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
        "the first moment stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_organizations_key_does_not_exist() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    let theirs = world.client(&other.session).get("/v1/keys").await.unwrap();
    let id = text(&theirs.body["keys"][0]["id"]);
    let mut answers = Vec::new();
    for id in [id.as_str(), "key_0000000000000000000000", "nonsense"] {
        let answer = world
            .owner()
            .send(world.owner().request("DELETE", &format!("/v1/keys/{id}")))
            .await
            .unwrap();
        assert_eq!(answer.status, 404);
        answers.push((code(&answer), text(&answer.body["error"]["message"])));
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(
        world.client(&other.key).get("/v1/me").await.unwrap().status,
        200,
        "it still works"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_stored_as_hashes_and_never_logged() {
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
