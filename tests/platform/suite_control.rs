//! The operator's commands for published suites: `assay-api suite list`, `set`, `suspend`, `resume` and `remove`.

use assay_tests::client::{Client, Response};
use assay_tests::servers::Trouble;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::drafts::{self, Publisher, answer, votes};
use crate::harness::{
    Expect, Org, SharedWorld, World, org, shared_world, string, wait_until, with_setting, world,
    world_with,
};

/// A published private suite on the shared stack.
struct Published {
    world: SharedWorld,
    publisher: Publisher,
    /// The draft of version 1.
    draft: Value,
}

impl Published {
    async fn new() -> Self {
        let world = shared_world().await;
        let publisher = Publisher::new(&world, "team").await;
        let draft = publish(&world, &publisher, "1", 60).await;
        Self {
            world,
            publisher,
            draft,
        }
    }

    /// Publishes a version with this number of items.
    async fn publish(&self, version: &str, rows: usize) -> Value {
        publish(&self.world, &self.publisher, version, rows).await
    }

    fn key(&self) -> Client {
        self.publisher.client(&self.world)
    }

    fn owner(&self) -> Client {
        self.world.client(&self.publisher.org.session)
    }

    fn suite(&self) -> String {
        self.publisher.suite()
    }

    fn path(&self) -> String {
        format!("/v1/suites/{}", self.suite())
    }

    /// Returns an organization that has a grant.
    async fn granted(&self) -> Org {
        let granted = org(&self.world.stack, "team").await;
        let grants = format!("{}/grants", self.path());
        let target = json!({"org_id": granted.id});
        self.key().post(&grants, &target).await.expect_status(201);
        granted
    }

    /// Runs a command of the operator on the suite.
    async fn operate(&self, command: &str, more: &[&str]) -> Value {
        let suite = self.suite();
        let arguments = [&["suite", command, "--suite", &suite][..], more].concat();
        self.world.stack.operate(&arguments).await.unwrap()
    }

    /// Returns a body of `POST /v1/evals`.
    fn eval(&self) -> Value {
        json!({"suite_id": self.suite(), "predictions": [{"item_id": "r0", "prediction": [answer(0)]}]})
    }
}

async fn publish(world: &World, publisher: &Publisher, version: &str, rows: usize) -> Value {
    let client = publisher.client(world);
    let definition = publisher.definition(version);
    let draft = drafts::checked(&client, &definition, &votes(rows)).await;
    drafts::publish(&client, &draft).await
}

async fn refused(world: &World, arguments: &[&str]) -> String {
    let refused = world.stack.operate(arguments).await;
    refused.unwrap_err().to_string()
}

/// Returns the types of an owner's audit log from the operator, the newest first, with the reasons.
async fn operators_entries(owner: &Client) -> Vec<(String, Value)> {
    let log = owner.get("/v1/audit?limit=200").await.expect_status(200);
    let entries = log.body["entries"].as_array().unwrap().clone();
    let entries = entries
        .into_iter()
        .filter(|entry| entry["actor"]["type"] == "operator");
    entries
        .filter(|entry| entry["target"]["type"] == "suite")
        .map(|entry| {
            (
                string(&entry["type"]),
                entry["changes"]["reason"]["after"].clone(),
            )
        })
        .collect()
}

