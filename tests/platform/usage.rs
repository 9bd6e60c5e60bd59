//! `GET /v1/usage`

use assay_proto::v1;
use assay_proto::v1::usage_service_client::UsageServiceClient;
use assay_tests::client::Client;
use assay_tests::stack::Plan;
use serde_json::json;
use std::time::Duration;

use crate::harness::{one_prediction, org, text, until, with_token, world_of};

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_the_month_the_totals_and_the_limits() {
    let world = world_of(Plan { workers: 0, ..Plan::default() }).await;
    world.submit(&one_prediction()).await;
    let usage = world.key().get("/v1/usage").await.unwrap().body;
    let (start, end) = (text(&usage["period_start"]), text(&usage["period_end"]));
    assert!(start.ends_with("-01T00:00:00.000000Z") && end.ends_with("-01T00:00:00.000000Z") && start < end, "{start} {end}");
    assert_eq!((&usage["org_id"], &usage["plan"], &usage["active_jobs"]), (&json!(world.org.id), &json!("team"), &json!(1)));
    assert_eq!(usage["limits"], json!({"concurrent_jobs": 50, "eval_items_per_month": 2_000_000}));
    assert_eq!(usage["totals"], json!({"eval_items": 1, "requests": 2}), "this request is one of them");
    let other = org(&world.stack, "free").await;
    let theirs = world.client(&other.key).get("/v1/usage").await.unwrap().body;
    assert_eq!((&theirs["totals"]["eval_items"], &theirs["active_jobs"]), (&json!(0), &json!(0)));

    let grpc = UsageServiceClient::new(world.channel().await).get_usage(with_token(v1::GetUsageRequest {}, &world.org.key)).await.unwrap();
    let grpc = grpc.into_inner().usage.unwrap();
    assert_eq!((grpc.org_id, grpc.plan, grpc.active_jobs), (world.org.id.clone(), "team".to_owned(), 1));
    assert_eq!(grpc.period_end.unwrap(), end.parse().unwrap());
    let (totals, limits) = (grpc.totals.unwrap(), grpc.limits.unwrap());
    assert_eq!((totals.eval_items, totals.requests, limits.concurrent_jobs, limits.eval_items_per_month), (1, 3, 50, 2_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_over_all_processes_and_survive_them() {
    let mut world = world_of(Plan { apis: 2, workers: 0, ..Plan::default() }).await;
    let clients: Vec<_> =
        world.stack.apis.iter().map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&world.org.key))).collect();
    for i in 0..20 {
        clients[i % 2].get("/v1/me").await.unwrap();
    }
    // Refused for their class, and yet they were requests; those without a credential belong to nobody.
    clients[0].get("/v1/keys").await.unwrap();
    world.anonymous().get("/v1/me").await.unwrap();
    // Whoever is told to end adds up what it has counted.
    let first = world.stack.apis.remove(0);
    first.guarded.signal(libc::SIGTERM);
    assert!(first.guarded.wait(Duration::from_secs(5)).unwrap().success());
    let mut asked = 0;
    until("all requests are counted", Duration::from_secs(5), async || {
        asked += 1;
        clients[1].get("/v1/usage").await.unwrap().body["totals"]["requests"] == 21 + asked
    })
    .await;
}
