//! The test harness: PostgreSQL and Redis shared by all tests, and a stack with an organization
//! for each test.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::event::EventType;
use assay_core::model::job::EvalResult;
use assay_core::model::key::NewKey;
use assay_core::model::org::Role;
use assay_core::model::receipt::NewReceipt;
use assay_core::model::secret::{Secret, SecretKind};
use assay_core::store;
use assay_core::store::new_job::ROW_BYTES_MAX;
use assay_core::store::work::{Claim, SuccessfulAttempt};
use assay_core::{OrgId, SessionId, UserId};
use assay_proto::OPERATIONS;
use assay_proto::operations::Operation;
use assay_tests::binaries::{self, Binaries, Profile};
use assay_tests::client::{Client, Response};
use assay_tests::databases;
use assay_tests::demo_suite;
use assay_tests::servers::{Servers, Trouble};
use assay_tests::site;
use assay_tests::stack::{Ground, Process, Stack, StackSize};
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::OnceCell;
use tonic::transport::Channel;

use crate::{mail, promises};

/// Returns the servers and binaries that all tests in this run share, and starts them on first use.
/// The servers stop with the process, because a static is never dropped.
pub fn ground() -> Arc<Ground> {
    static GROUND: OnceLock<Arc<Ground>> = OnceLock::new();
    let ground = GROUND.get_or_init(|| {
        let binaries = binaries::build_for_tests().unwrap();
        let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
        demo_suite::write(&servers.folder().join("lunch")).unwrap();
        Arc::new(Ground::new(servers, binaries))
    });
    Arc::clone(ground)
}

/// Ends a test at once, unless `TEST_ALL=1` selects all tests. It must be the test's first
/// statement, so that `promises::every_section_has_a_test_of_the_default_set` finds it. `reason`
/// says why the test takes long.
macro_rules! long_test {
    ($reason:literal) => {
        if !$crate::harness::runs_long_test($reason) {
            return;
        }
    };
}
pub(crate) use long_test;

fn runs_all_tests() -> bool {
    std::env::var("TEST_ALL").is_ok_and(|all| all == "1")
}

/// Returns `true` if long tests run. Otherwise says on standard error that this one does not.
pub fn runs_long_test(reason: &str) -> bool {
    let runs = runs_all_tests();
    if !runs {
        report("LONG", reason);
    }
    runs
}

/// Says on standard error that the current test is skipped.
///
/// # Panics
/// With `TEST_ALL=1`, if a document names the test as a proof: no promise may lose its proof
/// unnoticed.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    assert!(
        !runs_all_tests() || !promises::is_proof(test),
        "{test} proves a promise, but it cannot run: {reason}"
    );
    report("SKIPPED", reason);
}

/// The upgrade test, which a commit before the first release may make impossible.
const UPGRADE_TEST: &str = "adjacent_releases::previous_and_current_release_share_database";

/// Says on standard error that the upgrade test is skipped, because no upgrade is promised before
/// the first release. Unlike [`skip`], it accepts that with `TEST_ALL=1` too.
///
/// # Panics
/// In any other test.
pub fn skip_before_first_release(reason: &str) {
    let thread = std::thread::current();
    assert_eq!(thread.name(), Some(UPGRADE_TEST), "{reason}");
    report("SKIPPED", reason);
}

/// Writes to standard error itself: the test harness hides what a passing test prints with a macro.
fn report(what: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "{what}: {test}: {reason}");
}

/// Returns how often a test cuts connections at each point: `TEST_CUTS`, or 10.
pub fn cuts() -> u32 {
    std::env::var("TEST_CUTS").map_or(10, |cuts| cuts.parse().unwrap())
}

/// Returns a process's Prometheus metrics in the text format.
pub async fn scrape(process: &Process) -> String {
    let admin = Client::new(format!("http://{}", process.admin), None).without_retries();
    string(&admin.get("/metrics").await.unwrap().body)
}

