//! Leaderboards: who can enter, when figures appear, and what they depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row as _};

use crate::cli::Cli;
use crate::dashboard::visitor::Visitor;
use crate::disclosure::publish_answers;
use crate::domains::claim_verified;
use crate::harness::{
    Expect, Org, World, error_code, long_test, org, pause, shared_world, string,
    submit_until_succeeded, wait_until, with_setting, world, world_with,
};
use crate::name_server::NameServer;

/// Items of the suites in these tests.
const N: usize = 200;

/// Returns a `suite.toml` with `exact_match`.
fn suite_toml(name: &str, more: &str) -> String {
    format!("suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\n{more}\n")
}

/// Returns `closes_at` for a time that is this many seconds from now.
fn closing(seconds: i64) -> String {
    let at = assay_core::Timestamp::now().plus_micros(seconds * 1_000_000);
    format!("closes_at = {at}\n")
}

/// Returns the fields for a suite with sealed items and a board, which closes that many seconds from now.
fn sealed_until(seconds: i64) -> String {
    format!(
        "release = \"sealed(0.5)\"\nseal_seed = \"s\"\nboard = \"at_close\"\n{}",
        closing(seconds)
    )
}

async fn publish_suite(world: &World, name: &str, more: &str) -> String {
    let answers: Vec<Value> = (0..N).map(|_| json!("yes")).collect();
    publish_answers(world, name, &suite_toml(name, more), &answers)
        .await
        .unwrap()
}

/// Publishes a suite with a live board, for tests in other files.
pub async fn publish(world: &World) {
    publish_suite(world, "board", "board = \"live\"").await;
}

/// Publishes a sealed suite with a board. Returns its id, and the lines in a file for it.
pub async fn publish_sealed(world: &World) -> (String, Vec<String>) {
    let suite_id = publish_suite(world, "sealed-board", &sealed_until(3600)).await;
    let predictions = rights(N / 2, 0);
    let lines = predictions.as_array().unwrap().iter().map(Value::to_string);
    (suite_id, lines.collect())
}

/// Returns the organization's entry on that board: an existing one, or a new one.
pub async fn entry(client: &Client) -> String {
    let entries = client.get("/v1/entries").await.unwrap().body;
    if let Some(entry) = entries["entries"].as_array().and_then(|all| all.first()) {
        return string(&entry["id"]);
    }
    let job_id = job(client).await;
    let name = assay_tests::databases::fresh_name("entry");
    let entered = enter(client, &job_id, &name).await.expect_status(201);
    string(&entered.body["id"])
}

/// Returns the id of a new job for that board.
pub async fn job(client: &Client) -> String {
    scored(client, "suite:board", &rights(N, 0)).await
}

/// A succeeded job that can enter the board of `suite:lunch`, and another one's entry.
pub struct Scored {
    pub job_id: String,
    pub entry_id: String,
}

/// Gives `suite:lunch` a board, and copies a queued job twice as if it had succeeded: one copy has
/// entered the board. For worlds without workers.
pub async fn enter_copies(world: &World, job_id: &str) -> Scored {
    let sql = "
        update suites set board = 'live' where suite_id = 'suite:lunch';
        insert into boards (suite_id, suite_version, mode)
        select suite_id, version, 'live' from suites where suite_id = 'suite:lunch'
        on conflict do nothing;
        insert into jobs
        select r.*
        from jobs j
        cross join (values ('x'), ('y')) as copy(suffix)
        cross join jsonb_populate_record(
            null::jobs,
            to_jsonb(j) || jsonb_build_object(
                'id', j.id || copy.suffix, 'status', 'succeeded', 'started_at', now(), 'finished_at', now(), 'result', ':result'::jsonb,
                'cleaned_up_at', now(), 'idempotency_key', null, 'worker_id', null, 'deadline_at', null,
                'created_at', j.created_at - case copy.suffix when 'x' then interval '1 ms' else interval '2 ms' end
            )
        ) r
        where j.id = ':job_id';
        insert into board_entries (id, org_id, suite_id, suite_version, job_id, name, name_key, entered_by, entered_at, holders)
        select 'ent_' || substr(id, 5), org_id, suite_id, suite_version, id, 'Entry ' || id, lower(id), '', now(), array['org:' || org_id]
        from jobs
        where id = ':job_idx';
        insert into receipts (id, org_id, job_id, suite_id, suite_version, figures, payload, predictions_sha256, submission_number, issued_at)
        select
            'rcp_' || substr(id, 5), org_id, id, suite_id, suite_version, 'all',
            receipt_payload(
                'rcp_' || substr(id, 5), org_id, id, '', '', '', 1, ':result'::jsonb, 'all', 'this_submission', now(), now(), 'once'
            ),
            '', 1, now()
        from jobs
        where id = ':job_idy'";
    let result = json!(crate::harness::eval_result(0.5)).to_string();
    let sql = sql.replace(":job_id", job_id).replace(":result", &result);
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    Scored {
        job_id: format!("{job_id}y"),
        entry_id: format!("ent_{}x", job_id.trim_start_matches("job_")),
    }
}

