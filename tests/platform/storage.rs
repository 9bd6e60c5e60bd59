//! Stored data: no object without a row, no more bytes than the plan allows, no row after its
//! retention period.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use assay_core::JobId;
use assay_proto::v1;
use assay_tests::client::{Client, Response};
use assay_tests::stack::{Process, StackSize, operate};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::harness::{
    Expect, World, large_prediction, list_files, one_prediction, pause, scrape, shared_world,
    string, wait_until, with_token, world, world_with,
};
use crate::uploads::{complete, open, put, submit, uploaded};

/// Returns the files of the artifact store that hold inline predictions.
fn predictions(world: &World) -> Vec<PathBuf> {
    let name = |file: &PathBuf| file.to_string_lossy().ends_with(".predictions.json");
    list_files(&world.stack.artifacts())
        .into_iter()
        .filter(name)
        .collect()
}

/// Starts another API process, whose first cleanup runs immediately.
async fn launch_api_with_cleanup(world: &World) -> Process {
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    api
}

async fn count(database: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(database).await.unwrap()
}

/// Starts a submission that has written its predictions, and stops before it records that they
/// belong to a job, until the returned connection is closed. The organization has one earlier job.
async fn submission_before_its_row(world: &World) -> (std::net::TcpStream, PgConnection) {
    world.submit(&large_prediction()).await.expect_status(202);
    let mut hold = world.database().await;
    let stop = "create function wait_for_test() returns trigger language plpgsql
            as 'begin perform pg_advisory_xact_lock(42); return null; end';
        create trigger stored_predictions_wait before update on stored_predictions
            for each statement execute function wait_for_test();
        select pg_advisory_lock(42)";
    sqlx::raw_sql(stop).execute(&mut hold).await.unwrap();
    let body = json!({"suite_id": "suite:lunch", "predictions": large_prediction()}).to_string();
    let address = world.stack.apis[0].listen.unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/evals HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        world.org.key,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    wait_until("the predictions are written", async || {
        predictions(world).len() == 2
    })
    .await;
    (stream, hold)
}

