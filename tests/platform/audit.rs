//! The audit log: every operation that changes an organization, the operator's commands, and the
//! API database role's rights.

use std::collections::BTreeSet;

use assay_core::model::audit::AuditType;
use assay_proto::OPERATIONS;
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use serde_json::{Value, json};

use crate::boards;
use crate::harness::{Expect, fresh_email, org, shared_world, string, world};
use crate::receipts;
use crate::routes::{ROUTES, Resource, Route, world_for_routes};

/// The types of changes that the specification lists in addition to those of the audit log, and the
/// command that the operator's log records instead.
const OPERATOR_CHANGES: [(&str, &str); 3] = [
    ("operator's suite retired", "suite retire"),
    ("board.visibility_changed", "board set"),
    ("receipt_key.revoked", "receipt-key revoke"),
];

fn line(route: &Route) -> String {
    format!("{} {}", route.method, route.path)
}

#[test]
fn declared_entries_have_known_types() {
    // The generator refuses a changing operation that declares neither entries nor why it has none.
    for operation in &OPERATIONS {
        for kind in operation.audit {
            let parsed: Result<AuditType, _> = kind.parse();
            assert!(parsed.is_ok(), "{}: {kind}", operation.id);
        }
    }
}

/// Returns a client organization's log, the newest entry first.
async fn log(client: &Client) -> Vec<Value> {
    let mut entries = Vec::new();
    let mut path = String::from("/v1/audit?limit=200");
    loop {
        let page = client.get(&path).await.expect_status(200);
        entries.extend(page.body["entries"].as_array().unwrap().clone());
        match page.body["next_before"].as_str() {
            Some(before) => path = format!("/v1/audit?limit=200&before={before}"),
            None => return entries,
        }
    }
}

/// Returns the entries that were added to the log since it had `before` entries, the oldest first.
async fn added_since(client: &Client, before: usize) -> Vec<Value> {
    let mut entries = log(client).await;
    entries.truncate(entries.len() - before);
    entries.reverse();
    entries
}

