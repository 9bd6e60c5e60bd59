//! Baselines: what a publisher pins next to a suite's entries, and jobs are compared with.

use std::path::PathBuf;

use assay_proto::v1;
use assay_proto::v1::comparison_service_client::ComparisonServiceClient;
use serde_json::{Value, json};

use crate::boards::{close_in, final_board};
use crate::disclosure::{publish_folder, write_files};
use crate::grpc::connect;
use crate::harness::{
    Expect, World, error_code, field_error, field_errors, string, submit_until_succeeded,
    with_token, world,
};

/// Items of the suites. Three answers of four are `yes`.
const N: usize = 120;

const PEOPLE: &str = "[[baselines]]\nname = \"People\"\nfile = \"people.ndjson\"\nkind = \"human\"\nurl = \"https://example.com/people\"\n";

fn answer(at: usize) -> &'static str {
    if at.is_multiple_of(4) { "no" } else { "yes" }
}

/// Right for nine items of ten.
fn by_people(at: usize) -> bool {
    !at.is_multiple_of(10)
}

/// Returns predictions that are right for the chosen items.
fn predictions(is_right: impl Fn(usize) -> bool) -> Vec<Value> {
    let label = |at: usize| if is_right(at) { answer(at) } else { "?" };
    (0..N)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
        .collect()
}

/// Writes a suite with additional lines of `suite.toml`, and the people's predictions.
fn write(world: &World, name: &str, more: &str) -> PathBuf {
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-{name}", world.stack.database.name));
    let suite_toml =
        format!("suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\n{more}\n");
    let item = |at: usize| format!("{{\"item_id\":\"i{at}\",\"input\":{{}}}}\n");
    let line = |at: usize| format!("{{\"item_id\":\"i{at}\",\"answer\":\"{}\"}}\n", answer(at));
    let items: String = (0..N).map(item).collect();
    let answers: String = (0..N).map(line).collect();
    write_files(&folder, &suite_toml, &items, &answers);
    let people: String = predictions(by_people)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(folder.join("people.ndjson"), people).unwrap();
    folder
}

async fn publish(world: &World, name: &str, more: &str) -> String {
    publish_folder(world, &write(world, name, more))
        .await
        .unwrap();
    format!("suite:{name}")
}

async fn scored(world: &World, suite_id: &str, is_right: impl Fn(usize) -> bool) -> String {
    let eval = json!({"suite_id": suite_id, "predictions": predictions(is_right)});
    string(&submit_until_succeeded(&world.key(), &eval).await["id"])
}

async fn baselines(world: &World, suite_id: &str) -> Value {
    let suite = world.key().get(&format!("/v1/suites/{suite_id}")).await;
    suite.expect_status(200).body["baselines"].clone()
}

