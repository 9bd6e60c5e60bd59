//! Fault injection: kills, freezes, flushes and restarts the processes of an installation under
//! load, then verifies every submission that was acknowledged with 202.
//!
//! The seed determines the faults and their order; the number of accepted submissions determines
//! their time. Scheduling by the machine determines which request or job a fault hits.

mod accounts;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Mutex, RwLock};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::databases;
use crate::demo_suite::Random;
use crate::link::{Ending, Link};
use crate::servers::{Servers, Trouble};
use crate::site::{Site, drain};
use crate::stack::{Ground, Process, Stack, StackSize, free_address};
use crate::wait::wait_timeout;
use crate::{demonstration, playlist_suite};

/// A client's timeout for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);

/// The same where links may be half-open: no response ever arrives over such a link, so a long wait
/// has no use.
const RESPONSE_TIMEOUT_OF_LINKS: Duration = Duration::from_secs(15);

/// A client's delay before it retries a request.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Duration of a worker's freeze.
const FREEZE_DURATION: Duration = Duration::from_secs(3);

/// Duration for which a link refuses connections, stalls or is slow.
const LINK_FAULT_DURATION: Duration = Duration::from_secs(2);

/// Delay of a slow link for each chunk, in each direction.
const SLOW_LINK_DELAY: Duration = Duration::from_millis(20);

/// Delay before the standby is promoted: in production, the loss of the primary must be detected
/// first.
const DETECTION_DELAY: Duration = Duration::from_secs(2);

/// Maximum time from the promotion until every API process and a worker serve again.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// Number of different evals.
const EVALS: usize = 8;

/// Of this many submissions, one is a prediction job with an eval of its output.
const PREDICTION_EVERY: usize = 25;

/// A fault that is injected into an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker; a new one replaces it.
    KillWorker,
    /// SIGKILL to an API process; a new one replaces it, at another address.
    KillApi,
    /// SIGSTOP to a worker, for three seconds.
    FreezeWorker,
    /// SIGKILL to the engine; a new one replaces it, at the same address.
    KillEngine,
    /// `FLUSHALL` in Redis.
    FlushRedis,
    /// Redis stops and restarts empty.
    RestartRedis,
    /// PostgreSQL stops immediately, as in a crash, and recovers.
    CrashPostgres,
    /// All connections of one link are closed.
    CutLink(Side),
    /// All connections of one link become half-open; for two seconds, so do new connections.
    HalfOpenLink(Side),
    /// One link closes its connections; for two seconds, it closes new connections too.
    RefuseLink(Side),
    /// One link delivers nothing for two seconds and everything afterwards, as when lost packets
    /// are retransmitted.
    StallLink(Side),
    /// One link delays each chunk by 20 ms, in each direction, for two seconds.
    SlowLink(Side),
    /// The next response over one link is lost, and its connection is closed: for PostgreSQL, after
    /// a commit.
    LoseResponse(Side),
    /// The next response over one link is lost, and its connection becomes half-open.
    LoseResponseSilently(Side),
    /// SIGKILL to all processes of the primary; the standby is promoted.
    KillPrimary,
    /// SIGSTOP to all processes of the primary; the standby is promoted, and then the old primary
    /// continues.
    FreezePrimary,
}

/// The peers that a link connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A client and an API process.
    Client,
    /// An API process or a worker, and PostgreSQL.
    Postgres,
    /// An API process or a worker, and Redis.
    Redis,
}

/// An installation's servers, and the way to reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// PostgreSQL and Redis, reached directly.
    Plain,
    /// PostgreSQL, Redis and the API, reached over links.
    Links,
    /// PostgreSQL with a synchronous standby; the processes have the addresses of both.
    Standby,
}

/// The size of a run: its submissions, clients and faults.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Submission count.
    pub jobs: usize,
    /// Concurrent client count.
    pub clients: usize,
    /// Seed for the fault order.
    pub seed: u64,
    /// Injections per fault.
    pub faults: Vec<(Fault, usize)>,
    setup: Setup,
}

