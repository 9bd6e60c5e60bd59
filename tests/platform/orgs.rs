//! The `/v1/orgs` endpoints: creating, reading and updating organizations.

use assay_proto::v1;
use assay_proto::v1::org_service_client::OrgServiceClient;
use assay_tests::client::{Client, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, error_code, field_error, field_errors, fresh_email, org, shared_world_without_workers,
    string, with_token,
};

async fn create(client: &Client, name: &str) -> Response {
    client
        .post("/v1/orgs", &json!({"name": name}))
        .await
        .unwrap()
}

async fn update(client: &Client, id: &str, change: &Value) -> Response {
    client
        .patch(&format!("/v1/orgs/{id}"), change)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn created_org_is_owned_by_creator() {
    let world = shared_world_without_workers().await;
    let ada = world.client(&world.sign_in(&fresh_email("ada")).await);
    let made = create(&ada, " Analytical Engines ")
        .await
        .expect_status(201);
    let mut fields: Vec<_> = made
        .body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "created_at",
            "data_use",
            "handle",
            "id",
            "name",
            "plan",
            "role"
        ]
    );
    let expected = json!([
        made.body["name"],
        made.body["plan"],
        made.body["data_use"],
        made.body["role"]
    ]);
    assert_eq!(
        expected,
        json!(["Analytical Engines", "free", "scoring_only", "owner"])
    );
    let me = ada.get("/v1/me").await.unwrap().body;
    assert_eq!(
        (&me["org_id"], &me["orgs"]),
        (&made.body["id"], &json!([made.body]))
    );
    ada.post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_status(201);
    // A second organization does not change the session's current one.
    let second = create(&ada, "Second").await;
    assert_eq!(
        ada.get("/v1/me").await.unwrap().body["org_id"],
        made.body["id"]
    );
    let there = ada
        .send(
            ada.request("GET", "/v1/me")
                .header("X-Org-Id", string(&second.body["id"])),
        )
        .await
        .unwrap();
    assert_eq!(there.body["org_id"], second.body["id"]);
    for (body, expected) in [
        (json!({}), field_error("name", "required")),
        (json!({"name": "a\u{0}"}), field_error("name", "format")),
        (
            json!({"name": "a", "plan": "team"}),
            field_error("plan", "unknown_field"),
        ),
        (
            json!({"name": "ALERT: confirm at https://evil.example"}),
            field_error("name", "format"),
        ),
    ] {
        assert_eq!(
            field_errors(&ada.post("/v1/orgs", &body).await.unwrap()),
            [expected]
        );
    }
    create(&world.key(), "x")
        .await
        .expect_error(403, "session_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_creates_at_most_twenty_orgs() {
    let world = shared_world_without_workers().await;
    let session = world.sign_in(&fresh_email("ada")).await;
    let clients: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&session)))
        .collect();
    let responses =
        join_all((0..30).map(async |n| create(&clients[n % 2], &format!("org {n}")).await)).await;
    assert_eq!(
        responses
            .iter()
            .filter(|response| response.status == 201)
            .count(),
        20
    );
    let refused = responses
        .iter()
        .find(|response| response.status != 201)
        .unwrap();
    assert_eq!(
        (refused.status, error_code(refused)),
        (409, "invalid_state".to_owned()),
        "{}",
        refused.body
    );
    assert_eq!(
        clients[0].get("/v1/me").await.unwrap().body["orgs"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_updates_current_org() {
    let world = shared_world_without_workers().await;
    let owner = world.owner();
    let id = world.org.id.as_str();
    let changed = update(&owner, id, &json!({"name": " New "}))
        .await
        .expect_status(200);
    assert_eq!(changed.body["name"], "New");
    assert_eq!(changed.body["data_use"], "scoring_only");
    let changed = update(&owner, id, &json!({"data_use": "model_improvement"})).await;
    assert_eq!(
        json!([
            changed.body["name"],
            changed.body["data_use"],
            changed.body["role"]
        ]),
        json!(["New", "model_improvement", "owner"])
    );
    assert_eq!(
        owner.get("/v1/me").await.unwrap().body["orgs"],
        json!([changed.body])
    );
    for (change, expected) in [
        (json!({}), vec![field_error("body", "required")]),
        (json!({"name": null}), vec![field_error("body", "required")]),
        (
            json!({"name": " ", "data_use": "all"}),
            vec![
                field_error("name", "required"),
                field_error("data_use", "unknown_value"),
            ],
        ),
        (
            json!({"plan": "team"}),
            vec![field_error("plan", "unknown_field")],
        ),
    ] {
        assert_eq!(
            field_errors(&update(&owner, id, &change).await),
            expected,
            "{change}"
        );
    }
    let member = world.member("member").await;
    update(&member, id, &json!({"name": "Mine"}))
        .await
        .expect_error(403, "forbidden");
    // Two concurrent updates: each is applied completely.
    let change = json!({"name": "A"});
    let other = json!({"data_use": "aggregate_research"});
    tokio::join!(update(&owner, id, &change), update(&owner, id, &other));
    let orgs = owner.get("/v1/me").await.unwrap().body["orgs"].clone();
    assert_eq!(
        json!([orgs[0]["name"], orgs[0]["data_use"]]),
        json!(["A", "aggregate_research"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn org_outside_session_returns_404() {
    let world = shared_world_without_workers().await;
    let other = org(&world.stack, "free").await;
    let own = string(&create(&world.owner(), "Own").await.body["id"]);
    let mut messages = Vec::new();
    for id in [other.id.as_str(), own.as_str(), "org_0", "nonsense"] {
        let response = update(&world.owner(), id, &json!({"name": "x"}))
            .await
            .expect_error(404, "not_found");
        messages.push(string(&response.body["error"]["message"]));
    }
    assert!(
        messages
            .iter()
            .all(|message| *message == messages[0] && message.contains("X-Org-Id")),
        "{messages:?}"
    );
    let request = world
        .owner()
        .request("PATCH", &format!("/v1/orgs/{own}"))
        .header("X-Org-Id", &own);
    world
        .owner()
        .send(request.json(&json!({"name": "x"})))
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn orgs_match_over_grpc() {
    let world = shared_world_without_workers().await;
    let mut grpc = OrgServiceClient::new(world.channel().await);
    let session = world.sign_in(&fresh_email("ada")).await;
    let made = grpc
        .create_org(with_token(
            v1::CreateOrgRequest { name: "Own".into() },
            &session,
        ))
        .await
        .unwrap()
        .into_inner()
        .org
        .unwrap();
    let listed = world.client(&session).get("/v1/me").await.unwrap().body["orgs"][0].clone();
    let theirs = json!([made.id, made.name, made.plan, made.data_use, made.role]);
    assert_eq!(
        json!([
            listed["id"],
            listed["name"],
            listed["plan"],
            listed["data_use"],
            listed["role"]
        ]),
        theirs
    );
    let change = v1::UpdateOrgRequest {
        org_id: made.id.clone(),
        name: None,
        data_use: Some("aggregate_research".into()),
        handle: None,
    };
    let changed = grpc
        .update_org(with_token(change, &session))
        .await
        .unwrap()
        .into_inner()
        .org
        .unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.data_use.as_str()),
        ("Own", "aggregate_research")
    );
    let refused = |change: v1::UpdateOrgRequest| {
        let mut grpc = grpc.clone();
        let request = with_token(change, &session);
        async move { grpc.update_org(request).await.unwrap_err() }
    };
    let empty = refused(v1::UpdateOrgRequest {
        org_id: made.id,
        name: None,
        data_use: None,
        handle: None,
    })
    .await;
    assert_eq!(
        empty.get_details_bad_request().unwrap().field_violations[0].reason,
        "REQUIRED"
    );
    let other = refused(v1::UpdateOrgRequest {
        org_id: world.org.id.clone(),
        name: Some("x".into()),
        data_use: None,
        handle: None,
    })
    .await;
    assert_eq!(other.code(), tonic::Code::NotFound);
}
