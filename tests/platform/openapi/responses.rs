//! Calls every operation, and validates the responses against the document.

use std::collections::BTreeSet;

use assay_proto::OPERATIONS;
use assay_proto::operations::Access;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use assay_tests::{databases, demo_suite};
use serde_json::{Value, json};

use super::{Conformance, installation, publish_a_model};
use crate::harness::{Expect, World, one_prediction, string, world_with};
use crate::name_server::NameServer;
use crate::routes::TERMS;
use crate::{boards, device, feedback, receipts, sealed};

#[tokio::test(flavor = "multi_thread")]
async fn responses_conform_to_document() {
    let name_server = NameServer::start().await;
    let world = world_with(StackSize {
        workers: 0,
        ..installation(&name_server)
    })
    .await;
    // One minute's calls are more than a plan permits.
    world.widen_plans().await;
    let mut conformance = Conformance::new();
    publish_a_model(&world).await;
    feedback::publish(&world, "1").await;
    sealed::publish(&world).await;
    boards::publish(&world).await;
    receipts::publish_retired(&world).await;
    let other = world.member("member").await;
    let key = world.key();
    let owner = world.owner();
    terms(&mut conformance, &key, &owner).await;
    for client in [&key, &owner] {
        cancels(&mut conformance, client).await;
    }
    let _worker = world.stack.launch_worker().unwrap();
    for client in [&key, &owner] {
        reads(&mut conformance, client).await;
        submits(&mut conformance, client).await;
        serves(&mut conformance, client).await;
        finalizes(&mut conformance, &world, client).await;
        enters(&mut conformance, &world, client).await;
        proves(&mut conformance, client).await;
        uploads(&mut conformance, client).await;
        drafts(&mut conformance, &world, client).await;
        item_scores(&mut conformance, &world, client).await;
    }
    opens(&mut conformance, &world).await;
    signs_in(&mut conformance, &world).await;
    logs_in(&mut conformance, &world).await;
    organizes(&mut conformance, &world, &name_server).await;
    manages(&mut conformance, &owner, &other).await;
    sends_events(&mut conformance, &owner).await;
    error_responses(&mut conformance, &world).await;
    let succeeded: BTreeSet<_> = conformance
        .seen
        .iter()
        .filter(|(_, status)| *status < 300)
        .map(|(id, _)| id.clone())
        .collect();
    let paths = conformance.document["paths"].as_object().unwrap().values();
    let all = paths
        .flat_map(|item| item.as_object().unwrap().values())
        .map(|operation| string(&operation["operationId"]))
        .collect();
    assert_eq!(
        succeeded, all,
        "called with success (left) and documented (right): add a call to responses.rs"
    );
}

async fn reads(conformance: &mut Conformance, client: &Client) {
    let without_parameters = OPERATIONS.iter().filter(|one| {
        one.method == "GET"
            && !one.path.contains('{')
            && matches!(one.access, Access::Anyone | Access::Any | Access::Reader(_))
    });
    for path in without_parameters.map(|one| one.path) {
        conformance
            .call(client, "GET", path, path, None)
            .await
            .expect_status(200);
    }
    conformance
        .call(
            client,
            "GET",
            "/v1/models/{model_id}",
            "/v1/models/next-1",
            None,
        )
        .await;
    conformance
        .call(
            client,
            "GET",
            "/v1/models/{model_id}",
            "/v1/models/none",
            None,
        )
        .await;
    for (id, status) in [("suite:lunch", 200), ("suite:none", 404)] {
        let path = format!("/v1/suites/{id}");
        conformance
            .call(client, "GET", "/v1/suites/{suite_id}", &path, None)
            .await
            .expect_status(status);
    }
    let items = "/v1/suites/{suite_id}/items";
    let page = conformance
        .call(
            client,
            "GET",
            items,
            "/v1/suites/suite:lunch/items?limit=399",
            None,
        )
        .await;
    let next = format!(
        "/v1/suites/suite:lunch/items?cursor={}",
        string(&page.body["next_cursor"])
    );
    assert_eq!(
        conformance
            .call(client, "GET", items, &next, None)
            .await
            .body["next_cursor"],
        Value::Null
    );
    for (path, status) in [
        ("suite:none/items", 404),
        ("suite:lunch/items?limit=0", 422),
        ("suite:lunch/items?cursor=x", 422),
    ] {
        conformance
            .call(client, "GET", items, &format!("/v1/suites/{path}"), None)
            .await
            .expect_status(status);
    }
}

