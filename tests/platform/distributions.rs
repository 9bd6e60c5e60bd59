//! Suites whose answers are distributions of people, whose predictions are quantiles, and whose rankings
//! come from a catalog: from the published folder to the result on both protocols.

use std::path::PathBuf;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::prediction_value::Value as Typed;
use serde_json::{Value, json};

use crate::boards::close_in;
use crate::clusters::scored_offline;
use crate::disclosure::{publish_folder, write_files};
use crate::grpc::connect;
use crate::harness::{
    Expect, World, retry_unavailable_rpc, string, submit_until_succeeded, with_token, world,
};
use crate::receipts::{Evidences, logged_receipt, retire};
use crate::uploads::uploaded;

/// Items of a suite, each of one of two data sets.
const N: usize = 120;

const LABELS: [&str; 3] = ["never", "sometimes", "always"];

/// The people behind each answer.
const PEOPLE: u32 = 50;

/// Returns the shares of people who chose each label.
fn shares(at: usize) -> [f64; 3] {
    let never = 0.05 + 0.08 * (at % 10) as f64;
    [never, 0.1, 0.9 - never]
}

/// Returns the predicted probabilities.
fn guess(at: usize) -> [f64; 3] {
    let [never, ..] = shares(at);
    let other = 0.02 * (at % 7) as f64;
    [0.8 * never, 0.1 + other, 0.9 - other - 0.8 * never]
}