/// Starts servers for one test that disturbs them. Returns `None`, with a note on standard error,
/// if `DATABASE_URL` or `REDIS_URL` names servers that tests must not stop.
pub fn own_ground() -> Option<Arc<Ground>> {
    own_ground_of(ground().binaries.clone())
}

/// Like [`own_ground`], with the given binaries.
pub fn own_ground_of(binaries: Binaries) -> Option<Arc<Ground>> {
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    if servers.redis_pid().is_none() || servers.postgres_pid().is_none() {
        skip("the servers named by DATABASE_URL and REDIS_URL are not ours to stop");
        return None;
    }
    Some(Arc::new(Ground::new(servers, binaries)))
}

/// A stack with an organization on the plan `team`, its owner and a key, and the suite
/// `suite:lunch`.
pub struct World {
    /// The running API and worker processes.
    pub stack: Stack,
    /// The organization that owns the key.
    pub org: Org,
}

/// A world on the shared stack. It has no mutable access, so that a test that changes processes
/// does not compile with it.
pub struct SharedWorld(World);

impl Deref for SharedWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

/// An organization with its owner's session and one API key.
#[derive(Clone)]
pub struct Org {
    /// The organization's id.
    pub id: String,
    /// The owner's email address.
    pub email: String,
    /// The owner's session token.
    pub session: String,
    /// An API key named `ci`.
    pub key: String,
}

/// Starts a world with one API and one worker.
pub async fn world() -> World {
    world_with(StackSize::default()).await
}

/// Returns a world with its own organization on a stack that all these worlds in the test run share:
/// one API and one worker. For tests that see and change nothing outside organizations that they
/// create, and that publish nothing. The limits for client addresses are out of reach, because all
/// tests have the same address.
pub async fn shared_world() -> SharedWorld {
    static STACK: OnceCell<Stack> = OnceCell::const_new();
    shared_world_on(&STACK, StackSize::default()).await
}

/// Like [`shared_world`], with two APIs and no worker: jobs stay queued.
pub async fn shared_world_without_workers() -> SharedWorld {
    static STACK: OnceCell<Stack> = OnceCell::const_new();
    let plan = StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    };
    shared_world_on(&STACK, plan).await
}

/// Returns a world on this stack, which the first call starts.
pub async fn shared_world_on(stack: &'static OnceCell<Stack>, mut plan: StackSize) -> SharedWorld {
    let limits = [
        "ASSAY_AUTH_FAILURES_PER_MINUTE",
        "ASSAY_DEVICE_LOGINS_PER_MINUTE",
        "ASSAY_SIGN_IN_MAILS_PER_MINUTE",
    ];
    let limits = limits.map(|name| (name.to_owned(), "1000000".to_owned()));
    plan.env.extend(limits);
    let start = async || stack_with_suite(&ground(), plan).await;
    let stack = stack.get_or_init(start).await;
    for process in stack.apis.iter().chain(&stack.workers) {
        assert!(
            process.guarded.try_wait().is_none(),
            "a process of the shared stack has ended: {}",
            process.log.display()
        );
    }
    SharedWorld(World {
        org: org(stack, "team").await,
        stack: stack.borrowed(),
    })
}

/// Starts a world with the processes and settings from `plan` on the shared servers.
pub async fn world_with(plan: StackSize) -> World {
    world_on(&ground(), plan).await
}

/// Starts a world on its own servers with optimized binaries, for long tests that measure.
pub async fn optimized_world(plan: StackSize) -> World {
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    world_on(
        &Arc::new(Ground::new(
            servers,
            binaries::build(Profile::Release).unwrap(),
        )),
        plan,
    )
    .await
}

/// Starts a world on its own servers, for a test that disturbs them. Returns `None` under the same
/// condition as [`own_ground`].
pub async fn world_on_own_servers(plan: impl FnOnce(&Servers) -> StackSize) -> Option<World> {
    let ground = own_ground()?;
    let plan = plan(&ground.servers);
    Some(world_on(&ground, plan).await)
}