async fn serves(conformance: &mut Conformance, client: &Client) {
    let sequence =
        json!({"sequence_id": "p", "events": [{"item_id": "dish-01"}, {"item_id": "haggis"}]});
    let ranked = json!({"sequence_id": "q", "events": [], "options": ["dish-01", "haggis"]});
    let without_options = json!({"sequence_id": "q", "events": []});
    for (operation, options) in [
        ("predict", json!({"top_k": 5})),
        ("generate", json!({"mode": "sample", "n_continuations": 2})),
        ("generate", json!({"mode": "beam"})),
        ("embed", json!({})),
        ("embed", json!({"encoding_format": "base64"})),
    ] {
        let template = format!("/v1/models/{{model_id}}/{operation}");
        let second = match operation {
            "predict" => &ranked,
            _ => &without_options,
        };
        let mut body = json!({"sequences": [sequence, second]});
        body.as_object_mut()
            .unwrap()
            .extend(options.as_object().unwrap().clone());
        for (model, status) in [("embedded", 200), ("nothing", 404), ("next-1", 409)] {
            let path = format!("/v1/models/{model}/{operation}");
            conformance
                .call(client, "POST", &template, &path, Some(&body))
                .await
                .expect_status(status);
        }
        let path = format!("/v1/models/embedded/{operation}");
        conformance
            .call(
                client,
                "POST",
                &template,
                &path,
                Some(&json!({"sequences": []})),
            )
            .await
            .expect_status(422);
    }
    let create = "/v1/predictions";
    let mut ids = Vec::new();
    for (model, status) in [("embedded", 202), ("nothing", 422), ("next-1", 409)] {
        let body = json!({"model_id": model, "sequences": [sequence], "label": "predicted"});
        let made = conformance
            .call(client, "POST", create, create, Some(&body))
            .await
            .expect_status(status);
        ids.extend(made.body["id"].as_str().map(str::to_owned));
    }
    let path = format!("/v1/jobs/{}?wait=30", ids[0]);
    let ended = conformance
        .call(client, "GET", "/v1/jobs/{job_id}", &path, None)
        .await;
    assert_eq!(ended.body["status"], "succeeded");
    let output = "/v1/jobs/{job_id}/output";
    for (id, status) in [(ids[0].as_str(), 200), ("job_0", 404)] {
        let path = format!("/v1/jobs/{id}/output");
        conformance
            .call(client, "GET", output, &path, None)
            .await
            .expect_status(status);
    }
    for (range, status) in [("bytes=0-9", 206), ("bytes=1000000-", 416)] {
        let request = client
            .request("GET", &format!("/v1/jobs/{}/output", ids[0]))
            .header("Range", range);
        let response = client.send(request).await.expect_status(status);
        conformance.check("GET", output, &response);
    }
}

async fn submits(conformance: &mut Conformance, client: &Client) {
    let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction(), "label": "tried"});
    let key = databases::fresh_name("tried");
    let send = || {
        client
            .request("POST", "/v1/evals")
            .header("Idempotency-Key", &key)
            .json(&body)
    };
    let made = client.send(send()).await.unwrap();
    conformance.check("POST", "/v1/evals", &made);
    let id = string(&made.body["id"]);
    let other = json!({"suite_id": demo_suite::SUITE_ID, "suite_version": "0", "predictions": one_prediction()});
    let other = conformance.call(client, "POST", "/v1/evals", "/v1/evals", Some(&other));
    other.await.expect_status(409);
    let one = "/v1/jobs/{job_id}";
    let ended = conformance
        .call(client, "GET", one, &format!("/v1/jobs/{id}?wait=30"), None)
        .await;
    assert_eq!(ended.body["status"], "succeeded");
    let again = client.send(send()).await.expect_status(202);
    conformance.check("POST", "/v1/evals", &again);
    assert_eq!(again.header("idempotency-replayed"), "true");
    for (job_b, status) in [(id.as_str(), 200), ("job_0", 404), ("", 422)] {
        let body = json!({"job_a": id, "job_b": job_b});
        conformance
            .call(
                client,
                "POST",
                "/v1/comparisons",
                "/v1/comparisons",
                Some(&body),
            )
            .await
            .expect_status(status);
    }
    for (method, template, path, status) in [
        ("GET", one, "/v1/jobs/job_0".to_owned(), 404),
        (
            "GET",
            "/v1/jobs/{job_id}/events",
            format!("/v1/jobs/{id}/events"),
            200,
        ),
        (
            "GET",
            "/v1/jobs/{job_id}/events",
            "/v1/jobs/job_0/events".to_owned(),
            404,
        ),
        ("GET", one, format!("/v1/jobs/{id}?wait=31"), 422),
        (
            "GET",
            "/v1/jobs/{job_id}/trace",
            format!("/v1/jobs/{id}/trace"),
            200,
        ),
        (
            "POST",
            "/v1/jobs/{job_id}/cancel",
            format!("/v1/jobs/{id}/cancel"),
            409,
        ),
        (
            "GET",
            "/v1/jobs",
            "/v1/jobs?status=succeeded&limit=1".to_owned(),
            200,
        ),
        ("GET", "/v1/jobs", "/v1/jobs?status=done".to_owned(), 422),
    ] {
        conformance
            .call(client, method, template, &path, None)
            .await
            .expect_status(status);
    }
}

/// Marks a job as final, and tries to mark a job whose suite has no sealed items.
async fn finalizes(conformance: &mut Conformance, world: &World, client: &Client) {
    let template = "/v1/jobs/{job_id}/final";
    let final_job = sealed::job(world, client).await;
    conformance
        .call(
            client,
            "POST",
            template,
            &format!("/v1/jobs/{final_job}/final"),
            None,
        )
        .await
        .expect_status(200);
    let job = world.submit_and_wait(&one_prediction()).await;
    conformance
        .call(
            client,
            "POST",
            template,
            &format!("/v1/jobs/{}/final", string(&job["id"])),
            None,
        )
        .await
        .expect_status(409);
    conformance
        .call(client, "POST", template, "/v1/jobs/job_0/final", None)
        .await
        .expect_status(404);
}

