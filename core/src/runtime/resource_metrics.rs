//! How a process and what it hangs on are doing, looked at every few seconds for `/metrics`: PostgreSQL, Redis, the
//! connections, the runtime, and, on behalf of all, the queue's depth.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::error::{Error, Result};
use crate::runtime::prometheus;
use crate::runtime::redis_connection::Connection;
use crate::runtime::settings::Common;
use crate::store::dispatch::{self, Depth};
use crate::store::{PgPool, migrations};

/// How often to look.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// How long an answer is waited for. Who answers later is as good as away.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// What is looked at.
pub struct ResourceMetrics<const N: usize> {
    pools: [(&'static str, PgPool); N],
    redis: Connection,
}

impl<const N: usize> ResourceMetrics<N> {
    /// Of a process with these connections to PostgreSQL, by what they are for. The first are the ones to ask with.
    pub fn new(settings: &Common, pools: [(&'static str, &PgPool); N]) -> Result<Self> {
        let redis = Connection::new(&settings.redis_url, SAMPLE_TIMEOUT)?;
        Ok(Self {
            pools: pools.map(|(name, pool)| (name, pool.clone())),
            redis,
        })
    }

    /// Looks for as long as it is polled; at the queue, too, if it is told with which connections.
    pub async fn sample(self, queue: Option<PgPool>) {
        metrics::gauge!(prometheus::RUNTIME_LAG_SECONDS).set(0.0);
        loop {
            self.connections();
            runtime();
            let (database, redis) = tokio::join!(self.database(), self.redis());
            metrics::gauge!(prometheus::DATABASE_UP).set(f64::from(u8::from(database.is_ok())));
            metrics::gauge!(prometheus::REDIS_UP).set(f64::from(u8::from(redis.is_ok())));
            if let Ok(pending) = database {
                metrics::gauge!(prometheus::MIGRATIONS_PENDING).set(pending as f64);
            }
            if let Some(db) = &queue {
                show(depth(db).await.unwrap_or(UNKNOWN));
            }
            let until = Instant::now() + SAMPLE_INTERVAL;
            tokio::time::sleep_until(until).await;
            metrics::gauge!(prometheus::RUNTIME_LAG_SECONDS).set(until.elapsed().as_secs_f64());
        }
    }

    fn connections(&self) {
        for (name, pool) in &self.pools {
            let idle = pool.num_idle();
            let busy = (pool.size() as usize).saturating_sub(idle);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS, "pool" => *name, "state" => "busy")
                .set(busy as f64);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS, "pool" => *name, "state" => "idle")
                .set(idle as f64);
            metrics::gauge!(prometheus::DATABASE_CONNECTIONS_MAX, "pool" => *name)
                .set(f64::from(pool.options().get_max_connections()));
        }
    }

    async fn database(&self) -> Result<usize> {
        let Some((_, db)) = self.pools.first() else {
            return Ok(0);
        };
        tokio::time::timeout(SAMPLE_TIMEOUT, migrations::pending(db))
            .await
            .map_err(Error::unavailable)?
    }

    async fn redis(&self) -> Result<()> {
        let mut connection = self.redis.get();
        let ping = tokio::time::timeout(
            SAMPLE_TIMEOUT,
            redis::cmd("PING").query_async::<()>(&mut connection),
        )
        .await;
        // A connection that hangs stays as it is until it is given up.
        ping.map_err(|late| {
            self.redis.give_up();
            Error::unavailable(late)
        })?
        .map_err(Error::unavailable)
    }
}

fn runtime() {
    let runtime = tokio::runtime::Handle::current().metrics();
    metrics::gauge!(prometheus::RUNTIME_TASKS).set(runtime.num_alive_tasks() as f64);
}

/// What is told while nobody can tell: what was seen before would be taken for what is.
const UNKNOWN: Depth = Depth {
    queued: f64::NAN,
    queued_seconds: f64::NAN,
    running: f64::NAN,
    running_seconds: f64::NAN,
    workers: f64::NAN,
};

async fn depth(db: &PgPool) -> Result<Depth> {
    tokio::time::timeout(SAMPLE_TIMEOUT, dispatch::depth(db))
        .await
        .map_err(Error::unavailable)?
}

fn show(depth: Depth) {
    let Depth {
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
