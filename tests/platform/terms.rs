//! The `/v1/terms` endpoints, and the operations that require their acceptance.

use std::process::Command;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::key_service_client::KeyServiceClient;
use assay_proto::v1::terms_service_client::TermsServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, one_prediction, org, string, with_token,
    world_with,
};

const URL: &str = "https://example.org/terms";

async fn world() -> World {
    let env = [("ASSAY_TERMS_VERSION", "2026-01"), ("ASSAY_TERMS_URL", URL)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    world_with(StackSize {
        apis: 2,
        workers: 0,
        engines: 0,
        env: env.into(),
    })
    .await
}

async fn accept(client: &Client, version: &str) -> Response {
    client
        .post("/v1/terms/accept", &json!({"version": version}))
        .await
        .unwrap()
}

fn eval() -> Value {
    json!({"suite_id": "suite:lunch", "predictions": one_prediction()})
}

fn owed(response: &Response) {
    response.expect_error(403, "forbidden");
    assert_eq!(
        response.body["error"]["details"],
        json!({"reason": "terms_not_accepted", "version": "2026-01", "url": URL})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_evals_require_accepted_terms() {
    let world = world().await;
    let member = world.member("member").await;
    let untouched =
        json!({"version": "2026-01", "url": URL, "accepted_at": null, "accepted_by": null});
    for client in [world.key(), world.owner(), member.clone()] {
        assert_eq!(client.get("/v1/terms").await.unwrap().body, untouched);
        // Other operations need no acceptance.
        client.get("/v1/suites").await.expect_status(200);
    }
    owed(&world.key().post("/v1/evals", &eval()).await.unwrap());
    for client in [&member, &world.owner()] {
        owed(
            &client
                .post("/v1/keys", &json!({"name": "x"}))
                .await
                .unwrap(),
        );
        owed(&client.post("/v1/evals", &eval()).await.unwrap());
        owed(
            &client
                .post("/v1/evals", &json!({"nonsense": 1}))
                .await
                .unwrap(),
        );
    }
    // The credential's class is checked first.
    let key = world
        .key()
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .unwrap();
    assert_eq!(error_code(&key), "session_required");
    assert_eq!(error_code(&accept(&member, "2026-01").await), "forbidden");
    for (response, status, expected) in [
        (accept(&world.owner(), "2025-12").await, 409, "conflict"),
        (accept(&world.owner(), "").await, 422, "validation_failed"),
        (
            accept(&world.key(), "2026-01").await,
            403,
            "session_required",
        ),
    ] {
        response.expect_error(status, expected);
    }
    let none = world
        .owner()
        .post("/v1/terms/accept", &json!({}))
        .await
        .unwrap();
    assert_eq!(field_errors(&none), [field_error("version", "required")]);
    assert_eq!(
        world.owner().get("/v1/terms").await.unwrap().body,
        untouched
    );

    let accepted = accept(&world.owner(), "2026-01").await.expect_status(200);
    assert_eq!(accepted.body["version"], "2026-01");
    assert!(
        string(&accepted.body["accepted_by"]).starts_with("usr_")
            && accepted.body["accepted_at"].is_string()
    );
    // The acceptance applies immediately, at each API process.
    for api in &world.stack.apis {
        let at = |token: &str| Client::new(format!("http://{}", api.listen.unwrap()), Some(token));
        at(&world.org.key)
            .post("/v1/evals", &eval())
            .await
            .expect_status(202);
        at(&world.org.session)
            .post("/v1/keys", &json!({"name": "x"}))
            .await
            .expect_status(201);
    }
    member
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_status(201);
    // Acceptance applies to one organization only.
    let other = org(&world.stack, "free").await;
    owed(
        &world
            .client(&other.key)
            .post("/v1/evals", &eval())
            .await
            .unwrap(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn first_acceptance_is_kept() {
    let world = world().await;
    let second = world.member("owner").await;
    let (a, b) = tokio::join!(
        async { accept(&world.owner(), "2026-01").await },
        accept(&second, "2026-01")
    );
    assert_eq!((a.status, b.status), (200, 200));
    assert_eq!(a.body, b.body);
    assert_eq!(accept(&second, "2026-01").await.body, a.body);
    let rows: i64 = sqlx::query_scalar("select count(*) from terms_acceptances")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_terms_require_new_acceptance() {
    let mut world = world().await;
    accept(&world.owner(), "2026-01").await;
    world.stack.set("ASSAY_TERMS_VERSION", "2027-01");
    let newer = world.stack.launch_api().unwrap();
    newer.ready().await.unwrap();
    let owner = Client::new(
        format!("http://{}", newer.listen.unwrap()),
        Some(&world.org.session),
    );
    let refused = owner.post("/v1/keys", &json!({"name": "x"})).await.unwrap();
    assert_eq!(refused.body["error"]["details"]["version"], "2027-01");
    assert!(owner.get("/v1/terms").await.unwrap().body["accepted_at"].is_null());
    accept(&owner, "2026-01").await.expect_status(409);
    accept(&owner, "2027-01").await.expect_status(200);
    for client in [&owner, &world.owner()] {
        client
            .post("/v1/keys", &json!({"name": "x"}))
            .await
            .expect_status(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_are_optional() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    for response in [
        world.key().get("/v1/terms").await.unwrap(),
        accept(&world.owner(), "1").await,
    ] {
        response.expect_error(404, "not_found");
    }
    world
        .key()
        .post("/v1/evals", &eval())
        .await
        .expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_match_over_grpc() {
    let world = world().await;
    let channel = world.channel().await;
    let mut grpc = TermsServiceClient::new(channel.clone());
    let read = grpc
        .get_terms(with_token(v1::GetTermsRequest {}, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .terms
        .unwrap();
    assert_eq!(
        (
            read.version.as_str(),
            read.url.as_str(),
            read.accepted_at,
            read.accepted_by
        ),
        ("2026-01", URL, None, None)
    );
    let key = KeyServiceClient::new(channel.clone())
        .create_key(with_token(
            v1::CreateKeyRequest {
                name: "x".into(),
                ..Default::default()
            },
            &world.org.session,
        ))
        .await;
    let eval = EvalServiceClient::new(channel)
        .create_eval(with_token(v1::CreateEvalRequest::default(), &world.org.key))
        .await;
    for refused in [key.unwrap_err(), eval.unwrap_err()] {
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(info.reason, "FORBIDDEN");
        let metadata = |name: &str| info.metadata.get(name).map(String::as_str);
        assert_eq!(
            [metadata("reason"), metadata("version"), metadata("url")],
            [Some("terms_not_accepted"), Some("2026-01"), Some(URL)]
        );
        let violations = refused
            .get_details_precondition_failure()
            .unwrap()
            .violations;
        assert_eq!(
            (
                violations[0].r#type.as_str(),
                violations[0].subject.as_str()
            ),
            ("TERMS", URL)
        );
    }
    let other = grpc
        .accept_terms(with_token(
            v1::AcceptTermsRequest {
                version: "1".into(),
            },
            &world.org.session,
        ))
        .await
        .unwrap_err();
    assert_eq!(other.code(), tonic::Code::AlreadyExists);
    let ask = v1::AcceptTermsRequest {
        version: "2026-01".into(),
    };
    let accepted = grpc
        .accept_terms(with_token(ask, &world.org.session))
        .await
        .unwrap()
        .into_inner()
        .terms
        .unwrap();
    let rest = world.owner().get("/v1/terms").await.unwrap().body;
    assert_eq!(
        json!([rest["version"], rest["url"], rest["accepted_by"]]),
        json!([accepted.version, accepted.url, accepted.accepted_by])
    );
    assert_eq!(
        string(&rest["accepted_at"]).parse(),
        Ok(accepted.accepted_at.unwrap())
    );
}

#[test]
fn incomplete_settings_are_rejected() {
    let binaries = crate::harness::ground().binaries.clone();
    for (given, expected) in [
        ("ASSAY_TERMS_VERSION", "ASSAY_TERMS_URL: is required"),
        ("ASSAY_TERMS_URL", "ASSAY_TERMS_VERSION: is required"),
    ] {
        let output = Command::new(&binaries.api)
            .arg("serve")
            .env(given, "x")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
    }
    let mail = [
        ("ASSAY_SMTP_URL", "s3cret"),
        ("ASSAY_MAIL_FROM", "nobody"),
        ("ASSAY_DNS_SERVER", "x"),
    ];
    let output = Command::new(&binaries.api)
        .arg("serve")
        .envs(mail)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    for name in [
        "ASSAY_SMTP_URL: must be",
        "ASSAY_MAIL_FROM: must be",
        "ASSAY_DNS_SERVER: must be",
    ] {
        assert!(said.contains(name), "{said}");
    }
    assert!(!said.contains("s3cret"), "{said}");
}