/// Enters jobs on a board, and reads it.
async fn enters(conformance: &mut Conformance, world: &World, client: &Client) {
    let template = "/v1/jobs/{job_id}/board";
    let job_id = boards::job(client).await;
    let name = assay_tests::databases::fresh_name("entry");
    let body = json!({"name": name, "url": "https://lab.example/choice"});
    let path = format!("/v1/jobs/{job_id}/board");
    let entered = conformance
        .call(client, "POST", template, &path, Some(&body))
        .await
        .expect_status(201);
    let again = conformance.call(client, "POST", template, &path, Some(&body));
    again.await.expect_status(409);
    let missing = conformance.call(
        client,
        "POST",
        template,
        "/v1/jobs/job_0/board",
        Some(&body),
    );
    missing.await.expect_status(404);
    conformance
        .call(client, "GET", "/v1/entries", "/v1/entries?limit=1", None)
        .await
        .expect_status(200);
    let entry = format!("/v1/entries/{}", string(&entered.body["id"]));
    for (path, status) in [(entry.as_str(), 200), ("/v1/entries/ent_0", 404)] {
        let called = conformance.call(client, "DELETE", "/v1/entries/{entry_id}", path, None);
        called.await.expect_status(status);
    }
    boards::wait_until_computed(world).await;
    let template = "/v1/suites/{suite_id}/board";
    for (suite_id, status) in [("suite:board", 200), ("suite:lunch", 404)] {
        let path = format!("/v1/suites/{suite_id}/board");
        conformance
            .call(client, "GET", template, &path, None)
            .await
            .expect_status(status);
    }
}

/// Reads a job's receipt, and with an owner's session its salt.
async fn proves(conformance: &mut Conformance, client: &Client) {
    let job_id = boards::job(client).await;
    let template = "/v1/jobs/{job_id}/receipt";
    let path = format!("/v1/jobs/{job_id}/receipt");
    let receipt = conformance
        .call(client, "GET", template, &path, None)
        .await
        .expect_status(200);
    for (path, status) in [
        (format!("{path}?figures=sealed"), 404),
        ("/v1/jobs/job_0/receipt".into(), 404),
    ] {
        let missing = conformance.call(client, "GET", template, &path, None);
        missing.await.expect_status(status);
    }
    let template = "/v1/receipts/{receipt_id}";
    let by_id = format!("/v1/receipts/{}", string(&receipt.body["id"]));
    for (path, status) in [(by_id.as_str(), 200), ("/v1/receipts/rcp_0", 404)] {
        conformance
            .call(client, "GET", template, path, None)
            .await
            .expect_status(status);
    }
    let template = "/v1/jobs/{job_id}/receipt/opening";
    let path = format!("{path}/opening");
    let salt = conformance.call(client, "GET", template, &path, None).await;
    assert!([200, 403].contains(&salt.status), "{}", salt.body);
}

/// Reads the commitment and a retired suite's file, without a credential.
async fn opens(conformance: &mut Conformance, world: &World) {
    let anonymous = &world.anonymous();
    let template = "/v1/suites/{suite_id}/commitment";
    for (suite_id, status) in [(receipts::RETIRED, 200), ("suite:none", 404)] {
        let path = format!("/v1/suites/{suite_id}/commitment");
        conformance
            .call(anonymous, "GET", template, &path, None)
            .await
            .expect_status(status);
    }
    let template = "/v1/suites/{suite_id}/opening/{file}";
    for (file, status) in [
        (receipts::OPENED_FILE, 200),
        ("suite:lunch/opening/items.ndjson", 404),
    ] {
        let path = format!("/v1/suites/{file}");
        conformance
            .call(anonymous, "GET", template, &path, None)
            .await
            .expect_status(status);
    }
}

/// Cancels a queued job.
async fn cancels(conformance: &mut Conformance, client: &Client) {
    let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
    let made = conformance
        .call(client, "POST", "/v1/evals", "/v1/evals", Some(&body))
        .await;
    let path = format!("/v1/jobs/{}/cancel", string(&made.body["id"]));
    conformance
        .call(client, "POST", "/v1/jobs/{job_id}/cancel", &path, None)
        .await
        .expect_status(200);
}

