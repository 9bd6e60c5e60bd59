//! The channel: how a waiting job comes to a worker's notice. The only file that names the queue's backend.
//!
//! apalis on Redis notifications; it is trusted with nothing else. A task is a job's id, its handler always succeeds, and
//! whatever Redis loses or repeats is put right by the state in PostgreSQL: a claim finds the job waiting, or does
//! nothing. `docs/decisions/0002-redis-is-a-channel.md` says why, and why each setting is what it is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apalis::layers::WorkerBuilderExt as _;
use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage};
use futures_util::{StreamExt as _, future, stream};
use redis::{AsyncCommands as _, Client, Script};
use tokio::sync::watch;

use crate::model::error::BestEffort as _;
use crate::model::error::{Error, Result};
use crate::model::ids::JobId;
use crate::model::random;
use crate::runtime::redis_connection::{self, Connection};
use crate::store::dispatch::JobNotification;

/// How many bells may be in Redis at once. The backend's own script fails for good at 8,000 due entries.
pub const WINDOW: i64 = 2_000;

/// Slots of one apalis worker: with more than four times its batch size in flight its shutdown never ends.
const SLOTS_PER_WORKER: usize = 4;

/// How long fetching waits for an answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long without a channel workers subscribe again, lest they listen to a connection that is dead.
const SUBSCRIPTION_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often an idle worker looks without having been notified.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The names of one installation's queue in Redis.
#[derive(Debug, Clone)]
struct Names {
    queue: String,
}

impl Names {
    fn new(prefix: &str) -> Self {
        Self {
            queue: format!("{prefix}.evals"),
        }
    }

    fn channel(&self) -> String {
        format!("{}.channel", self.queue)
    }

    fn epoch(&self) -> String {
        format!("{}.epoch", self.queue)
    }

    fn config(&self) -> Config {
        Config::default()
            .queue(&self.queue)
            // With more than one, the heartbeat stops while fetched tasks wait in the buffer.
            .batch_size(1)
            .emit_events(false)
            .heartbeat_interval(Duration::from_secs(5))
            .missed_heartbeats(6)
    }
}

/// The side that notifications.
#[derive(Clone)]
pub struct JobNotifier {
    names: Names,
    connection: Connection,
}

impl JobNotifier {
    /// A ringer for the queue under `prefix`.
    pub fn new(connection: Connection, prefix: &str) -> Self {
        Self {
            names: Names::new(prefix),
            connection,
        }
    }

    /// Whether Redis still knows what was notified. It forgets by a restart or by being flushed.
    pub async fn remembers(&self) -> Result<bool> {
        let new: redis::RedisResult<bool> =
            self.connection.get().set_nx(self.names.epoch(), 1).await;
        if new.as_ref().is_err_and(redis::RedisError::is_timeout) {
            self.connection.give_up();
        }
        Ok(!new.map_err(Error::unavailable)?)
    }

    /// How many more bells may be notified now.
    pub async fn room(&self) -> Result<i64> {
        let config = self.names.config();
        let (scheduled, active): (i64, i64) = redis::pipe()
            .zcard(config.scheduled_jobs_set())
            .llen(config.active_jobs_list())
            .query_async(&mut self.connection.get())
            .await
            .map_err(Error::unavailable)?;
        Ok((WINDOW - scheduled - active).max(0))
    }

    /// Rings for these jobs, in this order.
    pub async fn notify(&self, notifications: &[JobNotification]) -> Result<()> {
        let mut storage =
            RedisStorage::<String>::new(self.connection.get()).with_config(self.names.config());
        let task = |(place, notification): (usize, &JobNotification)| {
            // Tasks that fall due in one second come in the order of their ids.
            let id = format!(
                "{}-{place:04}-{}-{}",
                notification.dispatched_at.unix_nanos() / 1000,
                notification.job_id,
                notification.dispatch_no
            );
            TaskBuilder::new(notification.job_id.to_string())
                .task_id(TaskId::from_string(id))
                .build()
        };
        let tasks: Vec<_> = notifications.iter().enumerate().map(task).collect();
        storage
            .push_all(stream::iter(tasks))
            .await
            .map_err(|error| Error::unavailable(error.to_string()))?;
        let _: i64 = self
            .connection
            .get()
            .publish(self.names.channel(), notifications.len())
            .await
            .map_err(Error::unavailable)?;
        Ok(())
    }

    /// Removes what the backend never removes: finished tasks, and workers that are gone.
    pub async fn tidy(&self) -> Result<()> {
        let config = self.names.config();
        let finished = Script::new(
            r"local ids = redis.call('spop', KEYS[1], 500)
              for _, id in ipairs(ids) do redis.call('hdel', KEYS[2], id); redis.call('del', KEYS[3] .. ':' .. id) end
              return #ids",
        );
        for set in [config.done_jobs_set(), config.dead_jobs_set()] {
            loop {
                let mut call = finished.key(&set);
                call.key(config.job_data_hash()).key(config.job_meta_hash());
                let removed: i64 = call
                    .invoke_async(&mut self.connection.get())
                    .await
                    .map_err(Error::unavailable)?;
                if removed < 500 {
                    break;
                }
            }
        }
        // What a dead worker held is notified again for its job's sake, so its own lists can go.
        let gone = Script::new(
            r"local before = redis.call('time')[1] - 600
              local names = redis.call('zrangebyscore', KEYS[1], '-inf', before)
              for _, name in ipairs(names) do
                  for _, id in ipairs(redis.call('smembers', KEYS[2] .. ':' .. name)) do
                      redis.call('hdel', KEYS[3], id)
                      redis.call('del', KEYS[4] .. ':' .. id)
                  end
                  redis.call('zrem', KEYS[1], name)
                  redis.call('del', KEYS[1] .. ':metadata:' .. name, KEYS[2] .. ':' .. name)
              end
              return #names",
        );
        let mut call = gone.key(config.workers_set());
        call.key(config.inflight_jobs_set())
            .key(config.job_data_hash())
            .key(config.job_meta_hash());
        let _: i64 = call
            .invoke_async(&mut self.connection.get())
            .await
            .map_err(Error::unavailable)?;
        Ok(())
    }
}

