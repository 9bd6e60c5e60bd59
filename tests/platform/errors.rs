//! Protocol rules: every response's headers and every error's body.

use serde_json::json;

use crate::harness::{
    Expect, before_longest_wait, error_code, field_error, field_errors, in_time, scrape,
    shared_world, string, world,
};

#[tokio::test(flavor = "multi_thread")]
async fn health_returns_build_and_environment() {
    let world = shared_world().await;
    let health = world.anonymous().get("/health").await.expect_status(200);
    assert_eq!(health.body["env"], "development");
    assert_eq!(health.body["git_sha"], health.body["hfm_sha"]);
    assert_eq!(string(&health.body["git_sha"]).len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_id_and_limits() {
    let world = shared_world().await;
    let client = world.anonymous();
    let requests = [
        client.request("GET", "/health"),
        client.request("GET", "/nowhere"),
        client.request("PUT", "/v1/keys"),
        client.request("GET", "/v1/me"),
        world
            .key()
            .request("POST", "/v1/evals")
            .header("content-type", "application/json")
            .body("x".repeat(6 << 20)),
        world.key().request("GET", "/v1/me"),
        client.request("GET", "/assay.v1.MeService/GetMe"),
        client
            .request("POST", "/assay.v1.MeService/GetMe")
            .header("content-type", "application/grpc"),
        client
            .request("POST", "/nowhere.Service/Get")
            .header("content-type", "application/grpc"),
    ];
    let mut seen = std::collections::HashSet::new();
    for request in requests {
        let response = client
            .send(request.header("x-request-id", "req_mine"))
            .await
            .unwrap();
        let id = response.header("x-request-id").to_owned();
        assert!(id.starts_with("req_") && id.len() == 26, "{id}");
        assert!(seen.insert(id.clone()), "ids are unique");
        for header in [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ] {
            assert!(
                response.header(header).parse::<u64>().is_ok(),
                "{header}: {response:?}"
            );
        }
        if response.status >= 400 {
            assert_eq!(response.body["error"]["request_id"], id.as_str());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_path_404_wrong_method_405() {
    let world = shared_world().await;
    for client in [world.anonymous(), world.key()] {
        client
            .get("/v1/nowhere")
            .await
            .expect_error(404, "not_found");
        let wrong = client
            .send(client.request("PUT", "/v1/keys"))
            .await
            .expect_error(405, "invalid_request");
        assert_eq!(wrong.header("allow"), "GET,HEAD,POST");
    }
    for method in ["OPTIONS", "TRACE", "QUERY", "BREW"] {
        for (path, allowed) in [
            ("/v1/keys", "GET,HEAD,POST"),
            ("/v1/members/usr_0", "PATCH,DELETE"),
            ("/health", "GET,HEAD"),
        ] {
            let refused = world
                .key()
                .send(world.key().request(method, path))
                .await
                .expect_status(405);
            assert_eq!(refused.header("allow"), allowed, "{method} {path}");
            assert!(
                refused.header("x-request-id").starts_with("req_")
                    && !refused.header("x-ratelimit-limit").is_empty()
            );
            assert_eq!(error_code(&refused), "invalid_request", "{method} {path}");
        }
    }
    world
        .key()
        .get("/v1/jobs/%ff")
        .await
        .expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_the_body() {
    let world = shared_world().await;
    let http2 = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    for http in [reqwest::Client::new(), http2] {
        for (token, path, status) in [
            (Some(&world.org.key), "/v1/me", 200),
            (None, "/v1/me", 401),
            (None, "/v1/nowhere", 404),
            (Some(&world.org.key), "/v1/evals", 405),
        ] {
            let send = async |method: reqwest::Method| {
                let mut request = http.request(method, format!("{}{path}", world.stack.url()));
                if let Some(token) = token {
                    request = request.bearer_auth(token);
                }
                let response = request.send().await.unwrap();
                let header = |name: &str| {
                    response
                        .headers()
                        .get(name)
                        .map(|value| value.to_str().unwrap().to_owned())
                };
                let headers = (
                    response.status().as_u16(),
                    header("content-type"),
                    header("content-length"),
                    header("www-authenticate"),
                );
                assert!(
                    header("x-request-id").is_some() && header("x-ratelimit-remaining").is_some()
                );
                (headers, response.bytes().await.unwrap())
            };
            let ((head, nothing), (get, body)) = (
                send(reqwest::Method::HEAD).await,
                send(reqwest::Method::GET).await,
            );
            assert_eq!((head.0, nothing.len()), (status, 0), "{path}");
            assert_eq!(head, get, "{path}");
            assert_eq!(get.2, Some(body.len().to_string()), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_returns_400_and_invalid_422() {
    let world = shared_world().await;
    let owner = world.owner();
    let send = async |content_type: &str, body: Vec<u8>| {
        owner
            .send(
                owner
                    .request("POST", "/v1/keys")
                    .header("content-type", content_type)
                    .body(body),
            )
            .await
            .unwrap()
    };
    let malformed: [(&str, &[u8]); 7] = [
        ("text/plain", b"{\"name\": \"x\"}"),
        ("application/json; charset=latin1", b"{\"name\": \"x\"}"),
        ("application/json", b""),
        ("application/json", b"{\"name\": \"x\""),
        ("application/json", b"{\"name\": \"\xff\"}"),
        ("application/json", b"{\"name\": \"x\"} {}"),
        ("application/json", &[b'['; 300]),
    ];
    for (content_type, body) in malformed {
        send(content_type, body.to_vec())
            .await
            .expect_error(400, "invalid_request");
    }
    let unfit = [
        (json!([]), vec![field_error("body", "type")]),
        (json!({}), vec![field_error("name", "required")]),
        (json!({"name": null}), vec![field_error("name", "required")]),
        (json!({"name": "  "}), vec![field_error("name", "required")]),
        (json!({"name": 7}), vec![field_error("name", "type")]),
        (json!({"name": ["x"]}), vec![field_error("name", "type")]),
        (
            json!({"name": "a\u{0}b"}),
            vec![field_error("name", "format")],
        ),
        (
            json!({"name": "x".repeat(201)}),
            vec![field_error("name", "range")],
        ),
        (
            json!({"name": "x", "nmae": 1}),
            vec![field_error("nmae", "unknown_field")],
        ),
    ];
    for (body, expected) in unfit {
        let response = owner
            .post("/v1/keys", &body)
            .await
            .expect_error(422, "validation_failed");
        assert_eq!(field_errors(&response), expected, "{body}");
    }
    let twice = send(
        "application/json",
        b"{\"name\": \"x\", \"name\": \"y\"}".to_vec(),
    )
    .await;
    assert_eq!(field_errors(&twice), [field_error("name", "duplicate")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_body_returns_413() {
    let world = shared_world().await;
    let key = world.key();
    let announced = key
        .request("POST", "/v1/evals")
        .header("content-type", "application/json")
        .body(vec![b' '; (5 << 20) + 1]);
    key.send(announced)
        .await
        .expect_error(413, "payload_too_large");
    let chunks =
        futures_util::stream::iter((0..6).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20])));
    let chunked = key
        .request("POST", "/v1/evals")
        .header("content-type", "application/json")
        .body(reqwest::Body::wrap_stream(chunks));
    key.send(chunked)
        .await
        .expect_error(413, "payload_too_large");
    let small = world
        .owner()
        .request("POST", "/v1/keys")
        .header("content-type", "application/json")
        .body(vec![b' '; (64 << 10) + 1]);
    world.owner().send(small).await.expect_status(413);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_content_length_skips_body() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = shared_world().await;
    let mut socket = tokio::net::TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /v1/evals HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 9999999\r\nexpect: 100-continue\r\n\r\n",
        world.org.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = vec![0; 1024];
    let n = socket.read(&mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response[..n]).into_owned();
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_error_discloses_no_internals() {
    let world = world().await;
    let mut database = world.database().await;
    sqlx::raw_sql("alter table suites rename to suites_away")
        .execute(&mut database)
        .await
        .unwrap();
    let response = world
        .key()
        .get("/v1/suites")
        .await
        .expect_error(500, "internal");
    let body = response.body.to_string().to_lowercase();
    for word in ["suites", "sql", "relation", "postgres"] {
        assert!(!body.contains(word), "{body}");
    }
    let log = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
    assert!(
        log.contains("relation \\\"suites\\\" does not exist"),
        "the log names the cause"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = shared_world().await;
    let address = world.stack.apis[0].listen.unwrap();
    let closed = async |sent: &str| {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // A reset ends the connection, too.
        let _ = socket.read_to_end(&mut rest).await;
    };
    // Nothing, the first HTTP/1.1 and HTTP/2 bytes, and incomplete request headers.
    // They are closed earlier than idle connections, which stay open for 75 s.
    before_longest_wait(&world.key(), async || {
        tokio::join!(
            closed(""),
            closed("P"),
            closed("PRI * HTTP/2.0\r\n"),
            closed("GET /health HTTP/1.1\r\nhost: x\r\n")
        );
    })
    .await;
    world.anonymous().get("/health").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_input_never_becomes_label() {
    let world = world().await;
    let client = world.anonymous();
    for word in ["BREW", "WHEN"] {
        client
            .send(client.request(word, "/v1/keys"))
            .await
            .expect_status(405);
    }
    client.get("/v1/nowhere/of-mine").await.unwrap();
    let metrics = scrape(&world.stack.apis[0]).await;
    assert!(
        metrics.contains(
            "assay_requests_total{protocol=\"rest\",operation=\"unknown\",outcome=\"client_error\"} 3"
        ),
        "{metrics}"
    );
    assert!(
        !metrics.contains("BREW")
            && !metrics.contains("of-mine")
            && !metrics.contains(&world.org.id),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cors_allows_only_configured_origins() {
    let world = crate::harness::world_with(crate::harness::with_setting(
        "ASSAY_CORS_ORIGINS",
        "https://app.example.org, http://localhost:3000",
    ))
    .await;
    let client = world.anonymous();
    let preflight = async |path: &str, origin: &str, method: &str| {
        let request = client
            .request("OPTIONS", path)
            .header("origin", origin)
            .header("access-control-request-method", method);
        client
            .send(request.header(
                "access-control-request-headers",
                "authorization,content-type,x-grpc-web",
            ))
            .await
            .unwrap()
    };
    for path in ["/v1/keys/key_0", "/assay.v1.EvalService/CreateEval"] {
        let allowed = preflight(path, "https://app.example.org", "DELETE").await;
        assert_eq!(
            (
                allowed.status,
                allowed.header("access-control-allow-origin")
            ),
            (200, "https://app.example.org"),
            "{path}"
        );
        for (header, part) in [
            ("access-control-allow-methods", "DELETE"),
            ("access-control-allow-headers", "x-grpc-web"),
            ("access-control-allow-headers", "authorization"),
            ("access-control-max-age", "3600"),
            ("x-request-id", "req_"),
        ] {
            assert!(
                allowed.header(header).contains(part),
                "{path}: {header}: {}",
                allowed.header(header)
            );
        }
        assert_eq!(
            preflight(path, "https://elsewhere.example.org", "POST")
                .await
                .header("access-control-allow-origin"),
            ""
        );
    }
    let read = world
        .key()
        .request("GET", "/v1/me")
        .header("origin", "http://localhost:3000");
    let read = world.key().send(read).await.unwrap();
    assert_eq!(
        (read.status, read.header("access-control-allow-origin")),
        (200, "http://localhost:3000")
    );
    for header in [
        "x-request-id",
        "x-ratelimit-remaining",
        "retry-after",
        "idempotency-replayed",
        "grpc-status",
        "grpc-status-details-bin",
    ] {
        assert!(
            read.header("access-control-expose-headers")
                .contains(header),
            "{header}"
        );
    }
    // An error can be read too.
    let refused = client
        .send(
            client
                .request("GET", "/v1/me")
                .header("origin", "http://localhost:3000"),
        )
        .await
        .unwrap();
    assert_eq!(
        (
            refused.status,
            refused.header("access-control-allow-origin")
        ),
        (401, "http://localhost:3000")
    );
    // OPTIONS without a preflight request's headers is a method like any other.
    client
        .send(
            client
                .request("OPTIONS", "/v1/me")
                .header("origin", "http://localhost:3000"),
        )
        .await
        .expect_status(405);
}

#[tokio::test(flavor = "multi_thread")]
async fn unrouted_requests_count_against_the_organization() {
    let world = world().await;
    let http2 = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let unknown_rpc = http2
        .post(format!("{}/nowhere.Service/Get", world.stack.url()))
        .header("content-type", "application/grpc");
    let requests = [
        (world.key().request("GET", "/v1/nowhere"), 404),
        (world.key().request("PUT", "/v1/me"), 405),
        (world.key().request("GET", "/assay.v1.MeService/GetMe"), 404),
        (unknown_rpc.bearer_auth(&world.org.key), 200),
    ];
    for (already, (request, status)) in requests.into_iter().enumerate() {
        let response = request.send().await.unwrap();
        let header = |name: &str| {
            response.headers()[name]
                .to_str()
                .unwrap()
                .parse::<usize>()
                .unwrap()
        };
        let left = (header("x-ratelimit-limit"), header("x-ratelimit-remaining"));
        assert_eq!(
            (response.status().as_u16(), left),
            (status, (1000, 999 - already))
        );
    }
    // Without a valid credential, the response shows the address's limit. A wrong credential
    // counts as a failed authentication.
    let anonymous = world
        .anonymous()
        .get("/v1/nowhere")
        .await
        .expect_status(404);
    assert_eq!(anonymous.header("x-ratelimit-limit"), "10");
    assert_eq!(anonymous.header("x-ratelimit-remaining"), "10");
    let guessed = world
        .client("svc_live_guess")
        .get("/v1/nowhere")
        .await
        .expect_status(404);
    assert_eq!(guessed.header("x-ratelimit-limit"), "10");
    assert_eq!(guessed.header("x-ratelimit-remaining"), "9");
    let free = crate::harness::org(&world.stack, "free").await;
    for _ in 0..60 {
        world
            .client(&free.key)
            .get("/v1/nowhere")
            .await
            .expect_status(404);
    }
    world
        .client(&free.key)
        .get("/v1/nowhere")
        .await
        .expect_status(429);
    world
        .client(&free.key)
        .get("/v1/me")
        .await
        .expect_status(429);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_identifying_headers_return_400() {
    let world = shared_world().await;
    let owner = world.owner();
    let json = || {
        owner
            .request("POST", "/v1/keys")
            .header("content-type", "application/json")
            .body("{}")
    };
    for (request, name) in [
        (
            owner.request("GET", "/v1/me").bearer_auth(&world.org.key),
            "authorization",
        ),
        (
            owner
                .request("GET", "/v1/me")
                .header("x-org-id", &world.org.id)
                .header("x-org-id", &world.org.id),
            "x-org-id",
        ),
        (json().header("content-type", "text/plain"), "content-type"),
        (
            world
                .anonymous()
                .request("GET", "/health")
                .header("x-org-id", "a")
                .header("x-org-id", "b"),
            "x-org-id",
        ),
    ] {
        let response = owner.send(request).await.unwrap();
        assert_eq!(
            (response.status, error_code(&response)),
            (400, "invalid_request".to_owned()),
            "{name}: {}",
            response.body
        );
        assert!(
            string(&response.body["error"]["message"]).contains(name),
            "{}",
            response.body
        );
    }
}

/// Sends raw bytes and returns the status and the complete response.
async fn raw(world: &crate::harness::World, bytes: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut socket = tokio::net::TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let read = in_time("the end of the response", socket.read_to_end(&mut response));
    // A reset ends the connection, too.
    let _ = read.await;
    let response = String::from_utf8_lossy(&response).into_owned();
    (
        response
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0),
        response,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_request_headers_return_error_body() {
    let world = shared_world().await;
    let long = "x".repeat(9_000);
    let some = "x".repeat(2_000);
    let many: String = (0..12).map(|i| format!("X-{i}: {some}\r\n")).collect();
    for (head, expected) in [
        ("GET /health HTTP/1.1\r\nHost: assay\r\n".to_owned(), 200),
        ("GET /health HTTP/1.1\r\nHost:\r\n".to_owned(), 200),
        ("GET /health HTTP/1.0\r\n".to_owned(), 200),
        ("GET /health HTTP/1.1\r\n".to_owned(), 400),
        (
            "GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n".to_owned(),
            400,
        ),
        ("GET /health HTTP/1.1\r\nHost: a, b\r\n".to_owned(), 400),
        (
            format!("GET /health?{long} HTTP/1.1\r\nHost: assay\r\n"),
            414,
        ),
        (
            format!("GET /health HTTP/1.1\r\nHost: assay\r\n{many}"),
            431,
        ),
        (
            "GET /health HTTP/1.1\r\nHost: assay\r\nContent-Encoding: Identity\r\n".to_owned(),
            200,
        ),
        (
            "GET /health HTTP/1.1\r\nHost: assay\r\nContent-Encoding: identity, br\r\n".to_owned(),
            415,
        ),
    ] {
        let (status, response) = raw(&world, &format!("{head}Connection: close\r\n\r\n")).await;
        assert_eq!(status, expected, "{response}");
        let response = response.to_lowercase();
        assert!(
            response.contains("x-request-id: req_") && response.contains("x-ratelimit-reset: "),
            "{response}"
        );
        assert!(
            status == 200 || response.contains("\"code\":\"invalid_request\""),
            "{response}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_not_stored_by_caches() {
    let world = shared_world().await;
    let token = world.sign_in_link("cache@example.org").await;
    let owner = world.owner();
    let anonymous = world.anonymous();
    for response in [
        owner.post("/v1/keys", &json!({"name": "x"})).await.unwrap(),
        anonymous
            .post("/v1/auth/email/verify", &json!({"token": token}))
            .await
            .unwrap(),
        owner.get("/v1/me").await.unwrap(),
        anonymous.get("/v1/me").await.unwrap(),
    ] {
        assert_eq!(
            response.header("cache-control"),
            "no-store",
            "{}",
            response.body
        );
    }
    // The documentation is the same for all callers, so caches may store it.
    assert_eq!(
        anonymous
            .get("/docs/")
            .await
            .unwrap()
            .header("cache-control"),
        "no-cache"
    );
}
