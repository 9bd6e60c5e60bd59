//! The `/v1/drafts` endpoints: from files to a published suite of an organization.

use assay_proto::v1;
use assay_proto::v1::draft_service_client::DraftServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::cli::Cli;
use crate::harness::{
    Expect, Org, World, field_error, field_errors, long_test, org, shared_world, string,
    wait_until, with_token, world,
};

/// An organization that can publish: with a handle of its own.
pub struct Publisher {
    /// The organization.
    pub org: Org,
    handle: String,
}

impl Publisher {
    pub async fn new(world: &World, plan: &str) -> Self {
        Self::of(world, org(&world.stack, plan).await).await
    }

    /// Gives an organization a handle.
    pub async fn of(world: &World, org: Org) -> Self {
        let handle = format!("h{}", &org.id[4..].to_lowercase()[..16]);
        let owner = world.client(&org.session);
        let path = format!("/v1/orgs/{}", org.id);
        owner
            .patch(&path, &json!({"handle": handle}))
            .await
            .expect_status(200);
        Self { org, handle }
    }

    pub fn client(&self, world: &World) -> Client {
        world.client(&self.org.key)
    }

    /// Returns a definition of the suite `votes`, whose data are one table.
    pub fn definition(&self, version: &str) -> String {
        self.definition_with(version, "")
    }

    /// Does the same as [`Self::definition`], with more keys.
    fn definition_with(&self, version: &str, more: &str) -> String {
        format!(
            "suite_id = \"suite:{}.votes\"\nversion = \"{version}\"\nmetric = \"accuracy\"\n{more}\n[data]\nfile = \"votes.csv\"\nanswer = \"vote\"\nid = \"row\"\n",
            self.handle
        )
    }

    pub fn suite(&self) -> String {
        format!("suite:{}.votes", self.handle)
    }

    /// Publishes a version of the suite `votes` with these keys. Returns its opening key.
    pub async fn publish(&self, world: &World, version: &str, more: &str) -> String {
        let client = self.client(world);
        let definition = self.definition_with(version, more);
        let made = create(&client, &definition, &votes(ROWS)).await;
        let made = made.expect_status(201).body;
        let draft = settled(&client, made["id"].as_str().unwrap()).await;
        assert_eq!(draft["status"], "ready", "{draft}");
        let published = publish(&client, &draft).await;
        assert_eq!(published["status"], "published", "{published}");
        string(&made["opening_key"])
    }
}

/// Rows of the table that [`Publisher::publish`] publishes.
const ROWS: usize = 200;

/// Returns predictions for that table whose first `right` rows are right.
pub fn predictions(right: usize) -> Value {
    let prediction = |at: usize| json!({"item_id": format!("r{at}"), "prediction": answer(at + usize::from(at >= right))});
    (0..ROWS).map(prediction).collect()
}

pub fn answer(row: usize) -> &'static str {
    ["yes", "no"][row % 2]
}

/// Returns a table whose rows have the answers `yes` and `no` in turn.
pub fn votes(rows: usize) -> String {
    let row = |at: usize| format!("r{at},question {at},{}\n", answer(at));
    let rows: String = (0..rows).map(row).collect();
    format!("row,question,vote\n{rows}")
}

async fn create(client: &Client, definition: &str, table: &str) -> Response {
    let files = json!([{"name": "votes.csv", "content": table}]);
    let body = json!({"suite_toml": definition, "files": files, "check": true});
    client.post("/v1/drafts", &body).await.unwrap()
}

/// Waits until the draft is neither checked nor published.
async fn settled(client: &Client, draft_id: &str) -> Value {
    loop {
        let path = format!("/v1/drafts/{draft_id}?wait=30");
        let draft = client.get(&path).await.expect_status(200).body;
        if !["checking", "publishing"].contains(&draft["status"].as_str().unwrap()) {
            return draft;
        }
    }
}

/// Creates a draft, waits for its check, and returns it.
pub async fn checked(client: &Client, definition: &str, table: &str) -> Value {
    let made = create(client, definition, table).await.expect_status(201);
    settled(client, made.body["id"].as_str().unwrap()).await
}

