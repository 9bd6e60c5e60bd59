//! Chaos: a whole installation under load, of which one part after the other is killed, frozen, emptied or restarted; then
//! an account of every submission that was answered with 202.
//!
//! What happens, and in which order, follows from the seed; when it happens follows from how far the load has come. Which
//! request or job is hit is left to the machine.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::PgConnection;
use tokio::sync::{Mutex, RwLock};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::databases;
use crate::demo_suite::Random;
use crate::link::{Ending, Link};
use crate::servers::{Servers, Trouble};
use crate::site::{Site, drain};
use crate::stack::{Ground, Plan, Process, Stack, free_address};

/// How long a client waits for one response; where links may be half-open, a client that waits longer wastes its time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);
const RESPONSE_TIMEOUT_OF_LINKS: Duration = Duration::from_secs(15);

/// How long a client waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a client goes on trying for one submission.
const PERSEVERANCE: Duration = Duration::from_secs(120);

/// How long the jobs may take to end after the last of them was accepted.
const DRAIN: Duration = Duration::from_secs(120);

/// How long a worker is frozen.
const FREEZE: Duration = Duration::from_secs(3);

/// How long a link is refused, stalled or slow.
const DISTURBANCE: Duration = Duration::from_secs(2);

/// What a slow link takes for each chunk, in each direction.
const SLOWNESS: Duration = Duration::from_millis(20);

/// How long the standby waits before it is promoted: somebody must notice that the primary is gone.
const UNNOTICED: Duration = Duration::from_secs(2);

/// How long after the promotion everything must be served again.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// How many different submissions there are.
const VARIANTS: usize = 8;

/// What is done to an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker; another takes its place.
    KillWorker,
    /// SIGKILL to an api process; another takes its place, at another address.
    KillApi,
    /// SIGSTOP to a worker, for three seconds.
    FreezeWorker,
    /// FLUSHALL.
    FlushRedis,
    /// Redis ends and comes back empty.
    RestartRedis,
    /// PostgreSQL ends at once, as in a crash, and recovers.
    CrashPostgres,
    /// All connections of one link are closed.
    CutLink(Side),
    /// All connections of one link are half-open from now on, and so are those that are made for two seconds.
    HalfOpenLink(Side),
    /// One link is cut, and closes every connection for two seconds.
    RefuseLink(Side),
    /// One link delivers nothing for two seconds, and all of it afterwards, as when packets are lost and sent again.
    StallLink(Side),
    /// One link takes 20 ms for each chunk, in each direction, for two seconds.
    SlowLink(Side),
    /// The next response over one link is lost, and its connection is closed: for PostgreSQL, after a commit.
    LoseResponse(Side),
    /// The same, and nobody sees that the connection is lost.
    LoseResponseSilently(Side),
    /// SIGKILL to all processes of the primary; the standby is promoted.
    KillPrimary,
    /// SIGSTOP to all processes of the primary; the standby is promoted, and then the old primary comes back.
    FreezePrimary,
}

/// Between whom a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A client and an api process.
    Client,
    /// An api process or a worker, and PostgreSQL.
    Postgres,
    /// An api process or a worker, and Redis.
    Redis,
}

/// What an installation stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// Servers, each reached directly.
    Plain,
    /// The same, each reached by links.
    Links,
    /// PostgreSQL has a synchronous standby, and processes know the addresses of both.
    Standby,
}

/// How large the chaos is.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Submissions.
    pub jobs: usize,
    /// Clients that send them.
    pub clients: usize,
    /// From which the order of the faults is made.
    pub seed: u64,
    /// How often each is done.
    pub faults: Vec<(Fault, usize)>,
    setup: Setup,
}

impl Scale {
    /// The whole of it: 75 faults for 10,000 jobs. For fewer jobs fewer faults, of each kind at least one.
    pub fn of(jobs: usize, seed: u64) -> Self {
        let whole = [
            (Fault::KillWorker, 50),
            (Fault::KillApi, 10),
            (Fault::FreezeWorker, 6),
            (Fault::FlushRedis, 5),
            (Fault::RestartRedis, 2),
            (Fault::CrashPostgres, 2),
        ];
        Self::new(Setup::Plain, jobs, seed, &whole, 10_000)
    }

