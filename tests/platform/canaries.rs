//! Canaries: unique secrets are planted wherever callers and operators enter theirs, and then
//! searched for in every place that stores or shows data. Each must appear where it belongs, and
//! nowhere else.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assay_proto::v1;
use assay_proto::v1::auth_service_client::AuthServiceClient;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::key_service_client::KeyServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use assay_tests::servers::Servers;
use assay_tests::stack::{Ground, Stack, StackSize};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use self::places::{
    Places, add_files, connect_redis, monitor_redis, processes, redis_content, tables,
};
use crate::artifacts::start_s3;
use crate::device;
use crate::harness::{Expect, World, ground, org, secrets_in, string, wait_until, with_token};
use crate::mail;
use crate::spans::Collector;
use crate::uploads::{complete, open, put};

pub mod places;

/// Returns a unique string that appears nowhere by chance.
fn canary(kind: &str) -> String {
    databases::fresh_name(kind).replace('_', "")
}

/// All responses that callers received.
#[derive(Clone, Default)]
struct Responses(Arc<Mutex<Places>>);

impl Responses {
    fn rest(&self, response: &Response) {
        let place = if response.status < 300 {
            "responses"
        } else {
            "errors"
        };
        self.0
            .lock()
            .unwrap()
            .add(place, format!("{:?} {}", response.headers, response.body));
    }

    fn grpc<T: std::fmt::Debug>(&self, response: &Result<tonic::Response<T>, tonic::Status>) {
        match response {
            Ok(response) => self
                .0
                .lock()
                .unwrap()
                .add("responses", format!("{response:?}")),
            Err(status) => {
                self.0.lock().unwrap().add("errors", format!("{status:?}"));
                self.0.lock().unwrap().add("errors", status.details());
            }
        }
    }
}

/// A planted secret: its description and value, the places that must contain it, and the further
/// places that may contain it.
struct Secret {
    what: &'static str,
    text: String,
    must: &'static [&'static str],
    may: &'static [&'static str],
}

/// All planted secrets.
#[derive(Default)]
struct Planted(Vec<Secret>);

