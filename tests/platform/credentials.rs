//! Who may call what: every route of the table with every kind of credential, on one's own things, another
//! organization's, and such as are not there.

use assay_tests::client::Answer;
use serde_json::Value;

use crate::harness::{code, org, text, world};
use crate::routes::{
    Callers, Class, FAILURES, MAILS, REQUESTS, ROUTES, Route, Thing, Who, furnished,
};

/// What every answer has, whoever asked.
fn check_headers(answer: &Answer, route: &Route, who: Who, told: &str) {
    assert!(answer.header("x-request-id").starts_with("req_"), "{told}");
    assert_eq!(
        answer.header("www-authenticate"),
        if answer.status == 401 { "Bearer" } else { "" },
        "{told}"
    );
    let limit: u64 = answer.header("x-ratelimit-limit").parse().unwrap();
    let expected = match who {
        _ if route.path == "/v1/auth/email" => MAILS,
        _ if route.class == Class::Open => FAILURES,
        Who::Nobody | Who::Malformed | Who::Revoked => FAILURES,
        Who::Homeless => 60,
        Who::Key | Who::Viewer | Who::Member | Who::Owner => REQUESTS,
    };
    assert_eq!(limit, expected, "{told}");
    assert!(
        answer
            .header("x-ratelimit-remaining")
            .parse::<u64>()
            .unwrap()
            <= limit,
        "{told}"
    );
    assert!(
        answer.header("x-ratelimit-reset").parse::<u64>().unwrap() > 1_700_000_000,
        "{told}"
    );
    if answer.status >= 400 {
        assert_eq!(
            answer.body["error"]["request_id"],
            answer.header("x-request-id"),
            "{told}"
        );
        assert_eq!(answer.header("content-type"), "application/json", "{told}");
    }
}

/// An error but for what is of this one request.
fn anonymized(answer: &Answer) -> Value {
    let mut body = answer.body.clone();
    body["error"]["request_id"] = Value::Null;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_each_kind_of_caller_about_each_kind_of_thing_as_the_contract_says() {
    let (mut world, _name_server) = furnished().await;
    let other = org(&world.stack, "team").await;
    world.accept_terms(&other).await;
    let mut scored = Vec::new();
    for thing in [
        Thing::Scored,
        Thing::ScoredWithFeedback,
        Thing::ScoredWithSealed,
    ] {
        scored.push((
            thing,
            world.thing(&world.org, thing).await,
            world.thing(&other, thing).await,
        ));
    }
    // From here on jobs wait.
    world.stack.workers.clear();
    let mut callers = Callers::of(&world).await;
    for (i, route) in ROUTES.iter().enumerate() {
        // A call may have brought the last one an organization, and they have few requests a minute.
        callers.replace(
            Who::Homeless,
            world.homeless(&format!("homeless-{i}")).await,
        );
        for (who, client) in &callers.0 {
            let ask = async |id: &str| {
                let answer = client.send(route.request(client, id)).await.unwrap();
                let told = format!(
                    "{} {} by {who:?}: {} {}",
                    route.method,
                    route.path_of(id),
                    answer.status,
                    answer.body
                );
                check_headers(&answer, route, *who, &told);
                (answer, told)
            };
            let scored = scored.iter().find(|(thing, ..)| *thing == route.thing);
            let own = match scored {
                Some((_, own, _)) => own.clone(),
                None => world.thing(&world.org, route.thing).await,
            };
            let mut nothing: Vec<String> = match route.thing {
                Thing::None => Vec::new(),
                thing => thing.unknown().map(str::to_owned).into(),
            };
            if route.thing.is_owned() {
                nothing.push(match scored {
                    Some((_, _, theirs)) => theirs.clone(),
                    None => world.thing(&other, route.thing).await,
                });
            }
            match route.class.verdict(*who) {
                Ok(()) => {
                    let mut refusals = Vec::new();
                    for id in &nothing {
                        let (answer, told) = ask(id).await;
                        assert_eq!(
                            (answer.status, code(&answer).as_str()),
                            (404, "not_found"),
                            "{told}"
                        );
                        refusals.push(anonymized(&answer));
                    }
                    assert!(
                        refusals.windows(2).all(|two| two[0] == two[1]),
                        "what is another's is told apart: {refusals:?}"
                    );
                    let (answer, told) = ask(&own).await;
                    assert_eq!(answer.status, route.success, "{told}");
                }
                // Whether it is there, and whose it is, makes no difference.
                Err(refusal) => {
                    for id in nothing.iter().chain([&own]) {
                        let (answer, told) = ask(id).await;
                        assert_eq!((answer.status, code(&answer).as_str()), refusal, "{told}");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_acts_for_the_organization_it_names_and_stays_with_it() {
    let world = world().await;
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
        (text(&first.body["org_id"]), text(&first.body["principal"])),
        (world.org.id.clone(), "session".to_owned())
    );
    assert_eq!(first.body["orgs"].as_array().unwrap().len(), 2);
    assert_eq!(me(Some(&other.id)).await.body["org_id"], other.id.as_str());
    assert_eq!(
        me(None).await.body["org_id"],
        other.id.as_str(),
        "the one last chosen"
    );
    let stranger = org(&world.stack, "free").await;
    for unknown in [stranger.id.as_str(), "org_0", "nonsense"] {
        let answer = me(Some(unknown)).await;
        assert_eq!(
            (answer.status, code(&answer)),
            (404, "not_found".to_owned()),
            "{unknown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_names_another_organization_than_its_own_finds_none() {
    let world = world().await;
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
        let answer = me(unknown).await;
        assert_eq!(
            (answer.status, code(&answer)),
            (404, "not_found".to_owned()),
            "{unknown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lists_its_own_organization_only() {
    let world = world().await;
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
        ["created_at", "data_use", "id", "name", "plan", "role"]
    );
    assert_eq!(
        (&orgs[0]["role"], &orgs[0]["plan"], &orgs[0]["data_use"]),
        (&"member".into(), &"team".into(), &"scoring_only".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_by_itself() {
    let world = world().await;
    let mut database = world.database().await;
    for change in [
        "last_used_at = now() - interval '8 days'",
        "expires_at = now() - interval '1 second'",
        "ended_at = now()",
    ] {
        // No session comes back to life, so that a rejection may be remembered.
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
        let session = world.client(&text(&made["token"]));
        assert_eq!(session.get("/v1/me").await.unwrap().status, 200);
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update sessions set {change}")))
            .execute(&mut database)
            .await
            .unwrap();
        let answer = session.get("/v1/me").await.unwrap();
        assert_eq!(
            (answer.status, code(&answer)),
            (401, "invalid_token".to_owned()),
            "{change}"
        );
    }
}
