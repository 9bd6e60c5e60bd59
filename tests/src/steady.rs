//! A steady load and its measurements while processes are replaced, or while Redis is unavailable.
//!
//! Requests start at fixed times, independently of earlier responses, and their latency counts from
//! these times. A client retries once, at another API process, if a connection breaks, and waits as
//! long as `Retry-After` of a 503 says, as the guide asks of clients: an API that gets hardly any CPU
//! time rejects requests. It never retries otherwise.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::PgConnection;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::client::{Client, Response};
use crate::demo_suite;
use crate::link::{Ending, Link};
use crate::servers::Trouble;
use crate::site::{Site, drain};
use crate::stack::{Ground, StackSize};
use crate::wait::wait_timeout;

/// The measurements of all clients during one period.
#[derive(Debug, Default)]
pub struct Seen {
    /// Time of each request from its start until its response was read.
    pub times: Vec<Duration>,
    /// Failed requests by HTTP status or error.
    pub failed: BTreeMap<String, usize>,
    /// Requests retried because a connection broke.
    pub retried: usize,
    /// Responses of 503 with `Retry-After`, after which the client waited and sent its request again.
    pub rejected: usize,
    /// Submissions accepted with a status below 300.
    pub accepted: usize,
}

impl Seen {
    /// Returns the latency that the fraction `share` of the requests did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = (times.len() as f64 * share) as usize;
        times
            .get(at.min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |share| self.quantile(share).as_secs_f64() * 1000.0;
        let count = self.times.len();
        let retried = self.retried;
        let rejected = self.rejected;
        write!(
            f,
            "{count} requests, p50 {:.1} ms, p99 {:.1} ms, max {:.0} ms, {retried} retried, {rejected} × 503 with Retry-After",
            ms(0.5),
            ms(0.99),
            ms(1.0)
        )?;
        self.failed
            .iter()
            .try_for_each(|(why, count)| write!(f, ", {count} × {why}"))
    }
}

/// The state of all clients. A quarter of their requests are submissions.
struct Load {
    apis: RwLock<Vec<String>>,
    clients: Mutex<HashMap<String, Client>>,
    key: String,
    bodies: Vec<Value>,
    sent: AtomicUsize,
    last_job: Mutex<String>,
    stopped: AtomicBool,
}

impl Load {
    async fn new(site: &Site) -> Result<Self, Trouble> {
        Ok(Self {
            apis: RwLock::new(site.stack.addresses()),
            clients: Mutex::default(),
            key: site.org.key.clone(),
            bodies: site.submissions(8).await?,
            sent: AtomicUsize::new(0),
            last_job: Mutex::default(),
            stopped: AtomicBool::new(false),
        })
    }

    /// Starts `rate` requests/s until `stopped` is set, and waits for their responses.
    async fn run(self: Arc<Self>, rate: u32) -> Result<Seen, Trouble> {
        self.stopped.store(false, Ordering::Relaxed);
        let mut clock = tokio::time::interval(Duration::from_secs(1) / rate);
        let mut requests = JoinSet::new();
        clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut seen = Seen::default();
        let mut note = |ended: Result<Outcome, tokio::task::JoinError>| {
            let Outcome {
                took,
                failed,
                retried,
                rejected,
                accepted,
            } = ended.map_err(Trouble::because("a request panicked"))?;
            seen.times.push(took);
            seen.retried += retried;
            seen.rejected += rejected;
            seen.accepted += accepted;
            failed
                .into_iter()
                .for_each(|why| *seen.failed.entry(why).or_default() += 1);
            Ok(())
        };
        while !self.stopped.load(Ordering::Relaxed) {
            tokio::select! {
                due = clock.tick() => drop(requests.spawn(Arc::clone(&self).request(due.into_std()))),
                Some(ended) = requests.join_next() => note(ended)?,
            }
        }
        while let Some(ended) = requests.join_next().await {
            note(ended)?;
        }
        Ok(seen)
    }