async fn sends_events(conformance: &mut Conformance, owner: &Client) {
    let mut call = async |method: &str, path: &str, id: &str, body: Option<&Value>, status: u16| {
        let template = match path {
            "" => String::from("/v1/webhooks"),
            path => format!("/v1/webhooks/{{webhook_id}}{path}"),
        };
        let template = template.trim_end_matches('/').to_owned();
        let delivery = id.split('/').nth(1).unwrap_or_default();
        let filled = template
            .replace("{webhook_id}", id.split('/').next().unwrap())
            .replace("{delivery_id}", delivery);
        let response = conformance
            .call(owner, method, &template, &filled, body)
            .await
            .expect_status(status);
        response.body
    };
    let new = json!({"url": "https://receiver.invalid/", "events": ["ping"]});
    let id = string(&call("POST", "", "", Some(&new), 201).await["id"]);
    for _ in 0..9 {
        call("POST", "", "", Some(&new), 201).await;
    }
    call("POST", "", "", Some(&new), 409).await;
    call(
        "POST",
        "",
        "",
        Some(&json!({"url": "http://127.0.0.1"})),
        422,
    )
    .await;
    call("GET", "", "", None, 200).await;
    call("GET", "/", &id, None, 200).await;
    call("POST", "/rotate", &id, None, 201).await;
    let delivery = call("POST", "/test", &id, None, 202).await;
    let both = format!("{id}/{}", string(&delivery["id"]));
    call("POST", "/deliveries/{delivery_id}/retry", &both, None, 202).await;
    call("GET", "/deliveries", &id, None, 200).await;
    let since = json!({"since": assay_core::Timestamp::now()});
    call("POST", "/recover", &id, Some(&since), 202).await;
    let disable = json!({"enabled": false});
    call("PATCH", "/", &id, Some(&disable), 200).await;
    call("POST", "/test", &id, None, 409).await;
    call("POST", "/deliveries/{delivery_id}/retry", &both, None, 409).await;
    call("POST", "/recover", &id, Some(&since), 409).await;
    call("DELETE", "/", &id, None, 204).await;
    for (method, path, body) in [
        ("GET", "/", None),
        ("PATCH", "/", Some(&disable)),
        ("DELETE", "/", None),
        ("POST", "/rotate", None),
        ("POST", "/test", None),
        ("GET", "/deliveries", None),
        ("POST", "/deliveries/{delivery_id}/retry", None),
        ("POST", "/recover", Some(&since)),
    ] {
        call(method, path, &both, body, 404).await;
    }
}

async fn manages(conformance: &mut Conformance, owner: &Client, other: &Client) {
    let made = conformance
        .call(
            owner,
            "POST",
            "/v1/keys",
            "/v1/keys",
            Some(&json!({"name": "tried"})),
        )
        .await;
    let path = format!("/v1/keys/{}", string(&made.body["id"]));
    let narrower = json!({"scopes": ["jobs:read"], "expires_at": "2100-01-01T00:00:00Z"});
    conformance
        .call(owner, "PATCH", "/v1/keys/{key_id}", &path, Some(&narrower))
        .await
        .expect_status(200);
    let rotate = format!("{path}/rotate");
    for status in [201, 409] {
        conformance
            .call(owner, "POST", "/v1/keys/{key_id}/rotate", &rotate, None)
            .await
            .expect_status(status);
    }
    conformance
        .call(owner, "DELETE", "/v1/keys/{key_id}", &path, None)
        .await
        .expect_status(200);
    conformance
        .call(owner, "GET", "/v1/keys", "/v1/keys", None)
        .await
        .expect_status(200);
    conformance
        .call(owner, "GET", "/v1/audit", "/v1/audit", None)
        .await
        .expect_status(200);
    conformance
        .call(owner, "GET", "/v1/events", "/v1/events", None)
        .await
        .expect_status(200);
    let members = conformance
        .call(owner, "GET", "/v1/members", "/v1/members", None)
        .await;
    let with_role = |role: &str| {
        let members = members.body["members"].as_array().unwrap();
        string(
            &members
                .iter()
                .find(|member| member["role"] == role)
                .unwrap()["user_id"],
        )
    };
    let last = format!("/v1/members/{}", with_role("owner"));
    let leaving = format!("/v1/members/{}", with_role("member"));
    let one = "/v1/members/{user_id}";
    for (method, path, body, status) in [
        ("PATCH", &leaving, Some(json!({"role": "viewer"})), 200),
        ("PATCH", &last, Some(json!({"role": "viewer"})), 409),
        ("PATCH", &leaving, Some(json!({"role": "king"})), 422),
        ("DELETE", &last, None, 409),
    ] {
        conformance
            .call(owner, method, one, path, body.as_ref())
            .await
            .expect_status(status);
    }
    // A viewer may not create keys.
    conformance
        .call(
            other,
            "POST",
            "/v1/keys",
            "/v1/keys",
            Some(&json!({"name": "x"})),
        )
        .await
        .expect_status(403);
    conformance
        .call(owner, "DELETE", one, &leaving, None)
        .await
        .expect_status(204);
    conformance
        .call(owner, "DELETE", one, &leaving, None)
        .await
        .expect_status(404);
}

async fn terms(conformance: &mut Conformance, key: &Client, owner: &Client) {
    let read = "/v1/terms";
    let accept = "/v1/terms/accept";
    assert_eq!(
        conformance.call(key, "GET", read, read, None).await.body["accepted_at"],
        Value::Null
    );
    let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
    for (client, path, body) in [
        (key, "/v1/evals", body),
        (owner, "/v1/keys", json!({"name": "tried"})),
    ] {
        let refused = conformance
            .call(client, "POST", path, path, Some(&body))
            .await
            .expect_status(403);
        assert_eq!(refused.body["error"]["details"]["version"], json!(TERMS.0));
    }
    for (version, status) in [("none", 409), ("", 422), (TERMS.0, 200)] {
        conformance
            .call(
                owner,
                "POST",
                accept,
                accept,
                Some(&json!({"version": version})),
            )
            .await
            .expect_status(status);
    }
    assert_ne!(
        conformance.call(key, "GET", read, read, None).await.body["accepted_at"],
        Value::Null
    );
}

