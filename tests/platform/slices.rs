//! Figures of slices: the items of one age group, under each disclosure policy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use serde_json::{Value, json};

use crate::boards::{close_in, final_board};
use crate::clusters::scored_offline;
use crate::disclosure::{publish_folder, write_files};
use crate::grpc::connect;
use crate::harness::{Expect, World, string, submit_until_succeeded, with_token, world};

/// Persons of the suites, and items of each.
const PERSONS: usize = 60;
const ITEMS_EACH: usize = 5;
const N: usize = PERSONS * ITEMS_EACH;

/// An age group's name that no response may contain if the field is hidden.
const AGE: &str = "canary-age-";

/// Returns a person's age group: the third one has 40 items, fewer than a slice needs.
fn age(person: usize) -> usize {
    match person {
        0..26 => 0,
        26..52 => 1,
        _ => 2,
    }
}

/// Returns an item's answer.
fn answer(at: usize) -> &'static str {
    if at % 10 == 3 { "no" } else { "yes" }
}

/// Returns `true` if an item is predicted right: of the first age group, those of all persons but one,
/// and of the others every second item.
fn is_right(at: usize) -> bool {
    let person = at % PERSONS;
    match age(person) {
        0 => person != 5,
        _ => at.is_multiple_of(2),
    }
}

fn predictions() -> Value {
    let label = |at: usize| if is_right(at) { answer(at) } else { "?" };
    (0..N)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
        .collect()
}

/// Writes a suite with slices by age, and by whether an item is new, which is in its input.
fn write(world: &World, name: &str, is_hidden: bool, more: &str) -> PathBuf {
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-{name}", world.stack.database.name));
    let fields = if is_hidden {
        r#"["age"]"#
    } else {
        r#"["age", "input.new"]"#
    };
    let suite_toml = format!(
        "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\ncluster = \"person\"\nslices = {fields}\n{more}\n"
    );
    let groups = |at: usize, has_age: bool| {
        let person = at % PERSONS;
        let age = format!("{AGE}{}", age(person));
        if has_age {
            json!({"person": format!("p{person}"), "age": age})
        } else {
            json!({"person": format!("p{person}")})
        }
    };
    let items = (0..N).map(|at| {
        let groups = groups(at, !is_hidden);
        let input = json!({"new": at % 2 == 0});
        format!(
            "{}\n",
            json!({"item_id": format!("i{at}"), "input": input, "groups": groups})
        )
    });
    let answers = (0..N).map(|at| {
        let mut line = json!({"item_id": format!("i{at}"), "answer": answer(at)});
        if is_hidden {
            line["groups"] = json!({"age": groups(at, true)["age"]});
        }
        format!("{line}\n")
    });
    write_files(
        &folder,
        &suite_toml,
        &items.collect::<String>(),
        &answers.collect::<String>(),
    );
    folder
}

async fn scored(world: &World, suite_id: &str) -> Value {
    let eval = json!({"suite_id": suite_id, "predictions": predictions()});
    submit_until_succeeded(&world.key(), &eval).await
}

async fn job(world: &World, id: &str) -> Value {
    let job = world.key().get(&format!("/v1/jobs/{id}")).await;
    job.expect_status(200).body
}

/// Returns the share of items for which `counts` returns `true`, among the chosen ones of an age group.
fn share(group: usize, is_chosen: impl Fn(usize) -> bool, counts: impl Fn(usize) -> bool) -> f64 {
    let in_group: Vec<usize> = (0..N)
        .filter(|at| age(at % PERSONS) == group && is_chosen(*at))
        .collect();
    let counted = in_group.iter().filter(|at| counts(**at)).count();
    counted as f64 / in_group.len() as f64
}

/// Returns the values of a field's slices, by name.
fn values(field: &Value) -> BTreeMap<String, f64> {
    let groups = field["groups"].as_array().unwrap().iter();
    groups
        .map(|slice| (string(&slice["group"]), slice["value"].as_f64().unwrap()))
        .collect()
}