/// Starts a world on the given servers and publishes `suite:lunch`.
pub async fn world_on(ground: &Arc<Ground>, plan: StackSize) -> World {
    let stack = stack_with_suite(ground, plan).await;
    World {
        org: org(&stack, "team").await,
        stack,
    }
}

/// Starts a world on servers with an earlier release's binaries, whose schema only its own
/// commands know.
pub async fn world_of_earlier_release(ground: &Arc<Ground>, plan: StackSize) -> World {
    let stack = stack_with_suite(ground, plan).await;
    let made = site::create_org(&stack, "team").await.unwrap();
    let session = [
        "session",
        "create",
        "--email",
        &made.owner_email,
        "--org",
        &made.id,
    ];
    let session = stack.operate(&session).await.unwrap();
    World {
        stack,
        org: Org {
            id: made.id,
            email: made.owner_email,
            session: string(&session["token"]),
            key: made.key,
        },
    }
}

/// Starts a stack on the given servers, with `suite:lunch`.
async fn stack_with_suite(ground: &Arc<Ground>, plan: StackSize) -> Stack {
    let folder = ground.servers.folder().join("lunch");
    // A test's own servers do not have the suite folder yet.
    if !folder.exists() {
        demo_suite::write(&folder).unwrap();
    }
    let database = ground.database_with_suite(&folder).await.unwrap();
    Stack::start_on(ground, database, plan).await.unwrap()
}

/// Returns the default plan with one setting (environment variable) changed.
pub fn with_setting(name: &str, value: &str) -> StackSize {
    StackSize {
        env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..StackSize::default()
    }
}

/// Creates an organization on the given billing plan, with an owner's session and a key, as the
/// operator's commands do. Each would start a process.
pub async fn org(stack: &Stack, plan: &str) -> Org {
    let email = fresh_email("owner");
    let id = OrgId::random().unwrap();
    let session_id = SessionId::random().unwrap();
    let session = Secret::random(SecretKind::Session).unwrap();
    let mut database = databases::connect(&stack.database.owner_url).await.unwrap();
    let mut transaction = database.begin().await.unwrap();
    let db = &mut *transaction;
    let owner = store::org::user(db, &email, &UserId::random().unwrap()).await;
    let owner = owner.unwrap();
    store::org::insert(&mut *db, &id, "Acme", plan, None)
        .await
        .unwrap();
    store::org::add_member(&mut *db, &id, &owner, Role::Owner)
        .await
        .unwrap();
    let added = [Change::member_added(&owner, Role::Owner)];
    store::audit::record(db, &id, &Actor::OPERATOR, &added)
        .await
        .unwrap();
    store::event::insert_member(db, &id, EventType::MemberAdded, &owner)
        .await
        .unwrap();
    let key = NewKey::random("ci".to_owned(), owner.clone()).unwrap();
    store::key::create(db, &id, &key, &Actor::OPERATOR)
        .await
        .unwrap();
    store::org::insert_session(&mut *db, Some(&id), &session_id, &owner, &session.hash())
        .await
        .unwrap();
    let started = [Change::session(AuditType::SessionStarted, &session_id)];
    store::audit::record_in_orgs_of(db, &owner, &Actor::OPERATOR, &started)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    database.close().await.unwrap();
    Org {
        id: id.to_string(),
        email,
        session: session.into_text(),
        key: key.secret.into_text(),
    }
}

impl World {
    /// Returns a client without a credential.
    pub fn anonymous(&self) -> Client {
        Client::new(self.stack.url(), None)
    }

    /// Returns a client with the organization's API key.
    pub fn key(&self) -> Client {
        self.client(&self.org.key)
    }

    /// Returns a client with the owner's session.
    pub fn owner(&self) -> Client {
        self.client(&self.org.session)
    }

    /// Returns a client with the given bearer token.
    pub fn client(&self, token: &str) -> Client {
        Client::new(self.stack.url(), Some(token))
    }

