//! Suite allowances: their limits, the organizations that share them, and access to a suite.

use assay_proto::v1;
use assay_proto::v1::comparison_service_client::ComparisonServiceClient;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::disclosure::{publish, publish_answers, submit_and_wait};
use crate::domains::claim_verified;
use crate::harness::{
    Expect, World, error_code, org, string, wait_until, with_setting, with_token, world, world_with,
};
use crate::name_server::NameServer;

fn one(suite_id: &str) -> Value {
    json!({"suite_id": suite_id, "predictions": [{"item_id": "i0", "prediction": ["a0"]}]})
}

async fn submit(client: &Client, suite_id: &str) -> Response {
    client.post("/v1/evals", &one(suite_id)).await.unwrap()
}

async fn compare(client: &Client, a: &Value, b: &Value) -> Response {
    client
        .post(
            "/v1/comparisons",
            &json!({"job_a": a["id"], "job_b": b["id"]}),
        )
        .await
        .unwrap()
}

fn assert_used_up(response: &Response, max: i64) {
    response.expect_error(403, "forbidden");
    assert_eq!(
        response.body["error"]["details"],
        json!({"reason": "submissions_used_up", "max": max})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_counts_once_per_pair() {
    let world = world().await;
    let suite_id = publish(&world, "capped", 1, "max_submissions = 4")
        .await
        .unwrap();
    let key = world.key();
    let [a, b] = [
        submit_and_wait(&key, &suite_id, 20).await,
        submit_and_wait(&key, &suite_id, 15).await,
    ];
    // A job and itself disclose nothing.
    compare(&key, &a, &a).await.expect_status(200);
    // A viewer must not consume the members' allowance, but may read a comparison that was made.
    let viewer = world.member("viewer").await;
    let reader = json!({"name": "reader", "scopes": ["jobs:read"]});
    let reader = world.owner().post("/v1/keys", &reader).await.unwrap();
    let reader = world.client(&string(&reader.body["key"]));
    let refused = compare(&reader, &a, &b).await.expect_status(403);
    assert_eq!(refused.body["error"]["details"]["required"], "evals:write");
    compare(&viewer, &a, &b)
        .await
        .expect_error(403, "forbidden");
    let first = compare(&key, &a, &b).await.expect_status(200);
    compare(&viewer, &b, &a).await.expect_status(200);
    compare(&reader, &b, &a).await.expect_status(200);
    let c = submit_and_wait(&key, &suite_id, 10).await;
    assert_used_up(&submit(&key, &suite_id).await, 4);
    assert_used_up(&compare(&key, &a, &c).await, 4);
    assert_eq!(compare(&key, &a, &b).await.body, first.body);

    let mut evals = EvalServiceClient::new(world.channel().await);
    let message = v1::CreateEvalRequest {
        suite_id: suite_id.clone(),
        input_ref: None,
        predictions: vec![prediction("i0")],
        ..Default::default()
    };
    let status = evals
        .create_eval(with_token(message, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(
        (
            info.reason.as_str(),
            info.metadata["reason"].as_str(),
            info.metadata["max"].as_str()
        ),
        ("FORBIDDEN", "submissions_used_up", "4")
    );
    let mut comparisons = ComparisonServiceClient::new(world.channel().await);
    let request = v1::CreateComparisonRequest {
        job_a: string(&a["id"]),
        job_b: string(&c["id"]),
        ..v1::CreateComparisonRequest::default()
    };
    let status = comparisons
        .create_comparison(with_token(request, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(
        status.get_details_quota_failure().unwrap().violations[0].subject,
        "max_submissions"
    );

    // A new version has its own allowance, and so has another organization.
    publish(&world, "capped", 2, "max_submissions = 4")
        .await
        .unwrap();
    submit(&key, &suite_id).await.expect_status(202);
    let other = world.client(&org(&world.stack, "team").await.key);
    submit(&other, &suite_id).await.expect_status(202);
}

fn prediction(item_id: &str) -> v1::Prediction {
    let ids = vec!["a0".to_owned()];
    let value = v1::prediction_value::Value::Ranking(v1::Ranking { ids });
    v1::Prediction {
        item_id: item_id.into(),
        prediction: Some(v1::PredictionValue { value: Some(value) }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_disclosures_never_exceed_cap() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 1,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let suite_id = &publish(&world, "capped", 1, "max_submissions = 7")
        .await
        .unwrap();
    let clients: &Vec<_> = &world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.key),
            )
        })
        .collect();
    let jobs = &[
        submit_and_wait(&clients[0], suite_id, 20).await,
        submit_and_wait(&clients[1], suite_id, 15).await,
        submit_and_wait(&clients[0], suite_id, 10).await,
    ];
    let submitting = join_all((0..20).map(|at| submit(&clients[at % 2], suite_id)));
    let comparing =
        join_all((0..12).map(|at| compare(&clients[at % 2], &jobs[at % 3], &jobs[(at + 1) % 3])));
    let (submitted, _) = tokio::join!(submitting, comparing);
    let disclosures = "select count(distinct (job_id, compared_to)) from suite_disclosures";
    let counted: i64 = sqlx::query_scalar(disclosures)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(counted, 7);
    let accepted = submitted
        .iter()
        .filter(|response| response.status == 202)
        .count();
    let pairs = "select count(distinct (job_id, compared_to)) from suite_disclosures where compared_to <> ''";
    let pairs: i64 = sqlx::query_scalar(pairs)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!((accepted as i64 + pairs, pairs <= 3), (4, true));
}

/// Creates an organization with this session, and a client with its key.
async fn create_org(world: &World, session: &str, name: &str) -> (String, Client) {
    let owner = world.client(session);
    let made = owner
        .post("/v1/orgs", &json!({"name": name}))
        .await
        .expect_status(201);
    let id = string(&made.body["id"]);
    let key = owner
        .send(
            owner
                .request("POST", "/v1/keys")
                .header("X-Org-Id", &id)
                .json(&json!({"name": "ci"})),
        )
        .await
        .expect_status(201);
    (id, world.client(&string(&key.body["key"])))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_organizations_share_their_creators_cap() {
    let world = world_with(with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000")).await;
    world.widen_plans().await;
    let capped = publish(&world, "capped", 1, "max_submissions = 3")
        .await
        .unwrap();
    let ladder = publish(&world, "ladder", 1, "release = \"ladder(0.1)\"")
        .await
        .unwrap();
    let session = world.sign_in("ada@example.org").await;
    let (first_id, first) = create_org(&world, &session, "first").await;
    let (_, second) = create_org(&world, &session, "second").await;
    submit(&first, &capped).await.expect_status(202);
    submit(&second, &capped).await.expect_status(202);
    // Both organizations share one ladder.
    assert_eq!(
        submit_and_wait(&first, &ladder, 20).await["result"]["value"],
        0.5271
    );
    assert_eq!(
        submit_and_wait(&second, &ladder, 10).await["result"]["value"],
        0.5271
    );

    // Ada transfers the first organization to Bob, who removes her.
    let owner = world.client(&session);
    let invite = json!({"email": "bob@example.org", "role": "owner"});
    owner
        .send(
            owner
                .request("POST", "/v1/invites")
                .header("X-Org-Id", &first_id)
                .json(&invite),
        )
        .await
        .expect_status(201);
    let bob = world.client(&world.sign_in("bob@example.org").await);
    let members = bob
        .send(
            bob.request("GET", "/v1/members")
                .header("X-Org-Id", &first_id),
        )
        .await
        .unwrap();
    let ada = members.body["members"]
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["email"] == "ada@example.org")
        .unwrap();
    let path = format!("/v1/members/{}", string(&ada["user_id"]));
    bob.send(bob.request("DELETE", &path).header("X-Org-Id", &first_id))
        .await
        .expect_status(204);
    let (_, third) = create_org(&world, &session, "third").await;
    submit(&third, &capped).await.expect_status(202);
    for client in [&first, &second, &third] {
        assert_used_up(&submit(client, &capped).await, 3);
    }
    assert_eq!(
        submit_and_wait(&third, &ladder, 1).await["result"]["value"],
        0.5271
    );
    // Bob has created no organization before, so a new one of his has its own allowance.
    let (_, own_client) = create_org(&world, bob.token().unwrap(), "bob's").await;
    submit(&own_client, &capped).await.expect_status(202);
    assert_eq!(
        submit_and_wait(&own_client, &ladder, 1).await["result"]["value"],
        0.0271
    );
    // An organization on another plan gets its own allowance from then on; earlier use still
    // counts.
    world
        .stack
        .operate(&["org", "set", "--org", &first_id, "--plan", "dev"])
        .await
        .unwrap();
    submit(&first, &capped).await.expect_status(202);
    submit(&first, &capped).await.expect_status(202);
    assert_used_up(&submit(&first, &capped).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_creates_at_most_twenty_organizations() {
    let world = world_with(with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000")).await;
    world.widen_plans().await;
    let session = world.sign_in("ada@example.org").await;
    let owner = world.client(&session);
    for n in 0..20 {
        owner
            .post("/v1/orgs", &json!({"name": format!("org {n}")}))
            .await
            .expect_status(201);
    }
    // Simulates that all were transferred.
    sqlx::raw_sql(
        "delete from memberships m using orgs o where o.id = m.org_id and o.created_by is not null",
    )
    .execute(&mut world.database().await)
    .await
    .unwrap();
    let refused = owner
        .post("/v1/orgs", &json!({"name": "one more"}))
        .await
        .expect_error(409, "invalid_state");
    assert!(
        string(&refused.body["error"]["message"]).contains("including those that others own now"),
        "{}",
        refused.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verified_domain_organizations_share_allowance() {
    let name_server = NameServer::start().await;
    let world = world_with(with_setting(
        "ASSAY_DNS_SERVER",
        &name_server.address.to_string(),
    ))
    .await;
    let suite_id = publish(
        &world,
        "domains",
        1,
        "access = \"verified_domain\"\nmax_submissions = 2",
    )
    .await
    .unwrap();
    let refused = submit(&world.key(), &suite_id)
        .await
        .expect_error(403, "forbidden");
    assert_eq!(
        refused.body["error"]["details"],
        json!({"reason": "suite_access", "access": "verified_domain"})
    );
    let stored: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    let files = std::process::Command::new("find")
        .arg(world.stack.artifacts())
        .args(["-name", "*.json"])
        .output()
        .unwrap();
    assert_eq!(
        (stored, String::from_utf8(files.stdout).unwrap().as_str()),
        (0, ""),
        "a rejected submission stores nothing"
    );
    let mut evals = EvalServiceClient::new(world.channel().await);
    let message = v1::CreateEvalRequest {
        suite_id: suite_id.clone(),
        predictions: vec![prediction("i0")],
        ..Default::default()
    };
    let status = evals
        .create_eval(with_token(message, &world.org.key))
        .await
        .unwrap_err();
    let info = status.get_details_error_info().unwrap();
    assert_eq!(
        (
            info.metadata["reason"].as_str(),
            info.metadata["access"].as_str()
        ),
        ("suite_access", "verified_domain")
    );

    claim_verified(&world.owner(), &name_server, "example.org").await;
    let other = org(&world.stack, "team").await;
    claim_verified(
        &world.client(&other.session),
        &name_server,
        "lab.example.org",
    )
    .await;
    let stranger = org(&world.stack, "team").await;
    claim_verified(
        &world.client(&stranger.session),
        &name_server,
        "example.com",
    )
    .await;
    let other = world.client(&other.key);
    submit(&world.key(), &suite_id).await.expect_status(202);
    submit(&other, &suite_id).await.expect_status(202);
    assert_used_up(&submit(&other, &suite_id).await, 2);
    assert_used_up(&submit(&world.key(), &suite_id).await, 2);
    submit(&world.client(&stranger.key), &suite_id)
        .await
        .expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_organization_cannot_submit() {
    let world = world().await;
    let suite_id = publish(&world, "granted", 1, "access = \"granted\"")
        .await
        .unwrap();
    let listed = world.key().get("/v1/suites").await.unwrap().body;
    assert_eq!(listed["suites"][0]["access"], "granted");
    let refused = submit(&world.key(), &suite_id).await;
    assert_eq!(
        refused.body["error"]["details"],
        json!({"reason": "suite_access", "access": "granted"})
    );
    let operate = async |command: &str| {
        world
            .stack
            .operate(&[
                "suite",
                command,
                "--suite",
                &suite_id,
                "--org",
                &world.org.id,
            ])
            .await
            .unwrap()["changed"]
            .clone()
    };
    assert_eq!(
        [operate("grant").await, operate("grant").await],
        [json!(true), json!(false)]
    );
    submit(&world.key(), &suite_id).await.expect_status(202);
    submit(
        &world.client(&org(&world.stack, "team").await.key),
        &suite_id,
    )
    .await
    .expect_status(403);
    // A grant covers all versions.
    publish(&world, "granted", 2, "access = \"granted\"")
        .await
        .unwrap();
    submit(&world.key(), &suite_id).await.expect_status(202);
    assert_eq!(
        [operate("revoke").await, operate("revoke").await],
        [json!(true), json!(false)]
    );
    submit(&world.key(), &suite_id).await.expect_status(403);
    let unknown = world
        .stack
        .operate(&[
            "suite",
            "grant",
            "--suite",
            "suite:nothing",
            "--org",
            &world.org.id,
        ])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("there is no suite suite:nothing"),
        "{unknown}"
    );
    let nobody = world
        .stack
        .operate(&[
            "suite",
            "grant",
            "--suite",
            &suite_id,
            "--org",
            "org_0000000000000000000000",
        ])
        .await;
    assert!(
        nobody
            .unwrap_err()
            .to_string()
            .contains("there is no organization")
    );
}

/// Publishes a suite with 3,000 items whose answers are the item numbers.
async fn large(world: &World) -> String {
    let answers: Vec<Value> = (0..3000).map(|at| json!(at)).collect();
    publish_answers(
        world,
        "large",
        "suite_id = \"suite:large\"\nversion = \"1\"\nmetric = \"rmse\"\n",
        &answers,
    )
    .await
    .unwrap()
}

/// The minimum charge is a thousandth of the suite's items. A submission below it stores no item
/// scores, so it cannot be compared.
#[tokio::test(flavor = "multi_thread")]
async fn small_submission_pays_minimum_charge() {
    let world = world().await;
    let suite_id = large(&world).await;
    let key = world.key();
    let charged = async || {
        key.get("/v1/usage").await.unwrap().body["totals"]["eval_items"]
            .as_i64()
            .unwrap()
    };
    let of = |n: usize| {
        let predictions: Vec<Value> = (0..n)
            .map(|at| json!({"item_id": format!("i{at}"), "prediction": at}))
            .collect();
        json!({"suite_id": suite_id, "predictions": predictions})
    };
    let scored = async |n: usize| {
        let job = key.post("/v1/evals", &of(n)).await.expect_status(202);
        world.wait_until_finished(&string(&job.body["id"])).await
    };
    let two = scored(2).await;
    let three = scored(3).await;
    assert_eq!(
        charged().await,
        3 + 3,
        "two predictions are charged as three, three as three"
    );
    let refused = compare(&key, &two, &three)
        .await
        .expect_error(409, "invalid_state");
    assert!(
        string(&refused.body["error"]["message"]).contains("at least one item in 1,000"),
        "{}",
        refused.body
    );
    let four = scored(4).await;
    compare(&key, &three, &four).await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_item_scores_expire() {
    let world = world().await;
    let suite_id = publish(&world, "expiring", 1, "per_item_feedback = true")
        .await
        .unwrap();
    let key = world.key();
    let a = submit_and_wait(&key, &suite_id, 20).await;
    let b = submit_and_wait(&key, &suite_id, 10).await;
    let items = format!("/v1/jobs/{}/items", string(&a["id"]));
    let object = crate::feedback::move_scores_to_artifact_store(&world, &a).await;
    compare(&key, &a, &b).await.expect_status(200);
    key.get(&items).await.expect_status(200);
    let lifetime = "select (extract(epoch from s.expires_at - j.finished_at) / 86400)::float8 from stored_item_scores s join jobs j on j.id = s.job_id";
    let days: Vec<f64> = sqlx::query_scalar(lifetime)
        .fetch_all(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(days, [30.0, 30.0]);
    sqlx::raw_sql("update stored_item_scores set expires_at = now()")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    // An API process removes expired item scores when it starts, and every minute.
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    let mut database = world.database().await;
    wait_until("removal of the item scores", async || {
        let rows: i64 = sqlx::query_scalar("select count(*) from stored_item_scores")
            .fetch_one(&mut database)
            .await
            .unwrap();
        rows == 0 && !object.exists()
    })
    .await;
    for refused in [compare(&key, &a, &b).await, key.get(&items).await.unwrap()] {
        assert_eq!(
            (refused.status, error_code(&refused)),
            (409, "invalid_state".to_owned()),
            "{}",
            refused.body
        );
        assert!(
            string(&refused.body["error"]["message"]).contains("stored for 30 days"),
            "{}",
            refused.body
        );
    }
}
