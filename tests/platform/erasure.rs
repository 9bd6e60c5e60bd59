//! The operator deletes organizations, erases users, revokes keys and ends sessions.

use std::path::PathBuf;

use assay_core::store::operator::{Erasure, ORG_TABLES};
use assay_tests::client::Client;
use assay_tests::demo_suite;
use assay_tests::site;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use crate::canaries::places::{self, Places};
use crate::drafts::{self, Publisher};
use crate::harness::{
    Expect, World, error_code, one_prediction, org, pause, shared_world, string, wait_until,
    with_setting, world_with,
};
use crate::uploads::{open, put};

async fn delete(world: &World, org_id: &str) -> Value {
    world
        .stack
        .operate(&["org", "delete", "--org", org_id, "--confirm", org_id])
        .await
        .unwrap()
}

async fn refused(world: &World, arguments: &[&str]) -> String {
    world
        .stack
        .operate(arguments)
        .await
        .unwrap_err()
        .to_string()
}

/// Lists the tables that contain a string.
async fn tables_with(world: &World, wanted: &str) -> Vec<String> {
    let mut found = Places::default();
    places::tables(world, &mut found).await;
    // `mailed` counts the emails to an address in the last hour. It belongs to no organization, and
    // its rows expire.
    found
        .containing(wanted)
        .into_iter()
        .filter(|place| *place != "table mailed")
        .map(str::to_owned)
        .collect()
}

async fn scalar(world: &World, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql)
        .bind(&world.org.id)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}

fn folder(world: &World) -> PathBuf {
    world.stack.artifacts().join(&world.org.id)
}

