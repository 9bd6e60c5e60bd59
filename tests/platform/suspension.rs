//! The operator suspends an organization and resumes it.

use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::demo_suite;
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, in_time, one_prediction, org, pause, string, wait_until, with_token,
    world_with,
};
use crate::predictions::{self, DISHES, prediction_world};
use crate::uploads::open;

async fn world(workers: usize) -> World {
    world_with(StackSize {
        apis: 2,
        workers,
        ..StackSize::default()
    })
    .await
}

async fn operate(world: &World, command: &str) -> Value {
    world
        .stack
        .operate(&["org", command, "--org", &world.org.id])
        .await
        .unwrap()
}

fn assert_suspended(response: &Response) {
    let error = &response.body["error"];
    response.expect_status(403);
    assert_eq!(error["code"], "forbidden");
    assert_eq!(error["details"], json!({"reason": "org_suspended"}));
    assert!(!response.header("x-ratelimit-limit").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_org_returns_403_in_rest_and_grpc() {
    let world = world(0).await;
    let other = org(&world.stack, "team").await;
    let suspended = operate(&world, "suspend").await;
    assert_eq!(
        json!([
            suspended["changed"],
            suspended["jobs_queued"],
            suspended["jobs_running"]
        ]),
        json!([true, 0, 0])
    );
    let again = operate(&world, "suspend").await;
    assert_eq!(
        (&again["changed"], &again["suspended_at"]),
        (&json!(false), &suspended["suspended_at"])
    );
    for api in &world.stack.apis {
        let url = format!("http://{}", api.listen.unwrap());
        for token in [&world.org.key, &world.org.session] {
            let client = Client::new(url.clone(), Some(token));
            for path in [
                "/v1/me",
                "/v1/jobs",
                "/v1/suites",
                "/v1/usage",
                "/v1/jobs/job_0000000000000000000000",
            ] {
                assert_suspended(&client.get(path).await.unwrap());
            }
            let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
            assert_suspended(&client.post("/v1/evals", &body).await.unwrap());
            assert_suspended(
                &client
                    .post("/v1/uploads", &json!({"kind": "predictions"}))
                    .await
                    .unwrap(),
            );
        }
        let owner = Client::new(url.clone(), Some(&world.org.session));
        assert_suspended(&owner.post("/v1/keys", &json!({"name": "x"})).await.unwrap());
        // Another organization is not affected.
        Client::new(url, Some(&other.key))
            .get("/v1/me")
            .await
            .expect_status(200);
    }
    let refused = MeServiceClient::new(world.channel().await)
        .get_me(with_token(v1::GetMeRequest {}, &world.org.key))
        .await
        .unwrap_err();
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (refused.code(), info.reason.as_str()),
        (tonic::Code::PermissionDenied, "FORBIDDEN")
    );
    assert_eq!(
        info.metadata.get("reason").map(String::as_str),
        Some("org_suspended")
    );
    // An invalid key still returns 401, and the operator cannot create one.
    world
        .client(&format!("{}x", world.org.key))
        .get("/v1/me")
        .await
        .expect_status(401);
    assert!(
        world
            .stack
            .operate(&["key", "create", "--org", &world.org.id, "--name", "x"])
            .await
            .is_err()
    );

    let resumed = operate(&world, "resume").await;
    assert_eq!(
        resumed,
        json!({"org_id": world.org.id, "suspended_at": null, "changed": true, "jobs_queued": 0})
    );
    assert_eq!(operate(&world, "resume").await["changed"], false);
    world.key().get("/v1/me").await.expect_status(200);
    world.owner().get("/v1/me").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_of_suspended_org_keeps_other_orgs() {
    let world = world(0).await;
    let made = world
        .owner()
        .post("/v1/orgs", &json!({"name": "Second"}))
        .await
        .unwrap();
    operate(&world, "suspend").await;
    assert_suspended(&world.owner().get("/v1/me").await.unwrap());
    let other = world
        .owner()
        .request("GET", "/v1/me")
        .header("x-org-id", string(&made.body["id"]));
    world.owner().send(other).await.expect_status(200);
    // A person can sign out.
    world.owner().delete("/v1/session").await.expect_status(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_ends_streams_and_waits() {
    let world = world(0).await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let mut watched = JobServiceClient::new(world.channel().await)
        .watch_job(with_token(
            v1::WatchJobRequest {
                job_id: job_id.clone(),
            },
            &world.org.key,
        ))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        watched
            .message()
            .await
            .unwrap()
            .unwrap()
            .job
            .unwrap()
            .status,
        "queued"
    );
    let key = world.key();
    let path = format!("/v1/jobs/{job_id}?wait=30");
    let waiting = tokio::spawn(async move { key.get(&path).await.unwrap() });
    // Half of an upload part has arrived.
    let upload_id = open(&world.key(), json!({"kind": "predictions"})).await;
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    send.send(Ok::<_, std::io::Error>("{\"item_id\": "))
        .unwrap();
    let halves = futures_util::stream::unfold(receive, async |mut receive| {
        Some((receive.recv().await?, receive))
    });
    let part = world
        .key()
        .request("PUT", &format!("/v1/uploads/{upload_id}/parts/1"))
        .body(reqwest::Body::wrap_stream(halves));
    let part = tokio::spawn(part.send());
    tokio::time::sleep(Duration::from_millis(500)).await;

    operate(&world, "suspend").await;
    let ended = in_time("the end of the stream", async {
        loop {
            match watched.message().await {
                Ok(message) => assert!(
                    message.is_some_and(|message| message.job.is_none()),
                    "the suspension is unchanged"
                ),
                Err(status) => break status,
            }
        }
    })
    .await;
    assert_eq!(ended.code(), tonic::Code::PermissionDenied);
    assert_suspended(&waiting.await.unwrap());
    send.send(Ok("\"a\", \"prediction\": [\"b\"]}\n")).unwrap();
    drop(send);
    let refused = part.await.unwrap().unwrap();
    assert_eq!(refused.status(), 403);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(
        refused["error"]["details"],
        json!({"reason": "org_suspended"})
    );
    let parts: i64 = sqlx::query_scalar("select count(*) from upload_parts")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(parts, 0);
    assert!(
        world.stored_objects(&upload_id).is_empty(),
        "a rejected part leaves no object"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_jobs_wait_until_resumed() {
    let world = world(0).await;
    let other = org(&world.stack, "team").await;
    let ids =
        join_all((0..3).map(async |_| string(&world.submit(&one_prediction()).await.body["id"])))
            .await;
    assert_eq!(operate(&world, "suspend").await["jobs_queued"], 3);
    let worker = world.stack.launch_worker().unwrap();
    worker.ready().await.unwrap();
    // Jobs of another organization continue, by notification and by fallback polling.
    let others = world.client(&other.key);
    for _ in 0..3 {
        let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
        let queued = others.post("/v1/evals", &body).await.unwrap();
        let job = others
            .wait_until_finished(&string(&queued.body["id"]), &|_| {})
            .await
            .unwrap();
        assert_eq!(job["status"], "succeeded");
        pause("attempts of others", Duration::from_secs(1)).await;
    }
    let untouched: i64 = sqlx::query_scalar(
        "select count(*) from jobs where org_id = $1 and status = 'queued' and attempts = 0",
    )
    .bind(&world.org.id)
    .fetch_one(&mut world.database().await)
    .await
    .unwrap();
    assert_eq!(untouched, 3);
    assert_eq!(operate(&world, "resume").await["jobs_queued"], 3);
    for id in ids {
        assert_eq!(world.wait_until_finished(&id).await["status"], "succeeded");
    }
}

/// Waits until the only job has succeeded. Its suspended organization cannot read it.
async fn wait_until_succeeded(world: &World) {
    wait_until("the end of the job", async || {
        let status: String = sqlx::query_scalar("select status from jobs")
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        status == "succeeded"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_job_of_suspended_org_finishes() {
    let world = world(1).await;
    let answers = world.hold_answers().await;
    let id = string(&world.submit(&one_prediction()).await.body["id"]);
    world.wait_for_status(&id, "running").await;
    assert_eq!(operate(&world, "suspend").await["jobs_running"], 1);
    sqlx::Connection::close(answers).await.unwrap();
    wait_until_succeeded(&world).await;
    operate(&world, "resume").await;
    assert_eq!(world.wait_until_finished(&id).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_prediction_of_suspended_org_finishes() {
    let world = prediction_world(1).await;
    let engine = &world.stack.engines[0].guarded;
    engine.signal(libc::SIGSTOP);
    let job = predictions::accepted(&world.key(), json!({"suite_id": DISHES})).await;
    let id = string(&job["id"]);
    world.wait_for_status(&id, "running").await;
    assert_eq!(operate(&world, "suspend").await["jobs_running"], 1);
    engine.signal(libc::SIGCONT);
    wait_until_succeeded(&world).await;
    operate(&world, "resume").await;
    let job = world.wait_until_finished(&id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("succeeded"), &json!(1))
    );
    assert!(!predictions::output(&world.key(), &job).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_stored_after_suspension() {
    let world = world(0).await;
    world.widen_plans().await;
    for _ in 0..3 {
        let submitters = (0..8).map(|n| {
            let url = format!("http://{}", world.stack.apis[n % 2].listen.unwrap());
            let client = Client::new(url, Some(&world.org.key));
            tokio::spawn(async move {
                let mut accepted = 0_i64;
                loop {
                    let body =
                        json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
                    let response = client.post("/v1/evals", &body).await.unwrap();
                    match response.status {
                        202 => accepted += 1,
                        403 => break accepted,
                        503 => {}
                        other => panic!("{other} {}", error_code(&response)),
                    }
                }
            })
        });
        let before = jobs(&world).await.0;
        let submitters: Vec<_> = submitters.collect();
        wait_until("submissions", async || jobs(&world).await.0 > before + 5).await;
        operate(&world, "suspend").await;
        let (stored, charged) = jobs(&world).await;
        let mut accepted = before;
        for submitter in submitters {
            accepted += submitter.await.unwrap();
        }
        assert_eq!(
            jobs(&world).await,
            (stored, charged),
            "no job is stored after the command has returned"
        );
        assert_eq!(
            (accepted, charged),
            (stored, stored),
            "each job was acknowledged and charged once"
        );
        operate(&world, "resume").await;
    }
}

/// Returns the number of stored jobs and of charged items.
async fn jobs(world: &World) -> (i64, i64) {
    sqlx::query_as("select (select count(*) from jobs), (select coalesce(sum(eval_items), 0)::bigint from usage)")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}
