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
use crate::servers::Trouble;
use crate::site::{Site, drain};
use crate::stack::{Ground, Plan, Process, Stack};

/// How long a client waits for one answer.
const ANSWER: Duration = Duration::from_secs(45);

/// How long a client waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a client goes on trying for one submission.
const PERSEVERANCE: Duration = Duration::from_secs(120);

/// How long the jobs may take to end after the last of them was accepted.
const DRAIN: Duration = Duration::from_secs(120);

/// How long a worker is frozen.
const FREEZE: Duration = Duration::from_secs(3);

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
        let faults = whole.map(|(fault, count)| (fault, (count * jobs / 10_000).max(1)));
        Self { jobs, clients: 16, seed, faults: faults.into() }
    }

    /// The faults in their order.
    fn schedule(&self, random: &mut Random) -> Vec<Fault> {
        let mut faults: Vec<_> = self.faults.iter().flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count)).collect();
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
    /// From the first submission to the end of the last job.
    pub took: Duration,
    /// Of this, after the last submission was accepted.
    pub drained: Duration,
}

impl Report {
    /// Whether every promise was kept.
    pub const fn is_clean(&self) -> bool {
        self.missing + self.lost + self.unknown + self.charged_wrong + self.changed + self.replayed_wrong == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |counts: &mut dyn Iterator<Item = String>| counts.collect::<Vec<_>>().join(", ");
        let faults = counted(&mut self.faults.iter().map(|(fault, count)| format!("{count} × {fault:?}")));
        let again = counted(&mut self.tried_again.iter().map(|(why, count)| format!("{count} × {why}")));
        for (name, value) in [
            ("faults", faults),
            ("requests sent again", again),
            ("acknowledged", self.acknowledged.to_string()),
            ("acknowledged but missing", self.missing.to_string()),
            ("lost", self.lost.to_string()),
            ("made twice", self.unknown.to_string()),
            ("not charged exactly once", self.charged_wrong.to_string()),
            ("results changed", self.changed.to_string()),
            ("repetitions answered wrongly", self.replayed_wrong.to_string()),
            ("executions", format!("{} ({} retries)", self.executions, self.retries)),
            ("time", format!("{:.1} s, of which {:.1} s after the last submission", self.took.as_secs_f64(), self.drained.as_secs_f64())),
        ] {
            writeln!(f, "{name:>29}  {value}")?;
        }
        Ok(())
    }
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
pub async fn run(ground: &Arc<Ground>, scale: Scale, progress: &(dyn Fn(usize) + Sync)) -> Result<Report, Trouble> {
    let (field, mut database, org_id) = Field::new(ground, scale).await?;
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
    while field.acknowledged.load(Ordering::Relaxed) < field.scale.jobs && !field.over.load(Ordering::Relaxed) {
        progress(field.acknowledged.load(Ordering::Relaxed));
        if read_before.is_empty() && field.acknowledged.load(Ordering::Relaxed) * 2 > field.scale.jobs {
            // PostgreSQL may be away just now; then the next look will do.
            if let Ok(rows) = finished(&field, &org_id).await {
                read_before = rows.into_iter().filter_map(|row| Some((row.id, row.value?))).collect();
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
    // The harm may have cut the connection.
    if sqlx::query("select").execute(&mut database).await.is_err() {
        database = databases::connect(&field.database_url().await).await?;
    }
    drain(&mut database, DRAIN).await?;
    let took = began.elapsed();
    let rows = rows(&mut database, &org_id).await?;
    let mut report = account(&rows, &told, &expected, &read_before);
    report.faults = faults;
    report.tried_again = told.tried_again;
    (report.took, report.drained) = (took, took.saturating_sub(accepted));
    field.stack.lock().await.stop();
    Ok(report)
}

impl Field {
    async fn new(ground: &Arc<Ground>, scale: Scale) -> Result<(Arc<Self>, PgConnection, String), Trouble> {
        if ground.servers.postgres_pid().is_none() || ground.servers.redis_pid().is_none() {
            return Err(Trouble::new("chaos needs servers of its own; unset DATABASE_URL and REDIS_URL"));
        }
        let site = Site::start(ground, Plan { apis: 2, workers: 3, ..Plan::default() }).await?;
        let (bodies, apis) = (site.submissions(VARIANTS).await?, RwLock::new(site.stack.addresses()));
        let Site { stack, database, org_id, key } = site;
        let (next, acknowledged, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let field = Self { ground: Arc::clone(ground), stack: Mutex::new(stack), apis, key, bodies, scale, next, acknowledged, over };
        Ok((Arc::new(field), database, org_id))
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
            let job = client.finished(queued.body["id"].as_str().unwrap_or_default(), DRAIN, &|_| {}).await?;
            let value = job["result"]["value"].as_f64().ok_or_else(|| Trouble::new(format!("a job did not succeed: {job}")))?;
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
            let job_id = self.submit(&mut clients, client + number, number, &mut told).await;
            let job_id = job_id.inspect_err(|_| self.over.store(true, Ordering::Relaxed))?;
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            // Now and then a client does not believe it, and sends it again.
            if number.is_multiple_of(10) && self.submit(&mut clients, client + number, number, &mut told).await? != job_id {
                told.replayed_wrong += 1;
            }
            told.jobs.push((job_id, variant));
        }
    }

    async fn submit(&self, clients: &mut HashMap<String, Client>, turn: usize, number: usize, told: &mut Told) -> Result<String, Trouble> {
        let body = &self.bodies[number % self.bodies.len()];
        let began = Instant::now();
        for tried in 0.. {
            let url = {
                let apis = self.apis.read().await;
                apis[(turn + tried) % apis.len()].clone()
            };
            let client = clients.entry(url).or_insert_with_key(|url| Client::new(url, Some(&self.key)));
            let request = client.request("POST", "/v1/evals").header("Idempotency-Key", format!("chaos-{number}")).json(body);
            let why = match tokio::time::timeout(ANSWER, client.send(request)).await {
                Ok(Ok(answer)) if answer.status == 202 => return Ok(answer.body["id"].as_str().unwrap_or_default().to_owned()),
                Ok(Ok(answer)) if answer.status == 503 => "503".to_owned(),
                Ok(Ok(answer)) => return Err(Trouble::new(format!("an answer that nobody expects: {} {}", answer.status, answer.body))),
                Ok(Err(_)) => "connection broken".to_owned(),
                Err(_) => "no answer".to_owned(),
            };
            *told.tried_again.entry(why).or_default() += 1;
            if began.elapsed() > PERSEVERANCE || self.over.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Trouble::new(format!("submission {number} was not accepted in {PERSEVERANCE:?}")))
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

    async fn harm(self: &Arc<Self>, fault: Fault, random: &mut Random, thaws: &mut JoinSet<()>) -> Result<(), Trouble> {
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
                    if let Some(worker) = stack.workers.iter().find(|worker| worker.admin == admin) {
                        worker.guarded.signal(libc::SIGCONT);
                    }
                });
            }
            Fault::FlushRedis => {
                let flush = async {
                    let client = redis::Client::open(self.ground.servers.redis_url())?;
                    redis::cmd("FLUSHALL").exec_async(&mut client.get_multiplexed_async_connection().await?).await
                };
                flush.await.map_err(|error: redis::RedisError| Trouble::because("cannot flush Redis")(error))?;
            }
            Fault::RestartRedis | Fault::CrashPostgres => {
                let ground = Arc::clone(&self.ground);
                let restart = move || match fault {
                    Fault::RestartRedis => ground.servers.redis_restart(),
                    _ => ground.servers.postgres_restart(true),
                };
                tokio::task::spawn_blocking(restart).await.map_err(Trouble::because("a restart broke"))??;
            }
        }
        Ok(())
    }
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
    sqlx::query_as(sql).bind(org_id).fetch_all(database).await.map_err(Trouble::because("cannot read the jobs"))
}

/// What has succeeded by now.
async fn finished(field: &Field, org_id: &str) -> Result<Vec<Row>, Trouble> {
    let mut database = databases::connect(&field.database_url().await).await?;
    let mut rows = rows(&mut database, org_id).await?;
    rows.retain(|row| row.status == "succeeded");
    Ok(rows)
}

/// Holds what clients were told against what is there.
fn account(rows: &[Row], told: &Told, expected: &[(String, f64)], read_before: &HashMap<String, f64>) -> Report {
    let there: HashMap<&str, &Row> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
    let known = told.jobs.iter().map(|(id, variant)| (id.as_str(), expected[*variant].1));
    // The quiet ones count, too.
    let known: HashMap<&str, f64> = known.chain(expected.iter().map(|(id, value)| (id.as_str(), *value))).collect();
    let mut report = Report { acknowledged: told.jobs.len(), replayed_wrong: told.replayed_wrong, ..Report::default() };
    for (id, value) in &known {
        match there.get(id) {
            None => report.missing += 1,
            Some(row) if row.status != "succeeded" => report.lost += 1,
            Some(row) => {
                let before = read_before.get(*id).copied().unwrap_or(*value);
                // The order of the predictions makes no difference here: each submission is the same to the byte.
                report.changed += usize::from(row.value.map(f64::to_bits) != Some(value.to_bits()) || before.to_bits() != value.to_bits());
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
