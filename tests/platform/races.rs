//! Races of concurrent requests over two API processes, repeated many times: invariants that hold
//! in any order.
//!
//! `TEST_RACE_ROUNDS` sets the round count of each race; a hundred rounds take some minutes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_core::model::org::Role;
use assay_core::store::{self, PgPool, PoolProfile};
use assay_core::{OrgId, UserId};
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::disclosure;
use crate::harness::{
    Expect, World, avoid_midnight, long_test, one_prediction, string, wait_until, with_setting,
    world_with,
};

/// Concurrent request count.
const CROWD: usize = 50;

fn rounds() -> usize {
    std::env::var("TEST_RACE_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap())
}

/// Two API processes, and plans with limits so high that only the race itself causes rejections.
struct Race {
    world: World,
    db: PgPool,
}

impl Race {
    async fn new(workers: usize) -> Self {
        // A key that is revoked while many requests use it causes many failed authentications.
        let mut plan = with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000");
        plan.env
            .insert("ASSAY_SIGN_IN_MAILS_PER_MINUTE".into(), "1000".into());
        let world = world_with(StackSize {
            apis: 2,
            workers,
            ..plan
        })
        .await;
        let db = store::pool(
            &world.stack.database.owner_url,
            4,
            "races",
            PoolProfile::OPERATOR,
        )
        .unwrap();
        let race = Self { world, db };
        race.set("requests_per_minute = 10000000, eval_items_per_month = 10000000, concurrent_jobs = 1000000").await;
        race
    }

    /// Sets a limit of all plans.
    async fn set(&self, change: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update plans set {change}")))
            .execute(&self.db)
            .await
            .unwrap();
    }

    /// Returns a client with a token; odd and even numbers use different API processes.
    fn client(&self, index: usize, token: &str) -> Client {
        Client::new(
            format!(
                "http://{}",
                self.world.stack.apis[index % 2].listen.unwrap()
            ),
            Some(token),
        )
    }

    /// Returns a client without a credential; odd and even numbers use different API processes.
    fn anonymous_client(&self, index: usize) -> Client {
        Client::new(
            format!(
                "http://{}",
                self.world.stack.apis[index % 2].listen.unwrap()
            ),
            None,
        )
    }

    /// Returns clients of both API processes for one token. Requests share their connections.
    fn clients(&self, token: &str) -> [Client; 2] {
        [self.client(0, token), self.client(1, token)]
    }

    /// Creates an organization without usage, and a key of it.
    async fn fresh_org(&self) -> (OrgId, String) {
        let org_id = OrgId::random().unwrap();
        let user_id = UserId::random().unwrap();
        let email = format!("{}@example.org", user_id.as_str().to_lowercase());
        store::org::insert(&self.db, &org_id, "Racer", "team", None)
            .await
            .unwrap();
        let user_id = store::org::user(&mut self.db.acquire().await.unwrap(), &email, &user_id)
            .await
            .unwrap();
        store::org::add_member(&self.db, &org_id, &user_id, Role::Owner)
            .await
            .unwrap();
        let key = assay_core::model::key::NewKey::random("racer".into(), user_id).unwrap();
        store::key::insert(&self.db, &org_id, &key).await.unwrap();
        (org_id, key.secret.into_text())
    }

    /// Returns an organization's charges, by its month's counter and by its ledger.
    async fn charged(&self, org_id: &str) -> (i64, i64) {
        let sql = "select coalesce((select sum(eval_items) from usage where org_id = $1), 0)::bigint,
                          coalesce((select sum(case kind when 'charge' then eval_items else -eval_items end)
                                    from usage_ledger where org_id = $1), 0)::bigint";
        sqlx::query_as(sql)
            .bind(org_id)
            .fetch_one(&self.db)
            .await
            .unwrap()
    }

    async fn count(&self, sql: &'static str, bound: &str) -> i64 {
        sqlx::query_scalar(sql)
            .bind(bound)
            .fetch_one(&self.db)
            .await
            .unwrap()
    }
}

fn body(n: usize) -> Value {
    let predictions: Vec<_> = (0..n)
        .map(|i| json!({"item_id": format!("i{i}"), "prediction": []}))
        .collect();
    json!({"suite_id": "suite:lunch", "predictions": predictions})
}

/// Sends the same submission concurrently, half the requests to each API process.
async fn submit_at_once(
    clients: &[Client; 2],
    crowd: usize,
    body: &Value,
    key: Option<&str>,
) -> Vec<Response> {
    join_all((0..crowd).map(|i| {
        let client = &clients[i % 2];
        let request = client.request("POST", "/v1/evals").json(body);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        send(client, request)
    }))
    .await
}

async fn send(client: &Client, request: reqwest::RequestBuilder) -> Response {
    client.send(request).await.unwrap()
}

fn accepted(responses: &[Response]) -> usize {
    responses
        .iter()
        .filter(|response| response.status == 202)
        .count()
}

fn refused<'a>(responses: &'a [Response], expected: &str) -> &'a Response {
    for response in responses.iter().filter(|response| response.status != 202) {
        response.expect_error(429, expected);
    }
    responses
        .iter()
        .find(|response| response.status != 202)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_idempotency_key_makes_one_job() {
    let race = Race::new(1).await;
    let clients = race.clients(&race.world.org.key);
    for round in 1..=rounds() as i64 {
        let key = format!("round-{round}");
        let all = submit_at_once(&clients, CROWD, &body(3), Some(&key)).await;
        assert!(
            all.iter().all(|response| response.status == 202),
            "{:?}",
            all.iter().find(|response| response.status != 202)
        );
        assert_eq!(
            all.iter()
                .filter(|response| response.header("idempotency-replayed").is_empty())
                .count(),
            1
        );
        assert!(
            all.iter()
                .all(|response| response.body["id"] == all[0].body["id"])
        );
        assert_eq!(
            race.charged(&race.world.org.id).await,
            (3 * round, 3 * round)
        );
        assert_eq!(
            race.count(
                "select count(*) from jobs where org_id = $1",
                &race.world.org.id
            )
            .await,
            round
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_fill_month_exactly() {
    let race = Race::new(0).await;
    race.set("eval_items_per_month = 100").await;
    for round in 0..rounds() {
        let (org_id, key) = race.fresh_org().await;
        let clients = race.clients(&key);
        // In every other round the month's counter exists before the race; otherwise the race
        // creates it.
        let before = if round % 2 == 0 { 0 } else { 30 };
        if before > 0 {
            assert_eq!(
                accepted(&submit_at_once(&clients, 1, &body(before), None).await),
                1
            );
        }
        let all = submit_at_once(&clients, CROWD, &body(7), None).await;
        let fits = (100 - before) / 7;
        assert_eq!(accepted(&all), fits);
        let charged = (before + 7 * fits) as i64;
        assert_eq!(race.charged(org_id.as_str()).await, (charged, charged));
        let refused = refused(&all, "quota_exceeded");
        let details = &refused.body["error"]["details"];
        assert_eq!(
            (&details["limit"], &details["max"]),
            (&"eval_items_per_month".into(), &100.into())
        );
        assert!(
            string(&details["resets_at"]).ends_with("-01T00:00:00.000000Z"),
            "{details}"
        );
        assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
        let stored = "select count(*) from stored_predictions where org_id = $1";
        let kept: i64 = sqlx::query_scalar(stored)
            .bind(org_id.as_str())
            .fetch_one(&mut race.world.database().await)
            .await
            .unwrap();
        assert_eq!(
            kept,
            fits as i64 + i64::from(before > 0),
            "a rejected submission leaves its predictions"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn active_jobs_never_exceed_plan() {
    let race = Race::new(0).await;
    race.set("concurrent_jobs = 2").await;
    for _ in 0..rounds() {
        let (org_id, key) = race.fresh_org().await;
        let all = submit_at_once(&race.clients(&key), CROWD, &body(1), None).await;
        assert_eq!(accepted(&all), 2);
        let details = &refused(&all, "quota_exceeded").body["error"]["details"];
        assert_eq!(
            (&details["limit"], &details["max"], &details["active"]),
            (&"concurrent_jobs".into(), &2.into(), &2.into())
        );
        assert!(details["resets_at"].is_string());
        assert_eq!(race.charged(org_id.as_str()).await, (2, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_fill_suite_day_exactly() {
    let race = Race::new(0).await;
    let suite_id = disclosure::publish(&race.world, "daily", 1, "max_submissions_per_day = 7")
        .await
        .unwrap();
    let body = json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": []}]});
    // Each of the four organizations sends a crowd of submissions.
    for _ in 0..rounds().div_ceil(4) {
        avoid_midnight().await;
        let (org_id, key) = race.fresh_org().await;
        let all = submit_at_once(&race.clients(&key), 4 * CROWD, &body, None).await;
        assert_eq!(accepted(&all), 7);
        let details = &refused(&all, "quota_exceeded").body["error"]["details"];
        assert_eq!(
            (&details["limit"], &details["max"], details.get("active")),
            (&"submissions_per_day".into(), &7.into(), None)
        );
        assert_eq!(race.charged(org_id.as_str()).await, (7, 7));
        assert_eq!(
            race.count(
                "select count(*) from jobs where org_id = $1",
                org_id.as_str()
            )
            .await,
            7
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_owner_removal_leaves_one() {
    let race = Race::new(0).await;
    let second = race.world.member("owner").await;
    let listed = race.world.owner().get("/v1/members").await.unwrap().body["members"].clone();
    let ids: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|member| string(&member["user_id"]))
        .collect();
    let owners = "select count(*) from memberships where org_id = $1 and role = 'owner'";
    let restore =
        "insert into memberships (org_id, user_id, role) select $1, unnest($2::text[]), 'owner'
                   on conflict (org_id, user_id) do update set role = 'owner'";
    for round in 0..rounds() {
        let all = join_all((0..CROWD).map(|i| {
            // The owners use different API processes, and swap them in each round.
            let (token, target) = if i % 2 == 0 {
                (race.world.org.session.as_str(), &ids[1])
            } else {
                (second.token().unwrap(), &ids[0])
            };
            let client = race.client(i + round, token);
            let path = format!("/v1/members/{target}");
            let request = match round % 2 {
                0 => client
                    .request("PATCH", &path)
                    .json(&json!({"role": "member"})),
                _ => client.request("DELETE", &path),
            };
            // A removed owner may still belong to another organization.
            let request = request.header("X-Org-Id", &race.world.org.id);
            async move { send(&client, request).await }
        }))
        .await;
        assert_eq!(race.count(owners, &race.world.org.id).await, 1);
        // A removed owner has the rate limit of a user without an organization, which may be
        // exhausted.
        let strange = all
            .iter()
            .find(|response| ![200, 204, 403, 404, 409, 429].contains(&response.status));
        if let Some(response) = strange {
            let logs: Vec<_> = race
                .world
                .stack
                .apis
                .iter()
                .map(|api| std::fs::read_to_string(&api.log).unwrap())
                .collect();
            let lines: Vec<_> = logs
                .iter()
                .flat_map(|log| log.lines())
                .filter(|line| line.contains(response.header("x-request-id")))
                .collect();
            panic!("{response:?} {lines:?}");
        }
        sqlx::query(restore)
            .bind(&race.world.org.id)
            .bind(&ids)
            .execute(&race.db)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accept_revoke_race_has_one_outcome() {
    let race = Race::new(0).await;
    let owners = race.clients(&race.world.org.session);
    let anybody = [race.anonymous_client(0), race.anonymous_client(1)];
    let member = "select count(*) from memberships m join users u on u.id = m.user_id
                  where m.org_id = $1 and u.email = (select email from invites where accepted_at is not null and id = $2)";
    let mut outcomes = [0, 0];
    for round in 0..rounds() {
        let email = format!("invited-{round}@example.org");
        let invited = send(
            &owners[0],
            owners[0]
                .request("POST", "/v1/invites")
                .json(&json!({"email": email})),
        )
        .await
        .expect_status(201);
        let invite_id = string(&invited.body["id"]);
        let path = format!("/v1/invites/{invite_id}");
        let link = json!({"token": race.world.sign_in_link(&email).await});
        let owners = &owners;
        let anybody = &anybody;
        let path = &path;
        let link = &link;
        // One link signs in once, and the invite is revoked by as many requests. The rounds
        // alternate which side has a small head start.
        let crowd = join_all((0..CROWD).map(|i| async move {
            let behind = if i % 2 == round % 2 {
                round / 2 % 5 * 3
            } else {
                0
            };
            tokio::time::sleep(Duration::from_millis(behind as u64)).await;
            match i % 2 {
                0 => {
                    send(
                        &anybody[i / 2 % 2],
                        anybody[i / 2 % 2]
                            .request("POST", "/v1/auth/email/verify")
                            .json(link),
                    )
                    .await
                }
                _ => {
                    send(
                        &owners[i / 2 % 2],
                        owners[i / 2 % 2].request("DELETE", path),
                    )
                    .await
                }
            }
        }))
        .await;
        let signed_in = crowd
            .iter()
            .step_by(2)
            .filter(|response| response.status == 201)
            .count();
        assert_eq!(signed_in, 1, "the link was used {signed_in} times");
        let revoked = crowd
            .iter()
            .skip(1)
            .step_by(2)
            .filter(|response| response.status == 200)
            .count();
        let sql = sqlx::query_scalar::<_, i64>(member)
            .bind(&race.world.org.id)
            .bind(&invite_id);
        let joined = sql.fetch_one(&race.db).await.unwrap();
        let strange = crowd
            .iter()
            .find(|response| ![200, 201, 401, 404].contains(&response.status));
        assert!(strange.is_none(), "{strange:?}");
        // Revoking a revoked invite succeeds again; revoking an accepted one never does.
        assert!(
            (joined == 1) != (revoked > 0),
            "joined: {joined}, revoked: {revoked}"
        );
        outcomes[usize::from(joined == 1)] += 1;
    }
    println!("revoked {}, accepted {}", outcomes[0], outcomes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_start_race_has_one_winner() {
    let race = Race::new(2).await;
    let clients = race.clients(&race.world.org.key);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut outcomes = [0, 0];
    for _ in 0..rounds() {
        // Two concurrent requests cancel each job as soon as it exists.
        let clients = &clients;
        let body = &body;
        let crowd = join_all((0..CROWD).map(|i| async move {
            let client = &clients[i % 2];
            let submitted = send(client, client.request("POST", "/v1/evals").json(body))
                .await
                .expect_status(202);
            let id = string(&submitted.body["id"]);
            let path = format!("/v1/jobs/{id}/cancel");
            let cancel =
                async |client: &Client| send(client, client.request("POST", &path)).await.status;
            let (one, other) = tokio::join!(cancel(&clients[0]), cancel(&clients[1]));
            (id, [one, other])
        }));
        for (id, responses) in &crowd.await {
            let job = race.world.wait_until_finished(id).await;
            match responses {
                [200, 409] | [409, 200] => assert_eq!(
                    (&job["status"], &job["result"]),
                    (&"cancelled".into(), &Value::Null)
                ),
                [409, 409] => assert!(
                    job["status"] == "succeeded" && job["result"]["value"].is_number(),
                    "{job}"
                ),
                other => panic!("{other:?}: {job}"),
            }
            outcomes[usize::from(job["status"] == "succeeded")] += 1;
        }
    }
    eprintln!("cancelled, succeeded: {outcomes:?}");
    // A job that started before its cancellation stays charged, others are refunded; the ledger
    // agrees.
    let due =
        race.count("select count(*) from jobs where org_id = $1 and (status = 'succeeded' or attempts > 0)", &race.world.org.id).await;
    assert_eq!(race.charged(&race.world.org.id).await, (due, due));
}

#[tokio::test(flavor = "multi_thread")]
async fn growing_listing_is_complete_without_duplicates() {
    let race = Race::new(0).await;
    for _ in 0..rounds() {
        let (_, key) = race.fresh_org().await;
        let clients = race.clients(&key);
        let clients = &clients;
        let body = &body(1);
        let write = join_all((0..60).map(|writer| async move {
            let mut written = Vec::new();
            for _ in 0..10 {
                let client = &clients[writer % 2];
                let response = send(client, client.request("POST", "/v1/evals").json(body))
                    .await
                    .expect_status(202);
                written.push(string(&response.body["id"]));
            }
            written
        }));
        // Pages read during the growth contain each earlier job once.
        let meanwhile = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let first = paged(&clients[1], 200).await;
            let second = paged(&clients[0], 7).await;
            assert!(
                first.iter().all(|id| second.contains(id)),
                "a job that was listed before is missing"
            );
        };
        let (written, ()) = tokio::join!(write, meanwhile);
        let written: HashSet<String> = written.into_iter().flatten().collect();
        assert_eq!(written.len(), 600);
        let listed = paged(&clients[0], 7).await;
        assert_eq!(listed.len(), 600);
        assert_eq!(listed.into_iter().collect::<HashSet<_>>(), written);
    }
}

/// Returns all ids of a listing, and asserts that none repeats.
async fn paged(client: &Client, limit: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut before = String::new();
    loop {
        let page = client
            .get(&format!("/v1/jobs?limit={limit}{before}"))
            .await
            .expect_status(200);
        ids.extend(
            page.body["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| string(&job["id"])),
        );
        match page.body.get("next_before") {
            Some(next) => before = format!("&before={}", string(next)),
            None => break,
        }
    }
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "a job is listed twice"
    );
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_fails_at_once() {
    let race = Race::new(0).await;
    let owners = race.clients(&race.world.org.session);
    for round in 0..2 * rounds() {
        let made = owners[0]
            .post("/v1/keys", &json!({"name": "short"}))
            .await
            .unwrap();
        let clients = race.clients(&string(&made.body["key"]));
        // Many requests at both processes use the key when it is revoked.
        let path = format!("/v1/keys/{}", string(&made.body["id"]));
        let is_revoked = AtomicBool::new(false);
        let is_revoked = &is_revoked;
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            owners[round % 2].delete(&path).await.expect_status(200);
            is_revoked.store(true, Ordering::SeqCst);
        };
        let used = join_all((0..CROWD).map(|i| {
            let client = &clients[i % 2];
            async move {
                loop {
                    let sent_after = is_revoked.load(Ordering::SeqCst);
                    let response = client.get("/v1/me").await.unwrap();
                    match response.status {
                        200 => assert!(!sent_after, "the key was revoked before the request"),
                        401 => return,
                        status => panic!("{status}: {}", response.body),
                    }
                }
            }
        }));
        tokio::join!(revoke, used);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_over_minute_edge_stays_limited() {
    long_test!("waits for the begin of a minute");
    let race = Race::new(0).await;
    race.set("requests_per_minute = 60").await;
    let (_, key) = race.fresh_org().await;
    let clients = race.clients(&key);
    let began = Instant::now();
    let mut database = race.world.database().await;
    let mut bursts: Vec<(f64, usize, f64)> = Vec::new();
    let mut send = async || {
        let from = seconds_of_database(&mut database).await;
        let responses = join_all((0..CROWD + 30).map(|i| clients[i % 2].get("/v1/me"))).await;
        let ok = responses
            .iter()
            .filter(|response| response.as_ref().unwrap().status == 200);
        let to = seconds_of_database(&mut database).await;
        bursts.push((from, ok.count(), to));
        bursts
            .iter()
            .map(|(_, admitted, _)| admitted)
            .sum::<usize>()
    };
    // The second burst crosses the edge of the minute, independently of the first one's fraction of
    // a second.
    for at in [0.0, 58.5, 59.0, 59.3, 59.6, 59.9, 60.2, 60.5, 61.0, 61.5] {
        tokio::time::sleep_until((began + Duration::from_secs_f64(at)).into()).await;
        send().await;
    }
    // 60 requests at once, and 60 more a minute later.
    wait_until("admission of 120 requests", async || send().await >= 120).await;
    for (first, (from, ..)) in bursts.iter().enumerate() {
        // The limit holds for all bursts within a minute.
        let within = bursts[first..]
            .iter()
            .take_while(|(.., to)| to - from < 60.0);
        let admitted: usize = within.map(|(_, admitted, _)| admitted).sum();
        assert!(admitted <= 60, "{bursts:?}");
    }
}

/// Returns the database's clock, in seconds.
async fn seconds_of_database(database: &mut PgConnection) -> f64 {
    sqlx::query_scalar("select extract(epoch from clock_timestamp())::float8")
        .fetch_one(database)
        .await
        .unwrap()
}
