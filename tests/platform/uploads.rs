//! `/v1/uploads`, and submissions by `input_ref`

use std::io::Write as _;

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::upload_service_client::UploadServiceClient;
use assay_tests::client::{Answer, Client};
use assay_tests::demo_suite;
use assay_tests::stack::Plan;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{
    PATIENCE, World, code, fault, faults, org, text, until, with, with_token, world, world_of,
};

/// Opens an upload with the key.
pub async fn open(client: &Client, fields: Value) -> String {
    let made = client.post("/v1/uploads", &fields).await.unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    text(&made.body["id"])
}

/// Sends a part.
pub async fn put(
    client: &Client,
    upload_id: &str,
    number: usize,
    bytes: impl Into<reqwest::Body>,
) -> Answer {
    client
        .send(
            client
                .request("PUT", &format!("/v1/uploads/{upload_id}/parts/{number}"))
                .body(bytes),
        )
        .await
        .unwrap()
}

/// Completes an upload.
pub async fn complete(client: &Client, upload_id: &str) -> Answer {
    client
        .send(client.request("POST", &format!("/v1/uploads/{upload_id}/complete")))
        .await
        .unwrap()
}

async fn delete(client: &Client, upload_id: &str) -> Answer {
    client
        .send(client.request("DELETE", &format!("/v1/uploads/{upload_id}")))
        .await
        .unwrap()
}

/// Submits an upload for `suite:lunch`.
pub async fn submit(client: &Client, upload_id: &str) -> Answer {
    client
        .post(
            "/v1/evals",
            &json!({"suite_id": demo_suite::SUITE_ID, "input_ref": upload_id}),
        )
        .await
        .unwrap()
}

