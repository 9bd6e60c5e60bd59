//! What tests stand on: one PostgreSQL and Redis for all, a stack and an organization for each. Callers are types.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use assay_core::model::job::EvalResult;
use assay_tests::binaries::Binaries;
use assay_tests::client::{Answer, Client};
use assay_tests::databases;
use assay_tests::servers::Servers;
use assay_tests::stack::{Ground, Plan, Process, Stack};
use assay_tests::{binaries, demo_suite};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tonic::transport::Channel;

use crate::mail;

/// How long any job of these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time that a request may take where nothing holds it up. A busy machine takes seconds; a request that is held
/// up takes until a timeout or until the test ends.
pub const STALL: Duration = Duration::from_secs(10);

/// The servers of this test run. They end with the process: a static is never dropped, and need not be.
pub fn ground() -> Arc<Ground> {
    static GROUND: OnceLock<Arc<Ground>> = OnceLock::new();
    let ground = GROUND.get_or_init(|| {
        let binaries = binaries::build(false).unwrap();
        let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
        demo_suite::write(&servers.folder().join("lunch")).unwrap();
        Arc::new(Ground::new(servers, binaries))
    });
    Arc::clone(ground)
}

/// What a process shows operators of its metrics.
pub async fn scrape(process: &Process) -> String {
    let admin = Client::new(format!("http://{}", process.admin), None);
    text(&admin.get("/metrics").await.unwrap().body)
}

/// Servers of a test's own, for what others could not bear. `None`, and a word about it, where they are not ours to stop.
pub fn own_ground() -> Option<Arc<Ground>> {
    own_ground_of(ground().binaries.clone())
}

/// The same for these binaries.
pub fn own_ground_of(binaries: Binaries) -> Option<Arc<Ground>> {
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    if servers.redis_pid().is_none() || servers.postgres_pid().is_none() {
        eprintln!("SKIPPED: the servers named by DATABASE_URL and REDIS_URL are not ours to stop");
        return None;
    }
    Some(Arc::new(Ground::new(servers, binaries)))
}

/// A stack with an organization on the plan `team`, its owner and a key, and the suite `suite:lunch`.
pub struct World {
    /// The processes.
    pub stack: Stack,
    /// The organization.
    pub org: Org,
}

/// An organization with the credentials of its people.
pub struct Org {
    /// Its id.
    pub id: String,
    /// The owner's address.
    pub email: String,
    /// The owner's session.
    pub session: String,
    /// A key.
    pub key: String,
}

/// One api, one worker.
pub async fn world() -> World {
    world_of(Plan::default()).await
}

/// A world with a stack of this size.
pub async fn world_of(plan: Plan) -> World {
    world_on(&ground(), plan).await
}

/// A world with a stack of this size on servers of its own, whose binaries are built with optimizations: for long tests that measure.
pub async fn optimized_world_of(plan: Plan) -> World {
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    world_on(
        &Arc::new(Ground::new(servers, binaries::build(true).unwrap())),
        plan,
    )
    .await
}

/// A world on servers of its own, for a test that does to them what others could not do without; nothing if they are not
/// ours to do it to.
pub async fn world_alone(plan: impl FnOnce(&Servers) -> Plan) -> Option<World> {
    let ground = own_ground()?;
    let plan = plan(&ground.servers);
    Some(world_on(&ground, plan).await)
}

/// The same on these servers.
pub async fn world_on(ground: &Arc<Ground>, plan: Plan) -> World {
    let stack = Stack::start(ground, plan).await.unwrap();
    let folder = stack.ground.servers.folder().join("lunch");
    // Servers of a test's own do not have it yet.
    if !folder.exists() {
        demo_suite::write(&folder).unwrap();
    }
    stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
    let org = org(&stack, "team").await;
    World { stack, org }
}

/// A plan with one setting changed.
pub fn with(name: &str, value: &str) -> Plan {
    Plan {
        env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..Plan::default()
    }
}

/// One more organization.
pub async fn org(stack: &Stack, plan: &str) -> Org {
    let email = format!("{}@example.org", databases::fresh_name("owner"));
    let made = stack
        .operate(&[
            "org",
            "create",
            "--name",
            "Acme",
            "--plan",
            plan,
            "--owner-email",
            &email,
        ])
        .await
        .unwrap();
    let id = text(&made["org_id"]);
    let session = stack
        .operate(&["session", "create", "--email", &email, "--org", &id])
        .await
        .unwrap();
    let key = stack
        .operate(&["key", "create", "--org", &id, "--name", "ci"])
        .await
        .unwrap();
    Org {
        id,
        email,
        session: text(&session["token"]),
        key: text(&key["key"]),
    }
}

