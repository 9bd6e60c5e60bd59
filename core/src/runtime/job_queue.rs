//! Job notifications through Redis. This is the only file that uses apalis, the queue's
//! library.
//!
//! The queue notifies workers about queued jobs and does nothing else. A task contains the ids for one or several
//! jobs, and its handler always succeeds. Lost or repeated notifications are harmless, because the state is
//! in PostgreSQL: a claim finds the job queued, or does nothing.
//! `docs/decisions/0002-redis-only-notifies.md` gives the reasons for this design and for each
//! setting.

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

use crate::model::error::{BestEffort as _, Error, Result};
use crate::model::ids::JobId;
use crate::model::random;
use crate::runtime::redis_connection::{self, Connection};
use crate::store::job_notifications::JobNotification;

/// Maximum task count in Redis at once. Jobs that are chosen later cannot overtake them. An apalis
/// script fails permanently at 8,000 due tasks.
const TASKS_MAX: usize = 128;

/// One task's maximum job count. A task with several jobs costs Redis and PostgreSQL little more
/// than one with a single job, and a worker scores them in a few milliseconds.
pub const JOBS_PER_TASK_MAX: usize = 16;

/// Tasks that an apalis worker handles at once. With more than four times its batch size in flight,
/// its shutdown never finishes.
const CONCURRENT_TASKS: usize = 4;

/// Longest wait for a response from Redis while fetching tasks or subscribing.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without a message after which a worker subscribes again, because the connection may be
/// dead.
const SUBSCRIPTION_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which an idle worker fetches tasks without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The separator between a task's job ids.
const JOB_ID_SEPARATOR: &str = " ";

/// The names for an installation's queue in Redis.
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
            // With a larger batch, the heartbeat stops while fetched tasks wait in the buffer.
            .batch_size(1)
            .emit_events(false)
            .heartbeat_interval(Duration::from_secs(5))
            .missed_heartbeats(6)
    }
}

/// The queue's state in Redis.
pub struct QueueState {
    /// `true` if Redis has lost the notifications that were sent before: it was restarted or
    /// flushed. Set once after each loss.
    pub lost_data: bool,
    /// The task count that can be added now.
    pub room: usize,
}

/// The job notification sender.
#[derive(Clone)]
pub struct JobNotifier {
    names: Names,
    connection: Connection,
}

impl JobNotifier {
    /// Creates a sender for the queue with this prefix.
    pub fn new(connection: Connection, prefix: &str) -> Self {
        Self {
            names: Names::new(prefix),
            connection,
        }
    }

    /// Reads the queue's state.
    pub async fn state(&self) -> Result<QueueState> {
        let config = self.names.config();
        let state: redis::RedisResult<(bool, usize, usize)> = redis::pipe()
            .set_nx(self.names.epoch(), 1)
            .zcard(config.scheduled_jobs_set())
            .llen(config.active_jobs_list())
            .query_async(&mut self.connection.get())
            .await;
        if let Err(error) = &state {
            self.connection.reconnect_if_lost(error);
        }
        let (lost_data, scheduled, active) = state.map_err(Error::unavailable)?;
        Ok(QueueState {
            lost_data,
            room: TASKS_MAX.saturating_sub(scheduled + active),
        })
    }

