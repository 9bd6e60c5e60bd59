//! Webhooks: signed deliveries of events, their repetition, and the addresses that they may reach.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use assay_tests::client::{Client, Response};
use assay_tests::databases;
use assay_tests::stack::{Process, StackSize, free_address};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::clients::{node_with, prepare, python_with, run_json, sources};
use crate::harness::{
    Expect, World, error_code, field_error, field_errors, long_test, one_prediction, org, pause,
    shared_world, string, wait_until, with_setting, world_with,
};
use crate::mail;
use crate::name_server::NameServer;
use crate::receiver::Receiver;
use crate::tls::authority;

fn local() -> StackSize {
    StackSize::default().with_local_receivers()
}

/// Returns the plan of a stack whose API does not deliver.
fn plan_without_delivery() -> StackSize {
    let mut plan = local();
    plan.env
        .insert("ASSAY_WEBHOOK_DELIVERY".into(), "false".into());
    plan
}

/// Launches a deliverer, and waits until it is ready.
async fn deliverer(world: &World) -> Process {
    let deliverer = world.stack.launch_deliverer().unwrap();
    deliverer.ready().await.unwrap();
    deliverer
}

/// An organization's webhook.
pub struct Webhook {
    owner: Client,
    path: String,
    secret: String,
}

impl Webhook {
    pub async fn create(owner: &Client, url: &str, events: &[&str]) -> Self {
        let body = json!({"url": url, "events": events});
        let created = owner.post("/v1/webhooks", &body).await.expect_status(201);
        Self {
            owner: owner.clone(),
            path: format!("/v1/webhooks/{}", string(&created.body["id"])),
            secret: string(&created.body["secret"]),
        }
    }

    async fn get(&self) -> Value {
        let found = self.owner.get(&self.path).await.expect_status(200);
        found.body
    }

    async fn patch(&self, body: Value) -> Value {
        let request = self.owner.request("PATCH", &self.path).json(&body);
        let patched = self.owner.send(request).await.expect_status(200);
        patched.body
    }

    async fn post(&self, action: &str, body: Value) -> Response {
        let path = format!("{}/{action}", self.path);
        self.owner.post(&path, &body).await.unwrap()
    }

    /// Sends a ping, and returns its delivery.
    pub async fn ping(&self) -> Value {
        let sent = self.post("test", json!({})).await.expect_status(202);
        sent.body
    }

    async fn deliveries(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut path = format!("{}/deliveries?limit=200", self.path);
        loop {
            let page = self.owner.get(&path).await.expect_status(200);
            all.extend(page.body["deliveries"].as_array().unwrap().clone());
            match page.body["next_before"].as_str() {
                Some(before) => {
                    path = format!("{}/deliveries?limit=200&before={before}", self.path);
                }
                None => return all,
            }
        }
    }

    async fn delivery(&self, id: &Value) -> Value {
        let all = self.deliveries().await;
        let found = all.into_iter().find(|delivery| delivery["id"] == *id);
        found.unwrap()
    }

    /// Waits until a delivery's attempt ends, and returns the delivery.
    async fn wait_for_attempt(&self, id: &Value) -> Value {
        wait_until("an attempt of a delivery", async || {
            !self.delivery(id).await["duration_ms"].is_null()
        })
        .await;
        self.delivery(id).await
    }
}

/// Returns the seconds from the last attempt of a delivery to the next one.
fn delay(delivery: &Value) -> f64 {
    let time = |field: &str| {
        let at: assay_core::Timestamp = string(&delivery[field]).parse().unwrap();
        at.unix_micros() as f64 / 1e6
    };
    time("next_attempt_at") - time("attempted_at")
}

async fn create_key(client: &Client) -> Value {
    let made = client.post("/v1/keys", &json!({"name": "one"})).await;
    made.unwrap().body
}

/// Creates a key, and waits until the feed shows its event.
async fn create_key_and_wait(client: &Client) -> Value {
    let key = create_key(client).await;
    wait_until("the event of a key", async || {
        let page = client.get("/v1/events?type=key.created").await.unwrap();
        let events = page.body["events"].as_array().unwrap().clone();
        events.iter().any(|event| event["data"]["id"] == key["id"])
    })
    .await;
    key
}

