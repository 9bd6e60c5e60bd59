//! The `/v1/uploads` endpoints, and submissions by `input_ref`.

use std::io::Write as _;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::upload_service_client::UploadServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::demo_suite;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{
    Expect, World, error_code, field_error, field_errors, in_time, org, shared_world,
    shared_world_without_workers, string, wait_until, with_setting, with_token, world, world_with,
};

/// Opens an upload and returns its id.
pub async fn open(client: &Client, fields: Value) -> String {
    let made = client.post("/v1/uploads", &fields).await.expect_status(201);
    string(&made.body["id"])
}

/// Sends one upload part.
pub async fn put(
    client: &Client,
    upload_id: &str,
    number: usize,
    bytes: impl Into<reqwest::Body>,
) -> Response {
    client
        .send(
            client
                .request("PUT", &format!("/v1/uploads/{upload_id}/parts/{number}"))
                .body(bytes),
        )
        .await
        .unwrap()
}

/// Completes an upload and returns the response.
pub async fn complete(client: &Client, upload_id: &str) -> Response {
    client
        .send(client.request("POST", &format!("/v1/uploads/{upload_id}/complete")))
        .await
        .unwrap()
}

async fn delete(client: &Client, upload_id: &str) -> Response {
    client
        .delete(&format!("/v1/uploads/{upload_id}"))
        .await
        .unwrap()
}

/// Submits an upload for `suite:lunch`.
pub async fn submit(client: &Client, upload_id: &str) -> Response {
    client
        .post(
            "/v1/evals",
            &json!({"suite_id": demo_suite::SUITE_ID, "input_ref": upload_id}),
        )
        .await
        .unwrap()
}

/// Uploads these bytes in one part, completes the upload, and returns its id.
pub async fn uploaded(client: &Client, fields: Value, bytes: &[u8]) -> String {
    let upload_id = open(client, fields).await;
    put(client, &upload_id, 1, bytes.to_vec())
        .await
        .expect_status(200);
    complete(client, &upload_id).await.expect_status(200);
    upload_id
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Two gzip members, as `cat a.gz b.gz` produces.
    let (a, b) = bytes.split_at(bytes.len() / 3);
    [a, b]
        .into_iter()
        .flat_map(|member| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(member).unwrap();
            encoder.finish().unwrap()
        })
        .collect()
}

fn encoded(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => gzip(bytes),
        "zstd" => zstd::encode_all(bytes, 3).unwrap(),
        _ => bytes.to_vec(),
    }
}

fn ndjson(predictions: &Value) -> String {
    predictions
        .as_array()
        .unwrap()
        .iter()
        .map(|prediction| format!("{prediction}\n"))
        .collect()
}

/// Returns a prediction for every item, by [`demo_suite::by_habit`].
async fn predictions(world: &World) -> Value {
    let items = world
        .key()
        .get("/v1/suites/suite:lunch/items")
        .await
        .unwrap();
    let items = items.body["items"].as_array().unwrap();
    items.iter().map(demo_suite::prediction).collect()
}

const KIND: &str = "predictions";

