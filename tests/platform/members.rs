//! `/v1/members`

use assay_proto::v1;
use assay_proto::v1::member_service_client::MemberServiceClient;
use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use serde_json::{Value, json};

use crate::harness::{World, code, fault, faults, org, text, with_token, world_of};

async fn members(client: &Client) -> Vec<Value> {
    client.get("/v1/members").await.unwrap().body["members"].as_array().unwrap().clone()
}

async fn set_role(client: &Client, user_id: &str, role: &str) -> Answer {
    client.send(client.request("PATCH", &format!("/v1/members/{user_id}")).json(&json!({"role": role}))).await.unwrap()
}

async fn remove(client: &Client, user_id: &str) -> Answer {
    client.send(client.request("DELETE", &format!("/v1/members/{user_id}"))).await.unwrap()
}

async fn world() -> World {
    world_of(Plan { apis: 2, workers: 0, ..Plan::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_change_roles_and_it_holds_at_once() {
    let world = world().await;
    let viewer = world.member("viewer").await;
    let listed = members(&viewer).await;
    assert_eq!(listed.iter().map(|member| text(&member["role"])).collect::<Vec<_>>(), ["owner", "viewer"]);
    assert_eq!(listed[0]["email"], world.org.email.as_str());
    let id = text(&listed[1]["user_id"]);
    assert_eq!(code(&set_role(&viewer, &id, "owner").await), "forbidden");
    assert_eq!(viewer.post("/v1/keys", &json!({"name": "x"})).await.unwrap().status, 403);
    let changed = set_role(&world.owner(), &id, "member").await;
    assert_eq!((changed.status, &changed.body["role"], &changed.body["user_id"]), (200, &"member".into(), &id.clone().into()));
    assert_eq!(viewer.post("/v1/keys", &json!({"name": "x"})).await.unwrap().status, 201);
    assert_eq!(faults(&set_role(&world.owner(), &id, "king").await), [fault("role", "unknown_value")]);
    assert_eq!(set_role(&world.owner(), "usr_0", "member").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_removed_is_out_at_once_and_their_keys_go_on() {
    let world = world().await;
    let leaving = world.member("member").await;
    let own = leaving.post("/v1/orgs", &json!({"name": "Own"})).await.unwrap().body;
    let key = text(&leaving.post("/v1/keys", &json!({"name": "theirs"})).await.unwrap().body["key"]);
    let id = text(&members(&leaving).await[1]["user_id"]);
    assert_eq!(code(&remove(&leaving, &id).await), "forbidden");
    let removed = remove(&world.owner(), &id).await;
    assert_eq!((removed.status, removed.body), (204, Value::Null));
    assert_eq!(remove(&world.owner(), &id).await.status, 404);
    assert_eq!(members(&world.owner()).await.len(), 1);
    // Their session goes on with the organization that is left to them.
    assert_eq!(leaving.get("/v1/me").await.unwrap().body["org_id"], own["id"]);
    assert_eq!(world.client(&key).get("/v1/me").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_owner_stays() {
    let world = world().await;
    let me = text(&members(&world.owner()).await[0]["user_id"]);
    for answer in [set_role(&world.owner(), &me, "viewer").await, remove(&world.owner(), &me).await] {
        assert_eq!((answer.status, code(&answer)), (409, "invalid_state".to_owned()));
    }
    assert_eq!(set_role(&world.owner(), &me, "owner").await.status, 200, "staying is no change");
    let second = world.member("owner").await;
    assert_eq!(set_role(&world.owner(), &me, "member").await.status, 200, "there is another one now");
    assert_eq!(code(&set_role(&world.owner(), &me, "owner").await), "forbidden", "and the first has no say any more");
    assert_eq!(set_role(&second, &me, "owner").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_organizations_member_does_not_exist() {
    let world = world().await;
    let other = org(&world.stack, "free").await;
    let theirs = text(&members(&world.client(&other.session)).await[0]["user_id"]);
    for id in [theirs.as_str(), "usr_0", "nonsense"] {
        for answer in [set_role(&world.owner(), id, "member").await, remove(&world.owner(), id).await] {
            assert_eq!((answer.status, text(&answer.body["error"]["message"])), (404, "No such member.".to_owned()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_the_same_over_grpc() {
    let world = world().await;
    world.member("viewer").await;
    let mut grpc = MemberServiceClient::new(world.channel().await);
    let listed = grpc.list_members(with_token(v1::ListMembersRequest::default(), &world.org.session)).await.unwrap().into_inner().members;
    for (ours, theirs) in members(&world.owner()).await.iter().zip(&listed) {
        assert_eq!(json!([ours["user_id"], ours["email"], ours["role"]]), json!([theirs.user_id, theirs.email, theirs.role]));
        assert_eq!(text(&ours["created_at"]).parse(), Ok(theirs.created_at.unwrap()));
    }
    let viewer = listed[1].user_id.clone();
    let change = v1::UpdateMemberRequest { user_id: viewer.clone(), role: "member".into() };
    assert_eq!(grpc.update_member(with_token(change, &world.org.session)).await.unwrap().into_inner().member.unwrap().role, "member");
    grpc.remove_member(with_token(v1::RemoveMemberRequest { user_id: viewer.clone() }, &world.org.session)).await.unwrap();
    let last = v1::RemoveMemberRequest { user_id: listed[0].user_id.clone() };
    let refused = grpc.remove_member(with_token(last, &world.org.session)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let empty = v1::UpdateMemberRequest { user_id: viewer, role: String::new() };
    assert_eq!(grpc.update_member(with_token(empty, &world.org.session)).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}
