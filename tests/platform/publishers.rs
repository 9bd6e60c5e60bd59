//! Suites as publishers change them: texts, visibility, errata, and grants.

use std::collections::BTreeSet;

use assay_tests::client::{Client, Response};
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::harness::{Expect, Org, World, field_errors, org, string, world};
use crate::visibility::publish_own;

/// Publishes a private suite of the organization, and returns its path.
async fn own_suite(world: &World) -> String {
    format!("/v1/suites/{}", publish_own(world, "votes").await)
}

async fn edit(client: &Client, path: &str, body: Value) -> Response {
    client.patch(path, &body).await.unwrap()
}

/// Returns the field and the reason of the only field error.
#[track_caller]
fn refusal(response: &Response) -> (String, String) {
    assert_eq!(response.status, 422, "{}", response.body);
    let errors = field_errors(response);
    let [error] = errors.as_slice() else {
        panic!("{}", response.body);
    };
    error.clone()
}

async fn grant(world: &World, path: &str, target: Value) -> Value {
    let made = world.key().post(&format!("{path}/grants"), &target).await;
    made.expect_status(201).body
}

async fn sees(world: &World, org: &Org, path: &str) -> bool {
    let found = world.client(&org.key).get(path).await.unwrap();
    assert!(matches!(found.status, 200 | 404), "{}", found.body);
    found.status == 200
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_change_and_the_version_stays() {
    let world = world().await;
    let path = own_suite(&world).await;
    let before = world.key().get(&path).await.expect_status(200).body;
    let texts = json!({
        "title": "Votes of 1,000 persons",
        "description": "Corrected.",
        "license": "CC-BY-4.0",
        "citation": "@misc{votes}",
        "links": [{"label": "Paper", "url": "https://acme.example/votes"}],
        "tags": ["votes"],
        "contact": "votes@acme.example",
    });
    let after = edit(&world.key(), &path, texts.clone()).await;
    let after = after.expect_status(200).body;
    for (field, value) in texts.as_object().unwrap() {
        assert_eq!(&after[field], value, "{field}");
    }
    for field in [
        "version",
        "suite_commitment",
        "published_at",
        "metric",
        "visibility",
        "access",
    ] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_ne!(after["updated_at"], before["updated_at"]);
    assert_eq!(world.key().get(&path).await.unwrap().body, after);
    // One field at a time, and none of the others.
    let one = edit(&world.key(), &path, json!({"tags": []})).await;
    let one = one.expect_status(200).body;
    assert_eq!((&one["tags"], &one["title"]), (&json!([]), &after["title"]));
    let cleared =
        json!({"clear": ["title", "description", "license", "citation", "links", "contact"]});
    let cleared = edit(&world.key(), &path, cleared)
        .await
        .expect_status(200)
        .body;
    for field in [
        "title",
        "description",
        "license",
        "citation",
        "links",
        "tags",
        "contact",
    ] {
        assert_eq!(cleared[field], before[field], "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_edits_are_refused_with_their_field() {
    let world = world().await;
    let path = own_suite(&world).await;
    let long = "x".repeat(101);
    for (body, field, reason) in [
        (json!({}), "body", "required"),
        (json!({"metric": "f1"}), "metric", "immutable"),
        (
            json!({"max_submissions": 1}),
            "max_submissions",
            "immutable",
        ),
        (json!({"nonsense": 1}), "nonsense", "unknown_field"),
        (json!({"title": long}), "title", "too_long"),
        (json!({"title": "\u{202e}"}), "title", "format"),
        (json!({"license": "none at all"}), "license", "format"),
        (
            json!({"links": [{"label": "a", "url": "http://a.example"}]}),
            "links[0].url",
            "format",
        ),
        (json!({"links": [{"label": "a"}]}), "links", "type"),
        (json!({"tags": ["A"]}), "tags[0]", "format"),
        (json!({"clear": ["metric"]}), "clear[0]", "unknown_value"),
        (
            json!({"visibility": "hidden"}),
            "visibility",
            "unknown_value",
        ),
        (json!({"access": "nobody"}), "access", "unknown_value"),
    ] {
        let refused = edit(&world.key(), &path, body).await;
        assert_eq!(refusal(&refused), (field.to_owned(), reason.to_owned()));
    }
    let other = org(&world.stack, "team").await;
    let other = world.client(&other.key);
    let title = || json!({"title": "Mine"});
    edit(&other, &path, title())
        .await
        .expect_error(404, "not_found");
    edit(&world.key(), &path, json!({"visibility": "listed"}))
        .await
        .expect_status(200);
    edit(&other, &path, title())
        .await
        .expect_error(403, "forbidden");
    for body in [title(), json!({"confirm": true})] {
        let lunch = edit(&world.key(), "/v1/suites/suite:lunch", body).await;
        assert!(matches!(lunch.status, 403 | 422), "{}", lunch.body);
    }
    // A key cannot make the suite public, and an owner can.
    let public = || json!({"visibility": "public"});
    edit(&world.key(), &path, public())
        .await
        .expect_error(403, "forbidden");
    edit(&world.owner(), &path, public())
        .await
        .expect_status(200);
    world.anonymous().get(&path).await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wider_access_under_a_cap_needs_confirmation() {
    let world = world().await;
    let path = own_suite(&world).await;
    let capped = format!(
        "set session_replication_role = replica;
         update suites set max_submissions = 16 where suite_id = '{}';
         update suite_owners set access = 'granted' where suite_id = '{}'",
        &path["/v1/suites/".len()..],
        &path["/v1/suites/".len()..],
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(capped))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for body in [
        json!({"access": "everyone"}),
        json!({"visibility": "listed"}),
    ] {
        let refused = edit(&world.key(), &path, body.clone()).await;
        assert_eq!(
            refusal(&refused),
            ("confirm".to_owned(), "confirm".to_owned())
        );
        let mut confirmed = body;
        confirmed["confirm"] = json!(true);
        edit(&world.key(), &path, confirmed)
            .await
            .expect_status(200);
    }
    // Narrower needs none.
    let narrower = json!({"access": "granted", "visibility": "private"});
    edit(&world.key(), &path, narrower).await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_edit_changes_nothing() {
    let world = world().await;
    let path = own_suite(&world).await;
    let client = world.key();
    let read = client.get(&path).await.expect_status(200).body;
    let tag = format!("\"{}\"", string(&read["updated_at"]));
    let send = async |title: &str| {
        let request = client.request("PATCH", &path).header("if-match", &tag);
        client
            .send(request.json(&json!({"title": title})))
            .await
            .unwrap()
    };
    send("First").await.expect_status(200);
    send("Second").await.expect_error(409, "conflict");
    let read = client.get(&path).await.expect_status(200).body;
    assert_eq!(read["title"], "First");
}

#[tokio::test(flavor = "multi_thread")]
async fn errata_are_added_to_versions_and_shown() {
    let world = world().await;
    let path = own_suite(&world).await;
    let errata = format!("{path}/errata");
    let note = json!({"version": "1", "note": "Item 7 is ambiguous."});
    let made = world
        .key()
        .post(&errata, &note)
        .await
        .expect_status(201)
        .body;
    assert_eq!(
        (&made["version"], &made["note"]),
        (&note["version"], &note["note"])
    );
    let suite = world.key().get(&path).await.expect_status(200).body;
    assert_eq!(suite["errata"], json!([made]));
    let versions = world.key().get(&format!("{path}/versions")).await;
    let versions = versions.expect_status(200).body;
    let [version] = versions["versions"].as_array().unwrap().as_slice() else {
        panic!("{versions}");
    };
    assert_eq!(version["errata"], json!([made]));
    for field in [
        "suite_id",
        "version",
        "suite_commitment",
        "n_items",
        "published_at",
        "status",
    ] {
        assert_eq!(version[field], suite[field], "{field}");
    }
    for (body, field) in [
        (json!({"version": "9", "note": "a"}), "version"),
        (json!({"version": "1", "note": ""}), "note"),
        (json!({"version": "1", "note": "x".repeat(501)}), "note"),
    ] {
        let refused = world.key().post(&errata, &body).await.unwrap();
        assert_eq!(refusal(&refused).0, field);
    }
    for _ in 1..20 {
        world.key().post(&errata, &note).await.expect_status(201);
    }
    let refused = world.key().post(&errata, &note).await.unwrap();
    refused.expect_error(409, "invalid_state");
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_let_others_see_and_submit() {
    let world = world().await;
    let path = own_suite(&world).await;
    let [named, verified, unknown] = [
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    ];
    let claim = format!(
        "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
         select '{}', 'lab.example', 't', id, now(), now() from users limit 1",
        verified.id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(claim))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for one in [&named, &verified, &unknown] {
        assert!(!sees(&world, one, &path).await);
    }
    let to_org = grant(&world, &path, json!({"org_id": named.id})).await;
    assert_eq!(to_org["org_name"], Value::Null);
    let repeated = grant(&world, &path, json!({"org_id": named.id})).await;
    assert_eq!(repeated, to_org);
    let to_domain = grant(&world, &path, json!({"domain": "LAB.example"})).await;
    assert_eq!(to_domain["domain"], "lab.example");
    // An organization that does not exist has no effect, and the response is the same.
    let nobody = json!({"org_id": assay_core::OrgId::random().unwrap().as_str()});
    let to_nobody = grant(&world, &path, nobody).await;
    let fields = |grant: &Value| -> BTreeSet<String> {
        grant.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(fields(&to_nobody), fields(&to_org));
    assert!(sees(&world, &named, &path).await && sees(&world, &verified, &path).await);
    assert!(!sees(&world, &unknown, &path).await);
    let listed = world
        .key()
        .get(&format!("{path}/grants"))
        .await
        .expect_status(200)
        .body;
    assert_eq!(listed["grants"], json!([to_nobody, to_domain, to_org]));
    let body = json!({
        "suite_id": &path["/v1/suites/".len()..],
        "predictions": [{"item_id": "i0", "prediction": "a0"}],
    });
    let client = world.client(&named.key);
    client.post("/v1/evals", &body).await.expect_status(202);
    let revoke = format!("/v1/grants/{}", string(&to_org["id"]));
    let other = world.client(&verified.key);
    other.delete(&revoke).await.expect_error(404, "not_found");
    world.key().delete(&revoke).await.expect_status(204);
    assert!(!sees(&world, &named, &path).await);
    client
        .post("/v1/evals", &body)
        .await
        .expect_error(422, "validation_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_use_link_has_one_winner() {
    let world = world().await;
    let path = own_suite(&world).await;
    let rounds = 5;
    for _ in 0..rounds {
        let made = grant(&world, &path, json!({"link": {}})).await;
        let token = json!({"token": made["token"]});
        let orgs = [
            org(&world.stack, "team").await,
            org(&world.stack, "team").await,
        ];
        let clients = orgs.each_ref().map(|org| world.client(&org.session));
        // Two organizations at once, and each of them twice.
        let accept = async |client: &Client| client.post("/v1/grants/accept", &token).await;
        let (a, b, c, d) = tokio::join!(
            accept(&clients[0]),
            accept(&clients[1]),
            accept(&clients[0]),
            accept(&clients[1])
        );
        let statuses = [a, b, c, d].map(|response| response.unwrap().status);
        let won: Vec<bool> = vec![
            sees(&world, &orgs[0], &path).await,
            sees(&world, &orgs[1], &path).await,
        ];
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{statuses:?}");
        for (status, won) in statuses.iter().zip([won[0], won[1], won[0], won[1]]) {
            assert_eq!(*status, if won { 200 } else { 404 }, "{statuses:?}");
        }
        let listed = world
            .key()
            .get(&format!("{path}/grants"))
            .await
            .expect_status(200)
            .body;
        let listed = listed["grants"].as_array().unwrap();
        let link = listed.iter().find(|one| one["id"] == made["id"]).unwrap();
        assert_eq!((&link["uses"], &link["max_uses"]), (&json!(1), &json!(1)));
        assert!(link.get("token").is_none());
        let accepted = listed.iter().filter(|one| one["kind"] == "org");
        assert!(accepted.clone().count() >= 1);
        assert!(accepted.clone().all(|one| one["org_name"].is_string()));
    }
    let expired = grant(&world, &path, json!({"link": {"expires_in_days": 1}})).await;
    sqlx::query("update suite_grants set expires_at = now() where id = $1")
        .bind(string(&expired["id"]))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let late = world.client(&org(&world.stack, "team").await.session);
    let token = json!({"token": expired["token"]});
    late.post("/v1/grants/accept", &token)
        .await
        .expect_error(404, "not_found");
    for (body, field) in [
        (json!({"link": {"max_uses": 0}}), "link.max_uses"),
        (
            json!({"link": {"expires_in_days": 31}}),
            "link.expires_in_days",
        ),
        (json!({"link": {"uses": 1}}), "link"),
        (json!({"org_id": "acme"}), "org_id"),
        (json!({"domain": "localhost:80"}), "domain"),
        (json!({}), "body"),
        (json!({"domain": "a.example", "link": {}}), "body"),
    ] {
        let refused = world
            .key()
            .post(&format!("{path}/grants"), &body)
            .await
            .unwrap();
        assert_eq!(refusal(&refused).0, field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_edits_and_grants() {
    let world = world().await;
    let path = own_suite(&world).await;
    let suite = &path["/v1/suites/".len()..];
    let cli = Cli::new(&world).with_key(&world.org.key);
    let shown = cli.run(&["suite", "show", suite]).await.json();
    assert_eq!(shown["visibility"], "private");
    let own = cli.run(&["suite", "list", "--own"]).await.json();
    assert_eq!(own["suite_id"], suite);
    let edit = ["suite", "edit", suite, "--title", "Votes", "--tag", "votes"];
    let link = ["--link", "Paper=https://acme.example/votes"];
    let edited = cli.run(&[&edit[..], &link[..]].concat()).await.json();
    assert_eq!(
        (&edited["title"], &edited["links"]),
        (
            &json!("Votes"),
            &json!([{"label": "Paper", "url": "https://acme.example/votes"}])
        )
    );
    let nothing = cli.run(&["suite", "edit", suite]).await;
    nothing.assert(6);
    let note = ["suite", "erratum", suite, "1", "Item 7 is ambiguous."];
    cli.run(&note).await.assert(0);
    let version = cli.run(&["suite", "versions", suite]).await.json();
    assert_eq!(version["errata"][0]["note"], "Item 7 is ambiguous.");
    let grant = ["suite", "grant", suite];
    let to_domain = [&grant[..], &["--domain", "lab.example"]].concat();
    let to_domain = cli.run(&to_domain).await.json();
    let link = [&grant[..], &["--link", "--max-uses", "2"]].concat();
    let link = cli.run(&link).await.json();
    let token = string(&link["token"]);
    cli.run(&[&grant[..], &["--link", "--to", "org_0"]].concat())
        .await
        .assert(2);
    let other = org(&world.stack, "team").await;
    let guest = Cli::new(&world).with_key(&other.session);
    let accepted = guest
        .shell(&format!("echo {token} | assay suite accept"))
        .await;
    assert_eq!(accepted.json()["suite_id"], suite);
    let revoke = ["suite", "revoke", &string(&to_domain["id"])];
    cli.run(&revoke).await.assert(0);
    let grants = cli.run(&["suite", "grants", suite, "-f", "id"]).await.out;
    assert_eq!(grants.lines().count(), 2, "{grants}");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_audits_a_folder_as_the_operator_does() {
    let world = world().await;
    let cli = Cli::new(&world);
    let folder = world.stack.ground.servers.folder().join("audited");
    assay_tests::demo_suite::write(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let audited = cli.run(&["suite", "audit", folder]).await;
    let expected = world.stack.operate(&["suite", "audit", folder]).await;
    assert_eq!(audited.json(), expected.unwrap());
    let table = cli.run(&["suite", "audit", folder, "-f", "table"]).await;
    assert!(table.out.contains("ladder(0.1)"), "{}", table.out);
}