    /// Notifies workers about these jobs, in this order.
    pub async fn notify(&self, notifications: &[JobNotification]) -> Result<()> {
        let mut storage =
            RedisStorage::<String>::new(self.connection.get()).with_config(self.names.config());
        let tasks: Vec<_> = divide(notifications)
            .enumerate()
            .filter_map(|(position, jobs)| task(position, jobs))
            .collect();
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

    /// Removes entries that apalis never removes: finished tasks, and workers that no longer exist.
    pub async fn clean_up(&self) -> Result<()> {
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
        // A dead worker's jobs are notified again because of their state in PostgreSQL, so its
        // lists can be removed.
        let dead = Script::new(
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
        let mut call = dead.key(config.workers_set());
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

/// The handler for a task's jobs.
pub type OnJobNotification =
    Arc<dyn Fn(Vec<JobId>) -> future::BoxFuture<'static, ()> + Send + Sync>;

/// Receives job notifications until `stop` is set. Redis errors do not end it.
///
/// After it has returned, no handler is started; some may still run.
pub async fn listen(
    url: &str,
    prefix: &str,
    on_job_notification: OnJobNotification,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let names = Names::new(prefix);
    let (wake_up, notified) = watch::channel(());
    // Fetching waits longer for Redis than an API request does.
    let connection = Connection::new(url, FETCH_TIMEOUT)?;
    let client = redis_connection::client(url)?;
    let worker = run(&names, &connection, &on_job_notification, &notified, &stop);
    // In one task, because an apalis worker's future cannot be spawned.
    future::select(
        Box::pin(worker),
        Box::pin(subscribe_to_notifications(&client, &names, &wake_up)),
    )
    .await;
    Ok(())
}

/// Wakes the worker up for each published notification. Subscribes again if the connection closes
/// or is idle for [`SUBSCRIPTION_IDLE_TIMEOUT`].
async fn subscribe_to_notifications(client: &Client, names: &Names, wake_up: &watch::Sender<()>) {
    let subscribe = async || {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(names.channel()).await?;
        Ok::<_, redis::RedisError>(subscription)
    };
    loop {
        let received = async {
            let subscribed = tokio::time::timeout(FETCH_TIMEOUT, subscribe())
                .await
                .map_err(Error::unavailable)?;
            let mut messages = subscribed.map_err(Error::unavailable)?.into_on_message();
            // Notifications that were published between two subscriptions were not received.
            wake_up.send_replace(());
            while let Ok(Some(_)) =
                tokio::time::timeout(SUBSCRIPTION_IDLE_TIMEOUT, messages.next()).await
            {
                wake_up.send_replace(());
            }
            Ok::<_, Error>(())
        };
        received
            .await
            .best_effort("receiving job notifications; workers poll meanwhile");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Runs an apalis worker, and restarts it with a new name whenever a Redis error ends it.
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
            Err(error) => {
                return tracing::error!(%error, "random name of a queue worker not created");
            }
        };
        let backend = RedisStorage::<String>::new(connection.get()).with_config(names.config());
        let worker = WorkerBuilder::new(name)
            .backend(backend.poll_with_strategy(NotifyOrPoll::new(notified.clone())))
            .data(Arc::clone(on_job_notification))
            .concurrency(CONCURRENT_TASKS)
            .catch_panic()
            .parallelize(tokio::spawn)
            .build(handle);
        let mut stopped = stop.clone();
        let stopped = async move {
            // An error means that the sender was dropped, which also stops the worker.
            let _ = stopped.wait_for(|stop| *stop).await;
            Ok::<(), WorkerError>(())
        };
        if let Err(error) = worker.run_until(stopped).await {
            tracing::warn!(%error, "queue worker ended, restarting");
            connection.reconnect();
        }
        if !*stop.borrow() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Divides jobs among tasks: a task has one large job, or several small ones.
fn divide(jobs: &[JobNotification]) -> impl Iterator<Item = &[JobNotification]> {
    jobs.chunk_by(|job, next| job.is_small && next.is_small)
        .flat_map(|jobs| jobs.chunks(JOBS_PER_TASK_MAX))
}

/// Returns the job's task at this position and those after it.
fn task(position: usize, jobs: &[JobNotification]) -> Option<Task<String>> {
    let first = jobs.first()?;
    // Tasks that become due in the same second are fetched in id order.
    let id = format!(
        "{}-{position:04}-{}-{}",
        first.dispatched_at.unix_nanos() / 1000,
        first.job_id,
        first.dispatch_no
    );
    let job_ids: Vec<&str> = jobs.iter().map(|job| job.job_id.as_str()).collect();
    let task = TaskBuilder::new(job_ids.join(JOB_ID_SEPARATOR));
    Some(task.task_id(TaskId::from_string(id)).build())
}

/// Handles a task. It always succeeds: the job's outcome is in PostgreSQL, and apalis must not
/// retry.
async fn handle(job_ids: String, on_job_notification: Data<OnJobNotification>) {
    let parsed: Result<Vec<JobId>, _> = job_ids.split(JOB_ID_SEPARATOR).map(str::parse).collect();
    match parsed {
        Ok(job_ids) => on_job_notification(job_ids).await,
        Err(_) => tracing::warn!("job notification without a valid job id"),
    }
}

/// A poll strategy that wakes an idle worker up for each notification and every second.
///
/// Apalis's strategies return without registering a waker, so that nothing wakes the worker
/// up. This one polls its future until it is pending.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::timestamp::Timestamp;

    /// Returns the tasks' job counts for small jobs (`s`) and large jobs (`L`).
    fn sizes(jobs: &str) -> Vec<usize> {
        let jobs: Vec<_> = jobs
            .chars()
            .map(|size| JobNotification {
                job_id: JobId::random().unwrap(),
                dispatch_no: 1,
                dispatched_at: Timestamp::now(),
                is_small: size == 's',
            })
            .collect();
        divide(&jobs).map(<[_]>::len).collect()
    }

    #[test]
    fn large_job_has_its_own_task() {
        assert_eq!(sizes("sss"), [3]);
        assert_eq!(sizes(&"s".repeat(17)), [16, 1]);
        assert_eq!(sizes(&"s".repeat(1600)), [16; 100]);
        assert_eq!(sizes(&"L".repeat(40)), [1; 40]);
        let mixed = format!("{}LL{}L", "s".repeat(20), "s".repeat(10));
        assert_eq!(sizes(&mixed), [16, 4, 1, 1, 10, 1]);
    }
}
