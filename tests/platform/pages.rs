//! Listings: pages, cursors, the listed resources' limits, and cost.

use std::collections::BTreeSet;
use std::time::Duration;

use assay_core::store::migrations::{Index, build_indexes};
use assay_core::store::{self, PoolProfile};
use assay_proto::v1;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, one_prediction, string, with_token,
    world, world_with,
};

/// Returns all entries in a listing, read page by page.
async fn all(client: &Client, listing: &str, limit: usize) -> Vec<Value> {
    let mut entries = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client
            .get(&format!("/v1/{listing}?limit={limit}{cursor}"))
            .await
            .expect_status(200);
        let found = page.body[listing].as_array().unwrap();
        assert!(!found.is_empty() && found.len() <= limit);
        entries.extend_from_slice(found);
        match &page.body["next_cursor"] {
            Value::Null => return entries,
            next => cursor = format!("&cursor={}", string(next)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_in_pages() {
    let world = world().await;
    let owner = world.owner();
    // Many rows have the same time, so that the order falls back to the id.
    let many = "insert into api_keys (id, org_id, name, prefix, secret_hash, created_by, created_at, revoked_at)
                select 'key_' || lpad(n::text, 22, '0'), org_id, 'k' || n, prefix, decode(lpad(to_hex(n), 8, '0'), 'hex'), created_by,
                       now() - (n / 10) * interval '1 second', now()
                from api_keys, generate_series(1, 250) n";
    sqlx::raw_sql(many)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let first = owner.get("/v1/keys").await.unwrap();
    assert_eq!(
        first.body["keys"].as_array().unwrap().len(),
        100,
        "a page has a default limit"
    );
    let listed = all(&owner, "keys", 7).await;
    assert_eq!(listed, all(&owner, "keys", 200).await);
    assert_eq!(listed.len(), 251);
    assert_eq!(
        listed
            .iter()
            .map(|key| string(&key["id"]))
            .collect::<BTreeSet<_>>()
            .len(),
        251
    );
    assert!(listed.is_sorted_by(|a, b| string(&a["created_at"]) >= string(&b["created_at"])));
    let mut grpc = v1::key_service_client::KeyServiceClient::new(world.channel().await);
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let request = v1::ListKeysRequest {
            limit: Some(90),
            cursor,
        };
        let page = grpc
            .list_keys(with_token(request, &world.org.session))
            .await
            .unwrap()
            .into_inner();
        ids.extend(page.keys.into_iter().map(|key| key.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(
        ids,
        listed
            .iter()
            .map(|key| string(&key["id"]))
            .collect::<Vec<_>>()
    );
    // A page's last row may be deleted before the next page is read.
    let cursor = string(&first.body["next_cursor"]);
    let last = string(&first.body["keys"][99]["id"]);
    sqlx::query("delete from api_keys where id = $1")
        .bind(&last)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let second = owner
        .get(&format!("/v1/keys?cursor={cursor}"))
        .await
        .unwrap();
    assert_eq!(second.body["keys"][0], listed[100]);
    for (path, expected) in [
        ("/v1/keys?limit=0".to_owned(), field_error("limit", "range")),
        ("/v1/keys?limit=201".into(), field_error("limit", "range")),
        ("/v1/keys?cursor=x".into(), field_error("cursor", "format")),
        (
            format!("/v1/invites?cursor={cursor}"),
            field_error("cursor", "format"),
        ),
        (
            format!("/v1/members?cursor={cursor}"),
            field_error("cursor", "format"),
        ),
        (
            format!("/v1/domains?cursor={cursor}"),
            field_error("cursor", "format"),
        ),
        (
            "/v1/members?page=2".into(),
            field_error("page", "unknown_field"),
        ),
    ] {
        let rejected = owner.get(&path).await.expect_status(422);
        assert_eq!(field_errors(&rejected), vec![expected], "{path}");
    }
    let request = v1::ListInvitesRequest {
        limit: None,
        cursor: Some(cursor),
    };
    let mut grpc = v1::invite_service_client::InviteServiceClient::new(world.channel().await);
    let status = grpc
        .list_invites(with_token(request, &world.org.session))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_invites_and_domains_are_listed_in_pages() {
    let world = world().await;
    let owner = world.owner();
    let many = "insert into users (id, email) select 'usr_' || n, n || '@example.net' from generate_series(1, 5) n;
                insert into memberships (org_id, user_id, role) select o.id, u.id, 'viewer' from orgs o, users u where u.id like 'usr__';
                insert into invites (id, org_id, email, role, invited_by, expires_at)
                select 'inv_' || n, o.id, n || '@example.com', 'member', 'usr_1', now() + interval '1 day' from orgs o, generate_series(1, 5) n;
                insert into domain_claims (org_id, domain, token, claimed_by, expires_at, verified_at)
                select o.id, n || '.example.net', 'x', 'usr_1', now(), now() from orgs o, generate_series(1, 5) n";
    sqlx::raw_sql(many)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for (listing, name, number) in [
        ("members", "user_id", 6),
        ("invites", "id", 5),
        ("domains", "domain", 5),
    ] {
        let listed = all(&owner, listing, 2).await;
        assert_eq!(
            listed
                .iter()
                .map(|entry| string(&entry[name]))
                .collect::<BTreeSet<_>>()
                .len(),
            number,
            "{listing}"
        );
        assert_eq!(listed.len(), number, "{listing}");
        assert_eq!(listed, all(&owner, listing, 200).await);
    }
}

/// Asserts that `expected` concurrent calls succeed, and that all others are rejected
/// because of the limit.
fn assert_some_pass(responses: Vec<Response>, expected: usize, limit: &str) {
    let (created, rejected): (Vec<Response>, Vec<Response>) = responses
        .into_iter()
        .partition(|response| response.status == 201);
    assert_eq!(
        created.len(),
        expected,
        "{:?}",
        rejected.first().map(|rejected| &rejected.body)
    );
    for rejected in rejected {
        assert_eq!(
            (rejected.status, error_code(&rejected)),
            (409, "conflict".to_owned()),
            "{}",
            rejected.body
        );
        assert!(
            string(&rejected.body["error"]["message"]).contains(limit),
            "{}",
            rejected.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creations_never_exceed_the_limits() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let owners: Vec<Client> = world
        .stack
        .addresses()
        .iter()
        .map(|url| Client::new(url.as_str(), Some(&world.org.session)))
        .collect();
    let nearly_full = "insert into api_keys (id, org_id, name, prefix, secret_hash, created_by, revoked_at)
                       select 'key_' || n, org_id, 'k', prefix, decode(lpad(to_hex(n), 8, '0'), 'hex'), created_by,
                              case when n > 96 then now() end
                       from api_keys, generate_series(1, 120) n;
                       insert into invites (id, org_id, email, role, invited_by, expires_at)
                       select 'inv_' || n, m.org_id, n || '@example.com', 'member', m.user_id,
                              now() + case when n > 197 then -1 else 1 end * interval '1 day'
                       from memberships m, generate_series(1, 220) n";
    sqlx::raw_sql(nearly_full)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let create = |at: usize, path: &'static str, body: Value| {
        let owner = owners[at % 2].clone();
        async move { owner.post(path, &body).await.unwrap() }
    };
    let keys = futures_util::future::join_all(
        (0..10).map(|at| create(at, "/v1/keys", json!({"name": "new"}))),
    )
    .await;
    assert_some_pass(keys, 3, "100 live keys");
    let invite = |at: usize| {
        create(
            at,
            "/v1/invites",
            json!({"email": format!("new-{at}@example.com")}),
        )
    };
    assert_some_pass(
        futures_util::future::join_all((0..10).map(invite)).await,
        3,
        "200 open invites",
    );
    let key_id = string(&owners[0].get("/v1/keys?limit=1").await.unwrap().body["keys"][0]["id"]);
    owners[0]
        .delete(&format!("/v1/keys/{key_id}"))
        .await
        .expect_status(200);
    // Revoking a key frees its place.
    create(0, "/v1/keys", json!({"name": "again"}))
        .await
        .expect_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_of_one_suite_is_rejected_for_another() {
    let world = world().await;
    let key = world.key();
    let other = crate::metrics::publish(
        &world,
        "accuracy",
        false,
        &[json!("a"), json!("b"), json!("c")],
    )
    .await;
    let first = key
        .get("/v1/suites/suite:lunch/items?limit=2")
        .await
        .unwrap();
    let cursor = string(&first.body["next_cursor"]);
    key.get(&format!("/v1/suites/suite:lunch/items?cursor={cursor}"))
        .await
        .expect_status(200);
    let rejected = key
        .get(&format!("/v1/suites/{other}/items?cursor={cursor}"))
        .await
        .expect_status(422);
    assert_eq!(
        field_errors(&rejected),
        vec![field_error("cursor", "format")]
    );
    let mut grpc = v1::suite_service_client::SuiteServiceClient::new(world.channel().await);
    let request = v1::ListSuiteItemsRequest {
        suite_id: other,
        cursor: Some(cursor),
        limit: None,
    };
    let status = grpc
        .list_suite_items(with_token(request, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
}

/// Blocks every statement that reads jobs until the returned connection is closed.
async fn hold_jobs(world: &World) -> sqlx::PgConnection {
    let mut hold = world.database().await;
    sqlx::raw_sql("begin; lock table jobs in access exclusive mode")
        .execute(&mut hold)
        .await
        .unwrap();
    hold
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_of_tenants_leave_the_process_ready() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let hold = hold_jobs(&world).await;
    let key = world.key();
    let path = format!("/v1/jobs/{job_id}");
    let stuck = tokio::spawn(async move {
        futures_util::future::join_all((0..40).map(|_| key.get(&path))).await
    });
    let lists = world.key();
    let lists = tokio::spawn(async move {
        futures_util::future::join_all((0..10).map(|_| lists.get("/v1/jobs"))).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let admin = Client::new(format!("http://{}", world.stack.apis[0].admin), None);
    for _ in 0..10 {
        admin.get("/readyz").await.expect_status(200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    hold.close().await.unwrap();
    stuck.await.unwrap();
    lists.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn index_whose_builder_died_is_built_again() {
    let world = world().await;
    let indexes: [Index; 1] = [(
        "jobs_request_idx",
        "create index concurrently if not exists jobs_request_idx on jobs (request_id)",
    )];
    let pool = store::pool(
        &world.stack.database.owner_url,
        2,
        "test",
        PoolProfile::OPERATOR,
    )
    .unwrap();
    build_indexes(&pool, &indexes).await.unwrap();
    let valid = "select indexrelid::bigint from pg_index where indexrelid = to_regclass('jobs_request_idx') and indisvalid";
    let valid = || sqlx::query_scalar::<_, i64>(valid).fetch_one(&pool);
    let first = valid().await.unwrap();
    // A valid index is left alone.
    build_indexes(&pool, &indexes).await.unwrap();
    assert_eq!(valid().await.unwrap(), first);
    let broken =
        "update pg_index set indisvalid = false where indexrelid = 'jobs_request_idx'::regclass";
    sqlx::raw_sql(broken).execute(&pool).await.unwrap();
    let (one, two) = tokio::join!(
        build_indexes(&pool, &indexes),
        build_indexes(&pool, &indexes)
    );
    assert!(one.is_ok() && two.is_ok());
    assert_ne!(valid().await.unwrap(), first, "another index");
}