/// What is done when a job's channel is heard.
pub type OnJobNotification = Arc<dyn Fn(JobId) -> future::BoxFuture<'static, ()> + Send + Sync>;

/// Hears bells until `stop` is set, with at least `slots` handlers at once, whatever Redis does. When it returns, no
/// handler is begun any more; some may still run.
pub async fn listen(
    url: &str,
    prefix: &str,
    slots: usize,
    on_job_notification: OnJobNotification,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let names = Names::new(prefix);
    let (channel, notified) = watch::channel(());
    // Fetching waits in Redis's line: more patience than a request has.
    let connection = Connection::new(url, FETCH_TIMEOUT)?;
    let client = redis_connection::client(url)?;
    let workers = (0..slots.div_ceil(SLOTS_PER_WORKER))
        .map(|_| run(&names, &connection, &on_job_notification, &notified, &stop));
    let workers = future::join_all(workers);
    // One task for all: a worker's future is not one that can be spawned.
    future::select(
        Box::pin(workers),
        Box::pin(subscribe_to_notifications(&client, &names, &channel)),
    )
    .await;
    Ok(())
}

/// Passes published bells on, subscribing again whenever the connection breaks or is silent for long.
async fn subscribe_to_notifications(client: &Client, names: &Names, channel: &watch::Sender<()>) {
    let subscribe = async || {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(names.channel()).await?;
        Ok::<_, redis::RedisError>(subscription)
    };
    loop {
        let heard = async {
            let subscribed = tokio::time::timeout(FETCH_TIMEOUT, subscribe())
                .await
                .map_err(Error::unavailable)?;
            let mut messages = subscribed.map_err(Error::unavailable)?.into_on_message();
            // Bells that were notified in between were not heard.
            channel.send_replace(());
            while let Ok(Some(_)) =
                tokio::time::timeout(SUBSCRIPTION_IDLE_TIMEOUT, messages.next()).await
            {
                channel.send_replace(());
            }
            Ok::<_, Error>(())
        };
        heard
            .await
            .best_effort("hearing the channel; workers look once a second meanwhile");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// One apalis worker, begun again under a fresh name whenever an error of Redis ends it.
async fn run(
    names: &Names,
    connection: &Connection,
    on_job_notification: &OnJobNotification,
    notified: &watch::Receiver<()>,
    stop: &watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let name = match random::base62(12) {
            Ok(name) => name,
            Err(error) => return tracing::error!(%error, "no randomness for a worker's name"),
        };
        let backend = RedisStorage::<String>::new(connection.get()).with_config(names.config());
        let worker = WorkerBuilder::new(name)
            .backend(backend.poll_with_strategy(NotifyOrPoll::new(notified.clone())))
            .data(Arc::clone(on_job_notification))
            .concurrency(SLOTS_PER_WORKER)
            .catch_panic()
            .parallelize(tokio::spawn)
            .build(handle);
        let mut stopped = stop.clone();
        let stopped = async move {
            // An error means that the sender is gone, and with it the process's reason to go on.
            let _ = stopped.wait_for(|stop| *stop).await;
            Ok::<(), WorkerError>(())
        };
        if let Err(error) = worker.run_until(stopped).await {
            tracing::warn!(%error, "the queue's worker ended; beginning again");
            connection.give_up();
        }
        if !*stop.borrow() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Always succeeds: what became of the job is in PostgreSQL, and the backend's retries must never begin.
async fn handle(job_id: String, on_job_notification: Data<OnJobNotification>) {
    match job_id.parse() {
        Ok(job_id) => on_job_notification(job_id).await,
        Err(_) => tracing::warn!("a channel rang for something that is not a job"),
    }
}

/// When an idle worker looks: at the channel, and once a second. The strategies that apalis ships return without leaving
/// a waker behind, and then nothing wakes the worker; this one polls until it is pending again.
struct NotifyOrPoll {
    notified: watch::Receiver<()>,
    next: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl NotifyOrPoll {
    fn new(mut notified: watch::Receiver<()>) -> Self {
        let next = Self::next(&mut notified);
        Self { notified, next }
    }

    fn next(notified: &mut watch::Receiver<()>) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        notified.mark_unchanged();
        let mut notified = notified.clone();
        Box::pin(async move {
            tokio::select! {
                _ = notified.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        })
    }
}

impl PollStrategy for NotifyOrPoll {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        while self.next.as_mut().poll(cx).is_ready() {
            self.next = Self::next(&mut self.notified);
        }
        Poll::Pending
    }
}
