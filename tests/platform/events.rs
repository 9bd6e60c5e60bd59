//! The event feed: `/v1/events`.

use std::collections::HashSet;
use std::time::Duration;

use assay_core::model::event::EventCursor;
use assay_tests::client::Client;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, before_longest_wait, field_error, field_errors, one_prediction, org,
    shared_world, string, wait_until, world, world_with,
};
use crate::{feedback, mail};

/// Returns all events with a type that a client sees, the oldest first.
async fn events(client: &Client, r#type: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut path = format!("/v1/events?type={type}&limit=2");
    loop {
        let page = client.get(&path).await.expect_status(200);
        let events = page.body["events"].as_array().unwrap().clone();
        if events.is_empty() {
            return all;
        }
        all.extend(events);
        path = format!(
            "/v1/events?type={type}&limit=2&cursor={}",
            string(&page.body["next_cursor"])
        );
    }
}

/// Waits until a client sees this many events with a type, and returns them. An event appears
/// when the transactions before it have ended.
async fn wait_for_events(client: &Client, r#type: &str, count: usize) -> Vec<Value> {
    wait_until("events", async || {
        events(client, r#type).await.len() >= count
    })
    .await;
    let found = events(client, r#type).await;
    assert_eq!(found.len(), count, "{type}: {found:?}");
    found
}

/// Restarts the API processes, which send due notices when they start.
pub async fn restart(world: &mut World) {
    world.stack.apis.clear();
    for _ in 0..2 {
        world.stack.apis.push(world.stack.launch_api().unwrap());
    }
    for api in &world.stack.apis {
        api.ready().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_jobs_carry_the_job() {
    let mut world = world().await;
    let key = world.key();
    let succeeded = world.submit_and_wait(&one_prediction()).await;
    world.stack.workers.clear();
    let queued = string(&world.submit(&one_prediction()).await.body["id"]);
    let cancel = key.request("POST", &format!("/v1/jobs/{queued}/cancel"));
    key.send(cancel).await.expect_status(200);
    let failed = string(&world.submit(&one_prediction()).await.body["id"]);
    let fail = "update jobs set status = 'failed', finished_at = now(), error_code = 'internal' where id = $1";
    sqlx::query(fail)
        .bind(&failed)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for (r#type, id) in [
        ("job.succeeded", string(&succeeded["id"])),
        ("job.cancelled", queued),
        ("job.failed", failed),
    ] {
        let found = wait_for_events(&key, r#type, 1).await;
        let job = key.get(&format!("/v1/jobs/{id}")).await.unwrap();
        assert_eq!(found[0]["data"], job.body);
        assert_eq!(found[0]["type"], r#type);
        assert_eq!(found[0]["org_id"], json!(world.org.id));
        assert_eq!(string(&found[0]["id"]), format!("evt_{}", &id[4..]));
    }
    let other = org(&world.stack, "team").await;
    let theirs = world
        .client(&other.key)
        .get("/v1/events?type=job.succeeded")
        .await
        .unwrap();
    assert_eq!(
        theirs.body["events"],
        json!([]),
        "another organization sees nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_keys_and_members_are_events() {
    let world = shared_world().await;
    let owner = world.owner();
    let before = wait_for_events(&owner, "member.added", 1).await.len();
    let made = owner
        .post("/v1/keys", &json!({"name": "one"}))
        .await
        .unwrap();
    let id = string(&made.body["id"]);
    let rotated = owner
        .send(owner.request("POST", &format!("/v1/keys/{id}/rotate")))
        .await
        .unwrap();
    let revoked = owner.delete(&format!("/v1/keys/{id}")).await.unwrap();
    let created = wait_for_events(&owner, "key.created", 3).await;
    let without_secret = |key: &Value| {
        let mut key = key.clone();
        assert!(key.as_object_mut().unwrap().remove("key").is_some());
        key
    };
    assert_eq!(created[1]["data"], without_secret(&made.body));
    assert_eq!(created[2]["data"], without_secret(&rotated.body));
    assert_eq!(
        wait_for_events(&owner, "key.revoked", 1).await[0]["data"],
        revoked.body
    );

    world.member("viewer").await;
    let member = owner.get("/v1/members").await.unwrap().body["members"][1].clone();
    let added = wait_for_events(&owner, "member.added", before + 1).await;
    assert_eq!(added[before]["data"], member);
    let path = format!("/v1/members/{}", string(&member["user_id"]));
    for _ in 0..2 {
        // The repetition changes nothing.
        let patch = owner
            .request("PATCH", &path)
            .json(&json!({"role": "member"}));
        owner.send(patch).await.expect_status(200);
    }
    let promoted = wait_for_events(&owner, "member.role_changed", 1).await;
    assert_eq!(promoted[0]["data"]["role"], "member");
    owner.delete(&path).await.expect_status(204);
    let removed = wait_for_events(&owner, "member.removed", 1).await;
    assert_eq!(removed[0]["data"], promoted[0]["data"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_refused_change_does_not_exist() {
    let world = world().await;
    let owner = world.owner();
    let before = wait_for_events(&owner, "key.created", 1).await;
    let viewer = world.member("viewer").await;
    let sql = "revoke insert on events from assay_api";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    owner
        .post("/v1/keys", &json!({"name": "unannounced"}))
        .await
        .expect_status(500);
    let keys = owner.get("/v1/keys").await.unwrap();
    assert_eq!(keys.body["keys"].as_array().unwrap().len(), 1);
    viewer
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_status(403);
    assert_eq!(events(&owner, "key.created").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn published_suite_is_an_event() {
    let world = world().await;
    let key = world.key();
    feedback::publish(&world, "1").await;
    feedback::publish(&world, "2").await;
    let found = wait_for_events(&key, "suite.published", 2).await;
    let versions: Vec<_> = found
        .iter()
        .map(|event| &event["data"]["version"])
        .collect();
    assert_eq!(versions, ["1", "2"]);
    let suites = key.get("/v1/suites").await.unwrap().body["suites"].clone();
    assert!(suites.as_array().unwrap().contains(&found[1]["data"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_all_organizations_is_stored_once() {
    let world = world().await;
    let others = [
        world.client(&org(&world.stack, "team").await.key),
        world.client(&org(&world.stack, "free").await.key),
    ];
    let mut database = world.database().await;
    let count = "select (select count(*) from shared_events), (select count(*) from events where suite_id is not null)";
    let mut rows = async || -> (i64, i64) {
        sqlx::query_as(count)
            .fetch_one(&mut database)
            .await
            .unwrap()
    };
    let before = rows().await;
    feedback::publish(&world, "1").await;
    let world_events = wait_for_events(&world.key(), "suite.published", 1).await;
    for other in &others {
        let found = wait_for_events(other, "suite.published", 1).await;
        assert_eq!(found[0]["id"], world_events[0]["id"]);
        assert_ne!(found[0]["org_id"], world_events[0]["org_id"]);
    }
    assert_eq!(rows().await, (before.0 + 1, before.1));
    // An organization has the events since it was created.
    let later = world.client(&org(&world.stack, "free").await.key);
    feedback::publish(&world, "2").await;
    let found = wait_for_events(&later, "suite.published", 1).await;
    assert_eq!(found[0]["data"]["version"], "2");
    // They are in one order with its own events, whatever a page's size.
    let all = others[0].get("/v1/events?limit=200").await.unwrap().body;
    let all = all["events"].as_array().unwrap();
    assert!(all.len() > 1, "{all:?}");
    let mut paged = Vec::new();
    let mut cursor = String::new();
    while paged.len() < all.len() {
        let page = format!("/v1/events?limit=1{cursor}");
        let page = others[0].get(&page).await.unwrap().body;
        paged.extend(page["events"].as_array().unwrap().clone());
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap());
    }
    assert_eq!(paged, *all);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_an_open_transaction_is_not_skipped() {
    let world = shared_world().await;
    let key = world.key();
    let insert =
        "insert into events (org_id, id, type, data) values ($1, $2, 'job.succeeded', '{}')";
    let mut slow = world.database().await;
    sqlx::raw_sql("begin").execute(&mut slow).await.unwrap();
    sqlx::query(insert)
        .bind(&world.org.id)
        .bind("evt_first")
        .execute(&mut slow)
        .await
        .unwrap();
    let mut fast = world.database().await;
    sqlx::query(insert)
        .bind(&world.org.id)
        .bind("evt_second")
        .execute(&mut fast)
        .await
        .unwrap();
    // The second event is stored, but a reader that saw it would not see the first one later.
    assert_eq!(events(&key, "job.succeeded").await, Vec::<Value>::new());
    sqlx::raw_sql("commit").execute(&mut slow).await.unwrap();
    let found = wait_for_events(&key, "job.succeeded", 2).await;
    let ids: Vec<_> = found.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, ["evt_first", "evt_second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_sees_every_event_once() {
    const WRITERS: usize = 8;
    const EVENTS: usize = 40;
    let world = shared_world().await;
    let insert =
        "insert into events (org_id, id, type, data) values ($1, $2, 'job.succeeded', '{}')";
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (url, org_id) = (world.stack.database.owner_url.clone(), world.org.id.clone());
            tokio::spawn(async move {
                let mut db = assay_tests::databases::connect(&url).await.unwrap();
                for number in 0..EVENTS {
                    // The transactions last differently long, so that they commit in another order.
                    sqlx::raw_sql("begin").execute(&mut db).await.unwrap();
                    sqlx::query(insert)
                        .bind(&org_id)
                        .bind(format!("evt_{writer}x{number}"))
                        .execute(&mut db)
                        .await
                        .unwrap();
                    tokio::time::sleep(Duration::from_millis(
                        (writer as u64 * 7 + number as u64) % 20,
                    ))
                    .await;
                    sqlx::raw_sql("commit").execute(&mut db).await.unwrap();
                }
            })
        })
        .collect();
    let key = world.key();
    let mut seen = Vec::new();
    let mut path = String::from("/v1/events?limit=7&wait=5");
    // Other tests on the same server can hold events back for a while.
    wait_until("all events", async || {
        let page = key.get(&path).await.expect_status(200);
        let events = page.body["events"].as_array().unwrap();
        let jobs = events
            .iter()
            .filter(|event| event["type"] == "job.succeeded");
        seen.extend(jobs.map(|event| string(&event["id"])));
        path = format!(
            "/v1/events?limit=7&wait=5&cursor={}",
            string(&page.body["next_cursor"])
        );
        seen.len() >= WRITERS * EVENTS
    })
    .await;
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(
        seen.iter().collect::<HashSet<_>>().len(),
        WRITERS * EVENTS,
        "none twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_request_returns_with_the_event() {
    let world = shared_world().await;
    let key = world.key();
    let empty = key
        .get("/v1/events?type=job.succeeded&wait=1")
        .await
        .expect_status(200);
    assert_eq!(empty.body["events"], json!([]));
    let mut cursor = string(&empty.body["next_cursor"]);
    before_longest_wait(&key, async || {
        let path = format!("/v1/events?type=job.succeeded&wait=30&cursor={cursor}");
        let (page, job) = tokio::join!(key.get(&path), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.submit(&one_prediction()).await
        });
        let page = page.unwrap();
        assert_eq!(page.body["events"][0]["data"]["id"], job.body["id"]);
        cursor = string(&page.body["next_cursor"]);
    })
    .await;
    for query in [
        "wait=31",
        "wait=-1",
        "limit=0",
        "cursor=x",
        "type=job.lost",
        "since=1",
    ] {
        key.get(&format!("/v1/events?{query}"))
            .await
            .expect_error(422, "validation_failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_sees_events_of_its_scopes() {
    let world = shared_world().await;
    let owner = world.owner();
    world.submit_and_wait(&one_prediction()).await;
    let body = json!({"name": "jobs", "scopes": ["jobs:read"]});
    let narrow = owner.post("/v1/keys", &body).await.unwrap();
    let narrow = world.client(&string(&narrow.body["key"]));
    wait_for_events(&owner, "job.succeeded", 1).await;
    wait_for_events(&owner, "key.created", 2).await;
    let types = async |client: &Client| -> HashSet<String> {
        let page = client.get("/v1/events").await.unwrap();
        let events = page.body["events"].as_array().unwrap().clone();
        events.iter().map(|event| string(&event["type"])).collect()
    };
    assert_eq!(
        types(&narrow).await,
        HashSet::from(["job.succeeded".to_owned()])
    );
    for client in [world.key(), owner] {
        assert!(types(&client).await.contains("key.created"));
    }
    let usage = narrow
        .get("/v1/events?type=usage.threshold")
        .await
        .expect_status(403);
    assert_eq!(
        usage.body["error"]["details"],
        json!({"reason": "scope", "required": "usage:read"})
    );
    narrow
        .get("/v1/events?type=key.created")
        .await
        .expect_error(403, "session_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn expiring_key_is_announced_once() {
    let mut world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let owner = world.owner();
    let mut ids = Vec::new();
    for name in ["expiring", "replaced", "revoked", "brief"] {
        let body = json!({"name": name, "expires_at": "2100-01-01T00:00:00Z"});
        ids.push(string(
            &owner.post("/v1/keys", &body).await.unwrap().body["id"],
        ));
    }
    let rotate = owner.request("POST", &format!("/v1/keys/{}/rotate", ids[1]));
    owner
        .send(rotate.json(&json!({"overlap_hours": 720})))
        .await
        .expect_status(201);
    let revoke = owner.request("DELETE", &format!("/v1/keys/{}", ids[2]));
    owner.send(revoke).await.expect_status(200);
    let set = async |world: &World, days: f64, age: f64| {
        let sql = "update api_keys set expires_at = now() + $2 * interval '1 day', created_at = now() - $3 * interval '1 day'
                   where id = any($1)";
        sqlx::query(sql)
            .bind(&ids)
            .bind(days)
            .bind(age)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    };
    // A key that is created with a week to live is not announced at once.
    let brief = async |world: &World, age: f64| {
        let sql = "update api_keys set created_at = now() - $2 * interval '1 day' where id = $1";
        sqlx::query(sql)
            .bind(&ids[3])
            .bind(age)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    };
    for (days, expected) in [(13.5, 1), (13.0, 1), (6.5, 2), (0.5, 3), (0.4, 3)] {
        set(&world, days, 30.0).await;
        brief(&world, 0.0).await;
        restart(&mut world).await;
        let owner = world.owner();
        wait_for_events(&owner, "key.expiring", expected).await;
    }
    let owner = world.owner();
    let found = events(&owner, "key.expiring").await;
    assert!(
        found
            .iter()
            .all(|event| event["data"]["id"] == json!(ids[0])),
        "{found:?}"
    );
    wait_until("three emails", async || {
        mail::mails(&world, &world.org.email).len() == 3
    })
    .await;
    for mail in mail::mails(&world, &world.org.email) {
        assert_eq!(mail.subject, "API keys expire soon");
        assert!(
            mail.text.contains("“expiring”") && mail.text.contains(&ids[0]),
            "{}",
            mail.text
        );
        assert!(!ids[1..].iter().any(|id| mail.text.contains(id)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reached_limit_is_an_event_once() {
    let mut world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let use_items = async |world: &World, eval_items: i64| {
        let sql = "insert into usage (org_id, period_start, eval_items)
                   values ($1, date_trunc('month', now() at time zone 'UTC') at time zone 'UTC', $2)
                   on conflict (org_id, period_start) do update set eval_items = excluded.eval_items";
        sqlx::query(sql)
            .bind(&world.org.id)
            .bind(eval_items)
            .execute(&mut world.database().await)
            .await
            .unwrap();
    };
    crate::harness::avoid_midnight().await;
    let max = world.key().get("/v1/usage").await.unwrap().body["limits"]["eval_items_per_month"]
        .as_i64()
        .unwrap();
    for (used, expected) in [
        (max * 8 / 10 - 1, vec![]),
        (max * 8 / 10, vec![80]),
        (max * 9 / 10, vec![80]),
        (max, vec![80, 100]),
    ] {
        use_items(&world, used).await;
        restart(&mut world).await;
        let found = wait_for_events(&world.key(), "usage.threshold", expected.len()).await;
        let percents: Vec<_> = found
            .iter()
            .map(|event| event["data"]["percent"].as_i64().unwrap())
            .collect();
        assert_eq!(percents, expected);
        for event in found {
            assert_eq!(
                json!([event["data"]["limit"], event["data"]["max"]]),
                json!(["eval_items_per_month", max])
            );
        }
    }
    // A larger plan has its own thresholds.
    let larger =
        "update plans set eval_items_per_month = eval_items_per_month * 10 where plan = 'team'";
    sqlx::raw_sql(larger)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    use_items(&world, max * 9).await;
    restart(&mut world).await;
    let found = wait_for_events(&world.key(), "usage.threshold", 3).await;
    assert_eq!(found[2]["data"]["percent"], 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_member_is_erased_from_events() {
    let world = shared_world().await;
    let owner = world.owner();
    let member = world.member("member").await;
    member.get("/v1/me").await.expect_status(200);
    let members = owner.get("/v1/members").await.unwrap();
    let email = string(&members.body["members"][1]["email"]);
    world
        .stack
        .operate(&["user", "erase", "--email", &email])
        .await
        .unwrap();
    let removed = wait_for_events(&owner, "member.removed", 1).await;
    assert!(string(&removed[0]["data"]["email"]).starts_with("erased usr_"));
    assert!(
        !json!(events(&owner, "member.added").await)
            .to_string()
            .contains(&email)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_events_precede_new_ones() {
    let world = world().await;
    let key = world.key();
    let insert =
        "insert into events (org_id, id, type, data) values ($1, $2, 'job.succeeded', '{}')";
    let mut db = world.database().await;
    for id in ["evt_1", "evt_2"] {
        sqlx::query(insert)
            .bind(&world.org.id)
            .bind(id)
            .execute(&mut db)
            .await
            .unwrap();
    }
    let page = key.get("/v1/events").await.unwrap();
    let before = string(&page.body["next_cursor"]);
    // As after a dump's restore: the stored transactions are another server's, some earlier and some later
    // than this one's. Without a new number, evt_1 would follow evt_2 and every new event.
    let restored =
        "update events set xid = case id when 'evt_1' then '900000000001'::xid8 else '3'::xid8 end";
    sqlx::raw_sql(restored).execute(&mut db).await.unwrap();
    assert_eq!(events(&key, "job.succeeded").await.len(), 1);
    world.stack.operate(&["migrate"]).await.unwrap();
    sqlx::query(insert)
        .bind(&world.org.id)
        .bind("evt_3")
        .execute(&mut db)
        .await
        .unwrap();
    let found = wait_for_events(&key, "job.succeeded", 3).await;
    let ids: Vec<_> = found.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, ["evt_1", "evt_2", "evt_3"]);
    let cursor = EventCursor {
        xid: 900_000_000_002,
        position: 2,
    };
    // The other server's positions do not show which events a client has seen.
    for cursor in [cursor.to_string(), before] {
        let path = format!("/v1/events?cursor={cursor}");
        let old = key.get(&path).await.unwrap();
        assert_eq!(field_errors(&old), [field_error("cursor", "not_available")]);
    }
    let page = key.get("/v1/events").await.unwrap();
    let path = format!("/v1/events?cursor={}", string(&page.body["next_cursor"]));
    key.get(&path).await.expect_status(200);
}
