//! The queue: its order, by the cost of the jobs and the weights of the plans, its totals, and the place
//! and the estimates of each job.

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::client::Client;
use assay_tests::site;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::dashboard::visitor::SESSION;
use crate::harness::{
    Expect, World, one_prediction, org, string, wait_until, with_setting, with_token, world_with,
};

/// An installation without workers. Each of its workers runs one job at a time.
async fn world() -> World {
    world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_WORKER_SLOTS", "1")
    })
    .await
}

/// Creates an organization on this plan, and returns a client with its key.
async fn client_of(world: &World, plan: &str) -> Client {
    world.client(&org(&world.stack, plan).await.key)
}

/// Submits an upload with this many predictions, and returns the job's id.
async fn submit(client: &Client, predictions: usize) -> String {
    let body = site::upload_predictions(client, predictions).await.unwrap();
    let submitted = client.post("/v1/evals", &body).await.expect_status(202);
    string(&submitted.body["id"])
}

/// Waits until all jobs have finished, and returns them in the order of their first attempts.
async fn order_of_starts(world: &World, jobs: usize) -> Vec<String> {
    let mut database = world.database().await;
    wait_until("all jobs to finish", async || {
        let finished: i64 =
            sqlx::query_scalar("select count(*) from jobs where status = 'succeeded'")
                .fetch_one(&mut database)
                .await
                .unwrap();
        usize::try_from(finished).unwrap() == jobs
    })
    .await;
    sqlx::query_scalar("select job_id from job_attempts order by started_at")
        .fetch_all(&mut database)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_start_in_the_order_of_cost_and_weight() {
    let world = world().await;
    world.widen_plans().await;
    for (plan, weight) in [("team", "4"), ("free", "1")] {
        let set = ["plan", "set", plan, "--queue-weight", weight];
        world.stack.operate(&set).await.unwrap();
    }
    let large = client_of(&world, "team").await;
    let small = client_of(&world, "free").await;
    // Each job takes longer than the time for which workers are notified ahead. Tasks that wait in
    // Redis together may start in any order.
    let mut expected = Vec::new();
    for turn in 0..3 {
        // The sort keys are 160,000, 320,000 and 480,000 divided by 4.
        expected.push((160 * (turn + 1), submit(&large, 160_000).await));
    }
    for turn in 0..3 {
        // And 45,000, 90,000 and 135,000 divided by 1.
        expected.push((180 * (turn + 1), submit(&small, 45_000).await));
    }
    expected.sort();
    let expected: Vec<String> = expected.into_iter().map(|(_, job_id)| job_id).collect();
    let _worker = world.stack.launch_worker().unwrap();
    assert_eq!(order_of_starts(&world, 6).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_another_organization_overtakes_a_flood() {
    let world = world().await;
    world.widen_plans().await;
    let flood = client_of(&world, "team").await;
    let other = client_of(&world, "team").await;
    let worker = world.stack.launch_worker().unwrap();
    worker.ready().await.unwrap();
    let hold = world.hold_answers().await;
    // Together they take longer than the time for which jobs are notified ahead.
    let first = submit(&flood, 100_000).await;
    let mut expected = vec![first.clone()];
    wait_until("the first job runs", async || {
        let job = flood.get(&format!("/v1/jobs/{first}")).await.unwrap();
        job.body["status"] == "running"
    })
    .await;
    let later = [submit(&flood, 100_000).await, submit(&flood, 100_000).await];
    expected.push(submit(&other, 10).await);
    expected.extend(later);
    hold.close().await.unwrap();
    assert_eq!(order_of_starts(&world, 4).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_jobs_run_without_an_api_process() {
    let mut world = world().await;
    let job_id = submit(&world.key(), 3).await;
    world.stack.apis.clear();
    let _worker = world.stack.launch_worker().unwrap();
    assert_eq!(order_of_starts(&world, 1).await, [job_id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_job_has_its_place_and_estimates() {
    let mut world = world_with(with_setting("ASSAY_WORKER_SLOTS", "1")).await;
    world.widen_plans().await;
    let first = world.submit(&one_prediction()).await.body;
    // Nothing is known about the workers yet.
    assert_eq!(
        first["queue"],
        json!({"ahead": 0, "estimated_start_at": null, "estimated_end_at": null, "estimated_end_by": null})
    );
    let job_id = string(&first["id"]);
    let finished = world.wait_until_finished(&job_id).await;
    assert_eq!(finished.get("queue"), None, "{finished}");
    for _ in 0..20 {
        world.submit_and_wait(&one_prediction()).await;
    }
    // Jobs are measured every five seconds.
    let has = async |field: &str| {
        let job = world.submit(&one_prediction()).await.body;
        world.wait_until_finished(&string(&job["id"])).await;
        !job["queue"][field].is_null()
    };
    wait_until("an estimate", async || has("estimated_end_at").await).await;
    for _ in 0..20 {
        world.submit_and_wait(&one_prediction()).await;
    }
    wait_until("a calibrated estimate", async || {
        has("estimated_end_by").await
    })
    .await;

    // A new worker, because the old one does not read the answers again.
    world.stack.workers.clear();
    let worker = world.stack.launch_worker().unwrap();
    worker.ready().await.unwrap();
    let hold = world.hold_answers().await;
    let running = submit(&world.key(), 100_000).await;
    world.wait_for_status(&running, "running").await;
    let waiting = [
        submit(&world.key(), 100_000).await,
        submit(&world.key(), 100_000).await,
    ];
    let queue = async |job_id: &str| {
        let job = world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap();
        job.body["queue"].clone()
    };
    wait_until("the places of all jobs", async || {
        let [first, second] = [queue(&waiting[0]).await, queue(&waiting[1]).await];
        (&first["ahead"], &second["ahead"]) == (&json!(0), &json!(1))
    })
    .await;
    let (first, second) = (queue(&waiting[0]).await, queue(&waiting[1]).await);
    // Timestamps in one format are ordered as text.
    let at = |queue: &Value, field: &str| string(&queue[field]);
    assert!(at(&first, "estimated_start_at") < at(&second, "estimated_start_at"));
    for queue in [&first, &second] {
        assert!(at(queue, "estimated_start_at") < at(queue, "estimated_end_at"));
        assert!(at(queue, "estimated_end_at") <= at(queue, "estimated_end_by"));
    }
    let running = queue(&running).await;
    assert_eq!(
        (&running["ahead"], &running["estimated_start_at"]),
        (&json!(0), &Value::Null)
    );
    let page = world
        .anonymous()
        .request("GET", &format!("/jobs/{}", waiting[1]));
    let page = page.header("cookie", format!("{SESSION}={}", world.org.session));
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Waiting jobs ahead of it: 1"), "{page}");
    assert!(page.contains("It will probably end at"), "{page}");
    let watched = JobServiceClient::new(world.channel().await)
        .get_job(with_token(
            v1::GetJobRequest {
                job_id: waiting[1].clone(),
                wait: None,
            },
            &world.org.key,
        ))
        .await
        .unwrap();
    let rpc_queue = watched.into_inner().job.unwrap().queue.unwrap();
    assert_eq!(rpc_queue.ahead, 1);
    assert!(rpc_queue.estimated_start_at.is_some());
    assert!(rpc_queue.estimated_end_at.is_some());
    assert!(rpc_queue.estimated_end_by.is_some());
    hold.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unclaimed_jobs_are_counted_as_ahead() {
    let world = world().await;
    world.widen_plans().await;
    let mut submitted = Vec::new();
    for _ in 0..12 {
        submitted.push(string(&world.submit(&one_prediction()).await.body["id"]));
    }
    let places = async || {
        let mut places = Vec::new();
        for job_id in &submitted {
            let job = world.key().get(&format!("/v1/jobs/{job_id}")).await;
            places.push(job.unwrap().body["queue"]["ahead"].as_i64().unwrap());
        }
        places
    };
    let in_order: Vec<i64> = (0..12).collect();
    wait_until("the places of all jobs", async || {
        places().await == in_order
    })
    .await;
    // Small jobs carry their notification, so it was sent for each.
    let notified: i64 = sqlx::query_scalar(
        "select count(*) from jobs where status = 'queued' and dispatched_at is not null",
    )
    .fetch_one(&mut world.database().await)
    .await
    .unwrap();
    assert_eq!(notified, 12);
    let _worker = world.stack.launch_worker().unwrap();
    for job_id in &submitted {
        world.wait_until_finished(job_id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_cover_all_organizations() {
    let world = world().await;
    world.widen_plans().await;
    let other = client_of(&world, "free").await;
    let totals = async || other.get("/v1/queue").await.unwrap().body;
    let worker = world.stack.launch_worker().unwrap();
    worker.ready().await.unwrap();
    let hold = world.hold_answers().await;
    let running = submit(&world.key(), 100_000).await;
    world.wait_for_status(&running, "running").await;
    submit(&world.key(), 100_000).await;
    submit(&other, 1).await;
    let of = |queue: &Value| ["queued", "running", "slots"].map(|name| queue[name].clone());
    wait_until("the totals", async || {
        of(&totals().await) == [2, 1, 1].map(Value::from)
    })
    .await;
    wait_until("the wait of the running job", async || {
        !totals().await["wait_seconds"].is_null()
    })
    .await;
    let queue = totals().await;
    assert!(queue["oldest_seconds"].as_f64().unwrap() > 0.0, "{queue}");
    let wait = &queue["wait_seconds"];
    assert!(wait["p50"].as_f64().unwrap() <= wait["p95"].as_f64().unwrap());
    hold.close().await.unwrap();
    wait_until("the end of all jobs", async || {
        let queue = totals().await;
        of(&queue) == [0, 0, 1].map(Value::from) && queue["oldest_seconds"] == 0.0
    })
    .await;
}
