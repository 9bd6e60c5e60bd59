//! Handles, and who sees a suite: by visibility, access and caller, on both protocols.

use assay_proto::v1;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use assay_tests::client::{Client, Response};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::disclosure::publish;
use crate::harness::{Expect, Org, World, org, string, wait_until, with_token, world};
use crate::parity::Protocols;
use crate::routes::{ROUTES, Resource, Route};

/// A handle that is unique in its stack.
const HANDLE: &str = "acme";

async fn execute(world: &World, sql: &str) {
    let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
    statement
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

async fn set_handle(client: &Client, org: &Org, handle: &str) -> Response {
    let path = format!("/v1/orgs/{}", org.id);
    let request = client.request("PATCH", &path);
    let request = request.json(&json!({"handle": handle}));
    client.send(request).await.unwrap()
}

/// Publishes a suite of the organization of this world, with a board. Organizations publish by drafts; the
/// test publishes as the operator, and then changes the owner.
pub async fn publish_own(world: &World, name: &str) -> String {
    set_handle(&world.owner(), &world.org, HANDLE).await;
    let suite_id = publish(world, name, 1, "board = \"live\"").await.unwrap();
    // The log signs the commitment by the id that it has.
    let commitment = format!("/v1/suites/{suite_id}/commitment");
    wait_until("the commitment is signed", async || {
        world.anonymous().get(&commitment).await.unwrap().status == 200
    })
    .await;
    let own = format!("suite:{HANDLE}.{name}");
    execute(
        world,
        &format!(
            "set session_replication_role = replica;
             update suites set suite_id = '{own}' where suite_id = '{suite_id}';
             update suite_commitments set suite_id = '{own}' where suite_id = '{suite_id}';
             update boards set suite_id = '{own}' where suite_id = '{suite_id}';
             update suite_owners set suite_id = '{own}', org_id = '{}', visibility = 'private' where suite_id = '{suite_id}'",
            world.org.id
        ),
    )
    .await;
    own
}

/// A kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Owner,
    Granted,
    Verified,
    Other,
    Anonymous,
}

#[tokio::test(flavor = "multi_thread")]
async fn visibility_decides_who_sees_and_access_who_submits() {
    let world = world().await;
    world.widen_plans().await;
    let suite_id = publish_own(&world, "votes").await;
    let mut callers = vec![(Kind::Owner, Some(world.org.key.clone()))];
    for kind in [Kind::Granted, Kind::Verified, Kind::Other] {
        let org = org(&world.stack, "team").await;
        let sql = match kind {
            Kind::Granted => format!(
                "insert into suite_grants (id, suite_id, org_id) values ('grt_{suite_id}', '{suite_id}', '{}')",
                org.id
            ),
            Kind::Verified => format!(
                "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
                 select '{}', 'verified.example', 't', id, now(), now() from users limit 1",
                org.id
            ),
            _ => String::new(),
        };
        execute(&world, &sql).await;
        callers.push((kind, Some(org.key)));
    }
    callers.push((Kind::Anonymous, None));
    let mut grpc = SuiteServiceClient::new(world.channel().await);
    for visibility in ["private", "listed", "public"] {
        for access in ["everyone", "verified_domain", "granted"] {
            let sql = format!(
                "update suite_owners set visibility = '{visibility}', access = '{access}' where suite_id = '{suite_id}'"
            );
            execute(&world, &sql).await;
            for (kind, key) in &callers {
                let sees = match visibility {
                    "private" => matches!(kind, Kind::Owner | Kind::Granted),
                    "listed" => *kind != Kind::Anonymous,
                    _ => true,
                };
                let submits = sees
                    && match access {
                        "everyone" => *kind != Kind::Anonymous,
                        "verified_domain" => matches!(kind, Kind::Owner | Kind::Verified),
                        _ => matches!(kind, Kind::Owner | Kind::Granted),
                    };
                let context = format!("{visibility}, {access}, {kind:?}");
                let client = Client::new(world.stack.url(), key.as_deref());
                let unseen = if key.is_some() { 404 } else { 401 };
                for path in ["", "/items", "/board"] {
                    let path = format!("/v1/suites/{suite_id}{path}");
                    let found = client.get(&path).await.unwrap();
                    let expected = if sees { 200 } else { unseen };
                    assert_eq!(found.status, expected, "{context}: {path} {}", found.body);
                    if path.ends_with(&suite_id) && sees {
                        let suite = &found.body;
                        assert_eq!(suite["can_submit"], submits, "{context}");
                        assert_eq!(suite["visibility"], visibility, "{context}");
                        assert_eq!(suite["access"], access, "{context}");
                        assert_eq!(
                            suite["owner"],
                            json!({"name": "Acme", "handle": HANDLE, "domain": null}),
                            "{context}"
                        );
                    }
                }
                let commitment = format!("/v1/suites/{suite_id}/commitment");
                let found = client.get(&commitment).await.unwrap();
                let expected = if sees || visibility != "private" {
                    200
                } else {
                    404
                };
                assert_eq!(found.status, expected, "{context}: {}", found.body);
                let request = v1::GetSuiteRequest {
                    suite_id: suite_id.clone(),
                };
                let request = match key {
                    Some(key) => with_token(request, key),
                    None => tonic::Request::new(request),
                };
                let found = grpc.get_suite(request).await;
                let found = found.map(|found| found.into_inner().suite.unwrap().can_submit);
                let expected = match (sees, key) {
                    (true, _) => Ok(submits),
                    (false, Some(_)) => Err(Code::NotFound),
                    (false, None) => Err(Code::Unauthenticated),
                };
                assert_eq!(found.map_err(|status| status.code()), expected, "{context}");
                if key.is_none() {
                    continue;
                }
                let listed = client.get("/v1/suites").await.unwrap().body;
                let is_listed = listed["suites"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|suite| suite["suite_id"] == suite_id.as_str());
                assert_eq!(is_listed, sees, "{context}");
                let body = json!({
                    "suite_id": suite_id,
                    "predictions": [{"item_id": "i0", "prediction": "a0"}],
                });
                let submitted = client.post("/v1/evals", &body).await.unwrap();
                let expected = match (sees, submits) {
                    (true, true) => 202,
                    (true, false) => 403,
                    (false, _) => 422,
                };
                assert_eq!(submitted.status, expected, "{context}: {}", submitted.body);
            }
        }
    }
}

