//! `/v1/domains`

use assay_proto::v1;
use assay_proto::v1::domain_service_client::DomainServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, org, pause, string, wait_until,
    with_token, world_with,
};
use crate::name_server::NameServer;

async fn world() -> (World, NameServer) {
    let name_server = NameServer::start().await;
    let env = [
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    (
        world_with(StackSize {
            apis: 2,
            workers: 0,
            engines: 0,
            env,
        })
        .await,
        name_server,
    )
}

async fn claim(client: &Client, domain: &str) -> Response {
    client
        .post("/v1/domains", &json!({"domain": domain}))
        .await
        .unwrap()
}

async fn verify(client: &Client, domain: &str) -> Response {
    client
        .send(client.request("POST", &format!("/v1/domains/{domain}/verify")))
        .await
        .unwrap()
}

async fn auto_join(client: &Client, domain: &str, flag: bool) -> Response {
    client
        .patch(
            &format!("/v1/domains/{domain}"),
            &json!({"auto_join": flag}),
        )
        .await
        .unwrap()
}

async fn release(client: &Client, domain: &str) -> Response {
    client
        .delete(&format!("/v1/domains/{domain}"))
        .await
        .unwrap()
}

async fn listed(client: &Client) -> Value {
    client.get("/v1/domains").await.unwrap().body["domains"].clone()
}

/// Claims a domain and publishes its record.
async fn claim_with_record(client: &Client, name_server: &NameServer, domain: &str) {
    let claimed = claim(client, domain).await.expect_status(201);
    name_server.show(
        &string(&claimed.body["record"]["name"]),
        &[&string(&claimed.body["record"]["value"])],
    );
}

/// Claims and verifies a domain, and returns it.
pub async fn claim_verified(client: &Client, name_server: &NameServer, domain: &str) -> Value {
    claim_with_record(client, name_server, domain).await;
    let verified = verify(client, domain).await.expect_status(200);
    assert_eq!(verified.body["verified"], true, "{}", verified.body);
    verified.body["domain"].clone()
}

async fn expire(world: &World) {
    let sql = "update domain_claims set expires_at = now() - interval '1 second', created_at = created_at - interval '8 days'";
    sqlx::query(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_record_verifies_domain() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    let claimed = claim(&owner, " Bücher.EXAMPLE. ").await.expect_status(201);
    assert_eq!(
        claimed.body["domain"], "xn--bcher-kva.example",
        "{}",
        claimed.body
    );
    let record = &claimed.body["record"];
    assert_eq!(
        (&record["type"], &record["name"]),
        (
            &json!("TXT"),
            &json!("_svc-challenge.xn--bcher-kva.example")
        )
    );
    let value = string(&record["value"]);
    assert!(
        value.starts_with("svc-domain-verification=") && value.len() > 50,
        "{value}"
    );
    let days: f64 = sqlx::query_scalar(
        "select (extract(epoch from expires_at - created_at) / 86400)::float8 from domain_claims",
    )
    .fetch_one(&mut world.database().await)
    .await
    .unwrap();
    assert!((days - 7.0).abs() < 1e-6, "{days}");

    // No record, then other records, then the right one in two strings.
    assert_eq!(
        verify(&owner, "bücher.example").await.body,
        json!({"verified": false})
    );
    name_server.show(
        &string(&record["name"]),
        &["svc-domain-verification=", "guess"],
    );
    assert_eq!(
        verify(&owner, "bücher.example").await.body,
        json!({"verified": false})
    );
    assert_eq!(
        listed(&owner).await,
        json!([]),
        "an unverified claim is not listed"
    );
    // An unverified claim cannot be used.
    auto_join(&owner, "bücher.example", true)
        .await
        .expect_status(404);
    name_server.show(&string(&record["name"]), &[&value[..20], &value[20..]]);
    let verified = verify(&owner, "B%C3%BCcher.example")
        .await
        .expect_status(200);
    assert_eq!(verified.body["verified"], true, "{}", verified.body);
    let domain = &verified.body["domain"];
    let mut fields: Vec<_> = domain
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "auto_join",
            "claimed_by",
            "created_at",
            "domain",
            "org_id",
            "verified_at"
        ]
    );
    assert_eq!(
        json!([domain["org_id"], domain["auto_join"]]),
        json!([world.org.id, false])
    );
    assert_eq!(listed(&world.member("viewer").await).await, json!([domain]));
    assert_eq!(
        verify(&owner, "bücher.example").await.body,
        verified.body,
        "repeating it changes nothing"
    );
    claim(&owner, "bücher.example")
        .await
        .expect_error(409, "conflict");

    let gone = release(&owner, "bücher.example").await.expect_status(204);
    assert_eq!(gone.body, Value::Null);
    assert_eq!(listed(&owner).await, json!([]));
    for response in [
        release(&owner, "bücher.example").await,
        verify(&owner, "bücher.example").await,
        auto_join(&owner, "bücher.example", true).await,
    ] {
        response.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_domain_claim_returns_field_error() {
    let (world, _name_server) = world().await;
    let owner = world.owner();
    for (domain, reason) in [
        ("", "required"),
        ("not a domain", "format"),
        ("192.0.2.1", "format"),
        ("a.example\u{0}", "format"),
        ("gmail.com", "public_mail"),
        ("a.b.Gmail.com", "public_mail"),
        ("co.uk", "public_suffix"),
        ("com", "public_suffix"),
    ] {
        let refused = claim(&owner, domain).await.expect_status(422);
        assert_eq!(
            field_errors(&refused),
            vec![field_error("domain", reason)],
            "{domain}"
        );
    }
    let post = async |path: &str, method: &str, body: Value| {
        owner
            .send(owner.request(method, path).json(&body))
            .await
            .unwrap()
    };
    assert_eq!(
        field_errors(
            &post(
                "/v1/domains",
                "POST",
                json!({"domain": "a.example", "x": 1})
            )
            .await
        ),
        [field_error("x", "unknown_field")]
    );
    assert_eq!(
        field_errors(&post("/v1/domains/a.example", "PATCH", json!({})).await),
        [field_error("auto_join", "required")]
    );
    assert_eq!(
        field_errors(
            &post(
                "/v1/domains/a.example",
                "PATCH",
                json!({"auto_join": "yes"})
            )
            .await
        ),
        [field_error("auto_join", "type")]
    );
    for nothing in ["-", "a..b", "%ff", "a.example%00"] {
        assert_eq!(verify(&owner, nothing).await.status, 404, "{nothing}");
    }
}

/// A repeated claim keeps its record; an expired claim gets a new one.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_claim_extends_its_expiry() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    let first = claim(&owner, "acme.example").await.body;
    let second = claim(&owner, "ACME.example").await.body;
    assert_eq!(first["record"], second["record"]);
    assert!(string(&second["expires_at"]) > string(&first["expires_at"]));
    name_server.show(
        &string(&first["record"]["name"]),
        &[&string(&first["record"]["value"])],
    );
    expire(&world).await;
    // The claim has expired, although the record is there.
    verify(&owner, "acme.example")
        .await
        .expect_error(404, "not_found");
    let third = claim(&owner, "acme.example").await.body;
    assert_ne!(third["record"]["value"], first["record"]["value"]);
    assert_eq!(
        verify(&owner, "acme.example").await.body,
        json!({"verified": false}),
        "an old record proves nothing"
    );
    let a = claim(&owner, "two.example");
    let b = claim(&owner, "two.example");
    let (a, b) = tokio::join!(a, b);
    assert_eq!(
        (a.status, b.status, &a.body["record"]),
        (201, 201, &b.body["record"]),
        "concurrent claims share one token"
    );
    // A verified domain does not expire.
    claim_verified(&owner, &name_server, "kept.example").await;
    expire(&world).await;
    assert_eq!(listed(&owner).await[0]["domain"], "kept.example");
    assert_eq!(verify(&owner, "kept.example").await.body["verified"], true);
}

/// An unverified claim reserves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn verified_domain_has_one_owner() {
    let (world, name_server) = world().await;
    let other = world.client(&org(&world.stack, "team").await.session);
    claim_with_record(&world.owner(), &name_server, "acme.example").await;
    claim_with_record(&other, &name_server, "acme.example").await;
    assert_eq!(verify(&other, "acme.example").await.body["verified"], true);
    verify(&world.owner(), "acme.example")
        .await
        .expect_error(409, "conflict");
    claim(&world.owner(), "acme.example")
        .await
        .expect_status(409);
    // Another organization's domain looks like an unknown one.
    let stranger = world.client(&org(&world.stack, "team").await.session);
    for domain in ["acme.example", "nobody.example"] {
        for response in [
            verify(&stranger, domain).await,
            auto_join(&stranger, domain, true).await,
            release(&stranger, domain).await,
        ] {
            assert_eq!(
                (response.status, string(&response.body["error"]["message"])),
                (404, "No such claimed domain.".to_owned())
            );
        }
    }
    assert_eq!(listed(&stranger).await, json!([]));
    // A released domain can be verified by the other organization.
    release(&other, "acme.example").await.expect_status(204);
    assert_eq!(
        verify(&world.owner(), "acme.example").await.body["verified"],
        true
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_verification_has_one_winner() {
    let (world, name_server) = world().await;
    let other = org(&world.stack, "team").await;
    let url = |n: usize| format!("http://{}", world.stack.apis[n].listen.unwrap());
    let clients = [
        Client::new(url(0), Some(&world.org.session)),
        Client::new(url(1), Some(&other.session)),
    ];
    for round in 0..20 {
        let domain = format!("acme{round}.example");
        claim_with_record(&clients[0], &name_server, &domain).await;
        claim_with_record(&clients[1], &name_server, &domain).await;
        let (a, b, c) = tokio::join!(
            verify(&clients[0], &domain),
            verify(&clients[1], &domain),
            verify(&clients[1], &domain)
        );
        assert_eq!(b.status, c.status, "{} {}", b.body, c.body);
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{} {}", a.body, b.body);
    }
    let count = async |client: &Client| listed(client).await.as_array().unwrap().len();
    assert_eq!(count(&clients[0]).await + count(&clients[1]).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_server_failure_returns_503() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    claim(&owner, "broken.example").await;
    let failed = verify(&owner.without_retries(), "broken.example")
        .await
        .expect_error(503, "unavailable");
    assert!(!failed.header("retry-after").is_empty());
    claim_with_record(&owner, &name_server, "acme.example").await;
    drop(name_server);
    let unavailable = verify(&owner.without_retries(), "acme.example")
        .await
        .expect_error(503, "unavailable");
    let body = unavailable.body.to_string().to_lowercase();
    assert!(
        !body.contains("dns") && !body.contains("io error"),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_address_auto_joins_at_sign_in() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    claim_verified(&owner, &name_server, "acme.example").await;
    let me = async |email: &str| {
        world
            .client(&world.sign_in(email).await)
            .get("/v1/me")
            .await
            .unwrap()
    };
    assert_eq!(
        error_code(&me("ada@acme.example").await),
        "org_required",
        "auto-join is off by default"
    );
    let changed = auto_join(&owner, "acme.example", true)
        .await
        .expect_status(200);
    assert_eq!(changed.body["auto_join"], true);
    assert_eq!(listed(&owner).await, json!([changed.body]));
    for stranger in [
        "ada@mail.acme.example",
        "ada@notacme.example",
        "ada@acme.example.org",
    ] {
        assert_eq!(
            error_code(&me(stranger).await),
            "org_required",
            "{stranger}"
        );
    }
    // An existing user joins at a later sign-in too.
    let ada = me("ada@acme.example").await.body;
    assert_eq!(
        json!([ada["org_id"], ada["orgs"][0]["role"]]),
        json!([world.org.id, "member"])
    );
    // An invite's role takes precedence over the domain.
    owner
        .post(
            "/v1/invites",
            &json!({"email": "bob@acme.example", "role": "viewer"}),
        )
        .await
        .unwrap();
    assert_eq!(
        me("bob@acme.example").await.body["orgs"][0]["role"],
        "viewer"
    );

    // A removed member rejoins only by an invite, not by the domain.
    let members = owner.get("/v1/members").await.unwrap().body["members"].clone();
    let ada = members
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["email"] == "ada@acme.example")
        .unwrap();
    owner
        .delete(&format!("/v1/members/{}", string(&ada["user_id"])))
        .await
        .unwrap();
    assert_eq!(error_code(&me("ada@acme.example").await), "org_required");
    owner
        .post("/v1/invites", &json!({"email": "ada@acme.example"}))
        .await
        .unwrap();
    assert_eq!(
        me("ada@acme.example").await.body["org_id"],
        world.org.id.as_str()
    );

    // Without auto-join, or after the domain is released, nobody joins; members stay.
    auto_join(&owner, "acme.example", false).await;
    assert_eq!(error_code(&me("eve@acme.example").await), "org_required");
    auto_join(&owner, "acme.example", true).await;
    release(&owner, "acme.example").await;
    assert_eq!(error_code(&me("eve@acme.example").await), "org_required");
    assert_eq!(
        owner.get("/v1/members").await.unwrap().body["members"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn domains_match_grpc() {
    let (world, name_server) = world().await;
    let mut grpc = DomainServiceClient::new(world.channel().await);
    let session = &world.org.session;
    let request = v1::ClaimDomainRequest {
        domain: "Acme.example".into(),
    };
    let claimed = grpc
        .claim_domain(with_token(request, session))
        .await
        .unwrap()
        .into_inner()
        .claim
        .unwrap();
    let record = claimed.record.unwrap();
    assert_eq!(
        (
            claimed.domain.as_str(),
            record.r#type.as_str(),
            record.name.as_str()
        ),
        ("acme.example", "TXT", "_svc-challenge.acme.example")
    );
    let request = v1::VerifyDomainRequest {
        domain: "acme.example".into(),
    };
    let missing = grpc
        .verify_domain(with_token(request.clone(), session))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((missing.verified, missing.domain), (false, None));
    name_server.show(&record.name, &[&record.value]);
    assert!(
        grpc.verify_domain(with_token(request.clone(), session))
            .await
            .unwrap()
            .into_inner()
            .verified
    );
    let change = v1::UpdateDomainRequest {
        domain: "acme.example".into(),
        auto_join: Some(true),
    };
    assert!(
        grpc.update_domain(with_token(change, session))
            .await
            .unwrap()
            .into_inner()
            .domain
            .unwrap()
            .auto_join
    );
    let theirs = grpc
        .list_domains(with_token(v1::ListDomainsRequest::default(), session))
        .await
        .unwrap()
        .into_inner()
        .domains
        .remove(0);
    let ours = listed(&world.owner()).await[0].clone();
    let fields = json!([
        theirs.org_id,
        theirs.domain,
        theirs.claimed_by,
        theirs.auto_join
    ]);
    assert_eq!(
        json!([
            ours["org_id"],
            ours["domain"],
            ours["claimed_by"],
            ours["auto_join"]
        ]),
        fields
    );
    for (name, theirs) in [
        ("verified_at", theirs.verified_at),
        ("created_at", theirs.created_at),
    ] {
        assert_eq!(string(&ours[name]).parse(), Ok(theirs.unwrap()));
    }
    let empty = v1::UpdateDomainRequest {
        domain: "acme.example".into(),
        auto_join: None,
    };
    let empty = grpc
        .update_domain(with_token(empty, session))
        .await
        .unwrap_err();
    assert_eq!(
        empty.get_details_bad_request().unwrap().field_violations[0].field,
        "auto_join"
    );
    let taken = grpc
        .claim_domain(with_token(
            v1::ClaimDomainRequest {
                domain: "acme.example".into(),
            },
            session,
        ))
        .await
        .unwrap_err();
    assert_eq!(taken.code(), tonic::Code::AlreadyExists);
    grpc.release_domain(with_token(
        v1::ReleaseDomainRequest {
            domain: "acme.example".into(),
        },
        session,
    ))
    .await
    .unwrap();
    assert_eq!(
        grpc.verify_domain(with_token(request, session))
            .await
            .unwrap_err()
            .code(),
        tonic::Code::NotFound
    );
}

/// Returns the record name that proves a claim.
fn record_of(domain: &str) -> String {
    format!("_svc-challenge.{domain}")
}

/// Makes all verified domains due for a check.
async fn make_due(world: &World) {
    let sql = "update domain_claims set verified_at = verified_at - interval '8 days', check_at = null where verified_at is not null";
    sqlx::query(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
}

/// Restarts the API processes, which check due domains when they start, and waits until a domain
/// was checked. Returns its miss count.
async fn restart_and_check(world: &mut World, domain: &str) -> i32 {
    make_due(world).await;
    world.stack.apis.clear();
    for _ in 0..2 {
        world.stack.apis.push(world.stack.launch_api().unwrap());
    }
    for api in &world.stack.apis {
        api.ready().await.unwrap();
    }
    let state = async || {
        let sql = "select misses, coalesce(check_at > now() + interval '10 minutes', false) from domain_claims where domain = $1";
        sqlx::query_as::<_, (i32, bool)>(sql)
            .bind(domain)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap()
    };
    wait_until("domain check", async || state().await.1).await;
    state().await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn three_misses_disable_auto_join() {
    let (mut world, name_server) = world().await;
    let session = world.org.session.clone();
    let owner = |world: &World| world.client(&session);
    claim_with_record(&owner(&world), &name_server, "acme.example").await;
    let value = {
        let token: String = sqlx::query_scalar("select token from domain_claims")
            .fetch_one(&mut world.database().await)
            .await
            .unwrap();
        format!("svc-domain-verification={token}")
    };
    assert_eq!(
        verify(&owner(&world), "acme.example").await.body["verified"],
        true
    );
    auto_join(&owner(&world), "acme.example", true)
        .await
        .expect_status(200);
    assert_eq!(
        restart_and_check(&mut world, "acme.example").await,
        0,
        "the record is there"
    );
    name_server.hide(&record_of("acme.example"));
    assert_eq!(restart_and_check(&mut world, "acme.example").await, 1);
    assert_eq!(restart_and_check(&mut world, "acme.example").await, 2);
    // Only consecutive misses count.
    name_server.show(&record_of("acme.example"), &[&value]);
    assert_eq!(restart_and_check(&mut world, "acme.example").await, 0);
    name_server.hide(&record_of("acme.example"));
    for misses in 1..=2 {
        assert_eq!(restart_and_check(&mut world, "acme.example").await, misses);
        assert_eq!(listed(&owner(&world)).await[0]["auto_join"], true);
    }
    assert_eq!(restart_and_check(&mut world, "acme.example").await, 3);
    assert_eq!(listed(&owner(&world)).await[0]["auto_join"], false);
    let me = world
        .client(&world.sign_in("ada@acme.example").await)
        .get("/v1/me")
        .await
        .unwrap();
    assert_eq!(error_code(&me), "org_required");
    // Auto-join can be enabled again after the record was verified.
    auto_join(&owner(&world), "acme.example", true)
        .await
        .expect_error(409, "invalid_state");
    auto_join(&owner(&world), "acme.example", false)
        .await
        .expect_status(200);
    assert_eq!(
        verify(&owner(&world), "acme.example").await.body,
        json!({"verified": false})
    );
    name_server.show(&record_of("acme.example"), &[&value]);
    assert_eq!(
        verify(&owner(&world), "acme.example").await.body["verified"],
        true
    );
    assert_eq!(
        auto_join(&owner(&world), "acme.example", true).await.body["auto_join"],
        true
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_checks_survive_a_crash() {
    let (mut world, name_server) = world().await;
    for n in 0..30 {
        claim_verified(&world.owner(), &name_server, &format!("acme{n}.example")).await;
    }
    claim_verified(&world.owner(), &name_server, "acme.example").await;
    let lookups = |name_server: &NameServer| -> usize {
        (0..30)
            .map(|n| name_server.asked(&record_of(&format!("acme{n}.example"))))
            .sum()
    };
    let before = lookups(&name_server);
    restart_and_check(&mut world, "acme.example").await;
    wait_until("all domain checks", async || {
        lookups(&name_server) >= before + 30
    })
    .await;
    pause("nothing to happen", std::time::Duration::from_secs(1)).await;
    assert_eq!(
        lookups(&name_server),
        before + 30,
        "two processes look each record up once"
    );
    // The lease held by a process that died during a check expires.
    let leased = "update domain_claims set check_at = now() - interval '1 second' where domain = 'acme0.example'";
    sqlx::query(leased)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let held = "update domain_claims set check_at = now() + interval '1 minute' where domain = 'acme1.example'";
    sqlx::query(held)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let dead_queries = name_server.asked(&record_of("acme0.example"));
    let live_queries = name_server.asked(&record_of("acme1.example"));
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    wait_until("domain check", async || {
        name_server.asked(&record_of("acme0.example")) > dead_queries
    })
    .await;
    assert_eq!(name_server.asked(&record_of("acme1.example")), live_queries);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_server_failure_is_no_miss() {
    let (mut world, _name_server) = world().await;
    claim(&world.owner(), "broken.example").await;
    let verified = "update domain_claims set verified_at = now(), auto_join = true";
    sqlx::query(verified)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(restart_and_check(&mut world, "broken.example").await, 0);
    let soon = "select check_at < now() + interval '2 hours' from domain_claims";
    let soon: bool = sqlx::query_scalar(soon)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert!(soon, "the next check is sooner than in a week");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_proof_takes_over_orphaned_domain() {
    let (world, name_server) = world().await;
    let former = world.owner();
    claim_verified(&former, &name_server, "acme.example").await;
    auto_join(&former, "acme.example", true).await;
    name_server.hide(&record_of("acme.example"));
    let buyers = [
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    ]
    .map(|org| world.client(&org.session));
    for buyer in &buyers {
        claim(buyer, "acme.example").await.expect_status(201);
        assert_eq!(
            verify(buyer, "acme.example").await.body,
            json!({"verified": false}),
            "a claim without a record takes nothing over"
        );
    }
    assert_eq!(listed(&former).await[0]["auto_join"], true);
    // Two organizations publish records at once: one of them gets the domain.
    for buyer in &buyers {
        claim_with_record(buyer, &name_server, "acme.example").await;
    }
    let (a, b) = tokio::join!(
        verify(&buyers[0], "acme.example"),
        verify(&buyers[1], "acme.example")
    );
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{} {}", a.body, b.body);
    assert_eq!(
        listed(&former).await,
        json!([]),
        "the former owner has lost the domain"
    );
    verify(&former, "acme.example").await.expect_status(404);
    let winner = &buyers[usize::from(b.status == 200)];
    let won = listed(winner).await;
    assert_eq!(
        json!([won[0]["domain"], won[0]["auto_join"]]),
        json!(["acme.example", false])
    );
    let me = world
        .client(&world.sign_in("ada@acme.example").await)
        .get("/v1/me")
        .await
        .unwrap();
    assert_eq!(
        error_code(&me),
        "org_required",
        "nobody joins the former owner's organization"
    );
    // The former owner can claim the domain only after the new owner's record is gone.
    claim(&former, "acme.example").await.expect_status(409);
    let released = former.get("/v1/audit?type=domain.released").await.unwrap();
    let entry = &released.body["entries"][0];
    assert_eq!(
        json!([
            entry["actor"]["type"],
            entry["target"]["id"],
            entry["request_id"]
        ]),
        json!(["platform", "acme.example", null])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn standing_record_prevents_takeover() {
    let (world, name_server) = world().await;
    let holder = world.owner();
    let other = world.client(&org(&world.stack, "team").await.session);
    // Both organizations claim the domain and publish their records.
    claim_with_record(&other, &name_server, "acme.example").await;
    claim_verified(&holder, &name_server, "acme.example").await;
    for refused in [
        verify(&other, "acme.example").await,
        claim(&other, "acme.example").await,
    ] {
        assert_eq!(
            (refused.status, error_code(&refused)),
            (409, "conflict".to_owned())
        );
    }
    assert_eq!(listed(&holder).await[0]["domain"], "acme.example");
    assert_eq!(listed(&other).await, json!([]));
}
