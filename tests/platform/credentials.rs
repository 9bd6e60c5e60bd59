//! Access rules: every route of the table with every kind of credential, on own resources,
//! resources of another organization, and unknown resources.

use assay_proto::operations::Access;
use assay_tests::client::Response;
use serde_json::Value;

use crate::harness::{Expect, error_code, org, shared_world, string};
use crate::routes::{
    Callers, Class, FAILURES, MAILS, REQUESTS, ROUTES, Resource, Route, Who, world_for_routes,
};

/// Checks the headers that every response has, for every caller.
fn check_headers(response: &Response, route: &Route, who: Who, context: &str) {
    assert!(
        response.header("x-request-id").starts_with("req_"),
        "{context}"
    );
    assert_eq!(
        response.header("www-authenticate"),
        if response.status == 401 { "Bearer" } else { "" },
        "{context}"
    );
    let limit: u64 = response.header("x-ratelimit-limit").parse().unwrap();
    let expected = match who {
        _ if ["/v1/auth/email", "/v1/auth/device"].contains(&route.path) => MAILS,
        // What is public needs no credential, and is limited by the address.
        Who::Malformed | Who::Revoked if matches!(route.class(), Class::Public(_)) => FAILURES,
        _ if route.path.contains("/commitment") || route.path.contains("/opening/") => 600,
        _ if route.class() == Class::Open => FAILURES,
        Who::Nobody if matches!(route.operation().access, Access::Public(_)) => 60,
        Who::Nobody | Who::Malformed | Who::Revoked => FAILURES,
        Who::UserWithoutOrg => 60,
        Who::Key | Who::Viewer | Who::Member | Who::Owner => REQUESTS,
    };
    assert_eq!(limit, expected, "{context}");
    assert!(
        response
            .header("x-ratelimit-remaining")
            .parse::<u64>()
            .unwrap()
            <= limit,
        "{context}"
    );
    assert!(
        response.header("x-ratelimit-reset").parse::<u64>().unwrap() > 1_700_000_000,
        "{context}"
    );
    if response.status >= 400 {
        assert_eq!(
            response.body["error"]["request_id"],
            response.header("x-request-id"),
            "{context}"
        );
        assert_eq!(
            response.header("content-type"),
            "application/json",
            "{context}"
        );
    }
}