    /// Opens a gRPC channel to the API.
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(self.stack.url())
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    /// Connects to the database as its owner.
    pub async fn database(&self) -> PgConnection {
        databases::connect(&self.stack.database.owner_url)
            .await
            .unwrap()
    }

    /// Returns the database's time.
    pub async fn database_time(&self) -> String {
        sqlx::query_scalar("select clock_timestamp()::text")
            .fetch_one(&mut self.database().await)
            .await
            .unwrap()
    }

    /// Returns how many minutes have begun since this database time, including the
    /// first one. In each, a caller may use its rate limit once.
    pub async fn minutes_since(&self, time: &str) -> usize {
        let minutes: i64 = sqlx::query_scalar(
            "select 1 + floor(extract(epoch from clock_timestamp() - $1::timestamptz) / 60)::bigint",
        )
        .bind(time)
        .fetch_one(&mut self.database().await)
        .await
        .unwrap();
        usize::try_from(minutes).unwrap()
    }

    /// Invites a member with the given role, signs them in and returns their client.
    pub async fn member(&self, role: &str) -> Client {
        let email = fresh_email(role);
        let invited = self
            .owner()
            .post("/v1/invites", &json!({"email": email, "role": role}))
            .await
            .unwrap();
        assert_eq!(invited.status, 201, "{}", invited.body);
        self.client(&self.sign_in(&email).await)
    }

    /// Requests a sign-in email for the address and returns its link's token.
    pub async fn sign_in_link(&self, email: &str) -> String {
        let before = mail::links(self, email).len();
        let requested = self
            .anonymous()
            .post("/v1/auth/email", &json!({"email": email}))
            .await
            .unwrap();
        assert_eq!(requested.status, 202, "{}", requested.body);
        wait_until("sign-in email", async || {
            mail::links(self, email).len() > before
        })
        .await;
        mail::links(self, email).pop().unwrap()
    }

    /// Signs in by email and returns the session token.
    pub async fn sign_in(&self, email: &str) -> String {
        let token = self.sign_in_link(email).await;
        let signed_in = self
            .anonymous()
            .post("/v1/auth/email/verify", &json!({"token": token}))
            .await
            .unwrap();
        assert_eq!(signed_in.status, 201, "{}", signed_in.body);
        string(&signed_in.body["token"])
    }

    /// Raises all billing plans' limits beyond reach.
    pub async fn widen_plans(&self) {
        databases::widen_plans(&mut self.database().await)
            .await
            .unwrap();
    }

    /// Raises one billing plan's limits beyond reach, such as `team` for an honest
    /// organization among hostile free ones.
    pub async fn widen_plan(&self, plan: &str) {
        databases::widen_plan(&mut self.database().await, plan)
            .await
            .unwrap();
    }

    /// Submits predictions for `suite:lunch` with the key.
    pub async fn submit(&self, predictions: &Value) -> Response {
        submit(&self.key(), predictions).await
    }

    /// Submits predictions with the key, and returns the response even if it is 503.
    pub async fn submit_once(&self, predictions: &Value) -> Response {
        submit(&self.key().without_retries(), predictions).await
    }

    /// Submits predictions with the key, waits until the job is finished and returns it.
    pub async fn submit_and_wait(&self, predictions: &Value) -> Value {
        let job = self.submit(predictions).await;
        assert_eq!(job.status, 202, "{}", job.body);
        self.wait_until_finished(&string(&job.body["id"])).await
    }

    /// Blocks every attempt where it reads answers, in the middle of its job, until the returned
    /// connection is closed.
    pub async fn hold_answers(&self) -> PgConnection {
        let mut database = self.database().await;
        sqlx::raw_sql("begin; lock table suite_answers in access exclusive mode")
            .execute(&mut database)
            .await
            .unwrap();
        database
    }

    /// Waits until a job has the given status.
    pub async fn wait_for_status(&self, job_id: &str, status: &str) {
        let path = format!("/v1/jobs/{job_id}");
        wait_until(status, async || {
            self.key().get(&path).await.unwrap().body["status"] == status
        })
        .await;
    }