async fn events(client: &Client, r#type: &str) -> Vec<Value> {
    let events = client.get(&format!("/v1/events?type={type}")).await;
    events.expect_status(200).body["events"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_lists_suites_with_their_bytes() {
    let published = Published::new().await;
    let second = published.publish("2", 80).await;
    let bytes = |draft: &Value| draft["report"]["bytes"].as_i64().unwrap();
    let bytes = bytes(&published.draft) + bytes(&second);
    let (org_id, suite) = (&published.publisher.org.id, published.suite());
    let operate = async |arguments: &[&str]| published.world.stack.operate(arguments).await;
    let own = operate(&["suite", "list", "--org", org_id]).await.unwrap();
    assert_eq!(
        own,
        json!({"drafts": [], "suites": [{
            "suite_id": suite, "org_id": org_id, "visibility": "private", "access": "everyone", "status": "active",
            "version": "2", "n_items": 80, "bytes": bytes,
        }]})
    );
    let all = operate(&["suite", "list"]).await.unwrap();
    let all = all["suites"].as_array().unwrap();
    assert!(all.contains(&own["suites"][0]));
    assert!(all.iter().any(|suite| suite["org_id"].is_null()));
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_changes_only_suites_without_owner() {
    let world = world().await;
    let capped = "release = \"ladder(0.1)\"\nmax_submissions = 16\naccess = \"granted\"";
    let suite_id = crate::disclosure::publish(&world, "capped", 1, capped).await;
    let suite_id = suite_id.unwrap();
    let path = format!("/v1/suites/{suite_id}");
    let set = async |more: &[&str]| {
        let arguments = [&["suite", "set", "--suite", &suite_id][..], more].concat();
        world.stack.operate(&arguments).await
    };
    let read = async || world.key().get(&path).await.expect_status(200).body;
    let before = read().await;
    let link = "Paper=https://acme.example/votes";
    let texts = ["--title", "Votes", "--link", link, "--tag", "votes"];
    let done = set(&texts).await.unwrap();
    assert_eq!(done["changed"], true, "{done}");
    let after = read().await;
    assert_eq!(
        (&after["title"], &after["tags"], &after["links"]),
        (
            &json!("Votes"),
            &json!(["votes"]),
            &json!([{"label": "Paper", "url": "https://acme.example/votes"}])
        )
    );
    for field in ["version", "suite_commitment", "published_at", "access"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let again = set(&texts).await.unwrap();
    assert_eq!(again["changed"], false, "{again}");
    set(&["--clear", "title"]).await.unwrap();
    assert_eq!(read().await["title"], before["title"]);
    // More organizations learn more together.
    let wider = ["--visibility", "public", "--access", "everyone"];
    let unconfirmed = set(&wider).await.unwrap_err().to_string();
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    set(&[&wider[..], &["--yes"]].concat()).await.unwrap();
    world.anonymous().get(&path).await.expect_status(200);
    set(&["--visibility", "private"]).await.unwrap();
    world.key().get(&path).await.expect_error(404, "not_found");

    // The messages are those of the API.
    for (arguments, expected) in [
        (&[][..], "give at least one of title"),
        (&["--visibility", "hidden"], "visibility: "),
        (&["--clear", "metric"], "clear[0]: "),
        (&["--tag", "A"], "tags[0]: "),
        (&["--link", "Paper"], "expected LABEL=URL"),
    ] {
        let refused = set(arguments).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
    let own = crate::visibility::publish_own(&world, "votes").await;
    for (suite, expected) in [
        (own.as_str(), "which alone changes it"),
        ("suite:none", "there is no suite suite:none"),
        ("none", "is not the id of a suite"),
    ] {
        let arguments = ["suite", "set", "--suite", suite, "--title", "Mine"];
        let refused = refused(&world, &arguments).await;
        assert!(refused.contains(expected), "{suite}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_suite_exists_for_its_owner_alone() {
    let published = Published::new().await;
    let granted = published.granted().await;
    let granted = published.world.client(&granted.key);
    let (key, path) = (published.key(), published.path());
    let listed = json!({"visibility": "listed"});
    key.patch(&path, &listed).await.expect_status(200);
    let queued = key.post("/v1/evals", &published.eval()).await;
    let queued = string(&queued.expect_status(202).body["id"]);

    let reason = ["--reason", "Copyright complaint"];
    let suspended = published.operate("suspend", &reason).await;
    assert_eq!(suspended["changed"], true, "{suspended}");
    let again = published.operate("suspend", &reason).await;
    assert_eq!(
        (&again["changed"], &again["suspended_at"]),
        (&json!(false), &suspended["suspended_at"])
    );
    for sub in ["", "/items", "/versions", "/commitment"] {
        granted
            .get(&format!("{path}{sub}"))
            .await
            .expect_error(404, "not_found");
    }
    granted
        .post("/v1/evals", &published.eval())
        .await
        .expect_error(422, "validation_failed");
    let own = key.get(&path).await.expect_status(200).body;
    assert_eq!(
        (&own["status"], &own["can_submit"]),
        (&json!("suspended"), &json!(false))
    );
    let late = key.post("/v1/evals", &published.eval()).await;
    let late = late.expect_error(409, "invalid_state");
    assert_eq!(late.body["error"]["details"]["reason"], "suite_suspended");
    // A job that was accepted before is scored.
    let job = key.wait_until_finished(&queued, &|_| {}).await.unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    let announced = events(&key, "suite.suspended").await;
    assert_eq!(announced.len(), 1, "{announced:?}");
    assert_eq!(announced[0]["data"], own);
    assert_eq!(events(&granted, "suite.suspended").await, [] as [Value; 0]);
    // A version that the owner publishes meanwhile is no event of others.
    published.publish("2", 80).await;
    let versions = async |client: &Client| {
        let events = events(client, "suite.published").await.into_iter();
        let own = events.filter(|event| event["data"]["suite_id"] == published.suite().as_str());
        own.map(|event| string(&event["data"]["version"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(versions(&key).await, ["1", "2"]);
    assert_eq!(versions(&granted).await, [] as [&str; 0]);

    let resumed = published.operate("resume", &["--reason", "Settled"]).await;
    assert_eq!(resumed["changed"], true, "{resumed}");
    let seen = granted.get(&path).await.expect_status(200).body;
    assert_eq!(seen["status"], "active");
    granted
        .post("/v1/evals", &published.eval())
        .await
        .expect_status(202);
    assert_eq!(
        operators_entries(&published.owner()).await,
        [
            ("suite.resumed".to_owned(), json!("Settled")),
            ("suite.suspended".to_owned(), json!("Copyright complaint")),
        ]
    );
    for (arguments, expected) in [
        (
            ["--suite", &published.suite(), "--reason", " "],
            "reason: must not be blank",
        ),
        (
            ["--suite", "suite:none", "--reason", "x"],
            "there is no suite",
        ),
    ] {
        let arguments = [&["suite", "suspend"][..], &arguments].concat();
        let refused = refused(&published.world, &arguments).await;
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_suite_accepts_no_change() {
    let published = Published::new().await;
    for sql in [
        "update suite_owners set removed_at = now() where suite_id = $1",
        "update suites set removed_at = now() where suite_id = $1",
    ] {
        sqlx::query(sql)
            .bind(published.suite())
            .execute(&mut published.world.database().await)
            .await
            .unwrap();
    }
    let (key, path) = (published.key(), published.path());
    let errata = format!("{path}/errata");
    let grants = format!("{path}/grants");
    let note = json!({"version": "1", "note": "Item 7 is ambiguous."});
    for response in [
        key.patch(&path, &json!({"title": "Votes"})).await,
        key.post(&errata, &note).await,
        key.post(&grants, &json!({"domain": "lab.example"})).await,
        key.post("/v1/evals", &published.eval()).await,
    ] {
        let refused = response.expect_error(409, "invalid_state");
        assert_eq!(refused.body["error"]["details"]["reason"], "suite_removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_to_suspended_suite_is_not_used_up() {
    let published = Published::new().await;
    let grants = format!("{}/grants", published.path());
    let link = published.key().post(&grants, &json!({"link": {}})).await;
    let token = json!({"token": link.expect_status(201).body["token"]});
    let guest = org(&published.world.stack, "team").await;
    let guest = published.world.client(&guest.session);
    let accept = async || guest.post("/v1/grants/accept", &token).await;
    published
        .operate("suspend", &["--reason", "Complaint"])
        .await;
    accept().await.expect_error(404, "not_found");
    let listed = published.key().get(&grants).await.expect_status(200).body;
    let listed = listed["grants"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["uses"]), (1, &json!(0)));
    published.operate("resume", &["--reason", "Settled"]).await;
    let accepted = accept().await.expect_status(200).body;
    assert_eq!(accepted["suite_id"], published.suite().as_str());
}

const REMOVE: [&str; 3] = ["--reason", "Copyright complaint", "--yes"];

async fn execute(world: &World, sql: &str) {
    let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    statement
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

/// The tables with rows of a content, or of its opened answers. A new one must be deleted by the takedown.
const N_CONTENT_TABLES: usize = 12;

/// Returns the tables with rows of a version's content or of its opened answers, except those that a takedown keeps.
async fn tables_with_content(world: &World, suite_id: &str, version: &str) -> Vec<String> {
    let mut database = world.database().await;
    let columns = "
        select distinct c.table_name::text
        from information_schema.columns c
        join information_schema.tables t using (table_schema, table_name)
        where table_schema = 'public'
          and t.table_type = 'BASE TABLE'
          and (c.column_name = 'content_id' or c.table_name like 'opened%')
          and c.table_name not in ('suites', 'drafts')
        order by 1";
    let tables: Vec<String> = sqlx::query_scalar(columns)
        .fetch_all(&mut database)
        .await
        .unwrap();
    assert_eq!(tables.len(), N_CONTENT_TABLES, "{tables:?}");
    let mut found = Vec::new();
    for table in tables {
        let condition = if table.starts_with("opened") {
            "suite_id = $1 and suite_version = $2"
        } else {
            "content_id = (select content_id from suites where suite_id = $1 and version = $2)"
        };
        let sql = format!("select exists(select from {table} where {condition})");
        let has_rows: bool = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(suite_id)
            .bind(version)
            .fetch_one(&mut database)
            .await
            .unwrap();
        if has_rows {
            found.push(table);
        }
    }
    found
}

#[track_caller]
fn expect_removed(response: Result<Response, Trouble>) {
    let refused = response.expect_error(409, "invalid_state");
    assert_eq!(refused.body["error"]["details"]["reason"], "suite_removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn takedown_deletes_content_and_keeps_what_others_have() {
    let world = world().await;
    let suite_id = crate::visibility::publish_own(&world, "votes").await;
    let feedback =
        format!("update suites set per_item_feedback = true where suite_id = '{suite_id}'");
    execute(&world, &feedback).await;
    let (key, path) = (world.key(), format!("/v1/suites/{suite_id}"));
    let scored = crate::disclosure::submit_and_wait(&key, &suite_id, 30).await;
    let job_path = format!("/v1/jobs/{}", string(&scored["id"]));
    let entry = json!({"name": "First"});
    key.post(&format!("{job_path}/board"), &entry)
        .await
        .expect_status(201);
    let board = format!("{path}/board");
    wait_until("the board is computed", async || {
        let board = key.get(&board).await.expect_status(200).body;
        board["entries"].as_array().unwrap().len() == 1
    })
    .await;
    let items = format!("{job_path}/items");
    key.get(&items).await.expect_status(200);
    let commitment = format!("{path}/commitment");
    let committed = key.get(&commitment).await.expect_status(200).body["jws"].clone();
    // A row in every table with content.
    execute(
        &world,
        &format!(
            "insert into suite_clusters select content_id, 0, '' from suites where suite_id = '{suite_id}';
             insert into suite_hidden_groups select content_id, 'f', '[]' from suites where suite_id = '{suite_id}';
             insert into suite_retest select content_id, 0, 'i0', '[]' from suites where suite_id = '{suite_id}';
             insert into suite_floors select content_id, false, 0 from suites where suite_id = '{suite_id}';
             insert into suite_catalog select content_id, 0, 'a', 1 from suites where suite_id = '{suite_id}';
             insert into suite_baselines
             select content_id, 0, 'People', 'people', 'people', 'human', null, 0, null, null, 0 from suites where suite_id = '{suite_id}';
             insert into suite_baseline_scores
             select content_id, 0, false, 0, null, null, 0, '' from suites where suite_id = '{suite_id}';
             insert into opened_answers (suite_id, suite_version, ordinal, item_id, answer)
             select suite_id, version, 0, 'i0', '1' from suites where suite_id = '{suite_id}';
             insert into opened_retest select suite_id, version, 0, 'i0', '1' from suites where suite_id = '{suite_id}'"
        ),
    )
    .await;
    // The worker has the answers in its memory when it claims this job.
    let worker = &world.stack.workers[0].guarded;
    worker.signal(libc::SIGSTOP);
    let eval =
        json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": "a0"}]});
    let queued = key.post("/v1/evals", &eval).await.expect_status(202);
    let queued = string(&queued.body["id"]);

    let remove = ["suite", "remove", "--suite", &suite_id];
    let unconfirmed = refused(&world, &[&remove[..], &REMOVE[..2]].concat()).await;
    assert!(
        unconfirmed.contains("repeat the command with --yes"),
        "{unconfirmed}"
    );
    key.get(&format!("{path}/items")).await.expect_status(200);
    let before = tables_with_content(&world, &suite_id, "1").await;
    assert_eq!(before.len(), N_CONTENT_TABLES, "{before:?}");
    let removed = world.stack.operate(&[&remove[..], &REMOVE].concat()).await;
    let removed = removed.unwrap();
    assert_eq!(
        (&removed["changed"], &removed["versions"]),
        (&json!(true), &json!(["1"]))
    );
    assert_eq!(
        tables_with_content(&world, &suite_id, "1").await,
        [] as [&str; 0]
    );

    worker.signal(libc::SIGCONT);
    let failed = world.wait_until_finished(&queued).await;
    assert_eq!(
        (
            &failed["status"],
            &failed["error"]["code"],
            &failed["attempts"]
        ),
        (&json!("failed"), &json!("suite_removed"), &json!(1)),
        "{failed}"
    );
    let refunded = "select count(*) from usage_ledger where job_id = $1 and kind = 'refund'";
    let refunded: i64 = sqlx::query_scalar(refunded)
        .bind(&queued)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(refunded, 1);
    let suite = key.get(&path).await.expect_status(200).body;
    assert_eq!(
        (&suite["status"], &suite["can_submit"]),
        (&json!("removed"), &json!(false))
    );
    for response in [
        key.get(&format!("{path}/items")).await,
        key.get(&items).await,
        key.post("/v1/evals", &eval).await,
        key.patch(&path, &json!({"title": "Votes"})).await,
    ] {
        expect_removed(response);
    }
    assert_eq!(
        key.get(&job_path).await.expect_status(200).body["result"],
        scored["result"]
    );
    let kept = key.get(&commitment).await.expect_status(200);
    assert_eq!(kept.body["jws"], committed);
    let board = key.get(&board).await.expect_status(200).body;
    assert_eq!(
        (&board["status"], &board["entries"][0]["name"]),
        (&json!("final"), &json!("First")),
        "{board}"
    );
    key.get(&format!("{job_path}/receipt"))
        .await
        .expect_status(200);
    let again = world.stack.operate(&[&remove[..], &REMOVE].concat()).await;
    assert_eq!(again.unwrap()["changed"], false);
    assert_eq!(
        operators_entries(&world.owner()).await,
        [("suite.removed".to_owned(), json!("Copyright complaint"))]
    );
    for (arguments, expected) in [
        (
            &[
                "retire",
                "--suite",
                &suite_id,
                "--version",
                "1",
                "--open-answers",
                "--yes",
            ][..],
            "were removed",
        ),
        (
            &[
                "remove",
                "--suite",
                &suite_id,
                "--version",
                "7",
                "--reason",
                "x",
                "--yes",
            ],
            "there is no version 7",
        ),
        (
            &["remove", "--suite", "suite:none", "--reason", "x", "--yes"],
            "there is no suite",
        ),
    ] {
        let refused = refused(&world, &[&["suite"][..], arguments].concat()).await;
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_version_leaves_the_others() {
    let published = Published::new().await;
    let second = published.publish("2", 80).await;
    let (key, path) = (published.key(), published.path());
    let suite = published.suite();
    // A reader gets whole pages until the first refusal.
    let reader = async {
        loop {
            let preview = format!(
                "/v1/drafts/{}/items?limit=1000",
                string(&published.draft["id"])
            );
            let page = key.get(&preview).await.unwrap();
            if page.status != 200 {
                return expect_removed(Ok(page));
            }
            assert_eq!(page.body["items"].as_array().unwrap().len(), 60);
        }
    };
    let version = [&["--version", "1"][..], &REMOVE].concat();
    let (removed, ()) = tokio::join!(published.operate("remove", &version), reader);
    assert_eq!(removed["versions"], json!(["1"]));
    assert_eq!(
        tables_with_content(&published.world, &suite, "1").await,
        [] as [&str; 0]
    );
    let versions = key
        .get(&format!("{path}/versions"))
        .await
        .expect_status(200);
    let statuses = versions.body["versions"].as_array().unwrap().iter();
    let statuses: Vec<_> = statuses
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["active", "removed"]);
    key.post("/v1/evals", &published.eval())
        .await
        .expect_status(202);
    let items = key.get(&format!("{path}/items?limit=1000")).await;
    assert_eq!(
        items.expect_status(200).body["items"]
            .as_array()
            .unwrap()
            .len(),
        80
    );
    // Its bytes are free, and the version is never published again.
    let org = ["suite", "list", "--org", &published.publisher.org.id];
    let list = async || published.world.stack.operate(&org).await.unwrap()["suites"][0].clone();
    assert_eq!(list().await["bytes"], second["report"]["bytes"]);
    let conflict = async |version: &str| {
        let draft = published.publish(version, 60).await;
        assert_eq!(
            (&draft["status"], &draft["error"]["code"]),
            (&json!("failed"), &json!("conflict")),
            "{draft}"
        );
    };
    conflict("1").await;
    let third = published.publish("3", 90).await;
    assert_eq!(third["status"], "published", "{third}");
    // The whole suite takes no further version.
    published.operate("remove", &REMOVE).await;
    let listed = list().await;
    assert_eq!(
        (&listed["status"], &listed["bytes"]),
        (&json!("removed"), &json!(0))
    );
    conflict("4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_takedown_is_completed_by_the_next() {
    let published = Published::new().await;
    let (key, suite) = (published.key(), published.suite());
    // Simulates a command that died before its first deletion.
    let marked = format!("update suites set removed_at = now() where suite_id = '{suite}'");
    execute(&published.world, &marked).await;
    expect_removed(key.get(&format!("{}/items", published.path())).await);
    expect_removed(key.post("/v1/evals", &published.eval()).await);
    // And in the middle of it.
    let half = format!(
        "delete from suite_answers a using suites s
         where s.content_id = a.content_id and s.suite_id = '{suite}' and a.ordinal < 30"
    );
    execute(&published.world, &half).await;
    let removed = published.operate("remove", &REMOVE).await;
    assert_eq!(removed["versions"], json!(["1"]));
    assert_eq!(
        tables_with_content(&published.world, &suite, "1").await,
        [] as [&str; 0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_owner_leaves_versions_and_scores_of_others() {
    let published = Published::new().await;
    let (world, suite) = (&published.world, published.suite());
    let org_id = &published.publisher.org.id;
    let listed = json!({"visibility": "listed", "title": "Votes"});
    let path = published.path();
    published
        .key()
        .patch(&path, &listed)
        .await
        .expect_status(200);
    let client = published.key();
    let definition = published.publisher.definition("2");
    let ready = drafts::checked(&client, &definition, &votes(70)).await;
    assert_eq!(ready["status"], "ready", "{ready}");
    let other = world.key();
    let job = other.post("/v1/evals", &published.eval()).await;
    let job = string(&job.expect_status(202).body["id"]);
    let scored = other.wait_until_finished(&job, &|_| {}).await.unwrap();
    let commitment = other.get(&format!("{path}/commitment")).await;
    let commitment = commitment.expect_status(200).body;
    let delete = ["org", "delete", "--org", org_id, "--confirm", org_id];
    for changed in [true, false] {
        let deleted = world.stack.operate(&delete).await.unwrap();
        assert_eq!(deleted["changed"], changed, "{deleted}");
    }
    assert_eq!(
        tables_with_content(world, &suite, "1").await,
        [] as [&str; 0]
    );
    let seen = other.get(&path).await.expect_status(200).body;
    assert_eq!(
        (&seen["status"], &seen["owner"]["name"], &seen["title"]),
        (
            &json!("removed"),
            &json!("Deleted organization"),
            &json!(suite)
        )
    );
    expect_removed(other.get(&format!("{path}/items")).await);
    expect_removed(other.post("/v1/evals", &published.eval()).await);
    let kept = other
        .get(&format!("/v1/jobs/{job}"))
        .await
        .expect_status(200);
    assert_eq!(kept.body["result"], scored["result"]);
    let kept = other.get(&format!("{path}/commitment")).await;
    assert_eq!(kept.expect_status(200).body["jws"], commitment["jws"]);
    // The checker deletes what was not published.
    let mut database = world.database().await;
    wait_until("the content of drafts is deleted", async || {
        let sql = "
            select
                (select count(*) from suite_contents where org_id = $1 and bytes > 0)
                + (select count(*) from escrow_chunks where org_id = $1)";
        let left: i64 = sqlx::query_scalar(sql)
            .bind(org_id)
            .fetch_one(&mut database)
            .await
            .unwrap();
        left == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_is_listed_after_review() {
    let world = world_with(with_setting("ASSAY_SUITE_REVIEW", "listed")).await;
    let publisher = Publisher::new(&world, "team").await;
    let (key, org_id) = (publisher.client(&world), &publisher.org.id);
    let path = format!("/v1/suites/{}", publisher.suite());
    let definition = |version: &str, visibility: &str| {
        let definition = publisher.definition(version);
        definition.replace(
            "\n[data]",
            &format!("visibility = \"{visibility}\"\n\n[data]"),
        )
    };
    let publish = async |version: &str, visibility: &str| {
        let definition = definition(version, visibility);
        let draft = drafts::checked(&key, &definition, &votes(60)).await;
        drafts::publish(&key, &draft).await
    };
    let operate = async |arguments: &[&str]| {
        let arguments = [&["suite"][..], arguments].concat();
        world.stack.operate(&arguments).await
    };
    // A private suite needs no review, until more organizations would see it.
    assert_eq!(publish("1", "private").await["status"], "published");
    let listed = json!({"visibility": "listed"});
    let refused = key.patch(&path, &listed).await;
    let refused = refused.expect_error(409, "invalid_state");
    assert_eq!(refused.body["error"]["details"]["reason"], "in_review");
    let rejected = publish("2", "listed").await;
    assert_eq!(rejected["status"], "in_review", "{rejected}");
    let draft_id = string(&rejected["id"]);
    let waiting = operate(&["list", "--in-review", "--org", org_id]).await;
    let waiting = waiting.unwrap();
    assert_eq!(waiting["drafts"].as_array().unwrap().len(), 1, "{waiting}");
    assert_eq!(
        (
            &waiting["drafts"][0]["draft_id"],
            &waiting["drafts"][0]["n_items"]
        ),
        (&rejected["id"], &json!(60))
    );
    // Publishing again changes nothing.
    let again = format!("/v1/drafts/{draft_id}/publish");
    let again = key.post(&again, &json!({})).await.expect_status(202);
    assert_eq!(again.body["status"], "in_review");
    let reason = "The title is misleading";
    operate(&["reject", &draft_id, "--reason", reason])
        .await
        .unwrap();
    let draft = format!("/v1/drafts/{draft_id}");
    let failed = key.get(&draft).await.expect_status(200).body;
    assert_eq!(
        (&failed["status"], &failed["error"]),
        (
            &json!("failed"),
            &json!({"code": "rejected", "message": reason})
        )
    );
    for end in [
        &["approve", &draft_id][..],
        &["reject", "dft_0", "--reason", "x"],
    ] {
        let refused = operate(end).await.unwrap_err().to_string();
        assert!(refused.contains("is in review"), "{refused}");
    }
    let approved = publish("3", "listed").await;
    assert_eq!(approved["status"], "in_review", "{approved}");
    let approved = string(&approved["id"]);
    let other = world.key();
    other.get(&path).await.expect_error(404, "not_found");
    operate(&["approve", &approved]).await.unwrap();
    wait_until("the draft is published", async || {
        let draft = key.get(&format!("/v1/drafts/{approved}?wait=30")).await;
        draft.expect_status(200).body["status"] == "published"
    })
    .await;
    let seen = other.get(&path).await.expect_status(200).body;
    assert_eq!(
        (&seen["version"], &seen["visibility"]),
        (&json!("3"), &json!("listed"))
    );
    // An approved suite changes its visibility without a review.
    for visibility in ["private", "listed"] {
        let edit = json!({"visibility": visibility});
        key.patch(&path, &edit).await.expect_status(200);
    }
    assert_eq!(publish("4", "listed").await["status"], "published");
    // A draft in review can be deleted.
    let second = Publisher::new(&world, "team").await;
    let client = second.client(&world);
    let definition = second
        .definition("1")
        .replace("\n[data]", "visibility = \"listed\"\n\n[data]");
    let draft = drafts::checked(&client, &definition, &votes(60)).await;
    let draft = drafts::publish(&client, &draft).await;
    let draft = format!("/v1/drafts/{}", string(&draft["id"]));
    client.delete(&draft).await.expect_status(204);
    let log = world.client(&publisher.org.session);
    let log = log.get("/v1/audit?limit=200").await.expect_status(200).body;
    let entries = log["entries"].as_array().unwrap().iter();
    let entries = entries.filter(|entry| entry["actor"]["type"] == "operator");
    let types: Vec<_> = entries.map(|entry| entry["type"].clone()).collect();
    assert_eq!(types[..2], ["draft.approved", "draft.rejected"]);
}
