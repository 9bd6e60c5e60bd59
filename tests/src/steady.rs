//! A steady load, and what its clients see of it while processes are replaced, or while Redis is away in one way or another.
//!
//! Requests are begun at their moments, whether those before them have ended or not, and their time counts from there. A
//! client tries again once where a connection breaks, at another api, and never otherwise.

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

use crate::client::Client;
use crate::demo_suite;
use crate::link::{Ending, Link};
use crate::servers::Trouble;
use crate::site::{Site, drain};
use crate::stack::{Ground, Plan};

/// How long a client waits for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// How long jobs may take to end after the load has.
const DRAIN: Duration = Duration::from_secs(60);

/// What the clients of one stretch of time saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each request took until its answer was read.
    pub times: Vec<Duration>,
    /// Answers that nobody wants, by status or by what broke.
    pub failed: BTreeMap<String, usize>,
    /// Requests that were sent again because a connection broke.
    pub sent_again: usize,
    /// Submissions that were accepted.
    pub accepted: usize,
}

impl Seen {
    /// The time that this share of the requests did not exceed.
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
        let (count, again) = (self.times.len(), self.sent_again);
        write!(
            f,
            "{count} requests, p50 {:.1} ms, p99 {:.1} ms, longest {:.0} ms, {again} sent again",
            ms(0.5),
            ms(0.99),
            ms(1.0)
        )?;
        self.failed
            .iter()
            .try_for_each(|(why, count)| write!(f, ", {count} × {why}"))
    }
}

/// The clients. A quarter of their requests are submissions.
struct Load {
    apis: RwLock<Vec<String>>,
    clients: Mutex<HashMap<String, Client>>,
    key: String,
    bodies: Vec<Value>,
    sent: AtomicUsize,
    last_job: Mutex<String>,
    over: AtomicBool,
}

impl Load {
    async fn new(site: &Site) -> Result<Self, Trouble> {
        Ok(Self {
            apis: RwLock::new(site.stack.addresses()),
            clients: Mutex::default(),
            key: site.key.clone(),
            bodies: site.submissions(8).await?,
            sent: AtomicUsize::new(0),
            last_job: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    /// Begins so many requests a second until `over` is set, and waits for their ends.
    async fn run(self: Arc<Self>, rate: u32) -> Result<Seen, Trouble> {
        self.over.store(false, Ordering::Relaxed);
        let (mut clock, mut requests) = (
            tokio::time::interval(Duration::from_secs(1) / rate),
            JoinSet::new(),
        );
        clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut seen = Seen::default();
        let mut note = |ended: Result<Outcome, tokio::task::JoinError>| {
            let Outcome {
                took,
                failed,
                again,
                accepted,
            } = ended.map_err(Trouble::because("a request broke"))?;
            seen.times.push(took);
            seen.sent_again += again;
            seen.accepted += accepted;
            failed
                .into_iter()
                .for_each(|why| *seen.failed.entry(why).or_default() += 1);
            Ok(())
        };
        while !self.over.load(Ordering::Relaxed) {
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

    /// A connection pool for each address, as a real client has.
    fn client(&self, url: &str) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients
            .entry(url.to_owned())
            .or_insert_with(|| Client::new(url, Some(&self.key)))
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
            match tokio::time::timeout(ANSWER, client.send(request)).await {
                Ok(Ok(answer)) if answer.status < 300 => {
                    if number.is_multiple_of(4) {
                        outcome.accepted = 1;
                        *self.last_job.lock().unwrap_or_else(PoisonError::into_inner) =
                            answer.body["id"].as_str().unwrap_or_default().to_owned();
                    }
                }
                Ok(Ok(answer)) => outcome.failed = Some(answer.status.to_string()),
                Ok(Err(_)) if tried == 0 => {
                    outcome.again = 1;
                    continue;
                }
                Ok(Err(trouble)) => outcome.failed = Some(trouble.to_string()),
                Err(_) => outcome.failed = Some("no answer".to_owned()),
            }
            break;
        }
        Outcome {
            took: due.elapsed(),
            ..outcome
        }
    }
}

/// What came of one request.
#[derive(Default)]
struct Outcome {
    took: Duration,
    failed: Option<String>,
    again: usize,
    accepted: usize,
}

async fn count(database: &mut PgConnection, sql: &'static str) -> Result<i64, Trouble> {
    sqlx::query_scalar(sql)
        .fetch_one(database)
        .await
        .map_err(Trouble::because("cannot count"))
}

const ENDED: &str = "select count(*) from jobs where status = 'succeeded'";
const AGAIN: &str = "select count(*) from jobs where attempts <> 1";
const NOT_SUCCEEDED: &str = "select count(*) from jobs where status <> 'succeeded'";

/// What came of replacing all processes again and again.
#[derive(Debug)]
pub struct Restarts {
    /// How often all processes were replaced.
    pub rounds: usize,
    /// What clients saw.
    pub seen: Seen,
    /// Jobs that were executed more than once.
    pub executed_again: i64,
    /// Jobs that did not succeed.
    pub not_succeeded: i64,
    /// Submissions that were accepted and are not there, or are there and were not accepted.
    pub miscounted: i64,
    /// Processes that were told to end and did not end by themselves, with success.
    pub not_ended: usize,
}

impl Restarts {
    /// Whether nobody noticed.
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
        writeln!(f, "{rounds} times all processes replaced: {seen}")?;
        writeln!(
            f,
            "jobs: {} accepted, {miscounted} miscounted, {executed_again} executed again, {not_succeeded} not succeeded",
            seen.accepted
        )?;
        writeln!(f, "processes that did not end by themselves: {not_ended}")
    }
}

/// Replaces 2 api processes and 3 workers, one after the other and `rounds` times, under a load of `rate` requests a second.
/// The next one is ready before the one that it replaces is told to end by SIGTERM.
///
/// # Errors
/// When something cannot be started.
pub async fn restarts(
    ground: &Arc<Ground>,
    rounds: usize,
    rate: u32,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Restarts, Trouble> {
    let mut site = Site::start(
        ground,
        Plan {
            apis: 2,
            workers: 3,
            ..Plan::default()
        },
    )
    .await?;
    let load = Arc::new(Load::new(&site).await?);
    let loading = tokio::spawn(Arc::clone(&load).run(rate));
    let mut ending = JoinSet::new();
    for round in 0..rounds {
        for at in 0..site.stack.apis.len() + site.stack.workers.len() {
            let (is_api, at) = (
                at < site.stack.apis.len(),
                at.checked_sub(site.stack.apis.len()).unwrap_or(at),
            );
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
            // Who sends requests on hears of it at about the same time as the process itself.
            old.guarded.signal(libc::SIGTERM);
            *load.apis.write().await = site.stack.addresses();
            ending.spawn_blocking(move || {
                old.guarded
                    .wait(Duration::from_secs(40))
                    .is_some_and(|ended| ended.success())
            });
        }
        progress(round + 1);
    }
    load.over.store(true, Ordering::Relaxed);
    let seen = loading
        .await
        .map_err(Trouble::because("the load broke"))??;
    let not_ended = ending
        .join_all()
        .await
        .into_iter()
        .filter(|well| !well)
        .count();
    drain(&mut site.database, DRAIN).await?;
    let jobs = count(&mut site.database, "select count(*) from jobs").await?;
    let accepted = i64::try_from(seen.accepted).unwrap_or(i64::MAX);
    Ok(Restarts {
        rounds,
        executed_again: count(&mut site.database, AGAIN).await?,
        not_succeeded: count(&mut site.database, NOT_SUCCEEDED).await?,
        miscounted: (jobs - accepted).abs(),
        seen,
        not_ended,
    })
}

/// In which way Redis is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// It is there: to compare with.
    Not,
    /// Its process has ended.
    Stopped,
    /// Its process does nothing.
    Frozen,
    /// What is sent to it never arrives.
    Blackholed,
    /// It forgets everything, once a second.
    Flushed,
}

/// What one of them did.
#[derive(Debug)]
pub struct Stretch {
    /// What was done to Redis.
    pub away: Away,
    /// What clients saw.
    pub seen: Seen,
    /// Jobs that ended a second.
    pub jobs_per_second: f64,
    /// How long jobs that waited took to end after Redis was back.
    pub drained: Duration,
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            away,
            seen,
            jobs_per_second,
            drained,
        } = self;
        write!(
            f,
            "{away:?}: {seen}; {jobs_per_second:.1} jobs a second, drained in {:.1} s",
            drained.as_secs_f64()
        )
    }
}