/// Asserts that cleanup removes the second submission's predictions and keeps those of the
/// first.
async fn assert_second_is_removed(world: &World) {
    let mut database = world.database().await;
    assert_eq!(count(&mut database, "select count(*) from jobs").await, 1);
    assert_eq!(predictions(world).len(), 2);
    sqlx::raw_sql("update stored_predictions set created_at = now() - interval '16 minutes'")
        .execute(&mut database)
        .await
        .unwrap();
    let _api = launch_api_with_cleanup(world).await;
    wait_until("cleanup", async || predictions(world).len() == 1).await;
    let stored = "select count(*) from stored_predictions";
    wait_until("the record is deleted", async || {
        count(&mut world.database().await, stored).await == 1
    })
    .await;
    let same = "select count(*) from org_storage s where bytes = (select sum(bytes) from stored_predictions)";
    assert_eq!(
        count(&mut database, same).await,
        1,
        "the counted bytes are the stored bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_before_job_is_stored_leaves_no_object() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let (stream, hold) = submission_before_its_row(&world).await;
    drop(stream);
    // Longer than a request waits for a lock.
    pause("the timeout of a lock", Duration::from_secs(3)).await;
    hold.close().await.unwrap();
    assert_second_is_removed(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_api_leaves_no_object() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let (_stream, hold) = submission_before_its_row(&world).await;
    world.stack.apis[0].guarded.signal(libc::SIGKILL);
    hold.close().await.unwrap();
    let gone = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'assay-api'";
    wait_until("the end of its sessions", async || {
        count(&mut world.database().await, gone).await == 0
    })
    .await;
    assert_second_is_removed(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_submission_cannot_become_a_job() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let (_stream, mut hold) = submission_before_its_row(&world).await;
    let mut database = world.database().await;
    let abandoned = "update stored_predictions set abandoned_at = now() where accepted_at is null";
    sqlx::raw_sql(abandoned).execute(&mut hold).await.unwrap();
    hold.close().await.unwrap();
    wait_until("the removal of the second submission", async || {
        predictions(&world).len() == 1
    })
    .await;
    assert_eq!(count(&mut database, "select count(*) from jobs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_submission_writes_nothing() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    sqlx::raw_sql("update plans set concurrent_jobs = 1")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.submit(&large_prediction()).await.expect_status(202);
    // A write would fail, because a file replaces the organization's folder.
    let folder = world.stack.artifacts().join(&world.org.id);
    std::fs::rename(&folder, folder.with_extension("moved")).unwrap();
    std::fs::write(&folder, "").unwrap();
    for predictions in [one_prediction(), large_prediction()] {
        let rejected = world
            .submit(&predictions)
            .await
            .expect_error(429, "quota_exceeded");
        assert_eq!(
            rejected.body["error"]["details"]["limit"],
            "concurrent_jobs"
        );
    }
    let mut database = world.database().await;
    sqlx::raw_sql("update plans set concurrent_jobs = 10, eval_items_per_month = 1")
        .execute(&mut database)
        .await
        .unwrap();
    for predictions in [one_prediction(), large_prediction()] {
        let rejected = world.submit(&predictions).await.expect_status(429);
        assert_eq!(
            rejected.body["error"]["details"]["limit"], "eval_items_per_month",
            "{}",
            rejected.body
        );
    }
    assert_eq!(
        count(&mut database, "select count(*) from stored_predictions").await,
        1
    );
}

/// Runs the operator's command that reconciles the artifact store.
async fn reconcile(world: &World, arguments: &[&str]) -> Value {
    let mut env = world.stack.operator_env();
    env.insert(
        "ASSAY_ARTIFACTS".into(),
        world.stack.artifacts().to_string_lossy().into_owned(),
    );
    operate(
        &world.stack.ground.binaries.api,
        &env,
        &[&["artifacts", "reconcile"], arguments].concat(),
    )
    .await
    .unwrap()
}

/// Sets a file's modification time to long ago. The file may be removed concurrently.
fn make_old(file: &Path) {
    if let Ok(file) = std::fs::File::options().write(true).open(file) {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_removes_orphans_and_counts_missing_objects() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let key = world.key();
    world.submit(&large_prediction()).await.expect_status(202);
    let whole = uploaded(
        &key,
        json!({"kind": "predictions"}),
        one_prediction()[0].to_string().as_bytes(),
    )
    .await;
    let torn = open(&key, json!({"kind": "predictions"})).await;
    put(&key, &torn, 1, "x").await.expect_status(200);
    let artifacts = world.stack.artifacts();
    let job = || JobId::random().unwrap();
    let ours = artifacts.join(&world.org.id);
    let foreign = artifacts.join("org_0000000000000000000000");
    std::fs::create_dir_all(&foreign).unwrap();
    let orphans = [
        ours.join(format!("{}.predictions.json", job())),
        ours.join(format!("{}.2.scores", job())),
        ours.join(format!("{whole}/7-abcdefabcdef")),
        ours.join(format!("{}.predictions.json#3", job())),
    ];
    let kept = [
        ours.join(format!("{}.predictions.json", job())),
        ours.join("notes.txt"),
        foreign.join(format!("{}.predictions.json", job())),
    ];
    for file in orphans.iter().chain(&kept) {
        std::fs::write(file, "0123456789").unwrap();
    }
    // All but one are old: the young one could be the object of a submission in progress.
    list_files(&artifacts)
        .iter()
        .filter(|file| **file != kept[0])
        .for_each(|file| make_old(file));
    std::fs::remove_file(&world.stored_objects(&torn)[0]).unwrap();
    let before = list_files(&artifacts).len();
    let found =
        json!({"orphans": 3, "orphan_bytes": 30, "unfinished": 1, "foreign": 2, "missing": 1});
    let same = |report: &Value, removed: u64, dry_run: bool| {
        found
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(name, value)| assert_eq!(&report[name], value, "{name}: {report}"));
        assert_eq!(
            (&report["removed"], &report["dry_run"]),
            (&json!(removed), &json!(dry_run))
        );
    };
    same(&reconcile(&world, &["--dry-run"]).await, 0, true);
    assert_eq!(list_files(&artifacts).len(), before);
    same(&reconcile(&world, &[]).await, 3, false);
    assert_eq!(list_files(&artifacts).len(), before - orphans.len());
    assert!(kept.iter().all(|file| file.exists()));
    complete(&key, &whole).await.expect_status(200);
    let api = launch_api_with_cleanup(&world).await;
    wait_until("the metric", async || {
        scrape(&api).await.contains("assay_artifacts_missing 1")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_keeps_submissions_in_progress() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 1,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let artifacts = world.stack.artifacts();
    let aged = async {
        let mut reports = Vec::new();
        for _ in 0..4 {
            for _ in 0..10 {
                // Files with `#` are written at this time, so only a crash could make them old.
                list_files(&artifacts)
                    .iter()
                    .filter(|file| !file.to_string_lossy().contains('#'))
                    .for_each(|file| make_old(file));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            reports.push(reconcile(&world, &[]).await);
        }
        reports
    };
    let submissions = async {
        let clients: Vec<Client> = world
            .stack
            .addresses()
            .iter()
            .map(|url| Client::new(url.as_str(), Some(&world.org.key)))
            .collect();
        let mut ids = Vec::new();
        for at in 0..60 {
            let key = &clients[at % 2];
            let job = if at % 3 == 0 {
                let upload_id = uploaded(
                    key,
                    json!({"kind": "predictions"}),
                    one_prediction()[0].to_string().as_bytes(),
                )
                .await;
                submit(key, &upload_id).await
            } else {
                key.post(
                    "/v1/evals",
                    &json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
                )
                .await
                .unwrap()
            };
            assert_eq!(job.status, 202, "{}", job.body);
            ids.push(string(&job.body["id"]));
        }
        ids
    };
    let (reports, ids) = tokio::join!(aged, submissions);
    for report in reports {
        assert_eq!(
            (&report["orphans"], &report["missing"]),
            (&json!(0), &json!(0)),
            "{report}"
        );
    }
    for id in ids {
        assert_eq!(world.wait_until_finished(&id).await["status"], "succeeded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_reconciliation_runs() {
    let world = world().await;
    let mut database = world.database().await;
    let locked: bool = sqlx::query_scalar("select pg_try_advisory_lock(x'73746f7265'::bigint)")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert!(locked);
    let mut env = world.stack.operator_env();
    env.insert(
        "ASSAY_ARTIFACTS".into(),
        world.stack.artifacts().to_string_lossy().into_owned(),
    );
    let refused = operate(
        &world.stack.ground.binaries.api,
        &env,
        &["artifacts", "reconcile"],
    )
    .await
    .unwrap_err();
    assert!(
        refused.to_string().contains("another process reconciles"),
        "{refused}"
    );
}

/// Asserts that a request was rejected because `storage_bytes` is used up.
pub fn assert_storage_full(rejected: &Response, max: i64) {
    rejected.expect_error(429, "quota_exceeded");
    let details = &rejected.body["error"]["details"];
    assert_eq!(
        (&details["limit"], &details["max"]),
        (&json!("storage_bytes"), &json!(max)),
        "{details}"
    );
    assert!(
        details["resets_at"].is_string() && details["active"].is_i64(),
        "{details}"
    );
    assert!(rejected.header("retry-after").parse::<u32>().unwrap() >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_parts_never_exceed_the_storage_quota() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world
        .stack
        .operate(&["plan", "set", "team", "--storage-bytes", "1000"])
        .await
        .unwrap();
    let clients: Vec<Client> = world
        .stack
        .addresses()
        .iter()
        .map(|url| Client::new(url.as_str(), Some(&world.org.key)))
        .collect();
    for _ in 0..5 {
        let uploads = [
            open(&clients[0], json!({"kind": "predictions"})).await,
            open(&clients[1], json!({"kind": "predictions"})).await,
        ];
        // Without a declared length, the size is known only at the body's end.
        let part = || {
            reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(
                "x".repeat(600),
            )]))
        };
        let (first, second) = tokio::join!(
            put(&clients[0], &uploads[0], 1, part()),
            put(&clients[1], &uploads[1], 1, part())
        );
        let (done, rejected) = if first.status == 200 {
            (first, second)
        } else {
            (second, first)
        };
        done.expect_status(200);
        assert_storage_full(&rejected, 1000);
        let stored: Vec<PathBuf> = uploads
            .iter()
            .flat_map(|upload_id| world.stored_objects(upload_id))
            .collect();
        assert_eq!(stored.len(), 1, "the rejected part is removed");
        // Replacing a part counts the difference.
        let owner = usize::from(world.stored_objects(&uploads[0]).is_empty());
        put(&clients[0], &uploads[owner], 1, "y".repeat(900))
            .await
            .expect_status(200);
        let usage = clients[1].get("/v1/usage").await.unwrap().body;
        assert_eq!(
            (&usage["stored_bytes"], &usage["limits"]["storage_bytes"]),
            (&json!(900), &json!(1000))
        );
        // A declared length is rejected before the part is sent.
        assert_storage_full(
            &put(&clients[1], &uploads[owner], 2, "z".repeat(101)).await,
            1000,
        );
        for upload_id in uploads {
            clients[0]
                .delete(&format!("/v1/uploads/{upload_id}"))
                .await
                .expect_status(204);
        }
    }
    let mut grpc = v1::usage_service_client::UsageServiceClient::new(world.channel().await);
    let usage = grpc
        .get_usage(with_token(v1::GetUsageRequest {}, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .usage
        .unwrap();
    assert_eq!(
        (usage.stored_bytes, usage.limits.unwrap().storage_bytes),
        (0, 1000)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_predictions_count_until_job_finishes() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let bytes = one_prediction().to_string().len();
    let max = i64::try_from(3 * bytes).unwrap();
    world
        .stack
        .operate(&["plan", "set", "team", "--storage-bytes", &max.to_string()])
        .await
        .unwrap();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let key = world.key();
    let responses =
        futures_util::future::join_all((0..8).map(|_| key.post("/v1/evals", &body))).await;
    let (accepted, rejected): (Vec<Response>, Vec<Response>) = responses
        .into_iter()
        .map(Result::unwrap)
        .partition(|response| response.status == 202);
    assert_eq!(accepted.len(), 3);
    rejected
        .iter()
        .for_each(|rejected| assert_storage_full(rejected, max));
    let mut grpc = v1::eval_service_client::EvalServiceClient::new(world.channel().await);
    let ranking = v1::prediction_value::Value::Ranking(v1::Ranking {
        ids: vec!["ramen".into(), "curry".into()],
    });
    let prediction = Some(v1::PredictionValue {
        value: Some(ranking),
    });
    let predictions = vec![v1::Prediction {
        item_id: "person-00/day-0".into(),
        prediction,
    }];
    let eval = v1::CreateEvalRequest {
        suite_id: "suite:lunch".into(),
        predictions,
        ..Default::default()
    };
    let status = grpc
        .create_eval(with_token(eval, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("stored"), "{status}");
    for job in &accepted {
        let job_id = string(&job.body["id"]);
        key.send(key.request("POST", &format!("/v1/jobs/{job_id}/cancel")))
            .await
            .unwrap();
    }
    let finished = "update jobs set finished_at = now() - interval '2 minutes'";
    sqlx::raw_sql(finished)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let _api = launch_api_with_cleanup(&world).await;
    wait_until("cleanup", async || {
        key.get("/v1/usage").await.unwrap().body["stored_bytes"] == 0
    })
    .await;
    world.submit(&one_prediction()).await.expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_uploads_expire_on_free_plan() {
    let world = shared_world().await;
    let free = crate::harness::org(&world.stack, "free").await;
    let mut database = world.database().await;
    for (token, hours) in [(&world.org.key, 7 * 24), (&free.key, 24)] {
        let upload_id = uploaded(
            &world.client(token),
            json!({"kind": "predictions"}),
            one_prediction()[0].to_string().as_bytes(),
        )
        .await;
        let sql = "select round(extract(epoch from expires_at - completed_at) / 3600)::bigint from uploads where id = $1";
        assert_eq!(
            sqlx::query_scalar::<_, i64>(sql)
                .bind(upload_id)
                .fetch_one(&mut database)
                .await
                .unwrap(),
            hours
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cleanup_repeats_until_nothing_is_left() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.submit(&one_prediction()).await.expect_status(202);
    let mut database = world.database().await;
    let many =
        "insert into jobs (id, org_id, type, status, request_id, hfm_sha, suite_id, suite_version, input_key, n_submitted, request_sha256,
                                  created_at, requested_at, trace_id, available_at, finished_at)
                select 'job_' || lpad(n::text, 22, '0'), org_id, type, 'cancelled', request_id, hfm_sha, suite_id, suite_version, 'x/' || n,
                       n_submitted, request_sha256, created_at - n * interval '1 second', requested_at, trace_id, available_at,
                       now() - interval '1 hour'
                from jobs, generate_series(1, 2300) n";
    sqlx::raw_sql(many).execute(&mut database).await.unwrap();
    let _api = launch_api_with_cleanup(&world).await;
    let left = "select count(*) from jobs where cleaned_up_at is null and finished_at is not null";
    wait_until("cleanup", async || {
        count(&mut world.database().await, left).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_rows_are_deleted() {
    let mut world = world().await;
    let key = world.key();
    let owner = world.owner();
    let upload_id = uploaded(
        &key,
        json!({"kind": "predictions"}),
        one_prediction()[0].to_string().as_bytes(),
    )
    .await;
    // Old jobs: one of an upload, one inline. One still counts towards an allowance, one is young.
    let mut ids = Vec::new();
    ids.push(string(&submit(&key, &upload_id).await.body["id"]));
    for _ in 0..3 {
        ids.push(string(&world.submit(&one_prediction()).await.body["id"]));
    }
    for id in &ids {
        assert_eq!(world.wait_until_finished(id).await["status"], "succeeded");
    }
    world.stack.workers.clear();
    let stopped = string(&world.submit(&one_prediction()).await.body["id"]);
    key.send(key.request("POST", &format!("/v1/jobs/{stopped}/cancel")))
        .await
        .expect_status(200);
    owner
        .post("/v1/invites", &json!({"email": "guest@example.org"}))
        .await
        .expect_status(201);
    owner
        .post("/v1/domains", &json!({"domain": "retained.example"}))
        .await
        .expect_status(201);
    let revoked = string(
        &owner
            .post("/v1/keys", &json!({"name": "old"}))
            .await
            .unwrap()
            .body["id"],
    );
    owner
        .delete(&format!("/v1/keys/{revoked}"))
        .await
        .expect_status(200);
    let age = format!(
        "update jobs set finished_at = now() - interval '2 minutes';
         update jobs set created_at = created_at - interval '401 days', cleaned_up_at = now(), input_key = null, scores_key = null
         where id in ('{}', '{}', '{}');
         delete from stored_item_scores;
         update jobs set created_at = created_at - interval '94 days', cleaned_up_at = now(), input_key = null where id = '{stopped}';
         insert into suite_disclosures (holder, org_id, kind, job_id, suite_id, suite_version, created_at)
         select 'org:x', org_id, 'submission', id, suite_id, suite_version, created_at from jobs where id = '{}';
         delete from upload_parts;
         update uploads set expires_at = now() - interval '40 days', status = 'expired', removed_at = now() - interval '31 days';
         insert into sessions (id, user_id, token_hash, expires_at, ended_at)
         select 'ses_old', user_id, '\\x01', now() + interval '1 day', now() - interval '8 days' from memberships limit 1;
         insert into device_logins (id, device_code_hash, user_code_hash, client_name, address, expires_at)
         select 'dev_' || n, decode('0' || n, 'hex'), decode('0' || n, 'hex'), 'x', '192.0.2.1',
             now() - n * interval '20 hours'
         from generate_series(1, 2) n;
         update events set timestamp = now() - case when job_id is null then interval '29 days' else interval '31 days' end;
         update invites set expires_at = now() - interval '91 days';
         update domain_claims set expires_at = now() - interval '91 days';
         insert into usage_request_days (org_id, date, requests)
         select id, (now() at time zone 'UTC')::date - age, 1 from orgs, unnest(array[399, 402]) age;
         update api_keys set revoked_at = now() - interval '91 days' where id = '{revoked}'",
        ids[0], ids[1], ids[2], ids[2]
    );
    let mut database = world.database().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(age))
        .execute(&mut database)
        .await
        .unwrap();
    let _api = launch_api_with_cleanup(&world).await;
    let old = "select (select count(*) from uploads) + (select count(*) from events where job_id is not null)";
    wait_until("the uploads and events are deleted", async || {
        count(&mut world.database().await, old).await == 0
    })
    .await;
    assert!(count(&mut database, "select count(*) from events").await > 0);
    let mut left: Vec<String> = sqlx::query_scalar("select id from jobs")
        .fetch_all(&mut database)
        .await
        .unwrap();
    left.sort_unstable();
    let mut expected = vec![ids[2].clone(), ids[3].clone()];
    expected.sort_unstable();
    assert_eq!(left, expected, "one counts for an allowance, one is young");
    for (sql, rows) in [
        ("select count(*) from job_attempts", 2),
        ("select count(distinct job_id) from usage_ledger", 2),
        ("select count(*) from sessions where id = 'ses_old'", 0),
        ("select count(*) from sessions", 1),
        ("select count(*) from invites", 0),
        ("select count(*) from device_logins", 1),
        ("select count(*) from domain_claims", 0),
        (
            "select count(*) from api_keys where revoked_at is not null",
            0,
        ),
        ("select count(*) from api_keys", 1),
        (
            "select count(*) from usage_request_days where date < now() - interval '300 days'",
            1,
        ),
    ] {
        assert_eq!(count(&mut database, sql).await, rows, "{sql}");
    }
    key.get(&format!("/v1/jobs/{}", ids[0]))
        .await
        .expect_status(404);
    // The month's usage remains.
    assert!(
        key.get("/v1/usage").await.unwrap().body["totals"]["eval_items"]
            .as_i64()
            .unwrap()
            >= 4
    );
}
