//! What a submission costs, and what holds when many come at once.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{code, org, text, world};

fn body(n: usize) -> Value {
    let predictions: Vec<_> = (0..n).map(|i| json!({"item_id": format!("i{i}"), "prediction": []})).collect();
    json!({"suite_id": "suite:lunch", "predictions": predictions})
}

async fn usage(world: &crate::harness::World, org: &str) -> (i64, i64) {
    let sql = "select coalesce((select sum(eval_items) from usage where org_id = $1), 0)::bigint,
                      coalesce((select sum(case kind when 'charge' then eval_items else -eval_items end) from usage_ledger where org_id = $1), 0)::bigint";
    sqlx::query_as(sql).bind(org).fetch_one(&mut world.database().await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_idempotency_key_makes_one_job_and_one_charge_whoever_is_first() {
    let world = crate::harness::world_of(assay_tests::stack::Plan { apis: 2, ..Default::default() }).await;
    let apis: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| assay_tests::client::Client::new(format!("http://{}", api.listen.unwrap()), Some(&world.org.key)))
        .collect();
    for round in 0..5 {
        let all = join_all((0..50).map(|i| {
            let client = &apis[i % 2];
            let request = client.request("POST", "/v1/evals").header("idempotency-key", format!("round-{round}")).json(&body(3));
            async move { client.send(request).await.unwrap() }
        }))
        .await;
        assert!(all.iter().all(|answer| answer.status == 202), "{:?}", all.iter().find(|answer| answer.status != 202));
        assert_eq!(all.iter().filter(|answer| answer.header("idempotency-replayed").is_empty()).count(), 1);
        assert!(all.iter().all(|answer| answer.body["id"] == all[0].body["id"]));
        assert_eq!(usage(&world, &world.org.id).await, (3 * (round + 1), 3 * (round + 1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_month_takes_exactly_what_fits_and_the_refusal_says_when_it_resets() {
    let world = crate::harness::world_of(assay_tests::stack::Plan { apis: 2, workers: 0, ..Default::default() }).await;
    let set = "update plans set eval_items_per_month = 100, concurrent_jobs = 1000 where plan = 'team'";
    sqlx::raw_sql(set).execute(&mut world.database().await).await.unwrap();
    // The very first submissions of the month are among those that race.
    let body = body(7);
    let all = join_all((0..60).map(|i| {
        let api = world.stack.apis[i % 2].listen.unwrap();
        let client = assay_tests::client::Client::new(format!("http://{api}"), Some(&world.org.key));
        let body = &body;
        async move { client.post("/v1/evals", body).await.unwrap() }
    }))
    .await;
    assert_eq!(all.iter().filter(|answer| answer.status == 202).count(), 14, "14 · 7 = 98");
    assert_eq!(usage(&world, &world.org.id).await, (98, 98));
    let refused = all.iter().find(|answer| answer.status != 202).unwrap();
    assert_eq!((refused.status, code(refused)), (429, "quota_exceeded".to_owned()));
    let details = &refused.body["error"]["details"];
    assert_eq!((&details["limit"], &details["max"]), (&"eval_items_per_month".into(), &100.into()));
    assert!(text(&details["resets_at"]).ends_with("-01T00:00:00.000000Z"), "{details}");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
    let artifacts = world.stack.ground.servers.folder().join(format!("{}-artifacts/{}", world.stack.database.name, world.org.id));
    let kept = std::fs::read_dir(artifacts).unwrap().count();
    assert_eq!(kept, 14, "what was refused leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_jobs_are_active_than_the_plan_allows() {
    let world = crate::harness::world_of(assay_tests::stack::Plan { apis: 2, workers: 0, ..Default::default() }).await;
    let free = org(&world.stack, "free").await;
    let body = body(1);
    let all = join_all((0..50).map(|i| {
        let api = world.stack.apis[i % 2].listen.unwrap();
        let client = assay_tests::client::Client::new(format!("http://{api}"), Some(&free.key));
        let body = &body;
        async move { client.post("/v1/evals", body).await.unwrap() }
    }))
    .await;
    assert_eq!(all.iter().filter(|answer| answer.status == 202).count(), 2);
    let refused = all.iter().find(|answer| answer.status != 202).unwrap();
    assert_eq!((refused.status, code(refused)), (429, "quota_exceeded".to_owned()));
    let details = &refused.body["error"]["details"];
    assert_eq!((&details["limit"], &details["max"], &details["active"]), (&"concurrent_jobs".into(), &2.into(), &2.into()));
    assert!(details["resets_at"].is_string());
    assert_eq!(usage(&world, &free.id).await, (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_jobs_of_an_organization_share_a_moment() {
    let world = world().await;
    let body = body(1);
    let client = world.key();
    let all = join_all((0..40).map(|_| client.post("/v1/evals", &body))).await;
    let moments: std::collections::HashSet<_> = all.into_iter().map(|answer| text(&answer.unwrap().body["created_at"])).collect();
    assert_eq!(moments.len(), 40);
}
