//! Prediction jobs on a real engine: their input, output, limits and errors.

use assay_proto::v1;
use assay_proto::v1::serving_service_client::ServingServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::{Stack, StackSize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::sync::OnceCell;

use crate::harness::{
    Expect, SharedWorld, World, error_code, field_error, field_errors, list_files, org,
    shared_world_on, shared_world_without_workers, string, wait_until, with_token, world_with,
};
use crate::packages::publish;
use crate::serving::package;
use crate::storage::assert_storage_full;
use crate::uploads::{complete, open, put, uploaded};

/// The model's id in `tests/engines/packages/embedded`. Its context has 12 events.
pub const MODEL: &str = "embedded";

/// A suite whose items have sequences of the model's items.
pub const DISHES: &str = "suite:dishes";

/// Number of items of [`DISHES`]: a bit more than two chunks.
pub const N: usize = 150;

fn dish(at: usize) -> String {
    format!("dish-{:02}", at % 24)
}

/// Publishes [`DISHES`] with these additional lines of `suite.toml`.
pub async fn publish_dishes(world: &World, version: &str, more: &str) -> Value {
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-dishes-{version}", world.stack.database.name));
    std::fs::create_dir_all(&folder).unwrap();
    let item = |at: usize| {
        let past: Vec<_> = (0..at % 15).map(|event| dish(at * 7 + event * 5)).collect();
        let options: Vec<_> = (0..6).map(|option| dish(at + option * 3)).collect();
        json!({"item_id": format!("i{at}"), "input": {"user": {"past": past}, "menu": options}})
    };
    let answer = |at: usize| json!({"item_id": format!("i{at}"), "answer": dish(at + 9)});
    let lines = |line: &dyn Fn(usize) -> Value| -> String {
        (0..N).map(|at| format!("{}\n", line(at))).collect()
    };
    let head = format!(
        "suite_id = \"{DISHES}\"\nversion = \"{version}\"\nmetric = \"mrr@6\"\n{more}\n\
         [sequence]\nevents = \"user.past\"\noptions = \"menu\"\n"
    );
    for (file, text) in [
        ("suite.toml", head),
        ("items.ndjson", lines(&item)),
        ("answers.ndjson", lines(&answer)),
    ] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let arguments = ["suite", "publish", folder.to_str().unwrap()];
    world.stack.operate(&arguments).await.unwrap()
}

/// Starts a world with a model and [`DISHES`].
pub async fn prediction_world(workers: usize) -> World {
    let world = world_with(StackSize {
        workers,
        engines: 1,
        ..StackSize::default()
    })
    .await;
    publish_all(&world).await;
    world
}

async fn publish_all(world: &World) {
    publish(world, &package(MODEL), None).await.unwrap();
    publish_dishes(world, "1", "").await;
}

/// Like [`crate::harness::shared_world`], with an engine, a model and [`DISHES`].
pub async fn shared_prediction_world() -> SharedWorld {
    static STACK: OnceCell<Stack> = OnceCell::const_new();
    static PUBLISHED: OnceCell<()> = OnceCell::const_new();
    let plan = StackSize {
        engines: 1,
        ..StackSize::default()
    };
    let world = shared_world_on(&STACK, plan).await;
    PUBLISHED.get_or_init(|| publish_all(&world)).await;
    world
}

/// Creates a prediction job with the model.
pub async fn create(client: &Client, mut body: Value) -> Response {
    let fields = body.as_object_mut().unwrap();
    fields.entry("model_id").or_insert(json!(MODEL));
    client.post("/v1/predictions", &body).await.unwrap()
}

/// Creates a prediction job that is accepted, and returns it.
pub async fn accepted(client: &Client, body: Value) -> Value {
    let response = create(client, body).await.expect_status(202);
    response.body
}

/// Creates a prediction job, waits until it has succeeded, and returns it.
pub async fn predicted(world: &World, body: Value) -> Value {
    let job = accepted(&world.key(), body).await;
    let job = world.wait_until_finished(&string(&job["id"])).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    job
}

/// Returns a job's output.
pub async fn output(client: &Client, job: &Value) -> String {
    let path = format!("/v1/jobs/{}/output", string(&job["id"]));
    let response = client.request("GET", &path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.text().await.unwrap()
}

/// Returns an output's lines.
pub fn lines(output: &str) -> Vec<Value> {
    let lines = output.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn sequence(sequence_id: &str, item_ids: &[&str]) -> Value {
    let events: Vec<_> = item_ids
        .iter()
        .map(|item_id| json!({"item_id": item_id}))
        .collect();
    json!({"sequence_id": sequence_id, "events": events})
}

/// Uploads these sequences, one a line.
pub async fn uploaded_sequences(client: &Client, sequences: &[Value]) -> String {
    let text: String = sequences
        .iter()
        .map(|sequence| format!("{sequence}\n"))
        .collect();
    uploaded(client, json!({"kind": "sequences"}), text.as_bytes()).await
}

/// Returns the predict items and eval items that are charged this month.
pub async fn charged(world: &World) -> (i64, i64) {
    let totals = world.key().get("/v1/usage").await.unwrap().body["totals"].clone();
    let total = |name: &str| totals[name].as_i64().unwrap();
    (total("predict_items"), total("eval_items"))
}

pub async fn count(database: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(database).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_job_writes_submittable_output() {
    let world = shared_prediction_world().await;
    let queued = accepted(&world.key(), json!({"suite_id": DISHES, "label": "dishes"})).await;
    assert_eq!(
        (&queued["type"], &queued["status"], &queued["label"]),
        (&json!("predict"), &json!("queued"), &json!("dishes"))
    );
    let versions = &queued["versions"];
    assert_eq!(
        (&versions["suite_id"], &versions["model_id"]),
        (&json!(DISHES), &json!(MODEL))
    );
    assert!(queued.get("eval_job_id").is_none());
    let job = world.wait_until_finished(&string(&queued["id"])).await;
    let result = &job["result"];
    for (field, expected) in [
        ("model_id", json!(MODEL)),
        ("model_version", json!("1")),
        ("operation", json!("predict")),
        ("engine", json!("default")),
        ("n", json!(N)),
        ("n_failed", json!(0)),
        ("n_unknown", json!(0)),
        // Of 15 lengths, 13 and 14 exceed the context, and 0 is an empty history.
        ("n_truncated", json!(20)),
        ("n_cold", json!(10)),
        ("usage", json!({"predict_items": N})),
    ] {
        assert_eq!(result[field], expected, "{field}");
    }
    let output = output(&world.key(), &job).await;
    assert_eq!(result["output_bytes"], json!(output.len()));
    let upload_id = string(&result["output_ref"]);
    let path = format!("/v1/uploads/{upload_id}");
    let upload = world.key().get(&path).await.unwrap().body;
    for (field, expected) in [
        ("kind", json!("predictions")),
        ("status", json!("ready")),
        ("content_type", json!("application/x-ndjson")),
        ("n_items", json!(N)),
        ("bytes", result["output_bytes"].clone()),
        ("sha256", result["output_sha256"].clone()),
        ("expires_at", result["expires_at"].clone()),
    ] {
        assert_eq!(upload[field], expected, "{field}");
    }
    let lines = lines(&output);
    assert_eq!(lines.len(), N);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["item_id"], json!(format!("i{at}")));
        assert_eq!(line["prediction"].as_array().unwrap().len(), 6);
        assert_eq!(line["scores"].as_array().unwrap().len(), 6);
    }
    let body = json!({"suite_id": DISHES, "input_ref": upload_id});
    let eval = world
        .key()
        .post("/v1/evals", &body)
        .await
        .expect_status(202);
    let eval = world.wait_until_finished(&string(&eval.body["id"])).await;
    assert_eq!(eval["status"], "succeeded", "{eval}");
    assert_eq!(eval["result"]["n_submitted"], json!(N));
    assert_eq!(charged(&world).await, (N as i64, N as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_equal_synchronous_results() {
    let world = prediction_world(1).await;
    let page = world
        .key()
        .get(&format!("/v1/suites/{DISHES}/items"))
        .await
        .unwrap();
    let sequences: Vec<Value> = page.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let past = item["input"]["user"]["past"].as_array().unwrap();
            let events: Vec<_> = past.iter().map(|id| json!({"item_id": id})).collect();
            json!({
                "sequence_id": item["item_id"],
                "events": events,
                "options": item["input"]["menu"],
            })
        })
        .collect();
    let mut expected = Vec::new();
    for chunk in sequences.chunks(64) {
        let path = format!("/v1/models/{MODEL}/predict");
        let response = world.key().post(&path, &json!({"sequences": chunk})).await;
        let response = response.unwrap();
        assert_eq!(response.status, 200, "{}", response.body);
        for data in response.body["data"].as_array().unwrap() {
            expected.push((data["prediction"].clone(), data["scores"].clone()));
        }
    }
    let suite_output = predicted(&world, json!({"suite_id": DISHES})).await;
    let inline = predicted(&world, json!({"sequences": sequences})).await;
    let input_ref = uploaded_sequences(&world.key(), &sequences).await;
    let upload_output = predicted(&world, json!({"input_ref": input_ref})).await;
    for (job, id) in [
        (&suite_output, "item_id"),
        (&inline, "sequence_id"),
        (&upload_output, "sequence_id"),
    ] {
        let lines = lines(&output(&world.key(), job).await);
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(line[id], json!(format!("i{at}")));
            let (prediction, scores) = &expected[at];
            assert_eq!((&line["prediction"], &line["scores"]), (prediction, scores));
        }
        assert_eq!(lines.len(), N);
    }
    let sha256 = |job: &Value| string(&job["result"]["output_sha256"]);
    assert_eq!(sha256(&inline), sha256(&upload_output));
    assert!(inline["versions"].get("suite_id").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_name_their_fields() {
    let world = prediction_world(0).await;
    let key = world.key();
    let one = json!([sequence("a", &["dish-01"])]);
    let pending = open(&key, json!({"kind": "sequences"})).await;
    let predictions = json!({"item_id": "i1", "prediction": ["x"]}).to_string();
    let predictions = uploaded(&key, json!({"kind": "predictions"}), predictions.as_bytes()).await;
    let sequences = uploaded_sequences(&key, one.as_array().unwrap()).await;
    let other = org(&world.stack, "team").await;
    let foreign = uploaded_sequences(&world.client(&other.key), one.as_array().unwrap()).await;
    for (body, field, reason) in [
        (json!({}), "sequences", "exactly_one_of"),
        (
            json!({"sequences": one, "suite_id": DISHES}),
            "sequences",
            "exactly_one_of",
        ),
        (
            json!({"input_ref": sequences, "suite_id": DISHES}),
            "sequences",
            "exactly_one_of",
        ),
        (json!({"sequences": []}), "sequences", "range"),
        (json!({"sequences": {}}), "sequences", "type"),
        (
            json!({"sequences": [{"sequence_id": "a"}]}),
            "sequences[0].events",
            "required",
        ),
        (
            json!({"sequences": [sequence("a", &[]), sequence("b", &["x", ""])]}),
            "sequences[1].events[1].item_id",
            "range",
        ),
        (
            json!({"sequences": [sequence("a", &[]), sequence("a", &[])]}),
            "sequences[1].sequence_id",
            "duplicate",
        ),
        (json!({"input_ref": pending}), "input_ref", "not_found"),
        (json!({"input_ref": predictions}), "input_ref", "kind"),
        (json!({"input_ref": foreign}), "input_ref", "not_found"),
        (json!({"input_ref": "x"}), "input_ref", "not_found"),
        (json!({"suite_id": "suite:none"}), "suite_id", "not_found"),
        (json!({"suite_id": "x"}), "suite_id", "not_found"),
        (
            json!({"sequences": one, "model_id": "none"}),
            "model_id",
            "not_found",
        ),
        (
            json!({"sequences": one, "model_id": ""}),
            "model_id",
            "required",
        ),
        (
            json!({"sequences": one, "model_version": "9"}),
            "model_version",
            "not_found",
        ),
        (
            json!({"sequences": one, "operation": "embed"}),
            "operation",
            "unknown_value",
        ),
        (
            json!({"sequences": one, "parameters": {"top_k": 501}}),
            "parameters.top_k",
            "range",
        ),
        (
            json!({"sequences": one, "parameters": {"on_long": "cut"}}),
            "parameters.on_long",
            "unknown_value",
        ),
        (
            json!({"sequences": one, "parameters": {"k": 1}}),
            "parameters.k",
            "unknown_field",
        ),
        (
            json!({"sequences": one, "parameters": []}),
            "parameters",
            "type",
        ),
        (
            json!({"sequences": one, "evaluate": true}),
            "evaluate",
            "requires_suite",
        ),
        (json!({"sequences": one, "label": ""}), "label", "required"),
        (json!({"sequences": one, "x": 1}), "x", "unknown_field"),
    ] {
        let response = create(&key, body.clone()).await.expect_status(422);
        assert_eq!(
            field_errors(&response),
            [field_error(field, reason)],
            "{body}"
        );
    }
    let missing = key
        .post("/v1/predictions", &json!({"suite_id": DISHES}))
        .await;
    assert!(field_errors(&missing.unwrap()).contains(&field_error("model_id", "required")));
    // The used upload of sequences is no submission.
    let body = json!({"suite_id": DISHES, "input_ref": sequences});
    let refused = key.post("/v1/evals", &body).await.unwrap();
    assert_eq!(field_errors(&refused), [field_error("input_ref", "kind")]);
    // A suite without [sequence], and a metric that scores no rankings.
    let labels = json!(["a"]);
    let labels = labels.as_array().unwrap();
    for (name, more, field, reason) in [
        ("plain", "", "suite_id", "not_a_sequence"),
        (
            "labels",
            "[sequence]\nevents = \"past\"\n",
            "evaluate",
            "metric",
        ),
    ] {
        let head = format!(
            "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\n{more}"
        );
        let folder = crate::disclosure::write_suite(&world, name, &head, labels);
        let items = json!({"item_id": "i0", "input": {"past": ["dish-01"]}});
        std::fs::write(folder.join("items.ndjson"), items.to_string()).unwrap();
        let arguments = ["suite", "publish", folder.to_str().unwrap()];
        world.stack.operate(&arguments).await.unwrap();
        let body = json!({"suite_id": format!("suite:{name}"), "evaluate": true});
        let response = create(&key, body).await;
        assert_eq!(field_errors(&response), [field_error(field, reason)]);
    }
    let mut database = world.database().await;
    assert_eq!(count(&mut database, "select count(*) from jobs").await, 0);
    assert_eq!(charged(&world).await, (0, 0));
    let not_json = key
        .request("POST", "/v1/predictions")
        .header("content-type", "application/json")
        .body(format!("{{\"model_id\": \"{MODEL}\", \"sequences\": [}}"));
    key.send(not_json)
        .await
        .expect_error(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_with_invalid_sequence_is_not_published() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let answers = json!(["a", "b"]);
    let answers = answers.as_array().unwrap();
    for (input, message) in [
        (
            json!({"past": 7}),
            "items.ndjson:2: input.past: must be an array",
        ),
        (
            json!({}),
            "items.ndjson:2: input.past: this field is required",
        ),
        (
            json!({"past": ["x", {"ts": 1}]}),
            "items.ndjson:2: input.past[1]: must be an item id, or an object",
        ),
        (
            json!({"past": [{"item_id": ""}]}),
            "items.ndjson:2: the sequence of the item is not valid: events[0].item_id",
        ),
    ] {
        let head = "suite_id = \"suite:bad\"\nversion = \"1\"\nmetric = \"accuracy\"\n[sequence]\nevents = \"past\"\n";
        let folder = crate::disclosure::write_suite(&world, "bad", head, answers);
        let items = format!(
            "{}\n{}\n",
            json!({"item_id": "i0", "input": {"past": ["x", {"item_id": "y"}]}}),
            json!({"item_id": "i1", "input": input})
        );
        std::fs::write(folder.join("items.ndjson"), items).unwrap();
        let arguments = ["suite", "publish", folder.to_str().unwrap()];
        let refused = world.stack.operate(&arguments).await.unwrap_err();
        assert!(refused.to_string().contains(message), "{refused}");
    }
    let suites = world.key().get("/v1/suites").await.unwrap().body;
    let lunch = &suites["suites"][0];
    assert_eq!(
        lunch["sequence"],
        json!({"events": "past", "options": "options"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn model_that_cannot_serve_is_refused() {
    let world = prediction_world(1).await;
    let mut database = world.database().await;
    let sql = "insert into models (id, version, card, package)
        select 'card', '1', card || '{\"id\": \"card\"}', null from models where id = 'embedded'
        union all
        select 'mute', '1', card || '{\"id\": \"mute\", \"endpoints\": [\"embed\"]}', package from models where id = 'embedded'
        union all
        select 'bare', '1', card || '{\"id\": \"bare\"}', package || '{\"n_items\": null}' from models where id = 'embedded'";
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    let one = json!([sequence("a", &["dish-01"])]);
    for (model_id, reason) in [
        ("card", "no_engine"),
        ("mute", "endpoint_not_offered"),
        ("bare", "tokenizer_not_fitted"),
    ] {
        let response = create(
            &world.key(),
            json!({"model_id": model_id, "sequences": one}),
        )
        .await
        .expect_error(409, "invalid_state");
        assert_eq!(response.body["error"]["details"]["reason"], reason);
    }
    // With options, no items of the catalog are needed.
    let mut with_options = sequence("a", &["dish-01"]);
    with_options["options"] = json!(["dish-02", "dish-03"]);
    let body = json!({"model_id": "bare", "sequences": [with_options]});
    let accepted_job = accepted(&world.key(), body).await;
    assert_eq!(accepted_job["versions"]["model_id"], "bare");
    // An upload may have both, so the lines without options fail.
    let lines_of_both = [with_options, sequence("b", &["dish-01"])];
    let input_ref = uploaded_sequences(&world.key(), &lines_of_both).await;
    let body = json!({"model_id": "bare", "input_ref": input_ref});
    let job = predicted(&world, body).await;
    assert_eq!(job["result"]["n_failed"], 1);
    let lines = lines(&output(&world.key(), &job).await);
    assert!(lines[0]["prediction"].is_array());
    assert!(string(&lines[1]["error"]["message"]).contains("no tokenizer is fitted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_sequences_have_error_lines() {
    let world = shared_prediction_world().await;
    let long: Vec<String> = (0..13).map(dish).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let sequences = [
        sequence("fine", &["dish-01"]),
        sequence("long", &long),
        sequence("unknown", &["dish-01", "haggis"]),
        sequence("fine", &["dish-02"]),
        sequence("cold", &[]),
    ];
    let input_ref = uploaded_sequences(&world.key(), &sequences).await;
    let refuse = json!({"on_long": "refuse", "on_unknown": "refuse", "top_k": 3});
    let body = json!({"input_ref": input_ref, "parameters": refuse});
    let job = predicted(&world, body).await;
    let result = &job["result"];
    assert_eq!(
        [
            &result["n"],
            &result["n_failed"],
            &result["n_cold"],
            &result["n_unknown"]
        ],
        [5, 3, 1, 0].map(|n| json!(n)).each_ref()
    );
    assert_eq!(result["usage"], json!({"predict_items": 2}));
    let found = lines(&output(&world.key(), &job).await);
    let summary: Vec<_> = found
        .iter()
        .map(|line| {
            let id = string(&line["sequence_id"]);
            match line.get("error") {
                Some(error) => {
                    assert_eq!(error["code"], "validation_failed");
                    (id, string(&error["message"]))
                }
                None => (id, line["prediction"].as_array().unwrap().len().to_string()),
            }
        })
        .collect();
    let starts = [
        ("fine", "3"),
        (
            "long",
            "events: has more events than the model looks back on",
        ),
        (
            "unknown",
            "events: \"haggis\": the model does not know this item",
        ),
        ("fine", "sequence_id: an earlier line has the same id"),
        ("cold", "3"),
    ];
    for ((id, text), (expected, start)) in summary.iter().zip(starts) {
        assert!(id == expected && text.starts_with(start), "{id}: {text}");
    }
    // Sequences without a prediction are refunded, once.
    assert_eq!(charged(&world).await, (2, 0));
    let skipped = json!({"top_k": 3, "exclude_seen": true});
    let body = json!({"sequences": [sequences[1], sequences[2]], "parameters": skipped});
    let job = predicted(&world, body).await;
    let result = &job["result"];
    assert_eq!(
        [
            &result["n_failed"],
            &result["n_truncated"],
            &result["n_unknown"]
        ],
        [0, 1, 1].map(|n| json!(n)).each_ref()
    );
    for line in lines(&output(&world.key(), &job).await) {
        assert!(
            !line["prediction"]
                .as_array()
                .unwrap()
                .contains(&json!("dish-01"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_items_score_as_missing() {
    let world = shared_prediction_world().await;
    let refuse = json!({"on_long": "refuse"});
    let body = json!({"suite_id": DISHES, "parameters": refuse, "evaluate": true});
    let job = predicted(&world, body).await;
    assert_eq!(job["result"]["n_failed"], 20);
    let eval = world
        .wait_until_finished(&string(&job["eval_job_id"]))
        .await;
    let result = &eval["result"];
    assert_eq!(
        (&result["n_submitted"], &result["n_missing"], &result["n"]),
        (&json!(N - 20), &json!(20), &json!(N))
    );
    // Submitting the lines that have a prediction gives the same figures.
    let fine: Vec<Value> = lines(&output(&world.key(), &job).await)
        .into_iter()
        .filter(|line| line.get("error").is_none())
        .collect();
    let body = json!({"suite_id": DISHES, "predictions": fine});
    let by_hand = world.key().post("/v1/evals", &body).await.unwrap();
    let by_hand = world
        .wait_until_finished(&string(&by_hand.body["id"]))
        .await;
    assert_eq!(by_hand["result"], eval["result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_with_invalid_lines_is_rejected() {
    let world = shared_world_without_workers().await;
    let key = world.key();
    let array = json!({"kind": "sequences", "content_type": "application/json"});
    let refused = key.post("/v1/uploads", &array).await.unwrap();
    assert_eq!(
        field_errors(&refused),
        [field_error("content_type", "range")]
    );
    let fine = sequence("a", &["x"]);
    for (text, field, reason) in [
        (format!("{fine}\n\n{{\n"), "line 3", "format"),
        (format!("{fine}\n7\n"), "line 2", "type"),
        (
            format!("{fine}\n{}", json!({"sequence_id": "b"})),
            "line 2.events",
            "required",
        ),
        (
            format!("{}\n", sequence("a", &["x", ""])),
            "line 1.events[1].item_id",
            "range",
        ),
        (
            format!("{}\n", json!({"item_id": "a", "prediction": "x"})),
            "line 1.events",
            "required",
        ),
        ("\n \n".to_owned(), "sequences", "required"),
        (
            format!("{fine}\n{}\n", " ".repeat(1 << 20) + "x"),
            "line 2",
            "range",
        ),
    ] {
        let upload_id = open(&key, json!({"kind": "sequences"})).await;
        put(&key, &upload_id, 1, text.into_bytes())
            .await
            .expect_status(200);
        let done = complete(&key, &upload_id).await.expect_status(422);
        assert!(
            field_errors(&done).contains(&field_error(field, reason)),
            "{field}: {}",
            done.body
        );
        let path = format!("/v1/uploads/{upload_id}");
        let upload = key.get(&path).await.unwrap().body;
        assert_eq!(
            (&upload["status"], &upload["error"]["code"]),
            (&json!("failed"), &json!("invalid_sequences"))
        );
    }
    let ready = uploaded_sequences(&key, &[fine.clone(), fine]).await;
    let upload = key.get(&format!("/v1/uploads/{ready}")).await.unwrap().body;
    assert_eq!(
        (&upload["kind"], &upload["n_items"]),
        (&json!("sequences"), &json!(2)),
        "repeated ids are detected by the job"
    );
}

async fn ranged(client: &Client, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
    let request = client.request("GET", path);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_supports_ranges() {
    let world = shared_prediction_world().await;
    let key = world.key();
    let job = predicted(&world, json!({"suite_id": DISHES})).await;
    let whole = output(&key, &job).await;
    let n = whole.len();
    let path = format!("/v1/jobs/{}/output", string(&job["id"]));
    let head = ranged(&key, &path, &[]).await;
    let header = |response: &reqwest::Response, name: &str| {
        let value = response.headers().get(name);
        value
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    };
    let etag = format!("\"{}\"", string(&job["result"]["output_sha256"]));
    for (name, value) in [
        ("content-type", "application/x-ndjson"),
        ("accept-ranges", "bytes"),
        ("content-length", &n.to_string()),
        ("etag", &etag),
    ] {
        assert_eq!(header(&head, name), value, "{name}");
    }
    for (range, from, to) in [
        ("bytes=0-9", 0, 10),
        ("bytes=100-", 100, n),
        ("bytes=-7", n - 7, n),
        (&*format!("bytes={}-{}", n - 1, n + 50), n - 1, n),
    ] {
        let part = ranged(&key, &path, &[("range", range), ("if-range", &etag)]).await;
        assert_eq!(part.status(), 206, "{range}");
        let content_range = format!("bytes {from}-{}/{n}", to - 1);
        assert_eq!(header(&part, "content-range"), content_range);
        assert_eq!(part.text().await.unwrap(), whole[from..to], "{range}");
    }
    let other = [("range", "bytes=0-9"), ("if-range", "\"other\"")];
    let ignored = ranged(&key, &path, &other).await;
    assert_eq!(
        (ignored.status().as_u16(), ignored.text().await.unwrap()),
        (200, whole.clone())
    );
    let beyond = format!("bytes={n}-");
    let beyond = ranged(&key, &path, &[("range", &beyond)]).await;
    assert_eq!(beyond.status(), 416);
    assert_eq!(header(&beyond, "content-range"), format!("bytes */{n}"));
    assert!(beyond.text().await.unwrap().contains("invalid_request"));

    let mut rpc = ServingServiceClient::new(world.channel().await);
    for offset in [None, Some(0), Some(n as i64 - 3)] {
        let message = v1::StreamJobOutputRequest {
            job_id: string(&job["id"]),
            offset,
        };
        let stream = rpc
            .stream_job_output(with_token(message, &world.org.key))
            .await;
        let mut stream = stream.unwrap().into_inner();
        let mut data = Vec::new();
        while let Some(piece) = stream.message().await.unwrap() {
            data.extend(piece.data);
        }
        let from = usize::try_from(offset.unwrap_or(0)).unwrap();
        assert_eq!(String::from_utf8(data).unwrap(), whole[from..]);
    }
    for offset in [-1, n as i64] {
        let message = v1::StreamJobOutputRequest {
            job_id: string(&job["id"]),
            offset: Some(offset),
        };
        let refused = rpc
            .stream_job_output(with_token(message, &world.org.key))
            .await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_succeeded_prediction_has_output() {
    let mut world = prediction_world(1).await;
    let key = world.key();
    let job = predicted(&world, json!({"suite_id": DISHES, "evaluate": true})).await;
    let eval_id = string(&job["eval_job_id"]);
    world.wait_until_finished(&eval_id).await;
    world.stack.workers.clear();
    let queued = accepted(&key, json!({"suite_id": DISHES})).await;
    let status = async |client: &Client, id: &str| {
        let path = format!("/v1/jobs/{id}/output");
        let response = client.get(&path).await.unwrap();
        (response.status, error_code(&response))
    };
    let missing = (404, "not_found".to_owned());
    let other = org(&world.stack, "team").await;
    let other = world.client(&other.key);
    let job_id = string(&job["id"]);
    assert_eq!(status(&key, &eval_id).await, missing);
    assert_eq!(status(&key, "job_0").await, missing);
    assert_eq!(status(&other, &job_id).await, missing);
    let early = status(&key, &string(&queued["id"])).await;
    assert_eq!(early, (409, "invalid_state".to_owned()));
    // Another organization sees neither the job nor the upload.
    let upload_path = format!("/v1/uploads/{}", string(&job["result"]["output_ref"]));
    other.get(&upload_path).await.expect_status(404);
    other
        .get(&format!("/v1/jobs/{job_id}"))
        .await
        .expect_status(404);
    let body = json!({"suite_id": DISHES, "input_ref": job["result"]["output_ref"]});
    other.post("/v1/evals", &body).await.expect_status(422);
    key.delete(&upload_path).await.expect_status(204);
    assert_eq!(status(&key, &job_id).await, missing);
    let listed = key.get("/v1/jobs?type=predict").await.unwrap().body;
    let ids: Vec<_> = listed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| string(&job["id"]))
        .collect();
    assert_eq!(ids, [string(&queued["id"]), job_id]);
    let evals = key
        .get("/v1/jobs?type=eval&status=succeeded")
        .await
        .unwrap()
        .body;
    assert_eq!(string(&evals["jobs"][0]["id"]), eval_id);
    // What only evals have.
    let path = format!("/v1/jobs/{}/items", ids[1]);
    key.get(&path).await.expect_status(404);
    let path = format!("/v1/jobs/{}/final", ids[1]);
    let refused = key.send(key.request("POST", &path)).await.unwrap();
    assert_eq!(error_code(&refused), "invalid_state");
}

#[tokio::test(flavor = "multi_thread")]
async fn month_admits_exactly_its_predict_items() {
    let world = prediction_world(1).await;
    let max = N + 3;
    let arguments = [
        "plan",
        "set",
        "team",
        "--predict-items-per-month",
        &max.to_string(),
    ];
    world.stack.operate(&arguments).await.unwrap();
    predicted(&world, json!({"suite_id": DISHES})).await;
    let some = |n: usize| {
        let ids = (0..n).map(|at| sequence(&format!("s{at}"), &["dish-01"]));
        json!({"sequences": ids.collect::<Vec<_>>()})
    };
    let refused = create(&world.key(), some(4))
        .await
        .expect_error(429, "quota_exceeded");
    let details = &refused.body["error"]["details"];
    assert_eq!(
        (&details["limit"], &details["max"]),
        (&json!("predict_items_per_month"), &json!(max))
    );
    predicted(&world, some(3)).await;
    create(&world.key(), some(1)).await.expect_status(429);
    // Jobs and synchronous requests share the month.
    let path = format!("/v1/models/{MODEL}/predict");
    world.key().post(&path, &some(1)).await.expect_status(429);
    assert_eq!(charged(&world).await, (max as i64, 0));
    // Evals have their own limit.
    world
        .submit(&crate::harness::one_prediction())
        .await
        .expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_cannot_finish_is_refused() {
    let world = prediction_world(0).await;
    // So slow that the time for one engine call suffices for 20 sequences.
    let cores = std::thread::available_parallelism().unwrap().get();
    let most = 20;
    let sequence_us = 60 * 1_000_000 * cores / most;
    let slow =
        "update models set package = jsonb_set(package, '{sequence_us}', to_jsonb($1::bigint))";
    sqlx::query(slow)
        .bind(sequence_us as i64)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let refused = create(&world.key(), json!({"suite_id": DISHES}))
        .await
        .expect_error(413, "payload_too_large");
    let message = string(&refused.body["error"]["message"]);
    let advice = format!("Send at most {most} sequences in one job.");
    assert!(message.ends_with(&advice), "{message}");
    let sequences: Vec<Value> = (0..most)
        .map(|at| sequence(&at.to_string(), &["dish-01"]))
        .collect();
    accepted(&world.key(), json!({"sequences": sequences})).await;
    assert_eq!(charged(&world).await, (most as i64, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_stored_over_the_limit() {
    let world = prediction_world(1).await;
    world
        .stack
        .operate(&["plan", "set", "team", "--storage-bytes", "1000"])
        .await
        .unwrap();
    let job = predicted(&world, json!({"suite_id": DISHES})).await;
    let bytes = &job["result"]["output_bytes"];
    assert!(bytes.as_i64().unwrap() > 1000, "{bytes}");
    let usage = world.key().get("/v1/usage").await.unwrap().body;
    assert_eq!(&usage["stored_bytes"], bytes);
    let refused = create(&world.key(), json!({"suite_id": DISHES})).await;
    assert_storage_full(&refused, 1000);
    let output = format!("/v1/uploads/{}", string(&job["result"]["output_ref"]));
    let deleted = world.key().request("DELETE", &output);
    world.key().send(deleted).await.expect_status(204);
    wait_until("the storage is free", async || {
        create(&world.key(), json!({"suite_id": DISHES}))
            .await
            .status
            == 202
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repetition_returns_the_same_job() {
    let world = prediction_world(0).await;
    let sequences = [sequence("a", &["dish-01"]), sequence("b", &[])];
    let input_ref = uploaded_sequences(&world.key(), &sequences).await;
    let keyed = async |key: &str, mut body: Value| {
        body["model_id"] = json!(MODEL);
        let client = world.key();
        let request = client.request("POST", "/v1/predictions");
        let request = request.header("Idempotency-Key", key).json(&body);
        client.send(request).await.unwrap()
    };
    for (key, body, other) in [
        (
            "suite",
            json!({"suite_id": DISHES, "evaluate": true}),
            json!({"suite_id": DISHES}),
        ),
        (
            "inline",
            json!({"sequences": sequences}),
            json!({"sequences": sequences, "parameters": {"top_k": 3}}),
        ),
    ] {
        let first = keyed(key, body.clone()).await.expect_status(202);
        let charged_before = charged(&world).await;
        let again = keyed(key, body).await.expect_status(202);
        assert_eq!(again.header("idempotency-replayed"), "true");
        // The place in the queue changes.
        let without_place = |body: &Value| {
            let mut body = body.clone();
            body["queue"] = Value::Null;
            body
        };
        assert_eq!(without_place(&again.body), without_place(&first.body));
        let conflict = keyed(key, other).await.expect_status(422);
        assert_eq!(
            conflict.body["error"]["details"]["job_id"],
            first.body["id"]
        );
        assert_eq!(charged(&world).await, charged_before);
    }
    // An upload with the same content is the same submission.
    let uploaded = keyed("inline", json!({"input_ref": input_ref})).await;
    assert_eq!(
        uploaded.header("idempotency-replayed"),
        "true",
        "{}",
        uploaded.body
    );
    // Keys are shared with evals.
    let client = world.key();
    let eval = client
        .request("POST", "/v1/evals")
        .header("Idempotency-Key", "inline")
        .json(&json!({"suite_id": DISHES, "predictions": [{"item_id": "i0", "prediction": "x"}]}));
    client.send(eval).await.expect_status(422);
    let mut database = world.database().await;
    assert_eq!(count(&mut database, "select count(*) from jobs").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_deleted_after_a_minute() {
    let world = prediction_world(1).await;
    let secret = "canary-of-a-history";
    // Small input is stored with the job, large input in the artifact store.
    for events in [1, 4_000] {
        let ids = vec![secret; events];
        let job = predicted(&world, json!({"sequences": [sequence("a", &ids)]})).await;
        assert_eq!(job["result"]["n_unknown"], events);
    }
    let mut database = world.database().await;
    let rows = "select count(*) from stored_predictions";
    let models = "select count(*) from jobs where served_model is not null";
    assert_eq!(count(&mut database, rows).await, 2);
    let age = "update jobs set finished_at = finished_at - interval '2 minutes'";
    sqlx::raw_sql(age).execute(&mut database).await.unwrap();
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    wait_until("cleanup", async || count(&mut database, rows).await == 0).await;
    assert_eq!(count(&mut database, models).await, 0);
    let contains = |path: &std::path::Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes())
    };
    let artifacts = list_files(&world.stack.artifacts());
    assert!(artifacts.iter().all(|path| !contains(path)));
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        assert!(!contains(&process.log), "a history is in a log");
    }
    for engine in &world.stack.engines {
        assert!(
            !contains(&engine.log),
            "a history is in the log of the engine"
        );
    }
    // The outputs stay.
    let outputs = "select count(*) from uploads where status = 'ready'";
    assert_eq!(count(&mut database, outputs).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_creates_the_same_job() {
    let world = shared_prediction_world().await;
    let mut rpc = ServingServiceClient::new(world.channel().await);
    let event = |item_id: &str| v1::SequenceEvent {
        item_id: item_id.into(),
        r#type: None,
        ts: None,
    };
    let message = v1::CreatePredictionRequest {
        model_id: MODEL.into(),
        sequences: vec![v1::Sequence {
            sequence_id: "a".into(),
            events: vec![event("dish-01"), event("dish-02")],
            options: vec!["dish-03".into(), "dish-04".into()],
        }],
        parameters: Some(v1::PredictionParameters {
            top_k: Some(1),
            ..v1::PredictionParameters::default()
        }),
        idempotency_key: Some("k".into()),
        ..v1::CreatePredictionRequest::default()
    };
    let created = rpc
        .create_prediction(with_token(message, &world.org.key))
        .await
        .unwrap()
        .into_inner();
    let job = created.job.unwrap();
    assert_eq!(
        (job.r#type.as_str(), created.idempotency_replayed),
        ("predict", false)
    );
    let mut sequence = sequence("a", &["dish-01", "dish-02"]);
    sequence["options"] = json!(["dish-03", "dish-04"]);
    let body = json!({
        "model_id": MODEL, "sequences": [sequence], "parameters": {"top_k": 1}
    });
    let client = world.key();
    let request = client.request("POST", "/v1/predictions");
    let request = request.header("Idempotency-Key", "k").json(&body);
    let again = client.send(request).await.unwrap();
    assert_eq!(
        again.header("idempotency-replayed"),
        "true",
        "{}",
        again.body
    );
    assert_eq!(string(&again.body["id"]), job.id);
    let finished = world.wait_until_finished(&job.id).await;
    let lines = lines(&output(&client, &finished).await);
    assert_eq!(lines[0]["prediction"].as_array().unwrap().len(), 1);
    let message = v1::GetJobRequest {
        job_id: job.id,
        wait: None,
    };
    let mut jobs = v1::job_service_client::JobServiceClient::new(world.channel().await);
    let got = jobs
        .get_job(with_token(message, &world.org.key))
        .await
        .unwrap();
    let got = got.into_inner().job.unwrap();
    let result = got.predict_result.unwrap();
    assert_eq!(
        (got.result, result.n, result.operation.as_str()),
        (None, 1, "predict")
    );
    let invalid = v1::CreatePredictionRequest::default();
    let refused = rpc
        .create_prediction(with_token(invalid, &world.org.key))
        .await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_has_phases_and_counts() {
    let world = shared_prediction_world().await;
    let job = predicted(&world, json!({"suite_id": DISHES})).await;
    let path = format!("/v1/jobs/{}/trace", string(&job["id"]));
    let trace = world.key().get(&path).await.unwrap().body;
    let spans = trace["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
    let names: Vec<_> = spans
        .as_array()
        .unwrap()
        .iter()
        .map(|span| string(&span["name"]))
        .collect();
    assert_eq!(
        names,
        [
            "predict",
            "request",
            "queue wait",
            "attempt",
            "fetch input",
            "predict",
            "finish output",
            "persist",
            "assay.predict.result"
        ]
    );
    let text = trace.to_string();
    assert!(
        text.contains("assay.model.id") && !text.contains("dish-"),
        "{text}"
    );
}