pub async fn publish(client: &Client, draft: &Value) -> Value {
    let draft_id = draft["id"].as_str().unwrap();
    let path = format!("/v1/drafts/{draft_id}/publish");
    client.post(&path, &json!({})).await.expect_status(202);
    settled(client, draft_id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn table_becomes_suite_that_scores() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    let draft = checked(&client, &publisher.definition("1"), &votes(60)).await;
    assert_eq!(draft["status"], "ready", "{draft}");
    let report = &draft["report"];
    assert_eq!(
        (&report["n_items"], &report["n_errors"]),
        (&json!(60), &json!(0))
    );
    assert_eq!(report["audit"]["trivial"][0]["value"], 0.5, "{report}");
    assert!(
        !report["warnings"].as_array().unwrap().is_empty(),
        "{report}"
    );
    assert_eq!(
        (&draft["files"], &draft["opening_key"]),
        (&json!([]), &Value::Null)
    );

    let preview = client.get(report["items_preview"].as_str().unwrap()).await;
    let preview = preview.expect_status(200).body;
    assert_eq!(
        preview["items"][1],
        json!({"item_id": "r1", "input": {"question": "question 1"}, "groups": {}})
    );
    let suite = format!("/v1/suites/{}", publisher.suite());
    client.get(&suite).await.expect_error(404, "not_found");

    let published = publish(&client, &draft).await;
    assert_eq!(
        (&published["status"], &published["was_published"]),
        (&json!("published"), &json!(false)),
        "{published}"
    );
    let found = client.get(&suite).await.expect_status(200).body;
    assert_eq!(
        (&found["n_items"], &found["visibility"]),
        (&json!(60), &json!("private"))
    );
    let predictions: Vec<Value> = (0..60)
        .map(|at| json!({"item_id": format!("r{at}"), "prediction": [answer(at)]}))
        .collect();
    let eval = json!({"suite_id": publisher.suite(), "predictions": predictions});
    let job = client.post("/v1/evals", &eval).await.expect_status(202);
    let job = client
        .wait_until_finished(job.body["id"].as_str().unwrap(), &|_| {})
        .await
        .unwrap();
    assert_eq!(job["result"]["value"], 1.0, "{job}");

    // Publishing again changes nothing, and the same content of another draft is the same version.
    let path = format!("/v1/drafts/{}/publish", draft["id"].as_str().unwrap());
    let again = client.post(&path, &json!({})).await.expect_status(202);
    assert_eq!(again.body["status"], "published");
    let same = checked(&client, &publisher.definition("1"), &votes(60)).await;
    let same = publish(&client, &same).await;
    assert_eq!(
        (&same["status"], &same["was_published"]),
        (&json!("published"), &json!(true)),
        "{same}"
    );
    let other = checked(&client, &publisher.definition("1"), &votes(61)).await;
    let other = publish(&client, &other).await;
    assert_eq!(
        (&other["status"], &other["error"]["code"]),
        (&json!("failed"), &json!("conflict")),
        "{other}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_checked_in_their_order() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "dev").await;
    let client = publisher.client(&world);
    let mut channel = DraftServiceClient::new(world.channel().await);
    let table = zstd::encode_all(votes(5_000).as_bytes(), 3).unwrap();
    let (first, second) = table.split_at(table.len() / 2);
    let body = json!({"suite_toml": publisher.definition("1")});
    let draft = client
        .post("/v1/drafts", &body)
        .await
        .expect_status(201)
        .body;
    let draft_id = string(&draft["id"]);
    assert_eq!(
        (
            &draft["status"],
            draft["opening_key"].as_str().unwrap().len()
        ),
        (&json!("open"), 64)
    );
    let put = async |number: usize, bytes: &[u8]| {
        let path = format!("/v1/drafts/{draft_id}/files/votes.csv/{number}");
        let request = client.request("PUT", &path).body(bytes.to_vec());
        client.send(request).await.unwrap()
    };
    put(2, b"replaced").await;
    // A part over gRPC replaces it.
    let part = v1::UploadDraftPartRequest {
        draft_id: draft_id.clone(),
        name: "votes.csv".into(),
        number: 2,
        data: second.to_vec(),
    };
    let stream = with_token(futures_util::stream::iter([part]), &publisher.org.key);
    channel.upload_draft_part(stream).await.unwrap();
    let check = format!("/v1/drafts/{draft_id}/check");
    let missing = client
        .post(&check, &json!({}))
        .await
        .expect_error(409, "invalid_state");
    assert_eq!(
        missing.body["error"]["details"],
        json!({"reason": "part_missing", "name": "votes.csv", "number": 1})
    );
    put(1, first).await;
    let seen = client
        .get(&format!("/v1/drafts/{draft_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        seen["files"],
        json!([{"name": "votes.csv", "bytes": table.len(), "parts": 2}])
    );
    let listed = v1::ListDraftsRequest::default();
    let listed = channel
        .list_drafts(with_token(listed, &publisher.org.key))
        .await
        .unwrap();
    assert_eq!(listed.into_inner().drafts[0].id, draft_id);
    let files = json!([{"name": "votes.csv", "parts": 2}]);
    client
        .post(&check, &json!({"files": files}))
        .await
        .expect_status(202);
    let late = put(3, b"late").await.expect_error(409, "invalid_state");
    assert_eq!(late.body["error"]["details"]["reason"], "not_open");
    let draft = settled(&client, &draft_id).await;
    assert_eq!(
        (&draft["status"], &draft["report"]["n_items"]),
        (&json!("ready"), &json!(5_000)),
        "{draft}"
    );
    let mut database = world.database().await;
    let left: i64 = sqlx::query_scalar("select count(*) from escrow_chunks where draft_id = $1")
        .bind(&draft_id)
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(left, 0, "the check deletes the files");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_drafts_are_refused_with_their_place() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    let good = publisher.definition("1");
    let refused = [
        (good.replace(&publisher.handle, "other"), "handle"),
        (good.replace("\"1\"", "1"), "type"),
        (good.replace("accuracy", "acuracy"), "metric"),
        (format!("{good}\nunknown = 1\n"), "value"),
        (String::new(), "required"),
    ];
    for (definition, reason) in refused {
        let response = create(&client, &definition, &votes(3)).await;
        let response = response.expect_error(422, "validation_failed");
        let errors = field_errors(&response);
        assert!(
            errors.contains(&field_error("suite_toml", reason)),
            "{definition}: {errors:?}"
        );
    }
    let failed = [
        ("row,question,vote\nr0,q,yes\nr0,q,no\n", "duplicate", 3),
        ("row,question,vote\nr0,q\n", "syntax", 2),
        ("row,question,vote\nr0,q,\n", "required", 2),
        ("row,question\nr0,q\n", "unknown_column", 1),
    ];
    for (table, reason, line) in failed {
        let draft = checked(&client, &good, table).await;
        assert_eq!(draft["status"], "failed", "{draft}");
        assert_eq!(draft["error"]["code"], "validation_failed");
        let error = &draft["report"]["errors"][0];
        assert_eq!(
            (&error["reason"], &error["line"], &error["file"]),
            (&json!(reason), &json!(line), &json!("votes.csv")),
            "{draft}"
        );
    }
    // A name that is a path, and one that the platform uses.
    for name in ["../x", "suite.toml", "opening.key"] {
        let body = json!({"suite_toml": good, "files": [{"name": name, "content": ""}]});
        let response = client.post("/v1/drafts", &body).await;
        let response = response.expect_error(422, "validation_failed");
        assert_eq!(
            field_errors(&response),
            [field_error("files[0].name", "format")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn org_without_handle_or_rights_cannot_publish() {
    // Every organization of the installation sees its public suite.
    let world = world().await;
    let plain = org(&world.stack, "free").await;
    let publisher = Publisher::new(&world, "free").await;
    let refused = create(
        &world.client(&plain.key),
        &publisher.definition("1"),
        &votes(3),
    )
    .await;
    let refused = refused.expect_error(409, "invalid_state");
    assert_eq!(
        refused.body["error"]["details"]["reason"],
        "handle_required"
    );
    let viewer = world.member("viewer").await;
    create(&viewer, &publisher.definition("1"), &votes(3))
        .await
        .expect_error(403, "forbidden");
    // Another organization's draft does not exist.
    let client = publisher.client(&world);
    let draft = checked(&client, &publisher.definition("1"), &votes(3)).await;
    let draft_id = string(&draft["id"]);
    let stranger = world.client(&plain.key);
    for (method, path) in [
        ("GET", ""),
        ("GET", "/items"),
        ("POST", "/check"),
        ("POST", "/publish"),
        ("DELETE", ""),
    ] {
        let request = stranger.request(method, &format!("/v1/drafts/{draft_id}{path}"));
        stranger.send(request).await.expect_error(404, "not_found");
    }
    // To publish a public suite takes an owner's session.
    let public = publisher
        .definition("2")
        .replace("\n\n[data]", "\nvisibility = \"public\"\n\n[data]");
    let draft = checked(&client, &public, &votes(3)).await;
    let path = format!("/v1/drafts/{}/publish", draft["id"].as_str().unwrap());
    client
        .post(&path, &json!({}))
        .await
        .expect_error(403, "forbidden");
    let owner = world.client(&publisher.org.session);
    owner.post(&path, &json!({})).await.expect_status(202);
    let published = settled(&client, draft["id"].as_str().unwrap()).await;
    assert_eq!(published["status"], "published", "{published}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_returns_its_draft_without_key() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    let opening_key = "ab".repeat(32);
    let body = json!({"suite_toml": publisher.definition("1"), "opening_key": opening_key});
    let send = async |body: &Value| {
        let request = client
            .request("POST", "/v1/drafts")
            .header("Idempotency-Key", "one");
        client.send(request.json(body)).await.unwrap()
    };
    let first = send(&body).await.expect_status(201);
    assert_eq!(first.body["opening_key"], opening_key);
    let again = send(&body).await.expect_status(201);
    assert_eq!(
        (&again.body["id"], &again.body["opening_key"]),
        (&first.body["id"], &Value::Null)
    );
    assert_eq!(again.header("idempotency-replayed"), "true");
    let mut other = body.clone();
    other["suite_toml"] = publisher.definition("2").into();
    let refused = send(&other).await.expect_error(422, "validation_failed");
    assert_eq!(
        field_errors(&refused),
        [field_error("Idempotency-Key", "reused")]
    );
    let without_key = json!({"suite_toml": publisher.definition("1")});
    let refused = send(&without_key)
        .await
        .expect_error(422, "validation_failed");
    assert_eq!(
        field_errors(&refused),
        [field_error("opening_key", "required")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_refuse_before_anything_is_stored() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    let body = json!({"suite_toml": publisher.definition("1")});
    let requests = (0..25).map(|_| client.post("/v1/drafts", &body));
    let made = join_all(requests).await;
    let accepted: Vec<_> = made.iter().map(|made| made.as_ref().unwrap()).collect();
    let created = accepted.iter().filter(|made| made.status == 201).count();
    assert_eq!(created, 20, "concurrent requests count exactly");
    let refused = accepted.iter().find(|made| made.status != 201).unwrap();
    assert_eq!(refused.body["error"]["code"], "quota_exceeded");
    let mut database = world.database().await;
    // The plan has 60 requests a minute.
    sqlx::query("update drafts set status = 'deleted' where org_id = $1 and id <> (select max(id) from drafts where org_id = $1)")
        .bind(&publisher.org.id)
        .execute(&mut database)
        .await
        .unwrap();
    let drafts = client.get("/v1/drafts?limit=200").await.unwrap().body;
    for draft in drafts["drafts"].as_array().unwrap() {
        let path = format!("/v1/drafts/{}", draft["id"].as_str().unwrap());
        client.delete(&path).await.expect_status(204);
        client.get(&path).await.expect_error(404, "not_found");
    }
    // More items than the plan allows.
    let draft = checked(&client, &publisher.definition("1"), &votes(20_001)).await;
    assert_eq!(
        (&draft["status"], &draft["error"]["code"]),
        (&json!("failed"), &json!("quota_exceeded")),
        "{draft}"
    );
    let empty = async |database: &mut sqlx::PgConnection| {
        let sql = "select (select count(*) from escrow_chunks where org_id = $1) + (select count(*) from suite_contents where org_id = $1)";
        let left: i64 = sqlx::query_scalar(sql)
            .bind(&publisher.org.id)
            .fetch_one(database)
            .await
            .unwrap();
        left == 0
    };
    wait_until("all files and contents are deleted", async || {
        empty(&mut database).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_versions_publish_one_draft() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "team").await;
    let client = publisher.client(&world);
    for round in 0..5 {
        let definition = publisher.definition(&round.to_string());
        let mut drafts = Vec::new();
        for rows in [4, 6] {
            drafts.push(checked(&client, &definition, &votes(rows)).await);
        }
        let published = join_all(drafts.iter().map(|draft| publish(&client, draft))).await;
        let mut states: Vec<_> = published
            .iter()
            .map(|draft| string(&draft["status"]))
            .collect();
        states.sort_unstable();
        assert_eq!(states, ["failed", "published"], "{published:?}");
        // Deleting a published draft is refused.
        let winner = published
            .iter()
            .find(|draft| draft["status"] == "published")
            .unwrap();
        let path = format!("/v1/drafts/{}", winner["id"].as_str().unwrap());
        client
            .delete(&path)
            .await
            .expect_error(409, "invalid_state");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_role_can_neither_read_files_nor_publish() {
    let world = world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    let draft = checked(&client, &publisher.definition("1"), &votes(3)).await;
    let draft_id = string(&draft["id"]);
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    let refused = [
        "select * from escrow_chunks".to_owned(),
        "copy escrow_chunks to stdout".to_owned(),
        "delete from escrow_chunks".to_owned(),
        "update escrow_chunks set name = name".to_owned(),
        "insert into escrow_chunks (part_id, seq) values ('x', 0) returning data".to_owned(),
        "insert into escrow_chunks (part_id, seq) values ('x', 0) on conflict (part_id, seq) do update set name = 'x'".to_owned(),
        "select salt from suite_openings".to_owned(),
        "select content_sha256 from suite_contents".to_owned(),
        "insert into suite_contents (n_items, bytes, content_sha256, version) values (1, 1, '', '{}')".to_owned(),
        "insert into suites select * from suites".to_owned(),
        "update suite_contents set org_id = 'x'".to_owned(),
        "update drafts set content_id = 1".to_owned(),
        format!("update drafts set status = 'published' where id = '{draft_id}'"),
        "set role assay_checker".to_owned(),
    ];
    for sql in refused {
        let error = sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(&mut api)
            .await;
        let error = error.expect_err(&sql).to_string();
        assert!(
            error.contains("permission denied") || error.contains("cannot change a draft"),
            "{sql}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_files_cannot_be_checked_under_another_definition() {
    let world = world().await;
    let publisher = Publisher::new(&world, "free").await;
    let client = publisher.client(&world);
    // The files have arrived, and are not checked yet.
    let body = json!({
        "suite_toml": publisher.definition("1"),
        "files": [{"name": "votes.csv", "content": votes(4)}],
    });
    let victim = client
        .post("/v1/drafts", &body)
        .await
        .expect_status(201)
        .body;
    let victim_id = string(&victim["id"]);
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    // A changed API process points a draft of its own at the stored part.
    let attacker = json!({
        "suite_toml": publisher.definition("2"),
        "files": [{"name": "votes.csv", "content": votes(2)}],
    });
    let own = client
        .post("/v1/drafts", &attacker)
        .await
        .expect_status(201)
        .body;
    let own_id = string(&own["id"]);
    let steal = format!(
        "update draft_parts set part_id = (select part_id from draft_parts where draft_id = '{victim_id}') where draft_id = '{own_id}'"
    );
    sqlx::raw_sql(AssertSqlSafe(steal))
        .execute(&mut api)
        .await
        .unwrap();
    let check = format!("/v1/drafts/{own_id}/check");
    client.post(&check, &json!({})).await.expect_status(202);
    let stolen = settled(&client, &own_id).await;
    assert_eq!(
        stolen["status"], "failed",
        "chunks of another draft do not count: {stolen}"
    );
    // And it adds a second definition to the stored draft.
    let exact = publisher.definition("1").replace("accuracy", "exact_match");
    let hmac = string(&victim["definition_hmac"]);
    sqlx::query("insert into escrow_chunks (org_id, draft_id, name, part_id, seq, definition_hmac, data) values ($1, $2, 'suite.toml', '0', 0, $3, $4)")
        .bind(&publisher.org.id)
        .bind(&victim_id)
        .bind(&hmac)
        .bind(exact.as_bytes())
        .execute(&mut api)
        .await
        .unwrap();
    let check = format!("/v1/drafts/{victim_id}/check");
    client.post(&check, &json!({})).await.expect_status(202);
    let draft = settled(&client, &victim_id).await;
    assert_eq!(draft["status"], "ready", "{draft}");
    let published = publish(&client, &draft).await;
    assert_eq!(published["status"], "published", "{published}");
    let suite = client
        .get(&format!("/v1/suites/{}", publisher.suite()))
        .await
        .unwrap()
        .body;
    assert_eq!(suite["metric"], "accuracy", "the first definition counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_checker_leaves_no_half_version() {
    long_test!("kills the checker several times");
    let mut world = world().await;
    let publisher = Publisher::new(&world, "team").await;
    let client = publisher.client(&world);
    for round in 0..6 {
        let made = create(
            &client,
            &publisher.definition(&round.to_string()),
            &votes(3_000),
        )
        .await;
        let draft_id = string(&made.expect_status(201).body["id"]);
        let path = format!("/v1/drafts/{draft_id}");
        if round % 2 == 0 {
            let ready = settled(&client, &draft_id).await;
            assert_eq!(ready["status"], "ready", "{ready}");
            client
                .post(&format!("{path}/publish"), &json!({}))
                .await
                .expect_status(202);
        }
        world.stack.workers[0].guarded.signal(libc::SIGKILL);
        // The claim of a process that is gone expires.
        let mut database = world.database().await;
        sqlx::query("update drafts set claimed_until = now() - interval '1 second' where claimed_until is not null")
            .execute(&mut database)
            .await
            .unwrap();
        world.stack.workers[0] = world.stack.launch_worker().unwrap();
        world.stack.workers[0].ready().await.unwrap();
        let draft = settled(&client, &draft_id).await;
        let expected = if round % 2 == 0 { "published" } else { "ready" };
        assert_eq!(draft["status"], expected, "{draft}");
    }
    let mut database = world.database().await;
    let half: i64 = sqlx::query_scalar(
        "select count(*) from suites s where n_items <> (select count(*) from suite_items i where i.content_id = s.content_id)
            or n_items <> (select count(*) from suite_answers a where a.content_id = s.content_id)",
    )
    .fetch_one(&mut database)
    .await
    .unwrap();
    assert_eq!(half, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_publishes_a_folder() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let cli = Cli::new(&world).with_key(&publisher.org.key);
    let mut definition = publisher.definition("1");
    cli.write("suite.toml", &definition);
    // Larger than what is sent with the draft.
    let filler = "x".repeat(500);
    cli.write(
        "votes.csv",
        &votes(6_000).replace("question ", &format!("{filler} ")),
    );
    // Without a terminal, the program does not ask.
    let asked = cli.run(&["suite", "publish", "."]).await;
    asked.assert(2);
    let published = cli.run(&["suite", "publish", ".", "--yes"]).await;
    let draft = published.json();
    assert_eq!(
        (&draft["status"], &draft["suite_id"]),
        (&json!("published"), &json!(publisher.suite()))
    );
    assert!(
        published
            .err
            .contains("a model that knows nothing reaches 0.500"),
        "{}",
        published.err
    );
    let key = cli
        .shell("stat -c %a opening.key && cat opening.key")
        .await
        .out;
    let (mode, key) = key.trim().split_once('\n').unwrap();
    assert_eq!((mode, key.len()), ("600", 64));
    // The same folder and key are the same version.
    let again = cli.run(&["suite", "publish", ".", "--yes"]).await.json();
    assert_eq!(again["was_published"], true);
    cli.write("votes.csv", &votes(3));
    let conflict = cli.run(&["suite", "publish", ".", "--yes"]).await;
    conflict.assert(5);
    // What fails here is not sent.
    definition.push_str("\nvisibility = \"secret\"\n");
    cli.write("suite.toml", &definition);
    let invalid = cli.run(&["suite", "publish", ".", "--yes"]).await;
    invalid.assert(6);
    assert!(invalid.err.contains("suite.toml:"), "{}", invalid.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_begins_checks_and_publishes_a_table() {
    let world = shared_world().await;
    let publisher = Publisher::new(&world, "free").await;
    let cli = Cli::new(&world).with_key(&publisher.org.key);
    let table = votes(40).replace("question", "email");
    cli.write("votes.csv", &table);
    let init = async |cli: &Cli<'_>, metric: &str, answer: &str| {
        let from = ["suite", "init", "--from", "votes.csv", "--id", "row"];
        let columns = ["--metric", metric, "--answer", answer];
        cli.run(&[&from[..], &columns[..]].concat()).await
    };
    let misspelt = init(&cli, "accuracy", "voet").await;
    misspelt.assert(6);
    assert!(
        misspelt.err.contains("did you mean \"vote\"?"),
        "{}",
        misspelt.err
    );
    for (metric, reason) in [("rmse", "votes.csv:2: "), ("speed", "--metric: ")] {
        let unfit = init(&cli, metric, "vote").await;
        unfit.assert(6);
        assert!(unfit.err.starts_with(reason), "{}", unfit.err);
    }
    cli.shell("ls suite.toml").await.assert(2);
    let begun = init(&cli, "accuracy", "vote").await;
    assert_eq!(begun.json()["suite_id"], publisher.suite());
    assert!(
        begun.err.contains("\"email\" may identify persons"),
        "{}",
        begun.err
    );
    let drop = cli
        .shell("grep -c '^# drop = \\[\"email\"\\]' suite.toml")
        .await;
    assert_eq!(drop.out, "1\n");
    init(&cli, "accuracy", "vote").await.assert(5);

    let checked = cli.run(&["suite", "check", "."]).await.json();
    let verdict = checked["verdict"].as_array().unwrap();
    let texts: Vec<&str> = verdict
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    let expected = [
        "40 items, metric accuracy, answers complete",
        "a model that knows nothing reaches 0.500 ",
        "release = \"exact\": ",
        "no column suggests that rows depend on each other",
        "private without visibility: ",
    ];
    assert_eq!(texts.len(), expected.len(), "{checked}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text} instead of {expected}");
    }
    let published = cli.run(&["suite", "publish", ".", "--yes"]).await.json();
    assert_eq!(
        (&published["status"], &published["suite_id"]),
        (&json!("published"), &json!(publisher.suite()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_credential_begins_with_a_placeholder() {
    let world = shared_world().await;
    let cli = Cli::new(&world).with_key("");
    cli.write("votes.csv", &votes(40));
    let init = "assay suite init --from votes.csv --metric accuracy --answer vote --name v";
    let begun = cli.shell(init).await;
    assert_eq!(begun.json()["suite_id"], "suite:your_handle.v");
    let explained = "your_handle stands for the handle of your organization";
    let checked = cli.run(&["suite", "check", "."]).await;
    checked.assert(0);
    let publisher = Publisher::new(&world, "free").await;
    let cli = cli.with_key(&publisher.org.key);
    let published = cli.run(&["suite", "publish", ".", "--yes"]).await;
    published.assert(6);
    for run in [&begun, &checked, &published] {
        assert!(run.err.contains(explained), "{}", run.err);
    }
    // The folder is the one of the table.
    let elsewhere = cli.shell(&format!("mkdir other && {init} other")).await;
    elsewhere.assert(2);
    assert!(
        elsewhere.err.contains("Copy the file into other"),
        "{}",
        elsewhere.err
    );
    // Nothing was written before the refusals.
    cli.shell("ls opening.key other/suite.toml").await.assert(2);
}
