//! `/v1/auth/email` and `/v1/session`

use assay_proto::v1;
use assay_proto::v1::auth_service_client::AuthServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_proto::v1::session_service_client::SessionServiceClient;
use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{World, code, fault, faults, text, until, with, with_token, world_of};
use crate::mail::{self, only_mail};

const ADA: &str = "ada@example.org";

async fn world() -> World {
    let plenty = with("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000").env;
    world_of(Plan { apis: 2, workers: 0, env: plenty }).await
}

async fn ask(client: &Client, email: &str) -> Answer {
    client.post("/v1/auth/email", &json!({"email": email})).await.unwrap()
}

async fn verify(client: &Client, token: &str) -> Answer {
    client.post("/v1/auth/email/verify", &json!({"token": token})).await.unwrap()
}

fn apis(world: &World) -> Vec<Client> {
    world.stack.apis.iter().map(|api| Client::new(format!("http://{}", api.listen.unwrap()), None)).collect()
}

async fn as_owner(world: &World, sql: &'static str) -> u64 {
    sqlx::query(sql).execute(&mut world.database().await).await.unwrap().rows_affected()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_by_mail_signs_in_whether_or_not_the_address_was_known() {
    let world = world().await;
    let (unknown, known) = (ask(&world.anonymous(), " Ada@Example.ORG").await, ask(&world.anonymous(), &world.org.email).await);
    for (answer, email) in [(&unknown, ADA), (&known, world.org.email.as_str())] {
        assert_eq!((answer.status, &answer.body["email"]), (202, &json!(email)));
        assert!(text(&answer.body["expires_at"]).ends_with('Z'));
        assert_eq!(answer.body.as_object().unwrap().len(), 2);
    }
    let mail = only_mail(&world, ADA).await;
    assert_eq!(mail.subject, "Your link to sign in to Assay");
    let token = mail.token().unwrap();
    let link = format!("{}/sign-in#token={token}", world.stack.url());
    assert!(mail.text.contains(&link) && mail.html.contains(&format!("href=\"{link}\"")), "{mail:?}");
    assert!(mail.text.contains(&format!("curl -X POST {}/v1/auth/email/verify", world.stack.url())), "{}", mail.text);

    let signed_in = verify(&world.anonymous(), &token).await;
    assert_eq!(signed_in.status, 201, "{}", signed_in.body);
    let mut fields: Vec<_> = signed_in.body.as_object().unwrap().keys().collect();
    fields.sort_unstable();
    assert_eq!(fields, ["expires_at", "token", "user_id"]);
    let ada = world.client(&text(&signed_in.body["token"]));
    assert_eq!(code(&ada.get("/v1/me").await.unwrap()), "org_required", "she belongs to no organization yet");
    let again = verify(&world.anonymous(), &world.link(ADA).await).await;
    assert_eq!(again.body["user_id"], signed_in.body["user_id"], "the same person");
    // The owner keeps what they had.
    let owner = world.client(&world.sign_in(&world.org.email).await);
    assert_eq!(owner.get("/v1/me").await.unwrap().body["org_id"], world.org.id.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_told_by_field() {
    let world = world().await;
    let post = async |path: &str, body: Value| world.anonymous().post(path, &body).await.unwrap();
    for (body, expected) in [
        (json!({}), fault("email", "required")),
        (json!({"email": " "}), fault("email", "required")),
        (json!({"email": "ada"}), fault("email", "format")),
        (json!({"email": "ada@example.org\u{0}"}), fault("email", "format")),
        (json!({"email": 1}), fault("email", "type")),
        (json!({"email": ADA, "mail": 1}), fault("mail", "unknown_field")),
    ] {
        assert_eq!(faults(&post("/v1/auth/email", body).await), [expected]);
    }
    for (body, expected) in [(json!({}), fault("token", "required")), (json!({"token": ""}), fault("token", "required"))] {
        assert_eq!(faults(&post("/v1/auth/email/verify", body).await), [expected]);
    }
    assert_eq!(mail::mails(&world, ADA).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_works_once_and_for_fifteen_minutes_and_is_no_credential() {
    let world = world().await;
    let token = world.link(ADA).await;
    let refused = world.client(&token).get("/v1/me").await.unwrap();
    assert_eq!((refused.status, code(&refused)), (401, "invalid_token".to_owned()));
    // Nor is a session a link.
    assert_eq!(verify(&world.anonymous(), &world.org.session).await.status, 401);
    as_owner(&world, "update sign_in_links set expires_at = now() - interval '1 second'").await;
    let late = verify(&world.anonymous(), &token).await;
    assert_eq!((late.status, code(&late), late.header("www-authenticate")), (401, "invalid_token".to_owned(), "Bearer"));
    assert!(text(&late.body["error"]["message"]).contains("Ask for another one"));
    as_owner(&world, "update sign_in_links set expires_at = now() + interval '1 second'").await;
    assert_eq!(verify(&world.anonymous(), &token).await.status, 201);
    assert_eq!(verify(&world.anonymous(), &token).await.status, 401, "it is used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_link_used_twice_at_once_is_one_session() {
    let world = world().await;
    let apis = apis(&world);
    for round in 0..20 {
        let email = format!("ada{round}@example.org");
        let token = world.link(&email).await;
        let answers = join_all((0..4).map(|n| verify(&apis[n % 2], &token))).await;
        let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        // The throttle of failed authentication is no part of this.
        assert_eq!(statuses[0], 201, "{statuses:?}");
        assert!(statuses[1..].iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
        let sessions: i64 = sqlx::query_scalar("select count(*) from sessions s join users u on u.id = s.user_id where u.email = $1")
            .bind(&email)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        assert_eq!(sessions, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_links_of_a_new_address_used_at_once_are_one_person() {
    let world = world().await;
    let apis = apis(&world);
    for round in 0..10 {
        let email = format!("ada{round}@example.org");
        world.owner().post("/v1/invites", &json!({"email": email})).await.unwrap();
        let links = [world.link(&email).await, world.link(&email).await];
        let (a, b) = tokio::join!(verify(&apis[0], &links[0]), verify(&apis[1], &links[1]));
        assert_eq!((a.status, b.status), (201, 201), "{} {}", a.body, b.body);
        assert_eq!(a.body["user_id"], b.body["user_id"]);
    }
    assert_eq!(world.owner().get("/v1/members").await.unwrap().body["members"].as_array().unwrap().len(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_do_not_hold_count_as_failed_authentication() {
    let world = world().await;
    let token = world.link(ADA).await;
    for _ in 0..10 {
        assert_eq!(verify(&world.anonymous(), "svc_link_guess").await.status, 401);
    }
    let refused = verify(&world.anonymous(), "svc_link_guess").await;
    assert_eq!((refused.status, code(&refused), refused.header("retry-after")), (429, "rate_limited".to_owned(), "60"));
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("10", "0"));
    assert_eq!(verify(&world.anonymous(), &token).await.status, 201, "what holds still passes");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_mails_a_minute_may_be_asked_for_from_an_address_over_all_processes_and_wires() {
    let world = world_of(Plan { apis: 2, workers: 0, ..Plan::default() }).await;
    let apis = apis(&world);
    let first = ask(&apis[0], "a@example.org").await;
    assert_eq!((first.header("x-ratelimit-limit"), first.header("x-ratelimit-remaining")), ("10", "9"));
    let answers = join_all((0..30).map(async |n| ask(&apis[n % 2], &format!("a{n}@example.org")).await)).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 202).count(), 9);
    let refused = answers.iter().find(|answer| answer.status != 202).unwrap();
    assert_eq!((refused.status, code(refused)), (429, "rate_limited".to_owned()));
    assert!((1..=60).contains(&refused.header("retry-after").parse::<i64>().unwrap()));
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("10", "0"));
    let mut grpc = AuthServiceClient::new(world.channel().await);
    let refused = grpc.request_sign_in(v1::RequestSignInRequest { email: ADA.into() }).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.get_details_error_info().unwrap().reason.as_str()),
        (tonic::Code::ResourceExhausted, "RATE_LIMITED")
    );
    assert!(refused.metadata().get("retry-after").is_some() && refused.get_details_retry_info().is_some());
    assert_eq!(refused.metadata().get("x-ratelimit-limit").unwrap(), "10");
    // What uses links is not concerned.
    assert_eq!(verify(&world.anonymous(), "x").await.status, 401);
    assert_eq!(grpc.verify_sign_in(v1::VerifySignInRequest { token: "x".into() }).await.unwrap_err().code(), tonic::Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_mails_an_hour_go_to_an_address_and_nobody_is_told() {
    let world = world().await;
    let apis = apis(&world);
    let answers = join_all((0..20).map(|n| ask(&apis[n % 2], ADA))).await;
    assert!(answers.iter().all(|answer| answer.status == 202 && answer.body["expires_at"].is_string()));
    until("five mails", crate::harness::PATIENCE, async || mail::mails(&world, ADA).len() >= 5).await;
    // Another address is not concerned; when its mail is there, one of ours that came after the fifth would be too.
    world.link("bob@example.org").await;
    assert_eq!(mail::mails(&world, ADA).len(), 5);
    let links: i64 = sqlx::query_scalar("select count(*) from sign_in_links where email = $1")
        .bind(ADA)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(links, 5);
    // The window moves.
    let back = "update mailed set sent_at[1] = now() - interval '61 minutes' where email = 'ada@example.org'";
    assert_eq!(as_owner(&world, back).await, 1);
    ask(&apis[0], ADA).await;
    ask(&apis[1], ADA).await;
    until("the sixth mail", crate::harness::PATIENCE, async || mail::mails(&world, ADA).len() >= 6).await;
    world.link("bob@example.org").await;
    assert_eq!(mail::mails(&world, ADA).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_is_refused_everywhere_at_once_and_others_go_on() {
    let world = world().await;
    let session = world.sign_in(&world.org.email).await;
    let calls: Vec<_> = world.stack.apis.iter().map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&session))).collect();
    let end = async |client: &Client| client.send(client.request("DELETE", "/v1/session")).await.unwrap();
    let key = end(&world.key()).await;
    assert_eq!((key.status, code(&key)), (403, "session_required".to_owned()));
    let (a, b) = tokio::join!(end(&calls[0]), end(&calls[1]));
    // The second may come when it is over already.
    assert!([a.status, b.status].contains(&204) && [a.status, b.status].iter().all(|status| [204, 401].contains(status)));
    for client in &calls {
        let refused = client.get("/v1/me").await.unwrap();
        assert_eq!((refused.status, code(&refused)), (401, "invalid_token".to_owned()));
    }
    assert_eq!(world.owner().get("/v1/me").await.unwrap().status, 200);
    // An organization that is not the person's is no reason to stay.
    let other = world.client(&world.sign_in(&world.org.email).await);
    let ended = other.send(other.request("DELETE", "/v1/session").header("X-Org-Id", "org_0")).await.unwrap();
    assert_eq!((ended.status, ended.body), (204, Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_and_out_is_the_same_over_grpc() {
    let world = world().await;
    let channel = world.channel().await;
    let mut auth = AuthServiceClient::new(channel.clone());
    let asked = auth.request_sign_in(v1::RequestSignInRequest { email: "ADA@example.org".into() }).await.unwrap();
    for header in ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
        assert!(asked.metadata().contains_key(header), "{header}");
    }
    assert_eq!(asked.into_inner().email, ADA);
    let token = only_mail(&world, ADA).await.token().unwrap();
    let signed_in = auth.verify_sign_in(v1::VerifySignInRequest { token: token.clone() }).await.unwrap().into_inner();
    assert!(signed_in.user_id.starts_with("usr_") && signed_in.expires_at.is_some());
    let again = auth.verify_sign_in(v1::VerifySignInRequest { token }).await.unwrap_err();
    assert_eq!((again.code(), again.get_details_error_info().unwrap().reason.as_str()), (tonic::Code::Unauthenticated, "INVALID_TOKEN"));
    let empty = auth.verify_sign_in(v1::VerifySignInRequest { token: String::new() }).await.unwrap_err();
    assert_eq!(empty.code(), tonic::Code::InvalidArgument);
    let bad = auth.request_sign_in(v1::RequestSignInRequest { email: "x".into() }).await.unwrap_err();
    assert_eq!(bad.get_details_bad_request().unwrap().field_violations[0].field, "email");

    let mut sessions = SessionServiceClient::new(channel.clone());
    let key = sessions.end_session(with_token(v1::EndSessionRequest {}, &world.org.key)).await.unwrap_err();
    assert_eq!((key.code(), key.get_details_error_info().unwrap().reason.as_str()), (tonic::Code::PermissionDenied, "SESSION_REQUIRED"));
    sessions.end_session(with_token(v1::EndSessionRequest {}, &signed_in.token)).await.unwrap();
    let refused = MeServiceClient::new(channel).get_me(with_token(v1::GetMeRequest {}, &signed_in.token)).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "INVALID_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_stored_as_hashes_and_never_logged() {
    let world = world().await;
    let link = world.link(ADA).await;
    let session = text(&verify(&world.anonymous(), &link).await.body["token"]);
    verify(&world.anonymous(), &link).await;
    world.client(&session).get("/v1/me").await.unwrap();
    let secrets = [link, session];
    for table in ["sign_in_links", "sessions"] {
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select t::text from {table} t")))
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
        assert!(!rows.is_empty() && !secrets.iter().any(|secret| rows.iter().any(|row| row.contains(secret))));
    }
    let mut told_where = false;
    for process in &world.stack.apis {
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(!log.is_empty() && !secrets.iter().any(|secret| log.contains(&secret[..20])), "{log}");
        assert!(!log.contains(ADA), "nor whom mails go to: {log}");
        told_where |= log.contains(".eml");
    }
    assert!(told_where, "the log says where the mail is");
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::fs::metadata(world.stack.mail_folder()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o077, 0, "mails let people in: nobody else may read them");
}