impl Scale {
    /// Faults of processes: 80 for 10,000 jobs, proportionally fewer for fewer jobs, at least one
    /// of each kind.
    pub fn of(jobs: usize, seed: u64) -> Self {
        let counts = [
            (Fault::KillWorker, 50),
            (Fault::KillApi, 10),
            (Fault::FreezeWorker, 6),
            (Fault::KillEngine, 5),
            (Fault::FlushRedis, 5),
            (Fault::RestartRedis, 2),
            (Fault::CrashPostgres, 2),
        ];
        Self::new(Setup::Plain, jobs, seed, &counts, 10_000)
    }

    /// Faults of the network: 92 for 5,000 jobs, proportionally fewer for fewer jobs, at least one
    /// of each kind.
    pub fn network(jobs: usize, seed: u64) -> Self {
        let counts = [
            (Fault::CutLink(Side::Client), 6),
            (Fault::CutLink(Side::Postgres), 10),
            (Fault::CutLink(Side::Redis), 5),
            (Fault::HalfOpenLink(Side::Client), 2),
            (Fault::HalfOpenLink(Side::Postgres), 4),
            (Fault::HalfOpenLink(Side::Redis), 3),
            (Fault::RefuseLink(Side::Postgres), 4),
            (Fault::RefuseLink(Side::Redis), 2),
            (Fault::StallLink(Side::Client), 2),
            (Fault::StallLink(Side::Postgres), 3),
            (Fault::StallLink(Side::Redis), 2),
            (Fault::SlowLink(Side::Postgres), 3),
            (Fault::SlowLink(Side::Redis), 2),
            (Fault::LoseResponse(Side::Client), 10),
            (Fault::LoseResponse(Side::Postgres), 20),
            (Fault::LoseResponse(Side::Redis), 6),
            (Fault::LoseResponseSilently(Side::Client), 2),
            (Fault::LoseResponseSilently(Side::Postgres), 6),
        ];
        Self::new(Setup::Links, jobs, seed, &counts, 5_000)
    }

    /// The loss of the primary in the middle of the submissions: it is frozen if `frozen`,
    /// otherwise killed.
    pub fn failover(jobs: usize, frozen: bool) -> Self {
        Self::new(
            Setup::Standby,
            jobs,
            1,
            &[(
                if frozen {
                    Fault::FreezePrimary
                } else {
                    Fault::KillPrimary
                },
                1,
            )],
            jobs,
        )
    }

    fn new(setup: Setup, jobs: usize, seed: u64, counts: &[(Fault, usize)], of: usize) -> Self {
        let faults = counts
            .iter()
            .map(|(fault, count)| (*fault, (count * jobs / of.max(1)).max(1)))
            .collect();
        Self {
            jobs,
            clients: 16,
            seed,
            faults,
            setup,
        }
    }

    /// Returns `true` if the run needs a PostgreSQL with a standby.
    pub fn needs_standby(&self) -> bool {
        self.setup == Setup::Standby
    }

    const fn response_timeout(&self) -> Duration {
        match self.setup {
            Setup::Plain => RESPONSE_TIMEOUT,
            Setup::Links | Setup::Standby => RESPONSE_TIMEOUT_OF_LINKS,
        }
    }

    /// Returns the faults in random order.
    fn schedule(&self, random: &mut Random) -> Vec<Fault> {
        let mut faults: Vec<_> = self
            .faults
            .iter()
            .flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count))
            .collect();
        // The Fisher–Yates shuffle.
        for last in (1..faults.len()).rev() {
            faults.swap(last, random.below(last as u64 + 1));
        }
        faults
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Submissions acknowledged with 202.
    pub acknowledged: usize,
    /// The share of `acknowledged` that are prediction jobs with an eval.
    pub predictions: usize,
    /// Jobs of acknowledged submissions that are not in the database.
    pub missing: usize,
    /// Jobs of acknowledged submissions that did not succeed.
    pub lost: usize,
    /// Jobs whose id no client received: the submission was created twice.
    pub created_twice: usize,
    /// Jobs not charged exactly once.
    pub charged_wrong: usize,
    /// Jobs whose score or output differs from the one without faults, or from an earlier read.
    pub changed: usize,
    /// Submissions that were sent again after their 202 and returned another job.
    pub wrong_replays: usize,
    /// Attempts of all jobs.
    pub executions: i64,
    /// Attempts beyond the first of each job.
    pub retries: i64,
    /// Retried requests by cause.
    pub retried_requests: BTreeMap<String, usize>,
    /// Injections per fault.
    pub faults: BTreeMap<Fault, usize>,
    /// Times from a promotion until each API process, and the first worker, served again.
    pub recovered: Vec<Duration>,
    /// Time from the first submission to the last job's end.
    pub took: Duration,
    /// The share of `took` after the last submission was accepted.
    pub drained: Duration,
}

