//! Evals that wait for a prediction job: every end of the job ends or starts them, exactly once.

use std::path::PathBuf;

use assay_core::model::job::FailureCode;
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PgPool, PoolProfile, leases, queue_depth};
use assay_core::{JobId, WorkerId};
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::harness::{Expect, World, org, scrape, string, wait_until};
use crate::predictions::{
    DISHES, N, accepted, charged, count, create, lines, output, predicted, prediction_world,
    publish_dishes, shared_prediction_world,
};

fn evaluated() -> Value {
    json!({"suite_id": DISHES, "evaluate": true, "label": "both"})
}

async fn job(world: &World, job_id: &str) -> Value {
    let path = format!("/v1/jobs/{job_id}");
    world.key().get(&path).await.unwrap().body
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_scores_like_submission_by_hand() {
    let world = shared_prediction_world().await;
    let created = accepted(&world.key(), evaluated()).await;
    let eval_id = string(&created["eval_job_id"]);
    let waiting = job(&world, &eval_id).await;
    assert_eq!(
        (
            &waiting["type"],
            &waiting["label"],
            &waiting["versions"]["suite_id"]
        ),
        (&json!("eval"), &json!("both"), &json!(DISHES))
    );
    // The client polls the eval only.
    let eval = world.wait_until_finished(&eval_id).await;
    assert_eq!(eval["status"], "succeeded", "{eval}");
    let prediction = job(&world, &string(&created["id"])).await;
    assert_eq!(prediction["status"], "succeeded");
    assert_eq!(prediction["result"]["eval_job_id"], json!(eval_id));
    assert!(string(&prediction["created_at"]) < string(&eval["created_at"]));
    assert_eq!(charged(&world).await, (N as i64, N as i64));

    let output_ref = &prediction["result"]["output_ref"];
    let submitted = json!({"suite_id": DISHES, "input_ref": output_ref});
    let inline = lines(&output(&world.key(), &prediction).await);
    let inline = json!({"suite_id": DISHES, "predictions": inline});
    for body in [submitted, inline] {
        let by_hand = world
            .key()
            .post("/v1/evals", &body)
            .await
            .expect_status(202);
        let by_hand = world
            .wait_until_finished(&string(&by_hand.body["id"]))
            .await;
        assert_eq!(by_hand["result"], eval["result"]);
    }
    let value = eval["result"]["value"].as_f64().unwrap();
    assert!((0.05..0.95).contains(&value), "{value}");
}

/// A pool with the roles of an installation without workers, in which the test acts as the worker.
struct Roles {
    owner: PgPool,
    api: PgPool,
    worker: PgPool,
    worker_id: WorkerId,
}

impl Roles {
    async fn of(world: &World) -> Self {
        let pool = |url: &str| store::pool(url, 2, "test", PoolProfile::OPERATOR).unwrap();
        let worker = pool(&world.stack.database.worker_url);
        let worker_id = WorkerId::random().unwrap();
        leases::renew_lease(&worker, &worker_id, 4).await.unwrap();
        Self {
            owner: pool(&world.stack.database.owner_url),
            api: pool(&world.stack.database.api_url),
            worker,
            worker_id,
        }
    }

    async fn claim(&self, job_id: &str) -> Option<Claim> {
        let job_id: JobId = job_id.parse().unwrap();
        work::claim(&self.worker, &self.worker_id, &job_id)
            .await
            .unwrap()
    }
}

/// Runs SQL as the database's owner.
async fn run(database: &mut PgConnection, sql: &str, job_id: &str) {
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(job_id)
        .execute(database)
        .await
        .unwrap();
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// The caller cancels the prediction job, which waits.
    Cancel,
    /// The caller cancels the prediction job, which runs.
    CancelRunning,
    /// The caller cancels the eval. The prediction job goes on.
    CancelEval,
    /// The last attempt fails.
    Fail,
    /// The input is missing.
    InputUnavailable,
    /// The worker of the last attempt dies.
    LoseWorker,
    /// The last attempt exceeds its deadline.
    Overdue,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_prediction_ends_eval() {
    let world = prediction_world(0).await;
    let roles = Roles::of(&world).await;
    let mut database = world.database().await;
    for end in [
        End::Cancel,
        End::CancelRunning,
        End::CancelEval,
        End::Fail,
        End::InputUnavailable,
        End::LoseWorker,
        End::Overdue,
    ] {
        let before = charged(&world).await;
        let created = accepted(&world.key(), evaluated()).await;
        let (job_id, eval_id) = (string(&created["id"]), string(&created["eval_job_id"]));
        assert!(roles.claim(&eval_id).await.is_none(), "{end:?}");
        let n = N as i64;
        assert_eq!(charged(&world).await, (before.0 + n, before.1 + n));
        let cancel = async |id: &str| {
            let request = world
                .key()
                .request("POST", &format!("/v1/jobs/{id}/cancel"));
            world.key().send(request).await.unwrap().status
        };
        let last_attempt = async |database: &mut PgConnection| {
            run(
                database,
                "update jobs set attempts = 3 where id = $1",
                &job_id,
            )
            .await;
            roles.claim(&job_id).await.unwrap()
        };
        // In one transaction, so that the dispatcher of the API does not sweep first.
        let change_and_sweep = async |sql: &str| {
            let mut transaction = roles.owner.begin().await.unwrap();
            run(&mut transaction, sql, &job_id).await;
            let reclaimed = leases::sweep(&mut transaction, true).await.unwrap();
            transaction.commit().await.unwrap();
            let eval_failed: Vec<bool> = reclaimed.iter().map(|job| job.eval_failed).collect();
            assert_eq!(eval_failed, [true]);
        };
        // The status, the eval's status, and whether each charge is refunded.
        let expected = match end {
            End::Cancel => {
                assert_eq!(cancel(&job_id).await, 200);
                ("cancelled", "cancelled", true, true)
            }
            End::CancelRunning => {
                roles.claim(&job_id).await.unwrap();
                assert_eq!(cancel(&job_id).await, 200);
                ("cancelled", "cancelled", false, true)
            }
            End::CancelEval => {
                assert_eq!(cancel(&eval_id).await, 200);
                assert_eq!(job(&world, &job_id).await["status"], "queued");
                assert_eq!(cancel(&job_id).await, 200);
                ("cancelled", "cancelled", true, true)
            }
            End::Fail => {
                let claim = last_attempt(&mut database).await;
                let code = FailureCode::Internal;
                assert!(
                    work::requeue(&roles.worker, &claim, code, "x", &[])
                        .await
                        .unwrap()
                );
                ("failed", "failed", true, true)
            }
            End::InputUnavailable => {
                let claim = roles.claim(&job_id).await.unwrap();
                let code = FailureCode::InputUnavailable;
                assert!(
                    work::fail(&roles.worker, &claim, code, "x", &[])
                        .await
                        .unwrap()
                );
                ("failed", "failed", false, true)
            }
            End::LoseWorker => {
                last_attempt(&mut database).await;
                let gone = "update jobs set worker_id = 'nobody' where id = $1";
                change_and_sweep(gone).await;
                ("failed", "failed", true, true)
            }
            End::Overdue => {
                last_attempt(&mut database).await;
                let late =
                    "update jobs set deadline_at = now() - interval '1 second' where id = $1";
                change_and_sweep(late).await;
                ("failed", "failed", true, true)
            }
        };
        let (status, eval_status, refunds_job, refunds_eval) = expected;
        let (finished, eval) = (job(&world, &job_id).await, job(&world, &eval_id).await);
        assert_eq!(
            (&finished["status"], &eval["status"]),
            (&json!(status), &json!(eval_status)),
            "{end:?}"
        );
        if eval_status == "failed" {
            assert_eq!(eval["error"]["code"], "input_unavailable", "{end:?}");
            assert!(string(&eval["error"]["message"]).contains(&job_id));
        }
        let kept = |refunds: bool| if refunds { 0 } else { n };
        let after = charged(&world).await;
        let left = (before.0 + kept(refunds_job), before.1 + kept(refunds_eval));
        assert_eq!(after, left, "{end:?}");
        let ledger = "select count(*) from usage_ledger l join jobs j on j.id = l.job_id group by l.job_id, l.kind having count(*) > 1";
        assert!(
            sqlx::query(ledger)
                .fetch_all(&mut database)
                .await
                .unwrap()
                .is_empty()
        );
    }
    let open = "select count(*) from jobs where finished_at is null";
    assert_eq!(count(&mut database, open).await, 0);
    let metrics = scrape(&world.stack.apis[0]).await;
    for r#type in ["predict", "eval"] {
        let cancelled =
            format!("assay_jobs_finished_total{{type=\"{type}\",outcome=\"cancelled\"}} 3\n");
        assert!(metrics.contains(&cancelled), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_eval_stays_cancelled() {
    let mut world = prediction_world(0).await;
    let created = accepted(&world.key(), evaluated()).await;
    let (job_id, eval_id) = (string(&created["id"]), string(&created["eval_job_id"]));
    let request = world
        .key()
        .request("POST", &format!("/v1/jobs/{eval_id}/cancel"));
    world.key().send(request).await.expect_status(200);
    world
        .stack
        .workers
        .push(world.stack.launch_worker().unwrap());
    let finished = world.wait_until_finished(&job_id).await;
    assert_eq!(finished["status"], "succeeded", "{finished}");
    let eval = job(&world, &eval_id).await;
    assert_eq!(
        (&eval["status"], &eval["attempts"]),
        (&json!("cancelled"), &json!(0))
    );
    assert_eq!(charged(&world).await, (N as i64, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_organization_leaves_no_waiting_eval() {
    let world = prediction_world(0).await;
    let doomed = org(&world.stack, "team").await;
    let created = accepted(&world.client(&doomed.key), evaluated()).await;
    let deleted = world
        .stack
        .operate(&[
            "org",
            "delete",
            "--org",
            &doomed.id,
            "--confirm",
            &doomed.id,
        ])
        .await
        .unwrap();
    assert_eq!(deleted["deleted"]["jobs_cancelled"], 2, "{deleted}");
    let mut database = world.database().await;
    let cancelled =
        "select count(*) from jobs where status = 'cancelled' and id = any(array[$1, $2])";
    let found: i64 = sqlx::query_scalar(cancelled)
        .bind(string(&created["id"]))
        .bind(string(&created["eval_job_id"]))
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(found, 2);
    let used = "select coalesce(sum(eval_items + predict_items), 0)::bigint from usage";
    assert_eq!(count(&mut database, used).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_eval_counts_as_active_only() {
    let world = prediction_world(0).await;
    world
        .stack
        .operate(&["plan", "set", "team", "--concurrent-jobs", "3"])
        .await
        .unwrap();
    accepted(&world.key(), evaluated()).await;
    let refused = create(&world.key(), evaluated())
        .await
        .expect_error(429, "quota_exceeded");
    let details = &refused.body["error"]["details"];
    assert_eq!(
        (&details["limit"], &details["active"], &details["max"]),
        (&json!("concurrent_jobs"), &json!(2), &json!(3))
    );
    // All attempts of the oldest job, each at its full length: an hour, not until the year 9999.
    let resets_at: assay_core::Timestamp = string(&details["resets_at"]).parse().unwrap();
    let seconds = assay_core::Timestamp::now().seconds_until(resets_at);
    assert!((3_000..=3_600).contains(&seconds), "{seconds}");
    let mut database = world.database().await;
    assert_eq!(count(&mut database, "select count(*) from jobs").await, 2);
    create(&world.key(), json!({"suite_id": DISHES}))
        .await
        .expect_status(202);
    let usage = world.key().get("/v1/usage").await.unwrap().body;
    assert_eq!(usage["active_jobs"], 3);
    // Only the two prediction jobs wait for a worker.
    let roles = Roles::of(&world).await;
    let depth = queue_depth::measure(&roles.api).await.unwrap();
    assert_eq!((depth.queued, depth.running), (2.0, 0.0));
    assert!(depth.queued_seconds < 600.0, "{}", depth.queued_seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_limits_hold_for_chained_evals() {
    let world = prediction_world(1).await;
    publish_dishes(&world, "2", "max_submissions_per_day = 1").await;
    let created = accepted(&world.key(), evaluated()).await;
    let refused = create(&world.key(), evaluated())
        .await
        .expect_error(429, "quota_exceeded");
    assert_eq!(
        refused.body["error"]["details"]["limit"],
        "submissions_per_day"
    );
    // A prediction alone discloses nothing.
    create(&world.key(), json!({"suite_id": DISHES}))
        .await
        .expect_status(202);
    let eval = world
        .wait_until_finished(&string(&created["eval_job_id"]))
        .await;
    assert_eq!(eval["versions"]["suite_version"], "2");
    publish_dishes(&world, "3", "access = \"granted\"").await;
    create(&world.key(), evaluated())
        .await
        .expect_error(403, "forbidden");
    // The month's eval items count as well.
    publish_dishes(&world, "4", "").await;
    world
        .stack
        .operate(&[
            "plan",
            "set",
            "team",
            "--eval-items-per-month",
            &N.to_string(),
        ])
        .await
        .unwrap();
    let refused = create(&world.key(), evaluated()).await;
    assert_eq!(
        refused.body["error"]["details"]["limit"], "eval_items_per_month",
        "{}",
        refused.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_keep_model_and_suite_version() {
    let mut world = prediction_world(0).await;
    let created = accepted(&world.key(), evaluated()).await;
    publish_dishes(&world, "2", "").await;
    let next = crate::packages::with_model(&world, crate::predictions::MODEL, |model| {
        model["version"] = json!("2");
    });
    crate::packages::publish(&world, &next, None).await.unwrap();
    world
        .stack
        .workers
        .push(world.stack.launch_worker().unwrap());
    let eval = world
        .wait_until_finished(&string(&created["eval_job_id"]))
        .await;
    assert_eq!(eval["result"]["suite_version"], "1", "{eval}");
    let prediction = job(&world, &string(&created["id"])).await;
    assert_eq!(
        (
            &prediction["result"]["model_version"],
            &prediction["versions"]["suite_version"]
        ),
        (&json!("1"), &json!("1"))
    );
    let current = predicted(&world, json!({"suite_id": DISHES})).await;
    assert_eq!(current["result"]["model_version"], "2");
}

/// Kills a worker and the engine in the middle of a job.
#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_leave_one_output() {
    let mut world = prediction_world(1).await;
    world.widen_plans().await;
    let n = 40_000;
    let sequences: Vec<Value> = (0..n)
        .map(|at| {
            let events: Vec<_> = (0..12)
                .map(|event| json!({"item_id": format!("dish-{:02}", (at + event * 5) % 24)}))
                .collect();
            json!({"sequence_id": format!("s{at}"), "events": events})
        })
        .collect();
    let input_ref = crate::predictions::uploaded_sequences(&world.key(), &sequences).await;
    let created = accepted(&world.key(), json!({"input_ref": input_ref})).await;
    let job_id = string(&created["id"]);
    let progress = async |world: &World| job(world, &job_id).await["progress"].as_f64();
    wait_until("progress of the first attempt", async || {
        progress(&world)
            .await
            .is_some_and(|progress| progress > 0.0)
    })
    .await;
    // The worker dies. The job is claimed again when its lease has expired.
    let worker = world.stack.workers.remove(0);
    worker.guarded.signal(libc::SIGKILL);
    world
        .stack
        .workers
        .push(world.stack.launch_worker().unwrap());
    wait_until("second attempt", async || {
        job(&world, &job_id).await["attempts"] == 2
            && progress(&world)
                .await
                .is_some_and(|progress| progress > 0.0)
    })
    .await;
    // The engine dies. The worker waits for the next one.
    let engine = world.stack.engines.remove(0);
    let listen = engine.listen.unwrap();
    engine.guarded.signal(libc::SIGKILL);
    assert!(engine.guarded.wait(wait_timeout()).is_some());
    world
        .stack
        .engines
        .push(world.stack.launch_engine(listen).unwrap());
    let finished = world
        .key()
        .wait_until_finished(&job_id, &|_| {})
        .await
        .unwrap();
    assert_eq!(finished["status"], "succeeded", "{finished}");
    assert_eq!(finished["result"]["n"], n);
    assert_eq!(charged(&world).await, (n, 0));
    let mut database = world.database().await;
    let outputs = "select count(*) from uploads where kind = 'predictions'";
    assert_eq!(count(&mut database, outputs).await, 1);
    let ledger = "select count(*) from usage_ledger";
    assert_eq!(count(&mut database, ledger).await, 1);
    for (at, line) in output(&world.key(), &finished).await.lines().enumerate() {
        assert!(
            line.starts_with(&format!("{{\"sequence_id\":\"s{at}\",\"prediction\":[\"")),
            "{line}"
        );
    }
    // Cleanup removes what the first attempt has written.
    let upload_id = string(&finished["result"]["output_ref"]);
    let age = "update jobs set finished_at = finished_at - interval '2 minutes'";
    sqlx::raw_sql(age).execute(&mut database).await.unwrap();
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    let attempts = finished["attempts"].as_i64().unwrap();
    wait_until("cleanup", async || {
        let left = "select count(*) from jobs where cleaned_up_at is null";
        count(&mut database, left).await == 0
    })
    .await;
    let suffix = format!("-{attempts}");
    let objects = world.stored_objects(&upload_id);
    assert!(!objects.is_empty());
    // A killed worker can leave an unfinished object, `#` and a number behind its name, which is removed after a day.
    let is_finished = |object: &&PathBuf| !object.to_string_lossy().contains('#');
    for object in objects.iter().filter(is_finished) {
        assert!(
            object.to_string_lossy().ends_with(&suffix),
            "{}",
            object.display()
        );
    }
}
