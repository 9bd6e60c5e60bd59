//! Suites whose items come from persons: errors, comparisons, boards and receipts are by person.

use std::path::{Path, PathBuf};

use assay_eval::SCORER;
use assay_proto::v1;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use assay_tests::client::Client;
use serde_json::{Value, json};

use crate::boards::{close_in, final_board};
use crate::disclosure::{publish_folder, write_files};
use crate::grpc::connect;
use crate::harness::{Expect, World, org, string, submit_until_succeeded, with_token, world};
use crate::receipts::{Evidences, logged_receipt, retire};

/// Persons of the suites, and items of each.
const PERSONS: usize = 24;
const ITEMS_EACH: usize = 4;
const N: usize = PERSONS * ITEMS_EACH;

/// A person's name that no response may contain if the field is hidden.
const PERSON: &str = "canary-person-";

/// The place of the group field.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Items,
    Answers,
    Input,
}

/// Writes a suite whose items come from persons, with these additional lines of `suite.toml`. Every
/// answer is `yes`. The items of a person are not next to each other.
fn write(world: &World, name: &str, place: Place, more: &str) -> PathBuf {
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-{name}", world.stack.database.name));
    let cluster = match place {
        Place::Items | Place::Answers => "person",
        Place::Input => "input.who.id",
    };
    let suite_toml = format!(
        "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\ncluster = \"{cluster}\"\n{more}\n"
    );
    let line = |at: usize, field: &str, mut value: Value, has_groups: bool| {
        let person = at % PERSONS;
        if field == "input" && place == Place::Input {
            value = json!({"who": {"id": person}});
        }
        let mut line = json!({"item_id": format!("i{at}"), field: value});
        if has_groups {
            line["groups"] = json!({"person": format!("{PERSON}{person}")});
        }
        format!("{line}\n")
    };
    let items: String = (0..N)
        .map(|at| line(at, "input", json!({}), place == Place::Items))
        .collect();
    let answers: String = (0..N)
        .map(|at| line(at, "answer", json!("yes"), place == Place::Answers))
        .collect();
    write_files(&folder, &suite_toml, &items, &answers);
    folder
}

/// Returns predictions that are right for the chosen items.
fn predictions(is_right: impl Fn(usize) -> bool) -> Value {
    let label = |at: usize| if is_right(at) { "yes" } else { "no" };
    (0..N)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
        .collect()
}

/// Right for two persons of three.
fn by_person(at: usize) -> bool {
    !(at % PERSONS).is_multiple_of(3)
}

/// Right for the same persons, and for one item of each other person.
fn a_little_better(at: usize) -> bool {
    by_person(at) || at < PERSONS
}

async fn scored(client: &Client, suite_id: &str, predictions: &Value) -> Value {
    let eval = json!({"suite_id": suite_id, "predictions": predictions});
    submit_until_succeeded(client, &eval).await
}

/// Returns the report on predictions that are scored with a folder, without a server.
pub fn scored_offline(world: &World, folder: &Path, predictions: &Value) -> Value {
    let file = folder.join("predictions.json");
    std::fs::write(&file, predictions.to_string()).unwrap();
    let scored = std::process::Command::new(&world.stack.ground.binaries.worker)
        .arg("score")
        .arg("--suite")
        .arg(folder)
        .arg("--predictions")
        .arg(&file)
        .output()
        .unwrap();
    serde_json::from_slice(&scored.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&scored.stderr)))
}

/// Returns the standard error over persons by the formula: √(G/(G − 1) · Σ U²)/n.
fn stderr_by_person(terms: &[f64]) -> f64 {
    let n = terms.len() as f64;
    let mean = terms.iter().sum::<f64>() / n;
    let mut sums = [0.0; PERSONS];
    for (at, term) in terms.iter().enumerate() {
        sums[at % PERSONS] += term - mean;
    }
    let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
    let persons = PERSONS as f64;
    (persons / (persons - 1.0) * squares).sqrt() / n
}