    /// Returns an address's client: like a real client, each address has its own connection
    /// pool.
    fn client(&self, url: &str) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients
            .entry(url.to_owned())
            .or_insert_with(|| Client::new(url, Some(&self.key)).without_retries())
            .clone()
    }

    async fn request(self: Arc<Self>, due: Instant) -> Outcome {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let job = self
            .last_job
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut outcome = Outcome::default();
        let deadline = Instant::now() + wait_timeout();
        for tried in 0.. {
            let url = {
                let apis = self.apis.read().await;
                apis[(number / 4 + tried) % apis.len()].clone()
            };
            let client = self.client(&url);
            let request = match number % 4 {
                0 => {
                    let body = &self.bodies[number / 4 % self.bodies.len()];
                    client
                        .request("POST", "/v1/evals")
                        .header("Idempotency-Key", format!("steady-{number}"))
                        .json(body)
                }
                1 if !job.is_empty() => client.request("GET", &format!("/v1/jobs/{job}")),
                2 => client.request(
                    "GET",
                    &format!("/v1/suites/{}/items?limit=50", demo_suite::SUITE_ID),
                ),
                _ => client.request("GET", "/v1/me"),
            };
            match client.send(request).await {
                Ok(response) if response.status < 300 => {
                    if number.is_multiple_of(4) {
                        outcome.accepted = 1;
                        *self.last_job.lock().unwrap_or_else(PoisonError::into_inner) =
                            response.body["id"].as_str().unwrap_or_default().to_owned();
                    }
                }
                Ok(response) => match retry_after(&response) {
                    Some(pause) if Instant::now() + pause < deadline => {
                        outcome.rejected += 1;
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    _ => outcome.failed = Some(response.status.to_string()),
                },
                Err(_) if outcome.retried == 0 => {
                    outcome.retried = 1;
                    continue;
                }
                Err(trouble) => outcome.failed = Some(trouble.to_string()),
            }
            break;
        }
        Outcome {
            took: due.elapsed(),
            ..outcome
        }
    }
}

/// One request's outcome.
#[derive(Default)]
struct Outcome {
    took: Duration,
    failed: Option<String>,
    retried: usize,
    rejected: usize,
    accepted: usize,
}

/// Returns how long a rejected request waits before the client sends it again, or `None` if the
/// response is another failure.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.header("retry-after").parse().ok()?;
    (response.status == 503).then(|| Duration::from_secs(seconds))
}

async fn count(database: &mut PgConnection, sql: &'static str) -> Result<i64, Trouble> {
    sqlx::query_scalar(sql)
        .fetch_one(database)
        .await
        .map_err(Trouble::because("cannot count the jobs"))
}

const SUCCEEDED: &str = "select count(*) from jobs where status = 'succeeded'";
const RETRIED: &str = "select count(*) from jobs where attempts <> 1";
const NOT_SUCCEEDED: &str = "select count(*) from jobs where status <> 'succeeded'";

/// The outcome of rolling restarts.
#[derive(Debug)]
pub struct Restarts {
    /// Times that all processes were replaced.
    pub rounds: usize,
    /// Measurements of the clients.
    pub seen: Seen,
    /// Jobs with more than one attempt.
    pub executed_again: i64,
    /// Jobs that did not succeed.
    pub not_succeeded: i64,
    /// Difference between the accepted submissions and the jobs in the database.
    pub miscounted: i64,
    /// Processes that did not exit with success after SIGTERM.
    pub not_ended: usize,
}

impl Restarts {
    /// Returns `true` if no client and no job was affected, and every replaced process exited with
    /// success.
    pub fn is_clean(&self) -> bool {
        self.seen.failed.is_empty()
            && self.executed_again + self.not_succeeded + self.miscounted == 0
            && self.not_ended == 0
    }
}

impl fmt::Display for Restarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rounds,
            seen,
            executed_again,
            not_succeeded,
            miscounted,
            not_ended,
        } = self;
        writeln!(f, "all processes replaced {rounds} times: {seen}")?;
        writeln!(
            f,
            "jobs: {} accepted, {miscounted} miscounted, {executed_again} executed more than once, {not_succeeded} not succeeded",
            seen.accepted
        )?;
        writeln!(f, "processes that did not exit with success: {not_ended}")
    }
}

