//! The publisher's control over its suite: who submits, its own submissions, the entries of others, and retirement.

use assay_tests::client::{Client, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::boards::{board_when, close_in, column, enter, live_board_when};
use crate::cli::Cli;
use crate::drafts::{Publisher, predictions};
use crate::harness::{
    Expect, Org, World, field_errors, org, string, submit_until_succeeded, wait_until, world,
};

/// A listed suite with a live board, on which every organization can enter.
const LISTED: &str = "visibility = \"listed\"\naccess = \"everyone\"\nboard = \"live\"\n";

async fn verify_domain(world: &World, org: &Org, domain: &str) {
    let sql =
        "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
               select $1, $2, 't', id, now(), now() from users limit 1";
    let insert = sqlx::query(sql).bind(&org.id).bind(domain);
    insert.execute(&mut world.database().await).await.unwrap();
}

/// Returns the key of a new organization on the plan free that this user creates.
async fn found_org(owner: &Client) -> String {
    let side = json!({"name": "Side project"});
    let made = owner.post("/v1/orgs", &side).await.expect_status(201);
    let id = string(&made.body["id"]);
    let request = owner
        .request("POST", "/v1/keys")
        .header("x-org-id", id)
        .json(&json!({"name": "side"}));
    let key = owner.send(request).await.expect_status(201);
    string(&key.body["key"])
}

async fn scored(client: &Client, suite_id: &str, right: usize) -> Value {
    let eval = json!({"suite_id": suite_id, "predictions": predictions(right)});
    submit_until_succeeded(client, &eval).await
}

/// Submits and enters the board. Returns the entry.
async fn entered(client: &Client, suite_id: &str, right: usize, name: &str) -> Value {
    let job = scored(client, suite_id, right).await;
    let entry = enter(client, &string(&job["id"]), name).await;
    entry.expect_status(201).body
}

#[tokio::test(flavor = "multi_thread")]
async fn own_submissions_are_marked_wherever_they_are_shown() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    let sister = org(&world.stack, "team").await;
    verify_domain(&world, &publisher.org, "votes.acme.example").await;
    verify_domain(&world, &sister, "models.acme.example").await;
    let founded = found_org(&world.client(&publisher.org.session)).await;
    let other = org(&world.stack, "free").await;
    for (name, key, expected) in [
        ("publisher", &publisher.org.key, true),
        ("sister", &sister.key, true),
        ("founded", &founded, true),
        ("other", &other.key, false),
    ] {
        let client = world.client(key);
        let entry = entered(&client, &suite_id, 150, name).await;
        let job = format!("/v1/jobs/{}", string(&entry["job_id"]));
        let result = client.get(&job).await.expect_status(200).body["result"].clone();
        let receipt = client.get(&format!("{job}/receipt")).await;
        let predicate = receipt.expect_status(200).body["statement"]["predicate"].clone();
        let expected = json!(expected);
        for (place, shown) in [("result", result), ("entry", entry), ("receipt", predicate)] {
            assert_eq!(shown["by_publisher"], expected, "{name}, {place}: {shown}");
        }
    }
    let reader = world.key();
    let board = live_board_when(&world, &reader, &suite_id, "four entries", |board| {
        board["n_entries"] == 4
    })
    .await;
    for row in board["entries"].as_array().unwrap() {
        assert_eq!(row["by_publisher"], json!(row["name"] != "other"), "{row}");
    }
    // The operator's suites have no publisher.
    let lunch = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    assert_eq!(lunch["result"].get("by_publisher"), None, "{lunch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn publisher_sees_who_submits_under_names_of_the_suite() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    let client = publisher.client(&world);
    let path = format!("/v1/suites/{suite_id}/submitters");
    let empty = client.get(&path).await.expect_status(200).body;
    assert_eq!(empty, json!({"submitters": [], "next_cursor": null}));
    let [unknown, entrant, granted] = [
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    ];
    let grant = json!({"org_id": granted.id});
    client
        .post(&format!("/v1/suites/{suite_id}/grants"), &grant)
        .await
        .expect_status(201);
    scored(&world.client(&unknown.key), &suite_id, 10).await;
    entered(&world.client(&entrant.key), &suite_id, 20, "entrant").await;
    scored(&world.client(&granted.key), &suite_id, 30).await;
    let job = scored(&world.client(&unknown.key), &suite_id, 10).await;
    let sql = "update jobs set status = 'failed', result = null, error_code = 'internal', error_message = '' where id = $1";
    let fail = sqlx::query(sql).bind(string(&job["id"]));
    fail.execute(&mut world.database().await).await.unwrap();
    scored(&client, &suite_id, 40).await;
    let all = client.get(&path).await.expect_status(200).body;
    let rows = all["submitters"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["org_name"].as_str()).collect();
    // The newest submission first: the publisher, the failed one, the granted and the entered one.
    assert_eq!(names, [Some("Acme"), None, Some("Acme"), Some("Acme")]);
    let counts: Vec<_> = rows
        .iter()
        .map(|row| {
            let numbers =
                ["n_submissions", "n_failed", "n_entries"].map(|field| row[field].as_i64());
            (
                numbers.map(Option::unwrap),
                row["by_publisher"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(counts[0], ([1, 0, 0], true));
    assert_eq!(counts[3], ([1, 0, 1], false));
    assert_eq!((counts[1].0[0], counts[1].0[1]), (2, 1), "{all}");
    let text = all.to_string();
    for org in [&unknown, &entrant, &granted] {
        assert!(!text.contains(&org.id), "{text}");
    }
    // Pages have the same rows, also if several have one time.
    let sql = "update jobs set created_at = (select max(created_at) + interval '1 s' from jobs)
               where suite_id = $1 and id in (select distinct on (org_id) id from jobs order by org_id, created_at desc)";
    let same = sqlx::query(sql).bind(&suite_id);
    same.execute(&mut world.database().await).await.unwrap();
    let whole = client.get(&path).await.expect_status(200).body["submitters"].clone();
    let mut paged = Vec::new();
    let mut next = format!("{path}?limit=1");
    loop {
        let page = client.get(&next).await.expect_status(200).body;
        paged.extend(page["submitters"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("{path}?limit=1&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), whole);
    let one = client.get(&format!("{path}?version=2")).await;
    assert_eq!(one.expect_status(200).body["submitters"], json!([]));
    // Others see the suite, and not who submits.
    let stranger = world.key().get(&path).await;
    stranger.expect_error(403, "forbidden");
}

/// Sends a removal or a restoration as this owner.
async fn moderate(owner: &Client, entry: &Value, change: &str) -> Response {
    let path = format!("/v1/entries/{}/{change}", string(&entry["id"]));
    let body = json!({"reason": "Copied answers."});
    owner.post(&path, &body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_is_shown_and_restored_entry_is_ranked_again() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let [best, worst] = [
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    ];
    let removed = entered(&world.client(&best.key), &suite_id, 200, "best").await;
    for change in ["remove", "remove"] {
        let entry = moderate(&owner, &removed, change).await.expect_status(200);
        assert_eq!(
            (&entry.body["removed_by"], &entry.body["removed_reason"]),
            (&json!("publisher"), &json!("Copied answers."))
        );
    }
    // An entry that comes while another one is removed is tested against it, too.
    entered(&world.client(&worst.key), &suite_id, 20, "worst").await;
    let reader = world.key();
    let shown = live_board_when(&world, &reader, &suite_id, "the other entry", |board| {
        board["n_entries"] == 1
    })
    .await;
    assert_eq!(column(&shown, "name"), ["worst"]);
    assert_eq!(shown["n_removed"], 1);
    let removal = &shown["removed"][0];
    assert_eq!(
        (
            &removal["reason"],
            &removal["by"],
            removal.as_object().unwrap().len()
        ),
        (&json!("Copied answers."), &json!("publisher"), 3)
    );
    for change in ["restore", "restore"] {
        moderate(&owner, &removed, change).await.expect_status(200);
    }
    let shown = live_board_when(&world, &reader, &suite_id, "both entries", |board| {
        board["n_entries"] == 2
    })
    .await;
    assert_eq!(column(&shown, "name"), ["best", "worst"]);
    assert_eq!(column(&shown, "tier"), [1, 2]);
    assert_eq!(
        (&shown["n_removed"], &shown["removed"]),
        (&json!(0), &json!([]))
    );
    // Both logs have both changes; that of the entry's organization does not name the publisher's user.
    for (session, actor) in [
        (&owner, "session"),
        (&world.client(&best.session), "publisher"),
    ] {
        let mut types = Vec::new();
        for kind in ["board.removed", "board.restored"] {
            let log = session.get(&format!("/v1/audit?type={kind}")).await;
            for entry in log.expect_status(200).body["entries"].as_array().unwrap() {
                assert_eq!(entry["actor"]["type"], actor, "{entry}");
                assert_eq!(entry["actor"]["user_id"].is_null(), actor == "publisher");
                assert_eq!(entry["changes"]["reason"]["after"], "Copied answers.");
                types.push(kind);
            }
        }
        assert_eq!(types, ["board.removed", "board.restored"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_publisher_removes_and_only_until_the_board_is_final() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let closing = LISTED.replace("live", "at_close") + &format!("closes_at = {closes_at}\n");
    publisher.publish(&world, "1", &closing).await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let entrant = org(&world.stack, "team").await;
    let client = world.client(&entrant.key);
    let first = entered(&client, &suite_id, 150, "first").await;
    let second = entered(&client, &suite_id, 100, "second").await;
    // The organization of the entry and strangers cannot; keys and members of the publisher neither.
    for (other, status, code) in [
        (world.client(&entrant.session), 403, "forbidden"),
        (world.owner(), 403, "forbidden"),
        (publisher.client(&world), 403, "session_required"),
    ] {
        moderate(&other, &first, "remove")
            .await
            .expect_error(status, code);
    }
    let sql =
        format!("update suite_owners set visibility = 'private' where suite_id = '{suite_id}'");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    moderate(&world.owner(), &first, "remove")
        .await
        .expect_error(404, "not_found");
    // The publisher cannot restore what the operator has removed.
    let operate = async |change: &str| {
        let arguments = [
            "board",
            change,
            first["id"].as_str().unwrap(),
            "--reason",
            "Fraud.",
        ];
        world.stack.operate(&arguments).await.unwrap()
    };
    moderate(&owner, &first, "remove").await.expect_status(200);
    assert_eq!(operate("remove").await["changed"], true);
    moderate(&owner, &first, "restore")
        .await
        .expect_error(403, "forbidden");
    assert_eq!(operate("restore").await["changed"], true);
    moderate(&owner, &second, "remove").await.expect_status(200);
    close_in(&world, 0.0).await;
    let board = board_when(
        &publisher.client(&world),
        &suite_id,
        "final board",
        |board| board["status"] == "final",
    )
    .await;
    assert_eq!(column(&board, "name"), ["first"]);
    for (entry, change) in [(&second, "restore"), (&first, "remove")] {
        let refused = moderate(&owner, entry, change).await;
        let refused = refused.expect_error(409, "invalid_state").body;
        assert_eq!(refused["error"]["details"]["reason"], "board_final");
    }
    // A repeated request changes nothing, so it succeeds also now.
    moderate(&owner, &second, "remove").await.expect_status(200);
    // The operator can, and the board is computed again.
    assert_eq!(operate("remove").await["removed"], true);
    board_when(&publisher.client(&world), &suite_id, "no entry", |board| {
        board["n_entries"] == 0
    })
    .await;
}

/// Sends the request to retire a version.
async fn retire(owner: &Client, suite_id: &str, version: &str, more: Value) -> Response {
    let mut body = json!({"version": version, "confirm": true});
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    let path = format!("/v1/suites/{suite_id}/retire");
    owner.post(&path, &body).await.unwrap()
}

fn open_with(key: &str) -> Value {
    json!({"open_answers": true, "opening_key": key})
}

#[track_caller]
fn reason(refused: &Response) -> &Value {
    assert_eq!(refused.status, 409, "{}", refused.body);
    &refused.body["error"]["details"]["reason"]
}

#[tokio::test(flavor = "multi_thread")]
async fn version_retires_with_hidden_answers_and_opens_with_its_key() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let key = publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let reader = world.key();
    entered(&reader, &suite_id, 150, "entry").await;
    let unconfirmed = retire(&owner, &suite_id, "1", json!({"confirm": false})).await;
    assert_eq!(
        field_errors(&unconfirmed),
        [("confirm".to_owned(), "confirm".to_owned())]
    );
    let unknown = retire(&owner, &suite_id, "2", json!({})).await;
    assert_eq!(
        field_errors(&unknown),
        [("version".to_owned(), "not_found".to_owned())]
    );
    let retired = retire(&owner, &suite_id, "1", json!({})).await;
    assert_eq!(retired.expect_status(200).body["status"], "retired");
    let eval = json!({"suite_id": suite_id, "predictions": predictions(10)});
    let refused = reader.post("/v1/evals", &eval).await.unwrap();
    assert_eq!(reason(&refused), "suite_retired");
    let board = board_when(&reader, &suite_id, "final board", |board| {
        board["status"] == "final"
    })
    .await;
    assert_eq!(column(&board, "name"), ["entry"]);
    let commitment = format!("/v1/suites/{suite_id}/commitment");
    let hidden = reader.get(&commitment).await.expect_status(200).body;
    assert_eq!(hidden["opening"], Value::Null);
    let answers = format!("/v1/suites/{suite_id}/opening/answers.ndjson?version=1");
    reader.get(&answers).await.expect_error(404, "not_found");

    let without_key = retire(&owner, &suite_id, "1", json!({"open_answers": true})).await;
    assert_eq!(
        field_errors(&without_key),
        [("opening_key".to_owned(), "required".to_owned())]
    );
    for _ in 0..5 {
        let wrong = retire(&owner, &suite_id, "1", open_with(&"0f".repeat(32))).await;
        assert_eq!(
            field_errors(&wrong),
            [("opening_key".to_owned(), "wrong_key".to_owned())]
        );
    }
    let sixth = retire(&owner, &suite_id, "1", open_with(&key)).await;
    let sixth = sixth.expect_error(429, "quota_exceeded").body;
    assert_eq!(sixth["error"]["details"]["max"], 5);
    let sql = "update suite_retirements set requested_at = requested_at - interval '1 hour'";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for _ in 0..2 {
        let opened = retire(&owner, &suite_id, "1", open_with(&key)).await;
        assert_eq!(opened.expect_status(200).body["status"], "retired");
    }
    let open = reader.get(&commitment).await.expect_status(200).body;
    assert_eq!(open["opening"]["salt"], json!(key));
    let text = reader.send(reader.request("GET", &answers)).await.unwrap();
    assert_eq!(text.status, 200);
    let lines = string(&text.body);
    assert_eq!(lines.lines().count(), 200);
    assert!(
        lines.starts_with("{\"item_id\":\"r0\",\"answer\":\"yes\"}"),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn version_retires_only_when_no_secret_is_given_away() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let first = publisher.publish(&world, "1", LISTED).await;
    let second = publisher.publish(&world, "2", "").await;
    let refused = retire(&owner, &suite_id, "1", open_with(&first)).await;
    assert_eq!(reason(&refused), "answers_shared");
    assert_eq!(refused.body["error"]["details"]["versions"], json!(["2"]));
    retire(&owner, &suite_id, "2", json!({}))
        .await
        .expect_status(200);
    for (version, key) in [("1", &first), ("2", &second)] {
        let opened = retire(&owner, &suite_id, version, open_with(key)).await;
        opened.expect_status(200);
    }
    let at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let closes = format!("closes_at = {at}\n");
    for (version, more, expected) in [
        (
            "3",
            format!("release = \"sealed(0.5)\"\n{closes}"),
            "not_closed",
        ),
        (
            "4",
            format!("board = \"at_close\"\n{closes}"),
            "board_not_final",
        ),
    ] {
        let key = publisher.publish(&world, version, &more).await;
        let hidden = retire(&owner, &suite_id, version, json!({})).await;
        assert_eq!(reason(&hidden), expected);
        let open = retire(&owner, &suite_id, version, open_with(&key)).await;
        assert_eq!(reason(&open), "not_closed");
        assert_eq!(open.body["error"]["details"]["closes_at"], json!(at));
    }
    let versions = owner.get(&format!("/v1/suites/{suite_id}/versions")).await;
    let versions = versions.expect_status(200).body["versions"].clone();
    let states: Vec<_> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (string(&one["version"]), string(&one["status"])))
        .collect();
    let expected = [
        ("4", "active"),
        ("3", "active"),
        ("2", "retired"),
        ("1", "retired"),
    ];
    let expected = expected.map(|(version, status)| (version.to_owned(), status.to_owned()));
    assert_eq!(states, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_does_not_publish_the_key_of_a_live_version() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let key = publisher.publish(&world, "1", LISTED).await;
    publisher.publish(&world, "2", "").await;
    // As if both versions were published from one folder.
    let same = "update suite_openings set salt = decode($1, 'hex')";
    let same = sqlx::query(same).bind(&key);
    same.execute(&mut world.database().await).await.unwrap();
    let refused = retire(&owner, &suite_id, "1", open_with(&key)).await;
    assert_eq!(reason(&refused), "answers_shared");
    let live = json!([format!("{suite_id} 2")]);
    assert_eq!(refused.body["error"]["details"]["versions"], live);
    retire(&owner, &suite_id, "2", json!({}))
        .await
        .expect_status(200);
    retire(&owner, &suite_id, "1", open_with(&key))
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_retirement_ends_and_others_go_on() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    publisher.publish(&world, "1", LISTED).await;
    let key = publisher.publish(&world, "2", "").await;
    // A request that cannot be executed: the opened answers are there already.
    let broken = "
        insert into opened_answers (suite_id, suite_version, ordinal, item_id, answer)
        select suite_id, version, 0, 'r0', '1' from suites where suite_id = $1 and version = '2'";
    let broken = sqlx::query(broken).bind(&suite_id);
    broken.execute(&mut world.database().await).await.unwrap();
    retire(&owner, &suite_id, "1", json!({}))
        .await
        .expect_status(200);
    let waiting = retire(&owner, &suite_id, "2", open_with(&key)).await;
    assert_eq!(waiting.expect_status(202).body["status"], "retiring");
    let soon = "update suite_retirements set claimed_until = now() where outcome is null";
    let ended = "select count(*) from suite_retirements where outcome = 'failed' and attempts > 3";
    wait_until("the request has failed", async || {
        let mut database = world.database().await;
        sqlx::raw_sql(soon).execute(&mut database).await.unwrap();
        let ended: i64 = sqlx::query_scalar(ended)
            .fetch_one(&mut database)
            .await
            .unwrap();
        ended == 1
    })
    .await;
    let versions = owner.get(&format!("/v1/suites/{suite_id}/versions")).await;
    let versions = versions.expect_status(200).body;
    assert_eq!(versions["versions"][0]["status"], "active", "{versions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_role_opens_nothing_without_the_key() {
    let world = world().await;
    let publisher = Publisher::new(&world, "team").await;
    publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    let mut api = assay_tests::databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    let insert = "insert into suite_retirements (id, org_id, suite_id, suite_version, key_hash) values ($1, $2, $3, '1', $4)";
    // Another organization's name, and a hash that is not that of the key.
    for (id, org_id, key_hash) in [
        ("other", &world.org.id, None),
        ("guess", &publisher.org.id, Some(vec![7_u8; 32])),
    ] {
        let request = sqlx::query(insert)
            .bind(id)
            .bind(org_id)
            .bind(&suite_id)
            .bind(key_hash);
        request.execute(&mut api).await.unwrap();
    }
    let outcomes = "select outcome from suite_retirements where outcome is not null";
    wait_until("both requests are refused", async || {
        let outcomes: Vec<String> = sqlx::query_scalar(outcomes)
            .fetch_all(&mut api)
            .await
            .unwrap();
        outcomes == ["wrong_key", "wrong_key"]
    })
    .await;
    let found = world.key().get(&format!("/v1/suites/{suite_id}")).await;
    assert_eq!(found.expect_status(200).body["status"], "active");
    for statement in [
        "update suite_retirements set outcome = 'done'",
        "delete from suite_retirements",
        "update suite_commitments set retired_at = now()",
        "insert into opened_answers (suite_id, suite_version, ordinal, item_id, answer) values ('a', '1', 0, 'a', '1')",
    ] {
        let error = sqlx::raw_sql(statement)
            .execute(&mut api)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("permission denied"),
            "{statement}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_during_a_retirement_are_scored_or_refused() {
    let world = world().await;
    world.widen_plans().await;
    let publisher = Publisher::new(&world, "team").await;
    let suite_id = publisher.suite();
    let owner = world.client(&publisher.org.session);
    let reader = world.key();
    for version in ["1", "2", "3"] {
        publisher.publish(&world, version, LISTED).await;
        let eval = json!({"suite_id": suite_id, "predictions": predictions(10)});
        let submissions = (0..8).map(|_| reader.post("/v1/evals", &eval));
        let (retired, submitted) = tokio::join!(
            retire(&owner, &suite_id, version, json!({})),
            join_all(submissions)
        );
        assert_eq!(retired.expect_status(200).body["status"], "retired");
        for submitted in submitted {
            let submitted = submitted.unwrap();
            if submitted.status == 202 {
                let id = string(&submitted.body["id"]);
                let job = reader.wait_until_finished(&id, &|_| {}).await.unwrap();
                assert_eq!(job["status"], "succeeded", "{job}");
            } else {
                assert_eq!(reason(&submitted), "suite_retired");
            }
        }
        let late = reader.post("/v1/evals", &eval).await.unwrap();
        assert_eq!(reason(&late), "suite_retired");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_lists_submitters_and_retires() {
    let world = world().await;
    let publisher = Publisher::new(&world, "team").await;
    let key = publisher.publish(&world, "1", LISTED).await;
    let suite_id = publisher.suite();
    scored(&world.key(), &suite_id, 10).await;
    let cli = Cli::new(&world).with_key(&publisher.org.key);
    let row = cli.run(&["suite", "submitters", &suite_id]).await.json();
    assert_eq!(row["n_submissions"], 1, "{row}");
    let owner = Cli::new(&world).with_key(&publisher.org.session);
    let file = owner.write("opening.key", &format!("{key}\n"));
    let arguments = [
        "suite",
        "retire",
        &suite_id,
        "--version",
        "1",
        "--open-answers",
        &file,
    ];
    let retired = owner.run(&arguments).await.json();
    assert_eq!(retired["status"], "retired", "{retired}");
    let commitment = world
        .anonymous()
        .get(&format!("/v1/suites/{suite_id}/commitment"))
        .await
        .expect_status(200)
        .body;
    assert_eq!(commitment["opening"]["salt"], json!(key));
}