impl World {
    /// Somebody without a credential.
    pub fn anonymous(&self) -> Client {
        Client::new(self.stack.url(), None)
    }

    /// A program with the organization's key.
    pub fn key(&self) -> Client {
        self.client(&self.org.key)
    }

    /// The organization's owner, signed in.
    pub fn owner(&self) -> Client {
        self.client(&self.org.session)
    }

    /// Somebody with this token.
    pub fn client(&self, token: &str) -> Client {
        Client::new(self.stack.url(), Some(token))
    }

    /// A connection for gRPC.
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(self.stack.url())
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    /// The database, as its owner.
    pub async fn database(&self) -> PgConnection {
        databases::connect(&self.stack.database.owner_url)
            .await
            .unwrap()
    }

    /// A member of the organization with this role, invited and signed in.
    pub async fn member(&self, role: &str) -> Client {
        let email = format!("{}@example.org", databases::fresh_name(role));
        let invited = self
            .owner()
            .post("/v1/invites", &json!({"email": email, "role": role}))
            .await
            .unwrap();
        assert_eq!(invited.status, 201, "{}", invited.body);
        self.client(&self.sign_in(&email).await)
    }

    /// The token of a link to sign in with, as the next mail to this address brings it.
    pub async fn link(&self, email: &str) -> String {
        let before = mail::links(self, email).len();
        let asked = self
            .anonymous()
            .post("/v1/auth/email", &json!({"email": email}))
            .await
            .unwrap();
        assert_eq!(asked.status, 202, "{}", asked.body);
        until("a link", PATIENCE, async || {
            mail::links(self, email).len() > before
        })
        .await;
        mail::links(self, email).pop().unwrap()
    }

    /// The session token of a person who signs in by mail.
    pub async fn sign_in(&self, email: &str) -> String {
        let token = self.link(email).await;
        let signed_in = self
            .anonymous()
            .post("/v1/auth/email/verify", &json!({"token": token}))
            .await
            .unwrap();
        assert_eq!(signed_in.status, 201, "{}", signed_in.body);
        text(&signed_in.body["token"])
    }

    /// Makes the bounds of all plans too wide to be met.
    pub async fn widen_plans(&self) {
        databases::widen_plans(&mut self.database().await)
            .await
            .unwrap();
    }

    /// Makes the bounds of one plan too wide to be met: those of the plan `team`, for an honest organization beside hostile free ones.
    pub async fn widen_plan(&self, plan: &str) {
        databases::widen_plan(&mut self.database().await, plan)
            .await
            .unwrap();
    }

    /// Submits predictions for `suite:lunch` with the key.
    pub async fn submit(&self, predictions: &Value) -> Answer {
        retry_unavailable(async || self.submit_once(predictions).await).await
    }

    /// Submits predictions with the key, and returns the response even if it is 503.
    pub async fn submit_once(&self, predictions: &Value) -> Answer {
        self.key()
            .post(
                "/v1/evals",
                &json!({"suite_id": demo_suite::SUITE_ID, "predictions": predictions}),
            )
            .await
            .unwrap()
    }

    /// Submits predictions with the key and waits until the job has ended.
    pub async fn scored(&self, predictions: &Value) -> Value {
        let job = self.submit(predictions).await;
        assert_eq!(job.status, 202, "{}", job.body);
        self.ended(&text(&job.body["id"])).await
    }

    /// Holds every attempt where it reads answers, in the middle of its job, until the connection is closed.
    pub async fn hold_answers(&self) -> PgConnection {
        let mut database = self.database().await;
        sqlx::raw_sql("begin; lock table suite_answers in access exclusive mode")
            .execute(&mut database)
            .await
            .unwrap();
        database
    }

    /// Waits until a job has this status.
    pub async fn until_status(&self, job_id: &str, status: &str) {
        let path = format!("/v1/jobs/{job_id}");
        until(status, PATIENCE, async || {
            self.key().get(&path).await.unwrap().body["status"] == status
        })
        .await;
    }

    /// Waits until a job has ended.
    pub async fn ended(&self, job_id: &str) -> Value {
        self.key()
            .finished(job_id, PATIENCE, &|_| {})
            .await
            .unwrap()
    }
}

/// Sends a request, and sends it again after 503, as clients should: a busy API may refuse a request before it starts.
pub async fn retry_unavailable(mut send: impl AsyncFnMut() -> Answer) -> Answer {
    let began = Instant::now();
    loop {
        let response = send().await;
        if response.status != 503 {
            return response;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "the API stays unavailable: {}",
            response.body
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Calls an rpc, and calls it again after `UNAVAILABLE`.
pub async fn retry_unavailable_rpc<T>(
    mut call: impl AsyncFnMut() -> Result<tonic::Response<T>, tonic::Status>,
) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Err(status)
                if status.code() == tonic::Code::Unavailable && began.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            called => return called.unwrap().into_inner(),
        }
    }
}

