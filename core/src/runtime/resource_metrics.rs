//! Samples from a process's resources and dependencies for `/metrics`: PostgreSQL, Redis, the
//! connections and the runtime. An API process also samples the queue's depth, which is the
//! same for the whole installation.

use std::time::Duration;

use redis::AsyncCommands as _;
use tokio::time::Instant;

use crate::model::error::{Error, Result};
use crate::runtime::prometheus;
use crate::runtime::redis_connection::Connection;
use crate::runtime::settings::Common;
use crate::store::queue_depth::{self, QueueDepth};
use crate::store::{PgPool, PrimaryPool, migrations};

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Longest wait for a response. A slower dependency counts as unavailable.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// A sampler for the process's resources and dependencies.
pub struct ResourceMetrics<const N: usize> {
    pools: [(&'static str, PrimaryPool); N],
    redis: Connection,
    /// The key that is written to check Redis.
    redis_key: String,
}

impl<const N: usize> ResourceMetrics<N> {
    /// Creates a sampler for a process with these connection pools, each with its name. The first
    /// pool runs the sampler's queries.
    pub fn new(settings: &Common, pools: [(&'static str, &PrimaryPool); N]) -> Result<Self> {
        let redis = Connection::new(&settings.redis_url, SAMPLE_TIMEOUT)?;
        Ok(Self {
            pools: pools.map(|(name, pool)| (name, pool.clone())),
            redis,
            redis_key: format!("{}.up", settings.redis_prefix),
        })
    }

    /// Samples for as long as the future is polled. Samples the queue's depth as well if there
    /// is a pool for it.
    pub async fn sample(self, queue: Option<PrimaryPool>) {
        metrics::gauge!(prometheus::RUNTIME_LAG_SECONDS).set(0.0);
        loop {
            self.record_connections();
            let (database, redis) = tokio::join!(self.pending_migrations(), self.write_to_redis());
            metrics::gauge!(prometheus::DATABASE_UP).set(f64::from(u8::from(database.is_ok())));
            metrics::gauge!(prometheus::REDIS_UP).set(f64::from(u8::from(redis.is_ok())));
            if let Ok(pending) = database {
                metrics::gauge!(prometheus::MIGRATIONS_PENDING).set(pending as f64);
            }
            if let Some(db) = &queue {
                record_queue_depth(
                    queue_depth_within_timeout(&db.get())
                        .await
                        .unwrap_or(UNKNOWN),
                );
            }
            record_runtime();
            sleep_and_record_lag().await;
        }
    }

    fn record_connections(&self) {
        for (name, pool) in &self.pools {
            let idle = pool.idle();
            let pool = pool.get();
            let busy = (pool.size() as usize).saturating_sub(idle);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS, "pool" => *name, "state" => "busy")
                .set(busy as f64);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS, "pool" => *name, "state" => "idle")
                .set(idle as f64);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS_MAX, "pool" => *name)
                .set(f64::from(pool.options().get_max_connections()));
        }
    }

    async fn pending_migrations(&self) -> Result<usize> {
        let Some((_, db)) = self.pools.first() else {
            return Ok(0);
        };
        tokio::time::timeout(SAMPLE_TIMEOUT, migrations::pending(&db.get()))
            .await
            .map_err(Error::unavailable)?
    }

    /// Writes to Redis: a replica responds too, but is useless.
    async fn write_to_redis(&self) -> Result<()> {
        let mut connection = self.redis.get();
        let write = connection.set_ex::<_, _, ()>(&self.redis_key, 1, 60);
        let written = tokio::time::timeout(SAMPLE_TIMEOUT, write).await;
        // The client does not replace an unresponsive connection by itself.
        written
            .map_err(|elapsed| {
                self.redis.reconnect();
                Error::unavailable(elapsed)
            })?
            .map_err(|error| {
                self.redis.reconnect_if_lost(&error);
                Error::unavailable(error)
            })
    }
}

/// Samples the runtime in a process without dependencies for as long as the future is polled.
pub async fn sample_runtime() {
    metrics::gauge!(prometheus::RUNTIME_LAG_SECONDS).set(0.0);
    loop {
        record_runtime();
        sleep_and_record_lag().await;
    }
}

fn record_runtime() {
    let runtime = tokio::runtime::Handle::current().metrics();
    metrics::gauge!(prometheus::RUNTIME_TASKS).set(runtime.num_alive_tasks() as f64);
}

/// Sleeps until the next sample.
async fn sleep_and_record_lag() {
    let wake_up_at = Instant::now() + SAMPLE_INTERVAL;
    tokio::time::sleep_until(wake_up_at).await;
    metrics::gauge!(prometheus::RUNTIME_LAG_SECONDS).set(wake_up_at.elapsed().as_secs_f64());
}

/// The queue's depth while PostgreSQL is unavailable. Exporting the last known values would
/// hide the outage.
const UNKNOWN: QueueDepth = QueueDepth {
    queued: f64::NAN,
    queued_seconds: f64::NAN,
    running: f64::NAN,
    running_seconds: f64::NAN,
    workers: f64::NAN,
};

async fn queue_depth_within_timeout(db: &PgPool) -> Result<QueueDepth> {
    tokio::time::timeout(SAMPLE_TIMEOUT, queue_depth::measure(db))
        .await
        .map_err(Error::unavailable)?
}

fn record_queue_depth(depth: QueueDepth) {
    let QueueDepth {
        queued,
        queued_seconds,
        running,
        running_seconds,
        workers,
    } = depth;
    for (state, jobs, seconds) in [
        ("queued", queued, queued_seconds),
        ("running", running, running_seconds),
    ] {
        metrics::gauge!(prometheus::JOBS, "state" => state).set(jobs);
        metrics::gauge!(prometheus::JOB_OLDEST_SECONDS, "state" => state).set(seconds);
    }
    metrics::gauge!(prometheus::WORKERS).set(workers);
}
