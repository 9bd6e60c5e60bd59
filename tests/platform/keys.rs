//! `/v1/keys`

use assay_core::Timestamp;
use assay_core::model::scope::Scope;
use assay_core::model::secret;
use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, error_code, field_errors, one_prediction, org, shared_world,
    shared_world_without_workers, string, with_setting, with_token, world_with,
};

#[tokio::test(flavor = "multi_thread")]
async fn new_key_is_shown_once() {
    let world = shared_world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": " nightly "}))
        .await
        .expect_status(201);
    let key = string(&made.body["key"]);
    assert!(secret::read(&key).is_some());
    assert_eq!(made.body["name"], "nightly");
    assert!(
        key.starts_with(&string(&made.body["prefix"])) && string(&made.body["prefix"]).len() == 13
    );
    assert!(made.body["last_used_at"].is_null() && made.body["revoked_at"].is_null());
    world.client(&key).get("/v1/me").await.expect_status(200);

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
    let world = shared_world().await;
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": "old"}))
        .await
        .unwrap();
    let id = string(&made.body["id"]);
    let client = world.client(&string(&made.body["key"]));
    let path = format!("/v1/keys/{id}");
    let revoked = world.owner().delete(&path).await.expect_status(200);
    client.get("/v1/me").await.expect_error(401, "key_revoked");
    let again = world.owner().delete(&path).await.expect_status(200);
    assert_eq!(
        again.body["revoked_at"], revoked.body["revoked_at"],
        "the first timestamp stays"
    );
}

/// Creates a key with these fields, and returns it with its secret.
async fn create(world: &World, fields: Value) -> Value {
    let made = world
        .owner()
        .post("/v1/keys", &fields)
        .await
        .expect_status(201);
    made.body
}

/// Returns the database's time plus an interval, in RFC 3339.
async fn from_now(world: &World, interval: &str) -> String {
    let at: Timestamp = sqlx::query_scalar("select now() + $1::text::interval")
        .bind(interval)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    at.to_string()
}

