//! `/v1/domains`

use assay_proto::v1;
use assay_proto::v1::domain_service_client::DomainServiceClient;
use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    PATIENCE, World, code, fault, faults, org, text, until, with_token, world_of,
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
        world_of(Plan {
            apis: 2,
            workers: 0,
            env,
        })
        .await,
        name_server,
    )
}

async fn claim(client: &Client, domain: &str) -> Answer {
    client
        .post("/v1/domains", &json!({"domain": domain}))
        .await
        .unwrap()
}

async fn verify(client: &Client, domain: &str) -> Answer {
    client
        .send(client.request("POST", &format!("/v1/domains/{domain}/verify")))
        .await
        .unwrap()
}

async fn auto_join(client: &Client, domain: &str, flag: bool) -> Answer {
    client
        .send(
            client
                .request("PATCH", &format!("/v1/domains/{domain}"))
                .json(&json!({"auto_join": flag})),
        )
        .await
        .unwrap()
}

async fn release(client: &Client, domain: &str) -> Answer {
    client
        .send(client.request("DELETE", &format!("/v1/domains/{domain}")))
        .await
        .unwrap()
}

async fn listed(client: &Client) -> Value {
    client.get("/v1/domains").await.unwrap().body["domains"].clone()
}

/// Claims a domain and shows the record.
async fn shown(client: &Client, name_server: &NameServer, domain: &str) {
    let claimed = claim(client, domain).await;
    assert_eq!(claimed.status, 201, "{}", claimed.body);
    name_server.show(
        &text(&claimed.body["record"]["name"]),
        &[&text(&claimed.body["record"]["value"])],
    );
}

