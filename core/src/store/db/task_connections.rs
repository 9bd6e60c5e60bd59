//! Database connections for tasks that execute one statement after the other.
//!
//! sqlx checks each connection that is returned to its pool, which costs a round trip. These
//! connections therefore stay checked out between statements.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::pool::is_usable;
use super::primary_pool::PrimaryPool;
use crate::model::error::{Error, Result};

/// The age at which a connection is replaced, as in a pool: a PostgreSQL session's memory
/// grows.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

/// Pool connections that tasks share. Clones are the same connections. A pool has at most one
/// such set.
#[derive(Clone)]
pub struct TaskConnections {
    pool: PrimaryPool,
    idle: Arc<Mutex<Vec<Connection>>>,
    /// One for each connection that may be in use.
    permits: Arc<Semaphore>,
}

/// A connection that is closed when it is dropped.
struct Connection {
    connection: PoolConnection<Postgres>,
    /// The pool that the connection belongs to. A failover replaces it.
    pool: PgPool,
    opened_at: Instant,
    used_at: Instant,
}

impl TaskConnections {
    /// Takes at most `connections_max` connections from the pool, each when it is first needed.
    pub fn new(pool: PrimaryPool, connections_max: u32) -> Self {
        Self {
            pool,
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(connections_max as usize)),
        }
    }

    /// Executes statements on a connection. Waits while all connections are in use.
    ///
    /// The statements must not leave a transaction open when they return `Ok`. If they fail or are
    /// cancelled, the connection is closed.
    ///
    /// # Errors
    /// The statements' error. `unavailable` if there is no connection.
    pub async fn execute<T>(
        &self,
        statements: impl AsyncFnOnce(&mut PgConnection) -> Result<T>,
    ) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(Error::unavailable)?;
        let mut connection = match self.take_idle().await {
            Some(connection) => connection,
            None => self.take_from_pool().await?,
        };
        let result = statements(&mut connection.connection).await?;
        connection.used_at = Instant::now();
        let mut idle = self.idle();
        idle.push(connection);
        self.pool.set_idle_of_tasks(idle.len());
        Ok(result)
    }

    /// Returns the connection that was used last, if it is usable. Closes those that are not.
    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut last = {
                let mut idle = self.idle();
                let last = idle.pop()?;
                self.pool.set_idle_of_tasks(idle.len());
                last
            };
            let idle_for = last.used_at.elapsed();
            if !last.pool.is_closed()
                && last.opened_at.elapsed() < AGE_MAX
                && is_usable(&mut last.connection, idle_for)
                    .await
                    .unwrap_or(false)
            {
                return Some(last);
            }
        }
    }

    async fn take_from_pool(&self) -> Result<Connection> {
        let pool = self.pool.get();
        let mut connection = pool.acquire().await?;
        connection.close_on_drop();
        let now = Instant::now();
        Ok(Connection {
            connection,
            pool,
            opened_at: now,
            used_at: now,
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