/// Makes a key expire that many seconds from now.
async fn expire_in(world: &World, key: &Value, seconds: f64) {
    let sql = "update api_keys set expires_at = clock_timestamp() + $2 * interval '1 second' where id = $1";
    sqlx::query(sql)
        .bind(string(&key["id"]))
        .bind(seconds)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

async fn send(world: &World, method: &str, path: &str, body: &Value) -> Response {
    let request = world.owner().request(method, path).json(body);
    world.owner().send(request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_key_returns_401() {
    let world = shared_world().await;
    let made = create(
        &world,
        json!({"name": "brief", "expires_at": from_now(&world, "1 hour").await}),
    )
    .await;
    let client = world.client(&string(&made["key"]));
    let response = client.get("/v1/me").await.expect_status(200);
    assert_eq!(
        response.header("x-key-expires-at"),
        string(&made["expires_at"])
    );
    let grpc = MeServiceClient::new(world.channel().await)
        .get_me(with_token(v1::GetMeRequest {}, &string(&made["key"])))
        .await
        .unwrap();
    assert_eq!(
        grpc.metadata().get("x-key-expires-at").unwrap(),
        &string(&made["expires_at"])
    );

    expire_in(&world, &made, 0.0).await;
    for _ in 0..2 {
        let refused = client.get("/v1/me").await.expect_error(401, "key_revoked");
        let details = &refused.body["error"]["details"];
        assert_eq!(details["reason"], "expired");
        let expired_at: Timestamp = string(&details["expired_at"]).parse().unwrap();
        assert!(expired_at <= Timestamp::now(), "{details}");
    }
    let listed = world.owner().get("/v1/keys").await.unwrap();
    let key = &listed.body["keys"][0];
    assert!(key["expires_at"].is_string() && key["revoked_at"].is_null());
    let path = format!("/v1/keys/{}", string(&made["id"]));
    for (method, path, body) in [
        ("PATCH", path.clone(), json!({"name": "again"})),
        ("POST", format!("{path}/rotate"), json!({})),
    ] {
        send(&world, method, &path, &body).await.expect_status(409);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_is_announced_in_its_last_two_weeks() {
    let world = shared_world().await;
    for (interval, is_announced) in [("13 days", true), ("15 days", false)] {
        let expires_at = from_now(&world, interval).await;
        let made = create(&world, json!({"name": interval, "expires_at": expires_at})).await;
        let response = world
            .client(&string(&made["key"]))
            .get("/v1/me")
            .await
            .unwrap();
        let announced = response.header("x-key-expires-at");
        assert_eq!(
            announced,
            if is_announced {
                expires_at
            } else {
                String::new()
            }
        );
    }
    let forever = world.key().get("/v1/me").await.unwrap();
    assert_eq!(forever.header("x-key-expires-at"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_is_announced_with_every_status() {
    let world = shared_world().await;
    let expires_at = from_now(&world, "13 days").await;
    let made = create(&world, json!({"name": "ending", "expires_at": expires_at})).await;
    let client = world.client(&string(&made["key"]));
    let empty = || json!({});
    for (method, path, body, status) in [
        ("GET", "/v1/me", None, 200),
        ("HEAD", "/v1/me", None, 200),
        ("GET", "/v1/jobs?limit=0", None, 422),
        ("POST", "/v1/evals", Some(empty()), 422),
        ("POST", "/v1/evals", Some(json!("x".repeat(6 << 20))), 413),
        ("GET", "/v1/jobs/job_2", None, 404),
        ("POST", "/v1/keys", Some(empty()), 403),
        ("GET", "/v1/nothing", None, 404),
        ("PUT", "/v1/me", Some(empty()), 405),
        ("DELETE", "/health", None, 405),
    ] {
        let request = client.request(method, path);
        let request = match &body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = client.send(request).await.expect_status(status);
        let announced = response.header("x-key-expires-at");
        assert_eq!(announced, expires_at, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_ends_a_watch() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let made = create(&world, json!({"name": "watcher"})).await;
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = with_token(v1::WatchJobRequest { job_id }, &string(&made["key"]));
    let mut watched = jobs.watch_job(request).await.unwrap().into_inner();
    assert!(watched.message().await.unwrap().is_some());
    expire_in(&world, &made, 0.0).await;
    let ended = loop {
        match watched.message().await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended.unwrap_err().code(), tonic::Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn narrowed_key_loses_its_running_requests() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let made = create(&world, json!({"name": "wide"})).await;
    let client = world.client(&string(&made["key"]));
    // The new key's event appears at any time, so the request waits for one type.
    let path = "/v1/events?wait=20&type=job.cancelled";
    let job_path = format!("/v1/jobs/{job_id}?wait=20");
    let narrow = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let patch = format!("/v1/keys/{}", string(&made["id"]));
        send(&world, "PATCH", &patch, &json!({"scopes": ["usage:read"]}))
            .await
            .expect_status(200);
        // The job's end wakes both requests up.
        let cancel = world
            .key()
            .request("POST", &format!("/v1/jobs/{job_id}/cancel"));
        world.key().send(cancel).await.expect_status(200);
    };
    let (events, job, ()) = tokio::join!(client.get(path), client.get(&job_path), narrow);
    let (events, job) = (events.unwrap(), job.unwrap());
    assert_eq!((events.status, &events.body["events"]), (200, &json!([])));
    assert_eq!(
        (job.status, &job.body["error"]["details"]),
        (403, &json!({"reason": "scope", "required": "jobs:read"}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn key_may_only_be_restricted() {
    let world = shared_world().await;
    let wide = create(&world, json!({"name": "wide"})).await;
    assert_eq!(
        wide["scopes"],
        json!(
            Scope::ALL
                .iter()
                .map(|scope| scope.as_str())
                .collect::<Vec<_>>()
        ),
        "a key without scopes has all"
    );
    let path = format!("/v1/keys/{}", string(&wide["id"]));
    let later = from_now(&world, "30 days").await;
    let sooner = from_now(&world, "20 days").await;
    let narrowed = send(
        &world,
        "PATCH",
        &path,
        &json!({"name": "narrow", "scopes": ["usage:read", "jobs:read"], "expires_at": sooner}),
    )
    .await
    .expect_status(200);
    assert_eq!(narrowed.body["name"], "narrow");
    assert_eq!(narrowed.body["scopes"], json!(["jobs:read", "usage:read"]));
    assert_eq!(narrowed.body["expires_at"], json!(sooner));
    for (body, fields) in [
        (
            json!({"scopes": ["evals:write"], "expires_at": later}),
            vec!["scopes", "expires_at"],
        ),
        (json!({"scopes": []}), vec!["scopes"]),
        (json!({"scopes": ["jobs"]}), vec!["scopes[0]"]),
        (json!({"scopes": "jobs:read"}), vec!["scopes"]),
        (json!({"expires_at": "tomorrow"}), vec!["expires_at"]),
        (
            json!({"expires_at": "2020-01-01T00:00:00Z"}),
            vec!["expires_at"],
        ),
        (json!({}), vec!["body"]),
    ] {
        let refused = send(&world, "PATCH", &path, &body).await.expect_status(422);
        let named = field_errors(&refused).into_iter().map(|(field, _)| field);
        assert_eq!(named.collect::<Vec<_>>(), fields, "{body}");
    }
    for body in [
        json!({"name": "past", "expires_at": "2020-01-01T00:00:00Z"}),
        json!({"name": "none", "scopes": []}),
        json!({"name": "two", "scopes": ["jobs:read", "jobs:read"]}),
    ] {
        world
            .owner()
            .post("/v1/keys", &body)
            .await
            .expect_status(422);
    }
    let client = world.client(&string(&wide["key"]));
    client.get("/v1/usage").await.expect_status(200);
    client.get("/v1/suites").await.expect_status(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_key_works_until_its_overlap_ends() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000")
    })
    .await;
    sqlx::raw_sql("update plans set requests_per_minute = 1000000")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let expires_at = from_now(&world, "30 days").await;
    let fields = json!({"name": "deploy", "scopes": ["jobs:read"], "expires_at": expires_at});
    let old = create(&world, fields).await;
    let path = format!("/v1/keys/{}/rotate", string(&old["id"]));
    let rotated = world
        .owner()
        .send(world.owner().request("POST", &path))
        .await
        .expect_status(201);
    let new = rotated.body;
    assert_eq!(
        (&new["name"], &new["scopes"], &new["replaces"]),
        (&old["name"], &old["scopes"], &old["id"])
    );
    let lifetime = |key: &Value| {
        let at = |field: &str| {
            string(&key[field])
                .parse::<Timestamp>()
                .unwrap()
                .unix_micros()
        };
        at("expires_at") - at("created_at")
    };
    assert!((lifetime(&new) - lifetime(&old)).abs() < 1_000_000);
    let listed = world.owner().get("/v1/keys").await.unwrap();
    let replaced = &listed.body["keys"][1];
    assert_eq!(replaced["replaced_by"], new["id"]);
    let hours = (string(&replaced["expires_at"])
        .parse::<Timestamp>()
        .unwrap()
        .unix_micros()
        - Timestamp::now().unix_micros()) as f64
        / 3.6e9;
    assert!((23.9..24.1).contains(&hours), "{hours}");
    world
        .owner()
        .send(world.owner().request("POST", &path))
        .await
        .expect_status(409);

    // Both processes accept both keys until the overlap ends, and refuse the old one from then on.
    expire_in(&world, &old, 1.5).await;
    let end: Timestamp = sqlx::query_scalar("select expires_at from api_keys where id = $1")
        .bind(string(&old["id"]))
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    let polls = (0..2).map(|index| {
        let url = format!("http://{}", world.stack.apis[index].listen.unwrap());
        let client = Client::new(url, Some(&string(&old["key"])));
        async move {
            let mut accepted = 0;
            loop {
                let sent = Timestamp::now();
                let response = client.get("/v1/me").await.unwrap();
                let received = Timestamp::now();
                match response.status {
                    200 => assert!(sent < end, "accepted after the end of the overlap"),
                    401 => break (accepted, received),
                    status => panic!("{status}: {}", response.body),
                }
                accepted += 1;
            }
        }
    });
    for (accepted, refused) in futures_util::future::join_all(polls).await {
        assert!(
            accepted > 0 && refused >= end,
            "{accepted}, {refused}, {end}"
        );
    }
    for api in &world.stack.apis {
        let url = format!("http://{}", api.listen.unwrap());
        let client = Client::new(url, Some(&string(&new["key"])));
        client.get("/v1/me").await.expect_status(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_rotations_make_one_key() {
    let world = shared_world().await;
    let old = create(&world, json!({"name": "deploy"})).await;
    let path = format!("/v1/keys/{}/rotate", string(&old["id"]));
    let body = json!({});
    let rotations = (0..8).map(|_| send(&world, "POST", &path, &body));
    let mut statuses: Vec<_> = futures_util::future::join_all(rotations)
        .await
        .iter()
        .map(|response| response.status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_without_overlap_ends_the_key_at_once() {
    let world = shared_world().await;
    let old = create(&world, json!({"name": "leaked"})).await;
    let path = format!("/v1/keys/{}/rotate", string(&old["id"]));
    for hours in [-1, 721] {
        send(&world, "POST", &path, &json!({"overlap_hours": hours}))
            .await
            .expect_status(422);
    }
    let fill = "insert into api_keys (id, org_id, name, prefix, secret_hash, created_by)
                select 'key_' || n, org_id, 'fill', prefix, sha256(n::text::bytea), created_by
                from api_keys, generate_series(1, 98) n where id = $1";
    sqlx::query(fill)
        .bind(string(&old["id"]))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    // A key in its overlap is live.
    send(&world, "POST", &path, &json!({}))
        .await
        .expect_status(409);
    let rotated = send(&world, "POST", &path, &json!({"overlap_hours": 0}))
        .await
        .expect_status(201);
    let status = async |key: &Value| {
        world
            .client(&string(&key["key"]))
            .get("/v1/me")
            .await
            .unwrap()
            .status
    };
    assert_eq!(
        (status(&old).await, status(&rotated.body).await),
        (401, 200)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn use_of_a_key_records_its_address() {
    let world = shared_world().await;
    world.key().get("/v1/me").await.unwrap();
    let listed = world.owner().get("/v1/keys").await.unwrap();
    assert_eq!(listed.body["keys"][0]["last_used_address"], "127.0.0.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_key_returns_404() {
    let world = shared_world().await;
    let other = org(&world.stack, "free").await;
    let theirs = world.client(&other.session).get("/v1/keys").await.unwrap();
    let id = string(&theirs.body["keys"][0]["id"]);
    let mut responses = Vec::new();
    for id in [id.as_str(), "key_0000000000000000000000", "nonsense"] {
        let response = world
            .owner()
            .delete(&format!("/v1/keys/{id}"))
            .await
            .expect_status(404);
        responses.push((
            error_code(&response),
            string(&response.body["error"]["message"]),
        ));
    }
    assert!(
        responses.iter().all(|response| *response == responses[0]),
        "{responses:?}"
    );
    // The key still works.
    world
        .client(&other.key)
        .get("/v1/me")
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_hashed_and_never_logged() {
    let world = shared_world().await;
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
