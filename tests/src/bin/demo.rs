//! `cargo demo`: starts a private installation, submits over REST and gRPC, prints the scores, and
//! removes everything.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::prediction_value::Value as PredictionValue;
use assay_tests::binaries::{self, Profile};
use assay_tests::client::Client;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::stack::{Ground, Stack, StackSize};
use assay_tests::{demo_suite, demonstration, playlist_suite};
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("cargo demo: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn step(began: Instant, text: &str) {
    println!("{:>6.2} s  {text}", began.elapsed().as_secs_f64());
}

async fn demo() -> Result<(), Trouble> {
    println!("Building assay-api and assay-worker (a few minutes the first time) …");
    let binaries = binaries::build(Profile::Dev)?;
    let began = Instant::now();
    let servers = Servers::start(&|line| step(began, line))?;
    step(began, "private PostgreSQL and Redis are ready");
    let ground = Arc::new(Ground::new(servers, binaries));
    let mut stack = Stack::start(
        &ground,
        StackSize {
            workers: 2,
            engines: 1,
            ..StackSize::default()
        },
    )
    .await?;
    step(
        began,
        "one API process, two workers and an engine are ready",
    );
    let key = create_suite_and_key(&stack).await?;
    step(
        began,
        "suite of 400 items published, organization and API key created",
    );
    let client = Client::new(stack.url(), Some(&key));
    let items = items(&client, demo_suite::SUITE_ID).await?;
    step(began, "items read over REST; their answers stay hidden");

    let informed = submit_over_rest(&client, &items).await?;
    let informed = wait_for_job(&client, &informed, "REST, past choices", began).await?;
    let uninformed = submit_over_grpc(&stack, &key, &items).await?;
    let uninformed = wait_for_job(&client, &uninformed, "gRPC, menu order ", began).await?;
    print_scores(&informed, &uninformed);
    println!();
    serve(&stack, &client, began).await?;
    println!();
    step(began, "done");
    print_addresses(&stack, &key, &informed);
    stack.stop();
    ground.clear(&stack.database).await
}

/// Publishes the suite, creates an organization, and returns a new API key of it.
async fn create_suite_and_key(stack: &Stack) -> Result<String, Trouble> {
    let create = [
        "org",
        "create",
        "--name",
        "Demo",
        "--owner-email",
        "owner@example.org",
    ];
    let (published, org) =
        tokio::join!(demonstration::publish_lunch(stack), stack.operate(&create));
    published?;
    let org = org?;
    let key = stack
        .operate(&[
            "key",
            "create",
            "--org",
            org["org_id"].as_str().unwrap_or_default(),
            "--name",
            "demo",
        ])
        .await?;
    key["key"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Trouble::new("the new API key has no secret"))
}

async fn items(client: &Client, suite_id: &str) -> Result<Vec<Value>, Trouble> {
    let page = client
        .get(&format!("/v1/suites/{suite_id}/items?limit=1000"))
        .await?;
    page.body["items"]
        .as_array()
        .cloned()
        .ok_or_else(|| Trouble::new(format!("cannot read the items: {}", page.body)))
}

fn job_id(job: &Value) -> Result<String, Trouble> {
    job["id"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Trouble::new(format!("the submission was rejected: {job}")))
}

async fn submit_over_rest(client: &Client, items: &[Value]) -> Result<String, Trouble> {
    let predictions: Vec<Value> = items.iter().map(demo_suite::prediction).collect();
    submit(client, demo_suite::SUITE_ID, "past choices", predictions).await
}

async fn submit(
    client: &Client,
    suite_id: &str,
    label: &str,
    predictions: Vec<Value>,
) -> Result<String, Trouble> {
    let body = json!({"suite_id": suite_id, "label": label, "predictions": predictions});
    job_id(&client.post("/v1/evals", &body).await?.body)
}