fn assert_near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= 1e-12 * expected.abs().max(1.0),
        "{found} {expected}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_comparisons_are_by_person() {
    let world = world().await;
    for (name, place) in [
        ("persons", Place::Items),
        ("hidden-persons", Place::Answers),
        ("input-persons", Place::Input),
    ] {
        let folder = write(&world, name, place, "");
        publish_folder(&world, &folder).await.unwrap();
        let suite_id = format!("suite:{name}");
        let first = scored(&world.key(), &suite_id, &predictions(by_person)).await;
        let second = scored(&world.key(), &suite_id, &predictions(a_little_better)).await;
        let result = &first["result"];
        let scores: Vec<f64> = (0..N).map(|at| f64::from(by_person(at))).collect();
        let stderr = stderr_by_person(&scores);
        assert_near(&result["stderr"], stderr);
        assert_eq!(result["ci_method"], "cluster_wilson");
        assert_eq!(result["n_clusters"], PERSONS);
        let share = result["value"].as_f64().unwrap();
        assert_near(
            &result["design_effect"],
            stderr * stderr * N as f64 / (share * (1.0 - share)),
        );

        let body = json!({"job_a": first["id"], "job_b": second["id"]});
        let found = world
            .key()
            .post("/v1/comparisons", &body)
            .await
            .expect_status(200)
            .body;
        let differences: Vec<f64> = (0..N)
            .map(|at| f64::from(by_person(at)) - f64::from(a_little_better(at)))
            .collect();
        assert_near(&found["stderr"], stderr_by_person(&differences));
        assert_eq!(found["p_method"], "cluster_sign_flip");
        assert_eq!(found["ci_method"], "cluster_t");
        assert_eq!(found["n_clusters"], PERSONS);
        // Eight persons differ, all in one direction: 2 of 2⁸ sign combinations are as extreme.
        assert_eq!(
            (&found["n_clusters_differ"], &found["n_differ"]),
            (&json!(8), &json!(8))
        );
        assert_near(&found["p_value"], 2.0 / 256.0);
        let needed = found["n_clusters_needed"].as_f64().unwrap();
        assert_eq!(
            found["n_needed"].as_f64().unwrap(),
            needed * ITEMS_EACH as f64
        );

        let suite = world.key().get("/v1/suites").await.unwrap().body;
        let suite = suite["suites"].as_array().unwrap().iter();
        let suite = suite
            .clone()
            .find(|suite| suite["suite_id"] == suite_id.as_str())
            .unwrap();
        assert_eq!(suite["cluster_is_hidden"], place == Place::Answers);
        assert_eq!(suite["n_clusters"], PERSONS);
        let path = format!("/v1/suites/{suite_id}/items");
        let items = world.key().get(&path).await.unwrap().body["items"].clone();
        let groups = match place {
            Place::Items => json!({"person": format!("{PERSON}1")}),
            Place::Answers | Place::Input => json!({}),
        };
        assert_eq!(items[1]["groups"], groups);
        if place == Place::Answers {
            assert!(!items.to_string().contains(PERSON));
        }

        // A folder that is scored on the researcher's machine has the same figures.
        let report = scored_offline(&world, &folder, &predictions(by_person));
        for field in [
            "value",
            "stderr",
            "ci95",
            "ci_method",
            "n_clusters",
            "design_effect",
        ] {
            assert_eq!(report[field], result[field], "{field}");
        }
    }
    let mut suites = SuiteServiceClient::new(connect(&world).await);
    let request = with_token(
        v1::ListSuiteItemsRequest {
            suite_id: "suite:persons".into(),
            ..v1::ListSuiteItemsRequest::default()
        },
        &world.org.key,
    );
    let page = suites.list_suite_items(request).await.unwrap().into_inner();
    assert_eq!(page.items[1].groups["person"], format!("{PERSON}1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_figures_boards_and_receipts_are_by_person() {
    let world = world().await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let more = format!(
        "release = \"sealed(0.5)\"\nseal_seed = \"a seed\"\nboard = \"at_close\"\ncloses_at = {closes_at}"
    );
    let folder = write(&world, "sealed-persons", Place::Answers, &more);
    publish_folder(&world, &folder).await.unwrap();
    let suite_id = "suite:sealed-persons";

    // Whole persons are sealed, and at least half of the items.
    let sealed: Vec<(i32, bool)> = sqlx::query_as(
        "select ordinal, sealed from suites join suite_answers using (content_id) where suite_id = $1 order by ordinal",
    )
    .bind(suite_id)
    .fetch_all(&mut world.database().await)
    .await
    .unwrap();
    for (ordinal, is_sealed) in &sealed {
        assert_eq!(
            *is_sealed,
            sealed[*ordinal as usize % PERSONS].1,
            "{ordinal}"
        );
    }
    assert_eq!(
        sealed.iter().filter(|(_, is_sealed)| *is_sealed).count(),
        N / 2
    );

    let job = scored(&world.key(), suite_id, &predictions(by_person)).await;
    assert_eq!(job["result"]["n_clusters"], PERSONS / 2);
    let other_org = org(&world.stack, "free").await;
    let other = world.client(&other_org.key);
    let worse = scored(&other, suite_id, &predictions(|at| at % PERSONS == 1)).await;
    for (client, job) in [(&world.key(), &job), (&other, &worse)] {
        let path = format!("/v1/jobs/{}", string(&job["id"]));
        client
            .send(client.request("POST", &format!("{path}/final")))
            .await
            .expect_status(200);
        let name = json!({"name": string(&job["id"])});
        client
            .post(&format!("{path}/board"), &name)
            .await
            .expect_status(201);
    }
    close_in(&world, 0.0).await;
    let board = final_board(&world.key(), suite_id).await;
    assert_eq!(board["method"]["test"], "paired_by_cluster");
    assert_eq!(
        (&board["n_items"], &board["n_clusters"]),
        (&json!(N / 2), &json!(PERSONS / 2))
    );
    let finished = world
        .key()
        .get(&format!("/v1/jobs/{}", string(&job["id"])))
        .await
        .unwrap()
        .body;
    let figures = &finished["result"]["sealed"];
    assert_eq!(figures["n_clusters"], PERSONS / 2);
    assert!(figures["design_effect"].as_f64().unwrap() > 1.0);

    retire(&world, suite_id, &["--yes"]).await.unwrap();
    let evidence = Evidences::new(&world);
    evidence.fetch_keys(&world).await;
    let lines: String = predictions(by_person)
        .as_array()
        .unwrap()
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    evidence.write("predictions.ndjson", lines);
    for query in ["", "?figures=sealed"] {
        let receipt = logged_receipt(&world.key(), &string(&job["id"]), query).await;
        let claim = &receipt["statement"]["predicate"];
        assert_eq!(claim["cluster"], "person");
        assert_eq!(claim["n_clusters"], PERSONS / 2);
        assert_eq!(claim["average"], "item");
        evidence.write("receipt.json", receipt.to_string());
        evidence.fetch_opening(&world, suite_id, "1").await;
        let opened = std::fs::read_to_string(evidence.path("opening/answers.ndjson")).unwrap();
        assert!(
            opened.contains("\"groups\":{\"person\":\"canary-person-0\"}"),
            "{opened}"
        );
        let steps = evidence
            .verify_with_cli(&world, &["predictions", "opening"])
            .await;
        assert!(steps.ends_with("commitment: ok, score: ok"), "{steps}");
    }
}

/// Returns the items of persons with one to four items: the person, and the place among its items.
fn unequal_items() -> Vec<(usize, usize)> {
    let items = |person: usize| (0..=person % 4).map(move |at| (person, at));
    (0..PERSONS).flat_map(items).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn average_gives_each_person_the_same_weight() {
    let world = world().await;
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-averaged", world.stack.database.name));
    let suite_toml = "suite_id = \"suite:averaged\"\nversion = \"1\"\nmetric = \"exact_match\"\ncluster = \"person\"\naverage = \"cluster\"\n";
    let items = unequal_items();
    let id = |(person, at): (usize, usize)| format!("p{person}-{at}");
    let item = |one: &(usize, usize)| {
        let groups = json!({"person": format!("p{}", one.0)});
        format!(
            "{}\n",
            json!({"item_id": id(*one), "input": {}, "groups": groups})
        )
    };
    let answer =
        |one: &(usize, usize)| format!("{}\n", json!({"item_id": id(*one), "answer": "yes"}));
    write_files(
        &folder,
        suite_toml,
        &items.iter().map(item).collect::<String>(),
        &items.iter().map(answer).collect::<String>(),
    );
    publish_folder(&world, &folder).await.unwrap();
    let suite = world.key().get("/v1/suites/suite:averaged").await;
    assert_eq!(suite.expect_status(200).body["average"], "cluster");

    // Persons with many items are predicted worse: only their first item is right.
    let predicted = |is_right: &dyn Fn(usize, usize) -> bool| -> Value {
        let label = |(person, at)| if is_right(person, at) { "yes" } else { "no" };
        let items = items.iter();
        items
            .map(|one| json!({"item_id": id(*one), "prediction": label(*one)}))
            .collect()
    };
    let first_only = predicted(&|_, at| at == 0);
    let job = scored(&world.key(), "suite:averaged", &first_only).await;
    let shares: Vec<f64> = (0..PERSONS)
        .map(|person| 1.0 / (1 + person % 4) as f64)
        .collect();
    let mean = shares.iter().sum::<f64>() / PERSONS as f64;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    let persons = PERSONS as f64;
    let result = &job["result"];
    assert_near(&result["value"], mean);
    assert_near(
        &result["stderr"],
        (squares / (persons - 1.0) / persons).sqrt(),
    );
    assert_eq!(
        (&result["n_clusters"], &result["ci_method"]),
        (&json!(PERSONS), &json!("cluster_t"))
    );
    let report = scored_offline(&world, &folder, &first_only);
    for field in ["value", "stderr", "ci95", "n_clusters", "design_effect"] {
        assert_eq!(report[field], result[field], "{field}");
    }
    // A second job is right for all persons with four items.
    let better = predicted(&|person, at| at == 0 || person % 4 == 3);
    let better = scored(&world.key(), "suite:averaged", &better).await;
    let body = json!({"job_a": better["id"], "job_b": job["id"]});
    let compared = world.key().post("/v1/comparisons", &body).await;
    let compared = compared.expect_status(200).body;
    assert_near(&compared["difference"], 0.25 * 0.75);
    assert_eq!(compared["n_clusters_differ"], PERSONS / 4);
    // Six persons differ, all in one direction.
    assert_near(&compared["p_value"], 2.0 / 64.0);
    let receipt = logged_receipt(&world.key(), &string(&job["id"]), "").await;
    assert_eq!(receipt["statement"]["predicate"]["average"], "cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_waits_for_a_worker_that_knows_its_suite() {
    let world = world().await;
    let suites = ["suite:needs-later-scorer", "suite:needs-this-scorer"];
    for suite_id in suites {
        let name = suite_id.trim_start_matches("suite:");
        let folder = write(&world, name, Place::Items, "");
        publish_folder(&world, &folder).await.unwrap();
    }
    let mut database = world.database().await;
    let needed: i32 = sqlx::query_scalar("select scorer_min from suites where suite_id = $1")
        .bind(suites[0])
        .fetch_one(&mut database)
        .await
        .unwrap();
    let mut need = async |scorer: i32| {
        sqlx::query("update suites set scorer_min = $2 where suite_id = $1")
            .bind(suites[0])
            .bind(scorer)
            .execute(&mut database)
            .await
            .unwrap();
    };
    need(SCORER + 1).await;
    let eval = json!({"suite_id": suites[0], "predictions": predictions(by_person)});
    let waiting = world
        .key()
        .post("/v1/evals", &eval)
        .await
        .expect_status(202);
    let waiting = string(&waiting.body["id"]);
    // Later jobs of other suites pass it.
    scored(&world.key(), suites[1], &predictions(by_person)).await;
    let path = format!("/v1/jobs/{waiting}");
    let job = world.key().get(&path).await.expect_status(200).body;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("queued"), &json!(0))
    );
    need(needed).await;
    assert_eq!(
        world.wait_until_finished(&waiting).await["status"],
        "succeeded"
    );
}
