//! Device logins: `/v1/auth/device`. The page on which a user decides has its own tests; here its
//! decisions are made by the statement that it uses.

use assay_core::model::audit::Actor;
use assay_core::model::device::{Approval, UserCode};
use assay_core::model::scope::{Scope, Scopes};
use assay_core::store::device::{Decided, Decision};
use assay_core::{Timestamp, UserId, store};
use assay_proto::v1;
use assay_proto::v1::auth_service_client::AuthServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Connection as _;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::harness::{
    Expect, Org, World, error_code, field_error, field_errors, org, pause,
    shared_world_without_workers, string, wait_until, with_setting, world_with,
};

/// Starts a world with two API processes, in which many logins can be started.
async fn world() -> World {
    world_with(StackSize {
        apis: 2,
        workers: 0,
        ..with_setting("ASSAY_DEVICE_LOGINS_PER_MINUTE", "1000")
    })
    .await
}

/// Starts a login, and returns its response.
pub async fn start(world: &World, client_name: &str) -> Value {
    let body = json!({"client_name": client_name});
    let started = world.anonymous().post("/v1/auth/device", &body).await;
    let started = started.unwrap();
    assert_eq!(started.status, 201, "{}", started.body);
    started.body
}

async fn poll_by(client: &Client, login: &Value) -> Response {
    let body = json!({"device_code": login["device_code"]});
    client.post("/v1/auth/device/token", &body).await.unwrap()
}

/// Polls a login as if the interval had passed: a process refuses polls that follow each other at once
/// without a look at the database.
pub async fn poll(world: &World, login: &Value) -> Response {
    loop {
        execute(
            world,
            "update device_logins set polled_at = polled_at - interval '5 seconds'",
        )
        .await;
        let polled = poll_by(&world.anonymous(), login).await;
        let message = polled.body["error"]["message"].as_str().unwrap_or_default();
        if polled.status != 429 || !message.contains("between two polls") {
            return polled;
        }
        pause("the next poll", Duration::from_millis(200)).await;
    }
}