/// Lets a model predict a suite and scores its output by one call, scores two baselines, and prints
/// how they compare.
async fn serve(stack: &Stack, client: &Client, began: Instant) -> Result<(), Trouble> {
    demonstration::publish_playlist(stack).await?;
    step(
        began,
        "suite of 600 playlists published, and a model: its engine returns the results of its training",
    );
    let body = json!({"model_id": demonstration::MODEL_ID, "suite_id": playlist_suite::SUITE_ID, "evaluate": true});
    let prediction = client.post("/v1/predictions", &body).await?.body;
    let eval_job_id = prediction["eval_job_id"]
        .as_str()
        .ok_or_else(|| Trouble::new(format!("the prediction was rejected: {prediction}")))?;
    let model = wait_for_job(client, eval_job_id, "model and suite, one call", began).await?;
    let items = items(client, playlist_suite::SUITE_ID).await?;
    let mut scores = vec![(demonstration::MODEL_ID, model)];
    for (name, predictions) in [
        ("usual next song", playlist_suite::by_last_song(&items)),
        ("popular songs", playlist_suite::by_popularity(&items)),
    ] {
        let id = submit(client, playlist_suite::SUITE_ID, name, predictions).await?;
        scores.push((name, wait_for_job(client, &id, name, began).await?));
    }
    println!(
        "\n{} over {} hidden answers:",
        scores[0].1["result"]["metric"].as_str().unwrap_or_default(),
        scores[0].1["result"]["n"]
    );
    for (name, job) in &scores {
        print_score(name, job);
    }
    for (name, job) in &scores[1..] {
        let body = json!({"job_a": scores[0].1["id"], "job_b": job["id"]});
        let compared = client.post("/v1/comparisons", &body).await?.body;
        println!(
            "  better than {name}: p = {}",
            compared["p_value"].as_f64().unwrap_or(f64::NAN)
        );
    }
    Ok(())
}

async fn submit_over_grpc(stack: &Stack, key: &str, items: &[Value]) -> Result<String, Trouble> {
    let predictions = items.iter().map(|item| v1::Prediction {
        item_id: item["item_id"].as_str().unwrap_or_default().to_owned(),
        prediction: Some(v1::PredictionValue {
            value: Some(PredictionValue::Ranking(v1::Ranking {
                ids: demo_suite::by_menu(&item["input"]),
            })),
        }),
    });
    let message = v1::CreateEvalRequest {
        suite_id: demo_suite::SUITE_ID.to_owned(),
        predictions: predictions.collect(),
        label: Some("menu order".to_owned()),
        ..Default::default()
    };
    let mut request = tonic::Request::new(message);
    let bearer: MetadataValue<_> = format!("Bearer {key}")
        .parse()
        .map_err(Trouble::because("the API key is not a valid header value"))?;
    request.metadata_mut().insert("authorization", bearer);
    let mut client = EvalServiceClient::connect(stack.url())
        .await
        .map_err(Trouble::because("cannot connect over gRPC"))?;
    let response = client.create_eval(request).await.map_err(|status| {
        Trouble::new(format!("the submission was rejected: {}", status.message()))
    })?;
    Ok(response.into_inner().job.unwrap_or_default().id)
}

/// Waits for a job and prints each change of its status.
async fn wait_for_job(
    client: &Client,
    job_id: &str,
    name: &str,
    began: Instant,
) -> Result<Value, Trouble> {
    step(began, &format!("{name}: {job_id} submitted"));
    let last = std::cell::RefCell::new(String::new());
    let job = client
        .wait_until_finished(job_id, &|status| {
            if *last.borrow() != status {
                step(began, &format!("{name}: {status}"));
                last.replace(status.to_owned());
            }
        })
        .await?;
    if job["status"] == "succeeded" {
        Ok(job)
    } else {
        Err(Trouble::new(format!("the job did not succeed: {job}")))
    }
}

fn print_score(name: &str, job: &Value) {
    let value = job["result"]["value"].as_f64().unwrap_or_default();
    let bar = "█".repeat((value * 40.0).round() as usize);
    println!("  {name:<28} {value:.4}  {bar}");
}

fn print_scores(informed: &Value, uninformed: &Value) {
    println!(
        "\n{} over {} hidden answers:",
        informed["result"]["metric"].as_str().unwrap_or_default(),
        informed["result"]["n"]
    );
    print_score("past choices first (REST)", informed);
    print_score("menu order (gRPC)", uninformed);
}

fn print_addresses(stack: &Stack, key: &str, job: &Value) {
    println!("\nA trace (OTLP/JSON), available while the demo ran:");
    println!("  {}", job["trace_url"].as_str().unwrap_or_default());
    println!(
        "\nTo try it yourself, run `cargo up`: it keeps such an installation running until Ctrl-C (this one was",
    );
    println!(
        "at {} with the key {}…). README.md has examples with Python, the command line and curl, docs/guide.md with grpcurl.",
        stack.url(),
        &key[..13]
    );
    println!("The demo now stops everything that it started.");
}