/// Puts a job on the board of a suite without a board, and removes the entry again. Returns its id. The board never
/// closes, so no worker computes it.
pub async fn insert_entry(world: &World, suite_id: &str, job_id: &str, is_removed: bool) -> String {
    let mut database = world.database().await;
    let board = "
        insert into boards (suite_id, suite_version, mode)
        select suite_id, version, 'at_close' from suites where suite_id = $1 order by published_at desc limit 1
        on conflict do nothing";
    let board = sqlx::query(board).bind(suite_id);
    board.execute(&mut database).await.unwrap();
    let entry = "
        insert into board_entries (
            id, org_id, suite_id, suite_version, job_id, name, name_key, entered_by, entered_at, holders, by_publisher,
            removed_at, removed_reason, removed_by
        )
        select
            'ent_' || substr(j.id, 5), j.org_id, b.suite_id, b.suite_version, j.id, 'Entry ' || j.id, j.id, '', now(),
            array['org:' || j.org_id], true, case when $3 then now() end, case when $3 then 'Copied.' end,
            case when $3 then 'publisher' end
        from jobs j
        cross join boards b
        where j.id = $2
          and b.suite_id = $1
        returning id";
    let entry = sqlx::query_scalar(entry)
        .bind(suite_id)
        .bind(job_id)
        .bind(is_removed);
    entry.fetch_one(&mut database).await.unwrap()
}

/// Waits until that board has been computed.
pub async fn wait_until_computed(world: &World) {
    let key = world.key();
    board_when(&key, "suite:board", "a computation", |board| {
        board["as_of"].is_string()
    })
    .await;
}

/// Returns predictions whose first `right` items are right, beginning with item `from`.
fn rights(right: usize, from: usize) -> Value {
    let label = |at: usize| {
        if (at + N - from) % N < right {
            "yes"
        } else {
            "no"
        }
    };
    json!(
        (0..N)
            .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
            .collect::<Vec<_>>()
    )
}

/// Submits predictions, and returns the succeeded job's id.
async fn scored(client: &Client, suite_id: &str, predictions: &Value) -> String {
    let eval = json!({"suite_id": suite_id, "predictions": predictions});
    string(&submit_until_succeeded(client, &eval).await["id"])
}

pub async fn enter(client: &Client, job_id: &str, name: &str) -> Response {
    let path = format!("/v1/jobs/{job_id}/board");
    let body = json!({"name": name});
    client.post(&path, &body).await.unwrap()
}

async fn enter_scored(client: &Client, suite_id: &str, right: usize, name: &str) -> String {
    let job_id = scored(client, suite_id, &rights(right, 0)).await;
    let entered = enter(client, &job_id, name).await.expect_status(201);
    string(&entered.body["id"])
}

async fn withdraw(client: &Client, entry_id: &str) -> Response {
    let path = format!("/v1/entries/{entry_id}");
    client.delete(&path).await.unwrap()
}

async fn board(client: &Client, suite_id: &str) -> Value {
    let path = format!("/v1/suites/{suite_id}/board");
    let board = client.get(&path).await.expect_status(200);
    board.body
}

/// Waits until a board is final, and returns it.
pub async fn final_board(client: &Client, suite_id: &str) -> Value {
    let is_final = |board: &Value| board["status"] == "final";
    board_when(client, suite_id, "final board", is_final).await
}

/// Waits until a board meets a condition, and returns it.
pub async fn board_when(
    client: &Client,
    suite_id: &str,
    what: &str,
    is_met: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = Value::Null;
    wait_until(what, async || {
        last = board(client, suite_id).await;
        is_met(&last)
    })
    .await;
    last
}

/// Returns a field from each board entry.
pub fn column(board: &Value, field: &str) -> Vec<Value> {
    let rows = board["entries"].as_array().unwrap();
    rows.iter().map(|row| row[field].clone()).collect()
}

/// Waits for a live board to change, as if a minute passed between two looks: another computation may
/// just be ending.
pub async fn live_board_when(
    world: &World,
    client: &Client,
    suite_id: &str,
    what: &str,
    is_met: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = Value::Null;
    wait_until(what, async || {
        pass_a_minute(world).await;
        last = board(client, suite_id).await;
        is_met(&last)
    })
    .await;
    last
}