    /// Faults of the network: 92 for 5,000 jobs.
    pub fn network(jobs: usize, seed: u64) -> Self {
        let whole = [
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
        Self::new(Setup::Links, jobs, seed, &whole, 5_000)
    }

    /// The loss of the primary, in the middle of the submissions: killed, or frozen.
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

    fn new(setup: Setup, jobs: usize, seed: u64, whole: &[(Fault, usize)], of: usize) -> Self {
        let faults = whole
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

    /// Whether this needs a PostgreSQL with a standby.
    pub fn needs_standby(&self) -> bool {
        self.setup == Setup::Standby
    }

    const fn response_timeout(&self) -> Duration {
        match self.setup {
            Setup::Plain => RESPONSE_TIMEOUT,
            Setup::Links | Setup::Standby => RESPONSE_TIMEOUT_OF_LINKS,
        }
    }

    /// The faults in their order.
    fn schedule(&self, random: &mut Random) -> Vec<Fault> {
        let mut faults: Vec<_> = self
            .faults
            .iter()
            .flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count))
            .collect();
        // Fisher and Yates.
        for last in (1..faults.len()).rev() {
            faults.swap(last, random.below(last as u64 + 1));
        }
        faults
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Submissions that were answered with 202.
    pub acknowledged: usize,
    /// Of these, how many are not in the database.
    pub missing: usize,
    /// Of these, how many have not succeeded in the end.
    pub lost: usize,
    /// Jobs of which nobody was told: a submission made twice.
    pub unknown: usize,
    /// Jobs that were charged more or less often than once.
    pub charged_wrong: usize,
    /// Jobs whose result is not that of the quiet installation, or is not what it was before.
    pub changed: usize,
    /// What was sent again after the answer, and answered with another job.
    pub replayed_wrong: usize,
    /// Attempts at jobs.
    pub executions: i64,
    /// Attempts beyond the first of each job.
    pub retries: i64,
    /// Requests that were sent again, by why.
    pub tried_again: BTreeMap<String, usize>,
    /// What was done.
    pub faults: BTreeMap<Fault, usize>,
    /// How long after a promotion each api process, and the first worker, served again.
    pub recovered: Vec<Duration>,
    /// From the first submission to the end of the last job.
    pub took: Duration,
    /// Of this, after the last submission was accepted.
    pub drained: Duration,
}

impl Report {
    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        let wrong = self.missing
            + self.lost
            + self.unknown
            + self.charged_wrong
            + self.changed
            + self.replayed_wrong;
        wrong == 0 && self.recovered.iter().all(|after| *after <= RECOVERY_MAX)
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
        let again = counted(
            &mut self
                .tried_again
                .iter()
                .map(|(why, count)| format!("{count} × {why}")),
        );
        for (name, value) in [
            ("faults", faults),
            ("requests sent again", again),
            ("acknowledged", self.acknowledged.to_string()),
            ("acknowledged but missing", self.missing.to_string()),
            ("lost", self.lost.to_string()),
            ("made twice", self.unknown.to_string()),
            ("not charged exactly once", self.charged_wrong.to_string()),
            ("results changed", self.changed.to_string()),
            (
                "repetitions answered wrongly",
                self.replayed_wrong.to_string(),
            ),
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
                "{:>29}  {} after the promotion (api processes, and the first job)",
                "served again",
                after.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Servers of which PostgreSQL has a synchronous standby.
///
/// # Errors
/// When they cannot be started.
pub fn servers_with_standby() -> Result<Servers, Trouble> {
    Servers::start_with_standby([free_address()?.port(), free_address()?.port()], &|line| {
        eprintln!("{line}");
    })
}

/// What clients and faults share.
struct Field {
    ground: Arc<Ground>,
    stack: Mutex<Stack>,
    /// Where the api can be reached.
    apis: RwLock<Vec<String>>,
    key: String,
    bodies: Vec<Value>,
    scale: Scale,
    next: AtomicUsize,
    acknowledged: AtomicUsize,
    over: AtomicBool,
    links: Links,
    /// Where a submission was accepted, and when the last one of these was sent.
    served: std::sync::Mutex<HashMap<String, Instant>>,
    recovered: std::sync::Mutex<Vec<Duration>>,
}

/// The links of an installation, if it has any.
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

    /// Gives the stack so many processes, each with links of its own.
    async fn launch(stack: &mut Stack, apis: usize, workers: usize) -> Result<Self, Trouble> {
        let mut links = Self::default();
        let ground = Arc::clone(&stack.ground);
        let direct = stack.database.clone();
        for number in 0..apis + workers {
            let (postgres, redis) = (
                Link::to_postgres(&ground.servers)?,
                Link::to_redis(&ground.servers)?,
            );
            stack.database.api_url = postgres.postgres_url(&direct.api_url, &direct.name);
            stack.database.worker_url = postgres.postgres_url(&direct.worker_url, &direct.name);
            stack.set("ASSAY_REDIS_URL", &redis.redis_url());
            if number < apis {
                let api = stack.launch_api()?;
                api.ready().await?;
                links
                    .client
                    .push(Link::to_api(api.listen.ok_or_else(|| {
                        Trouble::new("an api that listens nowhere")
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

/// Gives the stack so many processes that know PostgreSQL and its standby.
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

/// What one client was told.
#[derive(Default)]
struct Told {
    /// Jobs, and which submission each was.
    jobs: Vec<(String, usize)>,
    replayed_wrong: usize,
    tried_again: BTreeMap<String, usize>,
}

/// Runs it on private servers. `progress` is told how many submissions were accepted.
///
/// # Errors
/// When something cannot be started, an answer is none that a client could expect, or the servers are not private.
pub async fn run(
    ground: &Arc<Ground>,
    scale: Scale,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Report, Trouble> {
    let (field, org_id) = Field::new(ground, scale).await?;
    let expected = field.expected().await?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..field.scale.clients {
        let field = Arc::clone(&field);
        clients.spawn(async move { field.submit_all(client).await });
    }
    let faults = tokio::spawn(Arc::clone(&field).do_harm());

    // A reading on the way, to compare the last one with.
    let mut read_before = HashMap::new();
    while field.acknowledged.load(Ordering::Relaxed) < field.scale.jobs
        && !field.over.load(Ordering::Relaxed)
    {
        progress(field.acknowledged.load(Ordering::Relaxed));
        if read_before.is_empty()
            && field.acknowledged.load(Ordering::Relaxed) * 2 > field.scale.jobs
        {
            // PostgreSQL may be away just now; then the next look will do.
            if let Ok(Ok(rows)) =
                tokio::time::timeout(Duration::from_secs(2), finished(&field, &org_id)).await
            {
                read_before = rows
                    .into_iter()
                    .filter_map(|row| Some((row.id, row.value?)))
                    .collect();
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut told = Told::default();
    while let Some(client) = clients.join_next().await {
        let client = client.map_err(Trouble::because("a client broke"))??;
        told.jobs.extend(client.jobs);
        told.replayed_wrong += client.replayed_wrong;
        for (why, count) in client.tried_again {
            *told.tried_again.entry(why).or_default() += count;
        }
    }
    progress(told.jobs.len());
    let accepted = began.elapsed();
    let faults = faults.await.map_err(Trouble::because("the harm broke"))??;
    // The harm may have cut the connection, and another server may have the database.
    let mut database = databases::connect(&field.database_url().await).await?;
    drain(&mut database, DRAIN).await?;
    let took = began.elapsed();
    let rows = rows(&mut database, &org_id).await?;
    let mut report = account(&rows, &told, &expected, &read_before);
    report.faults = faults;
    report.tried_again = told.tried_again;
    report.recovered = std::mem::take(&mut *lock(&field.recovered));
    (report.took, report.drained) = (took, took.saturating_sub(accepted));
    field.stack.lock().await.stop();
    Ok(report)
}

impl Field {
    async fn new(ground: &Arc<Ground>, scale: Scale) -> Result<(Arc<Self>, String), Trouble> {
        if ground.servers.postgres_pid().is_none() || ground.servers.redis_pid().is_none() {
            return Err(Trouble::new(
                "chaos needs servers of its own; unset DATABASE_URL and REDIS_URL",
            ));
        }
        let (apis, workers) = (2, 3);
        let open_eagerly = if scale.setup == Setup::Plain {
            (apis, workers)
        } else {
            (0, 0)
        };
        let mut site = Site::start(
            ground,
            Plan {
                apis: open_eagerly.0,
                workers: open_eagerly.1,
                ..Plan::default()
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
        let bodies = site.submissions(VARIANTS).await?;
        let linked: Vec<String> = links.client.iter().map(Link::http_url).collect();
        let apis = RwLock::new(if linked.is_empty() {
            site.stack.addresses()
        } else {
            linked
        });
        let Site {
            stack,
            database: _,
            org_id,
            key,
        } = site;
        let (next, acknowledged, over) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicBool::new(false),
        );
        let (served, recovered) = Default::default();
        let ground = Arc::clone(ground);
        let stack = Mutex::new(stack);
        let field = Self {
            ground,
            stack,
            apis,
            key,
            bodies,
            scale,
            next,
            acknowledged,
            over,
            links,
            served,
            recovered,
        };
        Ok((Arc::new(field), org_id))
    }

    async fn database_url(&self) -> String {
        self.stack.lock().await.database.owner_url.clone()
    }

    /// The value of each submission, from the quiet installation.
    async fn expected(&self) -> Result<Vec<(String, f64)>, Trouble> {
        let client = Client::new(self.stack.lock().await.url(), Some(&self.key));
        let mut expected = Vec::new();
        for body in &self.bodies {
            let queued = client.post("/v1/evals", body).await?;
            let job = client
                .finished(
                    queued.body["id"].as_str().unwrap_or_default(),
                    DRAIN,
                    &|_| {},
                )
                .await?;
            let value = job["result"]["value"]
                .as_f64()
                .ok_or_else(|| Trouble::new(format!("a job did not succeed: {job}")))?;
            expected.push((job["id"].as_str().unwrap_or_default().to_owned(), value));
        }
        Ok(expected)
    }

    /// One client: sends submissions until there are enough, each until it is accepted.
    async fn submit_all(&self, client: usize) -> Result<Told, Trouble> {
        let mut told = Told::default();
        // One connection pool for each address, as a real client has.
        let mut clients: HashMap<String, Client> = HashMap::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.scale.jobs {
                return Ok(told);
            }
            let variant = number % self.bodies.len();
            let job_id = self
                .submit(&mut clients, client + number, number, &mut told)
                .await;
            let job_id = job_id.inspect_err(|_| self.over.store(true, Ordering::Relaxed))?;
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            // Now and then a client does not believe it, and sends it again.
            if number.is_multiple_of(10)
                && self
                    .submit(&mut clients, client + number, number, &mut told)
                    .await?
                    != job_id
            {
                told.replayed_wrong += 1;
            }
            told.jobs.push((job_id, variant));
        }
    }

    async fn submit(
        &self,
        clients: &mut HashMap<String, Client>,
        turn: usize,
        number: usize,
        told: &mut Told,
    ) -> Result<String, Trouble> {
        let body = &self.bodies[number % self.bodies.len()];
        let began = Instant::now();
        for tried in 0.. {
            let url = {
                let apis = self.apis.read().await;
                apis[(turn + tried) % apis.len()].clone()
            };
            let client = clients
                .entry(url.clone())
                .or_insert_with_key(|url| Client::new(url, Some(&self.key)));
            let sent = Instant::now();
            let request = client
                .request("POST", "/v1/evals")
                .header("Idempotency-Key", format!("chaos-{number}"))
                .json(body);
            let why =
                match tokio::time::timeout(self.scale.response_timeout(), client.send(request))
                    .await
                {
                    Ok(Ok(answer)) if answer.status == 202 => {
                        lock(&self.served).insert(url, sent);
                        return Ok(answer.body["id"].as_str().unwrap_or_default().to_owned());
                    }
                    Ok(Ok(answer)) if answer.status == 503 => "503".to_owned(),
                    Ok(Ok(answer)) => {
                        return Err(Trouble::new(format!(
                            "an answer that nobody expects: {} {}",
                            answer.status, answer.body
                        )));
                    }
                    Ok(Err(_)) => "connection broken".to_owned(),
                    Err(_) => "no answer".to_owned(),
                };
            *told.tried_again.entry(why).or_default() += 1;
            if began.elapsed() > PERSEVERANCE || self.over.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Trouble::new(format!(
            "submission {number} was not accepted in {PERSEVERANCE:?}"
        )))
    }

    /// Does all faults, one after the other, evenly over the submissions.
    async fn do_harm(self: Arc<Self>) -> Result<BTreeMap<Fault, usize>, Trouble> {
        let mut random = Random::new(self.scale.seed);
        let schedule = self.scale.schedule(&mut random);
        let (mut done, mut thaws) = (BTreeMap::new(), JoinSet::new());
        for (at, fault) in schedule.iter().enumerate() {
            let due = (at + 1) * self.scale.jobs / (schedule.len() + 1);
            while self.acknowledged.load(Ordering::Relaxed) < due {
                if self.over.load(Ordering::Relaxed) {
                    return Ok(done);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.harm(*fault, &mut random, &mut thaws).await?;
            *done.entry(*fault).or_default() += 1;
        }
        thaws.join_all().await;
        Ok(done)
    }

    async fn harm(
        self: &Arc<Self>,
        fault: Fault,
        random: &mut Random,
        thaws: &mut JoinSet<()>,
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
            Fault::FreezeWorker => {
                let stack = self.stack.lock().await;
                let worker = &stack.workers[random.below(stack.workers.len() as u64)];
                worker.guarded.signal(libc::SIGSTOP);
                let (field, admin) = (Arc::clone(self), worker.admin);
                thaws.spawn(async move {
                    tokio::time::sleep(FREEZE).await;
                    // It may have been killed meanwhile.
                    let stack = field.stack.lock().await;
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
                    .map_err(Trouble::because("a restart broke"))??;
            }
            Fault::KillPrimary | Fault::FreezePrimary => {
                self.fail_over(fault == Fault::FreezePrimary).await?;
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
                    .ok_or_else(|| Trouble::new("there are no links"))?;
                match fault {
                    Fault::CutLink(_) => link.end(Ending::Closed),
                    Fault::LoseResponse(_) => link.lose_response(Ending::Closed),
                    Fault::LoseResponseSilently(_) => link.lose_response(Ending::HalfOpen),
                    Fault::HalfOpenLink(_) => link.refuse(Ending::HalfOpen),
                    Fault::RefuseLink(_) => link.refuse(Ending::Closed),
                    Fault::StallLink(_) => link.stall(),
                    _ => link.delay(SLOWNESS),
                }
                if !matches!(
                    fault,
                    Fault::CutLink(_) | Fault::LoseResponse(_) | Fault::LoseResponseSilently(_)
                ) {
                    let field = Arc::clone(self);
                    thaws.spawn(async move {
                        tokio::time::sleep(DISTURBANCE).await;
                        field
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

    /// Takes the primary away and promotes the standby. Returns when every api process has accepted a submission that was sent
    /// after that, and a worker has finished a job.
    async fn fail_over(&self, frozen: bool) -> Result<(), Trouble> {
        let servers = &self.ground.servers;
        servers.postgres_signal(if frozen { libc::SIGSTOP } else { libc::SIGKILL })?;
        tokio::time::sleep(UNNOTICED).await;
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
            if self.over.load(Ordering::Relaxed) || promoted.elapsed() > PERSEVERANCE {
                return Err(Trouble::new(format!(
                    "not served again after the promotion: {waiting:?}, jobs: {finished}"
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
            // It still takes itself for the primary.
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

/// Without a word of warning, and whether it is frozen or not.
fn kill(process: Process) {
    process.guarded.signal(libc::SIGKILL);
}

/// A job, as it is in the database.
#[derive(sqlx::FromRow)]
struct Row {
    id: String,
    status: String,
    value: Option<f64>,
    charges: i64,
    attempts: i64,
}

async fn rows(database: &mut PgConnection, org_id: &str) -> Result<Vec<Row>, Trouble> {
    let sql = "select j.id, j.status, (j.result->>'value')::float8 as value,
                      (select count(*) from usage_ledger l where l.job_id = j.id and l.kind = 'charge') as charges,
                      (select count(*) from job_attempts a where a.job_id = j.id) as attempts
               from jobs j where j.org_id = $1";
    sqlx::query_as(sql)
        .bind(org_id)
        .fetch_all(database)
        .await
        .map_err(Trouble::because("cannot read the jobs"))
}

/// What has succeeded by now.
async fn finished(field: &Field, org_id: &str) -> Result<Vec<Row>, Trouble> {
    let mut database = databases::connect(&field.database_url().await).await?;
    let mut rows = rows(&mut database, org_id).await?;
    rows.retain(|row| row.status == "succeeded");
    Ok(rows)
}

/// Holds what clients were told against what is there.
fn account(
    rows: &[Row],
    told: &Told,
    expected: &[(String, f64)],
    read_before: &HashMap<String, f64>,
) -> Report {
    let there: HashMap<&str, &Row> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
    let known = told
        .jobs
        .iter()
        .map(|(id, variant)| (id.as_str(), expected[*variant].1));
    // The quiet ones count, too.
    let known: HashMap<&str, f64> = known
        .chain(expected.iter().map(|(id, value)| (id.as_str(), *value)))
        .collect();
    let mut report = Report {
        acknowledged: told.jobs.len(),
        replayed_wrong: told.replayed_wrong,
        ..Report::default()
    };
    for (id, value) in &known {
        match there.get(id) {
            None => report.missing += 1,
            Some(row) if row.status != "succeeded" => report.lost += 1,
            Some(row) => {
                let before = read_before.get(*id).copied().unwrap_or(*value);
                // The order of the predictions makes no difference here: each submission is the same to the byte.
                report.changed += usize::from(
                    row.value.map(f64::to_bits) != Some(value.to_bits())
                        || before.to_bits() != value.to_bits(),
                );
            }
        }
    }
    for row in rows {
        report.unknown += usize::from(!known.contains_key(row.id.as_str()));
        report.charged_wrong += usize::from(row.charges != 1);
        report.executions += row.attempts;
        report.retries += (row.attempts - 1).max(0);
    }
    report
}