/// Restarts the API, which looks for removable objects when it starts.
async fn restart_api(world: &mut World) {
    world.stack.apis.clear();
    world.stack.apis.push(world.stack.launch_api().unwrap());
    world.stack.apis[0].ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_org_leaves_what_accounting_needs() {
    let mut world = world_with(StackSize::default()).await;
    let owner = world.owner();
    let renamed = owner
        .request("PATCH", &format!("/v1/orgs/{}", world.org.id))
        .json(&json!({"name": "Canary Incorporated"}));
    owner.send(renamed).await.expect_status(200);
    owner
        .post("/v1/invites", &json!({"email": "canary@example.org"}))
        .await
        .unwrap();
    owner
        .post("/v1/domains", &json!({"domain": "canary.example"}))
        .await
        .unwrap();
    owner
        .post("/v1/keys", &json!({"name": "canary key"}))
        .await
        .unwrap();
    let submit = async |key: Client, label: &str| {
        let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction(), "label": label, "metadata": {"canary": "canary"}});
        let request = key
            .request("POST", "/v1/evals")
            .header("idempotency-key", format!("canary {label}"))
            .json(&body);
        string(&key.send(request).await.unwrap().body["id"])
    };
    let done = submit(world.key(), "canary done").await;
    assert_eq!(
        world.wait_until_finished(&done).await["status"],
        "succeeded"
    );
    let upload_id = open(&world.key(), json!({"kind": "predictions"})).await;
    put(&world.key(), &upload_id, 1, "{}\n").await;
    // A new worker has not cached the answers yet, so it blocks when it reads them.
    world.stack.workers.clear();
    world
        .stack
        .workers
        .push(world.stack.launch_worker().unwrap());
    world.stack.workers[0].ready().await.unwrap();
    let answers = world.hold_answers().await;
    let running = submit(world.key(), "canary running").await;
    world.wait_for_status(&running, "running").await;
    let charged = scalar(&world, "select eval_items from usage where org_id = $1").await;

    let key = world.key();
    let session = world.owner();
    let unconfirmed = refused(
        &world,
        &["org", "delete", "--org", &world.org.id, "--confirm", "yes"],
    )
    .await;
    assert!(
        unconfirmed.contains(&format!("--confirm {}", world.org.id)),
        "{unconfirmed}"
    );
    assert!(
        refused(&world, &["org", "delete", "--org", &world.org.id])
            .await
            .contains("--confirm")
    );
    assert!(
        refused(
            &world,
            &["org", "delete", "--org", "org_0", "--confirm", "org_0"]
        )
        .await
        .contains("there is no organization org_0")
    );
    let deleted = delete(&world, &world.org.id).await;
    assert_eq!(
        (&deleted["changed"], &deleted["deleted"]["jobs_cancelled"]),
        (&json!(true), &json!(1)),
        "{deleted}"
    );
    assert_eq!(
        delete(&world, &world.org.id).await["changed"],
        false,
        "repeating it changes nothing"
    );

    key.get("/v1/me").await.expect_error(401, "invalid_token");
    session
        .get("/v1/me")
        .await
        .expect_error(403, "org_required");
    // The running attempt must not write any more.
    sqlx::Connection::close(answers).await.unwrap();
    pause("nothing to happen", std::time::Duration::from_secs(2)).await;
    for wanted in ["canary", "Canary"] {
        assert_eq!(
            tables_with(&world, wanted).await,
            Vec::<String>::new(),
            "{wanted}"
        );
    }
    assert_eq!(scalar(&world, "select count(*) from jobs where org_id = $1 and status = 'cancelled' and result is null").await, 1);
    assert_eq!(
        scalar(&world, "select eval_items from usage where org_id = $1").await,
        charged,
        "the monthly usage is unchanged"
    );
    let booked = "select sum(case kind when 'charge' then eval_items else -eval_items end)::bigint from usage_ledger where org_id = $1";
    assert_eq!(
        scalar(&world, booked).await,
        charged,
        "the ledger is unchanged"
    );
    for command in ["suspend", "resume"] {
        assert!(
            refused(&world, &["org", command, "--org", &world.org.id])
                .await
                .contains("was deleted")
        );
    }
    assert!(
        refused(
            &world,
            &["org", "set", "--org", &world.org.id, "--plan", "dev"]
        )
        .await
        .contains("there is no organization")
    );

    // Objects are removed only after every request and attempt in progress has ended, as it could
    // write more.
    restart_api(&mut world).await;
    assert!(folder(&world).exists());
    for _ in 0..2 {
        let late = "update orgs set deleted_at = deleted_at - interval '30 minutes', removed_at = null where deleted_at is not null";
        sqlx::query(late)
            .execute(&mut world.database().await)
            .await
            .unwrap();
        restart_api(&mut world).await;
        let removed = "select count(*) from orgs where id = $1 and removed_at is not null";
        wait_until("removal", async || scalar(&world, removed).await == 1).await;
        assert!(!folder(&world).exists());
        // Simulates that the process died before it recorded the removal, and left some objects.
        std::fs::create_dir_all(folder(&world)).unwrap();
        std::fs::write(folder(&world).join("left"), "x").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deletes_delete_once() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    for _ in 0..5 {
        let org = org(&world.stack, "team").await;
        let (a, b) = tokio::join!(delete(&world, &org.id), delete(&world, &org.id));
        let mut changed = [
            a["changed"].as_bool().unwrap(),
            b["changed"].as_bool().unwrap(),
        ];
        changed.sort_unstable();
        assert_eq!(changed, [false, true]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_for_deleted_org() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 1,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let submitters: Vec<_> = (0..6)
        .map(|n| {
            let url = format!("http://{}", world.stack.apis[n % 2].listen.unwrap());
            let key = Client::new(url.clone(), Some(&world.org.key));
            let owner = Client::new(url, Some(&world.org.session));
            tokio::spawn(async move {
                loop {
                    let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction(), "label": "canary", "metadata": {"canary": "canary"}});
                    let submitted = key.post("/v1/evals", &body).await.unwrap();
                    let made = owner.post("/v1/keys", &json!({"name": "canary"})).await.unwrap();
                    let invited = owner.post("/v1/invites", &json!({"email": format!("canary{n}@example.org")})).await.unwrap();
                    for response in [&made, &invited] {
                        assert!([201, 403, 409, 503].contains(&response.status), "{}", response.body);
                    }
                    match submitted.status {
                        202 | 503 => {}
                        401 | 403 => break,
                        other => panic!("{other}: {}", submitted.body),
                    }
                }
            })
        })
        .collect();
    wait_until("submissions", async || {
        scalar(&world, "select count(*) from jobs where org_id = $1").await > 10
    })
    .await;
    delete(&world, &world.org.id).await;
    for submitter in submitters {
        submitter.await.unwrap();
    }
    // Leaves the running attempts time to notice the deletion.
    pause(
        "running attempts to notice",
        std::time::Duration::from_secs(2),
    )
    .await;
    assert_eq!(tables_with(&world, "canary").await, Vec::<String>::new());
    let active = "select count(*) from jobs where org_id = $1 and status in ('queued', 'running')";
    assert_eq!(scalar(&world, active).await, 0);
    let odd = "select count(*) from usage u where org_id = $1 and eval_items <> (
                   select sum(case kind when 'charge' then l.eval_items else -l.eval_items end) from usage_ledger l where l.org_id = u.org_id)";
    assert_eq!(
        scalar(&world, odd).await,
        0,
        "the monthly usage matches the ledger"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_user_leaves_an_id() {
    let world = world_with(StackSize::default()).await;
    let erase = ["user", "erase", "--email", &world.org.email];
    let refusal = refused(&world, &erase).await;
    assert!(
        refusal.contains(&world.org.id) && refusal.contains("only owner"),
        "{refusal}"
    );
    // A refusal changes nothing.
    world.owner().get("/v1/me").await.expect_status(200);

    let second = org(&world.stack, "team").await;
    world
        .client(&second.session)
        .post("/v1/invites", &json!({"email": world.org.email}))
        .await
        .unwrap();
    world.member("owner").await;
    let created_by =
        string(&world.owner().get("/v1/keys").await.unwrap().body["keys"][0]["created_by"]);
    let done = world.submit_and_wait(&one_prediction()).await;
    world.sign_in_link(&world.org.email).await;
    let erased = world.stack.operate(&erase).await.unwrap();
    assert_eq!(erased["user_id"], created_by.as_str());
    assert_eq!(
        erased["erased"],
        json!({"memberships": 1, "sessions": 1, "invites": 1, "sign_in_links": 1})
    );
    assert_eq!(
        tables_with(&world, &world.org.email).await,
        Vec::<String>::new()
    );
    let counted: i64 = sqlx::query_scalar("select count(*) from mailed where email = $1")
        .bind(&world.org.email)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(counted, 0);
    world.owner().get("/v1/me").await.expect_status(401);
    // The organization's data stays.
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{}", string(&done["id"])))
            .await
            .unwrap()
            .body,
        done
    );
    assert_eq!(
        scalar(&world, "select count(*) from api_keys where org_id = $1").await,
        1
    );
    assert!(
        refused(&world, &erase)
            .await
            .contains("nobody has the address"),
        "nothing is left to erase"
    );
    // The address's later user is a new user.
    let new = world.client(&world.sign_in(&world.org.email).await);
    assert_eq!(
        error_code(&new.get("/v1/me").await.unwrap()),
        "org_required"
    );

    // Erasing an address that was only invited.
    world
        .client(&second.session)
        .post("/v1/invites", &json!({"email": "invited@example.org"}))
        .await
        .unwrap();
    let erased = world
        .stack
        .operate(&["user", "erase", "--email", "Invited@example.org"])
        .await
        .unwrap();
    assert_eq!(
        (&erased["user_id"], &erased["erased"]["invites"]),
        (&Value::Null, &json!(1))
    );
    assert_eq!(
        tables_with(&world, "invited@example.org").await,
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_erasure_leaves_no_half_user() {
    let world = world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000")
    })
    .await;
    for round in 0..8 {
        let email = format!("canary{round}@example.org");
        world
            .owner()
            .post("/v1/invites", &json!({"email": email}))
            .await
            .unwrap();
        let session = world.client(&world.sign_in(&email).await);
        let user = string(&session.get("/v1/me").await.unwrap().body["orgs"][0]["id"]);
        let link = world.sign_in_link(&email).await;
        assert_eq!(user, world.org.id);
        let anonymous = world.anonymous();
        let body = json!({"token": link});
        let sign_in = async {
            anonymous
                .post("/v1/auth/email/verify", &body)
                .await
                .unwrap()
                .status
        };
        let create = async {
            session
                .post("/v1/orgs", &json!({"name": "x"}))
                .await
                .unwrap()
                .status
        };
        let arguments = ["user", "erase", "--email", &email];
        let (erased, signed_in, created) =
            tokio::join!(world.stack.operate(&arguments), sign_in, create);
        match &erased {
            Ok(_) => assert!(
                [201, 401].contains(&signed_in) && [201, 401].contains(&created),
                "{signed_in} {created}"
            ),
            Err(refusal) => assert!(
                refusal.to_string().contains("only owner") && created == 201,
                "{refusal}"
            ),
        }
        let half: i64 = sqlx::query_scalar(
            "select count(*) from users u where email like 'erased %'
             and (exists (select from sessions s where s.user_id = u.id) or exists (select from memberships m where m.user_id = u.id))",
        )
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
        assert_eq!(half, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_revokes_keys_and_ends_sessions() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let keys = world.owner().get("/v1/keys").await.unwrap().body["keys"].clone();
    let key_id = string(&keys[0]["id"]);
    let first = world
        .stack
        .operate(&["key", "revoke", "--key", &key_id])
        .await
        .unwrap();
    assert_eq!(
        json!([first["key_id"], first["org_id"]]),
        json!([key_id, world.org.id])
    );
    world
        .key()
        .get("/v1/me")
        .await
        .expect_error(401, "key_revoked");
    assert_eq!(
        world
            .stack
            .operate(&["key", "revoke", "--key", &key_id])
            .await
            .unwrap(),
        first,
        "the first revocation stays"
    );
    assert!(
        refused(&world, &["key", "revoke", "--key", "key_0"])
            .await
            .contains("there is no key key_0")
    );

    let one = world
        .stack
        .operate(&["session", "create", "--email", &world.org.email])
        .await
        .unwrap();
    let session_id = string(&one["session_id"]);
    let ended = world
        .stack
        .operate(&["session", "end", "--session", &session_id])
        .await
        .unwrap();
    assert_eq!(
        ended,
        json!({"session_id": session_id, "user_id": one["user_id"], "ended": 1})
    );
    world
        .client(&string(&one["token"]))
        .get("/v1/me")
        .await
        .expect_status(401);
    // The other session stays valid.
    world.owner().get("/v1/me").await.expect_status(200);
    assert_eq!(
        world
            .stack
            .operate(&["session", "end", "--session", &session_id])
            .await
            .unwrap()["ended"],
        0
    );
    let all = world
        .stack
        .operate(&["session", "end", "--email", &world.org.email])
        .await
        .unwrap();
    assert_eq!(all, json!({"user_id": one["user_id"], "ended": 1}));
    world.owner().get("/v1/me").await.expect_status(401);
    assert!(
        refused(&world, &["session", "end"])
            .await
            .contains("--email")
    );
    assert!(
        refused(&world, &["session", "end", "--email", "nobody@example.org"])
            .await
            .contains("nobody has the address")
    );
    assert!(
        refused(&world, &["session", "end", "--session", "ses_0"])
            .await
            .contains("there is no session ses_0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_is_logged() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let made = site::create_org(&world.stack, "team").await.unwrap();
    let session = ["session", "create", "--email", &made.owner_email];
    world.stack.operate(&session).await.unwrap();
    world
        .stack
        .operate(&["org", "suspend", "--org", &world.org.id])
        .await
        .unwrap();
    world
        .stack
        .operate(&["org", "resume", "--org", &world.org.id])
        .await
        .unwrap();
    world
        .stack
        .operate(&["org", "resume", "--org", "org_0"])
        .await
        .unwrap_err();
    world
        .stack
        .operate(&["session", "end", "--email", &world.org.email])
        .await
        .unwrap();
    world
        .stack
        .operate(&["user", "erase", "--email", &world.org.email])
        .await
        .unwrap_err();
    let log: Vec<(String, Option<String>, Option<String>, bool)> = sqlx::query_as(
        "select command, target, outcome, run_by = current_user and finished_at >= started_at from operator_log order by id",
    )
    .fetch_all(&mut world.database().await)
    .await
    .unwrap();
    let user: String = sqlx::query_scalar("select id from users where email = $1")
        .bind(&world.org.email)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    let entry = |command: &str, target: Option<&str>, outcome: &str| {
        (
            command.to_owned(),
            target.map(str::to_owned),
            Some(outcome.to_owned()),
            true,
        )
    };
    let org = Some(world.org.id.as_str());
    assert_eq!(
        log[log.len() - 5..],
        [
            entry("org suspend", org, "done"),
            entry("org resume", org, "done"),
            entry("org resume", Some("org_0"), "refused"),
            entry("session end", Some(&user), "done"),
            entry("user erase", None, "refused"),
        ]
    );
    // Creation of the organization, the key and the session is logged too.
    let before: Vec<&str> = log.iter().map(|(command, ..)| command.as_str()).collect();
    assert_eq!(
        before[..4],
        [
            "suite publish",
            "org create",
            "key create",
            "session create"
        ]
    );
    let rows: String =
        sqlx::query_scalar("select string_agg(row_to_json(l)::text, ' ') from operator_log l")
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
    assert!(
        !rows.contains('@') && !rows.contains("svc_"),
        "the log contains neither addresses nor secrets"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn next_delete_completes_interrupted_one() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world
        .owner()
        .post("/v1/keys", &json!({"name": "canary"}))
        .await
        .unwrap();
    world.submit(&one_prediction()).await.expect_status(202);
    // Simulates a command that died after its first transaction.
    let marked = "update orgs set suspended_at = now(), deleted_at = now() where id = $1";
    sqlx::query(marked)
        .bind(&world.org.id)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world
        .key()
        .get("/v1/me")
        .await
        .expect_error(403, "forbidden");
    let completed = delete(&world, &world.org.id).await;
    assert_eq!(
        (&completed["changed"], &completed["deleted"]["keys"]),
        (&json!(false), &json!(2)),
        "{completed}"
    );
    assert_eq!(tables_with(&world, "canary").await, Vec::<String>::new());
    let nothing = delete(&world, &world.org.id).await;
    assert!(
        nothing["deleted"]
            .as_object()
            .unwrap()
            .values()
            .all(|count| count == 0),
        "{nothing}"
    );
}

/// A table with rows of organizations that nobody lists would keep them after the deletion.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_of_orgs_is_erased_or_kept_for_a_reason() {
    let world = shared_world().await;
    let mut db = world.database().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.table_name::text
         from information_schema.columns c
         join information_schema.tables t using (table_schema, table_name)
         where table_schema = 'public'
           and t.table_type = 'BASE TABLE'
           and c.column_name = 'org_id'
         order by 1",
    )
    .fetch_all(&mut db)
    .await
    .unwrap();
    let cascading: Vec<String> = sqlx::query_scalar(
        "select k.table_name::text
         from information_schema.referential_constraints r
         join information_schema.key_column_usage k using (constraint_schema, constraint_name)
         where constraint_schema = 'public'
           and r.delete_rule = 'CASCADE'
           and k.column_name = 'org_id'",
    )
    .fetch_all(&mut db)
    .await
    .unwrap();
    let listed: Vec<&str> = ORG_TABLES.iter().map(|(table, _)| *table).collect();
    let unlisted: Vec<_> = tables
        .iter()
        .filter(|table| !listed.contains(&table.as_str()) && !cascading.contains(table))
        .collect();
    assert_eq!(unlisted, [] as [&String; 0], "add these to ORG_TABLES");
    for (table, erasure) in ORG_TABLES {
        let count = listed.iter().filter(|other| *other == table).count();
        assert!(
            count == 1 && tables.iter().any(|other| other == table),
            "{table}"
        );
        match erasure {
            Erasure::Delete => {}
            Erasure::Update(statement) => {
                let words: Vec<&str> = statement.split_whitespace().collect();
                assert_eq!(words[..2], ["update", *table]);
                assert!(statement.contains("where org_id = $1"), "{statement}");
            }
            Erasure::Keep(reason) => assert!(!reason.is_empty(), "{table}"),
        }
    }
}

/// Columns that keep what they had after their organization was deleted, and why.
const KEPT: [(&str, &str); 2] = [
    (
        "jobs.input_key",
        "the name of an object, made of ids; the object is removed",
    ),
    (
        "suite_owners.submitter_key",
        "random bytes, which say nothing about the organization",
    ),
];

/// Tables without the organization's rows in the test below, and why.
const WITHOUT_ROWS: [(&str, &str); 9] = [
    ("draft_parts", "parts of files; deleted"),
    ("escrow_chunks", "files of drafts; deleted"),
    ("org_models", "a grant of a model; deleted"),
    ("sealed_results", "figures of sealed items; deleted"),
    (
        "serve_keys",
        "idempotency keys of serving; deleted, and after a day",
    ),
    ("suite_grants", "rights to suites of others; deleted"),
    (
        "suite_retirements",
        "requests to retire versions, without their keys; deleted",
    ),
    (
        "terms_acceptances",
        "which version of the terms was accepted, when and by which user id: evidence",
    ),
    ("usage_thresholds", "which limits were reached; deleted"),
];

/// Returns `true` for a column with ids and names that the platform or a publisher has made: they say
/// nothing about the organization, and accounting needs them.
fn is_identifier(column: &str) -> bool {
    column == "id"
        || column.ends_with("_id")
        || [
            "suite_version",
            "model_version",
            "hfm_sha",
            "holder",
            "holders",
            "compared_to",
        ]
        .contains(&column)
}

/// Uses the product as an organization does: members, keys, submissions, uploads, webhooks, a device login,
/// a board and a suite of its own.
async fn use_the_product(world: &World) {
    let owner = world.owner();
    let key = world.key();
    for (path, body) in [
        ("/v1/invites", json!({"email": "guest@example.org"})),
        ("/v1/domains", json!({"domain": "guest.example"})),
        ("/v1/keys", json!({"name": "guest"})),
        (
            "/v1/webhooks",
            json!({"url": "https://receiver.example/hook", "events": ["job.succeeded"], "description": "guest"}),
        ),
    ] {
        owner.post(path, &body).await.expect_status(201);
    }
    let eval = json!({
        "suite_id": demo_suite::SUITE_ID, "predictions": one_prediction(), "label": "guest", "metadata": {"a": "guest"},
    });
    let request = key
        .request("POST", "/v1/evals")
        .header("idempotency-key", "guest")
        .json(&eval);
    let job_id = string(&key.send(request).await.unwrap().body["id"]);
    assert_eq!(
        world.wait_until_finished(&job_id).await["status"],
        "succeeded"
    );
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    put(&key, &upload_id, 1, "{}\n").await;
    let login = crate::device::start(world, "guest").await;
    crate::device::approve(world, &login, &world.org).await;
    crate::boards::publish(world).await;
    crate::boards::entry(&key).await;
    let publisher = Publisher::of(world, world.org.clone()).await;
    let draft = drafts::checked(&key, &publisher.definition("1"), &drafts::votes(4)).await;
    let published = drafts::publish(&key, &draft).await;
    assert_eq!(published["status"], "published", "{published}");
    let mut db = world.database().await;
    wait_until("a delivery", async || {
        let sql = "select exists(select from webhook_deliveries where org_id = $1)";
        let found = sqlx::query_scalar(sql).bind(&world.org.id);
        found.fetch_one(&mut db).await.unwrap()
    })
    .await;
}

/// The text, JSON and binary columns in the tables whose rows belong to an organization, as the schema
/// lists them.
async fn columns_of_orgs(world: &World) -> Vec<(String, String, String)> {
    sqlx::query_as(
        "select c.table_name::text, c.column_name::text, c.data_type::text
         from information_schema.columns c
         join information_schema.tables t using (table_schema, table_name)
         join information_schema.columns o using (table_schema, table_name)
         where table_schema = 'public'
           and t.table_type = 'BASE TABLE'
           and o.column_name = 'org_id'
           and c.column_name <> 'org_id'
           and c.data_type in ('text', 'jsonb', 'json', 'bytea', 'ARRAY')
           and c.is_generated = 'NEVER'
         order by 1, 2",
    )
    .fetch_all(&mut world.database().await)
    .await
    .unwrap()
}

/// A canary in every column of every table with an organization's rows: whatever column is added,
/// deleting an organization must erase it, or the list says why not.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_org_leaves_no_canary_in_any_column() {
    let world = world_with(StackSize::default()).await;
    use_the_product(&world).await;
    let mut db = world.database().await;
    let columns = columns_of_orgs(&world).await;
    let (mut planted, mut without_rows, mut unplanted) = (Vec::new(), Vec::new(), Vec::new());
    for (table, column, kind) in &columns {
        if is_identifier(column) {
            continue;
        }
        let name = format!("{table}.{column}");
        let canary = format!("canary {name}");
        let value = match kind.as_str() {
            "text" => format!("'{canary}'"),
            "jsonb" | "json" => format!("'{{\"x\": \"{canary}\"}}'"),
            "bytea" => format!("convert_to('{canary}', 'UTF8')"),
            _ => format!("array['{canary}']"),
        };
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select count(*) from {table} where org_id = $1"
        )))
        .bind(&world.org.id)
        .fetch_one(&mut db)
        .await
        .unwrap();
        if rows == 0 {
            without_rows.push(table.clone());
            continue;
        }
        // Triggers and references guard what the product must not change; here only the deletion counts.
        let update = format!(
            "update {table} set {column} = {value} where org_id = '{}'",
            world.org.id
        );
        let sql = format!("set session_replication_role = replica; {update}");
        match sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut db)
            .await
        {
            Ok(_) => planted.push(name),
            Err(error) => unplanted.push(format!("{name}: {error}")),
        }
    }
    delete(&world, &world.org.id).await;
    let mut left = Vec::new();
    for (table, column, _) in &columns {
        let sql = format!(
            "select count(*) from {table} where org_id = $1 and position('canary' in coalesce({column}::text, '')) +
             position('63616e617279' in coalesce({column}::text, '')) > 0"
        );
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(&world.org.id)
            .fetch_one(&mut db)
            .await
            .unwrap();
        if rows > 0 {
            left.push(format!("{table}.{column}"));
        }
    }
    without_rows.dedup();
    eprintln!(
        "planted {} {planted:?}\nunplanted {unplanted:#?}",
        planted.len()
    );
    let kept: Vec<_> = KEPT
        .iter()
        .map(|(column, _)| (*column).to_owned())
        .collect();
    let listed: Vec<_> = WITHOUT_ROWS
        .iter()
        .map(|(table, _)| (*table).to_owned())
        .collect();
    assert_eq!((left, without_rows), (kept, listed));
}