/// Replaces 2 API processes and 3 workers one after the other, `rounds` times, under a load of
/// `rate` requests/s. Each replacement is ready before the old process gets SIGTERM.
///
/// # Errors
/// If something cannot be started.
pub async fn restarts(
    ground: &Arc<Ground>,
    rounds: usize,
    rate: u32,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Restarts, Trouble> {
    let mut site = Site::start(
        ground,
        StackSize {
            apis: 2,
            workers: 3,
            ..StackSize::default()
        },
    )
    .await?;
    let load = Arc::new(Load::new(&site).await?);
    let loading = tokio::spawn(Arc::clone(&load).run(rate));
    let mut ending = JoinSet::new();
    for round in 0..rounds {
        for at in 0..site.stack.apis.len() + site.stack.workers.len() {
            let is_api = at < site.stack.apis.len();
            let at = at.checked_sub(site.stack.apis.len()).unwrap_or(at);
            let fresh = if is_api {
                site.stack.launch_api()?
            } else {
                site.stack.launch_worker()?
            };
            fresh.ready().await?;
            let processes = if is_api {
                &mut site.stack.apis
            } else {
                &mut site.stack.workers
            };
            let old = std::mem::replace(&mut processes[at], fresh);
            // A load balancer learns of the shutdown at about the same time as the process itself.
            old.guarded.signal(libc::SIGTERM);
            *load.apis.write().await = site.stack.addresses();
            ending.spawn_blocking(move || {
                old.guarded
                    .wait(wait_timeout())
                    .is_some_and(|ended| ended.success())
            });
        }
        progress(round + 1);
    }
    load.stopped.store(true, Ordering::Relaxed);
    let seen = loading
        .await
        .map_err(Trouble::because("the load panicked"))??;
    let not_ended = ending
        .join_all()
        .await
        .into_iter()
        .filter(|well| !well)
        .count();
    drain(&mut site.database).await?;
    let jobs = count(&mut site.database, "select count(*) from jobs").await?;
    let accepted = i64::try_from(seen.accepted).unwrap_or(i64::MAX);
    Ok(Restarts {
        rounds,
        executed_again: count(&mut site.database, RETRIED).await?,
        not_succeeded: count(&mut site.database, NOT_SUCCEEDED).await?,
        miscounted: (jobs - accepted).abs(),
        seen,
        not_ended,
    })
}

/// The way in which Redis is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// Redis is available, as a baseline.
    Not,
    /// The Redis process has exited.
    Stopped,
    /// The Redis process is stopped by SIGSTOP.
    Frozen,
    /// Packets to Redis are dropped.
    Blackholed,
    /// Redis is flushed once a second.
    Flushed,
}

/// The minimum length of a Redis outage.
#[derive(Debug, Clone, Copy)]
pub struct OutageMin {
    /// The time that it lasts at least.
    pub time: Duration,
    /// The jobs that finish during it at least, even if this takes longer.
    pub jobs: i64,
}

/// The measurements during one outage of Redis.
#[derive(Debug)]
pub struct Stretch {
    /// The kind of outage.
    pub away: Away,
    /// Jobs that finished during the outage.
    pub finished: i64,
    /// Jobs that did not succeed after the outage.
    pub not_succeeded: i64,
    /// Measurements of the clients.
    pub seen: Seen,
    /// Finished jobs per second.
    pub jobs_per_second: f64,
    /// Time until all jobs had finished after Redis recovered.
    pub drained: Duration,
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            away,
            finished,
            not_succeeded,
            seen,
            jobs_per_second,
            drained,
        } = self;
        write!(
            f,
            "{away:?}: {seen}; {finished} jobs finished, {jobs_per_second:.1} jobs/s, drained in {:.1} s",
            drained.as_secs_f64()
        )?;
        if *not_succeeded > 0 {
            write!(f, ", {not_succeeded} jobs did not succeed")?;
        }
        Ok(())
    }
}