    /// Waits until a job is finished and returns it.
    pub async fn wait_until_finished(&self, job_id: &str) -> Value {
        self.key()
            .wait_until_finished(job_id, &|_| {})
            .await
            .unwrap()
    }
}

/// Submits predictions for `suite:lunch`.
async fn submit(client: &Client, predictions: &Value) -> Response {
    let eval = json!({"suite_id": demo_suite::SUITE_ID, "predictions": predictions});
    client.post("/v1/evals", &eval).await.unwrap()
}

/// Submits an eval, waits until the job succeeds, and returns it.
pub async fn submit_until_succeeded(client: &Client, eval: &Value) -> Value {
    let job = client.post("/v1/evals", eval).await.unwrap();
    assert_eq!(job.status, 202, "{}", job.body);
    let job = client
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    job
}

/// Calls an RPC and retries after `UNAVAILABLE`.
pub async fn retry_unavailable_rpc<T>(
    mut call: impl AsyncFnMut() -> Result<tonic::Response<T>, tonic::Status>,
) -> T {
    in_time("a status other than UNAVAILABLE", async {
        loop {
            match call().await {
                Err(status) if status.code() == tonic::Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                called => return called.unwrap().into_inner(),
            }
        }
    })
    .await
}

/// Awaits `future`. Panics with the name of the event after [`wait_timeout`].
pub async fn in_time<T>(event: &str, future: impl Future<Output = T>) -> T {
    let timeout = wait_timeout();
    let began = Instant::now();
    let output = tokio::time::timeout(timeout, future)
        .await
        .unwrap_or_else(|_| panic!("{event} did not happen in {timeout:?}"));
    record_wait(event, began.elapsed());
    output
}

/// Lets time pass while nothing must happen, or while a load lasts. `event` says what the test waits
/// for.
pub async fn pause(event: &str, duration: Duration) {
    tokio::time::sleep(duration).await;
    record_wait(event, duration);
}