/// Columns that keep what they had after their user was erased, and why.
const KEPT_OF_USERS: [(&str, &str); 2] = [
    ("audit_entries.target_type", "a value of a closed set"),
    ("audit_entries.type", "a value of a closed set"),
];

/// Tables that can hold a user's rows and have none in the test below, and why.
const WITHOUT_ROWS_OF_USERS: [(&str, &str); 4] = [
    ("identities", "accounts of providers; deleted"),
    ("mail_preferences", "switches; deleted"),
    ("offboardings", "which organizations a user left; deleted"),
    (
        "webhook_payloads",
        "bodies of deliveries about a member; deleted",
    ),
];

/// The tables with rows about a user or an address, as the schema lists them. Rows that users have created,
/// such as keys, belong to organizations and keep the user's id.
async fn tables_of_users(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "select distinct c.table_name::text
         from information_schema.columns c
         join information_schema.tables t using (table_schema, table_name)
         where table_schema = 'public'
           and t.table_type = 'BASE TABLE'
           and c.column_name in ('email', 'user_id', 'approved_by')
         order by 1",
    )
    .fetch_all(&mut world.database().await)
    .await
    .unwrap()
}

/// The text, JSON and binary columns in a table, and their types.
async fn texts_of(db: &mut sqlx::PgConnection, table: &str) -> Vec<(String, String)> {
    sqlx::query_as(
        "select column_name::text, data_type::text from information_schema.columns
         where table_schema = 'public' and table_name = $1 and is_generated = 'NEVER'
           and data_type in ('text', 'jsonb', 'json', 'bytea', 'ARRAY')
         order by 1",
    )
    .bind(table)
    .fetch_all(db)
    .await
    .unwrap()
}