/// Lets a minute pass for the interval between a live board's computations.
async fn pass_a_minute(world: &World) {
    let sql = "update board_computations set as_of = as_of - interval '61 s'";
    sqlx::query(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

/// Sets all boards' close to this many seconds from now.
pub async fn close_in(world: &World, seconds: f64) {
    for table in ["boards", "suites"] {
        let sql = format!(
            "update {table} set closes_at = clock_timestamp() + $1 * interval '1 second' where closes_at is not null"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(seconds)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    }
}

async fn orgs(world: &World, n: usize) -> Vec<Org> {
    let mut orgs = Vec::new();
    for _ in 0..n {
        orgs.push(org(&world.stack, "team").await);
    }
    orgs
}

#[tokio::test(flavor = "multi_thread")]
async fn live_board_ranks_only_what_the_data_separate() {
    let world = world().await;
    world.widen_plans().await;
    let suite_id = publish_suite(&world, "board", "board = \"live\"").await;
    let orgs = orgs(&world, 4).await;
    let clients: Vec<Client> = orgs.iter().map(|org| world.client(&org.key)).collect();
    let reader = world.key();
    let suite = reader.get(&format!("/v1/suites/{suite_id}")).await.unwrap();
    assert_eq!(suite.body["board"], "live");
    let empty = board(&reader, &suite_id).await;
    assert_eq!(
        json!([
            empty["status"],
            empty["as_of"],
            empty["n_entries"],
            empty["entries"]
        ]),
        json!(["open", null, 0, []])
    );
    // Two that the items cannot separate, one that is worse, and one with a second submission.
    enter_scored(&clients[0], &suite_id, 150, "zebra").await;
    let second = enter_scored(&clients[1], &suite_id, 151, "Ant").await;
    enter_scored(&clients[2], &suite_id, 60, "crow").await;
    scored(&clients[3], &suite_id, &rights(N, 0)).await;
    pass_a_minute(&world).await;
    let job_id = scored(&clients[3], &suite_id, &rights(100, 0)).await;
    enter(&clients[3], &job_id, "bee").await;
    let full = live_board_when(&world, &reader, &suite_id, "four entries", |board| {
        board["n_entries"] == 4
    })
    .await;
    assert_eq!(
        json!([
            full["status"],
            full["n_items"],
            full["metric"],
            full["release"],
            full["visibility"]
        ]),
        json!(["open", 200, "exact_match", "exact", "credential"])
    );
    assert_eq!(
        full["method"],
        json!({"test": "paired", "correction": "holm", "level": 0.05})
    );
    assert_eq!(column(&full, "name"), ["Ant", "zebra", "bee", "crow"]);
    assert_eq!(column(&full, "tier"), [1, 1, 2, 3]);
    assert_eq!(column(&full, "rank_low"), [1, 1, 3, 4]);
    assert_eq!(column(&full, "rank_high"), [2, 2, 3, 4]);
    assert_eq!(column(&full, "value"), [0.755, 0.75, 0.5, 0.3]);
    assert_eq!(column(&full, "n_submissions"), [1, 1, 2, 1]);
    assert_eq!(column(&full, "n_missing"), [0, 0, 0, 0]);
    for row in full["entries"].as_array().unwrap() {
        let (low, high) = (
            row["ci95"][0].as_f64().unwrap(),
            row["ci95"][1].as_f64().unwrap(),
        );
        let value = row["value"].as_f64().unwrap();
        assert!(low < value && value < high, "{row}");
        assert_eq!(row["org_name"], "Acme");
        for hidden in ["job_id", "org_id", "entered_by", "p_value"] {
            assert_eq!(row.get(hidden), None, "{row}");
        }
    }
    // A withdrawn entry disappears, and stays counted.
    let withdrawn = withdraw(&clients[1], &second).await.expect_status(200);
    assert!(withdrawn.body["withdrawn_at"].is_string());
    let shorter = live_board_when(&world, &reader, &suite_id, "three entries", |board| {
        board["n_entries"] == 3
    })
    .await;
    assert_eq!(column(&shorter, "name"), ["zebra", "bee", "crow"]);
    // Its name is free again: a refusal would reveal the entry.
    enter_scored(&clients[1], &suite_id, 151, "Ant").await;
    let again = live_board_when(&world, &reader, &suite_id, "four entries", |board| {
        board["n_entries"] == 4
    })
    .await;
    assert_eq!(column(&again, "name"), ["Ant", "zebra", "bee", "crow"]);
    assert_eq!(column(&again, "n_withdrawn"), [1, 0, 0, 0]);
    // The next version closes the board, and begins with an empty one.
    let next = suite_toml("board", "board = \"live\"").replace("\"1\"", "\"2\"");
    let answers: Vec<Value> = (0..N).map(|_| json!("no")).collect();
    publish_answers(&world, "board", &next, &answers)
        .await
        .unwrap();
    assert_eq!(board(&reader, &suite_id).await["n_entries"], 0);
    let path = format!("/v1/suites/{suite_id}/board?version=1");
    wait_until("final board", async || {
        let old = reader.get(&path).await.unwrap().body;
        old["status"] == "final" && column(&old, "name") == column(&again, "name")
    })
    .await;
    let path = format!("/v1/suites/{suite_id}/board?version=9");
    reader.get(&path).await.expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_refused_with_a_reason() {
    let world = world().await;
    let suite_id = publish_suite(
        &world,
        "board",
        &format!("board = \"live\"\n{}", closing(3600)),
    )
    .await;
    let key = world.key();
    let reason = |response: &Response| {
        (
            response.status,
            error_code(response),
            response.body["error"]["details"].clone(),
        )
    };
    let lunch = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    let no_board = enter(&key, &string(&lunch["id"]), "lunch").await;
    assert_eq!(
        reason(&no_board),
        (409, "invalid_state".into(), json!({"reason": "no_board"}))
    );
    let first = scored(&key, &suite_id, &rights(10, 0)).await;
    let stranger = world.client(&org(&world.stack, "team").await.key);
    enter(&stranger, &first, "mine").await.expect_status(404);
    enter(&world.member("viewer").await, &first, "mine")
        .await
        .expect_status(403);
    for (name, why) in [
        ("", "required"),
        ("a\u{202e}b", "format"),
        ("a\u{200b}b", "format"),
        ("\u{3164}", "format"),
        (&*"x".repeat(101), "range"),
    ] {
        let refused = enter(&key, &first, name).await;
        assert_eq!(refused.status, 422, "{name:?} {}", refused.body);
        let fields = &refused.body["error"]["details"]["fields"][0];
        assert_eq!(
            json!([fields["field"], fields["reason"]]),
            json!(["name", why])
        );
    }
    let path = format!("/v1/jobs/{first}/board");
    let bad_url = json!({"name": "mine", "url": "http://lab.example"});
    key.post(&path, &bad_url).await.expect_status(422);
    let good = json!({"name": " Cafe\u{301} ", "url": "https://lab.example/choice"});
    let entered = key.post(&path, &good).await.expect_status(201);
    assert_eq!(
        json!([
            entered.body["name"],
            entered.body["url"],
            entered.body["job_id"],
            entered.body["suite_version"]
        ]),
        json!(["Café", "https://lab.example/choice", first, "1"])
    );
    let entry_id = &entered.body["id"];
    assert_eq!(
        reason(&enter(&key, &first, "other").await),
        (
            409,
            "conflict".into(),
            json!({"reason": "entered", "entry_id": entry_id})
        )
    );
    let second = scored(&key, &suite_id, &rights(11, 0)).await;
    // In upper case, with a Cyrillic letter, in full width, and with a space that does not break.
    for alike in ["CAFÉ", "\u{421}afé", "Ｃａｆé", "Café\u{a0}"] {
        assert_eq!(
            reason(&enter(&key, &second, alike).await),
            (409, "conflict".into(), json!({"reason": "name_taken"})),
            "{alike}"
        );
    }
    enter(&key, &second, "second").await.expect_status(201);
    let withdrawn = withdraw(&key, &string(entry_id)).await.expect_status(200);
    let again = withdraw(&key, &string(entry_id)).await.expect_status(200);
    assert_eq!(again.body, withdrawn.body);
    withdraw(&stranger, &string(entry_id))
        .await
        .expect_status(404);
    let third = scored(&key, &suite_id, &rights(12, 0)).await;
    enter(&key, &third, "third").await.expect_status(201);
    let fourth = scored(&key, &suite_id, &rights(13, 0)).await;
    assert_eq!(
        reason(&enter(&key, &fourth, "fourth").await),
        (
            409,
            "invalid_state".into(),
            json!({"reason": "max_entries", "max": 3})
        )
    );
    let failed =
        json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": [1]}]});
    key.post("/v1/evals", &failed).await.expect_status(422);
    let entries = key.get("/v1/entries?limit=2").await.unwrap().body;
    assert_eq!(
        json!([entries["entries"][0]["name"], entries["entries"][1]["name"]]),
        json!(["third", "second"])
    );
    let before = string(&entries["next_before"]);
    let rest = key
        .get(&format!("/v1/entries?limit=2&before={before}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        json!([
            rest["entries"][0]["name"],
            rest["entries"].as_array().unwrap().len(),
            rest.get("next_before")
        ]),
        json!(["Café", 1, null])
    );
    assert_eq!(
        stranger.get("/v1/entries").await.unwrap().body,
        json!({"entries": []})
    );
    let late = scored(&stranger, &suite_id, &rights(14, 0)).await;
    close_in(&world, 0.0).await;
    let closed = enter(&stranger, &late, "late").await.expect_status(409);
    let details = &closed.body["error"]["details"];
    assert_eq!(details["reason"], "board_closed", "{}", closed.body);
    assert!(details["closes_at"].is_string(), "{}", closed.body);
    let next = suite_toml("board", "").replace("\"1\"", "\"2\"");
    let answers: Vec<Value> = (0..N).map(|_| json!("no")).collect();
    publish_answers(&world, "board", &next, &answers)
        .await
        .unwrap();
    assert_eq!(
        reason(&enter(&stranger, &late, "late").await),
        (
            409,
            "conflict".into(),
            json!({"suite_version": "1", "current_version": "2"})
        )
    );
    let audit = world.owner().get("/v1/audit?limit=20").await.unwrap().body;
    let kinds: Vec<String> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| string(&entry["type"]))
        .filter(|kind| kind.starts_with("board."))
        .collect();
    assert_eq!(
        kinds,
        [
            "board.entered",
            "board.withdrawn",
            "board.entered",
            "board.entered"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn page_and_program_mark_a_job_as_final_and_enter_it() {
    let world = world().await;
    let more = sealed_until(3600);
    let suite_id = publish_suite(&world, "board", &more).await;
    let key = world.key();
    let first = scored(&key, &suite_id, &rights(20, 0)).await;
    let second = scored(&key, &suite_id, &rights(40, 0)).await;
    let is_final = async |job_id: &str| {
        let job = key.get(&format!("/v1/jobs/{job_id}")).await.unwrap().body;
        job["final"] == true
    };
    let mut visitor = Visitor::signed_in(&world, &world.org.session);
    let mut send = async |job_id: &str, typed: &[(&str, &str)]| {
        let action = format!("/jobs/{job_id}/board");
        let page = visitor.open(&action).await;
        page.assert_shows(200, "Mark as final and enter");
        visitor.submit(&page, &action, typed).await
    };
    let unmarked = send(&first, &[("name", "one")]).await;
    unmarked.assert_shows(422, "Mark the job as final first");
    let marked = [("name", "one"), ("final", "true")];
    send(&first, &marked).await.expect_status(303);
    assert!(is_final(&first).await);
    // The mark is lost if the job does not enter.
    let taken = send(&second, &marked).await;
    taken.assert_shows(422, "has this name");
    assert!(!is_final(&second).await);
    let cli = Cli::new(&world);
    let enter = ["enter", &second, "--name", "two", "--final"];
    let entry = cli.run(&enter).await.json();
    assert_eq!(
        (&entry["name"], &entry["job_id"]),
        (&json!("two"), &json!(second))
    );
    assert!(is_final(&second).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn board_at_close_shows_figures_once_it_has_closed() {
    let world = world().await;
    let more = sealed_until(3600);
    let suite_id = publish_suite(&world, "board", &more).await;
    let orgs = orgs(&world, 3).await;
    let clients: Vec<Client> = orgs.iter().map(|org| world.client(&org.key)).collect();
    let reader = world.key();
    let mut entries = Vec::new();
    for (client, right) in clients.iter().zip([180, 120, 20]) {
        let job_id = scored(client, &suite_id, &rights(right, 0)).await;
        let not_final = enter(client, &job_id, "x").await;
        assert_eq!(
            not_final.body["error"]["details"],
            json!({"reason": "not_final"})
        );
        let path = format!("/v1/jobs/{job_id}/final");
        client
            .send(client.request("POST", &path))
            .await
            .expect_status(200);
        let entered = enter(client, &job_id, &format!("model {right}"))
            .await
            .expect_status(201);
        entries.push((job_id, string(&entered.body["id"])));
    }
    // Nothing of the entries shows before the close.
    pause("nothing to happen", Duration::from_secs(3)).await;
    let open = board(&reader, &suite_id).await;
    assert_eq!(
        json!([
            open["status"],
            open["as_of"],
            open["n_entries"],
            open["n_items"],
            open["entries"]
        ]),
        json!(["open", null, 0, null, []])
    );
    withdraw(&clients[2], &entries[2].1).await;
    close_in(&world, 0.0).await;
    let full = final_board(&reader, &suite_id).await;
    assert_eq!(full["n_items"], 100);
    assert_eq!(column(&full, "name"), ["model 180", "model 120"]);
    let path = format!("/v1/jobs/{}", entries[0].0);
    let sealed = clients[0].get(&path).await.unwrap().body["result"]["sealed"].clone();
    let row = &full["entries"][0];
    assert_eq!(
        json!([row["value"], row["ci95"]]),
        json!([sealed["value"], sealed["ci95"]])
    );
    // After the close a withdrawal hides the name and keeps the figures.
    withdraw(&clients[1], &entries[1].1).await;
    let nameless = board_when(&reader, &suite_id, "a row without a name", |board| {
        column(board, "name").contains(&Value::Null)
    })
    .await;
    let row = &nameless["entries"][1];
    assert_eq!(
        json!([row["name"], row["org_name"], row["url"], row["value"]]),
        json!([null, null, null, full["entries"][1]["value"]])
    );
    assert!(row["withdrawn_at"].is_string());
    // The operator removes an entry, and the board is computed again.
    let removed = world
        .stack
        .operate(&[
            "board",
            "remove",
            &entries[0].1,
            "--reason",
            "copied answers",
        ])
        .await
        .unwrap();
    assert_eq!(removed["removed"], true);
    let last = board_when(&reader, &suite_id, "one entry", |board| {
        board["n_entries"] == 1
    })
    .await;
    assert_eq!(column(&last, "name"), [Value::Null]);
    let own = clients[0].get("/v1/entries").await.unwrap().body;
    let own = &own["entries"][0];
    assert_eq!(
        json!([own["removed_reason"], own["removed_at"].is_string()]),
        json!(["copied answers", true])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ladder_board_shows_the_jobs_own_value_on_the_grid() {
    let world = world().await;
    let answers: Vec<Value> = (0..N)
        .map(|at| json!(if at.is_multiple_of(2) { "yes" } else { "no" }))
        .collect();
    let more = format!(
        "release = \"ladder(0.1)\"\nboard = \"at_close\"\n{}",
        closing(3600)
    );
    let suite_id = publish_answers(&world, "board", &suite_toml("board", &more), &answers)
        .await
        .unwrap();
    let key = world.key();
    let predict = |right: usize| {
        let label = |at: usize| {
            let is_yes = at.is_multiple_of(2) == (at < right);
            if is_yes { "yes" } else { "no" }
        };
        json!(
            (0..N)
                .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
                .collect::<Vec<_>>()
        )
    };
    let best = scored(&key, &suite_id, &predict(170)).await;
    let worse = scored(&key, &suite_id, &predict(130)).await;
    let path = format!("/v1/jobs/{worse}");
    let shown = key.get(&path).await.unwrap().body["result"]["value"].clone();
    assert_eq!(shown, 0.8, "a ladder shows the best so far");
    enter(&key, &best, "best").await;
    enter(&key, &worse, "worse").await;
    close_in(&world, 0.0).await;
    let full = final_board(&key, &suite_id).await;
    assert_eq!(column(&full, "value"), [0.8, 0.6]);
    assert_eq!(column(&full, "ci95"), [Value::Null, Value::Null]);
    assert_eq!(column(&full, "tier"), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_show_the_verified_domain_of_the_organization() {
    let name_server = NameServer::start().await;
    let address = name_server.address.to_string();
    let world = world_with(with_setting("ASSAY_DNS_SERVER", &address)).await;
    world.widen_plans().await;
    let suite_id = publish_suite(&world, "board", "board = \"live\"").await;
    let orgs = orgs(&world, 3).await;
    for (org, right) in orgs.iter().zip([150, 120, 90]) {
        let name = right.to_string();
        enter_scored(&world.client(&org.key), &suite_id, right, &name).await;
    }
    let domains = ["first.example", "second.example", "gone.example"];
    for (org, domain) in [(0, domains[0]), (0, domains[1]), (1, domains[2])] {
        let owner = world.client(&orgs[org].session);
        claim_verified(&owner, &name_server, domain).await;
    }
    let gone = "update domain_claims set misses = 3 where domain = 'gone.example'";
    sqlx::query(gone)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let shown = live_board_when(&world, &world.key(), &suite_id, "three entries", |board| {
        board["n_entries"] == 3
    })
    .await;
    assert_eq!(
        column(&shown, "org_domain"),
        [json!("first.example"), Value::Null, Value::Null],
        "the domain verified first, and none whose record is gone"
    );
    let mut visitor = Visitor::signed_in(&world, &world.org.session);
    let page = visitor.open(&format!("/suites/{suite_id}/board")).await;
    assert_eq!(
        page.text.matches("first.example").count(),
        1,
        "{}",
        page.text
    );
    assert_eq!(
        page.text.matches(">unverified<").count(),
        2,
        "{}",
        page.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn public_board_needs_no_credential() {
    let world = world().await;
    world.widen_plans().await;
    let suite_id = publish_suite(&world, "board", "board = \"live\"").await;
    for (right, name) in [(150, "c"), (120, "b"), (90, "a")] {
        enter_scored(&world.key(), &suite_id, right, name).await;
    }
    live_board_when(&world, &world.key(), &suite_id, "three entries", |board| {
        board["n_entries"] == 3
    })
    .await;
    let anonymous = world.anonymous();
    let path = format!("/v1/suites/{suite_id}/board");
    for hidden in [
        path.as_str(),
        "/v1/suites/suite:none/board",
        "/v1/suites/suite:lunch/board",
    ] {
        anonymous
            .get(hidden)
            .await
            .expect_error(401, "unauthenticated");
    }
    let set = [
        "board",
        "set",
        "--suite",
        &suite_id,
        "--version",
        "1",
        "--visibility",
        "public",
    ];
    let set = world.stack.operate(&set).await.unwrap();
    assert_eq!(
        json!([set["visibility"], set["changed"]]),
        json!(["public", true])
    );
    let public = anonymous.get(&path).await.expect_status(200);
    assert_eq!(public.header("cache-control"), "public, max-age=60");
    assert!(
        public.header("ratelimit-limit").parse::<u32>().is_ok()
            || !public.header("x-ratelimit-limit").is_empty()
    );
    let known = world.key().get(&path).await.unwrap();
    assert_eq!(known.body, public.body);
    let etag = public.header("etag").to_owned();
    let unchanged = anonymous
        .request("GET", &path)
        .header("if-none-match", &etag);
    let unchanged = unchanged.send().await.unwrap();
    assert_eq!(unchanged.status(), 304);
    assert_eq!(unchanged.headers()["etag"], etag.as_str());
    // All pages show one computation, until it is no longer stored.
    let first = anonymous
        .get(&format!("{path}?limit=2"))
        .await
        .unwrap()
        .body;
    assert_eq!(column(&first, "name"), ["c", "b"]);
    let cursor = string(&first["next_cursor"]);
    let other = org(&world.stack, "team").await;
    let client = world.client(&other.key);
    enter_scored(&client, &suite_id, 160, "d").await;
    live_board_when(&world, &client, &suite_id, "four entries", |board| {
        board["n_entries"] == 4
    })
    .await;
    let second = anonymous
        .get(&format!("{path}?limit=2&cursor={cursor}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        json!([
            column(&second, "name"),
            second["n_entries"],
            second["next_cursor"]
        ]),
        json!([["a"], 3, null])
    );
    enter_scored(&client, &suite_id, 161, "e").await;
    live_board_when(&world, &client, &suite_id, "five entries", |board| {
        board["n_entries"] == 5
    })
    .await;
    anonymous
        .get(&format!("{path}?limit=2&cursor={cursor}"))
        .await
        .expect_error(422, "validation_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_of_entries_survive_cleanup() {
    long_test!("waits for two rounds of the cleanup, which runs every minute");
    let world = world().await;
    let suite_id = publish_suite(
        &world,
        "board",
        &format!("board = \"at_close\"\n{}", closing(3600)),
    )
    .await;
    let key = world.key();
    let entered = scored(&key, &suite_id, &rights(150, 0)).await;
    enter(&key, &entered, "kept").await.expect_status(201);
    let bytes = rights(90, 0).to_string().into_bytes();
    let fields = json!({"kind": "predictions", "content_type": "application/json"});
    let upload_id = crate::uploads::uploaded(&key, fields, &bytes).await;
    let body = json!({"suite_id": suite_id, "input_ref": upload_id});
    let uploaded = string(&key.post("/v1/evals", &body).await.unwrap().body["id"]);
    world.wait_for_status(&uploaded, "succeeded").await;
    enter(&key, &uploaded, "uploaded").await.expect_status(201);
    let other = scored(&key, &suite_id, &rights(100, 0)).await;
    let lunch = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    let mut database = world.database().await;
    let age = "update jobs set finished_at = finished_at - interval '1 day'";
    sqlx::query(age).execute(&mut database).await.unwrap();
    let expire = "update uploads set deleted_at = now() - interval '1 day'";
    sqlx::query(expire).execute(&mut database).await.unwrap();
    let stored = "select job_id from stored_predictions where job_id = any($1) order by job_id";
    let jobs = [entered.clone(), other.clone(), string(&lunch["id"])];
    wait_until("cleanup", async || {
        let left: Vec<String> = sqlx::query_scalar(stored)
            .bind(&jobs[..])
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
        left == jobs[..2]
    })
    .await;
    close_in(&world, -120.0).await;
    let full = final_board(&key, &suite_id).await;
    assert_eq!(column(&full, "value"), [0.75, 0.45]);
    // The job that did not enter needs its predictions no more.
    wait_until("cleanup after the close", async || {
        let left: Vec<String> = sqlx::query_scalar(stored)
            .bind(&jobs[..])
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
        left == jobs[..1]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_at_the_close_are_exact() {
    const CALLERS: usize = 50;

    let world = world_with(StackSize {
        apis: 2,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let suite_id = publish_suite(
        &world,
        "board",
        &format!("board = \"at_close\"\n{}", closing(3600)),
    )
    .await;
    let orgs = orgs(&world, 10).await;
    // Five jobs of each organization, of which three can enter.
    let jobs: Vec<(usize, String)> = join_all((0..CALLERS).map(|caller| {
        let client = world.client(&orgs[caller % orgs.len()].key);
        let suite_id = &suite_id;
        async move {
            let job_id = scored(&client, suite_id, &rights(40 + 3 * caller, 0)).await;
            (caller, job_id)
        }
    }))
    .await;
    let addresses = world.stack.addresses();
    close_in(&world, 4.0).await;
    let outcomes = join_all(jobs.iter().map(|(caller, job_id)| {
        let url = addresses[caller % addresses.len()].clone();
        let client = Client::new(url, Some(&orgs[caller % orgs.len()].key));
        async move {
            tokio::time::sleep(Duration::from_millis(120 * *caller as u64)).await;
            let entered = enter(&client, job_id, &format!("entry {caller}")).await;
            assert!([201, 409].contains(&entered.status), "{}", entered.body);
            if entered.status != 201 {
                return (*caller, None, false);
            }
            let entry_id = string(&entered.body["id"]);
            let is_withdrawn =
                caller.is_multiple_of(3) && withdraw(&client, &entry_id).await.status == 200;
            (*caller, Some(entry_id), is_withdrawn)
        }
    }))
    .await;
    let reader = world.key();
    let full = final_board(&reader, &suite_id).await;
    pause("nothing to happen", Duration::from_secs(3)).await;
    let full_after = board(&reader, &suite_id).await;
    let ids = |board: &Value| {
        column(board, "entry_id")
            .iter()
            .map(string)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(ids(&full), ids(&full_after));
    let mut entries: BTreeMap<usize, usize> = BTreeMap::new();
    for (caller, entry_id, is_withdrawn) in outcomes {
        let Some(entry_id) = entry_id else { continue };
        *entries.entry(caller % orgs.len()).or_default() += 1;
        let row = "select e.withdrawn_at < b.closes_at as is_out, e.entered_at < b.closes_at as is_in_time
             from board_entries e join boards b using (suite_id, suite_version) where e.id = $1";
        let row = sqlx::query(row)
            .bind(&entry_id)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        assert!(row.get::<bool, _>("is_in_time"), "{entry_id}");
        let is_out = row.get::<Option<bool>, _>("is_out") == Some(true);
        assert!(!is_out || is_withdrawn);
        assert_eq!(ids(&full).contains(&entry_id), !is_out, "{entry_id}");
    }
    assert!(entries.values().all(|count| *count <= 3), "{entries:?}");
    assert!(!entries.is_empty(), "no caller entered before the close");
    let late = scored(&reader, &suite_id, &rights(N, 0)).await;
    enter(&reader, &late, "late").await.expect_status(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_leave_the_same_board() {
    long_test!("computes a board with workers that are killed");
    const ENTRIES: usize = 60;

    let mut world = world().await;
    world.widen_plans().await;
    let suite_id = publish_suite(
        &world,
        "board",
        &format!("board = \"at_close\"\n{}", closing(3600)),
    )
    .await;
    let orgs = orgs(&world, ENTRIES / 3).await;
    join_all((0..ENTRIES).map(|at| {
        let client = world.client(&orgs[at / 3].key);
        let suite_id = &suite_id;
        async move {
            let job_id = scored(&client, suite_id, &rights(40 + 2 * at, at)).await;
            enter(&client, &job_id, &format!("entry {at:02}"))
                .await
                .expect_status(201);
        }
    }))
    .await;
    let reader = world.key();
    close_in(&world, 0.0).await;
    let full = final_board(&reader, &suite_id).await;
    // The same computation from the beginning, by workers that are killed.
    world.stack.workers.clear();
    let reset = "update board_entries set position = null, computed_revision = 0;
         delete from board_pairs; update boards set computation = null, is_final = false;
         delete from board_computations";
    sqlx::raw_sql(reset)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for kill in 0..20 {
        let worker = world.stack.launch_worker().unwrap();
        worker.ready().await.unwrap();
        tokio::time::sleep(Duration::from_millis(900 + 20 * kill)).await;
        drop(worker);
        let lease = "update boards set lease_until = null";
        sqlx::query(lease)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    }
    let _worker = world.stack.launch_worker().unwrap();
    let again = final_board(&reader, &suite_id).await;
    assert_eq!(again["entries"], full["entries"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_role_cannot_read_tests_of_pairs() {
    let world = shared_world().await;
    let url = &world.stack.database.api_url;
    let mut database = assay_tests::databases::connect(url).await.unwrap();
    for refused in [
        "select * from board_pairs",
        "update board_rows set value = 1",
        "update board_entries set position = 0",
        "update boards set is_final = true",
        "update boards set is_public = true",
        "delete from board_entries",
    ] {
        let error = sqlx::query(refused)
            .execute(&mut database)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("permission denied"),
            "{refused}: {error}"
        );
    }
}