/// Runs a load of `rate` requests/s on 2 API processes and 3 workers while Redis is unavailable in
/// each way for at least `length`. Calls `report` after each outage.
///
/// # Errors
/// If something cannot be started, the servers are not private, or the jobs do not finish during an
/// outage.
pub async fn without_redis(
    ground: &Arc<Ground>,
    length: OutageMin,
    rate: u32,
    report: &(dyn Fn(&Stretch) + Sync),
) -> Result<Vec<Stretch>, Trouble> {
    let link = Link::to_redis(&ground.servers)?;
    let env = BTreeMap::from([("ASSAY_REDIS_URL".to_owned(), link.redis_url())]);
    let mut site = Site::start(
        ground,
        StackSize {
            apis: 2,
            workers: 3,
            engines: 0,
            env,
        },
    )
    .await?;
    let load = Arc::new(Load::new(&site).await?);
    let mut stretches = Vec::new();
    for away in [
        Away::Not,
        Away::Stopped,
        Away::Frozen,
        Away::Blackholed,
        Away::Flushed,
    ] {
        let loading = tokio::spawn(Arc::clone(&load).run(rate));
        // The load starts before the outage.
        tokio::time::sleep(Duration::from_secs(1)).await;
        cause_outage(&link, ground, away).await?;
        let began = Instant::now();
        let before = count(&mut site.database, SUCCEEDED).await?;
        let finished = last(&mut site.database, before, length, away, ground).await;
        let seconds = began.elapsed().as_secs_f64();
        end_outage(&link, ground, away)?;
        let finished = finished?;
        load.stopped.store(true, Ordering::Relaxed);
        let seen = loading
            .await
            .map_err(Trouble::because("the load panicked"))??;
        let drained = drain(&mut site.database).await?;
        let stretch = Stretch {
            away,
            finished,
            not_succeeded: count(&mut site.database, NOT_SUCCEEDED).await?,
            seen,
            jobs_per_second: finished as f64 / seconds,
            drained,
        };
        report(&stretch);
        stretches.push(stretch);
    }
    Ok(stretches)
}

async fn cause_outage(link: &Link, ground: &Arc<Ground>, away: Away) -> Result<(), Trouble> {
    let servers = &ground.servers;
    match away {
        Away::Not => {}
        Away::Stopped => servers.redis_stop()?,
        Away::Frozen => servers.redis_signal(libc::SIGSTOP)?,
        Away::Blackholed => link.refuse(Ending::HalfOpen),
        Away::Flushed => flush(ground).await?,
    }
    Ok(())
}

fn end_outage(link: &Link, ground: &Arc<Ground>, away: Away) -> Result<(), Trouble> {
    let servers = &ground.servers;
    match away {
        Away::Not | Away::Flushed => {}
        Away::Stopped => servers.redis_start()?,
        Away::Frozen => servers.redis_signal(libc::SIGCONT)?,
        Away::Blackholed => link.mend(),
    }
    Ok(())
}

async fn flush(ground: &Arc<Ground>) -> Result<(), Trouble> {
    let flushed = async {
        let client = redis::Client::open(ground.servers.redis_url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("FLUSHALL").exec_async(&mut connection).await
    };
    flushed
        .await
        .map_err(|error: redis::RedisError| Trouble::because("cannot flush Redis")(error))
}

/// Lets an outage last for at least `length`. Returns how many jobs have finished since
/// there were `before`.
async fn last(
    database: &mut PgConnection,
    before: i64,
    length: OutageMin,
    away: Away,
    ground: &Arc<Ground>,
) -> Result<i64, Trouble> {
    let began = Instant::now();
    loop {
        tokio::time::sleep(length.time.min(Duration::from_secs(1))).await;
        let finished = count(database, SUCCEEDED).await? - before;
        if began.elapsed() >= length.time && finished >= length.jobs {
            return Ok(finished);
        }
        if began.elapsed() > length.time + wait_timeout() {
            return Err(Trouble::new(format!(
                "only {finished} jobs finished during the outage: {away:?}"
            )));
        }
        if away == Away::Flushed {
            flush(ground).await?;
        }
    }
}
