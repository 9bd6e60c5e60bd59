//! `/v1/auth/email` and `/v1/session`

use assay_proto::v1;
use assay_proto::v1::auth_service_client::AuthServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_proto::v1::session_service_client::SessionServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, fresh_email,
    shared_world_without_workers, string, wait_until, with_setting, with_token, world_with,
};
use crate::mail::{self, only_mail};

const ADA: &str = "ada@example.org";

async fn world() -> World {
    let plenty = with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000").env;
    world_with(StackSize {
        apis: 2,
        workers: 0,
        engines: 0,
        env: plenty,
    })
    .await
}

/// Requests a sign-in email.
async fn request_link(client: &Client, email: &str) -> Response {
    client
        .post("/v1/auth/email", &json!({"email": email}))
        .await
        .unwrap()
}

async fn verify(client: &Client, token: &str) -> Response {
    client
        .post("/v1/auth/email/verify", &json!({"token": token}))
        .await
        .unwrap()
}

fn apis(world: &World) -> Vec<Client> {
    world
        .stack
        .apis
        .iter()
        .map(|api| Client::new(format!("http://{}", api.listen.unwrap()), None))
        .collect()
}

async fn as_owner(world: &World, sql: &'static str) -> u64 {
    sqlx::query(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap()
        .rows_affected()
}

#[tokio::test(flavor = "multi_thread")]
async fn emailed_link_signs_in_any_address() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let unknown = request_link(&world.anonymous(), &format!(" {}", address.to_uppercase())).await;
    let known = request_link(&world.anonymous(), &world.org.email).await;
    for (response, email) in [
        (&unknown, address.as_str()),
        (&known, world.org.email.as_str()),
    ] {
        assert_eq!(
            (response.status, &response.body["email"]),
            (202, &json!(email))
        );
        assert!(string(&response.body["expires_at"]).ends_with('Z'));
        assert_eq!(response.body.as_object().unwrap().len(), 2);
    }
    let mail = only_mail(&world, address).await;
    assert_eq!(mail.subject, "Your link to sign in to Assay");
    let token = mail.token().unwrap();
    let link = format!("{}/sign-in?token={token}", world.stack.url());
    assert!(
        mail.text.contains(&link) && mail.html.contains(&format!("href=\"{link}\"")),
        "{mail:?}"
    );
    assert!(
        mail.text.contains(&format!(
            "curl -X POST {}/v1/auth/email/verify",
            world.stack.url()
        )),
        "{}",
        mail.text
    );

    let signed_in = verify(&world.anonymous(), &token).await.expect_status(201);
    let mut fields: Vec<_> = signed_in.body.as_object().unwrap().keys().collect();
    fields.sort_unstable();
    assert_eq!(fields, ["expires_at", "token", "user_id"]);
    let ada = world.client(&string(&signed_in.body["token"]));
    assert_eq!(
        error_code(&ada.get("/v1/me").await.unwrap()),
        "org_required",
        "the user belongs to no organization yet"
    );
    let again = verify(&world.anonymous(), &world.sign_in_link(address).await).await;
    assert_eq!(
        again.body["user_id"], signed_in.body["user_id"],
        "the same user"
    );
    // The owner keeps the membership.
    let link = only_mail(&world, &world.org.email).await.token().unwrap();
    let owner = world.client(&string(
        &verify(&world.anonymous(), &link).await.body["token"],
    ));
    assert_eq!(
        owner.get("/v1/me").await.unwrap().body["org_id"],
        world.org.id.as_str()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_sign_in_returns_field_errors() {
    let world = shared_world_without_workers().await;
    let post = async |path: &str, body: Value| world.anonymous().post(path, &body).await.unwrap();
    for (body, expected) in [
        (json!({}), field_error("email", "required")),
        (json!({"email": " "}), field_error("email", "required")),
        (json!({"email": "ada"}), field_error("email", "format")),
        (
            json!({"email": "ada@example.org\u{0}"}),
            field_error("email", "format"),
        ),
        (json!({"email": 1}), field_error("email", "type")),
        (
            json!({"email": ADA, "mail": 1}),
            field_error("mail", "unknown_field"),
        ),
    ] {
        assert_eq!(
            field_errors(&post("/v1/auth/email", body).await),
            [expected]
        );
    }
    for (body, expected) in [
        (json!({}), field_error("token", "required")),
        (json!({"token": ""}), field_error("token", "required")),
    ] {
        assert_eq!(
            field_errors(&post("/v1/auth/email/verify", body).await),
            [expected]
        );
    }
    assert_eq!(mail::mails(&world, ADA).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn link_works_once_before_expiry() {
    let world = world().await;
    let token = world.sign_in_link(ADA).await;
    world
        .client(&token)
        .get("/v1/me")
        .await
        .expect_error(401, "invalid_token");
    // Nor does a session token work as a link.
    verify(&world.anonymous(), &world.org.session)
        .await
        .expect_status(401);
    as_owner(
        &world,
        "update sign_in_links set expires_at = now() - interval '1 second'",
    )
    .await;
    let late = verify(&world.anonymous(), &token)
        .await
        .expect_error(401, "invalid_token");
    assert_eq!(late.header("www-authenticate"), "Bearer");
    assert!(string(&late.body["error"]["message"]).contains("Request a new one"));
    as_owner(
        &world,
        "update sign_in_links set expires_at = now() + interval '1 second'",
    )
    .await;
    verify(&world.anonymous(), &token).await.expect_status(201);
    // A link works once.
    verify(&world.anonymous(), &token).await.expect_status(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_link_use_creates_one_session() {
    let world = shared_world_without_workers().await;
    let apis = apis(&world);
    for round in 0..20 {
        let email = fresh_email(&format!("ada{round}"));
        let token = world.sign_in_link(&email).await;
        let responses = join_all((0..4).map(|n| verify(&apis[n % 2], &token))).await;
        let mut statuses: Vec<_> = responses.iter().map(|response| response.status).collect();
        statuses.sort_unstable();
        // Failed attempts may already be throttled with 429.
        assert_eq!(statuses[0], 201, "{statuses:?}");
        assert!(
            statuses[1..]
                .iter()
                .all(|status| [401, 429].contains(status)),
            "{statuses:?}"
        );
        let sessions: i64 = sqlx::query_scalar(
            "select count(*) from sessions s join users u on u.id = s.user_id where u.email = $1",
        )
        .bind(&email)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
        assert_eq!(sessions, 1);
    }
}

/// Shifts all links 31 seconds into the past, so that the next email to every address may be sent.
async fn advance_31_seconds(world: &World) {
    as_owner(
        world,
        "update sign_in_links set created_at = created_at - interval '31 seconds', expires_at = expires_at - interval '31 seconds'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_links_sign_in_once() {
    let world = world().await;
    let apis = apis(&world);
    for round in 0..10 {
        let email = format!("ada{round}@example.org");
        world
            .owner()
            .post("/v1/invites", &json!({"email": email}))
            .await
            .unwrap();
        let first = world.sign_in_link(&email).await;
        advance_31_seconds(&world).await;
        let second = world.sign_in_link(&email).await;
        let (a, b) = tokio::join!(verify(&apis[0], &first), verify(&apis[1], &second));
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert!(
            statuses[0] == 201 && [401, 429].contains(&statuses[1]),
            "{} {}",
            a.body,
            b.body
        );
    }
    assert_eq!(
        world.owner().get("/v1/members").await.unwrap().body["members"]
            .as_array()
            .unwrap()
            .len(),
        11
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_links_count_as_failed_authentication() {
    let world = world().await;
    let token = world.sign_in_link(ADA).await;
    for _ in 0..10 {
        verify(&world.anonymous(), "svc_link_guess")
            .await
            .expect_status(401);
    }
    let refused = verify(&world.anonymous(), "svc_link_guess")
        .await
        .expect_error(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "60");
    assert_eq!(
        (
            refused.header("x-ratelimit-limit"),
            refused.header("x-ratelimit-remaining")
        ),
        ("10", "0")
    );
    // A valid link still works.
    verify(&world.anonymous(), &token).await.expect_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_requests_ten_emails_per_minute() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let apis = apis(&world);
    let first = request_link(&apis[0], "a@example.org").await;
    assert_eq!(
        (
            first.header("x-ratelimit-limit"),
            first.header("x-ratelimit-remaining")
        ),
        ("10", "9")
    );
    let responses = join_all(
        (0..30).map(async |n| request_link(&apis[n % 2], &format!("a{n}@example.org")).await),
    )
    .await;
    assert_eq!(
        responses
            .iter()
            .filter(|response| response.status == 202)
            .count(),
        9
    );
    let refused = responses
        .iter()
        .find(|response| response.status != 202)
        .unwrap();
    assert_eq!(
        (refused.status, error_code(refused)),
        (429, "rate_limited".to_owned())
    );
    assert!((1..=60).contains(&refused.header("retry-after").parse::<i64>().unwrap()));
    assert_eq!(
        (
            refused.header("x-ratelimit-limit"),
            refused.header("x-ratelimit-remaining")
        ),
        ("10", "0")
    );
    let mut grpc = AuthServiceClient::new(world.channel().await);
    let refused = grpc
        .request_sign_in(v1::RequestSignInRequest { email: ADA.into() })
        .await
        .unwrap_err();
    assert_eq!(
        (
            refused.code(),
            refused.get_details_error_info().unwrap().reason.as_str()
        ),
        (tonic::Code::ResourceExhausted, "RATE_LIMITED")
    );
    assert!(
        refused.metadata().get("retry-after").is_some()
            && refused.get_details_retry_info().is_some()
    );
    assert_eq!(refused.metadata().get("x-ratelimit-limit").unwrap(), "10");
    // Link verification is not limited.
    verify(&world.anonymous(), "x").await.expect_status(401);
    assert_eq!(
        grpc.verify_sign_in(v1::VerifySignInRequest { token: "x".into() })
            .await
            .unwrap_err()
            .code(),
        tonic::Code::Unauthenticated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_sign_up_rejects_strangers() {
    for mode in ["invited", "domains"] {
        let mut plan = with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000");
        plan.env.insert("ASSAY_SIGN_UP".into(), mode.into());
        let world = world_with(StackSize { workers: 0, ..plan }).await;
        let domain =
            "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
                      select org_id, 'acme.example', 't', user_id, now(), now() from memberships";
        as_owner(&world, domain).await;
        // A stranger gets the same response as everybody else, but never an email.
        for email in [ADA, "ada@sub.acme.example"] {
            for _ in 0..3 {
                let response = request_link(&world.anonymous(), email)
                    .await
                    .expect_status(202);
                assert_eq!(response.body["email"], email);
            }
        }
        request_link(&world.anonymous(), "bob@acme.example")
            .await
            .expect_status(202);
        // Existing users and invited addresses get a link, even right after a request without
        // effect.
        let owner = world.client(&world.sign_in(&world.org.email).await);
        world
            .owner()
            .post("/v1/invites", &json!({"email": "eve@example.org"}))
            .await
            .expect_status(201);
        world
            .owner()
            .post("/v1/invites", &json!({"email": ADA}))
            .await
            .unwrap();
        let ada = world.client(&world.sign_in(ADA).await);
        let links = |email: &str| mail::links(&world, email).len();
        assert_eq!(
            (
                links(ADA),
                links("ada@sub.acme.example"),
                links("bob@acme.example")
            ),
            (1, 0, usize::from(mode == "domains"))
        );
        // Revoking an invite invalidates a link that was already sent.
        let link = world.sign_in_link("eve@example.org").await;
        as_owner(
            &world,
            "update invites set revoked_at = now() where email = 'eve@example.org'",
        )
        .await;
        verify(&world.anonymous(), &link).await.expect_status(401);
        // Only an organization's members may create organizations.
        let create = async |client: &Client| {
            client
                .post("/v1/orgs", &json!({"name": "One more"}))
                .await
                .unwrap()
        };
        create(&ada).await.expect_error(403, "forbidden");
        create(&owner).await.expect_status(201);
        if mode == "domains" {
            let bob = world.client(&string(
                &verify(
                    &world.anonymous(),
                    &mail::links(&world, "bob@acme.example")[0],
                )
                .await
                .body["token"],
            ));
            assert_eq!(
                error_code(&bob.get("/v1/me").await.unwrap()),
                "org_required"
            );
            assert_eq!(error_code(&create(&bob).await), "forbidden");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_emails_limited_by_ipv6_prefix() {
    let mut plan = with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "2");
    plan.env
        .insert("ASSAY_TRUSTED_PROXIES".into(), "127.0.0.0/8".into());
    let world = world_with(StackSize { workers: 0, ..plan }).await;
    let client = world.anonymous();
    let admitted = async |addresses: Vec<String>| {
        let responses = join_all(addresses.iter().enumerate().map(async |(n, address)| {
            let request = client
                .request("POST", "/v1/auth/email")
                .header("X-Forwarded-For", address);
            client
                .send(request.json(&json!({"email": format!("a{n}@example.org")})))
                .await
                .unwrap()
        }))
        .await;
        assert!(
            responses
                .iter()
                .all(|response| [202, 429].contains(&response.status))
        );
        responses
            .iter()
            .filter(|response| response.status == 202)
            .count()
    };
    // Limits: two for a /64, eight for a /56, 32 for a /48. Another network is not affected.
    assert_eq!(
        admitted((0..6).map(|n| format!("2001:db8:1:1::{n:x}")).collect()).await,
        2
    );
    assert_eq!(
        admitted((0..20).map(|n| format!("2001:db8:2:{n:x}::1")).collect()).await,
        8
    );
    assert_eq!(
        admitted((0..60).map(|n| format!("2001:db8:3:{n:x}00::1")).collect()).await,
        32
    );
    assert_eq!(
        admitted(vec!["2001:db8:4::1".into(), "192.0.2.1".into()]).await,
        2
    );
}

/// Waits until Ada has the expected email count, and 300 ms longer to detect one too many.
async fn mails_to_ada(world: &World, expected: usize) -> Vec<mail::Mail> {
    wait_until("emails to Ada", async || {
        mail::mails(world, ADA).len() >= expected
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let mails = mail::mails(world, ADA);
    assert_eq!(mails.len(), expected);
    mails
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_requests_leaves_live_link() {
    let world = world().await;
    let apis = apis(&world);
    let flood = async || {
        let responses = join_all((0..10).map(|n| request_link(&apis[n % 2], ADA))).await;
        assert!(
            responses
                .iter()
                .all(|response| response.status == 202 && response.body["expires_at"].is_string())
        );
    };
    // At most one email per half minute and five with live links; the last one says so.
    for sent in 1..=5 {
        flood().await;
        let mails = mails_to_ada(&world, sent).await;
        let last = mails
            .iter()
            .filter(|mail| mail.text.contains("This is the last email for now"))
            .count();
        assert_eq!(last, usize::from(sent == 5), "{}", mails[sent - 1].text);
        advance_31_seconds(&world).await;
    }
    flood().await;
    let links: Vec<_> = mails_to_ada(&world, 5)
        .await
        .iter()
        .map(|mail| mail.token().unwrap())
        .collect();
    // Every sent link works, and the first use invalidates the others.
    verify(&world.anonymous(), &links[1])
        .await
        .expect_status(201);
    for link in &links {
        verify(&world.anonymous(), link).await.expect_status(401);
    }
    // It also makes room: the user can sign in again at once.
    flood().await;
    for sent in 7..=10 {
        advance_31_seconds(&world).await;
        flood().await;
        mails_to_ada(&world, sent).await;
    }
    advance_31_seconds(&world).await;
    flood().await;
    mails_to_ada(&world, 10).await;
    // When the oldest of the five links expires, it allows one more email; the others stay valid.
    let expire = "update sign_in_links set expires_at = now() where created_at = (
                      select min(created_at) from sign_in_links where used_at is null and expires_at > now())";
    assert_eq!(as_owner(&world, expire).await, 1);
    flood().await;
    let mails = mails_to_ada(&world, 11).await;
    verify(&world.anonymous(), &mails[9].token().unwrap())
        .await
        .expect_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_addresses_share_the_sign_in_emails_of_their_mailbox() {
    let world = world().await;
    let anonymous = world.anonymous();
    let addresses: Vec<_> = (0..7).map(|at| format!("ada+{at}@example.org")).collect();
    let sent = |world: &World| {
        let links = addresses
            .iter()
            .map(|address| mail::links(world, address).len());
        links.sum::<usize>()
    };
    for expected in 1..=5 {
        let requests = addresses
            .iter()
            .map(|address| request_link(&anonymous, address));
        for response in join_all(requests).await {
            response.expect_status(202);
        }
        wait_until("an email", async || sent(&world) >= expected).await;
        assert_eq!(sent(&world), expected);
        advance_31_seconds(&world).await;
    }
    for address in &addresses {
        request_link(&anonymous, address).await.expect_status(202);
    }
    // Another mailbox has its own limit, and its email comes after the others.
    request_link(&anonymous, "adam@example.org").await;
    wait_until("the email to Adam", async || {
        !mail::links(&world, "adam@example.org").is_empty()
    })
    .await;
    assert_eq!(sent(&world), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn invites_do_not_consume_sign_in_emails() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    for _ in 0..7 {
        let made = world
            .owner()
            .post("/v1/invites", &json!({"email": address}))
            .await
            .expect_status(201);
        let revoke = world.owner().request(
            "DELETE",
            &format!("/v1/invites/{}", string(&made.body["id"])),
        );
        world.owner().send(revoke).await.unwrap();
    }
    world.sign_in(address).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_session_is_rejected_everywhere() {
    let world = shared_world_without_workers().await;
    let session = world.sign_in(&world.org.email).await;
    let calls: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&session)))
        .collect();
    let end = async |client: &Client| client.delete("/v1/session").await.unwrap();
    end(&world.key())
        .await
        .expect_error(403, "session_required");
    let (a, b) = tokio::join!(end(&calls[0]), end(&calls[1]));
    // The second request may arrive when the session has ended already.
    assert!(
        [a.status, b.status].contains(&204)
            && [a.status, b.status]
                .iter()
                .all(|status| [204, 401].contains(status))
    );
    for client in &calls {
        client
            .get("/v1/me")
            .await
            .expect_error(401, "invalid_token");
    }
    world.owner().get("/v1/me").await.expect_status(200);
    // An unknown organization in X-Org-Id does not prevent signing out.
    let other = world.client(&world.sign_in(&world.org.email).await);
    let ended = other
        .send(
            other
                .request("DELETE", "/v1/session")
                .header("X-Org-Id", "org_0"),
        )
        .await
        .expect_status(204);
    assert_eq!(ended.body, Value::Null);
}

async fn sessions(client: &Client) -> Vec<Value> {
    client.get("/v1/sessions").await.unwrap().body["sessions"]
        .as_array()
        .unwrap()
        .clone()
}

async fn end_session(client: &Client, id: &Value) -> Response {
    client
        .delete(&format!("/v1/sessions/{}", string(id)))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn user_lists_and_ends_sessions() {
    let world = world().await;
    let laptop = world.client(&world.sign_in(ADA).await);
    let phone = world.client(&world.sign_in(ADA).await);
    let stolen = world.client(&world.sign_in(ADA).await);
    let listed = sessions(&laptop).await;
    assert_eq!(
        listed
            .iter()
            .map(|session| session["current"].as_bool().unwrap())
            .collect::<Vec<_>>(),
        [false, false, true],
        "newest first"
    );
    let mut fields: Vec<_> = listed[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "address",
            "created_at",
            "current",
            "expires_at",
            "id",
            "last_used_at",
            "user_agent"
        ]
    );
    assert!(
        string(&listed[0]["id"]).starts_with("ses_") && listed[0]["address"] == "127.0.0.1",
        "{listed:?}"
    );
    // A session expires 7 days after its last use.
    let idle = "select count(*) from sessions where created_at + interval '7 days' between $1::timestamptz - interval '1 minute' and $1::timestamptz";
    let idle: i64 = sqlx::query_scalar(idle)
        .bind(string(&listed[0]["expires_at"]))
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert!(idle > 0, "{listed:?}");
    // The address and the user agent come from the last use.
    as_owner(
        &world,
        "update sessions set last_used_at = now() - interval '2 minutes', address = '192.0.2.1'",
    )
    .await;
    let request = stolen
        .request("GET", "/v1/sessions")
        .header("User-Agent", format!("curl/8 {}", "x".repeat(300)));
    stolen.send(request).await.unwrap();
    let seen = &sessions(&laptop).await[0];
    assert_eq!(
        (&seen["address"], string(&seen["user_agent"]).len()),
        (&json!("127.0.0.1"), 200),
        "{seen}"
    );
    let request = phone
        .request("GET", "/v1/sessions")
        .header("User-Agent", format!("oops {}", phone.token().unwrap()));
    phone.send(request).await.unwrap();
    assert_eq!(
        sessions(&laptop).await[1]["user_agent"],
        Value::Null,
        "no secret is stored"
    );

    // Ending one session by its id takes effect at every process. Others' sessions return 404.
    let other = world.client(&world.sign_in("bob@example.org").await);
    for id in [&listed[0]["id"], &json!("ses_0"), &json!("nonsense")] {
        let refused = end_session(&other, id).await.expect_status(404);
        assert_eq!(refused.body["error"]["message"], "No such session.");
    }
    end_session(&laptop, &listed[0]["id"])
        .await
        .expect_status(204);
    // Repeating it changes nothing.
    end_session(&laptop, &listed[0]["id"])
        .await
        .expect_status(204);
    for api in &world.stack.apis {
        Client::new(format!("http://{}", api.listen.unwrap()), stolen.token())
            .get("/v1/me")
            .await
            .expect_error(401, "invalid_token");
    }
    // Ending all other sessions.
    let third = world.client(&world.sign_in(ADA).await);
    laptop.delete("/v1/sessions").await.expect_status(204);
    let left = sessions(&laptop).await;
    assert_eq!((left.len(), &left[0]["current"]), (1, &json!(true)));
    for ended in [&phone, &third] {
        ended.get("/v1/sessions").await.expect_status(401);
    }
    assert_eq!(
        sessions(&other).await.len(),
        1,
        "sessions of another user stay"
    );
    // gRPC behaves the same.
    let mut grpc = SessionServiceClient::new(world.channel().await);
    let again = world.client(&world.sign_in(ADA).await);
    let theirs = grpc
        .list_sessions(with_token(
            v1::ListSessionsRequest {},
            laptop.token().unwrap(),
        ))
        .await
        .unwrap()
        .into_inner()
        .sessions;
    assert_eq!(
        theirs
            .iter()
            .map(|session| session.current)
            .collect::<Vec<_>>(),
        [false, true]
    );
    let end = v1::DeleteSessionRequest {
        session_id: theirs[0].id.clone(),
    };
    let refused = grpc
        .delete_session(with_token(end.clone(), other.token().unwrap()))
        .await
        .unwrap_err();
    assert_eq!(
        (
            refused.code(),
            refused.get_details_error_info().unwrap().reason.as_str()
        ),
        (tonic::Code::NotFound, "NOT_FOUND")
    );
    grpc.delete_session(with_token(end, laptop.token().unwrap()))
        .await
        .unwrap();
    again.get("/v1/sessions").await.expect_status(401);
    let key = grpc
        .delete_other_sessions(with_token(
            v1::DeleteOtherSessionsRequest {},
            &world.org.key,
        ))
        .await
        .unwrap_err();
    assert_eq!(
        key.get_details_error_info().unwrap().reason,
        "SESSION_REQUIRED"
    );
    grpc.delete_other_sessions(with_token(
        v1::DeleteOtherSessionsRequest {},
        laptop.token().unwrap(),
    ))
    .await
    .unwrap();
    assert_eq!(sessions(&laptop).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_has_at_most_100_sessions() {
    let world = world().await;
    let first = world.client(&world.sign_in(ADA).await);
    let more = "insert into sessions (id, user_id, token_hash, last_used_at, expires_at)
                select 'ses_' || n, user_id, sha256(n::text::bytea), now() - n * interval '1 minute', now() + interval '30 days'
                from sessions s, generate_series(1, 120) n where s.user_id = (select id from users where email = 'ada@example.org')";
    as_owner(&world, more).await;
    let last = world.client(&world.sign_in(ADA).await);
    assert_eq!(sessions(&first).await.len(), 100);
    assert_eq!(sessions(&last).await.len(), 100);
    let ended = "select min(substr(id, 5)::int) from sessions where ended_at is not null and id ~ '^ses_[0-9]{1,3}$'";
    let ended: i32 = sqlx::query_scalar(ended)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(ended, 99, "the session unused for the longest time ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_and_out_match_grpc() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let channel = world.channel().await;
    let mut auth = AuthServiceClient::new(channel.clone());
    let requested = auth
        .request_sign_in(v1::RequestSignInRequest {
            email: address.to_uppercase(),
        })
        .await
        .unwrap();
    for header in [
        "x-request-id",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert!(requested.metadata().contains_key(header), "{header}");
    }
    assert_eq!(requested.into_inner().email, *address);
    let token = only_mail(&world, address).await.token().unwrap();
    let signed_in = auth
        .verify_sign_in(v1::VerifySignInRequest {
            token: token.clone(),
        })
        .await
        .unwrap()
        .into_inner();
    assert!(signed_in.user_id.starts_with("usr_") && signed_in.expires_at.is_some());
    let again = auth
        .verify_sign_in(v1::VerifySignInRequest { token })
        .await
        .unwrap_err();
    assert_eq!(
        (
            again.code(),
            again.get_details_error_info().unwrap().reason.as_str()
        ),
        (tonic::Code::Unauthenticated, "INVALID_TOKEN")
    );
    let empty = auth
        .verify_sign_in(v1::VerifySignInRequest {
            token: String::new(),
        })
        .await
        .unwrap_err();
    assert_eq!(empty.code(), tonic::Code::InvalidArgument);
    let bad = auth
        .request_sign_in(v1::RequestSignInRequest { email: "x".into() })
        .await
        .unwrap_err();
    assert_eq!(
        bad.get_details_bad_request().unwrap().field_violations[0].field,
        "email"
    );

    let mut sessions = SessionServiceClient::new(channel.clone());
    let key = sessions
        .end_session(with_token(v1::EndSessionRequest {}, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(
        (
            key.code(),
            key.get_details_error_info().unwrap().reason.as_str()
        ),
        (tonic::Code::PermissionDenied, "SESSION_REQUIRED")
    );
    sessions
        .end_session(with_token(v1::EndSessionRequest {}, &signed_in.token))
        .await
        .unwrap();
    let refused = MeServiceClient::new(channel)
        .get_me(with_token(v1::GetMeRequest {}, &signed_in.token))
        .await
        .unwrap_err();
    assert_eq!(
        refused.get_details_error_info().unwrap().reason,
        "INVALID_TOKEN"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_hashed_and_never_logged() {
    let world = world().await;
    let link = world.sign_in_link(ADA).await;
    let session = string(&verify(&world.anonymous(), &link).await.body["token"]);
    verify(&world.anonymous(), &link).await;
    world.client(&session).get("/v1/me").await.unwrap();
    let secrets = [link, session];
    for table in ["sign_in_links", "sessions"] {
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select t::text from {table} t"
        )))
        .fetch_all(&mut world.database().await)
        .await
        .unwrap();
        assert!(
            !rows.is_empty()
                && !secrets
                    .iter()
                    .any(|secret| rows.iter().any(|row| row.contains(secret)))
        );
    }
    let mut names_mail_file = false;
    for process in &world.stack.apis {
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(
            !log.is_empty() && !secrets.iter().any(|secret| log.contains(&secret[..20])),
            "{log}"
        );
        assert!(!log.contains(ADA), "the log names no recipient: {log}");
        names_mail_file |= log.contains(".eml");
    }
    assert!(names_mail_file, "the log names the file of the email");
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::fs::metadata(world.stack.mail_folder()).unwrap();
    assert_eq!(
        folder.permissions().mode() & 0o077,
        0,
        "emails contain sign-in links: other users must not read them"
    );
}