fn expected_by_age(is_chosen: impl Fn(usize) -> bool + Copy) -> BTreeMap<String, f64> {
    [0, 1]
        .map(|group| (format!("{AGE}{group}"), share(group, is_chosen, is_right)))
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn results_have_the_figures_of_slices() {
    let world = world().await;
    let folder = write(&world, "ages", false, "");
    publish_folder(&world, &folder).await.unwrap();
    let job = scored(&world, "suite:ages").await;
    let fields = &job["result"]["slices"];
    let [by_age, by_new] = fields.as_array().unwrap().as_slice() else {
        panic!("{fields}");
    };
    assert_eq!(
        (&by_age["field"], &by_new["field"]),
        (&json!("age"), &json!("input.new"))
    );
    assert_eq!(values(by_age), expected_by_age(|_| true));
    let first = &by_age["groups"][0];
    assert_eq!(
        (&first["n"], &first["n_clusters"], &first["n_missing"]),
        (&json!(130), &json!(26), &json!(0))
    );
    assert!(first["stderr"].as_f64().unwrap() > 0.0);
    let worst = format!("{AGE}1");
    assert_eq!(
        (&by_age["worst"], &by_age["gap"]["worst"]),
        (&json!(worst), &json!(worst))
    );
    let gap = by_age["gap"]["value"].as_f64().unwrap();
    let [best, worst_value] = [0, 1].map(|group| share(group, |_| true, is_right));
    assert!((gap - (best - worst_value)).abs() < 1e-12);
    assert!(
        by_age["gap"]["p_value"].as_f64().unwrap() < 1e-3,
        "{by_age}"
    );
    let names: Vec<String> = values(by_new).into_keys().collect();
    assert_eq!(names, ["false", "true"]);

    // The suite names the slices.
    let suite = world.key().get("/v1/suites/suite:ages").await.unwrap().body;
    assert_eq!(
        suite["slices"][0],
        json!({"field": "age", "groups": [{"group": format!("{AGE}0"), "n": 130}, {"group": worst, "n": 130}]})
    );
    // gRPC has the same figures.
    let channel = connect(&world).await;
    let request = v1::GetSuiteRequest {
        suite_id: "suite:ages".into(),
    };
    let found = SuiteServiceClient::new(channel.clone())
        .get_suite(with_token(request, &world.org.key))
        .await;
    let found = found.unwrap().into_inner().suite.unwrap();
    assert_eq!(found.slices[0].groups[1].group, worst);
    let request = v1::GetJobRequest {
        job_id: string(&job["id"]),
        ..v1::GetJobRequest::default()
    };
    let found = JobServiceClient::new(channel)
        .get_job(with_token(request, &world.org.key))
        .await;
    let found = found.unwrap().into_inner().job.unwrap();
    let result = found.result.unwrap();
    let ages = &result.slices[0];
    assert_eq!(Some(ages.groups[0].value), first["value"].as_f64());
    assert_eq!(
        ages.gap.as_ref().map(|gap| gap.p_value.unwrap()),
        by_age["gap"]["p_value"].as_f64()
    );

    // A folder that is scored on the researcher's machine has the same figures.
    let report = scored_offline(&world, &folder, &predictions());
    assert_eq!(&report["slices"], fields);
}

#[tokio::test(flavor = "multi_thread")]
async fn rounded_slices_are_rounded() {
    let world = world().await;
    let folder = write(&world, "rounded-ages", false, "release = \"rounded(2)\"");
    publish_folder(&world, &folder).await.unwrap();
    let job = scored(&world, "suite:rounded-ages").await;
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let by_age = &job["result"]["slices"][0];
    let expected = expected_by_age(|_| true).into_iter();
    assert_eq!(
        values(by_age),
        expected.map(|(name, value)| (name, round(value))).collect()
    );
    let slice = &by_age["groups"][1];
    for figure in [
        &slice["stderr"],
        &slice["ci95"][0],
        &by_age["gap"]["ci95"][1],
    ] {
        let figure = figure.as_f64().unwrap();
        assert_eq!(figure, round(figure));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_by_hidden_fields_appear_after_the_close() {
    let world = world().await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let more = format!(
        "release = \"sealed(0.5)\"\nseal_seed = \"a seed\"\nboard = \"at_close\"\ncloses_at = {closes_at}"
    );
    let folder = write(&world, "hidden-ages", true, &more);
    publish_folder(&world, &folder).await.unwrap();
    let suite_id = "suite:hidden-ages";
    let id = string(&scored(&world, suite_id).await["id"]);
    let path = format!("/v1/jobs/{id}");
    let post = async |path: &str, body: &Value| world.key().post(path, body).await.unwrap().status;
    assert_eq!(post(&format!("{path}/final"), &json!({})).await, 200);
    assert_eq!(
        post(&format!("{path}/board"), &json!({"name": "one"})).await,
        201
    );
    let mut before = vec![job(&world, &id).await];
    for path in [
        format!("/v1/suites/{suite_id}"),
        format!("/v1/suites/{suite_id}/items?limit=300"),
        format!("/v1/suites/{suite_id}/board"),
    ] {
        before.push(world.key().get(&path).await.expect_status(200).body);
    }
    for body in &before {
        assert!(!body.to_string().contains(AGE), "{body}");
    }
    assert_eq!(before[0]["result"]["slices"], json!([]));
    assert_eq!(before[1]["slices"], json!([{"field": "age", "groups": []}]));

    close_in(&world, 0.0).await;
    let sealed: Vec<(bool,)> =
        sqlx::query_as("select sealed from suites join suite_answers using (content_id) where suite_id = $1 order by ordinal")
            .bind(suite_id)
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
    let expected = expected_by_age(|at| sealed[at].0);
    let figures = job(&world, &id).await["result"]["sealed"].clone();
    assert_eq!(values(&figures["slices"][0]), expected);
    assert!(figures["slices"][0]["gap"]["value"].is_number());
    let board = final_board(&world.key(), suite_id).await;
    assert_eq!(board["entries"][0]["slices"], figures["slices"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ladder_shows_slices_on_its_final_board_only() {
    let world = world().await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let more = format!(
        "release = \"ladder(0.05)\"\nboard = \"at_close\"\ncloses_at = {closes_at}\nmax_submissions = 10"
    );
    let folder = write(&world, "ladder-ages", true, &more);
    publish_folder(&world, &folder).await.unwrap();
    let suite_id = "suite:ladder-ages";
    // A missing prediction counts as a wrong one.
    let all = predictions();
    let is_right = |one: &&Value| one["prediction"] != "?";
    let right: Vec<&Value> = all.as_array().unwrap().iter().filter(is_right).collect();
    let eval = json!({"suite_id": suite_id, "predictions": right});
    let job = submit_until_succeeded(&world.key(), &eval).await;
    assert_eq!(job["result"]["slices"], json!([]));
    let path = format!("/v1/jobs/{}/board", string(&job["id"]));
    let entered = world.key().post(&path, &json!({"name": "one"})).await;
    entered.expect_status(201);
    close_in(&world, 0.0).await;
    let board = final_board(&world.key(), suite_id).await;
    let field = &board["entries"][0]["slices"][0];
    assert_eq!(field.get("gap"), None);
    // A grid begins at the share of the most frequent answer, or at the next 10,000th.
    for (group, levels) in [(0, 1.0), (1, 0.0)] {
        let trivial = share(group, |_| true, |at| answer(at) == "yes");
        let expected = (trivial * 1e4).ceil() / 1e4 + 0.05 * levels;
        let shown = values(field)[&format!("{AGE}{group}")];
        assert!(
            (shown - expected).abs() < 1e-9,
            "{group}: {shown} {expected}"
        );
    }
    for slice in field["groups"].as_array().unwrap() {
        assert_eq!(
            (&slice["stderr"], &slice["ci95"], &slice["n_missing"]),
            (&Value::Null, &Value::Null, &json!(0))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_with_bad_slices_are_rejected() {
    let world = world().await;
    let at_close = "board = \"at_close\"\ncloses_at = 2100-01-01T00:00:00Z";
    for (name, is_hidden, more, message) in [
        ("exact", true, "", "the field must be public"),
        (
            "ladder",
            false,
            "release = \"ladder(0.05)\"",
            "write board = \"at_close\"",
        ),
        (
            "few",
            false,
            "slice_min = 49",
            "suite.toml:6: slice_min: must be an integer from 50",
        ),
        ("many", false, "slice_min = 200", "it has 1 slice:"),
        (
            "seal",
            false,
            &format!("release = \"sealed(0.3)\"\nseal_seed = \"s\"\n{at_close}"),
            "but a slice needs 50 in each part",
        ),
    ] {
        let folder = write(&world, name, is_hidden, more);
        let refused = publish_folder(&world, &folder).await.unwrap_err();
        assert!(refused.contains(message), "{name}: {refused}");
    }
}
