//! The endpoint `GET /v1/jobs/{job_id}/trace`.

use serde_json::{Value, json};

use crate::harness::{Expect, one_prediction, shared_world, shared_world_without_workers, string};

#[tokio::test(flavor = "multi_thread")]
async fn job_trace_is_one_tree() {
    let world = shared_world().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = world
        .key()
        .request("POST", "/v1/evals")
        .header("traceparent", parent);
    let queued = world
        .key()
        .send(request.json(&json!({"suite_id": "suite:lunch", "predictions": one_prediction()})))
        .await
        .unwrap();
    let job = world.wait_until_finished(&string(&queued.body["id"])).await;
    assert!(string(&job["trace_url"]).ends_with(&format!("/v1/jobs/{}/trace", string(&job["id"]))));
    let trace = world
        .key()
        .get(&format!("/v1/jobs/{}/trace", string(&job["id"])))
        .await
        .expect_status(200);
    let spans = trace.body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap();
    let names: Vec<_> = spans.iter().map(|span| string(&span["name"])).collect();
    let expected = [
        "eval",
        "request",
        "queue wait",
        "attempt",
        "fetch input",
        "load answers",
        "score",
        "store item scores",
        "persist",
        "gen_ai.evaluation.result",
    ];
    assert_eq!(names, expected);
    let ids: Vec<_> = spans.iter().map(|span| string(&span["spanId"])).collect();
    for span in spans {
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        let parent = string(&span["parentSpanId"]);
        assert!(
            parent == "00f067aa0ba902b7" && span["name"] == "eval" || ids.contains(&parent),
            "no parent: {span}"
        );
        let time = |name: &str| string(&span[name]).parse::<i128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
    }
    let score = spans
        .iter()
        .find(|span| span["name"] == "gen_ai.evaluation.result")
        .unwrap();
    let value = score["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|attribute| attribute["key"] == "gen_ai.evaluation.score.value")
        .unwrap();
    assert_eq!(value["value"]["doubleValue"], job["result"]["value"]);
    assert!(!trace.body.to_string().contains("curry"), "no prediction");
    let again = world
        .key()
        .get(&format!("/v1/jobs/{}/trace", string(&job["id"])))
        .await
        .unwrap();
    assert_eq!(again.body, trace.body, "the same each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_job_has_no_trace() {
    let world = shared_world_without_workers().await;
    let queued = world.submit(&one_prediction()).await;
    world
        .key()
        .get(&format!("/v1/jobs/{}/trace", string(&queued.body["id"])))
        .await
        .expect_error(404, "not_found");
    assert_eq!(queued.body.get("trace_url"), None::<&Value>);
}
