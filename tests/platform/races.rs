//! Many at once, over two api processes, again and again: what must hold whoever comes first.
//!
//! `TEST_RACE_ROUNDS` says how often each race is run; a hundred rounds take some minutes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use assay_core::model::org::Role;
use assay_core::store::{self, PgPool, PoolProfile};
use assay_core::{OrgId, UserId};
use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::disclosure;
use crate::harness::{
    STALL, World, code, one_prediction, retry_unavailable, text, with, within_a_day, world_of,
};

/// How many come at once.
const CROWD: usize = 50;

fn rounds() -> usize {
    std::env::var("TEST_RACE_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap())
}

/// Two api processes, and plans under which nothing but what a race is about is refused.
struct Race {
    world: World,
    db: PgPool,
}

impl Race {
    async fn new(workers: usize) -> Self {
        // A key that is revoked while many use it makes many failed authentications.
        let mut plan = with("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000");
        plan.env
            .insert("ASSAY_SIGN_IN_MAILS_PER_MINUTE".into(), "1000".into());
        let world = world_of(Plan {
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

    /// Changes all plans.
    async fn set(&self, change: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("update plans set {change}")))
            .execute(&self.db)
            .await
            .unwrap();
    }

    /// A client of one of the two, in turn.
    fn client(&self, turn: usize, token: &str) -> Client {
        Client::new(
            format!("http://{}", self.world.stack.apis[turn % 2].listen.unwrap()),
            Some(token),
        )
    }

    /// A client of one of the two, without a credential.
    fn stranger(&self, turn: usize) -> Client {
        Client::new(
            format!("http://{}", self.world.stack.apis[turn % 2].listen.unwrap()),
            None,
        )
    }

    /// Clients of both for one token. They share their connections.
    fn clients(&self, token: &str) -> [Client; 2] {
        [self.client(0, token), self.client(1, token)]
    }

    /// An organization that has done nothing yet, and a key of it.
    async fn fresh_org(&self) -> (OrgId, String) {
        let (org_id, user_id) = (OrgId::random().unwrap(), UserId::random().unwrap());
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

    /// What an organization was charged: by its month, by its ledger.
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

/// A crowd sends the same submission, half of it to either process.
async fn submit_at_once(
    clients: &[Client; 2],
    crowd: usize,
    body: &Value,
    key: Option<&str>,
) -> Vec<Answer> {
    join_all((0..crowd).map(|i| {
        let client = &clients[i % 2];
        let request = client.request("POST", "/v1/evals").json(body);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        insist(client, request)
    }))
    .await
}

async fn insist(client: &Client, request: reqwest::RequestBuilder) -> Answer {
    retry_unavailable(async || client.send(request.try_clone().unwrap()).await.unwrap()).await
}

fn accepted(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 202).count()
}

fn refused<'a>(answers: &'a [Answer], expected: &str) -> &'a Answer {
    for answer in answers.iter().filter(|answer| answer.status != 202) {
        assert_eq!(
            (answer.status, code(answer).as_str()),
            (429, expected),
            "{}",
            answer.body
        );
    }
    answers.iter().find(|answer| answer.status != 202).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_idempotency_key_makes_one_job_and_one_charge_whoever_is_first() {
    let race = Race::new(1).await;
    let clients = race.clients(&race.world.org.key);
    for round in 1..=rounds() as i64 {
        let key = format!("round-{round}");
        let all = submit_at_once(&clients, CROWD, &body(3), Some(&key)).await;
        assert!(
            all.iter().all(|answer| answer.status == 202),
            "{:?}",
            all.iter().find(|answer| answer.status != 202)
        );
        assert_eq!(
            all.iter()
                .filter(|answer| answer.header("idempotency-replayed").is_empty())
                .count(),
            1
        );
        assert!(
            all.iter()
                .all(|answer| answer.body["id"] == all[0].body["id"])
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
async fn the_month_takes_exactly_what_fits() {
    let race = Race::new(0).await;
    race.set("eval_items_per_month = 100").await;
    for round in 0..rounds() {
        let (org_id, key) = race.fresh_org().await;
        let clients = race.clients(&key);
        // Every other time the month has begun already; otherwise its first submission is among those that race.
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
            text(&details["resets_at"]).ends_with("-01T00:00:00.000000Z"),
            "{details}"
        );
        assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
        let artifacts = race.world.stack.ground.servers.folder().join(format!(
            "{}-artifacts/{org_id}",
            race.world.stack.database.name
        ));
        let kept = std::fs::read_dir(artifacts).unwrap().count();
        assert_eq!(
            kept,
            fits + usize::from(before > 0),
            "what was refused leaves nothing behind"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_jobs_are_active_than_the_plan_allows() {
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
async fn a_day_takes_exactly_as_many_submissions_as_the_suite_says() {
    let race = Race::new(0).await;
    let suite_id = disclosure::publish(&race.world, "daily", 1, "max_submissions_per_day = 7")
        .await
        .unwrap();
    let body = json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": []}]});
    // Each is of four crowds.
    for _ in 0..rounds().div_ceil(4) {
        within_a_day().await;
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
async fn two_owners_who_demote_or_remove_each_other_leave_one() {
    let race = Race::new(0).await;
    let second = race.world.member("owner").await;
    let listed = race.world.owner().get("/v1/members").await.unwrap().body["members"].clone();
    let ids: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|member| text(&member["user_id"]))
        .collect();
    let owners = "select count(*) from memberships where org_id = $1 and role = 'owner'";
    let restore =
        "insert into memberships (org_id, user_id, role) select $1, unnest($2::text[]), 'owner'
                   on conflict (org_id, user_id) do update set role = 'owner'";
    for round in 0..rounds() {
        let all = join_all((0..CROWD).map(|i| {
            // One owner asks one process, the other the other; each time they change places.
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
            // Removed from here, they may still belong elsewhere.
            let request = request.header("X-Org-Id", &race.world.org.id);
            async move { insist(&client, request).await }
        }))
        .await;
        assert_eq!(race.count(owners, &race.world.org.id).await, 1);
        // Who was removed has the allowance of a person without organization, which may be used up.
        let strange = all
            .iter()
            .find(|answer| ![200, 204, 403, 404, 409, 429].contains(&answer.status));
        if let Some(answer) = strange {
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
                .filter(|line| line.contains(answer.header("x-request-id")))
                .collect();
            panic!("{answer:?} {lines:?}");
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
async fn an_invite_that_is_accepted_and_revoked_has_one_end() {
    let race = Race::new(0).await;
    let (owners, anybody) = (
        race.clients(&race.world.org.session),
        [race.stranger(0), race.stranger(1)],
    );
    let member = "select count(*) from memberships m join users u on u.id = m.user_id
                  where m.org_id = $1 and u.email = (select email from invites where accepted_at is not null and id = $2)";
    let mut outcomes = [0, 0];
    for round in 0..rounds() {
        let email = format!("invited-{round}@example.org");
        let invited = insist(
            &owners[0],
            owners[0]
                .request("POST", "/v1/invites")
                .json(&json!({"email": email})),
        )
        .await;
        assert_eq!(invited.status, 201, "{}", invited.body);
        let invite_id = text(&invited.body["id"]);
        let (path, link) = (
            format!("/v1/invites/{invite_id}"),
            json!({"token": race.world.link(&email).await}),
        );
        let (owners, anybody, path, link) = (&owners, &anybody, &path, &link);
        // One link signs in once, whoever is first with it; the invite is revoked just as often. Now the ones are ahead a
        // little, now the others.
        let crowd = join_all((0..CROWD).map(|i| async move {
            let behind = if i % 2 == round % 2 {
                round / 2 % 5 * 3
            } else {
                0
            };
            tokio::time::sleep(Duration::from_millis(behind as u64)).await;
            match i % 2 {
                0 => {
                    insist(
                        &anybody[i / 2 % 2],
                        anybody[i / 2 % 2]
                            .request("POST", "/v1/auth/email/verify")
                            .json(link),
                    )
                    .await
                }
                _ => {
                    insist(
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
            .filter(|answer| answer.status == 201)
            .count();
        assert_eq!(signed_in, 1, "the link was used {signed_in} times");
        let revoked = crowd
            .iter()
            .skip(1)
            .step_by(2)
            .filter(|answer| answer.status == 200)
            .count();
        let sql = sqlx::query_scalar::<_, i64>(member)
            .bind(&race.world.org.id)
            .bind(&invite_id);
        let joined = sql.fetch_one(&race.db).await.unwrap();
        let strange = crowd
            .iter()
            .find(|answer| ![200, 201, 401, 404].contains(&answer.status));
        assert!(strange.is_none(), "{strange:?}");
        // Who revokes again what is revoked is told so; of an invite that was accepted, nobody is.
        assert!(
            (joined == 1) != (revoked > 0),
            "joined: {joined}, revoked: {revoked}"
        );
        outcomes[usize::from(joined == 1)] += 1;
    }
    println!("revoked {}, accepted {}", outcomes[0], outcomes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_and_starting_never_both_win_and_never_neither() {
    let race = Race::new(2).await;
    let clients = race.clients(&race.world.org.key);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut outcomes = [0, 0];
    for _ in 0..rounds() {
        // Each is cancelled by two at once, as soon as it is there.
        let (clients, body) = (&clients, &body);
        let crowd = join_all((0..CROWD).map(|i| async move {
            let client = &clients[i % 2];
            let submitted = insist(client, client.request("POST", "/v1/evals").json(body)).await;
            assert_eq!(submitted.status, 202, "{}", submitted.body);
            let id = text(&submitted.body["id"]);
            let path = format!("/v1/jobs/{id}/cancel");
            let cancel =
                async |client: &Client| insist(client, client.request("POST", &path)).await.status;
            let (one, other) = tokio::join!(cancel(&clients[0]), cancel(&clients[1]));
            (id, [one, other])
        }));
        for (id, answers) in &crowd.await {
            let job = race.world.ended(id).await;
            match answers {
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
    // What began before it was cancelled stays charged, what did not is given back; the ledger says the same.
    let due =
        race.count("select count(*) from jobs where org_id = $1 and (status = 'succeeded' or attempts > 0)", &race.world.org.id).await;
    assert_eq!(race.charged(&race.world.org.id).await, (due, due));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_read_while_it_grows_misses_nothing_and_shows_nothing_twice() {
    let race = Race::new(0).await;
    for _ in 0..rounds() {
        let (_, key) = race.fresh_org().await;
        let clients = race.clients(&key);
        let (clients, body) = (&clients, &body(1));
        let write = join_all((0..60).map(|writer| async move {
            let mut written = Vec::new();
            for _ in 0..10 {
                let client = &clients[writer % 2];
                let answer = insist(client, client.request("POST", "/v1/evals").json(body)).await;
                assert_eq!(answer.status, 202, "{}", answer.body);
                written.push(text(&answer.body["id"]));
            }
            written
        }));
        // Pages read meanwhile: what was there when reading began is there once.
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

/// All ids of a listing, none twice.
async fn paged(client: &Client, limit: usize) -> Vec<String> {
    let (mut ids, mut before) = (Vec::new(), String::new());
    loop {
        let page = client
            .get(&format!("/v1/jobs?limit={limit}{before}"))
            .await
            .unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
        ids.extend(
            page.body["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| text(&job["id"])),
        );
        match page.body.get("next_before") {
            Some(next) => before = format!("&before={}", text(next)),
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
async fn a_revoked_key_is_refused_everywhere_within_a_second() {
    let race = Race::new(0).await;
    let owners = race.clients(&race.world.org.session);
    let mut worst = Duration::ZERO;
    for round in 0..2 * rounds() {
        let made = owners[0]
            .post("/v1/keys", &json!({"name": "short"}))
            .await
            .unwrap();
        let clients = race.clients(&text(&made.body["key"]));
        // Used by many at both processes when it is revoked.
        let path = format!("/v1/keys/{}", text(&made.body["id"]));
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(
                owners[round % 2]
                    .send(owners[round % 2].request("DELETE", &path))
                    .await
                    .unwrap()
                    .status,
                200
            );
            Instant::now()
        };
        let used = join_all((0..CROWD).map(|i| {
            let client = &clients[i % 2];
            async move {
                loop {
                    let asked = Instant::now();
                    let answer = client.get("/v1/me").await.unwrap();
                    match answer.status {
                        200 => {}
                        401 => return asked,
                        status => panic!("{status}: {}", answer.body),
                    }
                    assert!(asked.elapsed() < Duration::from_secs(10));
                }
            }
        }));
        let (revoked, refused) = tokio::join!(revoke, used);
        let latest = refused
            .into_iter()
            .map(|asked| asked.saturating_duration_since(revoked))
            .max()
            .unwrap();
        worst = worst.max(latest);
    }
    eprintln!("a revoked key was refused after {worst:?} at most");
    assert!(worst < STALL, "{worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_the_edge_of_a_minute_is_no_more_than_the_limit_in_any_sixty_seconds() {
    let race = Race::new(0).await;
    race.set("requests_per_minute = 60").await;
    let (_, key) = race.fresh_org().await;
    let clients = race.clients(&key);
    let began = Instant::now();
    let seconds = |since: Instant| since.duration_since(began).as_secs_f64();
    let mut admitted: Vec<(f64, f64)> = Vec::new();
    // Whatever part of a second the first burst falls into, the second one falls over the edge.
    for at in [0.0, 58.5, 59.0, 59.3, 59.6, 59.9, 60.2, 60.5, 61.0, 61.5] {
        tokio::time::sleep_until((began + Duration::from_secs_f64(at)).into()).await;
        let answers = join_all((0..CROWD + 30).map(|i| {
            let client = &clients[i % 2];
            async move {
                let sent = Instant::now();
                let answer = client.get("/v1/me").await.unwrap();
                (answer.status, sent, Instant::now())
            }
        }));
        let ok = answers
            .await
            .into_iter()
            .filter(|(status, ..)| *status == 200);
        admitted.extend(ok.map(|(_, sent, answered)| (seconds(sent), seconds(answered))));
    }
    admitted.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(
        admitted.len(),
        120,
        "sixty at once, and sixty more a minute later"
    );
    for window in admitted.windows(61) {
        let (from, to) = (
            window[0].0,
            window
                .iter()
                .map(|(_, answered)| *answered)
                .fold(0.0, f64::max),
        );
        assert!(
            to - from >= 60.0,
            "61 requests were admitted within {} s",
            to - from
        );
    }
}