async fn execute(world: &World, sql: &'static str) {
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

/// Returns an organization owner's id.
async fn owner(world: &World, org: &Org) -> UserId {
    let id: String = sqlx::query_scalar("select id from users where email = $1")
        .bind(&org.email)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    id.parse().unwrap()
}

/// A user's decision.
enum Choice<'a> {
    Approve(&'a Approval),
    Deny,
}

/// Decides about a login with the API's rights.
async fn decide(world: &World, login: &Value, choice: Choice<'_>) -> Decided {
    let code = UserCode::read(&string(&login["user_code"])).unwrap();
    let mut db = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    let mut transaction = db.begin().await.unwrap();
    let decided = match choice {
        Choice::Approve(approval) => {
            let actor = Actor::user(approval.approved_by.clone(), None);
            let decision = Decision::Approve(approval, &actor);
            store::device::decide(&mut transaction, &code, decision).await
        }
        Choice::Deny => store::device::decide(&mut transaction, &code, Decision::Deny).await,
    };
    transaction.commit().await.unwrap();
    decided.unwrap()
}

/// Returns an approval by an organization's owner.
async fn approval(world: &World, org: &Org) -> Approval {
    Approval {
        org_id: org.id.parse().unwrap(),
        approved_by: owner(world, org).await,
        name: "laptop".into(),
        scopes: Scopes::All,
        expires_at: None,
    }
}

/// Approves a login as an organization's owner.
pub async fn approve(world: &World, login: &Value, org: &Org) -> Decided {
    decide(world, login, Choice::Approve(&approval(world, org).await)).await
}

/// Denies a login.
pub async fn deny(world: &World, login: &Value) {
    let _ = decide(world, login, Choice::Deny).await;
}

/// Returns the names of an organization's keys that a login has created.
async fn keys(world: &World, org: &Org) -> i64 {
    let created = "select count(*) from api_keys where org_id = $1 and name = 'laptop'";
    sqlx::query_scalar(created)
        .bind(&org.id)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}

fn assert_ended(response: &Response) {
    response.expect_error(401, "invalid_token");
}

fn assert_status(response: &Response, status: &str) {
    response.expect_status(200);
    assert_eq!(response.body["status"], status, "{}", response.body);
    assert_eq!(
        response.body["api_key"].is_null(),
        status != "granted",
        "{}",
        response.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_login_gets_a_key() {
    let world = world().await;
    let login = start(&world, " assay on node-7 ").await;
    let code = string(&login["user_code"]);
    let page = format!("{}/device", world.stack.url());
    assert_eq!(
        json!([
            login["verification_url"],
            login["verification_url_complete"],
            login["interval"]
        ]),
        json!([page, format!("{page}?code={code}"), 5])
    );
    let left = login["expires_at"].as_str().unwrap().parse::<Timestamp>();
    let left = Timestamp::now().seconds_until(left.unwrap());
    assert!((480..=600).contains(&left), "{left}");
    assert_eq!(login.as_object().unwrap().len(), 6);

    let anonymous = world.anonymous();
    assert_status(&poll_by(&anonymous, &login).await, "pending");
    // The interval begins now, also on a busy machine.
    execute(&world, "update device_logins set polled_at = now()").await;
    let early = poll_by(&anonymous, &login)
        .await
        .expect_error(429, "rate_limited");
    let wait: u32 = early.header("retry-after").parse().unwrap();
    assert!((1..=5).contains(&wait), "{wait}");
    assert_status(&poll(&world, &login).await, "pending");

    let expires_at = Timestamp::now().plus_micros(3_600_000_000);
    let approval = Approval {
        scopes: Scopes::Only(vec![Scope::JobsRead]),
        expires_at: Some(expires_at),
        ..approval(&world, &world.org).await
    };
    assert_eq!(
        decide(&world, &login, Choice::Approve(&approval)).await,
        Decided::Done
    );
    assert_eq!(
        keys(&world, &world.org).await,
        0,
        "the poll creates the key"
    );
    let granted = poll(&world, &login).await;
    assert_status(&granted, "granted");
    let key = &granted.body["api_key"];
    assert_eq!(
        json!([
            key["org_id"],
            key["name"],
            key["created_by"],
            key["scopes"],
            key["expires_at"]
        ]),
        json!([
            world.org.id,
            "laptop",
            approval.approved_by,
            ["jobs:read"],
            expires_at
        ])
    );
    let secret = string(&key["key"]);
    assert!(secret.starts_with(key["prefix"].as_str().unwrap()));
    let me = world.client(&secret).get("/v1/me").await.unwrap();
    assert_eq!(me.body["org_id"], json!(world.org.id), "{}", me.body);

    // A lost response can be fetched again for a minute.
    let again = poll(&world, &login).await;
    assert_status(&again, "granted");
    assert_eq!(again.body["api_key"]["key"], json!(secret));
    execute(
        &world,
        "update device_logins set granted_at = granted_at - interval '1 minute'",
    )
    .await;
    assert_ended(&poll(&world, &login).await);
    assert_eq!(keys(&world, &world.org).await, 1);

    let log = world.owner().get("/v1/audit?limit=2").await.unwrap();
    let entry = |place: usize| {
        let entry = &log.body["entries"][place];
        let changes = entry["changes"]["name"]["after"].clone();
        json!([
            entry["type"],
            entry["target"]["type"],
            entry["actor"]["email"],
            changes
        ])
    };
    assert_eq!(
        [entry(1), entry(0)],
        [
            json!(["device.granted", "device", world.org.email, "laptop"]),
            json!(["key.created", "key", world.org.email, "laptop"])
        ]
    );
    let granted = &log.body["entries"][1]["changes"];
    assert_eq!(granted["client_name"]["after"], "assay on node-7");
    let created = &log.body["entries"][0];
    assert_eq!(
        (&created["target"]["id"], &created["address"]),
        (&key["id"], &json!("127.0.0.1")),
        "the key belongs to the program at this address"
    );
    assert!(string(&created["request_id"]).starts_with("req_"));
    wait_until("the event", async || {
        let page = world.owner().get("/v1/events?type=key.created").await;
        let events = &page.unwrap().body["events"];
        let last = events.as_array().unwrap().last();
        last.is_some_and(|event| event["data"]["id"] == key["id"])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_expired_and_unknown_logins_get_no_key() {
    let world = world().await;
    let denied = start(&world, "denied").await;
    assert_eq!(decide(&world, &denied, Choice::Deny).await, Decided::Done);
    assert_eq!(decide(&world, &denied, Choice::Deny).await, Decided::Before);
    assert_eq!(approve(&world, &denied, &world.org).await, Decided::Before);
    assert_status(&poll(&world, &denied).await, "denied");

    let late = start(&world, "late").await;
    let approved = start(&world, "approved").await;
    assert_eq!(approve(&world, &approved, &world.org).await, Decided::Done);
    assert_eq!(
        decide(&world, &approved, Choice::Deny).await,
        Decided::Before
    );
    execute(&world, "update device_logins set expires_at = now()").await;
    for login in [&denied, &late, &approved] {
        assert_ended(&poll(&world, login).await);
    }
    assert_eq!(approve(&world, &late, &world.org).await, Decided::Missing);
    assert_eq!(decide(&world, &late, Choice::Deny).await, Decided::Missing);
    let unknown = json!({"user_code": UserCode::random().unwrap().to_string()});
    assert_eq!(
        approve(&world, &unknown, &world.org).await,
        Decided::Missing
    );
    assert_eq!(keys(&world, &world.org).await, 0);

    // Other secrets are no device codes, and a device code is no credential.
    for code in [&world.org.key, &world.org.session, "svc_devc_guess"] {
        assert_ended(&poll(&world, &json!({"device_code": code})).await);
    }
    let code = string(&start(&world, "x").await["device_code"]);
    let used = world.client(&code).get("/v1/me").await.unwrap();
    assert_ended(&used);
    // Wrong codes count as failed authentications.
    let guess = json!({"device_code": "svc_devc_guess"});
    let mut refused = poll(&world, &guess).await;
    for _ in 0..10 {
        refused = poll(&world, &guess).await;
    }
    assert_eq!(
        (refused.status, &refused.body["error"]["code"]),
        (429, &json!("rate_limited")),
        "{}",
        refused.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_device_login_returns_field_errors() {
    let world = shared_world_without_workers().await;
    let long = "x".repeat(201);
    for (path, body, expected) in [
        ("", json!({}), field_error("client_name", "required")),
        (
            "",
            json!({"client_name": " "}),
            field_error("client_name", "required"),
        ),
        (
            "",
            json!({"client_name": "a\u{0}b"}),
            field_error("client_name", "format"),
        ),
        (
            "",
            json!({"client_name": "enter it at evil.example/device"}),
            field_error("client_name", "format"),
        ),
        (
            "",
            json!({"client_name": long}),
            field_error("client_name", "range"),
        ),
        (
            "",
            json!({"client_name": "x", "name": "y"}),
            field_error("name", "unknown_field"),
        ),
        ("/token", json!({}), field_error("device_code", "required")),
        (
            "/token",
            json!({"device_code": ""}),
            field_error("device_code", "required"),
        ),
        (
            "/token",
            json!({"device_code": 1}),
            field_error("device_code", "type"),
        ),
    ] {
        let path = format!("/v1/auth/device{path}");
        let refused = world
            .anonymous()
            .post(&path, &body)
            .await
            .expect_status(422);
        assert_eq!(field_errors(&refused), vec![expected], "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_polls_create_one_key() {
    let world = world().await;
    let clients: Vec<Client> = world
        .stack
        .addresses()
        .iter()
        .map(|url| Client::new(url.as_str(), None))
        .collect();
    for round in 1..=10 {
        let login = start(&world, "twice").await;
        assert_eq!(approve(&world, &login, &world.org).await, Decided::Done);
        let polls = (0..6).map(|place| poll_by(&clients[place % 2], &login));
        let responses = join_all(polls).await;
        let granted: Vec<_> = responses
            .iter()
            .filter(|response| response.status == 200)
            .collect();
        assert_eq!(granted.len(), 1, "the others come too early");
        assert!(responses.iter().all(|one| [200, 429].contains(&one.status)));
        let secret = &granted[0].body["api_key"]["key"];
        let again = poll(&world, &login).await;
        assert_eq!(again.body["api_key"]["key"], *secret);
        assert_eq!(keys(&world, &world.org).await, round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_decisions_have_one_winner() {
    let world = world().await;
    let other = org(&world.stack, "team").await;
    for _ in 0..10 {
        let login = start(&world, "contested").await;
        let (first, second, denied) = tokio::join!(
            approve(&world, &login, &world.org),
            approve(&world, &login, &other),
            decide(&world, &login, Choice::Deny)
        );
        let decided = [first, second, denied];
        let winners = decided.iter().filter(|one| **one == Decided::Done).count();
        assert_eq!(winners, 1, "{decided:?}");
        let before = (keys(&world, &world.org).await, keys(&world, &other).await);
        let polled = poll(&world, &login).await;
        let created = (
            keys(&world, &world.org).await - before.0,
            keys(&world, &other).await - before.1,
        );
        match decided {
            [Decided::Done, ..] => {
                assert_eq!(polled.body["api_key"]["org_id"], json!(world.org.id));
                assert_eq!(created, (1, 0));
            }
            [_, Decided::Done, _] => {
                assert_eq!(polled.body["api_key"]["org_id"], json!(other.id));
                assert_eq!(created, (0, 1));
            }
            _ => {
                assert_status(&polled, "denied");
                assert_eq!(created, (0, 0));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_during_expiry_creates_no_key_afterwards() {
    let world = world().await;
    let mut outcomes = [0, 0];
    for round in 0..20 {
        let login = start(&world, "late").await;
        let soon = "update device_logins set expires_at = clock_timestamp() + $1 * interval '1 ms'
                    where expires_at > now() + interval '1 minute'";
        let soon = sqlx::query(soon).bind(f64::from(round % 10) * 4.0);
        soon.execute(&mut world.database().await).await.unwrap();
        let decided = approve(&world, &login, &world.org).await;
        outcomes[usize::from(decided == Decided::Done)] += 1;
        // Polls until the login has ended. A key exists exactly if a poll returned it.
        let before = keys(&world, &world.org).await;
        let granted = loop {
            let polled = poll(&world, &login).await;
            match polled.status {
                401 => break 0,
                200 if polled.body["status"] == "granted" => break 1,
                200 => assert_eq!(decided, Decided::Missing, "{}", polled.body),
                status => panic!("{status}: {}", polled.body),
            }
        };
        assert_eq!(keys(&world, &world.org).await - before, granted);
        assert!(granted == 0 || decided == Decided::Done);
    }
    assert!(outcomes[0] > 0, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_who_left_creates_no_key() {
    let world = world().await;
    let owner = world.owner();
    let member = async |role: &str| {
        let client = world.member(role).await;
        client.get("/v1/sessions").await.expect_status(200);
        let members = owner.get("/v1/members").await.unwrap().body["members"].clone();
        let newest = members.as_array().unwrap().last().unwrap().clone();
        string(&newest["user_id"])
    };
    let by = async |user_id: &str| Approval {
        approved_by: user_id.parse().unwrap(),
        ..approval(&world, &world.org).await
    };
    // Removed, demoted, and a member until the end.
    let users = [
        member("member").await,
        member("member").await,
        member("member").await,
    ];
    let mut logins = Vec::new();
    for user_id in &users {
        let login = start(&world, "left").await;
        let approval = by(user_id).await;
        assert_eq!(
            decide(&world, &login, Choice::Approve(&approval)).await,
            Decided::Done
        );
        logins.push(login);
    }
    let path = |place: usize| format!("/v1/members/{}", users[place]);
    owner.delete(&path(0)).await.expect_status(204);
    let viewer = owner
        .request("PATCH", &path(1))
        .json(&json!({"role": "viewer"}));
    owner.send(viewer).await.expect_status(200);
    for (login, status) in logins.iter().zip(["denied", "denied", "granted"]) {
        assert_status(&poll(&world, login).await, status);
    }
    assert_eq!(keys(&world, &world.org).await, 1);
    // The decision is permanent, also if the user comes back.
    let member = owner
        .request("PATCH", &path(1))
        .json(&json!({"role": "member"}));
    owner.send(member).await.expect_status(200);
    assert_status(&poll(&world, &logins[1]).await, "denied");

    // The same holds for an organization that is suspended, and for a key that would have expired.
    let suspended = start(&world, "suspended").await;
    let expired = start(&world, "expired").await;
    assert_eq!(approve(&world, &suspended, &world.org).await, Decided::Done);
    let soon = Approval {
        expires_at: Some(Timestamp::now().plus_micros(200_000)),
        ..approval(&world, &world.org).await
    };
    decide(&world, &expired, Choice::Approve(&soon)).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_status(&poll(&world, &expired).await, "denied");
    world
        .stack
        .operate(&["org", "suspend", "--org", &world.org.id])
        .await
        .unwrap();
    assert_status(&poll(&world, &suspended).await, "denied");
    assert_eq!(keys(&world, &world.org).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn login_waits_for_room_among_the_keys() {
    let world = world().await;
    let login = start(&world, "full").await;
    assert_eq!(approve(&world, &login, &world.org).await, Decided::Done);
    let fill = "insert into api_keys (id, org_id, name, prefix, secret_hash, created_by)
                select 'key_' || n, org_id, 'k', prefix, decode(lpad(to_hex(n), 8, '0'), 'hex'), created_by
                from api_keys, generate_series(1, 99) n";
    execute(&world, fill).await;
    poll(&world, &login).await.expect_error(409, "conflict");
    execute(
        &world,
        "update api_keys set revoked_at = now() where id = 'key_1'",
    )
    .await;
    assert_status(&poll(&world, &login).await, "granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_and_keys_of_logins_are_stored_as_hashes() {
    let world = world().await;
    let login = start(&world, "hashed").await;
    assert_eq!(approve(&world, &login, &world.org).await, Decided::Done);
    let granted = poll(&world, &login).await;
    let key = string(&granted.body["api_key"]["key"]);
    let (device_code, user_code) = (string(&login["device_code"]), string(&login["user_code"]));
    let mut places = crate::canaries::places::Places::default();
    crate::canaries::places::tables(&world, &mut places).await;
    let found = places.containing("hashed");
    assert_eq!(
        found,
        BTreeSet::from(["table audit_entries", "table device_logins"])
    );
    for secret in [
        &device_code[13..],
        &key[13..],
        &user_code,
        &user_code.replace('-', ""),
    ] {
        assert!(places.containing(secret).is_empty(), "{secret}");
    }
    // Neither the program nor its address stays when the organization or the user is gone.
    let other = org(&world.stack, "team").await;
    let erased = start(&world, "erased program").await;
    world.member("owner").await;
    assert_eq!(approve(&world, &erased, &world.org).await, Decided::Done);
    let deleted = start(&world, "deleted program").await;
    assert_eq!(approve(&world, &deleted, &other).await, Decided::Done);
    for arguments in [
        &["user", "erase", "--email", &world.org.email][..],
        &["org", "delete", "--org", &other.id, "--confirm", &other.id],
    ] {
        world.stack.operate(arguments).await.unwrap();
    }
    let left: i64 = sqlx::query_scalar("select count(*) from device_logins")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(left, 0);
    for login in [&erased, &deleted] {
        assert_ended(&poll(&world, login).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn address_starts_ten_logins_per_minute() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let clients: Vec<Client> = world
        .stack
        .addresses()
        .iter()
        .map(|url| Client::new(url.as_str(), None))
        .collect();
    let body = json!({"client_name": "many"});
    let responses =
        join_all((0..30).map(|place| clients[place % 2].post("/v1/auth/device", &body))).await;
    let responses: Vec<Response> = responses.into_iter().map(Result::unwrap).collect();
    let started = responses.iter().filter(|one| one.status == 201).count();
    assert_eq!(started, 10);
    let refused = responses.iter().find(|one| one.status == 429).unwrap();
    assert_eq!(
        (
            error_code(refused).as_str(),
            refused.header("x-ratelimit-limit")
        ),
        ("rate_limited", "10")
    );
    let message = v1::CreateDeviceLoginRequest {
        client_name: "many".into(),
    };
    let mut grpc = AuthServiceClient::new(world.channel().await);
    let status = grpc.create_device_login(message).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    // Sign-in emails have their own limit.
    let email = json!({"email": "ada@example.org"});
    clients[0]
        .post("/v1/auth/email", &email)
        .await
        .expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_login_works_by_grpc() {
    let world = world().await;
    let mut grpc = AuthServiceClient::new(world.channel().await);
    let message = v1::CreateDeviceLoginRequest {
        client_name: "grpc".into(),
    };
    let login = grpc
        .create_device_login(message)
        .await
        .unwrap()
        .into_inner();
    let request = v1::PollDeviceLoginRequest {
        device_code: login.device_code.clone(),
    };
    let pending = grpc.poll_device_login(request.clone()).await.unwrap();
    let pending = pending.into_inner();
    assert_eq!(
        (pending.status.as_str(), pending.api_key),
        ("pending", None)
    );
    let early = grpc.poll_device_login(request).await.unwrap_err();
    assert_eq!(early.code(), tonic::Code::ResourceExhausted);
    let login = json!({"user_code": login.user_code, "device_code": login.device_code});
    assert_eq!(approve(&world, &login, &world.org).await, Decided::Done);
    let rest = poll(&world, &login).await;
    pause("the next poll", Duration::from_millis(1100)).await;
    execute(
        &world,
        "update device_logins set polled_at = polled_at - interval '5 seconds'",
    )
    .await;
    let request = v1::PollDeviceLoginRequest {
        device_code: string(&login["device_code"]),
    };
    let granted = grpc.poll_device_login(request).await.unwrap().into_inner();
    let key = granted.api_key.unwrap();
    assert_eq!(
        json!([granted.status, key.id, key.key]),
        json!([
            "granted",
            rest.body["api_key"]["id"],
            rest.body["api_key"]["key"]
        ])
    );
}

/// Polls for one code, and link look-ups, without end take few connections to the database: other
/// requests are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_codes_leave_the_database_to_others() {
    let world = world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_DATABASE_CONNECTIONS", "8")
    })
    .await;
    let login = start(&world, "flood").await;
    let link = format!(
        "/sign-in?token={}",
        world.sign_in_link(&world.org.email).await
    );
    let stop = std::sync::atomic::AtomicBool::new(false);
    let flood = async |number: usize| {
        let client = world.anonymous().without_retries();
        let mut served = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let response = match number % 2 {
                0 => poll_by(&client, &login).await.status,
                _ => client.get(&link).await.unwrap().status,
            };
            served += usize::from(response == 200);
        }
        served
    };
    let honest = async {
        let key = world.key().without_retries();
        let mut refused = 0;
        for _ in 0..40 {
            let response = key.get("/v1/keys").await.unwrap();
            refused += usize::from(response.status == 503);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        refused
    };
    let (served, refused) = tokio::join!(join_all((0..100).map(flood)), honest);
    assert_eq!(refused, 0, "{served:?}");
}
