//! Who may call what: every route with every kind of credential. The table is the contract's.

use assay_tests::client::Client;

use crate::harness::{code, org, text, world};

/// What a route answers to each kind of caller: status and code, where the call itself would succeed.
struct Row {
    method: &'static str,
    path: &'static str,
    key: (u16, &'static str),
    viewer: (u16, &'static str),
    member: (u16, &'static str),
    owner: (u16, &'static str),
    homeless: (u16, &'static str),
}

const OK: (u16, &str) = (200, "");
const SESSION: (u16, &str) = (403, "session_required");
const FORBIDDEN: (u16, &str) = (403, "forbidden");
const ORG: (u16, &str) = (403, "org_required");
const FIELDS: (u16, &str) = (422, "validation_failed");
const MISSING: (u16, &str) = (404, "not_found");

const ROUTES: [Row; 17] = [
    Row { method: "GET", path: "/v1/me", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "GET", path: "/v1/keys", key: SESSION, viewer: OK, member: OK, owner: OK, homeless: ORG },
    // An empty object is sent: whoever may call is told what is missing.
    Row { method: "POST", path: "/v1/keys", key: SESSION, viewer: FORBIDDEN, member: FIELDS, owner: FIELDS, homeless: ORG },
    Row { method: "DELETE", path: "/v1/keys/key_0", key: SESSION, viewer: FORBIDDEN, member: MISSING, owner: MISSING, homeless: ORG },
    Row { method: "GET", path: "/v1/suites", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "GET", path: "/v1/suites/suite:lunch/items", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "GET", path: "/v1/members", key: SESSION, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "PATCH", path: "/v1/members/usr_0", key: SESSION, viewer: FORBIDDEN, member: FORBIDDEN, owner: FIELDS, homeless: ORG },
    Row { method: "DELETE", path: "/v1/members/usr_0", key: SESSION, viewer: FORBIDDEN, member: FORBIDDEN, owner: MISSING, homeless: ORG },
    Row { method: "GET", path: "/v1/models", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "GET", path: "/v1/models/none", key: MISSING, viewer: MISSING, member: MISSING, owner: MISSING, homeless: ORG },
    Row { method: "GET", path: "/v1/usage", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "POST", path: "/v1/evals", key: FIELDS, viewer: FORBIDDEN, member: FIELDS, owner: FIELDS, homeless: ORG },
    Row { method: "GET", path: "/v1/jobs", key: OK, viewer: OK, member: OK, owner: OK, homeless: ORG },
    Row { method: "POST", path: "/v1/jobs/job_0/cancel", key: MISSING, viewer: FORBIDDEN, member: MISSING, owner: MISSING, homeless: ORG },
    Row { method: "GET", path: "/v1/jobs/job_0", key: MISSING, viewer: MISSING, member: MISSING, owner: MISSING, homeless: ORG },
    Row { method: "GET", path: "/v1/jobs/job_0/trace", key: MISSING, viewer: MISSING, member: MISSING, owner: MISSING, homeless: ORG },
];

async fn check(client: &Client, row: &Row, who: &str, (status, expected): (u16, &str)) {
    let request = client.request(row.method, row.path);
    let request = if ["POST", "PATCH"].contains(&row.method) { request.json(&serde_json::json!({})) } else { request };
    let answer = client.send(request).await.unwrap();
    let told = format!("{} {} by {who}: {}", row.method, row.path, answer.body);
    assert_eq!(answer.status, status, "{told}");
    if status != 200 {
        assert_eq!(code(&answer), expected, "{told}");
    }
    assert_eq!(answer.header("www-authenticate"), if status == 401 { "Bearer" } else { "" }, "{told}");
    let limit = if status == 401 {
        "1000000"
    } else if expected == "org_required" {
        "60"
    } else {
        "1000"
    };
    assert_eq!(answer.header("x-ratelimit-limit"), limit, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_each_kind_of_caller_as_the_contract_says() {
    let world = crate::harness::world_of(crate::harness::with("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000")).await;
    let made = world.owner().post("/v1/keys", &serde_json::json!({"name": "old"})).await.unwrap();
    let revoked = world.client(&text(&made.body["key"]));
    world.owner().send(world.owner().request("DELETE", &format!("/v1/keys/{}", text(&made.body["id"])))).await.unwrap();
    let (viewer, member) = (world.member("viewer").await, world.member("member").await);
    let homeless = homeless(&world).await;
    for row in &ROUTES {
        check(&world.anonymous(), row, "nobody", (401, "unauthenticated")).await;
        check(&world.client("svc_live_nonsense"), row, "a malformed key", (401, "invalid_token")).await;
        check(&revoked, row, "a revoked key", (401, "key_revoked")).await;
        check(&world.key(), row, "a key", row.key).await;
        check(&viewer, row, "a viewer", row.viewer).await;
        check(&member, row, "a member", row.member).await;
        check(&world.owner(), row, "the owner", row.owner).await;
        check(&homeless, row, "a person without organization", row.homeless).await;
    }
}

/// A person whose only membership has ended.
async fn homeless(world: &crate::harness::World) -> Client {
    let own = org(&world.stack, "free").await;
    sqlx::query("delete from memberships where org_id = $1").bind(&own.id).execute(&mut world.database().await).await.unwrap();
    world.client(&own.session)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_acts_for_the_organization_it_names_and_stays_with_it() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    let add = sqlx::query("insert into memberships (org_id, user_id, role) select $1, id, 'viewer' from users where email = $2");
    add.bind(&other.id).bind(&world.org.email).execute(&mut world.database().await).await.unwrap();
    let owner = world.owner();
    let me = async |org: Option<&str>| {
        let request = owner.request("GET", "/v1/me");
        owner
            .send(match org {
                Some(org) => request.header("X-Org-Id", org),
                None => request,
            })
            .await
            .unwrap()
    };
    let first = me(None).await;
    assert_eq!((text(&first.body["org_id"]), text(&first.body["principal"])), (world.org.id.clone(), "session".to_owned()));
    assert_eq!(first.body["orgs"].as_array().unwrap().len(), 2);
    assert_eq!(me(Some(&other.id)).await.body["org_id"], other.id.as_str());
    assert_eq!(me(None).await.body["org_id"], other.id.as_str(), "the one last chosen");
    let stranger = org(&world.stack, "free").await;
    for unknown in [stranger.id.as_str(), "org_0", "nonsense"] {
        let answer = me(Some(unknown)).await;
        assert_eq!((answer.status, code(&answer)), (404, "not_found".to_owned()), "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_names_another_organization_than_its_own_finds_none() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    let key = world.key();
    let me = async |org: &str| key.send(key.request("GET", "/v1/me").header("X-Org-Id", org)).await.unwrap();
    assert_eq!(me(&world.org.id).await.body["org_id"], world.org.id.as_str());
    for unknown in [other.id.as_str(), "org_0", "nonsense", ""] {
        let answer = me(unknown).await;
        assert_eq!((answer.status, code(&answer)), (404, "not_found".to_owned()), "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lists_its_own_organization_only() {
    let world = world().await;
    let me = world.key().get("/v1/me").await.unwrap();
    assert_eq!(me.body["principal"], "api_key");
    let orgs = me.body["orgs"].as_array().unwrap();
    assert_eq!(orgs.len(), 1);
    let mut fields: Vec<_> = orgs[0].as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["created_at", "data_use", "id", "name", "plan", "role"]);
    assert_eq!((&orgs[0]["role"], &orgs[0]["plan"], &orgs[0]["data_use"]), (&"member".into(), &"team".into(), &"scoring_only".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_by_itself() {
    let world = world().await;
    let mut database = world.database().await;
    for (change, back) in [
        ("last_used_at = now() - interval '8 days'", "last_used_at = now()"),
        ("expires_at = now() - interval '1 second'", "expires_at = now() + interval '1 day'"),
        ("ended_at = now()", "ended_at = null"),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update sessions set {change}"))).execute(&mut database).await.unwrap();
        let answer = world.owner().get("/v1/me").await.unwrap();
        assert_eq!((answer.status, code(&answer)), (401, "invalid_token".to_owned()), "{change}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update sessions set {back}"))).execute(&mut database).await.unwrap();
        assert_eq!(world.owner().get("/v1/me").await.unwrap().status, 200);
    }
}