/// A load of `rate` requests a second on 2 api processes and 3 workers, while Redis is away in each way for `time`.
///
/// # Errors
/// When something cannot be started, or the servers are not private.
pub async fn without_redis(
    ground: &Arc<Ground>,
    time: Duration,
    rate: u32,
    told: &(dyn Fn(&Stretch) + Sync),
) -> Result<Vec<Stretch>, Trouble> {
    let link = Link::to_redis(&ground.servers)?;
    let env = BTreeMap::from([("ASSAY_REDIS_URL".to_owned(), link.redis_url())]);
    let mut site = Site::start(
        ground,
        Plan {
            apis: 2,
            workers: 3,
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
        // The load is there before the trouble is.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (began, before) = (Instant::now(), count(&mut site.database, ENDED).await?);
        keep_away(&link, ground, away, time).await?;
        let jobs_per_second = (count(&mut site.database, ENDED).await? - before) as f64
            / began.elapsed().as_secs_f64();
        load.over.store(true, Ordering::Relaxed);
        let seen = loading
            .await
            .map_err(Trouble::because("the load broke"))??;
        let drained = drain(&mut site.database, DRAIN).await?;
        let stretch = Stretch {
            away,
            seen,
            jobs_per_second,
            drained,
        };
        told(&stretch);
        stretches.push(stretch);
    }
    Ok(stretches)
}

async fn keep_away(
    link: &Link,
    ground: &Arc<Ground>,
    away: Away,
    time: Duration,
) -> Result<(), Trouble> {
    let servers = &ground.servers;
    match away {
        Away::Not => tokio::time::sleep(time).await,
        Away::Stopped => {
            servers.redis_stop()?;
            tokio::time::sleep(time).await;
            servers.redis_start()?;
        }
        Away::Frozen => {
            servers.redis_signal(libc::SIGSTOP)?;
            tokio::time::sleep(time).await;
            servers.redis_signal(libc::SIGCONT)?;
        }
        Away::Blackholed => {
            link.refuse(Ending::HalfOpen);
            tokio::time::sleep(time).await;
            link.mend();
        }
        Away::Flushed => {
            let began = Instant::now();
            let client = redis::Client::open(servers.redis_url())
                .map_err(Trouble::because("cannot reach Redis"))?;
            let mut connection = client
                .get_multiplexed_async_connection()
                .await
                .map_err(Trouble::because("cannot reach Redis"))?;
            while began.elapsed() < time {
                redis::cmd("FLUSHALL")
                    .exec_async(&mut connection)
                    .await
                    .map_err(Trouble::because("cannot flush Redis"))?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    Ok(())
}