/// Returns a response without what differs between two requests: ids, times and the path.
fn anonymized(response: &Response, id: &str) -> (u16, Value) {
    let text = response.body.to_string().replace(id, "suite:…");
    let mut body: Value = serde_json::from_str(&text).unwrap();
    body["error"]["request_id"] = Value::Null;
    (response.status, body)
}

/// Returns the routes that name a suite, with the path or the body that names it.
fn naming_routes() -> Vec<&'static Route> {
    let names_suite = |route: &&Route| {
        matches!(
            route.resource,
            Resource::Suite | Resource::Board | Resource::OpenedFile
        ) || (route.body)()["suite_id"].is_string()
    };
    ROUTES.iter().filter(names_suite).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unseen_suite_equals_unknown_one_on_every_route() {
    let world = world().await;
    world.widen_plans().await;
    let unseen = publish_own(&world, "votes").await;
    let unknown = format!("suite:{HANDLE}.vetos");
    let other = org(&world.stack, "team").await;
    let both = Protocols::of(&world).await;
    let routes = naming_routes();
    assert!(routes.len() >= 6, "{}", routes.len());
    for key in [Some(other.key.as_str()), None] {
        let client = Client::new(world.stack.url(), key);
        for route in &routes {
            let mut rest = Vec::new();
            let mut grpc = Vec::new();
            for suite_id in [&unseen, &unknown] {
                let id = match route.resource {
                    Resource::OpenedFile => format!("{suite_id}/opening/items.ndjson"),
                    _ => suite_id.clone(),
                };
                let mut body = (route.body)();
                if body["suite_id"].is_string() {
                    body["suite_id"] = json!(suite_id);
                }
                let request = route.request_with(&client, &id, &body);
                rest.push(anonymized(&client.send(request).await.unwrap(), suite_id));
                if both.routes().any(|one| std::ptr::eq(one, *route)) {
                    let called = both.call(route, key, suite_id, &body).await;
                    let status = |status: Status| (status.code(), status.message().to_owned());
                    grpc.push(called.map_err(status));
                }
            }
            let context = format!("{} {} with {key:?}", route.method, route.path);
            assert!(rest[0].0 >= 400, "{context}: {:?}", rest[0]);
            assert_eq!(rest[0], rest[1], "{context}");
            assert!(
                grpc.windows(2).all(|two| two[0] == two[1]),
                "{context}: {grpc:?}"
            );
        }
    }
    // Filters name suites too.
    let client = world.client(&other.key);
    for path in ["/v1/jobs", "/v1/entries", "/v1/suites"] {
        let query = match path {
            "/v1/suites" => format!("?owner={HANDLE}"),
            _ => format!("?suite_id={unseen}"),
        };
        let found = client
            .get(&format!("{path}{query}"))
            .await
            .expect_status(200);
        let lists = found.body.as_object().unwrap().values();
        let empty = lists.filter_map(Value::as_array).all(Vec::is_empty);
        assert!(empty, "{path}: {}", found.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suites_are_listed_by_page_and_owner() {
    let world = world().await;
    publish_own(&world, "b").await;
    publish(&world, "other", 1, "").await.unwrap();
    let key = world.key();
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = key.get(&format!("/v1/suites?limit=1{cursor}")).await;
        let page = page.expect_status(200).body;
        ids.extend(
            page["suites"]
                .as_array()
                .unwrap()
                .iter()
                .map(|suite| string(&suite["suite_id"])),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let all = key.get("/v1/suites").await.expect_status(200).body;
    let all = all["suites"].as_array().unwrap().iter();
    let all: Vec<String> = all.map(|suite| string(&suite["suite_id"])).collect();
    assert!(
        ids.contains(&format!("suite:{HANDLE}.b")) && ids.len() > 2,
        "{ids:?}"
    );
    assert_eq!(ids, all);
    for (owner, n) in [("me", 1), (HANDLE, 1), ("nobody", 0)] {
        let found = key.get(&format!("/v1/suites?owner={owner}")).await;
        let found = found.expect_status(200).body;
        assert_eq!(
            found["suites"].as_array().unwrap().len(),
            n,
            "{owner}: {found}"
        );
    }
    for bad in ["owner=A", "limit=1001", "cursor=x"] {
        key.get(&format!("/v1/suites?{bad}"))
            .await
            .expect_error(422, "validation_failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handle_is_set_once_and_never_given_out_again() {
    let world = world().await;
    let owner = world.owner();
    let set = set_handle(&owner, &world.org, HANDLE).await;
    assert_eq!((set.status, &set.body["handle"]), (200, &json!(HANDLE)));
    let again = set_handle(&owner, &world.org, HANDLE).await;
    assert_eq!(again.status, 200, "{}", again.body);
    let changed = set_handle(&owner, &world.org, "other").await;
    assert_eq!(
        (changed.status, &changed.body["error"]["details"]),
        (409, &json!({"reason": "handle_set"}))
    );
    let me = owner.get("/v1/me").await.expect_status(200).body;
    assert_eq!(me["orgs"][0]["handle"], HANDLE);
    let rival = org(&world.stack, "team").await;
    let rival_owner = world.client(&rival.session);
    for reserved in ["admin", "me", "A"] {
        let refused = set_handle(&rival_owner, &rival, reserved).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
    }
    publish(&world, "taken.one", 1, "").await.unwrap();
    for command in ["suspend", "delete"] {
        let mut arguments = vec!["org", command, "--org", &world.org.id];
        if command == "delete" {
            arguments.extend(["--confirm", &world.org.id]);
        }
        world.stack.operate(&arguments).await.unwrap();
    }
    for taken in [HANDLE, "taken"] {
        let refused = set_handle(&rival_owner, &rival, taken).await;
        assert_eq!(
            (refused.status, &refused.body["error"]["details"]),
            (409, &json!({"reason": "handle_taken"})),
            "{taken}"
        );
    }
    let refused = publish(&world, &format!("{HANDLE}.two"), 1, "")
        .await
        .unwrap_err();
    assert!(
        refused.contains("an organization has the handle acme"),
        "{refused}"
    );
    // The name of a verified domain is for its holders.
    execute(
        &world,
        &format!(
            "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
             select '{}', 'mail.lab.example', 't', id, now(), now() from users limit 1",
            rival.id
        ),
    )
    .await;
    let third = org(&world.stack, "team").await;
    let refused = set_handle(&world.client(&third.session), &third, "lab").await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    let set = set_handle(&rival_owner, &rival, "lab").await;
    assert_eq!(set.status, 200, "{}", set.body);
}

/// A private suite's version is an event of those that see it.
#[tokio::test(flavor = "multi_thread")]
async fn private_suite_is_an_event_of_those_that_see_it() {
    let world = world().await;
    let suite_id = publish_own(&world, "votes").await;
    let others = org(&world.stack, "team").await;
    let granted = org(&world.stack, "team").await;
    execute(
        &world,
        &format!(
            "insert into suite_grants (id, suite_id, org_id) values ('grt_{suite_id}', '{suite_id}', '{}')",
            granted.id
        ),
    )
    .await;
    let mut database = world.database().await;
    let id = suite_id.parse().unwrap();
    assay_core::store::event::insert_suite_published(&mut database, &id, "1")
        .await
        .unwrap();
    for (key, n) in [(&world.org.key, 1), (&granted.key, 1), (&others.key, 0)] {
        let events = world
            .client(key)
            .get("/v1/events?type=suite.published")
            .await;
        let events = events.expect_status(200).body;
        let events = events["events"].as_array().unwrap().iter();
        let found = events.filter(|event| event["data"]["suite_id"] == suite_id.as_str());
        assert_eq!(found.count(), n);
    }
}