/// Waits until something is seen.
pub async fn until(what: &str, patience: Duration, mut seen: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !seen().await {
        assert!(
            began.elapsed() < patience,
            "{what} did not happen in {patience:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A result for tests that play the worker by hand, told from others by its value.
pub fn result(value: f64) -> EvalResult {
    let [hfm_sha, metric, suite_id, suite_version] = std::array::from_fn(|_| String::from("x"));
    EvalResult {
        hfm_sha,
        metric,
        n: 1,
        n_submitted: 1,
        n_unmatched: 0,
        n_missing: 0,
        suite_id,
        suite_version,
        value,
        stderr: None,
        ci95: None,
        ci_method: None,
        metrics: [].into(),
        release: String::from("exact"),
        sealed: None,
    }
}

/// Waits for the next day, UTC, if that is less than a minute off: for what counts by days.
pub async fn within_a_day() {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let left = 86_400 - now % 86_400;
    if left < 60 {
        tokio::time::sleep(Duration::from_secs(left + 1)).await;
    }
}

/// All files under a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// A message with a credential.
pub fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// One prediction for an item of `suite:lunch`.
pub fn one_prediction() -> Value {
    json!([{"item_id": "person-00/day-0", "prediction": ["ramen", "curry"]}])
}

/// A JSON string's text.
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
        .to_owned()
}

/// The code in an error's envelope.
pub fn code(answer: &Answer) -> String {
    text(&answer.body["error"]["code"])
}

/// The faults of fields in an error's envelope: field and reason.
pub fn faults(answer: &Answer) -> Vec<(String, String)> {
    let fields = answer.body["error"]["details"]["fields"]
        .as_array()
        .unwrap_or_else(|| panic!("no fields: {}", answer.body));
    fields
        .iter()
        .map(|fault| (text(&fault["field"]), text(&fault["reason"])))
        .collect()
}

/// A fault, to compare with.
pub fn fault(field: &str, reason: &str) -> (String, String) {
    (field.to_owned(), reason.to_owned())
}

/// No log of any test may hold a secret: what begins like one and goes on beyond the prefix that keys are known by.
pub fn secrets_in(log: &str) -> Vec<&str> {
    let begins = log.match_indices("svc_").map(|(at, _)| &log[at..]);
    let kinds = ["svc_live_", "svc_sess_", "svc_link_"];
    let is_secret = |text: &&str| {
        let behind = kinds
            .iter()
            .find_map(|kind| text.strip_prefix(kind))
            .unwrap_or_default();
        behind.bytes().take_while(u8::is_ascii_alphanumeric).count() > 4
    };
    begins
        .filter(is_secret)
        .map(|text| text.split_at_checked(80).map_or(text, |(first, _)| first))
        .collect()
}

impl Drop for World {
    /// Every test ends with a look into what its processes have logged.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for process in self.stack.apis.iter().chain(&self.stack.workers) {
            let log = std::fs::read(&process.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            assert!(
                secrets_in(&log).is_empty(),
                "{}: {:?}",
                process.log.display(),
                secrets_in(&log)
            );
        }
    }
}

impl World {
    /// The files in which the artifact store keeps an upload.
    pub fn objects(&self, upload_id: &str) -> Vec<std::path::PathBuf> {
        let artifacts = self
            .stack
            .ground
            .servers
            .folder()
            .join(format!("{}-artifacts", self.stack.database.name));
        let mut found = Vec::new();
        for org in std::fs::read_dir(artifacts)
            .unwrap()
            .map(|org| org.unwrap().path())
            .filter(|org| org.is_dir())
        {
            let Ok(files) = std::fs::read_dir(org.join(upload_id)) else {
                continue;
            };
            found.extend(files.map(|file| file.unwrap().path()));
        }
        found
    }
}

/// The operations that the REST router serves, such as `GET /v1/me`, read from its source.
pub fn routed_operations() -> BTreeSet<String> {
    let source = include_str!("../../api/src/rest/mod.rs");
    // rustfmt breaks long routes into several lines.
    let router: String = source.split_whitespace().collect();
    let mut operations = BTreeSet::new();
    for route in router.split(".route(\"").skip(1) {
        let (path, methods) = route.split_once('"').unwrap();
        // Layers follow the last route of a router.
        let methods = methods.split("_layer(").next().unwrap();
        for method in ["get", "post", "put", "patch", "delete"] {
            if methods.contains(&format!("{method}(")) {
                operations.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    operations
}