/// Logs a program in.
async fn logs_in(conformance: &mut Conformance, world: &World) {
    let nobody = world.anonymous();
    let (create, poll) = ("/v1/auth/device", "/v1/auth/device/token");
    let mut call = async |path: &str, body: Value, status: u16| {
        let response = conformance
            .call(&nobody, "POST", path, path, Some(&body))
            .await
            .expect_status(status);
        response.body
    };
    call(create, json!({}), 422).await;
    let name = json!({"client_name": "assay"});
    let login = call(create, name, 201).await;
    let code = json!({"device_code": login["device_code"]});
    call(poll, code.clone(), 200).await;
    call(poll, code, 429).await;
    call(poll, json!({"device_code": "svc_devc_none"}), 401).await;
    device::approve(world, &login, &world.org).await;
    let granted = device::poll(world, &login).await;
    conformance.check("POST", poll, &granted);
    assert_eq!(granted.body["status"], "granted");
}

async fn signs_in(conformance: &mut Conformance, world: &World) {
    let (nobody, email, verify) = (
        world.anonymous(),
        "grace@example.org",
        "/v1/auth/email/verify",
    );
    for (address, status) in [("lin@example.org", 202), ("grace", 422)] {
        conformance
            .call(
                &nobody,
                "POST",
                "/v1/auth/email",
                "/v1/auth/email",
                Some(&json!({"email": address})),
            )
            .await
            .expect_status(status);
    }
    let token = world.sign_in_link(email).await;
    let signed_in = conformance
        .call(
            &nobody,
            "POST",
            verify,
            verify,
            Some(&json!({"token": token})),
        )
        .await;
    conformance
        .call(
            &nobody,
            "POST",
            verify,
            verify,
            Some(&json!({"token": token})),
        )
        .await
        .expect_status(401);
    let user = world.client(&string(&signed_in.body["token"]));
    // The user has no organization yet.
    conformance
        .call(&user, "GET", "/v1/me", "/v1/me", None)
        .await
        .expect_status(403);
    conformance
        .call(
            &user,
            "POST",
            "/v1/orgs",
            "/v1/orgs",
            Some(&json!({"name": "Hopper"})),
        )
        .await
        .expect_status(201);
    let sessions = conformance
        .call(&user, "GET", "/v1/sessions", "/v1/sessions", None)
        .await
        .body["sessions"]
        .clone();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    conformance
        .call(&world.key(), "GET", "/v1/sessions", "/v1/sessions", None)
        .await
        .expect_status(403);
    conformance
        .call(&user, "DELETE", "/v1/sessions", "/v1/sessions", None)
        .await
        .expect_status(204);
    let other = string(&world.owner().get("/v1/sessions").await.unwrap().body["sessions"][0]["id"]);
    let own = string(
        &world
            .client(&world.sign_in(email).await)
            .get("/v1/sessions")
            .await
            .unwrap()
            .body["sessions"][0]["id"],
    );
    for (id, status) in [(own, 204), (other, 404)] {
        let path = format!("/v1/sessions/{id}");
        conformance
            .call(&user, "DELETE", "/v1/sessions/{session_id}", &path, None)
            .await
            .expect_status(status);
    }
    let end = "/v1/session";
    conformance
        .call(&world.key(), "DELETE", end, end, None)
        .await
        .expect_status(403);
    conformance
        .call(&user, "DELETE", end, end, None)
        .await
        .expect_status(204);
    conformance
        .call(&user, "DELETE", end, end, None)
        .await
        .expect_status(401);
}