fn types(entries: &[Value]) -> Vec<String> {
    entries.iter().map(|entry| string(&entry["type"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_audited_operation_writes_its_entries_unless_refused() {
    let (world, name_server) = world_for_routes().await;
    // The terms were accepted when the world was made.
    let sql = "delete from terms_acceptances";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let observer = world.owner();
    observer.get("/v1/me").await.expect_status(200);
    let viewer = world.member("viewer").await;
    let is_tested = |route: &&Route| {
        let operation = route.operation();
        !operation.audit.is_empty()
            && route.status() == operation.success
            && !route.path.contains("/session")
    };
    let audited = ROUTES.iter().filter(is_tested);
    // Creating a key requires the terms, so their acceptance goes first.
    let (terms, others): (Vec<_>, Vec<_>) =
        audited.partition(|route| route.path == "/v1/terms/accept");
    assert!(others.len() > 15, "few operations are tested");
    for route in terms.into_iter().chain(others) {
        let (line_of_route, expected) = (line(route), route.operation().audit);
        let id = world.create_resource(&world.org, route.resource).await;
        let send =
            async |client: &Client, id: &str| client.send(route.request(client, id)).await.unwrap();
        if route.resource == Resource::Claim {
            let claim = world
                .owner()
                .post("/v1/domains", &json!({"domain": id}))
                .await
                .unwrap();
            let record = &claim.body["record"];
            name_server.show(&string(&record["name"]), &[&string(&record["value"])]);
        }
        let before = log(&observer).await.len();
        // A new organization has its own log.
        if route.path == "/v1/orgs" {
            let made = send(&world.owner(), &id).await.expect_status(201);
            let request = world.owner().request("GET", "/v1/audit");
            let header = ("x-org-id", string(&made.body["id"]));
            let theirs = world
                .owner()
                .send(request.header(header.0, header.1))
                .await
                .unwrap();
            let entries = theirs.body["entries"].as_array().unwrap();
            assert_eq!(types(entries), ["member.added"]);
            let back = world
                .owner()
                .request("GET", "/v1/me")
                .header("x-org-id", &world.org.id);
            world.owner().send(back).await.expect_status(200);
            assert_eq!(log(&observer).await.len(), before);
            continue;
        }
        // Refused requests leave nothing in the log.
        send(&viewer, &id).await.expect_status(403);
        if let [unknown, _] = route.resource.unknown()
            && !unknown.is_empty()
        {
            send(&world.owner(), unknown).await.expect_status(404);
        }
        assert_eq!(log(&observer).await.len(), before, "{line_of_route}");
        let done = send(&world.owner(), &id)
            .await
            .expect_status(route.status());
        let entries = added_since(&observer, before).await;
        assert_eq!(types(&entries), *expected, "{line_of_route}");
        for entry in entries {
            assert_eq!(entry["org_id"], json!(world.org.id));
            assert_eq!(entry["actor"]["type"], "session");
            assert_eq!(entry["actor"]["email"], json!(world.org.email));
            assert!(string(&entry["actor"]["user_id"]).starts_with("usr_"));
            assert_eq!(string(&entry["request_id"]), done.header("x-request-id"));
            assert_eq!(entry["address"], "127.0.0.1");
            // The target of a new grant is the grant, not its suite.
            let target = if route.path.ends_with("/grants") {
                done.body["id"].clone()
            } else {
                json!(id)
            };
            if route.resource != Resource::None {
                assert_eq!(entry["target"]["id"], target, "{line_of_route}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_name_the_changed_fields() {
    let world = shared_world().await;
    let owner = world.owner();
    let before = log(&owner).await.len();
    let patch = async |path: &str, body: Value| {
        let done = owner.patch(path, &body).await.expect_status(200);
        done.body
    };
    let made = owner
        .post(
            "/v1/keys",
            &json!({"name": "ci", "scopes": ["jobs:read", "usage:read"]}),
        )
        .await
        .unwrap()
        .body;
    let key = format!("/v1/keys/{}", string(&made["id"]));
    patch(&key, json!({"name": "ci", "scopes": ["jobs:read"]})).await;
    patch(&key, json!({"name": "ci"})).await;
    let org = format!("/v1/orgs/{}", world.org.id);
    let name = string(&patch(&org, json!({"data_use": "aggregate_research"})).await["name"]);
    patch(&org, json!({"name": "Renamed"})).await;
    let changes: Vec<_> = added_since(&owner, before)
        .await
        .into_iter()
        .map(|entry| json!([entry["type"], entry["target"]["type"], entry["changes"]]))
        .collect();
    let field = |before: Value, after: Value| json!({"before": before, "after": after});
    assert_eq!(
        changes,
        [
            json!(["key.created", "key", {
                "name": field(Value::Null, json!("ci")),
                "scopes": field(Value::Null, json!(["jobs:read", "usage:read"])),
            }]),
            json!(["key.updated", "key", {
                "scopes": field(json!(["jobs:read", "usage:read"]), json!(["jobs:read"])),
            }]),
            json!(["org.updated", "organization", {
                "data_use": field(json!("scoring_only"), json!("aggregate_research")),
            }]),
            json!(["org.updated", "organization", {"name": field(json!(name), json!("Renamed"))}]),
        ],
        "a change that changes nothing has no entry"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_are_recorded_in_the_organizations_of_the_user() {
    let world = shared_world().await;
    let address = &fresh_email("ada");
    let owner = world.owner();
    let before = log(&owner).await.len();
    let invited = owner
        .post("/v1/invites", &json!({"email": address, "role": "member"}))
        .await
        .unwrap();
    let first = world.client(&world.sign_in(address).await);
    let second = world.client(&world.sign_in(address).await);
    let sessions = first.get("/v1/sessions").await.unwrap();
    let other = sessions.body["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|session| session["current"] == false)
        .map(|session| string(&session["id"]))
        .unwrap();
    // An organization that invites somebody does not learn where they sign in, until they act for it.
    let stranger = org(&world.stack, "team").await;
    let stranger = world.client(&stranger.session);
    let invite = json!({"email": address});
    stranger
        .post("/v1/invites", &invite)
        .await
        .expect_status(201);
    let delete =
        async |client: &Client, path: &str| -> Response { client.delete(path).await.unwrap() };
    for _ in 0..2 {
        // The repetition changes nothing.
        delete(&first, &format!("/v1/sessions/{other}"))
            .await
            .expect_status(204);
    }
    second.get("/v1/me").await.expect_status(401);
    let third = world.client(&world.sign_in(address).await);
    delete(&first, "/v1/sessions").await.expect_status(204);
    third.get("/v1/me").await.expect_status(401);
    let last = delete(&first, "/v1/session").await.expect_status(204);
    let entries = added_since(&owner, before).await;
    assert_eq!(
        types(&entries),
        [
            "invite.created",
            "invite.accepted",
            "member.added",
            "session.started",
            "session.started",
            "session.ended",
            "session.started",
            "session.ended",
            "session.ended",
        ]
    );
    assert_eq!(entries[1]["target"]["id"], invited.body["id"]);
    assert_eq!(entries[2]["changes"]["role"]["after"], "member");
    assert_eq!(entries[5]["target"]["id"], json!(other));
    assert_eq!(
        string(&entries[8]["request_id"]),
        last.header("x-request-id")
    );
    let strangers = types(&log(&stranger).await);
    assert!(
        strangers.contains(&"invite.accepted".to_owned()),
        "{strangers:?}"
    );
    let sessions = log(&stranger)
        .await
        .iter()
        .filter(|entry| {
            entry["type"].as_str().unwrap().starts_with("session.")
                && entry["actor"]["email"] == *address
        })
        .count();
    assert_eq!(sessions, 0);
    for entry in &entries[1..] {
        assert_eq!(entry["actor"]["email"], *address, "{entry}");
        assert_eq!(entry["address"], "127.0.0.1");
    }
    // A failed sign-in leaves nothing.
    world
        .anonymous()
        .post("/v1/auth/email/verify", &json!({"token": "svc_link_none"}))
        .await
        .expect_status(401);
    assert_eq!(added_since(&owner, before).await.len(), entries.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_member_leaves_revoked_invites_in_the_log() {
    let world = shared_world().await;
    let owner = world.owner();
    let second = world.member("owner").await;
    let invited = second
        .post("/v1/invites", &json!({"email": "eve@example.org"}))
        .await
        .expect_status(201);
    let members = owner.get("/v1/members").await.unwrap().body["members"].clone();
    let user_id = string(&members[1]["user_id"]);
    let before = log(&owner).await.len();
    let path = format!("/v1/members/{user_id}");
    owner.delete(&path).await.expect_status(204);
    let entries = added_since(&owner, before).await;
    let found: Vec<_> = entries
        .iter()
        .map(|entry| json!([entry["type"], entry["target"]["id"]]))
        .collect();
    assert_eq!(
        found,
        [
            json!(["member.removed", user_id]),
            json!(["invite.revoked", invited.body["id"]])
        ]
    );
    assert_eq!(
        entries[0]["changes"],
        json!({"role": {"before": "owner", "after": null}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_operator_are_recorded() {
    let world = shared_world().await;
    let owner = world.owner();
    let member = world.member("member").await;
    let emails = owner.get("/v1/members").await.unwrap();
    let email = string(&emails.body["members"][1]["email"]);
    member.get("/v1/me").await.expect_status(200);
    let key_id = string(&owner.get("/v1/keys").await.unwrap().body["keys"][0]["id"]);
    let before = log(&owner).await.len();
    let operate = async |args: &[&str]| world.stack.operate(args).await.unwrap();
    for _ in 0..2 {
        operate(&["org", "set", "--org", &world.org.id, "--plan", "dev"]).await;
        operate(&["key", "revoke", "--key", &key_id]).await;
    }
    operate(&["key", "create", "--org", &world.org.id, "--name", "new"]).await;
    let session = operate(&["session", "create", "--email", &email]).await;
    operate(&[
        "session",
        "end",
        "--session",
        &string(&session["session_id"]),
    ])
    .await;
    operate(&["session", "end", "--email", &email]).await;
    operate(&["user", "erase", "--email", &email]).await;
    let entries = added_since(&owner, before).await;
    assert_eq!(
        types(&entries),
        [
            "plan.changed",
            "key.revoked",
            "key.created",
            "session.started",
            "session.ended",
            "session.ended",
            "member.removed",
        ]
    );
    for entry in &entries {
        assert_eq!(
            json!([entry["actor"], entry["request_id"], entry["address"]]),
            json!([{"type": "operator", "user_id": null, "email": null, "key_id": null}, null, null])
        );
    }
    assert_eq!(
        entries[0]["changes"],
        json!({"plan": {"before": "team", "after": "dev"}})
    );
    let whole = log(&owner).await;
    assert!(
        !json!(whole).to_string().contains(&email),
        "the address of an erased user is erased from the log"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_has_pages_filters_and_an_export() {
    let world = shared_world().await;
    let owner = world.owner();
    for index in 0..5 {
        owner
            .post("/v1/keys", &json!({"name": format!("key {index}")}))
            .await
            .unwrap();
    }
    // More entries than an export reads at once.
    let fill = "insert into audit_entries (org_id, id, type, actor_type, target_type, target_id)
                select $1, 'aud_00000000' || lpad(n::text, 14, '0'), 'org.updated', 'platform', 'organization', $1
                from generate_series(1, 2500) n";
    sqlx::query(fill)
        .bind(&world.org.id)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let whole = log(&owner).await;
    assert!(whole.len() >= 2505);
    let ids: Vec<_> = whole.iter().map(|entry| string(&entry["id"])).collect();
    assert!(
        ids.is_sorted_by(|a, b| a > b),
        "the newest first, none twice"
    );

    let request = owner
        .request("GET", "/v1/audit?limit=1")
        .header("accept", "application/x-ndjson");
    let export = request.send().await.unwrap();
    assert_eq!(export.headers()["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = export
        .text()
        .await
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, whole);

    let created = owner.get("/v1/audit?type=key.created").await.unwrap();
    let entries = created.body["entries"].as_array().unwrap();
    assert!(entries.len() >= 5 && entries.iter().all(|entry| entry["type"] == "key.created"));
    let (key_id, user_id) = (&entries[0]["target"]["id"], &entries[0]["actor"]["user_id"]);
    let key_entries = owner
        .get(&format!("/v1/audit?target_id={}", string(key_id)))
        .await
        .unwrap();
    assert_eq!(key_entries.body["entries"], json!([entries[0]]));
    let user_entries = owner
        .get(&format!("/v1/audit?actor_id={}", string(user_id)))
        .await
        .unwrap();
    assert!(
        user_entries.body["entries"]
            .as_array()
            .unwrap()
            .iter()
            .all(|entry| entry["actor"]["user_id"] == *user_id)
    );
    for query in [
        "type=key.lost",
        "before=key_1",
        "limit=0",
        "limit=201",
        "actor=x",
    ] {
        owner
            .get(&format!("/v1/audit?{query}"))
            .await
            .expect_error(422, "validation_failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_cannot_change_the_log() {
    let world = world().await;
    let owner = world.owner();
    let before = log(&owner).await;
    assert!(!before.is_empty());
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    for sql in [
        "update audit_entries set type = 'key.created'",
        "delete from audit_entries",
        "truncate audit_entries",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut api).await.unwrap_err();
        assert!(
            error.to_string().contains("permission denied"),
            "{sql}: {error}"
        );
    }
    // The only way to delete keeps 400 days, whatever the caller asks for.
    let age = "update audit_entries set created_at = now() - interval '399 days'";
    sqlx::raw_sql(age)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let old = "update audit_entries set created_at = now() - interval '401 days' where id = $1";
    sqlx::query(old)
        .bind(string(&before[0]["id"]))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    // The platform's cleanup may delete the old entry first.
    sqlx::query("select delete_old_audit_entries(0, 1000)")
        .execute(&mut api)
        .await
        .unwrap();
    assert_eq!(log(&owner).await.len(), before.len() - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_without_entry_is_not_made() {
    let world = world().await;
    let revoke = "revoke insert on audit_entries from assay_api";
    sqlx::raw_sql(revoke)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let owner = world.owner();
    let keys = async || owner.get("/v1/keys").await.unwrap().body["keys"].clone();
    let before = keys().await;
    owner
        .post("/v1/keys", &json!({"name": "unrecorded"}))
        .await
        .expect_status(500);
    let path = format!("/v1/keys/{}", string(&before[0]["id"]));
    owner.delete(&path).await.expect_status(500);
    assert_eq!(keys().await, before);
}

#[test]
fn guide_lists_the_types_of_the_audit_log() {
    let guide = include_str!("../../docs/guide.md");
    let (_, section) = guide.split_once("\n## Audit log\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = cells
        .flat_map(|cells| cells.split('|').next().unwrap().split(", "))
        .map(|r#type| r#type.trim().trim_matches('`').to_owned())
        .collect();
    let all = AuditType::ALL
        .iter()
        .map(|r#type| r#type.as_str().to_owned());
    assert_eq!(listed, all.collect());
    for (r#type, _) in OPERATOR_CHANGES {
        assert!(!listed.contains(r#type), "{type}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_installation_are_in_the_operators_log() {
    let world = world().await;
    let before = log(&world.owner()).await.len();
    receipts::publish_retired(&world).await;
    boards::publish(&world).await;
    let board = ["board", "set", "--suite", "suite:board", "--version", "1"];
    let set = [board.as_slice(), &["--visibility", "public"]].concat();
    world.stack.operate(&set).await.unwrap();
    let keys = world.anonymous().get("/.well-known/jwks.json").await;
    let kid = string(&keys.unwrap().body["keys"][0]["kid"]);
    let revoke = ["receipt-key", "revoke", &kid, "--yes"];
    world.stack.operate(&revoke).await.unwrap();
    let targets = [receipts::RETIRED, "suite:board", &kid];
    for ((r#type, command), target) in OPERATOR_CHANGES.into_iter().zip(targets) {
        let recorded: i64 = sqlx::query_scalar(
            "select count(*) from operator_log where command = $1 and target = $2 and outcome = 'done'",
        )
        .bind(command)
        .bind(target)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
        assert_eq!(recorded, 1, "{type}");
    }
    assert_eq!(log(&world.owner()).await.len(), before);
}