/// Appends the current test's wait to `target/test-waits.tsv`, from which `.ci/slowest` reports the
/// slowest tests' waits. Spawned tasks' waits run on threads without the test's name.
fn record_wait(event: &str, duration: Duration) {
    static WAITS: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let thread = std::thread::current();
    let test = thread.name().filter(|name| name.contains("::"));
    let waits = WAITS.get_or_init(|| {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
        let file = File::create(target.join("target/test-waits.tsv")).ok()?;
        Some(Mutex::new(file))
    });
    if let (Some(test), Some(waits)) = (test, waits) {
        let line = format!("{test}\t{event}\t{:.3}\n", duration.as_secs_f64());
        let mut file = waits.lock().unwrap_or_else(PoisonError::into_inner);
        // The report is best effort: a full disk fails the tests that write to it themselves.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Polls `condition` until it returns `true`. Panics with the name of the event after
/// [`wait_timeout`].
pub async fn wait_until(event: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    in_time(event, async {
        while !condition().await {
            // Polls less often the longer it takes, as requests count against the rate limit.
            let pause = began.elapsed() / 8;
            let [min, max] = [20, 500].map(Duration::from_millis);
            tokio::time::sleep(pause.clamp(min, max)).await;
        }
    })
    .await;
}

/// Runs `attempt` until it ends before an `idle` request that waits for 30 s, the API's longest
/// wait, and returns its output. The request waits for an event that never happens, and is sent
/// first. So an attempt that itself lasts until such a wait ends never passes, and a busy machine
/// only needs more attempts.
pub async fn before_longest_wait<T>(idle: &Client, mut attempt: impl AsyncFnMut() -> T) -> T {
    in_time("the end before the end of the longest wait", async {
        loop {
            let idle = idle.clone();
            let longest = tokio::spawn(async move {
                let path = "/v1/events?type=webhook.disabled&wait=30";
                assert_eq!(idle.get(path).await.unwrap().status, 200);
            });
            tokio::time::sleep(Duration::from_millis(500)).await;
            let output = attempt().await;
            if !longest.is_finished() {
                longest.abort();
                return output;
            }
            longest.await.unwrap();
        }
    })
    .await
}

/// Returns a result with the given value, for tests that act as the worker.
pub fn eval_result(value: f64) -> EvalResult {
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
        n_clusters: None,
        design_effect: None,
        slices: Vec::new(),
        ceiling: None,
        share_of_ceiling: None,
        skill: None,
        by_publisher: None,
    }
}

/// Returns an attempt's result with the given value, for tests that act as the worker.
pub fn successful_attempt(claim: &Claim, value: f64) -> SuccessfulAttempt {
    SuccessfulAttempt {
        job_id: claim.job_id.clone(),
        attempt: claim.attempt,
        result: eval_result(value),
        item_scores: None,
        phases: Vec::new(),
        receipt: NewReceipt::new([0; 32], claim.holders.clone()).unwrap(),
    }
}

/// Finishes a job as its worker does. Returns `false` if the attempt is not the current one.
pub async fn succeed(
    db: impl sqlx::PgExecutor<'_>,
    claim: &Claim,
    value: f64,
) -> assay_core::Result<bool> {
    let attempt = successful_attempt(claim, value);
    Ok(assay_core::store::work::succeed_all(db, &[attempt]).await? == [true])
}

/// Waits until midnight UTC has passed if it is less than a minute away, for daily-count tests.
pub async fn avoid_midnight() {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let left = 86_400 - now % 86_400;
    if left < 60 {
        tokio::time::sleep(Duration::from_secs(left + 1)).await;
    }
}

/// Lists all files under a folder, recursively.
pub fn list_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                list_files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Wraps a message in a gRPC request with a bearer token.
pub fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// Returns an email address that no other test uses.
pub fn fresh_email(name: &str) -> String {
    format!("{}@example.org", databases::fresh_name(name))
}

/// Returns predictions for a single `suite:lunch` item.
pub fn one_prediction() -> Value {
    json!([{"item_id": "person-00/day-0", "prediction": ["ramen", "curry"]}])
}

/// Returns predictions for a single `suite:lunch` item that are too large to be stored with their
/// job: they are stored in the artifact store.
pub fn large_prediction() -> Value {
    let unknown = "x".repeat(ROW_BYTES_MAX);
    json!([{"item_id": "person-00/day-0", "prediction": ["ramen", "curry", unknown]}])
}

/// Returns a JSON string as a `String`. Panics if the value is not a string.
pub fn string(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
        .to_owned()
}

/// Assertions about a response, which print its request and its body if they fail.
pub trait Expect: Sized {
    /// The response, or a reference to it.
    type Received: Borrow<Response>;

    /// Returns the response. Panics if none was received.
    #[track_caller]
    fn received(self) -> Self::Received;

    /// Asserts the status and returns the response.
    #[track_caller]
    fn expect_status(self, status: u16) -> Self::Received {
        let received = self.received();
        let Response { request, body, .. } = received.borrow();
        assert_eq!(received.borrow().status, status, "{request}\n{body}");
        received
    }

    /// Asserts the status and the error code, and returns the response.
    #[track_caller]
    fn expect_error(self, status: u16, code: &str) -> Self::Received {
        let received = self.expect_status(status);
        let Response { request, body, .. } = received.borrow();
        assert_eq!(body["error"]["code"], code, "{request}\n{body}");
        received
    }
}

impl Expect for Response {
    type Received = Self;

    fn received(self) -> Self {
        self
    }
}

impl Expect for &Response {
    type Received = Self;

    fn received(self) -> Self {
        self
    }
}

impl Expect for Result<Response, Trouble> {
    type Received = Response;

    #[track_caller]
    fn received(self) -> Response {
        self.unwrap()
    }
}

/// Returns an error response's error code.
pub fn error_code(response: &Response) -> String {
    string(&response.body["error"]["code"])
}

/// Returns an error response's field errors, each as field and reason.
pub fn field_errors(response: &Response) -> Vec<(String, String)> {
    let fields = response.body["error"]["details"]["fields"]
        .as_array()
        .unwrap_or_else(|| panic!("no fields: {}", response.body));
    fields
        .iter()
        .map(|error| (string(&error["field"]), string(&error["reason"])))
        .collect()
}

/// Returns an expected field error, to compare with [`field_errors`].
pub fn field_error(field: &str, reason: &str) -> (String, String) {
    (field.to_owned(), reason.to_owned())
}

/// Returns every secret in a log: a token prefix followed by more characters than a key's public
/// prefix. No test's log may contain one.
pub fn secrets_in(log: &str) -> Vec<&str> {
    let candidates = log.match_indices("svc_").map(|(at, _)| &log[at..]);
    let kinds = [
        "svc_live_",
        "svc_sess_",
        "svc_link_",
        "svc_devc_",
        "svc_grnt_",
    ];
    let is_secret = |text: &&str| {
        let suffix = kinds
            .iter()
            .find_map(|kind| text.strip_prefix(kind))
            .unwrap_or_default();
        suffix.bytes().take_while(u8::is_ascii_alphanumeric).count() > 4
    };
    candidates
        .filter(is_secret)
        .map(|text| text.split_at_checked(80).map_or(text, |(first, _)| first))
        .collect()
}

/// Returns the complete lines that were appended to a log since the last call for it.
fn new_lines(log: &Path) -> String {
    static READ: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let offset = read.entry(log.to_owned()).or_default();
    let mut new = Vec::new();
    if let Ok(mut file) = std::fs::File::open(log) {
        file.seek(SeekFrom::Start(*offset)).unwrap();
        file.read_to_end(&mut new).unwrap();
    }
    new.truncate(memchr::memrchr(b'\n', &new).map_or(0, |end| end + 1));
    *offset += u64::try_from(new.len()).unwrap();
    String::from_utf8_lossy(&new).into_owned()
}

impl Drop for World {
    /// Checks the logs of all processes at each test's end: for secrets, and for responses whose
    /// memory was not charged. Of the shared stack, it reads only what is new, which other tests may have caused.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for process in self.stack.apis.iter().chain(&self.stack.workers) {
            let log = if self.stack.is_borrowed() {
                new_lines(&process.log)
            } else {
                let log = std::fs::read(&process.log).unwrap_or_default();
                String::from_utf8_lossy(&log).into_owned()
            };
            assert!(
                secrets_in(&log).is_empty(),
                "{}: {:?}",
                process.log.display(),
                secrets_in(&log)
            );
            // The memory budget counts every response before it exists.
            let uncharged: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("response larger than its charge"))
                .collect();
            assert!(uncharged.is_empty(), "{uncharged:#?}");
        }
    }
}

impl World {
    /// Lists an upload's files in the artifact store.
    pub fn stored_objects(&self, upload_id: &str) -> Vec<std::path::PathBuf> {
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

/// The declared operations, such as `GET /v1/me`.
pub fn declared_operations() -> BTreeSet<String> {
    let line = |operation: &Operation| format!("{} {}", operation.method, operation.path);
    OPERATIONS.iter().map(line).collect()
}

/// The operations that a router serves, such as `GET /v1/me`, read from its source.
pub fn operations_in(source: &str) -> BTreeSet<String> {
    // rustfmt breaks long routes into several lines.
    let router: String = source.split_whitespace().collect();
    let mut operations = BTreeSet::new();
    for route in router.split(".route(\"").skip(1) {
        let (path, methods) = route.split_once('"').unwrap();
        // Layers follow a router's last route.
        let methods = methods.split("_layer(").next().unwrap();
        for method in ["get", "post", "put", "patch", "delete"] {
            if methods.contains(&format!("{method}(")) {
                operations.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    operations
}