/// Returns the body of an error without its request id.
fn anonymized(response: &Response) -> Value {
    let mut body = response.body.clone();
    body["error"]["request_id"] = Value::Null;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_enforces_its_access_rules() {
    let (mut world, _name_server) = world_for_routes().await;
    let other = org(&world.stack, "team").await;
    world.accept_terms(&other).await;
    let mut scored = Vec::new();
    for resource in [
        Resource::Scored,
        Resource::ScoredWithFeedback,
        Resource::ScoredWithSealed,
        Resource::Entry,
        Resource::Receipt,
        Resource::Predicted,
    ] {
        scored.push((
            resource,
            world.create_resource(&world.org, resource).await,
            world.create_resource(&other, resource).await,
        ));
    }
    // From here on jobs stay queued.
    world.stack.workers.clear();
    let mut callers = Callers::of(&world).await;
    for (i, route) in ROUTES.iter().enumerate() {
        // A call may have given the last such user an organization, and the user has few requests a
        // minute.
        callers.replace(
            Who::UserWithoutOrg,
            world.user_without_org(&format!("homeless-{i}")).await,
        );
        for (who, client) in &callers.0 {
            let send = async |id: &str| {
                let response = client.send(route.request(client, id)).await.unwrap();
                let context = format!(
                    "{} {} by {who:?}: {} {}",
                    route.method,
                    route.path_of(id),
                    response.status,
                    response.body
                );
                check_headers(&response, route, *who, &context);
                (response, context)
            };
            let scored = scored
                .iter()
                .find(|(resource, ..)| *resource == route.resource);
            let own = match scored {
                Some((_, own, _)) => own.clone(),
                None => world.create_resource(&world.org, route.resource).await,
            };
            let mut nothing: Vec<String> = match route.resource {
                Resource::None => Vec::new(),
                resource => resource.unknown().map(str::to_owned).into(),
            };
            if route.resource.is_owned() {
                nothing.push(match scored {
                    Some((_, _, theirs)) => theirs.clone(),
                    None => world.create_resource(&other, route.resource).await,
                });
            }
            match route.class().verdict(*who) {
                Ok(()) => {
                    let mut refusals = Vec::new();
                    for id in &nothing {
                        let (response, context) = send(id).await;
                        assert_eq!(
                            (response.status, error_code(&response).as_str()),
                            (404, "not_found"),
                            "{context}"
                        );
                        refusals.push(anonymized(&response));
                    }
                    assert!(
                        refusals.windows(2).all(|two| two[0] == two[1]),
                        "a foreign resource differs from an unknown one: {refusals:?}"
                    );
                    let (response, context) = send(&own).await;
                    assert!(route.has_status(response.status), "{context}");
                }
                // Neither existence nor ownership of the resource makes a difference.
                Err(refusal) => {
                    for id in nothing.iter().chain([&own]) {
                        let (response, context) = send(id).await;
                        assert_eq!(
                            (response.status, error_code(&response).as_str()),
                            refusal,
                            "{context}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_remembers_chosen_organization() {
    let world = shared_world().await;
    let other = org(&world.stack, "free").await;
    let add = sqlx::query(
        "insert into memberships (org_id, user_id, role) select $1, id, 'viewer' from users where email = $2",
    );
    add.bind(&other.id)
        .bind(&world.org.email)
        .execute(&mut world.database().await)
        .await
        .unwrap();
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
    assert_eq!(
        (
            string(&first.body["org_id"]),
            string(&first.body["principal"])
        ),
        (world.org.id.clone(), "session".to_owned())
    );
    assert_eq!(first.body["orgs"].as_array().unwrap().len(), 2);
    assert_eq!(me(Some(&other.id)).await.body["org_id"], other.id.as_str());
    assert_eq!(
        me(None).await.body["org_id"],
        other.id.as_str(),
        "the last chosen organization"
    );
    let stranger = org(&world.stack, "free").await;
    for unknown in [stranger.id.as_str(), "org_0", "nonsense"] {
        me(Some(unknown)).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_for_other_organization_returns_404() {
    let world = shared_world().await;
    let other = org(&world.stack, "free").await;
    let key = world.key();
    let me = async |org: &str| {
        key.send(key.request("GET", "/v1/me").header("X-Org-Id", org))
            .await
            .unwrap()
    };
    assert_eq!(
        me(&world.org.id).await.body["org_id"],
        world.org.id.as_str()
    );
    for unknown in [other.id.as_str(), "org_0", "nonsense", ""] {
        me(unknown).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_lists_only_its_organization() {
    let world = shared_world().await;
    let me = world.key().get("/v1/me").await.unwrap();
    assert_eq!(me.body["principal"], "api_key");
    let orgs = me.body["orgs"].as_array().unwrap();
    assert_eq!(orgs.len(), 1);
    let mut fields: Vec<_> = orgs[0]
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
    assert_eq!(
        (&orgs[0]["role"], &orgs[0]["plan"], &orgs[0]["data_use"]),
        (&"member".into(), &"team".into(), &"scoring_only".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_expires() {
    let world = shared_world().await;
    let mut database = world.database().await;
    for change in [
        "last_used_at = now() - interval '8 days'",
        "expires_at = now() - interval '1 second'",
        "ended_at = now()",
    ] {
        // Each case needs a new session: no session becomes valid again, so a rejection may be
        // cached.
        let made = world
            .stack
            .operate(&[
                "session",
                "create",
                "--email",
                &world.org.email,
                "--org",
                &world.org.id,
            ])
            .await
            .unwrap();
        let session = world.client(&string(&made["token"]));
        session.get("/v1/me").await.expect_status(200);
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "update sessions set {change} where org_id = $1"
        )))
        .bind(&world.org.id)
        .execute(&mut database)
        .await
        .unwrap();
        session
            .get("/v1/me")
            .await
            .expect_error(401, "invalid_token");
    }
}
