//! The `/v1/members` endpoints: roles, removal and members' keys.

use assay_proto::v1;
use assay_proto::v1::member_service_client::MemberServiceClient;
use assay_tests::client::{Client, Response};
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, fresh_email, org,
    shared_world_without_workers, string, with_token,
};

async fn members(client: &Client) -> Vec<Value> {
    client.get("/v1/members").await.unwrap().body["members"]
        .as_array()
        .unwrap()
        .clone()
}

async fn set_role(client: &Client, user_id: &str, role: &str) -> Response {
    client
        .patch(&format!("/v1/members/{user_id}"), &json!({"role": role}))
        .await
        .unwrap()
}

async fn remove(client: &Client, user_id: &str) -> Response {
    client
        .delete(&format!("/v1/members/{user_id}"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_role_change_applies_immediately() {
    let world = shared_world_without_workers().await;
    let viewer = world.member("viewer").await;
    let listed = members(&viewer).await;
    assert_eq!(
        listed
            .iter()
            .map(|member| string(&member["role"]))
            .collect::<Vec<_>>(),
        ["owner", "viewer"]
    );
    assert_eq!(listed[0]["email"], world.org.email.as_str());
    let id = string(&listed[1]["user_id"]);
    assert_eq!(
        error_code(&set_role(&viewer, &id, "owner").await),
        "forbidden"
    );
    viewer
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_status(403);
    let changed = set_role(&world.owner(), &id, "member")
        .await
        .expect_status(200);
    assert_eq!(changed.body["role"], "member");
    assert_eq!(changed.body["user_id"], id);
    viewer
        .post("/v1/keys", &json!({"name": "x"}))
        .await
        .expect_status(201);
    assert_eq!(
        field_errors(&set_role(&world.owner(), &id, "king").await),
        [field_error("role", "unknown_value")]
    );
    set_role(&world.owner(), "usr_0", "member")
        .await
        .expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_member_loses_access_keys_remain() {
    let world = shared_world_without_workers().await;
    let leaving = world.member("member").await;
    let own = leaving
        .post("/v1/orgs", &json!({"name": "Own"}))
        .await
        .unwrap()
        .body;
    let key = string(
        &leaving
            .post("/v1/keys", &json!({"name": "theirs"}))
            .await
            .unwrap()
            .body["key"],
    );
    let id = string(&members(&leaving).await[1]["user_id"]);
    assert_eq!(error_code(&remove(&leaving, &id).await), "forbidden");
    let removed = remove(&world.owner(), &id).await.expect_status(204);
    assert_eq!(removed.body, Value::Null);
    remove(&world.owner(), &id).await.expect_status(404);
    assert_eq!(members(&world.owner()).await.len(), 1);
    // Their session continues with the remaining organization.
    assert_eq!(
        leaving.get("/v1/me").await.unwrap().body["org_id"],
        own["id"]
    );
    world.client(&key).get("/v1/me").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_owner_cannot_be_lost() {
    let world = shared_world_without_workers().await;
    let me = string(&members(&world.owner()).await[0]["user_id"]);
    for response in [
        set_role(&world.owner(), &me, "viewer").await,
        remove(&world.owner(), &me).await,
    ] {
        response.expect_error(409, "invalid_state");
    }
    // The same role is no change.
    set_role(&world.owner(), &me, "owner")
        .await
        .expect_status(200);
    let second = world.member("owner").await;
    // Another owner remains.
    set_role(&world.owner(), &me, "member")
        .await
        .expect_status(200);
    assert_eq!(
        error_code(&set_role(&world.owner(), &me, "owner").await),
        "forbidden",
        "the former owner has no permission"
    );
    set_role(&second, &me, "owner").await.expect_status(200);
}

async fn revoked(world: &World, email: &str) -> Option<bool> {
    let invites = world.owner().get("/v1/invites").await.unwrap().body["invites"]
        .as_array()
        .unwrap()
        .clone();
    invites
        .iter()
        .find(|invite| invite["email"] == email)
        .map(|invite| invite["revoked_at"].is_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_or_demoted_owner_leaves_no_open_invite() {
    let world = shared_world_without_workers().await;
    for (n, demote) in [true, false].into_iter().enumerate() {
        let leaving = world.member("owner").await;
        let me = string(&members(&leaving).await.last().unwrap()["user_id"]);
        let private = fresh_email(&format!("private{n}"));
        let other = fresh_email(&format!("other{n}"));
        leaving
            .post("/v1/invites", &json!({"email": private, "role": "owner"}))
            .await
            .expect_status(201);
        world
            .owner()
            .post("/v1/invites", &json!({"email": other}))
            .await
            .expect_status(201);
        let status = if demote {
            set_role(&world.owner(), &me, "member").await
        } else {
            remove(&world.owner(), &me).await
        }
        .status;
        assert_eq!(status, if demote { 200 } else { 204 });
        assert_eq!(
            (
                revoked(&world, &private).await,
                revoked(&world, &other).await
            ),
            (Some(true), Some(false))
        );
        let back = world.client(&world.sign_in(&private).await);
        assert_eq!(
            error_code(&back.get("/v1/me").await.unwrap()),
            "org_required"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_member_does_not_return_by_an_old_invite() {
    let world = shared_world_without_workers().await;
    let address = &fresh_email("ada");
    // Ada becomes a member in another way before she uses her invite.
    world
        .owner()
        .post("/v1/invites", &json!({"email": address}))
        .await
        .expect_status(201);
    let ada = "with ada as (insert into users (id, email) values ('usr_ada', $2) returning id)
               insert into memberships (org_id, user_id, role) select $1, id, 'member' from ada";
    sqlx::query(ada)
        .bind(&world.org.id)
        .bind(address)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    remove(&world.owner(), "usr_ada").await.expect_status(204);
    let ada = world.client(&world.sign_in(address).await);
    assert_eq!(
        error_code(&ada.get("/v1/me").await.unwrap()),
        "org_required"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_invite_and_removal_leave_no_open_invite() {
    let world = shared_world_without_workers().await;
    let first = &Client::new(
        format!("http://{}", world.stack.apis[0].listen.unwrap()),
        Some(&world.org.session),
    );
    let mut invited = 0;
    let mut refused = 0;
    for round in 0..12 {
        let leaving = world.member("owner").await;
        let me = string(&members(&leaving).await.last().unwrap()["user_id"]);
        let private = fresh_email(&format!("private{round}"));
        let (made, removed) = tokio::join!(
            async {
                tokio::time::sleep(std::time::Duration::from_millis(round % 4)).await;
                leaving
                    .post("/v1/invites", &json!({"email": private, "role": "owner"}))
                    .await
                    .unwrap()
            },
            async {
                tokio::time::sleep(std::time::Duration::from_millis(round % 3)).await;
                remove(first, &me).await
            }
        );
        removed.expect_status(204);
        match made.status {
            201 => invited += 1,
            _ => refused += 1,
        }
        assert_ne!(
            revoked(&world, &private).await,
            Some(false),
            "{}",
            made.body
        );
    }
    eprintln!("{invited} invited, {refused} rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_lists_live_keys() {
    let world = shared_world_without_workers().await;
    let member = world.member("member").await;
    let mut keys = Vec::new();
    for name in ["a", "b", "c"] {
        keys.push(
            member
                .post("/v1/keys", &json!({"name": name}))
                .await
                .unwrap()
                .body["id"]
                .clone(),
        );
    }
    member
        .delete(&format!("/v1/keys/{}", string(&keys[1])))
        .await
        .unwrap();
    let listed = members(&member).await;
    assert_eq!(listed[1]["live_keys"], json!([keys[0], keys[2]]));
    assert_eq!(
        listed[0]["live_keys"].as_array().unwrap().len(),
        1,
        "the owner's key"
    );
    let id = string(&listed[1]["user_id"]);
    assert_eq!(
        set_role(&world.owner(), &id, "viewer").await.body["live_keys"],
        json!([keys[0], keys[2]])
    );
    let mut grpc = MemberServiceClient::new(world.channel().await);
    let change = v1::UpdateMemberRequest {
        user_id: id,
        role: "member".into(),
    };
    let changed = grpc
        .update_member(with_token(change, &world.org.session))
        .await
        .unwrap()
        .into_inner()
        .member
        .unwrap();
    assert_eq!(json!(changed.live_keys), json!([keys[0], keys[2]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_org_member_returns_404() {
    let world = shared_world_without_workers().await;
    let other = org(&world.stack, "free").await;
    let theirs = string(&members(&world.client(&other.session)).await[0]["user_id"]);
    for id in [theirs.as_str(), "usr_0", "nonsense"] {
        for response in [
            set_role(&world.owner(), id, "member").await,
            remove(&world.owner(), id).await,
        ] {
            assert_eq!(
                (response.status, string(&response.body["error"]["message"])),
                (404, "No such member.".to_owned())
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_match_over_grpc() {
    let world = shared_world_without_workers().await;
    world.member("viewer").await;
    let mut grpc = MemberServiceClient::new(world.channel().await);
    let listed = grpc
        .list_members(with_token(
            v1::ListMembersRequest::default(),
            &world.org.session,
        ))
        .await
        .unwrap()
        .into_inner()
        .members;
    for (ours, theirs) in members(&world.owner()).await.iter().zip(&listed) {
        assert_eq!(
            json!([ours["user_id"], ours["email"], ours["role"]]),
            json!([theirs.user_id, theirs.email, theirs.role])
        );
        assert_eq!(
            string(&ours["created_at"]).parse(),
            Ok(theirs.created_at.unwrap())
        );
    }
    let viewer = listed[1].user_id.clone();
    let change = v1::UpdateMemberRequest {
        user_id: viewer.clone(),
        role: "member".into(),
    };
    assert_eq!(
        grpc.update_member(with_token(change, &world.org.session))
            .await
            .unwrap()
            .into_inner()
            .member
            .unwrap()
            .role,
        "member"
    );
    grpc.remove_member(with_token(
        v1::RemoveMemberRequest {
            user_id: viewer.clone(),
        },
        &world.org.session,
    ))
    .await
    .unwrap();
    let last = v1::RemoveMemberRequest {
        user_id: listed[0].user_id.clone(),
    };
    let refused = grpc
        .remove_member(with_token(last, &world.org.session))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let empty = v1::UpdateMemberRequest {
        user_id: viewer,
        role: String::new(),
    };
    assert_eq!(
        grpc.update_member(with_token(empty, &world.org.session))
            .await
            .unwrap_err()
            .code(),
        tonic::Code::InvalidArgument
    );
}
