//! `/v1/invites`

use assay_proto::v1;
use assay_proto::v1::invite_service_client::InviteServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, fresh_email, org,
    shared_world_without_workers, string, with_setting, with_token, world_with,
};
use crate::mail::{mails, only_mail};

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

async fn invite(client: &Client, email: &str) -> Response {
    client
        .post("/v1/invites", &json!({"email": email}))
        .await
        .unwrap()
}

async fn revoke(client: &Client, id: &Value) -> Response {
    client
        .delete(&format!("/v1/invites/{}", string(id)))
        .await
        .unwrap()
}

async fn listed(client: &Client) -> Vec<Value> {
    client.get("/v1/invites").await.unwrap().body["invites"]
        .as_array()
        .unwrap()
        .clone()
}

async fn roles(world: &World) -> Vec<Value> {
    let members = world.owner().get("/v1/members").await.unwrap().body;
    members["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| json!([member["email"], member["role"]]))
        .collect()
}

/// Returns an owner's client for each API process.
fn owners(world: &World) -> Vec<Client> {
    world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.session),
            )
        })
        .collect()
}

async fn as_owner(world: &World, sql: &'static str) {
    assert!(
        sqlx::query(sql)
            .execute(&mut world.database().await)
            .await
            .unwrap()
            .rows_affected()
            > 0,
        "{sql}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invite_sends_email_and_is_accepted() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let made = world
        .owner()
        .post(
            "/v1/invites",
            &json!({"email": format!(" {}", address.to_uppercase()), "role": "viewer"}),
        )
        .await
        .expect_status(201);
    let mut fields: Vec<_> = made
        .body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    let all = [
        "accepted_at",
        "accepted_by",
        "created_at",
        "email",
        "expires_at",
        "id",
        "invited_by",
        "org_id",
        "revoked_at",
        "role",
    ];
    assert_eq!(fields, all);
    let values = json!([
        made.body["email"],
        made.body["role"],
        made.body["org_id"],
        made.body["accepted_at"],
        made.body["revoked_at"]
    ]);
    assert_eq!(values, json!([address, "viewer", world.org.id, null, null]));
    let days: f64 = sqlx::query_scalar(
        "select (extract(epoch from expires_at - created_at) / 86400)::float8 from invites where org_id = $1",
    )
    .bind(&world.org.id)
    .fetch_one(&mut world.database().await)
    .await
    .unwrap();
    assert!((days - 14.0).abs() < 1e-6, "{days}");
    let mail = only_mail(&world, address).await;
    assert_eq!(
        (mail.subject.as_str(), mail.token()),
        ("You are invited to an organization on Assay", None)
    );
    let inviter = format!(
        "{} invites you to the organization “Acme” on Assay, as viewer.",
        world.org.email
    );
    assert!(
        mail.text.contains(&inviter)
            && mail
                .text
                .contains(&format!("{}/sign-in", world.stack.url())),
        "{}",
        mail.text
    );

    let ada = world.client(&world.sign_in(address).await);
    let me = ada.get("/v1/me").await.unwrap().body;
    assert_eq!(
        (&me["org_id"], &me["orgs"][0]["role"]),
        (&json!(world.org.id), &json!("viewer"))
    );
    let consumed = listed(&world.owner()).await;
    assert!(
        consumed[0]["accepted_at"].is_string()
            && string(&consumed[0]["accepted_by"]).starts_with("usr_")
    );
    // A later sign-in changes nothing.
    world.sign_in(address).await;
    assert_eq!(listed(&world.owner()).await, consumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_accepts_all_invites() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    invite(&world.client(&other.session), ADA).await;
    invite(&world.owner(), ADA).await;
    let ada = world.client(&world.sign_in(ADA).await);
    let me = ada
        .send(
            ada.request("GET", "/v1/me")
                .header("X-Org-Id", &world.org.id),
        )
        .await
        .unwrap();
    assert_eq!(me.body["orgs"].as_array().unwrap().len(), 2);
    // An invite of a user who has become a member in the meantime keeps the membership unchanged.
    let made = invite(&world.owner(), "bob@example.org").await.body["id"].clone();
    as_owner(
        &world,
        "insert into users (id, email) values ('usr_bob', 'bob@example.org')",
    )
    .await;
    as_owner(
        &world,
        "insert into memberships (org_id, user_id, role) select org_id, 'usr_bob', 'owner' from invites where email = 'bob@example.org'",
    )
    .await;
    world.sign_in("bob@example.org").await;
    assert!(
        roles(&world)
            .await
            .contains(&json!(["bob@example.org", "owner"]))
    );
    let found = listed(&world.owner())
        .await
        .into_iter()
        .find(|invite| invite["id"] == made)
        .unwrap();
    assert_eq!(found["accepted_by"], "usr_bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_with_several_invites_must_choose() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let stranger = org(&world.stack, "free").await;
    invite(&world.client(&stranger.session), address)
        .await
        .expect_status(201);
    let ada = world.client(&world.sign_in(address).await);
    let me = async |client: &Client, org: Option<&str>| {
        let request = client.request("GET", "/v1/me");
        client
            .send(match org {
                Some(org) => request.header("X-Org-Id", org),
                None => request,
            })
            .await
            .unwrap()
    };
    assert_eq!(
        me(&ada, None).await.body["org_id"],
        stranger.id.as_str(),
        "the only organization"
    );
    invite(&world.owner(), address).await.expect_status(201);
    let second = world.client(&world.sign_in(address).await);
    // The first inviter must not own what the user creates from now on.
    let refused = second
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_error(409, "conflict");
    let details = &refused.body["error"]["details"];
    assert_eq!(
        json!([details["reason"], details["header"]]),
        json!(["choose_organization", "X-Org-Id"])
    );
    let ids: Vec<_> = details["orgs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|org| string(&org["id"]))
        .collect();
    assert_eq!(ids, [stranger.id.clone(), world.org.id.clone()]);
    // A session that started with one organization stays with it.
    assert_eq!(me(&ada, None).await.body["org_id"], stranger.id.as_str());
    let grpc = v1::me_service_client::MeServiceClient::new(world.channel().await)
        .get_me(with_token(v1::GetMeRequest {}, second.token().unwrap()))
        .await
        .unwrap_err();
    let info = grpc.get_details_error_info().unwrap();
    assert_eq!(
        (
            grpc.code(),
            info.reason.as_str(),
            info.metadata["reason"].as_str()
        ),
        (
            tonic::Code::AlreadyExists,
            "CONFLICT",
            "choose_organization"
        )
    );
    assert_eq!(
        info.metadata["orgs"],
        format!("{},{}", stranger.id, world.org.id)
    );
    // Requests without an organization still work. The choice applies to the session.
    second
        .post("/v1/orgs", &json!({"name": "Own"}))
        .await
        .expect_status(201);
    me(&second, None).await.expect_status(409);
    me(&second, Some("org_0")).await.expect_status(404);
    assert_eq!(
        me(&second, Some(&world.org.id)).await.body["org_id"],
        world.org.id.as_str()
    );
    assert_eq!(
        me(&second, None).await.body["org_id"],
        world.org.id.as_str()
    );
    // Each session chooses.
    world
        .client(&world.sign_in(address).await)
        .get("/v1/me")
        .await
        .expect_status(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_invite_does_not_move_user() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let ada = world.client(&world.sign_in(address).await);
    let own = ada
        .post("/v1/orgs", &json!({"name": "Own"}))
        .await
        .unwrap()
        .body["id"]
        .clone();
    invite(&world.owner(), address).await;
    for client in [&world.client(&world.sign_in(address).await), &ada] {
        let me = client.get("/v1/me").await.unwrap().body;
        assert_eq!(
            (&me["org_id"], me["orgs"].as_array().unwrap().len()),
            (&own, 2)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_organization_precedes_strangers() {
    let world = world().await;
    let domain = "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at, auto_join)
                  select org_id, 'acme.example', 't', user_id, now(), now(), true from memberships";
    as_owner(&world, domain).await;
    let eve = world.user_without_org("eve").await;
    for newcomer in ["ada@acme.example", "bob@acme.example"] {
        // Many, so that one probably has a smaller id than the company. They are created
        // before the company acts, by a user without a domain.
        for n in 0..5 {
            let theirs = eve
                .post("/v1/orgs", &json!({"name": format!("Good {n}")}))
                .await
                .unwrap();
            let request = eve
                .request("POST", "/v1/invites")
                .header("X-Org-Id", string(&theirs.body["id"]));
            eve.send(request.json(&json!({"email": newcomer})))
                .await
                .expect_status(201);
        }
        // The company invites Bob too, as an owner.
        if newcomer.starts_with("bob") {
            world
                .owner()
                .post("/v1/invites", &json!({"email": newcomer, "role": "owner"}))
                .await
                .expect_status(201);
        }
        let client = world.client(&world.sign_in(newcomer).await);
        let me = client.get("/v1/me").await.unwrap().body;
        assert_eq!(
            (&me["org_id"], me["orgs"].as_array().unwrap().len()),
            (&json!(world.org.id), 6)
        );
        let made = client
            .post("/v1/keys", &json!({"name": "mine"}))
            .await
            .expect_status(201);
        assert_eq!(made.body["org_id"], json!(world.org.id));
    }
    assert!(
        roles(&world)
            .await
            .contains(&json!(["bob@acme.example", "owner"]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_or_repeated_invite_is_rejected() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let owner = world.owner();
    let post = async |body: Value| owner.post("/v1/invites", &body).await.unwrap();
    for (body, expected) in [
        (json!({}), vec![field_error("email", "required")]),
        (
            json!({"email": "x", "role": "king"}),
            vec![
                field_error("email", "format"),
                field_error("role", "unknown_value"),
            ],
        ),
        (
            json!({"email": address, "rôle": "x"}),
            vec![field_error("rôle", "unknown_field")],
        ),
        (
            json!({"email": "a\u{0}@example.org"}),
            vec![field_error("email", "format")],
        ),
    ] {
        assert_eq!(field_errors(&post(body).await), expected);
    }
    assert!(listed(&owner).await.is_empty());
    invite(&owner, address).await.expect_status(201);
    for (email, word) in [
        (address.to_uppercase().as_str(), "already invited"),
        (world.org.email.as_str(), "already a member"),
    ] {
        let refused = invite(&owner, email).await.expect_error(409, "conflict");
        assert!(
            string(&refused.body["error"]["message"]).contains(word),
            "{}",
            refused.body
        );
    }
    // Another organization may invite the same person.
    let other = org(&world.stack, "free").await;
    invite(&world.client(&other.session), address)
        .await
        .expect_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_invite_is_not_accepted() {
    let world = world().await;
    let old = invite(&world.owner(), ADA).await;
    as_owner(
        &world,
        "update invites set expires_at = now() - interval '1 second'",
    )
    .await;
    let ada = world.client(&world.sign_in(ADA).await);
    assert_eq!(
        error_code(&ada.get("/v1/me").await.unwrap()),
        "org_required"
    );
    let new = invite(&world.owner(), ADA).await.expect_status(201);
    invite(&world.owner(), ADA).await.expect_status(409);
    let ids: Vec<_> = listed(&world.owner())
        .await
        .iter()
        .map(|invite| invite["id"].clone())
        .collect();
    assert_eq!(
        ids,
        [new.body["id"].clone(), old.body["id"].clone()],
        "all of them, newest first"
    );
    world.sign_in(ADA).await;
    assert_eq!(
        ada.get("/v1/me").await.unwrap().body["org_id"],
        world.org.id.as_str()
    );
    let accepted: Vec<_> = listed(&world.owner())
        .await
        .iter()
        .map(|invite| invite["accepted_at"].is_string())
        .collect();
    assert_eq!(accepted, [true, false]);
    // An expired invite can be revoked.
    revoke(&world.owner(), &old.body["id"])
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_invites_create_one() {
    let world = world().await;
    let owners = owners(&world);
    for round in 0..20 {
        let email = format!("ada{round}@example.org");
        if round % 2 == 1 {
            invite(&owners[0], &email).await;
            as_owner(
                &world,
                "update invites set expires_at = now() - interval '1 second'",
            )
            .await;
        }
        let (a, b) = tokio::join!(invite(&owners[0], &email), invite(&owners[1], &email));
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409], "{} {}", a.body, b.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_invite_is_not_accepted() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let id = invite(&world.owner(), address).await.body["id"].clone();
    let first = revoke(&world.owner(), &id).await.expect_status(200);
    let second = revoke(&world.owner(), &id).await.expect_status(200);
    assert!(first.body["revoked_at"].is_string());
    assert_eq!(first.body, second.body, "the first timestamp stays");
    let ada = world.client(&world.sign_in(address).await);
    assert_eq!(
        error_code(&ada.get("/v1/me").await.unwrap()),
        "org_required"
    );
    // A revoked invite allows another one. An accepted invite cannot be revoked.
    let id = invite(&world.owner(), address).await.body["id"].clone();
    world.sign_in(address).await;
    let refused = revoke(&world.owner(), &id)
        .await
        .expect_error(404, "not_found");
    assert!(
        string(&refused.body["error"]["message"]).contains("already accepted"),
        "{}",
        refused.body
    );
    assert_eq!(roles(&world).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_revocation_has_one_winner() {
    let world = shared_world_without_workers().await;
    let mut accepted = 0;
    let mut revoked = 0;
    for round in 0..50 {
        let email = fresh_email(&format!("ada{round}"));
        let id = invite(&world.owner(), &email).await.body["id"].clone();
        let link = json!({"token": world.sign_in_link(&email).await});
        let anonymous = world.anonymous();
        let owner = &owners(&world)[1];
        // The delays let either request win, or leave the winner to chance.
        let [sign_in_later, revoke_later] = [[0, 0], [0, 3], [3, 0], [0, 50], [200, 0]][round % 5]
            .map(std::time::Duration::from_millis);
        let sign_in = async {
            tokio::time::sleep(sign_in_later).await;
            anonymous
                .post("/v1/auth/email/verify", &link)
                .await
                .unwrap()
        };
        let (signed_in, revoking) = tokio::join!(sign_in, async {
            tokio::time::sleep(revoke_later).await;
            revoke(owner, &id).await
        });
        signed_in.expect_status(201);
        let is_member = roles(&world)
            .await
            .iter()
            .any(|member| member[0] == email.as_str());
        let found = listed(&world.owner())
            .await
            .into_iter()
            .find(|invite| invite["id"] == id)
            .unwrap();
        assert_eq!(
            (
                found["accepted_at"].is_string(),
                found["revoked_at"].is_string()
            ),
            (is_member, !is_member),
            "{found}"
        );
        revoking.expect_status(if is_member { 404 } else { 200 });
        *(if is_member {
            &mut accepted
        } else {
            &mut revoked
        }) += 1;
    }
    assert!(
        accepted > 0 && revoked > 0,
        "each must win once: {accepted} accepted, {revoked} revoked"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_invite_returns_404() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let other = world.client(&org(&world.stack, "free").await.session);
    let theirs = invite(&other, address).await.body["id"].clone();
    for id in [theirs.clone(), json!("inv_0"), json!("nonsense")] {
        let response = revoke(&world.owner(), &id).await.expect_status(404);
        assert_eq!(response.body["error"]["message"], "No such invite.");
    }
    assert!(listed(&world.owner()).await.is_empty());
    assert!(listed(&other).await[0]["revoked_at"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn invites_send_at_most_five_emails() {
    let world = shared_world_without_workers().await;
    let other = fresh_email("bob");
    let address = &fresh_email("ada");
    for _ in 0..7 {
        let made = invite(&world.owner(), address).await.expect_status(201);
        revoke(&world.owner(), &made.body["id"]).await;
    }
    // Invite emails are sent in order.
    invite(&world.owner(), &other).await.expect_status(201);
    only_mail(&world, &other).await;
    assert_eq!(mails(&world, address).len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn free_organizations_share_daily_invite_limit() {
    let world = world().await;
    let eve = world.user_without_org("eve").await;
    let create_org = async |name: &str| {
        string(
            &eve.post("/v1/orgs", &json!({"name": name}))
                .await
                .unwrap()
                .body["id"],
        )
    };
    let first = create_org("First").await;
    let second = create_org("Second").await;
    let invite_for = async |org: &str, email: String| {
        let request = eve
            .request("POST", "/v1/invites")
            .header("X-Org-Id", org)
            .json(&json!({"email": email}));
        eve.send(request).await.unwrap()
    };
    // Concurrently, as concurrent requests must not exceed the limit.
    let invites = (0..25).map(|n| {
        invite_for(
            if n % 2 == 0 { &first } else { &second },
            format!("stranger{n}@example.org"),
        )
    });
    let responses = futures_util::future::join_all(invites).await;
    assert_eq!(
        responses
            .iter()
            .filter(|response| response.status == 201)
            .count(),
        20
    );
    let refused = responses
        .iter()
        .find(|response| response.status != 201)
        .unwrap();
    let details = &refused.body["error"]["details"];
    assert_eq!(
        (refused.status, error_code(refused)),
        (429, "quota_exceeded".to_owned())
    );
    assert_eq!(
        json!([details["limit"], details["max"]]),
        json!(["invites_per_day", 20])
    );
    assert!(
        details["resets_at"].is_string()
            && refused.header("retry-after").parse::<i64>().unwrap() > 86_000,
        "{}",
        refused.body
    );
    // A rejected invite is not stored, and revoking an invite does not allow another email.
    let stored: i64 = sqlx::query_scalar("select count(*) from invites")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(stored, 20);
    as_owner(&world, "update invites set revoked_at = now()").await;
    invite_for(&first, "late@example.org".into())
        .await
        .expect_status(429);
    // A day later another invite is accepted.
    as_owner(
        &world,
        "update invites set created_at = created_at - interval '25 hours' where org_id <> ''",
    )
    .await;
    invite_for(&first, "late@example.org".into())
        .await
        .expect_status(201);
    // An organization with a verified domain has its own, larger limit.
    as_owner(&world, "update invites set created_at = now()").await;
    invite_for(&first, "later@example.org".into())
        .await
        .expect_status(429);
    let verified = "insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
                    select id, 'first.example', 't', created_by, now(), now() from orgs where name = 'First'";
    as_owner(&world, verified).await;
    invite_for(&first, "later@example.org".into())
        .await
        .expect_status(201);
    invite_for(&second, "latest@example.org".into())
        .await
        .expect_status(429);
}

#[tokio::test(flavor = "multi_thread")]
async fn invites_match_grpc() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    let mut grpc = InviteServiceClient::new(world.channel().await);
    let session = &world.org.session;
    let request = v1::CreateInviteRequest {
        email: address.into(),
        role: None,
    };
    let made = grpc
        .create_invite(with_token(request.clone(), session))
        .await
        .unwrap()
        .into_inner()
        .invite
        .unwrap();
    let again = grpc
        .create_invite(with_token(request, session))
        .await
        .unwrap_err();
    assert_eq!(
        (
            again.code(),
            again.get_details_error_info().unwrap().reason.as_str()
        ),
        (tonic::Code::AlreadyExists, "CONFLICT")
    );
    let bad = v1::CreateInviteRequest {
        email: String::new(),
        role: Some("king".into()),
    };
    let bad = grpc
        .create_invite(with_token(bad, session))
        .await
        .unwrap_err()
        .get_details_bad_request()
        .unwrap();
    assert_eq!(
        bad.field_violations
            .iter()
            .map(|violation| violation.field.as_str())
            .collect::<Vec<_>>(),
        ["email", "role"]
    );
    world.sign_in(address).await;
    invite(&world.owner(), "bob@example.org").await;
    let bob = grpc
        .list_invites(with_token(v1::ListInvitesRequest::default(), session))
        .await
        .unwrap()
        .into_inner()
        .invites[0]
        .id
        .clone();
    let revoke = v1::RevokeInviteRequest { invite_id: bob };
    let revoked = grpc
        .revoke_invite(with_token(revoke, session))
        .await
        .unwrap()
        .into_inner()
        .invite
        .unwrap();
    assert!(revoked.revoked_at.is_some() && revoked.accepted_at.is_none());
    let theirs = grpc
        .list_invites(with_token(v1::ListInvitesRequest::default(), session))
        .await
        .unwrap()
        .into_inner()
        .invites;
    let ours = listed(&world.owner()).await;
    assert_eq!((ours.len(), &theirs[1].id), (2, &made.id));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let fields = json!([
            theirs.id,
            theirs.org_id,
            theirs.email,
            theirs.role,
            theirs.invited_by,
            theirs.accepted_by
        ]);
        assert_eq!(
            json!([
                ours["id"],
                ours["org_id"],
                ours["email"],
                ours["role"],
                ours["invited_by"],
                ours["accepted_by"]
            ]),
            fields
        );
        let timestamps = [
            ("created_at", theirs.created_at),
            ("expires_at", theirs.expires_at),
            ("accepted_at", theirs.accepted_at),
            ("revoked_at", theirs.revoked_at),
        ];
        for (name, theirs) in timestamps {
            assert_eq!(
                ours[name].as_str().map(|text| text.parse().unwrap()),
                theirs,
                "{name}"
            );
        }
    }
    let gone = grpc
        .revoke_invite(with_token(
            v1::RevokeInviteRequest { invite_id: made.id },
            session,
        ))
        .await
        .unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
}