#[tokio::test(flavor = "multi_thread")]
async fn upload_scores_like_inline_in_all_forms() {
    let world = shared_world().await;
    let predictions = predictions(&world).await;
    let inline = world.submit_and_wait(&predictions).await;
    let channel = world.channel().await;
    for content_type in ["application/x-ndjson", "application/json"] {
        let plain = if content_type == "application/json" {
            predictions.to_string()
        } else {
            ndjson(&predictions)
        };
        for encoding in ["identity", "gzip", "zstd"] {
            let bytes = encoded(encoding, plain.as_bytes());
            let fields = json!({"kind": KIND, "content_type": content_type, "content_encoding": encoding,
                "bytes": bytes.len(), "sha256": hex(&bytes).to_uppercase()});
            let key = world.key();
            let upload_id = open(&key, fields).await;
            let pieces: Vec<&[u8]> = bytes.chunks(bytes.len() / 3 + 1).collect();
            // Parts may be sent in any order.
            for (at, piece) in pieces.iter().enumerate().rev() {
                let part = put(&key, &upload_id, at + 1, piece.to_vec())
                    .await
                    .expect_status(200);
                assert_eq!(part.body["bytes"], json!(piece.len()));
                assert_eq!(part.body["sha256"], json!(hex(piece)));
            }
            let done = complete(&key, &upload_id).await.expect_status(200);
            assert_eq!(done.body["status"], "ready", "{}", done.body);
            assert_eq!(done.body["n_items"], 400, "{}", done.body);
            assert_eq!(done.body["parts"].as_array().unwrap().len(), 3);
            let job = submit(&key, &upload_id).await.expect_status(202);
            assert_eq!(
                world.wait_until_finished(&string(&job.body["id"])).await["result"],
                inline["result"],
                "{content_type} {encoding}"
            );

            let mut uploads = UploadServiceClient::new(channel.clone());
            let token = &world.org.key;
            let made = v1::CreateUploadRequest {
                kind: KIND.into(),
                content_type: Some(content_type.into()),
                content_encoding: Some(encoding.into()),
                bytes: Some(bytes.len() as i64),
                sha256: Some(hex(&bytes)),
            };
            let upload_id = uploads
                .create_upload(with_token(made, token))
                .await
                .unwrap()
                .into_inner()
                .upload
                .unwrap()
                .id;
            let head = v1::UploadPredictionsRequest {
                upload_id: upload_id.clone(),
                number: 1,
                data: Vec::new(),
            };
            let rest = bytes.chunks(1000).map(|data| v1::UploadPredictionsRequest {
                data: data.to_vec(),
                ..Default::default()
            });
            let messages: Vec<_> = std::iter::once(head).chain(rest).collect();
            let part = uploads
                .upload_predictions(with_token(futures_util::stream::iter(messages), token))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(part.part.unwrap().sha256, hex(&bytes));
            let done = uploads
                .complete_upload(with_token(
                    v1::CompleteUploadRequest {
                        upload_id: upload_id.clone(),
                    },
                    token,
                ))
                .await;
            let done = done.unwrap().into_inner().upload.unwrap();
            let rest = key
                .get(&format!("/v1/uploads/{upload_id}"))
                .await
                .unwrap()
                .body;
            let ours = json!([
                done.id,
                done.org_id,
                done.kind,
                done.status,
                done.input_ref,
                done.upload_url,
                done.bytes,
                done.n_items
            ]);
            let names = [
                "id",
                "org_id",
                "kind",
                "status",
                "input_ref",
                "upload_url",
                "bytes",
                "n_items",
            ];
            assert_eq!(ours, json!(names.map(|name| rest[name].clone())));
            let request = v1::CreateEvalRequest {
                suite_id: demo_suite::SUITE_ID.into(),
                input_ref: Some(upload_id),
                ..Default::default()
            };
            let job = EvalServiceClient::new(channel.clone())
                .create_eval(with_token(request, token))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(
                world.wait_until_finished(&job.job.unwrap().id).await["result"],
                inline["result"],
                "{content_type} {encoding} gRPC"
            );
        }
    }
    let usage = world.key().get("/v1/usage").await.unwrap();
    assert_eq!(usage.body["totals"]["eval_items"], 13 * 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_upload_has_contract_fields() {
    let world = shared_world().await;
    let made = world
        .key()
        .post("/v1/uploads", &json!({"kind": KIND}))
        .await
        .unwrap();
    let mut fields: Vec<_> = made
        .body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    let expected = [
        "bytes",
        "completed_at",
        "content_encoding",
        "content_type",
        "created_at",
        "error",
        "expires_at",
        "id",
        "input_ref",
        "kind",
        "n_items",
        "org_id",
        "part_max_bytes",
        "parts",
        "sha256",
        "status",
        "upload_url",
    ];
    assert_eq!(fields, expected);
    let id = string(&made.body["id"]);
    assert_eq!(made.body["input_ref"], id.as_str());
    assert_eq!(
        made.body["upload_url"],
        format!("{}/v1/uploads/{id}/parts", world.stack.url())
    );
    assert_eq!(
        (
            &made.body["status"],
            &made.body["parts"],
            &made.body["part_max_bytes"]
        ),
        (&json!("pending"), &json!([]), &json!(64 << 20))
    );
    assert_eq!(
        (&made.body["content_type"], &made.body["content_encoding"]),
        (&json!("application/x-ndjson"), &json!("identity"))
    );
    for null in ["bytes", "sha256", "n_items", "completed_at", "error"] {
        assert!(made.body[null].is_null(), "{null}");
    }
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/uploads/{id}"))
            .await
            .unwrap()
            .body,
        made.body
    );
    delete(&world.key(), &id).await.expect_status(204);
    delete(&world.key(), &id).await.expect_status(404);
    world
        .key()
        .get(&format!("/v1/uploads/{id}"))
        .await
        .expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_upload_returns_field_errors() {
    let world = shared_world().await;
    for (fields, expected) in [
        (json!({}), vec![field_error("kind", "required")]),
        (
            json!({"kind": "answers"}),
            vec![field_error("kind", "unknown_value")],
        ),
        (
            json!({"kind": KIND, "content_type": "text/plain"}),
            vec![field_error("content_type", "unknown_value")],
        ),
        (
            json!({"kind": KIND, "content_encoding": "br", "bytes": 0}),
            vec![
                field_error("content_encoding", "unknown_value"),
                field_error("bytes", "range"),
            ],
        ),
        (
            json!({"kind": KIND, "bytes": "1"}),
            vec![field_error("bytes", "type")],
        ),
        (
            json!({"kind": KIND, "bytes": 1.5}),
            vec![field_error("bytes", "range")],
        ),
        (
            json!({"kind": KIND, "sha256": "abc"}),
            vec![field_error("sha256", "format")],
        ),
        (
            json!({"kind": KIND, "size": 1}),
            vec![field_error("size", "unknown_field")],
        ),
    ] {
        let response = world
            .key()
            .post("/v1/uploads", &fields)
            .await
            .expect_status(422);
        assert_eq!(field_errors(&response), expected, "{fields}");
    }
    world
        .key()
        .post(
            "/v1/uploads",
            &json!({"kind": KIND, "bytes": (5_i64 << 30) + 1}),
        )
        .await
        .expect_error(413, "payload_too_large");
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    for number in ["0", "10001", "-1", "+1", "x"] {
        let request = world
            .key()
            .request("PUT", &format!("/v1/uploads/{upload_id}/parts/{number}"))
            .body("x");
        assert_eq!(
            field_errors(&world.key().send(request).await.unwrap()),
            [field_error("number", "range")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_resumes_and_last_part_wins() {
    let world = shared_world().await;
    let key = world.key();
    let first = "{\"item_id\":\"person-00/day-0\",\"predict";
    let second = "ion\":[\"ramen\"]}\n";
    let whole = format!("{first}{second}");
    let upload_id = open(
        &key,
        json!({"kind": KIND, "bytes": whole.len(), "sha256": hex(whole.as_bytes())}),
    )
    .await;
    assert_eq!(
        field_errors(&complete(&key, &upload_id).await),
        [field_error("parts", "required")]
    );
    put(&key, &upload_id, 2, second).await;
    assert_eq!(
        field_errors(&complete(&key, &upload_id).await),
        [field_error("parts", "required")],
        "a gap"
    );
    // A truncated body leaves no part.
    let broken = futures_util::stream::iter([
        Ok(first.as_bytes().to_vec()),
        Err(std::io::Error::other("gone")),
    ]);
    let request = key
        .request("PUT", &format!("/v1/uploads/{upload_id}/parts/1"))
        .body(reqwest::Body::wrap_stream(broken));
    assert!(key.send(request).await.is_err());
    assert_eq!(
        key.get(&format!("/v1/uploads/{upload_id}"))
            .await
            .unwrap()
            .body["parts"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    put(&key, &upload_id, 1, &first[1..]).await;
    assert_eq!(
        field_errors(&complete(&key, &upload_id).await),
        [field_error("bytes", "mismatch")]
    );
    put(&key, &upload_id, 1, first.replace("person", "nobody")).await;
    assert_eq!(
        field_errors(&complete(&key, &upload_id).await),
        [field_error("sha256", "mismatch")]
    );
    put(&key, &upload_id, 1, first).await;
    let done = complete(&key, &upload_id).await.expect_status(200);
    assert_eq!(done.body["n_items"], 1, "{}", done.body);
    assert_eq!(complete(&key, &upload_id).await.body, done.body, "again");
    put(&key, &upload_id, 1, first)
        .await
        .expect_error(409, "invalid_state");
    let objects = world.stored_objects(&upload_id);
    assert_eq!(objects.len(), 2, "what was replaced is gone: {objects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_upload_content_names_the_line() {
    let world = world().await;
    let key = world.key();
    let good = r#"{"item_id":"a","prediction":"x"}"#;
    let lines = "application/x-ndjson";
    let array = "application/json";
    let many = "7\n".repeat(50);
    let bomb = encoded("zstd", &vec![b'\n'; 200 << 20]);
    for (content_type, encoding, bytes, expected) in [
        (
            lines,
            "identity",
            format!("{good}\n\n{{\"item_id\":\"b\"}}\n").into_bytes(),
            field_error("line 3.prediction", "required"),
        ),
        (
            lines,
            "identity",
            format!("{good}\n{{").into_bytes(),
            field_error("line 2", "format"),
        ),
        (
            lines,
            "identity",
            b"\xff\n".to_vec(),
            field_error("line 1", "format"),
        ),
        (
            lines,
            "identity",
            b"\n".to_vec(),
            field_error("predictions", "required"),
        ),
        (
            array,
            "identity",
            format!("[{good},7]").into_bytes(),
            field_error("predictions[1]", "type"),
        ),
        (
            array,
            "identity",
            format!("[{good}").into_bytes(),
            field_error("predictions", "format"),
        ),
        (
            array,
            "identity",
            b"3".to_vec(),
            field_error("line 1", "type"),
        ),
        (
            lines,
            "gzip",
            good.as_bytes().to_vec(),
            field_error("content_encoding", "format"),
        ),
        (
            lines,
            "gzip",
            {
                let whole = gzip(good.as_bytes());
                whole[..whole.len() - 9].to_vec()
            },
            field_error("content_encoding", "format"),
        ),
        (
            lines,
            "zstd",
            {
                let whole = encoded("zstd", many.as_bytes());
                whole[..whole.len() - 1].to_vec()
            },
            field_error("content_encoding", "format"),
        ),
    ] {
        let upload_id = open(
            &key,
            json!({"kind": KIND, "content_type": content_type, "content_encoding": encoding}),
        )
        .await;
        put(&key, &upload_id, 1, bytes.clone())
            .await
            .expect_status(200);
        let response = complete(&key, &upload_id).await.expect_status(422);
        assert_eq!(
            field_errors(&response),
            vec![expected],
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        let upload = key
            .get(&format!("/v1/uploads/{upload_id}"))
            .await
            .unwrap()
            .body;
        assert_eq!(
            (&upload["status"], &upload["error"]["code"]),
            (&json!("failed"), &json!("invalid_predictions"))
        );
        assert_eq!(
            (&upload["error"]["message"], &upload["parts"]),
            (&response.body["error"]["message"], &json!([]))
        );
        assert!(world.stored_objects(&upload_id).is_empty());
        complete(&key, &upload_id).await.expect_status(409);
        assert_eq!(
            field_errors(&submit(&key, &upload_id).await),
            [field_error("input_ref", "not_found")]
        );
    }
    let upload_id = open(&key, json!({"kind": KIND})).await;
    put(&key, &upload_id, 1, many).await;
    assert_eq!(field_errors(&complete(&key, &upload_id).await).len(), 20);

    let free = org(&world.stack, "free").await;
    let free = world.client(&free.key);
    let upload_id = open(&free, json!({"kind": KIND, "content_encoding": "zstd"})).await;
    assert!(bomb.len() < 1 << 20);
    put(&free, &upload_id, 1, bomb).await;
    complete(&free, &upload_id)
        .await
        .expect_error(413, "payload_too_large");
    let upload = free
        .get(&format!("/v1/uploads/{upload_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        (&upload["status"], &upload["error"]["code"]),
        (&json!("failed"), &json!("payload_too_large"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_found_by_scoring_fail_job() {
    let world = shared_world().await;
    let line = |item_id: &str| format!("{{\"item_id\":\"{item_id}\",\"prediction\":\"ramen\"}}\n");
    for item_id in ["person-00/day-0", "nobody"] {
        let twice = format!(
            "{}\n{}{}",
            line(item_id),
            line("person-01/day-0"),
            line(item_id)
        );
        let upload_id = uploaded(&world.key(), json!({"kind": KIND}), twice.as_bytes()).await;
        let job = world
            .wait_until_finished(&string(&submit(&world.key(), &upload_id).await.body["id"]))
            .await;
        let expected = json!({"code": "invalid_predictions", "message": "line 4.item_id: this item is already predicted"});
        assert_eq!(job["error"], expected, "{job}");
    }
    let upload_id = uploaded(&world.key(), json!({"kind": KIND}), line("x").as_bytes()).await;
    for object in world.stored_objects(&upload_id) {
        std::fs::remove_file(object).unwrap();
    }
    let job = world
        .wait_until_finished(&string(&submit(&world.key(), &upload_id).await.body["id"]))
        .await;
    assert_eq!(
        (&job["error"]["code"], &job["attempts"]),
        (&json!("input_unavailable"), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_part_is_rejected() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = world().await;
    let key = world.key();
    let upload_id = open(&key, json!({"kind": KIND})).await;
    let mut socket = tokio::net::TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "PUT /v1/uploads/{upload_id}/parts/1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        world.org.key,
        (64 << 20) + 1
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = vec![0; 1024];
    let n = socket.read(&mut response).await.unwrap();
    assert!(
        response[..n].starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&response[..n])
    );
    let chunks = |mebibytes: usize| {
        reqwest::Body::wrap_stream(futures_util::stream::iter(
            (0..mebibytes).map(|_| Ok::<_, std::io::Error>(vec![b'\n'; 1 << 20])),
        ))
    };
    put(&key, &upload_id, 1, chunks(65))
        .await
        .expect_error(413, "payload_too_large");
    wait_until("the removal of the object", async || {
        world.stored_objects(&upload_id).is_empty()
    })
    .await;

    let free = org(&world.stack, "free").await;
    let free = world.client(&free.key);
    let upload_id = open(&free, json!({"kind": KIND})).await;
    put(&free, &upload_id, 1, vec![b'\n'; 64 << 20])
        .await
        .expect_status(200);
    for body in [chunks(37), reqwest::Body::from(vec![b'\n'; 37 << 20])] {
        // The upload exceeds the plan's 100 MiB.
        put(&free, &upload_id, 2, body)
            .await
            .expect_error(413, "payload_too_large");
    }
    // Replacing a part by the same size fits.
    put(&free, &upload_id, 1, vec![b'\n'; 64 << 20])
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_org_upload_returns_404() {
    let world = shared_world().await;
    let line = b"{\"item_id\":\"a\",\"prediction\":\"x\"}";
    let ready = uploaded(&world.key(), json!({"kind": KIND}), line).await;
    let pending = open(&world.key(), json!({"kind": KIND})).await;
    let other = org(&world.stack, "team").await;
    let stranger = world.client(&other.key);
    for id in [&ready, &pending] {
        let nothing = "upl_0000000000000000000000";
        for (theirs, unknown) in [
            (
                stranger.get(&format!("/v1/uploads/{id}")).await.unwrap(),
                stranger
                    .get(&format!("/v1/uploads/{nothing}"))
                    .await
                    .unwrap(),
            ),
            (
                put(&stranger, id, 1, "x").await,
                put(&stranger, nothing, 1, "x").await,
            ),
            (
                complete(&stranger, id).await,
                complete(&stranger, nothing).await,
            ),
            (
                delete(&stranger, id).await,
                delete(&stranger, nothing).await,
            ),
        ] {
            assert_eq!(
                (theirs.status, &theirs.body["error"]["message"]),
                (404, &unknown.body["error"]["message"])
            );
        }
        let theirs = submit(&stranger, id).await.expect_status(422);
        let unknown = submit(&stranger, nothing).await;
        assert_eq!(
            theirs.body["error"]["details"],
            unknown.body["error"]["details"]
        );
        assert_eq!(
            field_errors(&theirs),
            [field_error("input_ref", "not_found")]
        );
    }
    submit(&world.key(), &ready).await.expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_and_upload_replay_same_job() {
    let world = shared_world().await;
    let key = world.key();
    let line = "{\"prediction\":[\"ramen\"],\"item_id\":\"person-00/day-0\"}";
    let upload_id = uploaded(&key, json!({"kind": KIND}), line.as_bytes()).await;
    let send = async |body: Value| {
        key.send(
            key.request("POST", "/v1/evals")
                .header("idempotency-key", "k")
                .json(&body),
        )
        .await
        .unwrap()
    };
    let by_upload = json!({"suite_id": demo_suite::SUITE_ID, "input_ref": upload_id});
    let first = send(by_upload.clone()).await;
    let predictions = json!([{"item_id": "person-00/day-0", "prediction": ["ramen"]}]);
    let inline = send(json!({"suite_id": demo_suite::SUITE_ID, "predictions": predictions}))
        .await
        .expect_status(202);
    assert_eq!(inline.header("idempotency-replayed"), "true");
    assert_eq!(inline.body["id"], first.body["id"]);
    world.wait_until_finished(&string(&first.body["id"])).await;
    delete(&key, &upload_id).await.expect_status(204);
    let again = send(by_upload.clone()).await.expect_status(202);
    assert_eq!(
        again.body["id"], first.body["id"],
        "replayed although the upload is deleted: {}",
        again.body
    );
    assert_eq!(
        field_errors(&key.post("/v1/evals", &by_upload).await.unwrap()),
        [field_error("input_ref", "not_found")]
    );
    assert_eq!(
        world.key().get("/v1/usage").await.unwrap().body["totals"]["eval_items"],
        1
    );
}

/// Sets an upload's expiry to the past, as the database's owner.
async fn expire(world: &World, upload_id: &str) {
    let moved =
        sqlx::query("update uploads set expires_at = now() - interval '1 hour' where id = $1")
            .bind(upload_id);
    assert_eq!(
        moved
            .execute(&mut world.database().await)
            .await
            .unwrap()
            .rows_affected(),
        1
    );
}

const LINE: &str = "{\"item_id\":\"person-00/day-0\",\"prediction\":\"ramen\"}\n";

#[tokio::test(flavor = "multi_thread")]
async fn expired_upload_is_removed_when_unused() {
    let mut world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let key = world.key();
    let pending = open(&key, json!({"kind": KIND})).await;
    put(&key, &pending, 1, LINE).await;
    let unused = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
    let needed = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
    let job = submit(&key, &needed).await;
    for upload_id in [&pending, &unused, &needed] {
        expire(&world, upload_id).await;
        assert_eq!(
            key.get(&format!("/v1/uploads/{upload_id}"))
                .await
                .unwrap()
                .body["status"],
            "expired"
        );
        assert_eq!(
            field_errors(&submit(&key, upload_id).await),
            [field_error("input_ref", "not_found")]
        );
    }
    for refused in [
        put(&key, &pending, 1, LINE).await,
        complete(&key, &pending).await,
    ] {
        refused.expect_error(409, "invalid_state");
    }
    // Leftovers of a killed process.
    std::fs::write(
        world.stored_objects(&pending)[0].with_file_name("7-orphan#1"),
        "x",
    )
    .unwrap();
    // The leading process cleans up; a process tries to lead when it starts.
    world.stack.apis.clear();
    world.stack.apis.push(world.stack.launch_api().unwrap());
    world.stack.apis[0].ready().await.unwrap();
    wait_until("removal", async || {
        world.stored_objects(&pending).is_empty() && world.stored_objects(&unused).is_empty()
    })
    .await;
    assert_eq!(world.stored_objects(&needed).len(), 1, "a job needs it");
    let _worker = world.stack.launch_worker().unwrap();
    assert_eq!(
        world.wait_until_finished(&string(&job.body["id"])).await["status"],
        "succeeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_in_use_cannot_be_deleted() {
    let world = shared_world_without_workers().await;
    let key = world.key();
    let upload_id = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
    let job = string(&submit(&key, &upload_id).await.body["id"]);
    delete(&key, &upload_id)
        .await
        .expect_error(409, "invalid_state");
    key.send(key.request("POST", &format!("/v1/jobs/{job}/cancel")))
        .await
        .unwrap();
    delete(&key, &upload_id).await.expect_status(204);
    assert!(world.stored_objects(&upload_id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_submit_race_keeps_job_input() {
    let world = shared_world().await;
    let key = world.key();
    let mut accepted = 0;
    let mut dropped = 0;
    for _ in 0..30 {
        let upload_id = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
        let (job, gone) = tokio::join!(submit(&key, &upload_id), delete(&key, &upload_id));
        match (job.status, gone.status) {
            (202, 409) => accepted += 1,
            (422, 204) => dropped += 1,
            // The job had finished before the upload was deleted.
            (202, 204) => {}
            other => panic!("{other:?}: {} {}", job.body, gone.body),
        }
        if job.status == 202 {
            assert_eq!(
                world.wait_until_finished(&string(&job.body["id"])).await["status"],
                "succeeded"
            );
        }
    }
    assert!(accepted + dropped > 0);
    let wrong = "select count(*) from jobs where status <> 'succeeded' and org_id = $1";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(wrong)
            .bind(&world.org.id)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_completions_complete_once() {
    // Both API processes have the same public URL.
    let world = world_with(StackSize {
        apis: 2,
        ..with_setting("ASSAY_PUBLIC_URL", "https://assay.example")
    })
    .await;
    let key = world.key();
    let second = Client::new(
        format!("http://{}", world.stack.apis[1].listen.unwrap()),
        Some(&world.org.key),
    );
    let upload_id = open(&key, json!({"kind": KIND})).await;
    let lines: String = (0..50_000)
        .map(|at| format!("{{\"item_id\":\"{at}\",\"prediction\":\"ramen\"}}\n"))
        .collect();
    put(&key, &upload_id, 1, lines).await;
    let (a, b, c) = tokio::join!(
        complete(&key, &upload_id),
        complete(&second, &upload_id),
        complete(&key, &upload_id)
    );
    for done in [&b, &c] {
        assert_eq!((done.status, &done.body), (200, &a.body));
    }
    assert_eq!(a.body["n_items"], 50_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_during_completion_counts_or_fails() {
    let world = world().await;
    let key = world.key();
    let many = LINE.repeat(100_000);
    let mut changed = 0;
    let mut kept = 0;
    for round in 0..12_u64 {
        let upload_id = open(&key, json!({"kind": KIND})).await;
        put(&key, &upload_id, 1, many.clone()).await;
        let later = async {
            tokio::time::sleep(std::time::Duration::from_millis(round * 40)).await;
            put(&key, &upload_id, 1, LINE).await
        };
        let (done, part) = tokio::join!(complete(&key, &upload_id), later);
        let upload = key
            .get(&format!("/v1/uploads/{upload_id}"))
            .await
            .unwrap()
            .body;
        match (done.status, part.status) {
            (200, 409) => kept += i32::from(upload["n_items"] == 100_000),
            (200, 200) => changed += i32::from(upload["n_items"] == 1),
            (409, 200) => {
                assert_eq!(
                    (error_code(&done), &upload["status"]),
                    ("conflict".to_owned(), &json!("pending"))
                );
                let again = complete(&key, &upload_id).await;
                changed += i32::from(again.body["n_items"] == 1);
            }
            other => panic!("{other:?}: {} {}", done.body, part.body),
        }
    }
    assert_eq!(
        changed + kept,
        12,
        "the validated content is the stored content: {changed} {kept}"
    );
    assert!(changed > 0, "{changed} {kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_api_loses_no_acknowledged_part() {
    let mut world = world().await;
    let key = world.key();
    let upload_id = open(&key, json!({"kind": KIND})).await;
    let many = (0..200_000)
        .map(|at| format!("{{\"item_id\":\"{at}\",\"prediction\":\"ramen\"}}\n"))
        .collect::<String>();
    let (first, second) = many.split_at(many.len() / 2);
    put(&key, &upload_id, 1, first.to_owned())
        .await
        .expect_status(200);
    // Killed in the middle of a part.
    let slow = futures_util::stream::unfold(0, |at| async move {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        (at < 100).then(|| (Ok::<_, std::io::Error>(vec![b'\n'; 1 << 20]), at + 1))
    });
    let request = key
        .request("PUT", &format!("/v1/uploads/{upload_id}/parts/2"))
        .body(reqwest::Body::wrap_stream(slow));
    let sending = tokio::spawn(async move { request.send().await.is_err() });
    wait_until("an unfinished object", async || {
        world.stored_objects(&upload_id).len() == 2
    })
    .await;
    replace_api(&mut world).await;
    assert!(sending.await.unwrap());
    let key = world.key();
    let upload = key
        .get(&format!("/v1/uploads/{upload_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        (&upload["status"], upload["parts"].as_array().unwrap().len()),
        (&json!("pending"), 1)
    );
    put(&key, &upload_id, 2, second.to_owned())
        .await
        .expect_status(200);
    // Killed while the content is read.
    let asking = key.clone();
    let id = upload_id.clone();
    let completing = tokio::spawn(async move {
        asking
            .send(asking.request("POST", &format!("/v1/uploads/{id}/complete")))
            .await
    });
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    replace_api(&mut world).await;
    assert!(
        completing.await.unwrap().is_err(),
        "the API was killed before it responded"
    );
    let done = complete(&world.key(), &upload_id).await.expect_status(200);
    assert_eq!(done.body["n_items"], json!(200_000), "{}", done.body);
    let job = submit(&world.key(), &upload_id).await;
    assert_eq!(
        world.wait_until_finished(&string(&job.body["id"])).await["result"]["n_unmatched"],
        200_000
    );
}

/// Kills the API process and starts another one.
async fn replace_api(world: &mut World) {
    world.stack.apis[0].guarded.signal(libc::SIGKILL);
    world.stack.apis.clear();
    world.stack.apis.push(world.stack.launch_api().unwrap());
    world.stack.apis[0].ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn open_uploads_are_limited_to_100() {
    let world = world().await;
    let key = world.key();
    let made = futures_util::future::join_all((0..110).map(|_| async {
        key.post("/v1/uploads", &json!({"kind": KIND}))
            .await
            .unwrap()
    }))
    .await;
    let (made, refused): (Vec<_>, Vec<_>) = made
        .into_iter()
        .partition(|response| response.status == 201);
    assert_eq!((made.len(), refused.len()), (100, 10));
    let details = &refused[0].body["error"]["details"];
    assert_eq!(
        (error_code(&refused[0]), &details["limit"], &details["max"]),
        (
            "quota_exceeded".to_owned(),
            &json!("open_uploads"),
            &json!(100)
        )
    );
    let first = made
        .iter()
        .map(|response| string(&response.body["expires_at"]))
        .min()
        .unwrap();
    assert_eq!(details["resets_at"], first.as_str());
    delete(&key, &string(&made[0].body["id"]))
        .await
        .expect_status(204);
    key.post("/v1/uploads", &json!({"kind": KIND}))
        .await
        .expect_status(201);
}

/// Returns the ids in an upload listing, read in pages of three.
async fn listed(client: &Client, query: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut path = format!("/v1/uploads?limit=3{query}");
    loop {
        let page = client.get(&path).await.expect_status(200);
        let uploads = page.body["uploads"].as_array().unwrap();
        assert!(uploads.len() <= 3);
        ids.extend(uploads.iter().map(|upload| string(&upload["id"])));
        match page.body["next_before"].as_str() {
            Some(before) => path = format!("/v1/uploads?limit=3{query}&before={before}"),
            None => return ids,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_listed_in_pages_by_status() {
    let world = shared_world().await;
    let key = world.key();
    let kind = || json!({"kind": "predictions"});
    let line = br#"{"item_id": "person-00/day-0", "prediction": ["ramen"]}"#;
    let mut all = Vec::new();
    for place in 0..20 {
        let id = match place % 5 {
            0 | 1 => open(&key, kind()).await,
            2 | 3 => uploaded(&key, kind(), line).await,
            _ => {
                let id = open(&key, kind()).await;
                put(&key, &id, 1, "ramen").await;
                complete(&key, &id).await.expect_status(422);
                id
            }
        };
        all.insert(0, id);
    }
    // Ten were created at the same time. Then their ids order them.
    let same =
        "update uploads set created_at = (select min(created_at) from uploads where id = any($1))
                where id = any($1)";
    let mut database = world.database().await;
    let same = sqlx::query(same).bind(&all[5..15]);
    same.execute(&mut database).await.unwrap();
    all = sqlx::query_scalar(
        "select id from uploads where org_id = $1 order by created_at desc, id desc",
    )
    .bind(&world.org.id)
    .fetch_all(&mut database)
    .await
    .unwrap();
    let whole = key.get("/v1/uploads").await.unwrap();
    assert_eq!(whole.body.get("next_before"), None);
    let whole = whole.body["uploads"].as_array().unwrap().clone();
    let ids: Vec<_> = whole.iter().map(|upload| string(&upload["id"])).collect();
    assert_eq!(ids, all, "the newest first");
    assert_eq!(listed(&key, "").await, all);
    for upload in &whole {
        let id = string(&upload["id"]);
        let mut one = key.get(&format!("/v1/uploads/{id}")).await.unwrap().body;
        one.as_object_mut().unwrap().remove("parts");
        assert_eq!(*upload, one);
    }
    // Uploads whose time is over are expired, also before cleanup has marked them.
    let expired = [&all[0], &all[3], &all[10], &all[17]];
    let late = "update uploads set expires_at = now() - interval '1 second' where id = any($1)";
    let marked = "update uploads set status = 'expired' where id = $1";
    let late = sqlx::query(late).bind(expired.map(String::as_str));
    late.execute(&mut database).await.unwrap();
    let marked = sqlx::query(marked).bind(expired[1]);
    marked.execute(&mut database).await.unwrap();
    let uploads_with_status = async |status: &str| {
        let of = |id: &String| {
            let path = format!("/v1/uploads/{id}");
            let key = key.clone();
            async move { string(&key.get(&path).await.unwrap().body["status"]) }
        };
        let mut ids = Vec::new();
        for id in &all {
            if of(id).await == status {
                ids.push(id.clone());
            }
        }
        ids
    };
    let mut found = 0;
    for status in ["pending", "ready", "failed", "expired"] {
        let expected = uploads_with_status(status).await;
        assert_eq!(
            listed(&key, &format!("&status={status}")).await,
            expected,
            "{status}"
        );
        found += expected.len();
    }
    assert_eq!(found, 20);
    // A deleted upload is left out, and a page can still follow it.
    let gone = &all[7];
    delete(&key, gone).await.expect_status(204);
    let after = key
        .get(&format!("/v1/uploads?before={gone}"))
        .await
        .unwrap();
    assert_eq!(after.body["uploads"].as_array().unwrap().len(), 12);
    assert_eq!(listed(&key, "").await.len(), 19);
    let other = world.client(&org(&world.stack, "team").await.key);
    assert!(listed(&other, "").await.is_empty());
    for (query, field, reason) in [
        (format!("before={gone}"), "before", "not_found"),
        ("before=job_0".to_owned(), "before", "format"),
        ("status=open".to_owned(), "status", "unknown_value"),
        ("limit=201".to_owned(), "limit", "range"),
        ("kind=predictions".to_owned(), "kind", "unknown_field"),
    ] {
        let refused = other
            .get(&format!("/v1/uploads?{query}"))
            .await
            .expect_status(422);
        assert_eq!(
            field_errors(&refused),
            vec![field_error(field, reason)],
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn viewer_reads_uploads_and_changes_none() {
    let world = shared_world().await;
    let viewer = world.member("viewer").await;
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    viewer
        .get(&format!("/v1/uploads/{upload_id}"))
        .await
        .expect_status(200);
    let refused = [
        put(&viewer, &upload_id, 1, LINE).await,
        complete(&viewer, &upload_id).await,
        delete(&viewer, &upload_id).await,
    ];
    for refused in refused {
        assert_eq!(
            (refused.status, error_code(&refused)),
            (403, "forbidden".to_owned())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_arrives_too_slowly_returns_400() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = shared_world().await;
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    let mut socket = tokio::net::TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "PUT /v1/uploads/{upload_id}/parts/1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 10\r\n\r\nx",
        world.org.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = vec![0; 4096];
    let n = in_time("a response", socket.read(&mut response))
        .await
        .unwrap();
    let response = String::from_utf8_lossy(&response[..n]).into_owned();
    assert!(
        response.starts_with("HTTP/1.1 400")
            && response.contains("arrives too slowly")
            && response.contains("x-ratelimit-limit: 1000"),
        "{response}"
    );
    let upload = world
        .key()
        .get(&format!("/v1/uploads/{upload_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(upload["parts"], json!([]));
}