/// A canary in every text and binary column in every row that names a user, in addition to the address, which is one
/// itself: whatever column is added, a user's erasure must erase it, or a list says why not.
#[tokio::test(flavor = "multi_thread")]
async fn erased_user_leaves_no_canary_in_any_column() {
    let mut world = world_with(StackSize::default()).await;
    let email = "canary@example.org";
    let invite = json!({"email": email, "role": "owner"});
    world
        .owner()
        .post("/v1/invites", &invite)
        .await
        .expect_status(201);
    world.org.session = world.sign_in(email).await;
    world.org.email = email.into();
    use_the_product(&world).await;
    world.sign_in_link(email).await;
    let mut db = world.database().await;
    let user_id: String = sqlx::query_scalar("select id from users where email = $1")
        .bind(email)
        .fetch_one(&mut db)
        .await
        .unwrap();
    let (mut without_rows, mut columns) = (Vec::new(), Vec::new());
    for table in tables_of_users(&world).await {
        let names = ["email", "user_id", "approved_by", "id"].map(|column| {
            format!("coalesce(to_jsonb(t) ->> '{column}' in ('{user_id}', '{email}'), false)")
        });
        let belongs_to_user = names.join(" or ");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select count(*) from {table} t where {belongs_to_user}"
        )))
        .fetch_one(&mut db)
        .await
        .unwrap();
        if rows == 0 {
            without_rows.push(table);
            continue;
        }
        for (column, kind) in texts_of(&mut db, &table).await {
            columns.push((table.clone(), column.clone()));
            let value = match kind.as_str() {
                "text" => "'canary'",
                "bytea" => "convert_to('canary', 'UTF8')",
                _ => continue,
            };
            if is_identifier(&column) || column.ends_with("_by") {
                continue;
            }
            // Triggers and references guard what the product must not change; here only the erasure counts.
            let update = format!(
                "set session_replication_role = replica;
                 update {table} t set {column} = {value}
                 where ({belongs_to_user}) and position('{email}' in {column}::text) = 0"
            );
            if let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(update))
                .execute(&mut db)
                .await
            {
                eprintln!("not planted in {table}.{column}: {error}");
            }
        }
    }
    let erased = world
        .stack
        .operate(&["user", "erase", "--email", email])
        .await
        .unwrap();
    assert_eq!(erased["user_id"], user_id);
    let mut left = Vec::new();
    for (table, column) in columns {
        let sql = format!(
            "select count(*) from {table} where position('canary' in {column}::text) > 0
             or position('63616e617279' in {column}::text) > 0"
        );
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&mut db)
            .await
            .unwrap();
        if rows > 0 {
            left.push(format!("{table}.{column}"));
        }
    }
    assert_eq!(tables_with(&world, email).await, Vec::<String>::new());
    let names = |list: &[(&'static str, &str)]| {
        list.iter()
            .map(|(name, _)| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (left, without_rows),
        (names(&KEPT_OF_USERS), names(&WITHOUT_ROWS_OF_USERS))
    );
}