/// Makes all pending deliveries due.
async fn make_due(world: &World) {
    let sql = "update webhook_deliveries set next_attempt_at = now() where status = 'pending'";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

/// Makes all deliveries pending and due.
async fn make_all_pending(world: &World) {
    let sql = "update webhook_deliveries set status = 'pending', next_attempt_at = now()";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_delivered_as_the_feed_shows_them() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let owner = world.owner();
    let types = ["job.succeeded", "key.created"];
    let webhook = Webhook::create(&owner, &receiver.url("/hook?a=b"), &types).await;
    let other = org(&world.stack, "team").await;
    world.submit_and_wait(&one_prediction()).await;
    create_key(&owner).await;
    create_key(&world.client(&other.session)).await;
    let requests = receiver.wait_for("/hook?a=b", 2).await;
    let mut feed = Vec::new();
    for r#type in types {
        let page = owner.get(&format!("/v1/events?type={type}")).await.unwrap();
        feed.push(
            page.body["events"]
                .as_array()
                .unwrap()
                .last()
                .unwrap()
                .clone(),
        );
    }
    for request in &requests {
        let event = request.json();
        assert!(feed.contains(&event), "{event}");
        assert_eq!(string(&event["id"]), request.header("webhook-id"));
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("host"), receiver.address.to_string());
        assert!(request.header("user-agent").starts_with("Assay/"));
    }
    wait_until("both results", async || {
        let deliveries = webhook.deliveries().await;
        deliveries
            .iter()
            .filter(|one| one["status"] == "delivered")
            .count()
            == 2
    })
    .await;
    for delivery in webhook.deliveries().await {
        assert_eq!(delivery["attempt"], 1);
        assert_eq!(delivery["response_status"], 204);
        assert_eq!(delivery["error"], Value::Null);
        assert_eq!(delivery["next_attempt_at"], Value::Null);
        assert!(
            receiver
                .event_ids()
                .contains(&string(&delivery["event_id"]))
        );
    }
    let shown = webhook.get().await;
    assert!(shown["last_delivered_at"].is_string(), "{shown}");
    assert!(webhook.secret.ends_with(&string(&shown["secret_hint"])));
    assert_eq!(
        receiver.event_ids().len(),
        2,
        "not those of another organization"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn libraries_verify_signatures_during_a_rotation() {
    let folder = sources().join("webhooks");
    let requirements = folder.join("requirements.txt");
    let files = ["package.json", "package-lock.json", ".npmrc", "verify.mjs"];
    let python = prepare(move || python_with("webhooks", &requirements)).await;
    let node = prepare(move || node_with("webhooks", &files)).await;
    let (Some(python), Some(node)) = (python, node) else {
        return;
    };
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let webhook = Webhook::create(&world.owner(), &receiver.url("/hook"), &["ping"]).await;
    webhook.ping().await;
    let before = receiver.wait_for("/hook", 1).await.remove(0);
    let rotated = webhook
        .post("rotate", json!({"overlap_hours": 1}))
        .await
        .expect_status(201);
    let new_secret = string(&rotated.body["secret"]);
    assert_ne!(new_secret, webhook.secret);
    webhook.ping().await;
    let during = receiver.wait_for("/hook", 2).await.remove(1);
    let sql = "update webhooks set previous_secret_until = now()";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    webhook.ping().await;
    let after = receiver.wait_for("/hook", 3).await.remove(2);
    let signatures = |request: &crate::receiver::Received| {
        request.header("webhook-signature").split(' ').count()
    };
    assert_eq!([&before, &during, &after].map(signatures), [1, 2, 1]);
    let old = &webhook.secret;
    let mut changed = during.to_verify(&new_secret);
    changed["body"] = json!(string(&changed["body"]).replace("ping", "pong"));
    let cases = [
        (before.to_verify(old), true),
        (before.to_verify(&new_secret), false),
        (during.to_verify(old), true),
        (during.to_verify(&new_secret), true),
        (after.to_verify(old), false),
        (after.to_verify(&new_secret), true),
        (changed, false),
    ];
    let (requests, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let file = world.stack.ground.servers.folder().join("to-verify.json");
    std::fs::write(&file, json!(requests).to_string()).unwrap();
    let both = json!(expected.iter().map(|one| [one, one]).collect::<Vec<_>>());
    let by_python = run_json(&python, &[&folder.join("verify.py"), &file], &[]).await;
    assert_eq!(by_python, both);
    let script = node.join("verify.mjs");
    let by_node = run_json("node".as_ref(), &[&script, &file], &[]).await;
    assert_eq!(by_node, both);
}

#[tokio::test(flavor = "multi_thread")]
async fn troubled_receivers_are_classified() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    // It accepts connections and closes them.
    let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing_url = format!("http://{}/", closing.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = closing.accept().await {
            let _ = stream.read(&mut [0; 10]).await;
        }
    });
    let unused = format!("http://{}/", free_address().unwrap());
    let without_tls = format!("https://{}/", receiver.address);
    let day = 24.0 * 3600.0;
    // The shortest delay, and the delay of the next class: the database records the end of an
    // attempt late on a busy machine.
    let usual = (4.0, 600.0);
    let cases = [
        (receiver.url("/fails"), "status", json!(500), usual),
        (receiver.url("/redirects"), "status", json!(302), usual),
        (receiver.url("/limits"), "status", json!(429), (600.0, day)),
        (
            receiver.url("/is-unavailable"),
            "status",
            json!(503),
            (day, 2.0 * day),
        ),
        (closing_url, "connect", Value::Null, usual),
        (unused, "connect", Value::Null, usual),
        (without_tls, "tls", Value::Null, usual),
        (receiver.url("/hangs"), "timeout", Value::Null, usual),
    ];
    let owner = world.owner();
    for (url, error, status, delays) in cases {
        let webhook = Webhook::create(&owner, &url, &["ping"]).await;
        let ping = webhook.ping().await;
        let delivery = webhook.wait_for_attempt(&ping["id"]).await;
        assert_eq!(delivery["error"], error, "{url}: {delivery}");
        assert_eq!(delivery["response_status"], status, "{url}");
        assert_eq!(
            (&delivery["status"], &delivery["attempt"]),
            (&json!("pending"), &json!(1))
        );
        // The delay starts at the attempt's end.
        let waits = delay(&delivery) - delivery["duration_ms"].as_f64().unwrap() / 1e3;
        assert!(
            waits > delays.0 - 0.1 && waits < delays.1,
            "{url}: {waits} {delays:?}"
        );
        assert!(webhook.get().await["failing_since"].is_string());
    }
    assert!(receiver.received("/redirected").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempt_is_repeated_until_it_succeeds() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let owner = world.owner();
    let webhook = Webhook::create(&owner, &receiver.url("/fails-once"), &["ping"]).await;
    let ping = webhook.ping().await;
    let failed = webhook.wait_for_attempt(&ping["id"]).await;
    assert_eq!(failed["response_status"], 500);
    // Without help, after about 5 seconds.
    let requests = receiver.wait_for("/fails-once", 2).await;
    assert_eq!(
        requests[0].header("webhook-id"),
        requests[1].header("webhook-id")
    );
    assert_eq!(requests[0].body, requests[1].body);
    wait_until("the delivery", async || {
        webhook.delivery(&ping["id"]).await["status"] == "delivered"
    })
    .await;
    let delivered = webhook.delivery(&ping["id"]).await;
    assert_eq!(delivered["attempt"], 2);
    let time = |value: &Value| string(value).parse::<assay_core::Timestamp>().unwrap();
    assert!(
        time(&delivered["attempted_at"]) >= time(&failed["next_attempt_at"]),
        "{failed} {delivered}"
    );
    assert_eq!(webhook.get().await["failing_since"], Value::Null);

    // A receiver that always fails: ten attempts, then none is left.
    let failing = Webhook::create(&owner, &receiver.url("/fails"), &["ping"]).await;
    let ping = failing.ping().await;
    let mut db = world.database().await;
    wait_until("the last attempt", async || {
        let delivery = failing.delivery(&ping["id"]).await;
        // The lease of an attempt in progress is shorter.
        let make_due = "update webhook_deliveries set next_attempt_at = now() \
                        where next_attempt_at > now() + interval '31 seconds'";
        sqlx::raw_sql(make_due).execute(&mut db).await.unwrap();
        delivery["status"] == "failed"
    })
    .await;
    assert_eq!(receiver.received("/fails").len(), 10);
    assert_eq!(failing.delivery(&ping["id"]).await["attempt"], 10);
    let delivery = failing.delivery(&ping["id"]).await;
    assert_eq!(delivery["next_attempt_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_receiver_disables_its_webhook() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let owner = world.owner();
    let webhook = Webhook::create(&owner, &receiver.url("/is-gone"), &["ping"]).await;
    let ping = webhook.ping().await;
    wait_until("the webhook to be disabled", async || {
        webhook.get().await["enabled"] == false
    })
    .await;
    let disabled = webhook.get().await;
    assert_eq!(disabled["disabled_reason"], "gone");
    let delivery = webhook.delivery(&ping["id"]).await;
    assert_eq!(
        (&delivery["status"], &delivery["response_status"]),
        (&json!("failed"), &json!(410))
    );
    let mut found = Value::Null;
    wait_until("the event", async || {
        let events = owner.get("/v1/events?type=webhook.disabled").await.unwrap();
        found = events.body["events"][0]["data"].clone();
        found.is_object()
    })
    .await;
    assert_eq!(found, disabled);
    let log = owner.get("/v1/audit?type=webhook.disabled").await.unwrap();
    let entries = log.body["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["actor"]["type"], "platform");
    assert_eq!(
        entries[0]["target"],
        json!({"type": "webhook", "id": disabled["id"]})
    );
    assert_eq!(
        entries[0]["changes"],
        json!({
            "enabled": {"before": true, "after": false},
            "disabled_reason": {"before": null, "after": "gone"},
        })
    );
    let mail = mail::only_mail(&world, &world.org.email).await;
    assert_eq!(mail.subject, "A webhook was disabled");
    assert!(
        mail.text.contains(&string(&disabled["id"])) && mail.text.contains("410"),
        "{}",
        mail.text
    );
    // Enabled again, it forgets that the receiver was gone.
    let url = receiver.url("/hook");
    let enabled = webhook.patch(json!({"enabled": true, "url": url})).await;
    assert_eq!(
        [&enabled["disabled_reason"], &enabled["failing_since"]],
        [&Value::Null, &Value::Null]
    );
    webhook.ping().await;
    receiver.wait_for("/hook", 1).await;
    assert_eq!(webhook.get().await["enabled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_that_fails_for_five_days_is_disabled() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let webhook = Webhook::create(&world.owner(), &receiver.url("/fails"), &["ping"]).await;
    let ping = webhook.ping().await;
    webhook.wait_for_attempt(&ping["id"]).await;
    let mut db = world.database().await;
    let postpone = "update webhook_deliveries set next_attempt_at = now() + interval '1 hour'";
    sqlx::raw_sql(postpone).execute(&mut db).await.unwrap();
    let age = "update webhooks set failing_since = now() - $1 * interval '1 hour'";
    sqlx::query(age).bind(119.0).execute(&mut db).await.unwrap();
    pause("nothing to happen", Duration::from_secs(3)).await;
    assert_eq!(webhook.get().await["enabled"], true);
    sqlx::query(age).bind(120.1).execute(&mut db).await.unwrap();
    wait_until("the webhook to be disabled", async || {
        webhook.get().await["disabled_reason"] == "failing"
    })
    .await;
    let mail = mail::only_mail(&world, &world.org.email).await;
    assert!(
        mail.text.contains("no delivery has succeeded for 5 days"),
        "{}",
        mail.text
    );
    make_due(&world).await;
    pause("nothing to happen", Duration::from_secs(2)).await;
    assert_eq!(
        receiver.received("/fails").len(),
        1,
        "no attempt while it is disabled"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_webhook_receives_nothing() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let owner = world.owner();
    let webhook = Webhook::create(&owner, &receiver.url("/hook"), &["key.created"]).await;
    let disabled = webhook.patch(json!({"enabled": false})).await;
    assert_eq!(disabled["disabled_reason"], "owner");
    assert_eq!(webhook.patch(json!({"enabled": false})).await, disabled);
    let missed = create_key_and_wait(&owner).await;
    for (action, body) in [
        ("test", json!({})),
        ("recover", json!({"since": disabled["created_at"]})),
    ] {
        let refused = webhook.post(action, body).await;
        assert_eq!(refused.status, 409, "{action}: {}", refused.body);
        assert_eq!(error_code(&refused), "invalid_state");
    }
    let enabled = webhook.patch(json!({"enabled": true})).await;
    assert_eq!(enabled["disabled_reason"], Value::Null);
    let sent = create_key(&owner).await;
    let requests = receiver.wait_for("/hook", 1).await;
    assert_eq!(requests[0].json()["data"]["id"], sent["id"]);
    assert_eq!(webhook.deliveries().await.len(), 1);
    // What was missed can be recovered, and nothing is sent twice.
    webhook
        .post("recover", json!({"since": disabled["updated_at"]}))
        .await
        .expect_status(202);
    let requests = receiver.wait_for("/hook", 2).await;
    assert_eq!(requests[1].json()["data"]["id"], missed["id"]);
    pause("nothing to happen", Duration::from_secs(1)).await;
    assert_eq!(receiver.received("/hook").len(), 2);
    // A suspended organization gets nothing.
    let suspend = ["org", "suspend", "--org", &world.org.id];
    world.stack.operate(&suspend).await.unwrap();
    let event =
        "insert into events (org_id, id, type, data) values ($1, 'evt_1', 'key.created', '{}')";
    sqlx::query(event)
        .bind(&world.org.id)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    pause("nothing to happen", Duration::from_secs(1)).await;
    assert_eq!(receiver.received("/hook").len(), 2);
    // Nor is a delivery attempted that was pending.
    make_all_pending(&world).await;
    pause("nothing to happen", Duration::from_secs(2)).await;
    assert_eq!(receiver.received("/hook").len(), 2);
    let resume = ["org", "resume", "--org", &world.org.id];
    world.stack.operate(&resume).await.unwrap();
    receiver.wait_for("/hook", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_listed_retried_and_recovered() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let owner = world.owner();
    let before = create_key_and_wait(&owner).await;
    let webhook = Webhook::create(&owner, &receiver.url("/hook"), &["key.created"]).await;
    let mut pings = Vec::new();
    for _ in 0..3 {
        pings.push(webhook.ping().await);
    }
    receiver.wait_for("/hook", 3).await;
    let ping = &receiver.received("/hook")[0];
    assert_eq!(ping.json()["type"], "ping");
    assert_eq!(ping.json()["data"]["id"], webhook.get().await["id"]);
    let list = async |query: &str| {
        let page = owner
            .get(&format!("{}/deliveries?{query}", webhook.path))
            .await;
        page.unwrap()
    };
    let first = list("limit=2").await.body;
    let second = list(&format!("limit=2&before={}", string(&first["next_before"])))
        .await
        .body;
    assert_eq!(second.get("next_before"), None);
    let ids = |page: &Value| -> Vec<Value> {
        let deliveries = page["deliveries"].as_array().unwrap();
        deliveries
            .iter()
            .map(|delivery| delivery["id"].clone())
            .collect()
    };
    let newest_first: Vec<_> = pings.iter().rev().map(|ping| ping["id"].clone()).collect();
    assert_eq!([ids(&first), ids(&second)].concat(), newest_first);
    wait_until("the results", async || {
        ids(&list("status=delivered").await.body).len() == 3
    })
    .await;
    assert_eq!(ids(&list("status=failed").await.body), Vec::<Value>::new());
    let bad = list("status=lost&limit=0&before=x").await;
    assert_eq!(
        field_errors(&bad),
        [
            field_error("status", "unknown_value"),
            field_error("limit", "range"),
            field_error("before", "format"),
        ]
    );

    let retry = format!("deliveries/{}/retry", string(&pings[0]["id"]));
    let retried = webhook.post(&retry, Value::Null).await.expect_status(202);
    assert_eq!(retried.body["status"], "pending");
    let requests = receiver.wait_for("/hook", 4).await;
    assert_eq!(
        requests[3].header("webhook-id"),
        string(&pings[0]["event_id"])
    );
    // A test with another type has the newest event's data, and an id of its own.
    let test = webhook
        .post("test", json!({"type": "key.created"}))
        .await
        .expect_status(202);
    let requests = receiver.wait_for("/hook", 5).await;
    assert_eq!(requests[4].json()["data"]["id"], before["id"]);
    assert_eq!(requests[4].json()["id"], test.body["event_id"]);
    webhook
        .post("test", json!({"type": "key.revoked"}))
        .await
        .expect_error(409, "invalid_state");

    // Failed deliveries are recovered, and so are events from before the webhook, but no tests.
    let during = create_key(&owner).await;
    receiver.wait_for("/hook", 6).await;
    wait_until("the results", async || {
        ids(&list("status=delivered").await.body).len() == 5
    })
    .await;
    let mut db = world.database().await;
    let fail = "update webhook_deliveries set status = 'failed'";
    sqlx::raw_sql(fail).execute(&mut db).await.unwrap();
    let since = &before["created_at"];
    webhook
        .post("recover", json!({"since": since}))
        .await
        .expect_status(202);
    receiver.wait_for("/hook", 8).await;
    pause("nothing to happen", Duration::from_secs(1)).await;
    let requests = receiver.received("/hook");
    let recovered = requests[6..]
        .iter()
        .map(|one| string(&one.json()["data"]["id"]));
    let recovered: Vec<_> = recovered.collect();
    assert_eq!(recovered.len(), 2, "{recovered:?}");
    for key in [&before, &during] {
        assert!(recovered.contains(&string(&key["id"])), "{recovered:?}");
    }
    for (since, reason) in [
        (json!(null), "required"),
        (json!("yesterday"), "format"),
        (json!("2020-01-01T00:00:00Z"), "range"),
        (json!("2999-01-01T00:00:00Z"), "range"),
    ] {
        let bad = webhook.post("recover", json!({"since": since})).await;
        assert_eq!(field_errors(&bad), [field_error("since", reason)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_validated_and_limited() {
    let world = shared_world().await;
    let owner = world.owner();
    let create = async |body: Value| owner.post("/v1/webhooks", &body).await.unwrap();
    let bad = create(json!({"url": "http://example.org/", "events": ["job", "ping", "ping"], "description": "\n"})).await;
    assert_eq!(
        field_errors(&bad),
        [
            field_error("url", "format"),
            field_error("events[0]", "unknown_value"),
            field_error("events[2]", "duplicate"),
            field_error("description", "required"),
        ]
    );
    let empty = create(json!({})).await;
    assert_eq!(field_errors(&empty)[0], field_error("url", "required"));
    let body =
        json!({"url": "https://receiver.invalid/", "events": ["ping"], "description": "one"});
    let mut paths = Vec::new();
    for _ in 0..10 {
        let made = create(body.clone()).await.expect_status(201);
        paths.push(format!("/v1/webhooks/{}", string(&made.body["id"])));
    }
    create(body.clone()).await.expect_error(409, "conflict");
    let other = org(&world.stack, "team").await;
    let other = world.client(&other.session);
    for path in [paths[0].clone(), format!("{}/deliveries", paths[0])] {
        other.get(&path).await.expect_status(404);
    }
    let delete = owner.request("DELETE", &paths[0]);
    owner.send(delete).await.expect_status(204);
    owner.get(&paths[0]).await.expect_status(404);
    create(body).await.expect_status(201);
    let patch = async |body: Value| {
        let request = owner.request("PATCH", &paths[1]).json(&body);
        owner.send(request).await.unwrap()
    };
    assert_eq!(
        patch(json!({"description": ""})).await.body["description"],
        Value::Null
    );
    assert_eq!(
        field_errors(&patch(json!({})).await),
        [field_error("body", "required")]
    );
    assert_eq!(
        field_errors(&patch(json!({"url": "https://127.0.0.1/", "events": []})).await),
        [
            field_error("url", "format"),
            field_error("events", "required")
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_without_key_has_no_webhooks() {
    let world = world_with(with_setting("ASSAY_WEBHOOK_KEY", "")).await;
    let body = json!({"url": "https://example.org/", "events": ["ping"]});
    let refused = world
        .owner()
        .post("/v1/webhooks", &body)
        .await
        .expect_error(409, "invalid_state");
    assert!(string(&refused.body["error"]["message"]).contains("ASSAY_WEBHOOK_KEY"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_delivery() {
    long_test!("kills deliverers and waits for repeated deliveries");
    const EVENTS: usize = 1_000;
    const KILLS: usize = 20;
    const EVENTS_OF_ALL: usize = EVENTS + KILLS / 4;
    let mut world = world_with(plan_without_delivery()).await;
    let receiver = Receiver::start().await;
    Webhook::create(&world.owner(), &receiver.url("/hook"), &["usage.threshold"]).await;
    let mut running = deliverer(&world).await;
    for kill in 1..=KILLS {
        insert_events(&world, &world.org.id, kill, EVENTS / KILLS).await;
        let before = receiver.event_ids().len();
        wait_until("deliveries", async || {
            receiver.event_ids().len() >= before + EVENTS / (KILLS * 2)
        })
        .await;
        running.guarded.signal(libc::SIGKILL);
        running = deliverer(&world).await;
        if kill % 4 == 0 {
            // While it may be storing the deliveries of the next events.
            insert_events(&world, &world.org.id, KILLS + kill, 1).await;
            world.stack.apis[0].guarded.signal(libc::SIGKILL);
            world.stack.apis[0] = world.stack.launch_api().unwrap();
            world.stack.apis[0].ready().await.unwrap();
        }
    }
    // Attempts of killed processes are repeated after 30 seconds.
    wait_until("all events", async || {
        let sql = "select count(*) from webhook_deliveries where status = 'delivered'";
        let delivered: i64 = sqlx::query_scalar(sql)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        delivered == EVENTS_OF_ALL as i64
    })
    .await;
    assert_eq!(receiver.event_ids().len(), EVENTS_OF_ALL);
    let mut bodies = BTreeMap::new();
    let requests = receiver.received("/hook");
    eprintln!("{} requests for {EVENTS_OF_ALL} events", requests.len());
    for request in requests {
        let id = request.header("webhook-id").to_owned();
        let body = bodies.entry(id).or_insert_with(|| request.body.clone());
        assert_eq!(*body, request.body, "a repetition is the same event");
    }
}

/// Inserts events that need no job. Each call for an organization has another `portion`.
async fn insert_events(world: &World, org_id: &str, portion: usize, count: usize) {
    let sql = "insert into events (org_id, id, type, data) \
               select $1, 'evt_' || md5($1 || $2::text || '-' || n), 'usage.threshold', jsonb_build_object('n', n) \
               from generate_series(1, $3::bigint) n";
    sqlx::query(sql)
        .bind(org_id)
        .bind(portion.to_string())
        .bind(count as i64)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_one_organization_does_not_delay_others() {
    const EVENTS: usize = 100_000;
    const SAMPLES: usize = 40;
    let world = world_with(plan_without_delivery()).await;
    let _deliverer = deliverer(&world).await;
    let receiver = Receiver::start().await;
    let flooding_org = org(&world.stack, "team").await;
    let flooding = world.client(&flooding_org.session);
    Webhook::create(&flooding, &receiver.url("/flood"), &["usage.threshold"]).await;
    // One of its receivers hangs.
    Webhook::create(&flooding, &receiver.url("/hangs"), &["usage.threshold"]).await;
    let owner = world.owner();
    Webhook::create(&owner, &receiver.url("/hook"), &["key.created"]).await;
    insert_events(&world, &flooding_org.id, 1, EVENTS).await;
    receiver.wait_for("/flood", 100).await;
    for sample in 0..SAMPLES {
        let made = create_key(&owner).await;
        let requests = receiver.wait_for("/hook", sample + 1).await;
        assert_eq!(requests[sample].json()["data"]["id"], made["id"]);
    }
    let left = "select count(*) from events e join webhooks w on w.org_id = e.org_id and (e.xid, e.position) > (w.xid, w.position) \
                where e.type = 'usage.threshold' and 'usage.threshold' = any(w.events)";
    let left: i64 = sqlx::query_scalar(left)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    let pending = "select count(*) from webhook_deliveries where status = 'pending'";
    let pending: i64 = sqlx::query_scalar(pending)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    // In a common waiting line, these events would be sent after the flood.
    assert!(
        left + pending > 10_000,
        "the flood ended too early: {left} and {pending}"
    );
}

/// Spellings of addresses that are not on the public internet.
const REFUSED_HOSTS: &[&str] = &[
    "127.0.0.1",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0177.1",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "0",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "167772161",
    "012.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "168.63.129.16",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "169.254.43518",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.257",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::8.8.8.8]",
    "[64:ff9b:1::1]",
    "[100::1]",
    "[2001::1]",
    "[2001:2::1]",
    "[2001:20::1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::]",
    "[3fff::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
];

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_are_not_public_are_refused() {
    let name_server = NameServer::start().await;
    let mut plan = with_setting("ASSAY_DNS_SERVER", &name_server.address.to_string());
    plan.env.insert("ASSAY_WEBHOOK_HTTP".into(), "true".into());
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    // The proxy of the environment must not be used: it can reach any address.
    for name in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ] {
        plan.env.insert(name.into(), receiver.url("/"));
    }
    let world = world_with(plan).await;
    let owner = world.owner();
    let webhook = Webhook::create(&owner, "https://receiver.example/", &["ping"]).await;
    for host in REFUSED_HOSTS {
        for scheme in ["http", "https"] {
            let body = json!({"url": format!("{scheme}://{host}:{port}/")});
            let request = owner.request("PATCH", &webhook.path).json(&body);
            owner.send(request).await.expect_status(422);
        }
    }
    // The same addresses by name, alone and together with a public one, and a URL that was stored before the
    // rules changed.
    let public: IpAddr = "8.8.8.8".parse().unwrap();
    let addresses: HashSet<IpAddr> = REFUSED_HOSTS
        .iter()
        .filter_map(|host| host.trim_matches(['[', ']']).parse().ok())
        .collect();
    assert!(addresses.len() > 45 && REFUSED_HOSTS.len() > 60);
    let mut urls = vec![
        (format!("http://127.0.0.1:{port}/"), "address"),
        (format!("http://[::1]:{port}/"), "address"),
        (format!("http://missing.example:{port}/"), "dns"),
        (format!("http://broken.example:{port}/"), "dns"),
    ];
    for (index, address) in addresses.into_iter().enumerate() {
        let (alone, mixed) = (
            format!("alone-{index}.example"),
            format!("also-{index}.example"),
        );
        name_server.resolve(&alone, &[&[address]]);
        name_server.resolve(&mixed, &[&[public, address]]);
        urls.push((format!("http://{alone}:{port}/"), "address"));
        urls.push((format!("http://{mixed}:{port}/"), "address"));
    }
    let mut db = world.database().await;
    let set_url = "update webhooks set url = $1";
    for (url, error) in urls {
        sqlx::query(set_url)
            .bind(&url)
            .execute(&mut db)
            .await
            .unwrap();
        let ping = webhook.ping().await;
        let delivery = webhook.wait_for_attempt(&ping["id"]).await;
        assert_eq!(delivery["error"], error, "{url}");
    }
    // The repetitions of earlier attempts would look the next name up as well.
    let end = "update webhook_deliveries set status = 'failed', next_attempt_at = null";
    sqlx::raw_sql(end).execute(&mut db).await.unwrap();
    // A name that changes between the look-up and the connection: each attempt looks it up once, and
    // connects to the address that it has checked. This one is public, and nothing listens there.
    let nothing: IpAddr = "192.31.196.1".parse().unwrap();
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    name_server.resolve("changes.example", &[&[nothing], &[loopback]]);
    let url = format!("http://changes.example:{port}/");
    sqlx::query(set_url)
        .bind(&url)
        .execute(&mut db)
        .await
        .unwrap();
    let ping = webhook.ping().await;
    let delivery = webhook.wait_for_attempt(&ping["id"]).await;
    let error = string(&delivery["error"]);
    assert!(
        ["connect", "timeout"].contains(&error.as_str()),
        "the public address is tried: {error}"
    );
    make_due(&world).await;
    wait_until("the second attempt", async || {
        webhook.delivery(&ping["id"]).await["error"] == "address"
    })
    .await;
    assert_eq!(
        receiver.event_ids().len(),
        0,
        "nothing has reached the receiver"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn https_receiver_must_have_a_trusted_certificate() {
    let folder = std::env::temp_dir().join(databases::fresh_name("authority"));
    std::fs::create_dir_all(&folder).unwrap();
    let (ca, acceptor) = authority(&folder);
    let name_server = NameServer::start().await;
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    for name in ["localhost", "other.example"] {
        name_server.resolve(name, &[&[loopback]]);
    }
    let mut plan = local();
    let settings = [
        // A name server is not asked for `localhost`, which also has an address of IPv6.
        ("ASSAY_WEBHOOK_NETWORKS", "127.0.0.0/8,::1/128".to_owned()),
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("SSL_CERT_FILE", ca.display().to_string()),
    ];
    plan.env
        .extend(settings.map(|(name, value)| (name.to_owned(), value)));
    let world = world_with(plan).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let receiver = Receiver::start().await;
    let plain = receiver.address;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut secured = acceptor.accept(stream).await?;
                let mut server = tokio::net::TcpStream::connect(plain).await?;
                tokio::io::copy_bidirectional(&mut secured, &mut server).await
            });
        }
    });
    let owner = world.owner();
    for (host, error) in [("localhost", Value::Null), ("other.example", json!("tls"))] {
        let url = format!("https://{host}:{port}/{host}");
        let webhook = Webhook::create(&owner, &url, &["ping"]).await;
        let ping = webhook.ping().await;
        let delivery = webhook.wait_for_attempt(&ping["id"]).await;
        assert_eq!(delivery["error"], error, "{url}");
    }
    assert_eq!(receiver.received("/localhost").len(), 1);
    assert_eq!(receiver.received("/other.example").len(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deliverer_can_read_deliveries_only() {
    let mut world = world_with(plan_without_delivery()).await;
    let mut db = databases::connect(&world.stack.database.delivery_url)
        .await
        .unwrap();
    for sql in [
        "select 1 from orgs",
        "select 1 from users",
        "select 1 from api_keys",
        "select 1 from sessions",
        "select 1 from jobs",
        "select 1 from events",
        "select 1 from suite_answers",
        "select 1 from audit_entries",
        "update webhooks set url = 'https://example.org/'",
        "update webhooks set enabled = true",
        "update webhook_payloads set body = ''",
        "insert into webhook_deliveries (org_id, webhook_id, id, event_id) values ('', '', '', '')",
        "delete from webhook_deliveries",
        "create table mine (id text)",
    ] {
        let refused = sqlx::raw_sql(sql).execute(&mut db).await.unwrap_err();
        assert!(
            refused.to_string().contains("permission denied"),
            "{sql}: {refused}"
        );
    }
    // A process with another role, or with credentials that it does not need, does not start.
    for url in [
        world.stack.database.api_url.clone(),
        world.stack.database.worker_url.clone(),
        world.stack.database.owner_url.clone(),
    ] {
        world.stack.database.delivery_url = url;
        let process = world.stack.launch_deliverer().unwrap();
        let refused = process.ready().await.unwrap_err().to_string();
        assert!(
            refused.contains("can read more than deliveries"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_webhook_continues_after_its_deliveries() {
    let world = world_with(local()).await;
    let receiver = Receiver::start().await;
    let types = ["usage.threshold", "key.created"];
    // A webhook begins before the transactions that are open on the server, also those of other tests.
    // The world's own key must not be after them.
    let mut db = world.database().await;
    let shown = "select not exists (select from events where xid >= pg_snapshot_xmin(pg_current_snapshot()))";
    wait_until("the feed shows all events", async || {
        sqlx::query_scalar(shown).fetch_one(&mut db).await.unwrap()
    })
    .await;
    let webhook = Webhook::create(&world.owner(), &receiver.url("/hook"), &types).await;
    insert_events(&world, &world.org.id, 1, 3).await;
    receiver.wait_for("/hook", 3).await;
    wait_until("the results", async || {
        let deliveries = webhook.deliveries().await;
        deliveries
            .iter()
            .filter(|one| one["status"] == "delivered")
            .count()
            == 3
    })
    .await;
    // As after a dump's restore: the stored transactions are later than all of this server, and one
    // event has no delivery yet.
    let restored = "update events set xid = (900000000000 + position)::text::xid8; \
                    update webhooks set xid = (select max(xid) from events), position = 9223372036854775807;
                    insert into events (xid, org_id, id, type, data) \
                    select '950000000000', org_id, 'evt_late', 'usage.threshold', '{}' from webhooks";
    sqlx::raw_sql(restored).execute(&mut db).await.unwrap();
    world.stack.operate(&["migrate"]).await.unwrap();
    create_key(&world.owner()).await;
    let requests = receiver.wait_for("/hook", 5).await;
    let last: HashSet<_> = requests[3..]
        .iter()
        .map(|one| string(&one.json()["type"]))
        .collect();
    assert_eq!(last, HashSet::from(types.map(String::from)));
    assert_eq!(webhook.deliveries().await.len(), 5);
}