fn by_label(numbers: [f64; 3]) -> Value {
    let pairs = LABELS.iter().zip(numbers);
    pairs
        .map(|(label, number)| ((*label).to_owned(), json!(number)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn tvd(one: [f64; 3], other: [f64; 3]) -> f64 {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| (one - other).abs()).sum::<f64>() / 2.0
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = of.collect();
    all.iter().sum::<f64>() / all.len() as f64
}

fn predictions(of: impl Fn(usize) -> Value) -> Value {
    (0..N)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": of(at)}))
        .collect()
}

/// Writes a suite with these lines of `suite.toml` and these answers.
fn write(world: &World, name: &str, more: &str, answer: &dyn Fn(usize) -> Value) -> PathBuf {
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-{name}", world.stack.database.name));
    let suite_toml = format!("suite_id = \"suite:{name}\"\nversion = \"1\"\n{more}\n");
    let lines = |line: &dyn Fn(usize) -> Value| -> String {
        (0..N).map(|at| format!("{}\n", line(at))).collect()
    };
    let item = |at: usize| {
        json!({
            "item_id": format!("i{at}"),
            "input": {},
            "groups": {"dataset": format!("d{}", at % 2), "person": format!("p{}", at / 4)},
        })
    };
    let line = |at: usize| {
        let mut line = json!({"item_id": format!("i{at}")});
        for (field, value) in answer(at).as_object().unwrap() {
            line[field] = value.clone();
        }
        line
    };
    write_files(&folder, &suite_toml, &lines(&item), &lines(&line));
    folder
}

const DISTRIBUTIONS: &str = "metric = \"tvd\"
labels = [\"never\", \"sometimes\", \"always\"]
cluster = \"person\"
skill = {baseline = \"uniform\", within = \"dataset\"}";

fn distribution(at: usize) -> Value {
    json!({"answer": by_label(shares(at)), "n": PEOPLE})
}

async fn suite(world: &World, suite_id: &str) -> Value {
    let suite = world.key().get(&format!("/v1/suites/{suite_id}")).await;
    suite.expect_status(200).body
}

fn assert_near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
}

/// Returns the skill by the formula: each data set's share of the uniform loss that is avoided.
fn expected_skill() -> f64 {
    mean((0..2).map(|dataset| {
        let items = || (0..N).filter(move |at| at % 2 == dataset);
        let loss = mean(items().map(|at| tvd(guess(at), shares(at))));
        let uniform = mean(items().map(|at| tvd([1.0 / 3.0; 3], shares(at))));
        1.0 - loss / uniform
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn distributions_are_scored_alike_everywhere() {
    let world = world().await;
    let folder = write(&world, "shares", DISTRIBUTIONS, &distribution);
    publish_folder(&world, &folder).await.unwrap();
    let shown = suite(&world, "suite:shares").await;
    assert_eq!(shown["labels"], json!(LABELS));
    assert_eq!(
        shown["skill"],
        json!({"baseline": "uniform", "within": "dataset"})
    );
    let given = predictions(|at| by_label(guess(at)));
    let eval = json!({"suite_id": "suite:shares", "predictions": given});
    let job = submit_until_succeeded(&world.key(), &eval).await;
    let result = &job["result"];
    let value = mean((0..N).map(|at| tvd(guess(at), shares(at))));
    assert_near(&result["value"], value);
    assert_eq!(
        (&result["ci_method"], &result["n_clusters"]),
        (&json!("cluster_t"), &json!(N / 4))
    );
    let skill = &result["skill"];
    assert_near(&skill["value"], expected_skill());
    assert_eq!(
        (&skill["baseline"], &skill["within"]),
        (&json!("uniform"), &json!("dataset"))
    );
    let [low, high] = [0, 1].map(|end| skill["ci95"][end].as_f64().unwrap());
    assert!(low < expected_skill() && expected_skill() < high, "{skill}");
    // Fifty people differ from the shares of all by about this much.
    let floor = &result["ceiling"];
    assert_eq!(
        (&floor["kind"], &floor["stderr"], &floor["n"]),
        (&json!("sampling"), &Value::Null, &json!(N))
    );
    let expected = mean((0..N).map(|at| {
        let deviation = |share: f64| {
            (2.0 * share * (1.0 - share) / f64::from(PEOPLE) / std::f64::consts::PI).sqrt()
        };
        shares(at).into_iter().map(deviation).sum::<f64>() / 2.0
    }));
    let floor = floor["value"].as_f64().unwrap();
    assert!((floor / expected - 1.0).abs() < 0.05, "{floor} {expected}");
    assert_eq!(shown["ceiling"]["value"], result["ceiling"]["value"]);
    assert!(result["share_of_ceiling"]["value"].as_f64().is_some());

    let report = scored_offline(&world, &folder, &given);
    for field in [
        "value",
        "stderr",
        "ci95",
        "skill",
        "ceiling",
        "share_of_ceiling",
    ] {
        assert_eq!(report[field], result[field], "{field}");
    }
    let request = v1::GetJobRequest {
        job_id: string(&job["id"]),
        ..v1::GetJobRequest::default()
    };
    let mut jobs = JobServiceClient::new(connect(&world).await);
    let found = jobs.get_job(with_token(request, &world.org.key)).await;
    let found = found.unwrap().into_inner().job.unwrap().result.unwrap();
    let from_grpc = found.skill.unwrap();
    assert_eq!(
        json!([from_grpc.value, from_grpc.ci95]),
        json!([skill["value"], skill["ci95"]])
    );

    // The opening has the number of people and the options, and gives the score again.
    retire(&world, "suite:shares", &["--yes"]).await.unwrap();
    let evidence = Evidences::new(&world);
    evidence.fetch_keys(&world).await;
    evidence.fetch_opening(&world, "suite:shares", "1").await;
    let opened = std::fs::read_to_string(evidence.path("opening/answers.ndjson")).unwrap();
    assert!(
        opened.starts_with("{\"item_id\":\"i0\",\"answer\":"),
        "{opened}"
    );
    assert_eq!(opened.matches(",\"n\":50").count(), N);
    let lines = given.as_array().unwrap().iter();
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    evidence.write("predictions.ndjson", lines);
    let receipt = logged_receipt(&world.key(), &string(&job["id"]), "").await;
    evidence.write("receipt.json", receipt.to_string());
    let evidences = ["predictions", "opening"];
    let steps = evidence.verify_with_cli(&world, &evidences).await;
    assert!(steps.ends_with("commitment: ok, score: ok"), "{steps}");
}

/// The skill is disclosed as the other figures are.
#[tokio::test(flavor = "multi_thread")]
async fn skill_follows_the_policy() {
    let world = world().await;
    let given = predictions(|at| by_label(guess(at)));
    let result_of = async |name: &str, more: &str| {
        let more = format!("{DISTRIBUTIONS}\n{more}");
        let folder = write(&world, name, &more, &distribution);
        publish_folder(&world, &folder).await.unwrap();
        let eval = json!({"suite_id": format!("suite:{name}"), "predictions": given});
        submit_until_succeeded(&world.key(), &eval).await
    };
    let rounded = result_of("rounded-skill", "release = \"rounded(2)\"").await;
    let skill = rounded["result"]["skill"]["value"].as_f64().unwrap();
    assert!((skill - expected_skill()).abs() <= 0.005 + 1e-9, "{skill}");
    assert!((skill * 100.0 - (skill * 100.0).round()).abs() < 1e-9);
    let ladder = "release = \"ladder(0.1)\"\nmax_submissions = 10";
    let ladder = result_of("ladder-skill", ladder).await;
    assert_eq!(ladder["result"].get("skill"), None);

    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let sealed =
        format!("release = \"sealed(0.5)\"\nseal_seed = \"a seed\"\ncloses_at = {closes_at}");
    let job = result_of("sealed-skill", &sealed).await;
    assert!(job["result"]["skill"]["value"].as_f64().is_some());
    let path = format!("/v1/jobs/{}", string(&job["id"]));
    let marked = world.key().post(&format!("{path}/final"), &json!({})).await;
    marked.expect_status(200);
    close_in(&world, 0.0).await;
    let job = world.key().get(&path).await.expect_status(200).body;
    let both = [&job["result"], &job["result"]["sealed"]].map(|figures| {
        let field = |field: &str| figures[field]["value"].as_f64().unwrap();
        [field("skill"), field("ceiling")]
    });
    assert!(both[0] != both[1], "{both:?}");
}

const QUANTILES: &str = "metric = \"wis\"\nquantiles = [0.1, 0.5, 0.9]\ncluster = \"none\"";

fn levels(at: usize) -> [f64; 3] {
    let middle = (at % 11) as f64;
    [middle - 2.0, middle, middle + 2.5]
}

fn by_level([low, middle, high]: [f64; 3]) -> Value {
    json!({"0.1": low, "0.5": middle, "0.9": high})
}

fn number(at: usize) -> f64 {
    (at % 13) as f64
}

/// Returns the quantile loss of the three levels: twice its mean is the weighted interval score.
fn pinball(at: usize) -> f64 {
    let losses = levels(at).into_iter().zip([0.1, 0.5, 0.9]);
    mean(losses.map(|(predicted, level)| {
        let error = number(at) - predicted;
        error * (level - if error < 0.0 { 1.0 } else { 0.0 })
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn quantiles_are_scored_on_both_protocols() {
    let world = world().await;
    let answer = |at: usize| json!({"answer": number(at)});
    let folder = write(&world, "quantiles", QUANTILES, &answer);
    publish_folder(&world, &folder).await.unwrap();
    let suite_id = "suite:quantiles";
    assert_eq!(
        suite(&world, suite_id).await["quantiles"],
        json!([0.1, 0.5, 0.9])
    );
    let given = predictions(|at| by_level(levels(at)));
    let eval = json!({"suite_id": suite_id, "predictions": given});
    let job = submit_until_succeeded(&world.key(), &eval).await;
    let result = &job["result"];
    assert_near(&result["value"], 2.0 * mean((0..N).map(pinball)));
    let inside = |at: usize| {
        let [low, _, high] = levels(at);
        f64::from(u8::from(low <= number(at) && number(at) <= high))
    };
    assert_near(&result["metrics"]["coverage@0.8"], mean((0..N).map(inside)));
    let report = scored_offline(&world, &folder, &given);
    assert_eq!(report["metrics"], result["metrics"]);

    let one = |at: usize| v1::Prediction {
        item_id: format!("i{at}"),
        prediction: Some(v1::PredictionValue {
            value: Some(Typed::Quantiles(v1::Quantiles {
                by_level: serde_json::from_value(by_level(levels(at))).unwrap(),
            })),
        }),
    };
    let channel = world.channel().await;
    let submitted = retry_unavailable_rpc(async || {
        let request = v1::CreateEvalRequest {
            suite_id: suite_id.into(),
            predictions: (0..N).map(one).collect(),
            ..v1::CreateEvalRequest::default()
        };
        EvalServiceClient::new(channel.clone())
            .create_eval(with_token(request, &world.org.key))
            .await
    });
    let job_id = submitted.await.job.unwrap().id;
    let from_grpc = world.wait_until_finished(&job_id).await;
    assert_eq!(from_grpc["result"]["value"], result["value"]);

    for (prediction, message) in [
        (
            json!({"0.1": 3, "0.5": 2, "0.9": 4}),
            "the value at 0.5 is below that at 0.1",
        ),
        (json!({"0.1": 3, "0.5": 4}), "0.9"),
        (json!({"0.1": 3, "0.5": 4, "0.7": 4, "0.9": 5}), "0.7"),
        (json!(4), "must be an object of level → number"),
    ] {
        let wrong = json!([{"item_id": "i0", "prediction": by_level(levels(0))}, {"item_id": "i1", "prediction": prediction}]);
        let eval = json!({"suite_id": suite_id, "predictions": wrong});
        let refused = world
            .key()
            .post("/v1/evals", &eval)
            .await
            .expect_status(422);
        let error = &refused.body["error"];
        assert_eq!(error["code"], "validation_failed", "{error}");
        let field = &error["details"]["fields"][0];
        assert_eq!(field["field"], "predictions[1].prediction", "{error}");
        assert!(string(&field["message"]).contains(message), "{error}");
    }
}

/// An upload is checked by the worker.
#[tokio::test(flavor = "multi_thread")]
async fn crossing_quantiles_in_an_upload_fail_the_job() {
    let world = world().await;
    let answer = |at: usize| json!({"answer": number(at)});
    let folder = write(&world, "uploaded-quantiles", QUANTILES, &answer);
    publish_folder(&world, &folder).await.unwrap();
    let line = "{\"item_id\":\"i0\",\"prediction\":{\"0.1\":3,\"0.5\":2,\"0.9\":4}}\n";
    let input_ref = uploaded(
        &world.key(),
        json!({"kind": "predictions"}),
        line.as_bytes(),
    )
    .await;
    let eval = json!({"suite_id": "suite:uploaded-quantiles", "input_ref": input_ref});
    let job = world
        .key()
        .post("/v1/evals", &eval)
        .await
        .expect_status(202);
    let job = world.wait_until_finished(&string(&job.body["id"])).await;
    assert_eq!(job["error"]["code"], "invalid_predictions", "{job}");
    let message = string(&job["error"]["message"]);
    assert!(message.contains("line 1"), "{message}");
    assert!(
        message.contains("the value at 0.5 is below that at 0.1"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_shows_figures_of_the_catalog() {
    let world = world().await;
    let answer = |at: usize| json!({"answer": format!("s{}", at % 4)});
    let given = predictions(|_| json!(["s0", "s1", "s3"]));
    for (name, release) in [
        ("catalog", "release = \"exact\""),
        (
            "ladder-catalog",
            "release = \"ladder(0.1)\"\nmax_submissions = 10",
        ),
    ] {
        let more = format!("metric = \"hit_rate@2\"\ncluster = \"none\"\n{release}");
        let folder = write(&world, name, &more, &answer);
        let line = |id: usize| format!("{{\"id\":\"s{id}\",\"popularity\":{}}}\n", 1 << id);
        let catalog: String = (0..4).map(line).collect();
        std::fs::write(folder.join("catalog.ndjson"), catalog).unwrap();
        publish_folder(&world, &folder).await.unwrap();
        let eval = json!({"suite_id": format!("suite:{name}"), "predictions": given});
        let result = submit_until_succeeded(&world.key(), &eval).await["result"].clone();
        // Two of four ids are shown, each at every item.
        assert_near(&result["metrics"]["coverage@2"], 0.5);
        assert_near(&result["metrics"]["gini@2"], 0.5);
        assert_near(&result["metrics"]["popularity@2"], 1.5);
        let novelty = f64::midpoint((15.0_f64).log2(), (15.0_f64 / 2.0).log2());
        assert_near(&result["metrics"]["novelty@2"], novelty);
        let report = scored_offline(&world, &folder, &given);
        assert_eq!(report["metrics"]["gini@2"], result["metrics"]["gini@2"]);
    }
}