async fn organizes(conformance: &mut Conformance, world: &World, name_server: &NameServer) {
    let owner = world.owner();
    let own = format!("/v1/orgs/{}", world.org.id);
    for (path, body, status) in [
        (
            own.as_str(),
            json!({"name": "Acme Research", "data_use": "aggregate_research"}),
            200,
        ),
        (&own, json!({}), 422),
        ("/v1/orgs/org_0", json!({"name": "x"}), 404),
    ] {
        conformance
            .call(&owner, "PATCH", "/v1/orgs/{org_id}", path, Some(&body))
            .await
            .expect_status(status);
    }
    let (invites, one) = ("/v1/invites", "/v1/invites/{invite_id}");
    let body = json!({"email": "alan@example.org", "role": "viewer"});
    let invited = conformance
        .call(&owner, "POST", invites, invites, Some(&body))
        .await;
    conformance
        .call(&owner, "POST", invites, invites, Some(&body))
        .await
        .expect_status(409);
    conformance
        .call(&owner, "GET", invites, invites, None)
        .await
        .expect_status(200);
    for (id, status) in [(string(&invited.body["id"]).as_str(), 200), ("inv_0", 404)] {
        conformance
            .call(&owner, "DELETE", one, &format!("/v1/invites/{id}"), None)
            .await
            .expect_status(status);
    }
    let (domains, one, verify) = (
        "/v1/domains",
        "/v1/domains/{domain}",
        "/v1/domains/{domain}/verify",
    );
    let body = json!({"domain": "acme.example"});
    let claim = conformance
        .call(&owner, "POST", domains, domains, Some(&body))
        .await;
    let verified = async |conformance: &mut Conformance| {
        conformance
            .call(
                &owner,
                "POST",
                verify,
                "/v1/domains/acme.example/verify",
                None,
            )
            .await
            .body["verified"]
            .clone()
    };
    assert_eq!(verified(conformance).await, false);
    let record = &claim.body["record"];
    name_server.show(&string(&record["name"]), &[&string(&record["value"])]);
    assert_eq!(verified(conformance).await, true);
    assert_eq!(
        conformance
            .call(&owner, "GET", domains, domains, None)
            .await
            .body["domains"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    for (method, path, body, status) in [
        ("POST", "/v1/domains", Some(body), 409),
        (
            "POST",
            "/v1/domains",
            Some(json!({"domain": "gmail.com"})),
            422,
        ),
        (
            "PATCH",
            "/v1/domains/acme.example",
            Some(json!({"auto_join": true})),
            200,
        ),
        ("DELETE", "/v1/domains/acme.example", None, 204),
        (
            "PATCH",
            "/v1/domains/acme.example",
            Some(json!({"auto_join": true})),
            404,
        ),
        ("DELETE", "/v1/domains/acme.example", None, 404),
        ("POST", "/v1/domains/acme.example/verify", None, 404),
    ] {
        let template = if path == domains {
            domains
        } else if path.ends_with("verify") {
            verify
        } else {
            one
        };
        conformance
            .call(&owner, method, template, path, body.as_ref())
            .await
            .expect_status(status);
    }
}

/// Changes a suite of the organization, and lets others see it.
async fn suite_edits(
    conformance: &mut Conformance,
    world: &World,
    client: &Client,
    owner: &Client,
) {
    const SUITE: &str = "/v1/suites/{suite_id}";
    const GRANTS: &str = "/v1/suites/{suite_id}/grants";
    let suite = "/v1/suites/suite:conforming.votes";
    for (method, template, path, body, status) in [
        (
            "PATCH",
            SUITE,
            suite.to_owned(),
            json!({"title": "Votes", "links": [{"label": "Paper", "url": "https://acme.example"}]}),
            200,
        ),
        (
            "PATCH",
            SUITE,
            suite.to_owned(),
            json!({"metric": "f1"}),
            422,
        ),
        (
            "POST",
            "/v1/suites/{suite_id}/errata",
            format!("{suite}/errata"),
            json!({"version": "1", "note": "Item 7 is ambiguous."}),
            201,
        ),
        (
            "POST",
            GRANTS,
            format!("{suite}/grants"),
            json!({"org_id": "org_0VcT0000000000000000000000", "domain": "lab.example"}),
            422,
        ),
    ] {
        conformance
            .call(client, method, template, &path, Some(&body))
            .await
            .expect_status(status);
    }
    for body in [
        json!({"domain": "lab.example"}),
        json!({"link": {"max_uses": 2}}),
    ] {
        let path = format!("{suite}/grants");
        let made = conformance
            .call(client, "POST", GRANTS, &path, Some(&body))
            .await;
        let made = made.expect_status(201).body;
        if let Some(token) = made.get("token") {
            let path = "/v1/grants/accept";
            for (token, status) in [(token, 200), (&json!("svc_grnt_none"), 404)] {
                let body = json!({"token": token});
                conformance
                    .call(owner, "POST", path, path, Some(&body))
                    .await
                    .expect_status(status);
            }
        } else {
            let template = "/v1/grants/{grant_id}";
            let path = format!("/v1/grants/{}", string(&made["id"]));
            for status in [204, 404] {
                conformance
                    .call(client, "DELETE", template, &path, None)
                    .await
                    .expect_status(status);
            }
        }
    }
    for (template, path) in [
        (
            "/v1/suites/{suite_id}/versions",
            format!("{suite}/versions"),
        ),
        (GRANTS, format!("{suite}/grants")),
        (
            "/v1/suites/{suite_id}/submitters",
            format!("{suite}/submitters"),
        ),
    ] {
        conformance
            .call(client, "GET", template, &path, None)
            .await
            .expect_status(200);
    }
    let template = "/v1/suites/{suite_id}/retire";
    for (suite_id, version, confirm, status) in [
        ("suite:conforming.votes", "2", true, 422),
        ("suite:conforming.votes", "1", false, 422),
        ("suite:conforming.none", "1", true, 404),
        ("suite:conforming.votes", "1", true, 200),
    ] {
        let path = format!("/v1/suites/{suite_id}/retire");
        let body = json!({"version": version, "confirm": confirm});
        conformance
            .call(owner, "POST", template, &path, Some(&body))
            .await
            .expect_status(status);
    }
    let job_id = boards::job(client).await;
    let entry_id = boards::insert_entry(world, "suite:conforming.votes", &job_id, false).await;
    for change in ["remove", "restore"] {
        let template = format!("/v1/entries/{{entry_id}}/{change}");
        for (id, reason, status) in [
            (entry_id.as_str(), "Copied.", 200),
            (entry_id.as_str(), "", 422),
            ("ent_0", "Copied.", 404),
        ] {
            let path = format!("/v1/entries/{id}/{change}");
            conformance
                .call(
                    owner,
                    "POST",
                    &template,
                    &path,
                    Some(&json!({"reason": reason})),
                )
                .await
                .expect_status(status);
        }
    }
}

/// Sends a draft in both ways, and publishes one.
async fn drafts(conformance: &mut Conformance, world: &World, client: &Client) {
    const DRAFT: &str = "/v1/drafts/{draft_id}";
    let handle = json!({"handle": "conforming"});
    let org = format!("/v1/orgs/{}", world.org.id);
    // The second client finds it set.
    world.owner().patch(&org, &handle).await.unwrap();
    let definition = |version: &str| {
        format!(
            "suite_id = \"suite:conforming.votes\"\nversion = \"{version}\"\nmetric = \"accuracy\"\n\n[data]\nfile = \"votes.csv\"\nanswer = \"vote\"\n"
        )
    };
    let table = "question,vote\nq,yes\nr,no\n";
    let create = async |conformance: &mut Conformance, body: &Value| {
        conformance
            .call(client, "POST", "/v1/drafts", "/v1/drafts", Some(body))
            .await
    };
    let refused = json!({"suite_toml": "suite_id = 1"});
    create(conformance, &refused).await.expect_status(422);
    let body = json!({"suite_toml": definition("1")});
    let open = create(conformance, &body).await.expect_status(201);
    let open = format!("/v1/drafts/{}", string(&open.body["id"]));
    let put = async |conformance: &mut Conformance, number: usize| {
        let template = "/v1/drafts/{draft_id}/files/{name}/{number}";
        let path = format!("{open}/files/votes.csv/{number}");
        let sent = client.send(client.request("PUT", &path).body(table)).await;
        let response = sent.unwrap();
        conformance.check("PUT", template, &response);
        response
    };
    put(conformance, 10_001).await.expect_status(422);
    put(conformance, 1).await.expect_status(204);
    let body = json!({
        "suite_toml": definition("1"), "files": [{"name": "votes.csv", "content": table}], "check": true,
    });
    let made = create(conformance, &body).await.expect_status(201);
    let own = format!("/v1/drafts/{}", string(&made.body["id"]));
    let mut checked = Value::Null;
    while checked["status"] != "ready" {
        let path = format!("{own}?wait=30");
        checked = conformance
            .call(client, "GET", DRAFT, &path, None)
            .await
            .expect_status(200)
            .body;
        assert_ne!(checked["status"], "failed", "{checked}");
    }
    for (method, template, path, status) in [
        ("GET", "/v1/drafts", "/v1/drafts?limit=1".to_owned(), 200),
        ("GET", "/v1/drafts", "/v1/drafts?status=x".to_owned(), 422),
        ("GET", DRAFT, "/v1/drafts/dft_0".to_owned(), 404),
        (
            "GET",
            "/v1/drafts/{draft_id}/items",
            format!("{own}/items?limit=1"),
            200,
        ),
        (
            "GET",
            "/v1/drafts/{draft_id}/items",
            format!("{open}/items"),
            409,
        ),
        (
            "POST",
            "/v1/drafts/{draft_id}/publish",
            format!("{open}/publish"),
            409,
        ),
        (
            "POST",
            "/v1/drafts/{draft_id}/publish",
            format!("{own}/publish"),
            202,
        ),
        (
            "POST",
            "/v1/drafts/{draft_id}/check",
            format!("{open}/check"),
            202,
        ),
        ("DELETE", DRAFT, open.clone(), 204),
        ("DELETE", DRAFT, open.clone(), 404),
    ] {
        conformance
            .call(client, method, template, &path, None)
            .await
            .expect_status(status);
    }
    let mut published = checked;
    while published["status"] != "published" {
        let path = format!("{own}?wait=30");
        published = client.get(&path).await.expect_status(200).body;
        assert_ne!(published["status"], "failed", "{published}");
    }
    suite_edits(conformance, world, client, &world.owner()).await;
}

const UPLOADS: &str = "/v1/uploads";
const UPLOAD: &str = "/v1/uploads/{upload_id}";
const PART: &str = "/v1/uploads/{upload_id}/parts/{number}";
const COMPLETE: &str = "/v1/uploads/{upload_id}/complete";

async fn uploads(conformance: &mut Conformance, client: &Client) {
    let line = format!("{}\n", one_prediction()[0]);
    let body = json!({"kind": "predictions", "bytes": line.len()});
    let made = conformance
        .call(client, "POST", "/v1/uploads", "/v1/uploads", Some(&body))
        .await;
    let own = format!("/v1/uploads/{}", string(&made.body["id"]));
    // A part is missing.
    conformance
        .call(client, "POST", COMPLETE, &format!("{own}/complete"), None)
        .await
        .expect_status(422);
    for (upload, number, status) in [
        (own.as_str(), 1, 200),
        (&own, 10_001, 422),
        ("/v1/uploads/upl_0", 1, 404),
    ] {
        part(
            conformance,
            client,
            &format!("{upload}/parts/{number}"),
            &line,
        )
        .await
        .expect_status(status);
    }
    for (method, template, path, status) in [
        ("GET", UPLOADS, format!("{UPLOADS}?limit=1"), 200),
        ("GET", UPLOADS, format!("{UPLOADS}?before=upl_0"), 422),
        ("GET", UPLOAD, own.clone(), 200),
        ("POST", COMPLETE, format!("{own}/complete"), 200),
        ("GET", UPLOAD, own.clone(), 200),
        ("GET", UPLOAD, "/v1/uploads/upl_0".to_owned(), 404),
        (
            "POST",
            COMPLETE,
            "/v1/uploads/upl_0/complete".to_owned(),
            404,
        ),
        ("DELETE", UPLOAD, "/v1/uploads/upl_0".to_owned(), 404),
    ] {
        conformance
            .call(client, method, template, &path, None)
            .await
            .expect_status(status);
    }
    // It is ready.
    part(conformance, client, &format!("{own}/parts/1"), &line)
        .await
        .expect_status(409);
    let body = json!({"suite_id": demo_suite::SUITE_ID, "input_ref": made.body["input_ref"]});
    let job = conformance
        .call(client, "POST", "/v1/evals", "/v1/evals", Some(&body))
        .await
        .expect_status(202);
    conformance
        .call(
            client,
            "GET",
            "/v1/jobs/{job_id}",
            &format!("/v1/jobs/{}?wait=30", string(&job.body["id"])),
            None,
        )
        .await;
    conformance
        .call(client, "DELETE", UPLOAD, &own, None)
        .await
        .expect_status(204);
    fails(conformance, client).await;
}

/// Sends content that is not predictions, and a part that is too large.
async fn fails(conformance: &mut Conformance, client: &Client) {
    let made = conformance
        .call(
            client,
            "POST",
            "/v1/uploads",
            "/v1/uploads",
            Some(&json!({"kind": "predictions"})),
        )
        .await;
    let own = format!("/v1/uploads/{}", string(&made.body["id"]));
    part(conformance, client, &format!("{own}/parts/1"), "ramen").await;
    let head = client
        .request("PUT", &format!("{own}/parts/2"))
        .header("content-length", (64 << 20) + 1);
    let too_large = client
        .send(head.body(reqwest::Body::from(vec![b' '; (64 << 20) + 1])))
        .await
        .expect_status(413);
    conformance.check("PUT", PART, &too_large);
    conformance
        .call(client, "POST", COMPLETE, &format!("{own}/complete"), None)
        .await
        .expect_status(422);
    assert_eq!(
        conformance
            .call(client, "GET", UPLOAD, &own, None)
            .await
            .body["status"],
        "failed"
    );
    conformance
        .call(client, "POST", COMPLETE, &format!("{own}/complete"), None)
        .await
        .expect_status(409);
}

async fn part(conformance: &mut Conformance, client: &Client, path: &str, bytes: &str) -> Response {
    let sent = client
        .request("PUT", path)
        .header("content-type", "application/octet-stream")
        .body(bytes.to_owned());
    let response = client.send(sent).await.unwrap();
    conformance.check("PUT", PART, &response);
    response
}

async fn item_scores(conformance: &mut Conformance, world: &World, client: &Client) {
    let items = "/v1/jobs/{job_id}/items";
    let without = world.submit_and_wait(&one_prediction()).await;
    let with = feedback::submit_and_wait(world, &world.org.key, &one_prediction()).await;
    let path = format!("/v1/jobs/{}/items", string(&with["id"]));
    let page = conformance
        .call(client, "GET", items, &format!("{path}?limit=399"), None)
        .await;
    let next = format!("{path}?cursor={}", string(&page.body["next_cursor"]));
    assert_eq!(
        conformance
            .call(client, "GET", items, &next, None)
            .await
            .body["next_cursor"],
        Value::Null
    );
    let forbidden = format!("/v1/jobs/{}/items", string(&without["id"]));
    for (path, status) in [
        (forbidden, 403),
        ("/v1/jobs/job_0/items".to_owned(), 404),
        (format!("{path}?limit=0"), 422),
    ] {
        conformance
            .call(client, "GET", items, &path, None)
            .await
            .expect_status(status);
    }
}

async fn error_responses(conformance: &mut Conformance, world: &World) {
    let key = world.key();
    let nobody = world.anonymous();
    conformance
        .call(&nobody, "GET", "/v1/me", "/v1/me", None)
        .await
        .expect_status(401);
    conformance
        .call(&key, "GET", "/v1/keys", "/v1/keys", None)
        .await
        .expect_status(403);
    let elsewhere = key
        .send(key.request("GET", "/v1/me").header("X-Org-Id", "org_0"))
        .await
        .expect_status(404);
    conformance.check("GET", "/v1/me", &elsewhere);
    for (body, status) in [
        ("{".to_owned(), 400),
        ("{}".to_owned(), 422),
        (" ".repeat((5 << 20) + 1), 413),
    ] {
        let response = key
            .send(
                key.request("POST", "/v1/evals")
                    .header("content-type", "application/json")
                    .body(body),
            )
            .await
            .expect_status(status);
        conformance.check("POST", "/v1/evals", &response);
    }
    let mut database = world.database().await;
    sqlx::raw_sql(
        "update plans set eval_items_per_month = 0; update plans set concurrent_jobs = 1000",
    )
    .execute(&mut database)
    .await
    .unwrap();
    let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
    conformance
        .call(&key, "POST", "/v1/evals", "/v1/evals", Some(&body))
        .await
        .expect_error(429, "quota_exceeded");
    sqlx::raw_sql("alter table suites rename to suites_away")
        .execute(&mut database)
        .await
        .unwrap();
    conformance
        .call(&key, "GET", "/v1/suites", "/v1/suites", None)
        .await
        .expect_status(500);
    sqlx::raw_sql("update plans set requests_per_minute = 1")
        .execute(&mut database)
        .await
        .unwrap();
    conformance
        .call(&key, "GET", "/v1/me", "/v1/me", None)
        .await
        .expect_error(429, "rate_limited");
}
