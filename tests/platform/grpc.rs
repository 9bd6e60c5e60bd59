//! GRPC parity with REST: equal fields and codes, and the additional metadata that gRPC clients
//! expect.

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::health_service_client::HealthServiceClient;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::key_service_client::KeyServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_proto::v1::prediction_value::Value as Prediction;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, before_longest_wait, error_code, one_prediction, shared_world,
    shared_world_without_workers, string, with_token, world,
};

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"))
        .reason
        .to_lowercase()
}

fn is_same_timestamp(rest: &Value, grpc: Option<prost_types::Timestamp>) -> bool {
    // REST writes six fractional digits, prost only as many as necessary.
    let rest = rest
        .as_str()
        .map(|text| text.parse::<prost_types::Timestamp>().unwrap());
    rest == grpc
}

pub async fn connect(world: &World) -> Channel {
    world.channel().await
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_me_match() {
    let world = shared_world().await;
    let channel = connect(&world).await;
    let rest = world.anonymous().get("/health").await.unwrap().body;
    let grpc = HealthServiceClient::new(channel.clone())
        .get_health(v1::GetHealthRequest {})
        .await
        .unwrap()
        .into_inner()
        .health
        .unwrap();
    assert_eq!(
        rest,
        json!({"git_sha": grpc.git_sha, "hfm_sha": grpc.hfm_sha, "env": grpc.env})
    );
    for token in [&world.org.key, &world.org.session] {
        let rest = world.client(token).get("/v1/me").await.unwrap().body;
        let grpc = MeServiceClient::new(channel.clone())
            .get_me(with_token(v1::GetMeRequest {}, token))
            .await
            .unwrap()
            .into_inner()
            .me
            .unwrap();
        assert_eq!(
            (&rest["principal"], &rest["org_id"]),
            (&json!(grpc.principal), &json!(grpc.org_id))
        );
        let ours = &rest["orgs"][0];
        let theirs = &grpc.orgs[0];
        assert!(is_same_timestamp(&ours["created_at"], theirs.created_at));
        let theirs = json!([
            theirs.id,
            theirs.name,
            theirs.plan,
            theirs.data_use,
            theirs.role
        ]);
        assert_eq!(
            json!([
                ours["id"],
                ours["name"],
                ours["plan"],
                ours["data_use"],
                ours["role"]
            ]),
            theirs
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_match() {
    let world = shared_world().await;
    let mut keys = KeyServiceClient::new(connect(&world).await);
    let made = keys
        .create_key(with_token(
            v1::CreateKeyRequest {
                name: "grpc".into(),
                ..Default::default()
            },
            &world.org.session,
        ))
        .await
        .unwrap()
        .into_inner()
        .api_key
        .unwrap();
    world
        .client(&made.key)
        .get("/v1/me")
        .await
        .expect_status(200);
    let revoked = keys
        .revoke_key(with_token(
            v1::RevokeKeyRequest {
                key_id: made.id.clone(),
            },
            &world.org.session,
        ))
        .await
        .unwrap()
        .into_inner();
    let listed = keys
        .list_keys(with_token(
            v1::ListKeysRequest::default(),
            &world.org.session,
        ))
        .await
        .unwrap()
        .into_inner()
        .keys;
    let rest = world.owner().get("/v1/keys").await.unwrap().body;
    assert_eq!(listed.len(), 2);
    for (ours, theirs) in rest["keys"].as_array().unwrap().iter().zip(&listed) {
        let fields = json!([
            theirs.id,
            theirs.org_id,
            theirs.name,
            theirs.prefix,
            theirs.created_by
        ]);
        assert_eq!(
            json!([
                ours["id"],
                ours["org_id"],
                ours["name"],
                ours["prefix"],
                ours["created_by"]
            ]),
            fields
        );
        assert!(
            is_same_timestamp(&ours["created_at"], theirs.created_at)
                && is_same_timestamp(&ours["revoked_at"], theirs.revoked_at)
        );
        assert!(is_same_timestamp(
            &ours["last_used_at"],
            theirs.last_used_at
        ));
    }
    assert_eq!(revoked.api_key.unwrap().revoked_at, listed[0].revoked_at);
    let refused = MeServiceClient::new(connect(&world).await)
        .get_me(with_token(v1::GetMeRequest {}, &made.key))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::Unauthenticated, "key_revoked".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn suites_and_items_match() {
    let world = shared_world().await;
    let mut suites = SuiteServiceClient::new(connect(&world).await);
    let mut rest = world.key().get("/v1/suites").await.unwrap().body;
    for suite in rest["suites"].as_array_mut().unwrap() {
        // The protocols write timestamps with different digits.
        let suite = suite.as_object_mut().unwrap();
        for field in ["published_at", "updated_at"] {
            assert!(suite.remove(field).is_some_and(|at| at.is_string()));
        }
    }
    let grpc = suites
        .list_suites(with_token(v1::ListSuitesRequest::default(), &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .suites;
    let theirs: Vec<_> = grpc
        .into_iter()
        .map(|s| {
            json!({"suite_id": s.suite_id, "version": s.version, "metric": s.metric, "lower_is_better": s.lower_is_better, "n_items": s.n_items, "per_item_feedback": s.per_item_feedback, "description": s.description, "hfm_sha": s.hfm_sha, "release": s.release, "max_submissions_per_day": s.max_submissions_per_day, "max_submissions": s.max_submissions, "access": s.access, "clip": (!s.clip.is_empty()).then_some(s.clip), "ladder": s.ladder.map(|ladder| ladder.step), "n_sealed": s.n_sealed, "closes_at": s.closes_at.map(|at| at.to_string()), "board": s.board, "suite_commitment": s.suite_commitment, "sequence": s.sequence.map(|sequence| json!({"events": sequence.events, "options": sequence.options})), "cluster": s.cluster, "cluster_is_hidden": s.cluster_is_hidden, "n_clusters": s.n_clusters, "slices": s.slices.iter().map(|slices| json!({"field": slices.field, "groups": slices.groups.iter().map(|slice| json!({"group": slice.group, "n": slice.n})).collect::<Vec<_>>()})).collect::<Vec<_>>(), "baselines": s.baselines.iter().map(|baseline| &baseline.name).collect::<Vec<_>>(), "average": s.average, "labels": s.labels, "quantiles": s.quantiles, "title": s.title, "owner": s.owner.map(|owner| owner.handle), "visibility": s.visibility, "status": s.status, "license": s.license, "citation": s.citation, "links": s.links.iter().map(|link| &link.url).collect::<Vec<_>>(), "tags": s.tags, "contact": s.contact, "can_submit": s.can_submit, "errata": s.errata.iter().map(|erratum| &erratum.note).collect::<Vec<_>>()})
        })
        .collect();
    assert_eq!(rest["suites"], json!(theirs));

    let rest = world
        .key()
        .get("/v1/suites/suite:lunch/items?limit=2")
        .await
        .unwrap()
        .body;
    let request = v1::ListSuiteItemsRequest {
        suite_id: "suite:lunch".into(),
        cursor: None,
        limit: Some(2),
    };
    let grpc = suites
        .list_suite_items(with_token(request, &world.org.key))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        json!([
            rest["suite_id"],
            rest["suite_version"],
            rest["n_items"],
            rest["next_cursor"]
        ]),
        json!([
            grpc.suite_id,
            grpc.suite_version,
            grpc.n_items,
            grpc.next_cursor
        ])
    );
    for (ours, theirs) in rest["items"].as_array().unwrap().iter().zip(grpc.items) {
        assert_eq!(ours["item_id"], theirs.item_id.as_str());
        assert_eq!(ours["input"], plain(theirs.input.unwrap()));
    }
    let last = v1::ListSuiteItemsRequest {
        suite_id: "suite:lunch".into(),
        cursor: grpc.next_cursor,
        limit: Some(1000),
    };
    let last = suites
        .list_suite_items(with_token(last, &world.org.key))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((last.items.len(), last.next_cursor), (398, None));
}

fn plain(object: prost_types::Struct) -> Value {
    fn value(from: prost_types::Value) -> Value {
        use prost_types::value::Kind;
        match from.kind {
            None | Some(Kind::NullValue(_)) => Value::Null,
            Some(Kind::BoolValue(flag)) => json!(flag),
            Some(Kind::NumberValue(number)) => json!(number),
            Some(Kind::StringValue(text)) => json!(text),
            Some(Kind::ListValue(list)) => list.values.into_iter().map(value).collect(),
            Some(Kind::StructValue(object)) => plain(object),
        }
    }
    Value::Object(
        object
            .fields
            .into_iter()
            .map(|(name, field)| (name, value(field)))
            .collect(),
    )
}

fn eval(predictions: Vec<(&str, Option<Prediction>)>) -> v1::CreateEvalRequest {
    let predictions = predictions
        .into_iter()
        .map(|(item_id, value)| v1::Prediction {
            item_id: item_id.into(),
            prediction: Some(v1::PredictionValue { value }),
        });
    v1::CreateEvalRequest {
        suite_id: "suite:lunch".into(),
        predictions: predictions.collect(),
        ..Default::default()
    }
}

fn ranking(ids: &[&str]) -> Option<Prediction> {
    Some(Prediction::Ranking(v1::Ranking {
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn same_submission_replays_same_job() {
    let world = shared_world().await;
    let channel = connect(&world).await;
    let body = json!({"suite_id": "suite:lunch", "predictions": [
        {"item_id": "person-00/day-0", "prediction": ["cu\"rry", "ramen"]}, {"item_id": "person-00/day-1", "prediction": "tacos"}, {"item_id": "ü", "prediction": []},
    ]});
    let rest = world
        .key()
        .send(
            world
                .key()
                .request("POST", "/v1/evals")
                .header("idempotency-key", "both")
                .json(&body),
        )
        .await
        .expect_status(202);
    let mut message = eval(vec![
        ("person-00/day-0", ranking(&["cu\"rry", "ramen"])),
        ("person-00/day-1", Some(Prediction::Label("tacos".into()))),
        ("ü", ranking(&[])),
    ]);
    message.idempotency_key = Some("both".into());
    let replayed = EvalServiceClient::new(channel.clone())
        .create_eval(with_token(message.clone(), &world.org.key))
        .await
        .unwrap()
        .into_inner();
    assert!(
        replayed.idempotency_replayed,
        "REST and gRPC share idempotency keys"
    );
    let job = replayed.job.unwrap();
    assert_eq!(rest.body["id"], job.id.as_str());

    let ended = world.wait_until_finished(&job.id).await;
    let grpc = JobServiceClient::new(channel.clone())
        .get_job(with_token(
            v1::GetJobRequest {
                job_id: job.id.clone(),
                wait: None,
            },
            &world.org.key,
        ))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    assert_eq!(
        json!([
            ended["id"],
            ended["org_id"],
            ended["type"],
            ended["status"],
            ended["request_id"],
            ended["label"],
            ended["attempts"],
            ended["trace_url"]
        ]),
        json!([
            grpc.id,
            grpc.org_id,
            grpc.r#type,
            grpc.status,
            grpc.request_id,
            grpc.label,
            grpc.attempts,
            grpc.trace_url
        ])
    );
    for (name, at) in [
        ("created_at", grpc.created_at),
        ("started_at", grpc.started_at),
        ("finished_at", grpc.finished_at),
    ] {
        assert!(is_same_timestamp(&ended[name], at), "{name}");
    }
    let versions = grpc.versions.unwrap();
    assert_eq!(
        ended["versions"],
        json!({"hfm_sha": versions.hfm_sha, "suite_id": versions.suite_id, "suite_version": versions.suite_version})
    );
    let r = grpc.result.unwrap();
    let theirs = json!({"hfm_sha": r.hfm_sha, "metric": r.metric, "n": r.n, "n_submitted": r.n_submitted, "n_unmatched": r.n_unmatched, "n_missing": r.n_missing, "suite_id": r.suite_id, "suite_version": r.suite_version, "value": r.value, "stderr": r.stderr, "ci95": r.ci95, "ci_method": r.ci_method, "metrics": r.metrics, "release": r.release, "n_clusters": r.n_clusters});
    let mut ours = ended["result"].clone();
    // The tests of slices compare these.
    let slices = ours.as_object_mut().unwrap().remove("slices").unwrap();
    assert_eq!(slices.as_array().map(Vec::len), Some(r.slices.len()));
    assert_eq!(ours, theirs);
    let trace = JobServiceClient::new(channel)
        .get_job_trace(with_token(
            v1::GetJobTraceRequest {
                job_id: job.id.clone(),
            },
            &world.org.key,
        ))
        .await
        .unwrap()
        .into_inner()
        .trace
        .unwrap();
    let rest = world
        .key()
        .get(&format!("/v1/jobs/{}/trace", job.id))
        .await
        .unwrap()
        .body;
    assert_eq!(
        rest["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .unwrap()
            .len(),
        plain(trace)["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .unwrap()
            .len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn same_mistakes_return_same_errors() {
    let world = shared_world().await;
    let channel = connect(&world).await;
    let key = world.key();
    let viewer = world.member("viewer").await;

    let rest = key.get("/v1/jobs/job_0").await.unwrap();
    let grpc = JobServiceClient::new(channel.clone())
        .get_job(with_token(
            v1::GetJobRequest {
                job_id: "job_0".into(),
                wait: None,
            },
            &world.org.key,
        ))
        .await
        .unwrap_err();
    assert_eq!(
        (error_code(&rest), Code::NotFound),
        (reason(&grpc), grpc.code())
    );
    assert_eq!(rest.body["error"]["message"], grpc.message());

    let rest = key.get("/v1/keys").await.unwrap();
    let grpc = KeyServiceClient::new(channel.clone())
        .list_keys(with_token(v1::ListKeysRequest::default(), &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(
        (error_code(&rest), Code::PermissionDenied),
        (reason(&grpc), grpc.code())
    );

    let rest = viewer.post("/v1/evals", &json!({})).await.unwrap();
    assert_eq!(error_code(&rest), "forbidden");

    let cases = [
        (json!([{"item_id": "a"}]), eval(vec![("a", None)])),
        (
            json!([{"item_id": "a", "prediction": []}, {"item_id": "a", "prediction": []}]),
            eval(vec![("a", ranking(&[])), ("a", ranking(&[]))]),
        ),
        (
            json!([{"item_id": "", "prediction": "\u{0}"}]),
            eval(vec![("", Some(Prediction::Label("\u{0}".into())))]),
        ),
        (Value::Null, eval(vec![])),
    ];
    for (predictions, message) in cases {
        let rest = key
            .post(
                "/v1/evals",
                &json!({"suite_id": "suite:lunch", "predictions": predictions}),
            )
            .await
            .unwrap();
        let grpc = EvalServiceClient::new(channel.clone())
            .create_eval(with_token(message, &world.org.key))
            .await
            .unwrap_err();
        assert_eq!(
            (error_code(&rest), Code::InvalidArgument),
            (reason(&grpc), grpc.code())
        );
        let violations = grpc.get_details_bad_request().unwrap().field_violations;
        let theirs: Vec<_> = violations
            .into_iter()
            .map(|violation| (violation.field, violation.reason.to_lowercase()))
            .collect();
        assert_eq!(crate::harness::field_errors(&rest), theirs);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grpc_response_has_headers() {
    let world = shared_world().await;
    let mut me = MeServiceClient::new(connect(&world).await);
    let fine = me
        .get_me(with_token(v1::GetMeRequest {}, &world.org.key))
        .await
        .unwrap();
    assert_eq!(fine.metadata().get("x-ratelimit-limit").unwrap(), "1000");
    let refused = me
        .get_me(Request::new(v1::GetMeRequest {}))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::Unauthenticated, "unauthenticated".to_owned())
    );
    let id = refused
        .metadata()
        .get("x-request-id")
        .unwrap()
        .to_str()
        .unwrap();
    assert_eq!(refused.get_details_request_info().unwrap().request_id, id);
    assert_eq!(
        refused.get_error_details().error_info().unwrap().domain,
        "assay.v1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_is_shared_with_rest() {
    let world = shared_world().await;
    let free = crate::harness::org(&world.stack, "free").await;
    let client = world.client(&free.key);
    for _ in 0..60 {
        client.get("/v1/me").await.expect_status(200);
    }
    let refused = MeServiceClient::new(connect(&world).await)
        .get_me(with_token(v1::GetMeRequest {}, &free.key))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::ResourceExhausted, "rate_limited".to_owned())
    );
    let wait = refused
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap()
        .as_secs();
    assert_eq!(
        refused
            .metadata()
            .get("retry-after")
            .unwrap()
            .to_str()
            .unwrap(),
        wait.to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_limit_is_quota_failure() {
    let world = shared_world_without_workers().await;
    let free = crate::harness::org(&world.stack, "free").await;
    let mut evals = EvalServiceClient::new(connect(&world).await);
    let message = || eval(vec![("a", ranking(&[]))]);
    for _ in 0..2 {
        evals
            .create_eval(with_token(message(), &free.key))
            .await
            .unwrap();
    }
    let refused = evals
        .create_eval(with_token(message(), &free.key))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::ResourceExhausted, "quota_exceeded".to_owned())
    );
    assert_eq!(
        refused.get_details_quota_failure().unwrap().violations[0].subject,
        "concurrent_jobs"
    );
    let metadata = refused.get_details_error_info().unwrap().metadata;
    assert_eq!(
        (metadata["max"].as_str(), metadata["active"].as_str()),
        ("2", "2")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_large_unknown_have_own_codes() {
    let world = shared_world().await;
    let client = world.key();
    let send = async |path: &str, body: Vec<u8>| {
        let request = client
            .request("POST", path)
            .header("content-type", "application/grpc-web+proto");
        client.send(request.body(body)).await.unwrap()
    };
    let junk = send(
        "/assay.v1.JobService/GetJob",
        vec![0, 0, 0, 0, 2, 0xff, 0xff],
    )
    .await
    .expect_status(200);
    assert_eq!(junk.header("grpc-status"), "3", "{junk:?}");
    let unknown = send("/assay.v1.JobService/Nothing", vec![0; 5]).await;
    assert_eq!(unknown.header("grpc-status"), "12");
    let unknown = send("/assay.v1.Nothing/Get", vec![0; 5]).await;
    assert_eq!(unknown.header("grpc-status"), "12");
    let old = client
        .request("POST", "/assay.v1.JobService/GetJob")
        .header("content-type", "application/grpc");
    let old = client.send(old).await.expect_status(200);
    assert_eq!(
        old.header("grpc-status"),
        "3",
        "native gRPC over HTTP/1.1 returns an error status"
    );
    let large = v1::CreateEvalRequest {
        suite_id: "x".repeat(6 << 20),
        ..Default::default()
    };
    let refused = EvalServiceClient::new(connect(&world).await)
        .create_eval(with_token(large, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::ResourceExhausted, "payload_too_large".to_owned())
    );
    world.submit(&one_prediction()).await.expect_status(202);
    assert_eq!(
        string(&world.key().get("/v1/me").await.unwrap().body["org_id"]),
        world.org.id
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_deadline_is_honoured() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    // A raw request, as tonic's client would enforce the deadline itself.
    let message = v1::GetJobRequest {
        job_id,
        wait: Some(30),
    }
    .encode_to_vec();
    let frame = [
        &[0, 0, 0, 0, u8::try_from(message.len()).unwrap()],
        message.as_slice(),
    ]
    .concat();
    let key = world.key();
    let late = before_longest_wait(&key, async || {
        let request = key
            .request("POST", "/assay.v1.JobService/GetJob")
            .header("content-type", "application/grpc-web+proto")
            .header("grpc-timeout", "300m")
            .body(frame.clone());
        key.send(request).await.unwrap()
    })
    .await;
    assert_eq!(late.header("grpc-status"), "4", "DEADLINE_EXCEEDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_in_metadata_is_rejected() {
    let world = shared_world().await;
    let mut request = with_token(v1::CreateEvalRequest::default(), &world.org.key);
    request
        .metadata_mut()
        .insert("idempotency-key", "k1".parse().unwrap());
    let refused = EvalServiceClient::new(connect(&world).await)
        .create_eval(request)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::InvalidArgument, "invalid_request")
    );
    assert!(
        refused.message().contains("`idempotency_key`"),
        "{}",
        refused.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_flag_without_encoding_is_internal() {
    let world = world().await;
    let http = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let request = http
        .post(format!("{}/assay.v1.MeService/GetMe", world.stack.url()))
        .bearer_auth(&world.org.key);
    let request = request
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let response = request
        .body(vec![1, 0, 0, 0, 3, 1, 2, 3])
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["grpc-status"], "13");
    // It still counts as a client error.
    let metrics = crate::harness::scrape(&world.stack.apis[0]).await;
    assert!(!metrics.contains("outcome=\"server_error\""), "{metrics}");
}