pub async fn owned(client: &Client, name_server: &NameServer, domain: &str) -> Value {
    shown(client, name_server, domain).await;
    let verified = verify(client, domain).await;
    assert_eq!(
        (verified.status, &verified.body["verified"]),
        (200, &json!(true)),
        "{}",
        verified.body
    );
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
async fn a_domain_is_claimed_by_a_record_and_belongs_to_the_organization_once_that_is_there() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    let claimed = claim(&owner, " Bücher.EXAMPLE. ").await;
    assert_eq!(
        (claimed.status, &claimed.body["domain"]),
        (201, &json!("xn--bcher-kva.example")),
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
    let value = text(&record["value"]);
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

    // Nothing there, then something else, then it, in two pieces and beside the other.
    assert_eq!(
        verify(&owner, "bücher.example").await.body,
        json!({"verified": false})
    );
    name_server.show(
        &text(&record["name"]),
        &["svc-domain-verification=", "guess"],
    );
    assert_eq!(
        verify(&owner, "bücher.example").await.body,
        json!({"verified": false})
    );
    assert_eq!(
        listed(&owner).await,
        json!([]),
        "a claim that is not verified is not shown"
    );
    assert_eq!(
        auto_join(&owner, "bücher.example", true).await.status,
        404,
        "nor can it be used"
    );
    name_server.show(&text(&record["name"]), &[&value[..20], &value[20..]]);
    let verified = verify(&owner, "B%C3%BCcher.example").await;
    assert_eq!(
        (verified.status, &verified.body["verified"]),
        (200, &json!(true)),
        "{}",
        verified.body
    );
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
        "again changes nothing"
    );
    let again = claim(&owner, "bücher.example").await;
    assert_eq!((again.status, code(&again)), (409, "conflict".to_owned()));

    let gone = release(&owner, "bücher.example").await;
    assert_eq!((gone.status, gone.body), (204, Value::Null));
    assert_eq!(listed(&owner).await, json!([]));
    for answer in [
        release(&owner, "bücher.example").await,
        verify(&owner, "bücher.example").await,
        auto_join(&owner, "bücher.example", true).await,
    ] {
        assert_eq!(
            (answer.status, code(&answer)),
            (404, "not_found".to_owned())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_claimed_is_told_by_field() {
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
        let refused = claim(&owner, domain).await;
        assert_eq!(
            (refused.status, faults(&refused)),
            (422, vec![fault("domain", reason)]),
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
        faults(
            &post(
                "/v1/domains",
                "POST",
                json!({"domain": "a.example", "x": 1})
            )
            .await
        ),
        [fault("x", "unknown_field")]
    );
    assert_eq!(
        faults(&post("/v1/domains/a.example", "PATCH", json!({})).await),
        [fault("auto_join", "required")]
    );
    assert_eq!(
        faults(
            &post(
                "/v1/domains/a.example",
                "PATCH",
                json!({"auto_join": "yes"})
            )
            .await
        ),
        [fault("auto_join", "type")]
    );
    for nothing in ["-", "a..b", "%ff", "a.example%00"] {
        assert_eq!(verify(&owner, nothing).await.status, 404, "{nothing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_again_prolongs_a_claim_and_an_expired_one_begins_anew() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    let first = claim(&owner, "acme.example").await.body;
    let second = claim(&owner, "ACME.example").await.body;
    assert_eq!(first["record"], second["record"]);
    assert!(text(&second["expires_at"]) > text(&first["expires_at"]));
    name_server.show(
        &text(&first["record"]["name"]),
        &[&text(&first["record"]["value"])],
    );
    expire(&world).await;
    let late = verify(&owner, "acme.example").await;
    assert_eq!(
        (late.status, code(&late)),
        (404, "not_found".to_owned()),
        "it is over, whatever the name server shows"
    );
    let third = claim(&owner, "acme.example").await.body;
    assert_ne!(third["record"]["value"], first["record"]["value"]);
    assert_eq!(
        verify(&owner, "acme.example").await.body,
        json!({"verified": false}),
        "an old record proves nothing"
    );
    let (a, b) = (claim(&owner, "two.example"), claim(&owner, "two.example"));
    let (a, b) = tokio::join!(a, b);
    assert_eq!(
        (a.status, b.status, &a.body["record"]),
        (201, 201, &b.body["record"]),
        "two at once have one token"
    );
    // What was verified does not expire.
    owned(&owner, &name_server, "kept.example").await;
    expire(&world).await;
    assert_eq!(listed(&owner).await[0]["domain"], "kept.example");
    assert_eq!(verify(&owner, "kept.example").await.body["verified"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_reserves_nothing_and_a_verified_domain_belongs_to_one() {
    let (world, name_server) = world().await;
    let other = world.client(&org(&world.stack, "team").await.session);
    shown(&world.owner(), &name_server, "acme.example").await;
    shown(&other, &name_server, "acme.example").await;
    assert_eq!(verify(&other, "acme.example").await.body["verified"], true);
    let late = verify(&world.owner(), "acme.example").await;
    assert_eq!((late.status, code(&late)), (409, "conflict".to_owned()));
    assert_eq!(claim(&world.owner(), "acme.example").await.status, 409);
    // Another organization's domain is nobody's business.
    let stranger = world.client(&org(&world.stack, "team").await.session);
    for domain in ["acme.example", "nobody.example"] {
        for answer in [
            verify(&stranger, domain).await,
            auto_join(&stranger, domain, true).await,
            release(&stranger, domain).await,
        ] {
            assert_eq!(
                (answer.status, text(&answer.body["error"]["message"])),
                (404, "No such claimed domain.".to_owned())
            );
        }
    }
    assert_eq!(listed(&stranger).await, json!([]));
    // Given up, it is free for the one who was late.
    assert_eq!(release(&other, "acme.example").await.status, 204);
    assert_eq!(
        verify(&world.owner(), "acme.example").await.body["verified"],
        true
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_verify_one_domain_at_once_have_one_winner() {
    let (world, name_server) = world().await;
    let other = org(&world.stack, "team").await;
    let url = |n: usize| format!("http://{}", world.stack.apis[n].listen.unwrap());
    let clients = [
        Client::new(url(0), Some(&world.org.session)),
        Client::new(url(1), Some(&other.session)),
    ];
    for round in 0..20 {
        let domain = format!("acme{round}.example");
        shown(&clients[0], &name_server, &domain).await;
        shown(&clients[1], &name_server, &domain).await;
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
async fn a_name_server_in_trouble_is_not_a_missing_record() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    claim(&owner, "broken.example").await;
    let failed = verify(&owner, "broken.example").await;
    assert_eq!(
        (failed.status, code(&failed)),
        (503, "unavailable".to_owned())
    );
    assert!(!failed.header("retry-after").is_empty());
    shown(&owner, &name_server, "acme.example").await;
    drop(name_server);
    let began = std::time::Instant::now();
    let away = verify(&owner, "acme.example").await;
    assert_eq!((away.status, code(&away)), (503, "unavailable".to_owned()));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    let told = away.body.to_string().to_lowercase();
    assert!(
        !told.contains("dns") && !told.contains("io error"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_an_address_of_the_domain_joins_at_sign_in() {
    let (world, name_server) = world().await;
    let owner = world.owner();
    owned(&owner, &name_server, "acme.example").await;
    let me = async |email: &str| {
        world
            .client(&world.sign_in(email).await)
            .get("/v1/me")
            .await
            .unwrap()
    };
    assert_eq!(
        code(&me("ada@acme.example").await),
        "org_required",
        "not by itself"
    );
    let changed = auto_join(&owner, "acme.example", true).await;
    assert_eq!(
        (changed.status, &changed.body["auto_join"]),
        (200, &json!(true))
    );
    assert_eq!(listed(&owner).await, json!([changed.body]));
    for stranger in [
        "ada@mail.acme.example",
        "ada@notacme.example",
        "ada@acme.example.org",
    ] {
        assert_eq!(code(&me(stranger).await), "org_required", "{stranger}");
    }
    // At a later sign-in too.
    let ada = me("ada@acme.example").await.body;
    assert_eq!(
        json!([ada["org_id"], ada["orgs"][0]["role"]]),
        json!([world.org.id, "member"])
    );
    // An invite says more than the domain.
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

    // Whoever is removed does not come back by the domain, but by an invite.
    let members = owner.get("/v1/members").await.unwrap().body["members"].clone();
    let ada = members
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["email"] == "ada@acme.example")
        .unwrap();
    owner
        .send(owner.request("DELETE", &format!("/v1/members/{}", text(&ada["user_id"]))))
        .await
        .unwrap();
    assert_eq!(code(&me("ada@acme.example").await), "org_required");
    owner
        .post("/v1/invites", &json!({"email": "ada@acme.example"}))
        .await
        .unwrap();
    assert_eq!(
        me("ada@acme.example").await.body["org_id"],
        world.org.id.as_str()
    );

    // With the flag taken back, or the domain given up, nobody joins any more; who did stays.
    auto_join(&owner, "acme.example", false).await;
    assert_eq!(code(&me("eve@acme.example").await), "org_required");
    auto_join(&owner, "acme.example", true).await;
    release(&owner, "acme.example").await;
    assert_eq!(code(&me("eve@acme.example").await), "org_required");
    assert_eq!(
        owner.get("/v1/members").await.unwrap().body["members"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn domains_are_the_same_over_grpc() {
    let (world, name_server) = world().await;
    let mut grpc = DomainServiceClient::new(world.channel().await);
    let session = &world.org.session;
    let ask = v1::ClaimDomainRequest {
        domain: "Acme.example".into(),
    };
    let claimed = grpc
        .claim_domain(with_token(ask, session))
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
    let ask = v1::VerifyDomainRequest {
        domain: "acme.example".into(),
    };
    let missing = grpc
        .verify_domain(with_token(ask.clone(), session))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((missing.verified, missing.domain), (false, None));
    name_server.show(&record.name, &[&record.value]);
    assert!(
        grpc.verify_domain(with_token(ask.clone(), session))
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
        assert_eq!(text(&ours[name]).parse(), Ok(theirs.unwrap()));
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
        grpc.verify_domain(with_token(ask, session))
            .await
            .unwrap_err()
            .code(),
        tonic::Code::NotFound
    );
}

/// The name of the record that proves a claim.
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

/// Starts API processes anew, which check what is due when they start, and waits until a domain was checked.
async fn checked(world: &mut World, domain: &str) -> i32 {
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
    until("a check", PATIENCE, async || state().await.1).await;
    state().await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_record_disables_auto_join_after_three_checks() {
    let (mut world, name_server) = world().await;
    let session = world.org.session.clone();
    let owner = |world: &World| world.client(&session);
    shown(&owner(&world), &name_server, "acme.example").await;
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
    assert_eq!(
        auto_join(&owner(&world), "acme.example", true).await.status,
        200
    );
    assert_eq!(
        checked(&mut world, "acme.example").await,
        0,
        "the record is there"
    );
    name_server.hide(&record_of("acme.example"));
    assert_eq!(checked(&mut world, "acme.example").await, 1);
    assert_eq!(checked(&mut world, "acme.example").await, 2);
    // Misses count in a row only.
    name_server.show(&record_of("acme.example"), &[&value]);
    assert_eq!(checked(&mut world, "acme.example").await, 0);
    name_server.hide(&record_of("acme.example"));
    for misses in 1..=2 {
        assert_eq!(checked(&mut world, "acme.example").await, misses);
        assert_eq!(listed(&owner(&world)).await[0]["auto_join"], true);
    }
    assert_eq!(checked(&mut world, "acme.example").await, 3);
    assert_eq!(listed(&owner(&world)).await[0]["auto_join"], false);
    let me = world
        .client(&world.sign_in("ada@acme.example").await)
        .get("/v1/me")
        .await
        .unwrap();
    assert_eq!(code(&me), "org_required");
    // It can be enabled again once the record is there and was seen.
    let refused = auto_join(&owner(&world), "acme.example", true).await;
    assert_eq!(
        (refused.status, code(&refused)),
        (409, "invalid_state".to_owned())
    );
    assert_eq!(
        auto_join(&owner(&world), "acme.example", false)
            .await
            .status,
        200
    );
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
async fn checks_are_shared_and_survive_a_crash() {
    let (mut world, name_server) = world().await;
    for n in 0..30 {
        owned(&world.owner(), &name_server, &format!("acme{n}.example")).await;
    }
    owned(&world.owner(), &name_server, "acme.example").await;
    let asked = |name_server: &NameServer| -> usize {
        (0..30)
            .map(|n| name_server.asked(&record_of(&format!("acme{n}.example"))))
            .sum()
    };
    let before = asked(&name_server);
    checked(&mut world, "acme.example").await;
    until("all checks", PATIENCE, async || {
        asked(&name_server) >= before + 30
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(
        asked(&name_server),
        before + 30,
        "two processes look each record up once"
    );
    // A process that dies after it leased a domain leaves a lease that runs out.
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
    let (of_dead, of_live) = (
        name_server.asked(&record_of("acme0.example")),
        name_server.asked(&record_of("acme1.example")),
    );
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    until("a check", PATIENCE, async || {
        name_server.asked(&record_of("acme0.example")) > of_dead
    })
    .await;
    assert_eq!(name_server.asked(&record_of("acme1.example")), of_live);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_server_in_trouble_is_no_miss() {
    let (mut world, _name_server) = world().await;
    claim(&world.owner(), "broken.example").await;
    let verified = "update domain_claims set verified_at = now(), auto_join = true";
    sqlx::query(verified)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(checked(&mut world, "broken.example").await, 0);
    let soon = "select check_at < now() + interval '2 hours' from domain_claims";
    let soon: bool = sqlx::query_scalar(soon)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert!(soon, "it is looked up again sooner than in a week");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_proof_takes_over_domain_whose_record_is_gone() {
    let (world, name_server) = world().await;
    let former = world.owner();
    owned(&former, &name_server, "acme.example").await;
    auto_join(&former, "acme.example", true).await;
    name_server.hide(&record_of("acme.example"));
    let buyers = [
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    ]
    .map(|org| world.client(&org.session));
    for buyer in &buyers {
        let claimed = claim(buyer, "acme.example").await;
        assert_eq!(claimed.status, 201, "{}", claimed.body);
        assert_eq!(
            verify(buyer, "acme.example").await.body,
            json!({"verified": false}),
            "a claim takes nothing over"
        );
    }
    assert_eq!(listed(&former).await[0]["auto_join"], true);
    // Two who show a record at once: one has it.
    for buyer in &buyers {
        shown(buyer, &name_server, "acme.example").await;
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
        "its former owner has lost it"
    );
    assert_eq!(verify(&former, "acme.example").await.status, 404);
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
    assert_eq!(code(&me), "org_required", "nobody joins the former owner");
    // The former owner can claim it only when the record of the new one is gone.
    assert_eq!(claim(&former, "acme.example").await.status, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn standing_record_prevents_takeover() {
    let (world, name_server) = world().await;
    let holder = world.owner();
    let other = world.client(&org(&world.stack, "team").await.session);
    // Both claim it, and both show their records.
    shown(&other, &name_server, "acme.example").await;
    owned(&holder, &name_server, "acme.example").await;
    for refused in [
        verify(&other, "acme.example").await,
        claim(&other, "acme.example").await,
    ] {
        assert_eq!(
            (refused.status, code(&refused)),
            (409, "conflict".to_owned())
        );
    }
    assert_eq!(listed(&holder).await[0]["domain"], "acme.example");
    assert_eq!(listed(&other).await, json!([]));
}