impl Planted {
    fn add(
        &mut self,
        what: &'static str,
        text: &str,
        must: &'static [&'static str],
        may: &'static [&'static str],
    ) {
        self.0.push(Secret {
            what,
            text: text.to_owned(),
            must,
            may,
        });
    }

    /// Plants a secret that must be in these places, and in no others.
    fn only_in(&mut self, what: &'static str, must: &'static [&'static str]) -> String {
        let text = canary(
            &what
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>(),
        );
        self.add(what, &text, must, &[]);
        text
    }

    /// Plants a secret that may be in these places, and in no others.
    fn at_most_in(&mut self, what: &'static str, may: &'static [&'static str]) -> String {
        let text = canary(
            &what
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>(),
        );
        self.add(what, &text, &[], may);
        text
    }

    /// Adds a secret that the platform generated, without its public prefix and checksum.
    fn add_generated(&mut self, what: &'static str, secret: &str, must: &'static [&'static str]) {
        assert_eq!(secret.len(), 47, "{what}");
        self.add(what, &secret[14..44], must, &[]);
    }

    /// Lists the secrets that are missing where they must be, or present where they must not be.
    fn misplaced(&self, places: &Places) -> Vec<String> {
        let wrong = |Secret {
                         what,
                         text,
                         must,
                         may,
                     }: &Secret| {
            let found = places.containing(text);
            let fine = must.iter().all(|place| found.contains(place))
                && found
                    .iter()
                    .all(|place| must.contains(place) || may.contains(place));
            (!fine).then(|| format!("{what} {text}: found in {found:?}, must be in {must:?}"))
        };
        self.0.iter().filter_map(wrong).collect()
    }
}

/// Starts a mail server that rejects every login.
async fn refusing_mail_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            let _ = write.write_all(b"220 mail.example.org\r\n").await;
            while let Ok(Some(line)) = lines.next_line().await {
                let reply: &[u8] = match line.get(..4) {
                    Some("EHLO") => b"250-mail.example.org\r\n250 AUTH PLAIN LOGIN\r\n",
                    Some("QUIT") => b"221 bye\r\n",
                    _ => b"535 5.7.8 not let in\r\n",
                };
                if write.write_all(reply).await.is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// Starts a world on its own servers, with a planted password wherever one is possible, and with
/// the most verbose log level.
async fn planted_world(planted: &mut Planted, collector: Option<&Collector>) -> (World, PathBuf) {
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    let redis_password = planted.only_in("password of Redis", &[]);
    let mut redis = connect_redis(servers.redis_url()).await;
    let acl = [
        "SETUSER",
        "canary",
        "on",
        &format!(">{redis_password}"),
        "~*",
        "&*",
        "+@all",
    ];
    redis::cmd("ACL")
        .arg(&acl)
        .query_async::<()>(&mut redis)
        .await
        .unwrap();
    let joint = if servers.redis_url().contains('?') {
        '&'
    } else {
        '?'
    };
    let redis_url = format!(
        "{}{joint}user=canary&pass={redis_password}",
        servers.redis_url()
    );

    let bucket = servers.folder().join("bucket");
    let s3_secret = canary("s3secret");
    // The object store's library reads its secret only from the usual environment variables.
    planted.add(
        "secret of the object store",
        &s3_secret,
        &[],
        &["environment"],
    );
    let endpoint = start_s3(&bucket, &s3_secret).await;
    let env = [
        ("ASSAY_REDIS_URL", redis_url.as_str()),
        ("ASSAY_ARTIFACTS", "s3://assay/some/place"),
        ("AWS_ENDPOINT", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "access"),
        ("AWS_SECRET_ACCESS_KEY", &s3_secret),
        ("ASSAY_LOG", "trace"),
        ("ASSAY_TERMS_VERSION", "1"),
        ("ASSAY_TERMS_URL", "https://example.org/terms"),
        ("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000"),
    ];
    let env = env
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let ground = Arc::new(Ground::new(servers, ground().binaries.clone()));
    let mut stack = Stack::start(
        &ground,
        StackSize {
            apis: 0,
            workers: 0,
            engines: 0,
            env,
        },
    )
    .await
    .unwrap();
    if let Some(collector) = collector {
        stack.set("ASSAY_OTLP_ENDPOINT", &collector.grpc);
    }
    let key = canary("webhooks");
    let key = STANDARD.encode(format!("{key}{key}"));
    planted.add("key of the secrets of webhooks", &key[..40], &[], &[]);
    stack.set("ASSAY_WEBHOOK_KEY", &key);
    stack.keep_secrets_in_files();
    stack.apis.push(stack.launch_api().unwrap());
    stack.workers.push(stack.launch_worker().unwrap());
    // A second API with the text log format, which sends emails.
    let smtp_password = planted.only_in("password of the mail server", &[]);
    stack.set("ASSAY_LOG_FORMAT", "text");
    stack.set(
        "ASSAY_SMTP_URL",
        &format!(
            "smtp://canary:{smtp_password}@127.0.0.1:{}",
            refusing_mail_server().await
        ),
    );
    stack.set("ASSAY_MAIL_FROM", "Assay <assay@example.org>");
    stack.apis.push(stack.launch_api().unwrap());
    for process in stack.apis.iter().chain(&stack.workers) {
        process.ready().await.unwrap();
    }
    for url in [&stack.database.api_url, &stack.database.worker_url] {
        let password = url
            .split("password_")
            .nth(1)
            .unwrap()
            .split(['@', '&'])
            .next()
            .unwrap();
        planted.add(
            "password of PostgreSQL",
            password.split('_').next_back().unwrap(),
            &[],
            &[],
        );
    }
    let org = org(&stack, "team").await;
    (World { stack, org }, bucket)
}

/// Publishes a suite whose answers are secrets, and whose items are not.
async fn publish(world: &World, planted: &mut Planted, responses: &Responses) {
    let folder = world.stack.ground.servers.folder().join("canaries");
    std::fs::create_dir(&folder).unwrap();
    let answer = planted.only_in("hidden answer", &["table suite_answers"]);
    let gain = planted.only_in("hidden answer with a gain", &["table suite_answers"]);
    let suite_files = [
        ("suite.toml", "suite_id = \"suite:canaries\"\nversion = \"1\"\nmetric = \"ndcg@5\"\nper_item_feedback = true\n".to_owned()),
        ("items.ndjson", (0..4).map(|at| format!("{{\"item_id\": \"item-{at}\", \"input\": {{}}}}\n")).collect()),
        (
            "answers.ndjson",
            (0..4).map(|at| format!("{{\"item_id\": \"item-{at}\", \"answer\": {{\"{answer}\": 1, \"{gain}\": 2}}}}\n")).collect(),
        ),
    ];
    publish_files(world, responses, &folder, &suite_files).await;
    publish_groups(world, planted, responses, &folder).await;
    std::fs::remove_dir_all(folder).unwrap();
}

async fn publish_files(
    world: &World,
    responses: &Responses,
    folder: &Path,
    files: &[(&str, String)],
) {
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let published = world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
    let mut places = responses.0.lock().unwrap();
    places.add("responses", published.to_string());
}

/// Publishes a suite whose hidden group fields, retest and baseline are secrets.
async fn publish_groups(
    world: &World,
    planted: &mut Planted,
    responses: &Responses,
    folder: &Path,
) {
    let person = planted.only_in("hidden cluster", &["table suite_answers"]);
    let slice = planted.only_in(
        "hidden slice",
        &["table suite_answers", "table suite_hidden_groups"],
    );
    let retest = planted.only_in("retest answer", &["table suite_retest"]);
    let baseline = planted.only_in("prediction of a baseline", &[]);
    let lines =
        |line: &dyn Fn(usize) -> String| -> String { (0..120).map(|at| line(at) + "\n").collect() };
    let id = |at: usize| format!("\"item_id\":\"item-{at}\"");
    let suite_files = [
        (
            "suite.toml",
            String::from(
                "suite_id = \"suite:canary-groups\"\nversion = \"1\"\nmetric = \"accuracy\"\ncluster = \"person\"\nslices = [\"age\"]\n\
             release = \"ladder(0.1)\"\nmax_submissions = 9\nboard = \"at_close\"\ncloses_at = 2100-01-01T00:00:00Z\n\
             [[baselines]]\nname = \"People\"\nkind = \"human\"\nfile = \"people.ndjson\"\n",
            ),
        ),
        (
            "items.ndjson",
            lines(&|at| format!("{{{},\"input\":{{}}}}", id(at))),
        ),
        (
            "answers.ndjson",
            lines(&|at| {
                let groups = format!(
                    "{{\"person\":\"{person}{}\",\"age\":\"{slice}{}\"}}",
                    at % 24,
                    at % 2
                );
                format!(
                    "{{{},\"answer\":\"{}\",\"groups\":{groups}}}",
                    id(at),
                    at % 3
                )
            }),
        ),
        (
            "retest.ndjson",
            lines(&|at| format!("{{{},\"answers\":[\"{}\",\"{retest}\"]}}", id(at), at % 3)),
        ),
        (
            "people.ndjson",
            lines(&|at| {
                let label = if at % 5 == 0 {
                    baseline.clone()
                } else {
                    (at % 3).to_string()
                };
                format!("{{{},\"prediction\":\"{label}\"}}", id(at))
            }),
        ),
    ];
    publish_files(world, responses, folder, &suite_files).await;
}

/// Scores a job on the suite with hidden groups, and reads everything about both.
async fn read_groups(world: &World, responses: &Responses) {
    let predictions: Vec<_> = (0..120)
        .map(|at| json!({"item_id": format!("item-{at}"), "prediction": (at % 4).to_string()}))
        .collect();
    let eval = json!({"suite_id": "suite:canary-groups", "predictions": predictions});
    let job = crate::harness::submit_until_succeeded(&world.key(), &eval).await;
    let suite = "/v1/suites/suite:canary-groups";
    for path in [
        format!("/v1/jobs/{}", string(&job["id"])),
        suite.to_owned(),
        format!("{suite}/items?limit=200"),
        format!("{suite}/board"),
        format!("{suite}/commitment"),
    ] {
        responses.rest(&world.key().get(&path).await.unwrap());
    }
}

/// Signs in by a link, and creates, uses, revokes and misplaces credentials. Returns the signed-in
/// client.
async fn credentials(world: &World, planted: &mut Planted, responses: &Responses) -> Client {
    let owner = world.owner();
    for (path, body) in [
        ("/v1/terms/accept", json!({"version": "1"})),
        ("/v1/terms/accept", json!({"version": "2"})),
    ] {
        responses.rest(&owner.post(path, &body).await.unwrap());
    }
    let made = owner
        .post("/v1/keys", &json!({"name": "canary"}))
        .await
        .expect_status(201);
    let key = string(&made.body["key"]);
    planted.add_generated("key", &key, &[]);
    let new = json!({"url": "https://receiver.invalid/", "events": ["ping"]});
    let webhook = owner.post("/v1/webhooks", &new).await.expect_status(201);
    let path = format!("/v1/webhooks/{}", string(&webhook.body["id"]));
    let rotated = owner
        .post(&format!("{path}/rotate"), &json!({}))
        .await
        .expect_status(201);
    for created in [&webhook, &rotated] {
        // Without its prefix, and the last characters, which the webhook shows.
        let secret = string(&created.body["secret"]);
        planted.add("secret of a webhook", &secret[6..46], &[], &[]);
    }
    let test = owner
        .post(&format!("{path}/test"), &json!({}))
        .await
        .expect_status(202);
    responses.rest(&test);
    for path in [
        path.clone(),
        format!("{path}/deliveries"),
        "/v1/audit".into(),
    ] {
        responses.rest(&owner.get(&path).await.unwrap());
    }
    planted.add_generated("key created by the operator", &world.org.key, &[]);
    planted.add_generated("session created by the operator", &world.org.session, &[]);
    // The first response to the program is lost, the second one has the same key.
    let login = device::start(world, "canary program").await;
    planted.add_generated("device code", &string(&login["device_code"]), &[]);
    planted.add("user code", &string(&login["user_code"]), &[], &[]);
    device::approve(world, &login, &world.org).await;
    for _ in 0..2 {
        let granted = device::poll(world, &login).await;
        let key = string(&granted.body["api_key"]["key"]);
        planted.add_generated("key of a device login", &key, &[]);
    }
    let unknown = json!({"device_code": key});
    let refused = device::poll(world, &unknown).await.expect_status(401);
    responses.rest(&refused);
    // A link is used over REST, then again over REST and over gRPC.
    let email = format!("{}@example.org", canary("person"));
    let token = world.sign_in_link(&email).await;
    planted.add_generated("link", &token, &["mails"]);
    let signed_in = world
        .anonymous()
        .post("/v1/auth/email/verify", &json!({"token": token}))
        .await
        .expect_status(201);
    planted.add_generated("session", &string(&signed_in.body["token"]), &[]);
    let again = json!({"token": token});
    responses.rest(
        &world
            .anonymous()
            .post("/v1/auth/email/verify", &again)
            .await
            .unwrap(),
    );
    let by_grpc = AuthServiceClient::new(world.channel().await)
        .verify_sign_in(v1::VerifySignInRequest {
            token: token.clone(),
        })
        .await;
    assert!(by_grpc.is_err());
    responses.grpc(&by_grpc);
    let person = world.client(&string(&signed_in.body["token"]));
    for path in ["/v1/me", "/v1/keys", "/v1/jobs"] {
        responses.rest(&person.get(path).await.unwrap());
    }
    // Credentials in wrong places, and with a wrong prefix.
    let anonymous = world.anonymous();
    let typo = key.replace("svc_live_", "svc_sess_");
    let misplaced = [
        anonymous.request("GET", &format!("/v1/me?key={key}")),
        anonymous.request("GET", "/v1/me").header("x-api-key", &key),
        anonymous
            .request("GET", "/v1/me")
            .basic_auth(&key, Some(&key)),
        anonymous
            .request("GET", "/v1/me")
            .header("authorization", &key),
        anonymous
            .request("GET", "/v1/me")
            .header("cookie", format!("session={key}")),
        anonymous.request("GET", "/v1/me").bearer_auth(&typo),
        anonymous.request("GET", "/v1/me").bearer_auth(&token),
        anonymous.request("GET", &format!("/v1/{key}")),
        owner.request("GET", &format!("/v1/jobs?{key}=1&limit={key}&before={key}")),
        owner.request("GET", &format!("/v1/jobs/{key}")),
        owner
            .request("GET", "/v1/me")
            .header("x-org-id", &key)
            .header("traceparent", &key)
            .header("x-forwarded-for", &key),
    ];
    for (at, request) in misplaced.into_iter().enumerate() {
        let response = anonymous.send(request).await.unwrap();
        // The error for an unknown parameter repeats its name to the caller.
        if at != 8 {
            responses.rest(&response);
        }
    }
    let mut keys = KeyServiceClient::new(world.channel().await);
    responses.grpc(
        &keys
            .list_keys(with_token(v1::ListKeysRequest::default(), &key))
            .await,
    );
    responses.grpc(
        &keys
            .list_keys(with_token(v1::ListKeysRequest::default(), &typo))
            .await,
    );
    responses.grpc(
        &keys
            .list_keys(with_token(
                v1::ListKeysRequest::default(),
                &world.org.session,
            ))
            .await,
    );
    let revoked = owner
        .delete(&format!("/v1/keys/{}", string(&made.body["id"])))
        .await
        .unwrap();
    responses.rest(&revoked);
    responses.rest(&world.client(&key).get("/v1/me").await.unwrap());
    // The second API sends through the mail server that rejects every login.
    let second = Client::new(
        format!("http://{}", world.stack.apis[1].listen.unwrap()),
        None,
    );
    responses.rest(
        &second
            .post("/v1/auth/email", &json!({"email": email}))
            .await
            .unwrap(),
    );
    responses.rest(
        &second
            .post("/v1/auth/email", &json!({"email": "nobody"}))
            .await
            .unwrap(),
    );
    person
}

/// Sends bodies that are rejected: their content must not be stored anywhere.
async fn failures(world: &World, planted: &mut Planted, responses: &Responses) {
    let owner = world.owner();
    let mut secret = || planted.only_in("value in a rejected body", &[]);
    let bodies = [
        ("/v1/keys", format!("{{\"name\": {{\"{}\": 1}}}}", secret())),
        (
            "/v1/keys",
            format!("{{\"name\": \"ci\", \"password\": \"{}\"}}", secret()),
        ),
        ("/v1/keys", format!("{{\"name\": \"{}", secret())),
        ("/v1/auth/email", format!("{{\"email\": \"{}\"}}", secret())),
        (
            "/v1/auth/email/verify",
            format!("{{\"token\": \"{}\"}}", secret()),
        ),
        (
            "/v1/invites",
            format!("{{\"email\": \"{} x@example.org\"}}", secret()),
        ),
        ("/v1/domains", format!("{{\"domain\": \"{}_\"}}", secret())),
        ("/v1/uploads", format!("{{\"kind\": \"{}\"}}", secret())),
        (
            "/v1/uploads",
            format!(
                "{{\"kind\": \"predictions\", \"sha256\": \"{}\"}}",
                secret()
            ),
        ),
        (
            "/v1/evals",
            format!("{{\"suite_id\": \"{}\", \"predictions\": []}}", secret()),
        ),
        (
            "/v1/evals",
            format!(
                "{{\"suite_id\": \"suite:canaries\", \"predictions\": [{{\"item_id\": \"item-0\", \"prediction\": {{\"{}\": 1}}}}]}}",
                secret()
            ),
        ),
        (
            "/v1/evals",
            format!(
                "{{\"suite_id\": \"suite:canaries\", \"predictions\": [{{\"item_id\": \"{}\", \"prediction\": 7}}]}}",
                secret()
            ),
        ),
        (
            "/v1/evals",
            format!(
                "{{\"suite_id\": \"suite:canaries\", \"input_ref\": \"upl_{}\"}}",
                secret()
            ),
        ),
    ];
    for (path, body) in bodies {
        let request = owner
            .request("POST", path)
            .header("content-type", "application/json")
            .body(body.clone());
        let response = owner.send(request).await.unwrap();
        assert!(
            (400..500).contains(&response.status),
            "{path} {body}: {}",
            response.body
        );
        responses.rest(&response);
    }
}

fn line(item: &str, predicted: &str, note: &str) -> String {
    format!(
        "{{\"item_id\": \"{item}\", \"prediction\": [\"{predicted}\"], \"note\": \"{note}\"}}\n"
    )
}

async fn submit(key: &Client, upload_id: &str) -> Response {
    key.post(
        "/v1/evals",
        &json!({"suite_id": "suite:canaries", "input_ref": upload_id}),
    )
    .await
    .unwrap()
}

fn gzip(bytes: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes.as_bytes()).unwrap();
    packed.finish().unwrap()
}

/// Submits predictions inline, over gRPC and by upload. Returns the id of a job that was scored.
async fn predictions(
    world: &World,
    bucket: &Path,
    planted: &mut Planted,
    responses: &Responses,
) -> String {
    let key = world.key();
    let inline = planted.only_in("inline prediction", &["table stored_predictions"]);
    let note = planted.only_in(
        "further field of an inline prediction",
        &["table stored_predictions"],
    );
    let label = planted.only_in("label", &["responses", "table jobs"]);
    let idempotency_key = planted.only_in("idempotency key", &["table jobs"]);
    let body = json!({"suite_id": "suite:canaries", "label": label, "predictions": [{"item_id": "item-0", "prediction": [inline], "note": note}]});
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let request = key
            .request("POST", "/v1/evals")
            .header("idempotency-key", &idempotency_key)
            .json(&body);
        let response = key.send(request).await.expect_status(202);
        responses.rest(&response);
        jobs.push(string(&response.body["id"]));
    }
    // Another body under the same key.
    let other = json!({"suite_id": "suite:canaries", "predictions": [{"item_id": "item-1", "prediction": "x"}]});
    let refused = key
        .send(
            key.request("POST", "/v1/evals")
                .header("idempotency-key", &idempotency_key)
                .json(&other),
        )
        .await
        .expect_status(422);
    responses.rest(&refused);
    let by_grpc = v1::CreateEvalRequest {
        suite_id: "suite:canaries".into(),
        predictions: vec![v1::Prediction {
            item_id: "item-0".into(),
            prediction: Some(v1::PredictionValue {
                value: Some(v1::prediction_value::Value::Label(
                    planted.only_in("prediction by gRPC", &["table stored_predictions"]),
                )),
            }),
        }],
        ..Default::default()
    };
    let response = EvalServiceClient::new(world.channel().await)
        .create_eval(with_token(by_grpc, &world.org.key))
        .await;
    jobs.push(response.as_ref().unwrap().get_ref().job.clone().unwrap().id);
    responses.grpc(&response);

    jobs.extend(uploads(&key, planted, responses).await);
    add_files(bucket, "objects", &mut responses.0.lock().unwrap());
    for job_id in &jobs {
        let job = world.wait_until_finished(job_id).await;
        assert_eq!(
            job["status"],
            if Some(job_id) == jobs.last() {
                "failed"
            } else {
                "succeeded"
            },
            "{job}"
        );
        responses
            .0
            .lock()
            .unwrap()
            .add("responses", job.to_string());
        let trace = key
            .get(&format!("/v1/jobs/{job_id}/trace"))
            .await
            .expect_status(200);
        responses
            .0
            .lock()
            .unwrap()
            .add("traces", trace.body.to_string());
        responses.rest(&key.get(&format!("/v1/jobs/{job_id}/items")).await.unwrap());
    }
    responses.rest(&key.get("/v1/suites/suite:canaries/items").await.unwrap());
    responses.rest(&key.get("/v1/jobs").await.unwrap());
    jobs.swap_remove(0)
}

/// Uploads valid and invalid predictions in all encodings. Returns the jobs; the last of them
/// fails.
async fn uploads(key: &Client, planted: &mut Planted, responses: &Responses) -> Vec<String> {
    let mut jobs = Vec::new();
    let sent = planted.only_in("uploaded prediction", &["objects"]);
    // Compression may leave parts of the text readable, and an invalid upload is soon removed.
    let packed = planted.at_most_in("uploaded prediction, compressed", &["objects"]);
    let wrong = planted.at_most_in("invalid line", &["objects"]);
    let many: String = (0..4)
        .map(|at| line(&format!("item-{at}"), &packed, &packed))
        .collect();
    let uploads = [
        ("identity", line("item-0", &sent, &sent).into_bytes()),
        ("gzip", gzip(&many)),
        ("zstd", zstd::encode_all(many.as_bytes(), 3).unwrap()),
        (
            "identity",
            format!("{{\"item_id\": \"{wrong}\"}}\n{{\"{wrong}\n").into_bytes(),
        ),
        ("gzip", format!("not compressed {wrong}").into_bytes()),
    ];
    for (at, (encoding, bytes)) in uploads.into_iter().enumerate() {
        let upload_id = open(
            key,
            json!({"kind": "predictions", "content_encoding": encoding}),
        )
        .await;
        let middle = bytes.len() / 2;
        for (number, part) in [(1, &bytes[..middle]), (2, &bytes[middle..])] {
            responses.rest(&put(key, &upload_id, number, part.to_vec()).await);
        }
        let completed =
            complete(key, &upload_id)
                .await
                .expect_status(if at < 3 { 200 } else { 422 });
        responses.rest(&completed);
        if at < 3 {
            let submitted = submit(key, &upload_id).await;
            responses.rest(&submitted);
            jobs.push(string(&submitted.body["id"]));
        }
    }
    // An upload that fails in the worker with an error message.
    let twice = planted.only_in("item that is predicted twice", &["objects"]);
    let upload_id = open(key, json!({"kind": "predictions"})).await;
    put(
        key,
        &upload_id,
        1,
        [line(&twice, "x", "y"), line(&twice, "x", "y")].concat(),
    )
    .await;
    complete(key, &upload_id).await;
    jobs.push(string(&submit(key, &upload_id).await.body["id"]));
    jobs
}

/// Creates an invite and a domain claim: personal data that must not leave its tables.
async fn people(world: &World, planted: &mut Planted, responses: &Responses) {
    let owner = world.owner();
    let invited = planted.only_in(
        "address of an invited person",
        &[
            "responses",
            "mails",
            "table invites",
            "table mailed",
            "table audit_entries",
        ],
    );
    responses.rest(
        &owner
            .post(
                "/v1/invites",
                &json!({"email": format!("{invited}@example.org"), "role": "member"}),
            )
            .await
            .unwrap(),
    );
    let email = format!("{invited}@example.org");
    wait_until("an invite", async || !mail::mails(world, &email).is_empty()).await;
    let domain = format!("{}.example.org", canary("domain"));
    let claimed = owner
        .post("/v1/domains", &json!({"domain": domain}))
        .await
        .expect_status(201);
    let value = string(&claimed.body["record"]["value"]);
    responses.rest(&claimed);
    planted.add(
        "token of a domain",
        value.split_once('=').unwrap().1,
        &["responses", "table domain_claims"],
        &[],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_only_in_allowed_places() {
    let mut planted = Planted::default();
    let responses = Responses::default();
    let collector = Collector::start().await;
    let (mut world, bucket) = planted_world(&mut planted, collector.as_ref()).await;
    let redis_url = world.stack.ground.servers.redis_url().to_owned();
    let monitored = monitor_redis(&redis_url).await;
    publish(&world, &mut planted, &responses).await;
    let person = credentials(&world, &mut planted, &responses).await;
    read_groups(&world, &responses).await;
    failures(&world, &mut planted, &responses).await;
    let job_id = predictions(&world, &bucket, &mut planted, &responses).await;
    people(&world, &mut planted, &responses).await;
    responses.rest(&person.delete("/v1/session").await.unwrap());

    let mut places = std::mem::take(&mut *responses.0.lock().unwrap());
    processes(&world, &mut places).await;
    redis_content(&redis_url, &mut places).await;
    tables(&world, &mut places).await;
    add_files(&world.stack.mail_folder(), "mails", &mut places);
    let logs: Vec<_> = world
        .stack
        .apis
        .iter()
        .chain(&world.stack.workers)
        .map(|process| process.log.clone())
        .collect();
    world.stack.stop();
    for log in logs {
        places.add(
            if log.to_string_lossy().contains("worker") {
                "log of a worker"
            } else {
                "log of an api"
            },
            std::fs::read(log).unwrap(),
        );
    }
    if let Some(collector) = collector {
        // Shutdown flushes the remaining spans.
        let exported = collector.text();
        assert!(
            exported.contains("POST /v1/auth/email/verify") && exported.contains("process jobs"),
            "{exported}"
        );
        places.add("exported traces", exported);
    }
    let folder = world.stack.ground.servers.folder();
    for server in ["postgres.log", "redis.log"] {
        if let Ok(log) = std::fs::read(folder.join(server)) {
            places.add("log of a server", log);
        }
    }
    places.join(std::mem::take(&mut monitored.lock().unwrap()));

    // Check of the search itself: each place contains something known.
    for (known, expected) in [
        ("POST /v1/evals", ["log of an api", "metrics"].as_slice()),
        (
            &job_id,
            &[
                "Redis commands",
                "responses",
                "log of a worker",
                "table job_attempts",
                "table jobs",
                "table usage_ledger",
                "traces",
            ],
        ),
        (
            &world.org.id,
            &["Redis", "Redis commands", "responses", "table orgs"],
        ),
        ("validation_failed", &["errors", "log of an api"]),
        ("item-0", &["responses", "objects", "table suite_items"]),
        ("sign-in", &["mails"]),
        ("ASSAY_LISTEN", &["environment"]),
        ("assay-worker", &["command line"]),
    ] {
        let found = places.containing(known);
        assert!(
            expected.iter().all(|place| found.contains(place)),
            "{known} was found in {found:?} only"
        );
    }
    let linux = ["command line", "environment"];
    let all = [
        "Redis",
        "Redis commands",
        "responses",
        "errors",
        "log of a server",
        "log of a worker",
        "log of an api",
        "mails",
        "metrics",
        "objects",
        "traces",
    ];
    assert!(
        all.iter().all(|place| places.names().contains(place)),
        "{:?}",
        places.names()
    );
    assert!(!cfg!(target_os = "linux") || linux.iter().all(|place| places.names().contains(place)));

    let wrong = planted.misplaced(&places);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        planted.0.len() >= 35,
        "only {} were planted",
        planted.0.len()
    );
    // Check of the comparison itself: each secret in one more place is reported.
    let all: Vec<&str> = planted
        .0
        .iter()
        .map(|secret| secret.text.as_str())
        .collect();
    places.add("errors", all.join(" "));
    assert_eq!(planted.misplaced(&places).len(), all.len());
}

#[test]
fn log_check_finds_secrets() {
    let secret = format!("svc_live_{}", "a".repeat(38));
    assert_eq!(
        secrets_in(&format!(
            "{{\"x\":\"svc_live_abcd {secret}\"}} svc_sess_ svc_link_0123"
        ))
        .len(),
        1
    );
    assert_eq!(secrets_in(&secret.replace("live", "sess")).len(), 1);
}

#[test]
fn search_finds_encoded_secrets() {
    let mut places = Places::default();
    for (place, holds) in [
        ("plain", "x canary0123456789 x".to_owned()),
        ("base64", STANDARD.encode("ab canary0123456789 c")),
        ("none", "canary012345678".to_owned()),
    ] {
        places.add(place, holds);
    }
    places.add(
        "hex",
        "\\x00".to_owned()
            + &"canary0123456789"
                .bytes()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
    );
    places.add("numbers", format!("{:?}", b"canary0123456789"));
    assert_eq!(
        places.containing("canary0123456789"),
        ["base64", "hex", "numbers", "plain"].into()
    );
}