/// Right for two items of three.
fn by_model(at: usize) -> bool {
    !at.is_multiple_of(3)
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_compared_with_baselines_by_name() {
    let world = world().await;
    let suite_id = publish(&world, "pinned", PEOPLE).await;
    let job = scored(&world, &suite_id, by_model).await;
    let people = scored(&world, &suite_id, by_people).await;
    let found = baselines(&world, &suite_id).await;
    let path = format!("/v1/jobs/{people}");
    let result = world.key().get(&path).await.expect_status(200).body["result"].clone();
    assert_eq!(
        found[0],
        json!({
            "name": "People", "kind": "human", "url": "https://example.com/people", "value": result["value"],
            "stderr": result["stderr"], "ci95": result["ci95"], "n_missing": 0,
        })
    );
    assert_eq!(
        (&found[1]["name"], &found[1]["kind"], &found[1]["value"]),
        (
            &json!("most frequent label"),
            &json!("trivial"),
            &json!(0.75)
        )
    );

    // The comparison equals that with a job of the same predictions.
    let compare = async |body: &Value| world.key().post("/v1/comparisons", body).await.unwrap();
    let with_job = compare(&json!({"job_a": job, "job_b": people})).await.body;
    let mut with_baseline = compare(&json!({"job_a": job, "baseline": "People"}))
        .await
        .body;
    assert_eq!(
        (&with_baseline["job_b"], &with_baseline["baseline"]),
        (&json!(""), &json!("People"))
    );
    assert_eq!(with_job.get("baseline"), None);
    let fields = with_baseline.as_object_mut().unwrap();
    fields.remove("baseline");
    fields.insert("job_b".into(), json!(people));
    assert_eq!(with_baseline, with_job);
    let channel = connect(&world).await;
    let request = v1::CreateComparisonRequest {
        job_a: job.clone(),
        baseline: Some("People".into()),
        ..v1::CreateComparisonRequest::default()
    };
    let found = ComparisonServiceClient::new(channel)
        .create_comparison(with_token(request, &world.org.key))
        .await;
    let found = found.unwrap().into_inner().comparison.unwrap();
    assert_eq!(found.baseline.as_deref(), Some("People"));
    assert_eq!(Some(found.p_value), with_job["p_value"].as_f64());

    let unknown = compare(&json!({"job_a": job, "baseline": "Persons"})).await;
    assert_eq!(
        (unknown.status, error_code(&unknown)),
        (404, "not_found".into())
    );
    for body in [
        json!({"job_a": job}),
        json!({"job_a": job, "job_b": people, "baseline": "People"}),
    ] {
        let refused = compare(&body).await;
        assert_eq!(refused.status, 422);
        assert_eq!(
            field_errors(&refused),
            [field_error("job_b", "exactly_one_of")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_with_baseline_counts_once() {
    let world = world().await;
    let suite_id = publish(&world, "capped", &format!("max_submissions = 2\n{PEOPLE}")).await;
    let job = scored(&world, &suite_id, by_model).await;
    for (baseline, status) in [
        ("People", 200),
        ("People", 200),
        ("most frequent label", 403),
    ] {
        let body = json!({"job_a": job, "baseline": baseline});
        let compared = world.key().post("/v1/comparisons", &body).await;
        compared.expect_status(status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounded_baselines_are_rounded() {
    let world = world().await;
    let third = PEOPLE.replace("people.ndjson", "third.ndjson");
    let folder = write(
        &world,
        "rounded-pinned",
        &format!("release = \"rounded(2)\"\n{third}"),
    );
    let lines: String = predictions(|at| at < N / 3 + 1)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(folder.join("third.ndjson"), lines).unwrap();
    publish_folder(&world, &folder).await.unwrap();
    let found = baselines(&world, "suite:rounded-pinned").await;
    let exact = (N / 3 + 1) as f64 / N as f64;
    assert_eq!(found[0]["value"], json!((exact * 100.0).round() / 100.0));
    assert_eq!(found[0]["stderr"].to_string().len(), 4, "{found}");
    let job = scored(&world, "suite:rounded-pinned", by_model).await;
    let body = json!({"job_a": job, "baseline": "People"});
    let compared = world.key().post("/v1/comparisons", &body).await;
    assert_eq!(
        compared.expect_status(200).body["value_b"],
        found[0]["value"]
    );
}

/// Submits two jobs and enters them on the board of a suite with a ladder, which then closes.
async fn ladder_board(world: &World, name: &str, more: &str) -> Value {
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let head = format!(
        "release = \"ladder(0.05)\"\nboard = \"at_close\"\nmax_submissions = 10\ncloses_at = {closes_at}\n{more}"
    );
    let suite_id = publish(world, name, &head).await;
    let all = scored(world, &suite_id, |_| true).await;
    let half = scored(world, &suite_id, |at| at.is_multiple_of(2)).await;
    for (job, entry, status) in [(&all, "all", 201), (&half, "half", 201)] {
        let path = format!("/v1/jobs/{job}/board");
        let entered = world.key().post(&path, &json!({"name": entry})).await;
        entered.expect_status(status);
    }
    let body = json!({"job_a": all, "baseline": "People"});
    let compared = world.key().post("/v1/comparisons", &body).await;
    compared.expect_status(403);
    close_in(world, 0.0).await;
    final_board(&world.key(), &suite_id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn baselines_change_nothing_about_the_entries_of_a_board() {
    let world = world().await;
    let with = ladder_board(&world, "ladder-pinned", PEOPLE).await;
    let without = ladder_board(&world, "ladder-unpinned", "").await;
    // People are right for 90 %: three whole steps above the trivial 75 %.
    let shown = with["baselines"].as_array().unwrap().iter();
    let shown: Vec<(&Value, &Value, f64)> = shown
        .map(|one| (&one["name"], &one["ci95"], one["value"].as_f64().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("People"), &Value::Null, 0.9),
            (&json!("most frequent label"), &Value::Null, 0.75)
        ]
    );
    assert_eq!(without["baselines"], json!([]));
    let place = |row: &Value| {
        ["name", "tier", "rank_low", "rank_high", "value", "ci95"].map(|field| row[field].clone())
    };
    let rows = |board: &Value| -> Vec<_> {
        board["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(place)
            .collect()
    };
    assert_eq!(rows(&with), rows(&without));
    assert_eq!(rows(&with).len(), 2);
    for row in with["entries"].as_array().unwrap() {
        let result = if row["name"] == "all" {
            "better"
        } else {
            "worse"
        };
        let expected =
            ["People", "most frequent label"].map(|name| json!({"name": name, "result": result}));
        assert_eq!(row["vs_baselines"], json!(expected), "{row}");
    }
    assert_eq!(without["entries"][0]["vs_baselines"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_figures_of_baselines_appear_after_the_close() {
    let world = world().await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let head = format!(
        "release = \"sealed(0.5)\"\nseal_seed = \"a seed\"\nboard = \"at_close\"\ncloses_at = {closes_at}\n{PEOPLE}"
    );
    let suite_id = publish(&world, "sealed-pinned", &head).await;
    let job = scored(&world, &suite_id, |at| at % 4 == 1).await;
    let post = async |path: &str, body: &Value| world.key().post(path, body).await.unwrap();
    let path = format!("/v1/jobs/{job}");
    assert_eq!(post(&format!("{path}/final"), &json!({})).await.status, 200);
    let taken = post(&format!("{path}/board"), &json!({"name": "peopIe"})).await;
    assert_eq!(
        (taken.status, &taken.body["error"]["details"]["reason"]),
        (409, &json!("name_taken"))
    );
    let entered = post(&format!("{path}/board"), &json!({"name": "one"})).await;
    assert_eq!(entered.status, 201);
    assert_eq!(baselines(&world, &suite_id).await[0].get("sealed"), None);
    let board = world
        .key()
        .get(&format!("/v1/suites/{suite_id}/board"))
        .await;
    assert_eq!(board.expect_status(200).body["baselines"], json!([]));

    close_in(&world, 0.0).await;
    let sealed: Vec<(bool,)> =
        sqlx::query_as("select sealed from suites join suite_answers using (content_id) where suite_id = $1 order by ordinal")
            .bind(&suite_id)
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
    let share = |is_chosen: &dyn Fn(usize) -> bool| {
        let chosen: Vec<usize> = (0..N).filter(|at| is_chosen(*at)).collect();
        chosen.iter().filter(|at| by_people(**at)).count() as f64 / chosen.len() as f64
    };
    let board = final_board(&world.key(), &suite_id).await;
    let found = baselines(&world, &suite_id).await;
    assert_eq!(found[0]["value"], json!(share(&|at| !sealed[at].0)));
    assert_eq!(
        found[0]["sealed"]["value"],
        json!(share(&|at| sealed[at].0))
    );
    assert_eq!(board["baselines"][0]["value"], found[0]["sealed"]["value"]);
    assert_eq!(board["baselines"][0]["ci95"], found[0]["sealed"]["ci95"]);
    assert_eq!(board["entries"][0]["vs_baselines"][0]["result"], "worse");
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_with_bad_baselines_are_rejected() {
    let world = world().await;
    let twin = PEOPLE.replace("People", "PeopIe");
    for (more, reason) in [
        (format!("{PEOPLE}{twin}"), "looks the same as the name"),
        (
            PEOPLE.replace("https:", "http:"),
            "must be a URL with https",
        ),
        (
            PEOPLE.replace("people.ndjson", "nobody.ndjson"),
            "nobody.ndjson: cannot be read",
        ),
        (
            PEOPLE.replace("human", "alien"),
            "expected one of: human, model, trivial",
        ),
    ] {
        let folder = write(&world, "bad-pinned", &more);
        let error = publish_folder(&world, &folder).await.unwrap_err();
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}