impl Report {
    /// Returns `true` if nothing was lost, duplicated, charged wrongly or changed.
    pub fn is_clean(&self) -> bool {
        let wrong = self.missing
            + self.lost
            + self.created_twice
            + self.charged_wrong
            + self.changed
            + self.wrong_replays;
        wrong == 0
    }

    /// Returns `true` if recovery took no longer than 15 s. The tests do not assert it, because a
    /// busy machine needs longer.
    pub fn is_fast(&self) -> bool {
        self.recovered.iter().all(|after| *after <= RECOVERY_MAX)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted =
            |counts: &mut dyn Iterator<Item = String>| counts.collect::<Vec<_>>().join(", ");
        let faults = counted(
            &mut self
                .faults
                .iter()
                .map(|(fault, count)| format!("{count} × {fault:?}")),
        );
        let retried = counted(
            &mut self
                .retried_requests
                .iter()
                .map(|(why, count)| format!("{count} × {why}")),
        );
        for (name, value) in [
            ("faults", faults),
            ("retried requests", retried),
            (
                "acknowledged",
                format!("{} ({} predictions)", self.acknowledged, self.predictions),
            ),
            ("acknowledged but missing", self.missing.to_string()),
            ("lost", self.lost.to_string()),
            ("created twice", self.created_twice.to_string()),
            ("not charged exactly once", self.charged_wrong.to_string()),
            ("results changed", self.changed.to_string()),
            ("retries with another job", self.wrong_replays.to_string()),
            (
                "executions",
                format!("{} ({} retries)", self.executions, self.retries),
            ),
            (
                "time",
                format!(
                    "{:.1} s, of which {:.1} s after the last submission",
                    self.took.as_secs_f64(),
                    self.drained.as_secs_f64()
                ),
            ),
        ] {
            writeln!(f, "{name:>29}  {value}")?;
        }
        if !self.recovered.is_empty() {
            let after: Vec<_> = self
                .recovered
                .iter()
                .map(|after| format!("{:.1} s", after.as_secs_f64()))
                .collect();
            writeln!(
                f,
                "{:>29}  {} after the promotion (API processes, and the first job)",
                "served again",
                after.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Starts servers with a PostgreSQL that has a synchronous standby.
///
/// # Errors
/// If they cannot be started.
pub fn servers_with_standby() -> Result<Servers, Trouble> {
    Servers::start_with_standby([free_address()?.port(), free_address()?.port()], &|line| {
        eprintln!("{line}");
    })
}

/// The state that clients and the fault injection share.
struct SharedState {
    ground: Arc<Ground>,
    stack: Mutex<Stack>,
    /// Base URLs of the API processes.
    apis: RwLock<Vec<String>>,
    key: String,
    /// The evals, and then the prediction job.
    requests: Vec<Request>,
    scale: Scale,
    next: AtomicUsize,
    acknowledged: AtomicUsize,
    stopped: AtomicBool,
    links: Links,
    /// For each base URL, the time at which the last accepted submission was sent.
    served: std::sync::Mutex<HashMap<String, Instant>>,
    recovered: std::sync::Mutex<Vec<Duration>>,
    /// `true` while a failover is not yet over. Clients then submit more than [`Scale::jobs`], so
    /// that every API process gets a submission after it.
    failing_over: AtomicBool,
}

/// A request that clients send.
struct Request {
    path: &'static str,
    body: Value,
}

impl Request {
    /// Returns the ids of the jobs in the response: the job, and the eval that waits for it.
    fn job_ids(response: &Value) -> Vec<String> {
        let ids = [&response["id"], &response["eval_job_id"]];
        ids.into_iter()
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect()
    }
}

/// An installation's links; empty unless its setup is [`Setup::Links`].
#[derive(Default)]
struct Links {
    client: Vec<Link>,
    postgres: Vec<Link>,
    redis: Vec<Link>,
}

impl Links {
    fn of(&self, side: Side) -> &[Link] {
        match side {
            Side::Client => &self.client,
            Side::Postgres => &self.postgres,
            Side::Redis => &self.redis,
        }
    }

    /// Adds processes to the stack, each with links of its own.
    async fn launch(stack: &mut Stack, apis: usize, workers: usize) -> Result<Self, Trouble> {
        let mut links = Self::default();
        let ground = Arc::clone(&stack.ground);
        let direct = stack.database.clone();
        for number in 0..apis + workers {
            let postgres = Link::to_postgres(&ground.servers)?;
            let redis = Link::to_redis(&ground.servers)?;
            stack.database.api_url = postgres.postgres_url(&direct.api_url, &direct.name);
            stack.database.worker_url = postgres.postgres_url(&direct.worker_url, &direct.name);
            stack.set("ASSAY_REDIS_URL", &redis.redis_url());
            if number < apis {
                let api = stack.launch_api()?;
                api.ready().await?;
                links
                    .client
                    .push(Link::to_api(api.listen.ok_or_else(|| {
                        Trouble::new("the API process has no listen address")
                    })?)?);
                stack.apis.push(api);
            } else {
                let worker = stack.launch_worker()?;
                worker.ready().await?;
                stack.workers.push(worker);
            }
            links.postgres.push(postgres);
            links.redis.push(redis);
        }
        Ok(links)
    }
}

/// Adds processes to the stack that have the addresses of PostgreSQL and its standby.
async fn launch_with_standby(
    stack: &mut Stack,
    apis: usize,
    workers: usize,
) -> Result<(), Trouble> {
    let hosts = stack.ground.servers.postgres_hosts();
    let several = |url: &str, database: &str| {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (role, _) = rest.split_once('@').unwrap_or_default();
        format!(
            "postgres://{role}@{hosts}/{database}?target_session_attrs=read-write&sslmode=disable"
        )
    };
    let database = stack.database.clone();
    stack.database.api_url = several(&database.api_url, &database.name);
    stack.database.worker_url = several(&database.worker_url, &database.name);
    for _ in 0..apis {
        stack.apis.push(stack.launch_api()?);
    }
    for _ in 0..workers {
        stack.workers.push(stack.launch_worker()?);
    }
    for process in stack.apis.iter().chain(&stack.workers) {
        process.ready().await?;
    }
    Ok(())
}

/// The responses that one client received.
#[derive(Default)]
struct ClientLog {
    /// Acknowledged submissions: their job ids, and the index of the request.
    submissions: Vec<(Vec<String>, usize)>,
    wrong_replays: usize,
    retried_requests: BTreeMap<String, usize>,
}

/// Runs `scale` on private servers. Calls `progress` with the number of accepted submissions.
///
/// # Errors
/// If something cannot be started, the API returns an unexpected response, or the servers
/// are not private.
pub async fn run(
    ground: &Arc<Ground>,
    scale: Scale,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Report, Trouble> {
    let (state, org_id) = SharedState::new(ground, scale).await?;
    let expected = state.expected(&org_id).await?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..state.scale.clients {
        let state = Arc::clone(&state);
        clients.spawn(async move { state.submit_all(client).await });
    }
    let faults = tokio::spawn(Arc::clone(&state).inject_faults());

    // Results read during the run, to compare the final ones with.
    let mut read_before = HashMap::new();
    while state.acknowledged.load(Ordering::Relaxed) < state.scale.jobs
        && !state.stopped.load(Ordering::Relaxed)
    {
        progress(state.acknowledged.load(Ordering::Relaxed));
        if read_before.is_empty()
            && state.acknowledged.load(Ordering::Relaxed) * 2 > state.scale.jobs
        {
            // PostgreSQL may be unavailable now; then the next iteration retries.
            if let Ok(Ok(rows)) =
                tokio::time::timeout(Duration::from_secs(2), state.outcomes(&org_id)).await
            {
                read_before = rows;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut client_log = ClientLog::default();
    while let Some(client) = clients.join_next().await {
        let client = client.map_err(Trouble::because("a client panicked"))??;
        client_log.submissions.extend(client.submissions);
        client_log.wrong_replays += client.wrong_replays;
        for (why, count) in client.retried_requests {
            *client_log.retried_requests.entry(why).or_default() += count;
        }
    }
    progress(client_log.submissions.len());
    let accepted = began.elapsed();
    let faults = faults
        .await
        .map_err(Trouble::because("the fault injection panicked"))??;
    // A fault may have cut the connection, or moved the database to another server.
    let mut database = databases::connect(&state.database_url().await).await?;
    drain(&mut database).await?;
    let took = began.elapsed();
    let rows = accounts::rows(&mut database, &org_id).await?;
    let mut report = accounts::compare(&rows, &client_log, &expected, &read_before);
    report.faults = faults;
    report.retried_requests = client_log.retried_requests;
    report.recovered = std::mem::take(&mut *lock(&state.recovered));
    (report.took, report.drained) = (took, took.saturating_sub(accepted));
    state.stack.lock().await.stop();
    Ok(report)
}

impl SharedState {
    async fn new(ground: &Arc<Ground>, scale: Scale) -> Result<(Arc<Self>, String), Trouble> {
        if ground.servers.postgres_pid().is_none() || ground.servers.redis_pid().is_none() {
            return Err(Trouble::new(
                "cargo chaos needs private servers; unset DATABASE_URL and REDIS_URL",
            ));
        }
        let apis = 2;
        let workers = 3;
        let open_eagerly = if scale.setup == Setup::Plain {
            (apis, workers)
        } else {
            (0, 0)
        };
        let mut site = Site::start(
            ground,
            StackSize {
                apis: open_eagerly.0,
                workers: open_eagerly.1,
                engines: 1,
                ..StackSize::default()
            },
        )
        .await?;
        let links = match scale.setup {
            Setup::Plain => Links::default(),
            Setup::Links => Links::launch(&mut site.stack, apis, workers).await?,
            Setup::Standby => {
                launch_with_standby(&mut site.stack, apis, workers).await?;
                Links::default()
            }
        };
        site.stack.launch_named_engines()?;
        for engine in &site.stack.engines {
            engine.ready().await?;
        }
        demonstration::publish_playlist(&site.stack).await?;
        let evals = site.submissions(EVALS).await?.into_iter();
        let mut requests: Vec<_> = evals
            .map(|body| Request {
                path: "/v1/evals",
                body,
            })
            .collect();
        requests.push(Request {
            path: "/v1/predictions",
            body: json!({
                "model_id": demonstration::MODEL_ID,
                "suite_id": playlist_suite::SUITE_ID,
                "evaluate": true,
            }),
        });
        let linked: Vec<String> = links.client.iter().map(Link::http_url).collect();
        let apis = RwLock::new(if linked.is_empty() {
            site.stack.addresses()
        } else {
            linked
        });
        let Site { stack, org, .. } = site;
        let next = AtomicUsize::new(0);
        let acknowledged = AtomicUsize::new(0);
        let stopped = AtomicBool::new(false);
        let (served, recovered) = Default::default();
        let ground = Arc::clone(ground);
        let stack = Mutex::new(stack);
        let state = Self {
            ground,
            stack,
            apis,
            key: org.key,
            requests,
            scale,
            next,
            acknowledged,
            stopped,
            links,
            served,
            recovered,
            failing_over: AtomicBool::new(false),
        };
        Ok((Arc::new(state), org.id))
    }

    async fn database_url(&self) -> String {
        self.stack.lock().await.database.owner_url.clone()
    }

    /// Returns the jobs of each request and their outcomes, from before the first fault.
    async fn expected(&self, org_id: &str) -> Result<Vec<Vec<(String, String)>>, Trouble> {
        let client = Client::new(self.stack.lock().await.url(), Some(&self.key));
        let mut created = Vec::new();
        for request in &self.requests {
            let queued = client.post(request.path, &request.body).await?;
            let ids = Request::job_ids(&queued.body);
            for id in &ids {
                client.wait_until_finished(id, &|_| {}).await?;
            }
            created.push((ids, queued.body));
        }
        let outcomes = self.outcomes(org_id).await?;
        let outcome = |id: String| Some((outcomes.get(&id)?.clone(), id));
        created
            .into_iter()
            .map(|(ids, response)| {
                let n = ids.len();
                let known: Vec<_> = ids.into_iter().filter_map(outcome).collect();
                if n == 0 || known.len() < n {
                    return Err(Trouble::new(format!("a job did not succeed: {response}")));
                }
                Ok(known
                    .into_iter()
                    .map(|(outcome, id)| (id, outcome))
                    .collect())
            })
            .collect()
    }

    /// Returns the outcomes of the jobs that have succeeded so far.
    async fn outcomes(&self, org_id: &str) -> Result<HashMap<String, String>, Trouble> {
        let mut database = databases::connect(&self.database_url().await).await?;
        let rows = accounts::rows(&mut database, org_id).await?;
        Ok(rows
            .into_iter()
            .filter(|row| row.status == "succeeded")
            .filter_map(|row| Some((row.id, row.outcome?)))
            .collect())
    }

    /// Returns the index of a submission's request.
    fn variant(&self, number: usize) -> usize {
        let predictions = self.requests.len() - 1;
        if number.is_multiple_of(PREDICTION_EVERY) {
            predictions
        } else {
            number % predictions
        }
    }

    /// Sends submissions as one client until [`Scale::jobs`] are claimed and no failover is in
    /// progress, and retries each until it is accepted.
    async fn submit_all(&self, client: usize) -> Result<ClientLog, Trouble> {
        let mut client_log = ClientLog::default();
        // One connection pool for each address, as a real client has.
        let mut clients: HashMap<String, Client> = HashMap::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.scale.jobs && !self.failing_over.load(Ordering::Relaxed) {
                return Ok(client_log);
            }
            let job_ids = self
                .submit(&mut clients, client + number, number, &mut client_log)
                .await;
            let job_ids = job_ids.inspect_err(|_| self.stopped.store(true, Ordering::Relaxed))?;
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            // One in ten submissions is sent again after its 202, as by a client that lost the
            // response.
            if number.is_multiple_of(10)
                && self
                    .submit(&mut clients, client + number, number, &mut client_log)
                    .await?
                    != job_ids
            {
                client_log.wrong_replays += 1;
            }
            client_log.submissions.push((job_ids, self.variant(number)));
        }
    }

    async fn submit(
        &self,
        clients: &mut HashMap<String, Client>,
        first_api: usize,
        number: usize,
        client_log: &mut ClientLog,
    ) -> Result<Vec<String>, Trouble> {
        let Request { path, body } = &self.requests[self.variant(number)];
        let began = Instant::now();
        for tried in 0.. {
            let url = {
                let apis = self.apis.read().await;
                apis[(first_api + tried) % apis.len()].clone()
            };
            let client = clients
                .entry(url.clone())
                .or_insert_with_key(|url| Client::new(url, Some(&self.key)).without_retries());
            let sent = Instant::now();
            let request = client
                .request("POST", path)
                .header("Idempotency-Key", format!("chaos-{number}"))
                .json(body);
            let why =
                match tokio::time::timeout(self.scale.response_timeout(), client.send(request))
                    .await
                {
                    Ok(Ok(response)) if response.status == 202 => {
                        lock(&self.served).insert(url, sent);
                        return Ok(Request::job_ids(&response.body));
                    }
                    Ok(Ok(response)) if response.status == 503 => "503".to_owned(),
                    Ok(Ok(response)) => {
                        return Err(Trouble::new(format!(
                            "unexpected response: {} {}",
                            response.status, response.body
                        )));
                    }
                    Ok(Err(_)) => "connection broken".to_owned(),
                    Err(_) => "no response".to_owned(),
                };
            *client_log.retried_requests.entry(why).or_default() += 1;
            if began.elapsed() > wait_timeout() || self.stopped.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        Err(Trouble::new(format!(
            "submission {number} was not accepted in {:?}",
            wait_timeout()
        )))
    }

    /// Injects all faults one after the other, evenly over the submissions.
    async fn inject_faults(self: Arc<Self>) -> Result<BTreeMap<Fault, usize>, Trouble> {
        let mut random = Random::new(self.scale.seed);
        let schedule = self.scale.schedule(&mut random);
        let mut done = BTreeMap::new();
        let mut recoveries = JoinSet::new();
        for (at, fault) in schedule.iter().enumerate() {
            let due = (at + 1) * self.scale.jobs / (schedule.len() + 1);
            while self.acknowledged.load(Ordering::Relaxed) < due {
                if self.stopped.load(Ordering::Relaxed) {
                    return Ok(done);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.inject(*fault, &mut random, &mut recoveries).await?;
            *done.entry(*fault).or_default() += 1;
        }
        recoveries.join_all().await;
        Ok(done)
    }

    async fn inject(
        self: &Arc<Self>,
        fault: Fault,
        random: &mut Random,
        recoveries: &mut JoinSet<()>,
    ) -> Result<(), Trouble> {
        match fault {
            Fault::KillWorker => {
                let mut stack = self.stack.lock().await;
                let fresh = stack.launch_worker()?;
                let at = random.below(stack.workers.len() as u64);
                kill(std::mem::replace(&mut stack.workers[at], fresh));
            }
            Fault::KillApi => {
                let mut stack = self.stack.lock().await;
                let fresh = stack.launch_api()?;
                let at = random.below(stack.apis.len() as u64);
                kill(std::mem::replace(&mut stack.apis[at], fresh));
                *self.apis.write().await = stack.addresses();
            }
            Fault::KillEngine => {
                let mut stack = self.stack.lock().await;
                let engine = stack.engines.pop();
                let listen = engine.as_ref().and_then(|engine| engine.listen);
                let (Some(engine), Some(listen)) = (engine, listen) else {
                    return Err(Trouble::new("the installation has no engine"));
                };
                engine.guarded.signal(libc::SIGKILL);
                // Its address is free again when it has ended.
                tokio::task::spawn_blocking(move || engine.guarded.wait(wait_timeout()))
                    .await
                    .map_err(Trouble::because("the wait for the engine panicked"))?;
                let fresh = stack.launch_engine(listen)?;
                stack.engines.push(fresh);
            }
            Fault::FreezeWorker => {
                let stack = self.stack.lock().await;
                let worker = &stack.workers[random.below(stack.workers.len() as u64)];
                worker.guarded.signal(libc::SIGSTOP);
                let state = Arc::clone(self);
                let admin = worker.admin;
                recoveries.spawn(async move {
                    tokio::time::sleep(FREEZE_DURATION).await;
                    // It may have been killed meanwhile.
                    let stack = state.stack.lock().await;
                    if let Some(worker) = stack.workers.iter().find(|worker| worker.admin == admin)
                    {
                        worker.guarded.signal(libc::SIGCONT);
                    }
                });
            }
            Fault::FlushRedis => {
                let flush = async {
                    let client = redis::Client::open(self.ground.servers.redis_url())?;
                    redis::cmd("FLUSHALL")
                        .exec_async(&mut client.get_multiplexed_async_connection().await?)
                        .await
                };
                flush.await.map_err(|error: redis::RedisError| {
                    Trouble::because("cannot flush Redis")(error)
                })?;
            }
            Fault::RestartRedis | Fault::CrashPostgres => {
                let ground = Arc::clone(&self.ground);
                let restart = move || match fault {
                    Fault::RestartRedis => ground.servers.redis_restart(),
                    _ => ground.servers.postgres_restart(true),
                };
                tokio::task::spawn_blocking(restart)
                    .await
                    .map_err(Trouble::because("a restart panicked"))??;
            }
            Fault::KillPrimary | Fault::FreezePrimary => {
                self.failing_over.store(true, Ordering::Relaxed);
                let recovered = self.fail_over(fault == Fault::FreezePrimary).await;
                self.failing_over.store(false, Ordering::Relaxed);
                recovered?;
            }
            Fault::CutLink(side)
            | Fault::HalfOpenLink(side)
            | Fault::RefuseLink(side)
            | Fault::StallLink(side)
            | Fault::SlowLink(side)
            | Fault::LoseResponse(side)
            | Fault::LoseResponseSilently(side) => {
                let at = random.below(self.links.of(side).len() as u64);
                let link = self
                    .links
                    .of(side)
                    .get(at)
                    .ok_or_else(|| Trouble::new("the setup has no links"))?;
                match fault {
                    Fault::CutLink(_) => link.end(Ending::Closed),
                    Fault::LoseResponse(_) => link.lose_response(Ending::Closed),
                    Fault::LoseResponseSilently(_) => link.lose_response(Ending::HalfOpen),
                    Fault::HalfOpenLink(_) => link.refuse(Ending::HalfOpen),
                    Fault::RefuseLink(_) => link.refuse(Ending::Closed),
                    Fault::StallLink(_) => link.stall(),
                    _ => link.delay(SLOW_LINK_DELAY),
                }
                if !matches!(
                    fault,
                    Fault::CutLink(_) | Fault::LoseResponse(_) | Fault::LoseResponseSilently(_)
                ) {
                    let state = Arc::clone(self);
                    recoveries.spawn(async move {
                        tokio::time::sleep(LINK_FAULT_DURATION).await;
                        state
                            .links
                            .of(side)
                            .get(at)
                            .into_iter()
                            .for_each(Link::mend);
                    });
                }
            }
        }
        Ok(())
    }

    /// Kills or freezes the primary and promotes the standby. Returns when every API process has
    /// accepted a submission sent after the promotion, and a worker has finished a job.
    async fn fail_over(&self, frozen: bool) -> Result<(), Trouble> {
        let servers = &self.ground.servers;
        servers.postgres_signal(if frozen { libc::SIGSTOP } else { libc::SIGKILL })?;
        tokio::time::sleep(DETECTION_DELAY).await;
        let mut standby = databases::connect(&servers.standby_url("postgres")?).await?;
        let promote = sqlx::query_scalar::<_, bool>("select pg_promote(true, 30)")
            .fetch_one(&mut standby)
            .await;
        if !promote.map_err(Trouble::because("cannot promote the standby"))? {
            return Err(Trouble::new("the standby was not promoted in time"));
        }
        let promoted = Instant::now();
        let name = self.stack.lock().await.database.name.clone();
        self.stack.lock().await.database.owner_url = servers.standby_url(&name)?;
        let mut database = databases::connect(&servers.standby_url(&name)?).await?;
        let now = sqlx::query_scalar::<_, String>("select clock_timestamp()::text")
            .fetch_one(&mut database)
            .await;
        let now = now.map_err(Trouble::because("cannot read the clock"))?;
        let mut waiting = self.apis.read().await.clone();
        let mut finished = false;
        while !waiting.is_empty() || !finished {
            if self.stopped.load(Ordering::Relaxed) || promoted.elapsed() > wait_timeout() {
                return Err(Trouble::new(format!(
                    "no recovery after the promotion: waiting for {waiting:?}, finished a job: {finished}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            let mut served = Vec::new();
            waiting.retain(|url| {
                let is_served = lock(&self.served)
                    .get(url)
                    .is_some_and(|sent| *sent > promoted);
                served.extend(is_served.then_some(()));
                !is_served
            });
            if !finished {
                let sql = "select exists(select from jobs where finished_at > $1::timestamptz)";
                finished = sqlx::query_scalar(sql)
                    .bind(&now)
                    .fetch_one(&mut database)
                    .await
                    .map_err(Trouble::because("cannot read jobs"))?;
                served.extend(finished.then_some(()));
            }
            lock(&self.recovered).extend(served.into_iter().map(|()| promoted.elapsed()));
        }
        if frozen {
            // The old primary continues as if it were still the primary.
            servers.postgres_signal(libc::SIGCONT)?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sends SIGKILL, which ends a frozen process too, and without a graceful shutdown.
fn kill(process: Process) {
    process.guarded.signal(libc::SIGKILL);
}