/// An upload of these bytes in one part, complete.
pub async fn uploaded(client: &Client, fields: Value, bytes: &[u8]) -> String {
    let upload_id = open(client, fields).await;
    assert_eq!(put(client, &upload_id, 1, bytes.to_vec()).await.status, 200);
    let done = complete(client, &upload_id).await;
    assert_eq!(done.status, 200, "{}", done.body);
    upload_id
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Two members, as `cat a.gz b.gz` gives.
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

/// By habit, for every item.
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
async fn an_upload_scores_as_the_same_inline_does_in_each_form_and_on_both_wires() {
    let world = world().await;
    let predictions = predictions(&world).await;
    let inline = world.scored(&predictions).await;
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
            // Any order will do.
            for (at, piece) in pieces.iter().enumerate().rev() {
                let part = put(&key, &upload_id, at + 1, piece.to_vec()).await;
                assert_eq!(
                    (part.status, &part.body["bytes"], &part.body["sha256"]),
                    (200, &json!(piece.len()), &json!(hex(piece)))
                );
            }
            let done = complete(&key, &upload_id).await;
            assert_eq!(
                (done.status, &done.body["status"], &done.body["n_items"]),
                (200, &json!("ready"), &json!(400)),
                "{}",
                done.body
            );
            assert_eq!(done.body["parts"].as_array().unwrap().len(), 3);
            let job = submit(&key, &upload_id).await;
            assert_eq!(job.status, 202, "{}", job.body);
            assert_eq!(
                world.ended(&text(&job.body["id"])).await["result"],
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
            let asked = v1::CreateEvalRequest {
                suite_id: demo_suite::SUITE_ID.into(),
                input_ref: Some(upload_id),
                ..Default::default()
            };
            let job = EvalServiceClient::new(channel.clone())
                .create_eval(with_token(asked, token))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(
                world.ended(&job.job.unwrap().id).await["result"],
                inline["result"],
                "{content_type} {encoding} gRPC"
            );
        }
    }
    let usage = world.key().get("/v1/usage").await.unwrap();
    assert_eq!(usage.body["totals"]["eval_items"], 13 * 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_upload_has_the_fields_of_the_contract() {
    let world = world().await;
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
    let id = text(&made.body["id"]);
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
    assert_eq!(delete(&world.key(), &id).await.status, 204);
    assert_eq!(delete(&world.key(), &id).await.status, 404);
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/uploads/{id}"))
            .await
            .unwrap()
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upload_cannot_be_is_told_field_by_field() {
    let world = world().await;
    for (fields, expected) in [
        (json!({}), vec![fault("kind", "required")]),
        (
            json!({"kind": "answers"}),
            vec![fault("kind", "unknown_value")],
        ),
        (
            json!({"kind": KIND, "content_type": "text/csv"}),
            vec![fault("content_type", "unknown_value")],
        ),
        (
            json!({"kind": KIND, "content_encoding": "br", "bytes": 0}),
            vec![
                fault("content_encoding", "unknown_value"),
                fault("bytes", "range"),
            ],
        ),
        (
            json!({"kind": KIND, "bytes": "1"}),
            vec![fault("bytes", "type")],
        ),
        (
            json!({"kind": KIND, "bytes": 1.5}),
            vec![fault("bytes", "range")],
        ),
        (
            json!({"kind": KIND, "sha256": "abc"}),
            vec![fault("sha256", "format")],
        ),
        (
            json!({"kind": KIND, "size": 1}),
            vec![fault("size", "unknown_field")],
        ),
    ] {
        let answer = world.key().post("/v1/uploads", &fields).await.unwrap();
        assert_eq!(
            (answer.status, faults(&answer)),
            (422, expected),
            "{fields}"
        );
    }
    let answer = world
        .key()
        .post(
            "/v1/uploads",
            &json!({"kind": KIND, "bytes": (5_i64 << 30) + 1}),
        )
        .await
        .unwrap();
    assert_eq!(
        (answer.status, code(&answer)),
        (413, "payload_too_large".to_owned())
    );
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    for number in ["0", "10001", "-1", "+1", "x"] {
        let request = world
            .key()
            .request("PUT", &format!("/v1/uploads/{upload_id}/parts/{number}"))
            .body("x");
        assert_eq!(
            faults(&world.key().send(request).await.unwrap()),
            [fault("number", "range")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_where_it_stopped_and_the_last_part_of_a_number_counts() {
    let world = world().await;
    let key = world.key();
    let (first, second) = (
        "{\"item_id\":\"person-00/day-0\",\"predict",
        "ion\":[\"ramen\"]}\n",
    );
    let whole = format!("{first}{second}");
    let upload_id = open(
        &key,
        json!({"kind": KIND, "bytes": whole.len(), "sha256": hex(whole.as_bytes())}),
    )
    .await;
    assert_eq!(
        faults(&complete(&key, &upload_id).await),
        [fault("parts", "required")]
    );
    put(&key, &upload_id, 2, second).await;
    assert_eq!(
        faults(&complete(&key, &upload_id).await),
        [fault("parts", "required")],
        "a gap"
    );
    // A body that breaks off leaves nothing.
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
        faults(&complete(&key, &upload_id).await),
        [fault("bytes", "mismatch")]
    );
    put(&key, &upload_id, 1, first.replace("person", "nobody")).await;
    assert_eq!(
        faults(&complete(&key, &upload_id).await),
        [fault("sha256", "mismatch")]
    );
    put(&key, &upload_id, 1, first).await;
    let done = complete(&key, &upload_id).await;
    assert_eq!(
        (done.status, &done.body["n_items"]),
        (200, &json!(1)),
        "{}",
        done.body
    );
    assert_eq!(complete(&key, &upload_id).await.body, done.body, "again");
    let late = put(&key, &upload_id, 1, first).await;
    assert_eq!(
        (late.status, code(&late)),
        (409, "invalid_state".to_owned())
    );
    let objects = world.objects(&upload_id);
    assert_eq!(objects.len(), 2, "what was replaced is gone: {objects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_holds_something_else_fails_and_says_where() {
    let world = world().await;
    let key = world.key();
    let good = r#"{"item_id":"a","prediction":"x"}"#;
    let (lines, array) = ("application/x-ndjson", "application/json");
    let many = "7\n".repeat(50);
    let bomb = encoded("zstd", &vec![b'\n'; 200 << 20]);
    for (content_type, encoding, bytes, expected) in [
        (
            lines,
            "identity",
            format!("{good}\n\n{{\"item_id\":\"b\"}}\n").into_bytes(),
            fault("line 3.prediction", "required"),
        ),
        (
            lines,
            "identity",
            format!("{good}\n{{").into_bytes(),
            fault("line 2", "format"),
        ),
        (
            lines,
            "identity",
            b"\xff\n".to_vec(),
            fault("line 1", "format"),
        ),
        (
            lines,
            "identity",
            b"\n".to_vec(),
            fault("predictions", "required"),
        ),
        (
            array,
            "identity",
            format!("[{good},7]").into_bytes(),
            fault("predictions[1]", "type"),
        ),
        (
            array,
            "identity",
            format!("[{good}").into_bytes(),
            fault("predictions", "format"),
        ),
        (
            array,
            "identity",
            good.as_bytes().to_vec(),
            fault("predictions", "type"),
        ),
        (
            lines,
            "gzip",
            good.as_bytes().to_vec(),
            fault("content_encoding", "format"),
        ),
        (
            lines,
            "gzip",
            {
                let whole = gzip(good.as_bytes());
                whole[..whole.len() - 9].to_vec()
            },
            fault("content_encoding", "format"),
        ),
        (
            lines,
            "zstd",
            {
                let whole = encoded("zstd", many.as_bytes());
                whole[..whole.len() - 1].to_vec()
            },
            fault("content_encoding", "format"),
        ),
    ] {
        let upload_id = open(
            &key,
            json!({"kind": KIND, "content_type": content_type, "content_encoding": encoding}),
        )
        .await;
        assert_eq!(put(&key, &upload_id, 1, bytes.clone()).await.status, 200);
        let answer = complete(&key, &upload_id).await;
        assert_eq!(
            (answer.status, faults(&answer)),
            (422, vec![expected]),
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
            (&answer.body["error"]["message"], &json!([]))
        );
        assert!(world.objects(&upload_id).is_empty());
        assert_eq!(complete(&key, &upload_id).await.status, 409);
        assert_eq!(
            faults(&submit(&key, &upload_id).await),
            [fault("input_ref", "not_found")]
        );
    }
    let upload_id = open(&key, json!({"kind": KIND})).await;
    put(&key, &upload_id, 1, many).await;
    assert_eq!(faults(&complete(&key, &upload_id).await).len(), 20);

    let free = org(&world.stack, "free").await;
    let free = world.client(&free.key);
    let upload_id = open(&free, json!({"kind": KIND, "content_encoding": "zstd"})).await;
    assert!(bomb.len() < 1 << 20);
    put(&free, &upload_id, 1, bomb).await;
    let answer = complete(&free, &upload_id).await;
    assert_eq!(
        (answer.status, code(&answer)),
        (413, "payload_too_large".to_owned())
    );
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
async fn what_only_the_score_can_see_fails_the_job() {
    let world = world().await;
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
            .ended(&text(&submit(&world.key(), &upload_id).await.body["id"]))
            .await;
        let expected = json!({"code": "invalid_predictions", "message": "line 4.item_id: this item is already predicted"});
        assert_eq!(job["error"], expected, "{job}");
    }
    let upload_id = uploaded(&world.key(), json!({"kind": KIND}), line("x").as_bytes()).await;
    for object in world.objects(&upload_id) {
        std::fs::remove_file(object).unwrap();
    }
    let job = world
        .ended(&text(&submit(&world.key(), &upload_id).await.body["id"]))
        .await;
    assert_eq!(
        (&job["error"]["code"], &job["attempts"]),
        (&json!("input_unavailable"), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_announced_or_not() {
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
    let mut answer = vec![0; 1024];
    let n = socket.read(&mut answer).await.unwrap();
    assert!(
        answer[..n].starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer[..n])
    );
    let chunks = |mebibytes: usize| {
        reqwest::Body::wrap_stream(futures_util::stream::iter(
            (0..mebibytes).map(|_| Ok::<_, std::io::Error>(vec![b'\n'; 1 << 20])),
        ))
    };
    let chunked = put(&key, &upload_id, 1, chunks(65)).await;
    assert_eq!(
        (chunked.status, code(&chunked)),
        (413, "payload_too_large".to_owned())
    );
    until("nothing is left", PATIENCE, async || {
        world.objects(&upload_id).is_empty()
    })
    .await;

    let free = org(&world.stack, "free").await;
    let free = world.client(&free.key);
    let upload_id = open(&free, json!({"kind": KIND})).await;
    assert_eq!(
        put(&free, &upload_id, 1, vec![b'\n'; 64 << 20])
            .await
            .status,
        200
    );
    for body in [chunks(37), reqwest::Body::from(vec![b'\n'; 37 << 20])] {
        let over = put(&free, &upload_id, 2, body).await;
        assert_eq!(
            (over.status, code(&over)),
            (413, "payload_too_large".to_owned()),
            "more than the plan's 100 MiB"
        );
    }
    assert_eq!(
        put(&free, &upload_id, 1, vec![b'\n'; 64 << 20])
            .await
            .status,
        200,
        "in place of itself"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_organizations_upload_does_not_exist() {
    let world = world().await;
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
        let (theirs, unknown) = (
            submit(&stranger, id).await,
            submit(&stranger, nothing).await,
        );
        assert_eq!(
            (theirs.status, &theirs.body["error"]["details"]),
            (422, &unknown.body["error"]["details"])
        );
        assert_eq!(faults(&theirs), [fault("input_ref", "not_found")]);
    }
    assert_eq!(submit(&world.key(), &ready).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_submission_inline_or_by_upload_is_one() {
    let world = world().await;
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
    let inline = send(json!({"suite_id": demo_suite::SUITE_ID, "predictions": predictions})).await;
    assert_eq!(
        (
            inline.status,
            inline.header("idempotency-replayed"),
            &inline.body["id"]
        ),
        (202, "true", &first.body["id"])
    );
    world.ended(&text(&first.body["id"])).await;
    assert_eq!(delete(&key, &upload_id).await.status, 204);
    let again = send(by_upload.clone()).await;
    assert_eq!(
        (again.status, &again.body["id"]),
        (202, &first.body["id"]),
        "also when the upload is gone: {}",
        again.body
    );
    assert_eq!(
        faults(&key.post("/v1/evals", &by_upload).await.unwrap()),
        [fault("input_ref", "not_found")]
    );
    assert_eq!(
        world.key().get("/v1/usage").await.unwrap().body["totals"]["eval_items"],
        1
    );
}

/// Moves an upload's end into the past, as the database's owner.
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
async fn what_has_expired_says_so_and_is_removed_when_no_job_needs_it() {
    let mut world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let key = world.key();
    let pending = open(&key, json!({"kind": KIND})).await;
    put(&key, &pending, 1, LINE).await;
    let (unused, needed) = (
        uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await,
        uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await,
    );
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
            faults(&submit(&key, upload_id).await),
            [fault("input_ref", "not_found")]
        );
    }
    for refused in [
        put(&key, &pending, 1, LINE).await,
        complete(&key, &pending).await,
    ] {
        assert_eq!(
            (refused.status, code(&refused)),
            (409, "invalid_state".to_owned())
        );
    }
    // What a process that died left behind.
    std::fs::write(world.objects(&pending)[0].with_file_name("7-orphan#1"), "x").unwrap();
    // A process looks for what is to be removed when it starts; whichever leads does it.
    world.stack.apis.clear();
    world.stack.apis.push(world.stack.launch_api().unwrap());
    world.stack.apis[0].ready().await.unwrap();
    until("removal", PATIENCE, async || {
        world.objects(&pending).is_empty() && world.objects(&unused).is_empty()
    })
    .await;
    assert_eq!(world.objects(&needed).len(), 1, "a job needs it");
    let _worker = world.stack.launch_worker().unwrap();
    assert_eq!(
        world.ended(&text(&job.body["id"])).await["status"],
        "succeeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_a_job_needs_is_not_dropped() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let key = world.key();
    let upload_id = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
    let job = text(&submit(&key, &upload_id).await.body["id"]);
    let refused = delete(&key, &upload_id).await;
    assert_eq!(
        (refused.status, code(&refused)),
        (409, "invalid_state".to_owned())
    );
    key.send(key.request("POST", &format!("/v1/jobs/{job}/cancel")))
        .await
        .unwrap();
    assert_eq!(delete(&key, &upload_id).await.status, 204);
    assert!(world.objects(&upload_id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_and_submitting_at_once_leaves_no_job_without_its_input() {
    let world = world().await;
    let key = world.key();
    let (mut accepted, mut dropped) = (0, 0);
    for _ in 0..30 {
        let upload_id = uploaded(&key, json!({"kind": KIND}), LINE.as_bytes()).await;
        let (job, gone) = tokio::join!(submit(&key, &upload_id), delete(&key, &upload_id));
        match (job.status, gone.status) {
            (202, 409) => accepted += 1,
            (422, 204) => dropped += 1,
            // The job had ended before the upload was dropped.
            (202, 204) => {}
            other => panic!("{other:?}: {} {}", job.body, gone.body),
        }
        if job.status == 202 {
            assert_eq!(
                world.ended(&text(&job.body["id"])).await["status"],
                "succeeded"
            );
        }
    }
    assert!(accepted + dropped > 0);
    let wrong = "select count(*) from jobs where status <> 'succeeded'";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(wrong)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_at_once_is_completing_once() {
    // Both tell the same address.
    let world = world_of(Plan {
        apis: 2,
        ..with("ASSAY_PUBLIC_URL", "https://assay.example")
    })
    .await;
    let (key, second) = (
        world.key(),
        Client::new(
            format!("http://{}", world.stack.apis[1].listen.unwrap()),
            Some(&world.org.key),
        ),
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
async fn a_part_that_comes_while_the_upload_is_completed_counts_or_is_refused() {
    let world = world().await;
    let key = world.key();
    let many = LINE.repeat(100_000);
    let (mut changed, mut kept) = (0, 0);
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
                    (code(&done), &upload["status"]),
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
        "what was checked is what counts: {changed} {kept}"
    );
    assert!(changed > 0, "{changed} {kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_killed_while_parts_come_or_are_read_loses_no_part_that_it_answered_for() {
    let mut world = world().await;
    let key = world.key();
    let upload_id = open(&key, json!({"kind": KIND})).await;
    let many = (0..200_000)
        .map(|at| format!("{{\"item_id\":\"{at}\",\"prediction\":\"ramen\"}}\n"))
        .collect::<String>();
    let (first, second) = many.split_at(many.len() / 2);
    assert_eq!(put(&key, &upload_id, 1, first.to_owned()).await.status, 200);
    // In the middle of a part.
    let slow = futures_util::stream::unfold(0, |at| async move {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        (at < 100).then(|| (Ok::<_, std::io::Error>(vec![b'\n'; 1 << 20]), at + 1))
    });
    let request = key
        .request("PUT", &format!("/v1/uploads/{upload_id}/parts/2"))
        .body(reqwest::Body::wrap_stream(slow));
    let sending = tokio::spawn(async move { request.send().await.is_err() });
    until("an object that was begun", PATIENCE, async || {
        world.objects(&upload_id).len() == 2
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
    assert_eq!(
        put(&key, &upload_id, 2, second.to_owned()).await.status,
        200
    );
    // In the middle of reading.
    let (asking, id) = (key.clone(), upload_id.clone());
    let completing = tokio::spawn(async move {
        asking
            .send(asking.request("POST", &format!("/v1/uploads/{id}/complete")))
            .await
    });
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    replace_api(&mut world).await;
    assert!(
        completing.await.unwrap().is_err(),
        "it was killed before it had answered"
    );
    let done = complete(&world.key(), &upload_id).await;
    assert_eq!(
        (done.status, &done.body["n_items"]),
        (200, &json!(200_000)),
        "{}",
        done.body
    );
    let job = submit(&world.key(), &upload_id).await;
    assert_eq!(
        world.ended(&text(&job.body["id"])).await["result"]["n_unmatched"],
        200_000
    );
}

/// Kills the api and starts another.
async fn replace_api(world: &mut World) {
    world.stack.apis[0].guarded.signal(libc::SIGKILL);
    world.stack.apis.clear();
    world.stack.apis.push(world.stack.launch_api().unwrap());
    world.stack.apis[0].ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_a_hundred_uploads_are_open() {
    let world = world().await;
    let key = world.key();
    let made = futures_util::future::join_all((0..110).map(|_| async {
        key.post("/v1/uploads", &json!({"kind": KIND}))
            .await
            .unwrap()
    }))
    .await;
    let (made, refused): (Vec<_>, Vec<_>) =
        made.into_iter().partition(|answer| answer.status == 201);
    assert_eq!((made.len(), refused.len()), (100, 10));
    let details = &refused[0].body["error"]["details"];
    assert_eq!(
        (code(&refused[0]), &details["limit"], &details["max"]),
        (
            "quota_exceeded".to_owned(),
            &json!("open_uploads"),
            &json!(100)
        )
    );
    let first = made
        .iter()
        .map(|answer| text(&answer.body["expires_at"]))
        .min()
        .unwrap();
    assert_eq!(details["resets_at"], first.as_str());
    assert_eq!(delete(&key, &text(&made[0].body["id"])).await.status, 204);
    assert_eq!(
        key.post("/v1/uploads", &json!({"kind": KIND}))
            .await
            .unwrap()
            .status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_and_sends_nothing() {
    let world = world().await;
    let viewer = world.member("viewer").await;
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    assert_eq!(
        viewer
            .get(&format!("/v1/uploads/{upload_id}"))
            .await
            .unwrap()
            .status,
        200
    );
    let refused = [
        put(&viewer, &upload_id, 1, LINE).await,
        complete(&viewer, &upload_id).await,
        delete(&viewer, &upload_id).await,
    ];
    for refused in refused {
        assert_eq!(
            (refused.status, code(&refused)),
            (403, "forbidden".to_owned())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_arrives_too_slowly_returns_400() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = world().await;
    let upload_id = open(&world.key(), json!({"kind": KIND})).await;
    let mut socket = tokio::net::TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "PUT /v1/uploads/{upload_id}/parts/1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 10\r\n\r\nx",
        world.org.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let n = tokio::time::timeout(std::time::Duration::from_secs(40), socket.read(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
    assert!(
        answer.starts_with("HTTP/1.1 400")
            && answer.contains("arrives too slowly")
            && answer.contains("x-ratelimit-limit: 1000"),
        "{answer}"
    );
    let upload = world
        .key()
        .get(&format!("/v1/uploads/{upload_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(upload["parts"], json!([]));
}
