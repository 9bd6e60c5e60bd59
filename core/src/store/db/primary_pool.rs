//! The pool of connections to the server that accepts writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sqlx::PgPool;

/// A pool of connections to the server that accepts writes. Clones share it.
///
/// After a failover it is a new pool. sqlx waits without a time limit for the response to checking
/// a connection that is returned to its pool, so connections to a frozen server would keep their
/// places in the pool until TCP gives up.
#[derive(Clone)]
pub struct PrimaryPool(Arc<Shared>);

struct Shared {
    pool: RwLock<PgPool>,
    /// The idle connections that tasks hold.
    idle_of_tasks: AtomicUsize,
}

impl PrimaryPool {
    pub(super) fn new(pool: PgPool) -> Self {
        Self(Arc::new(Shared {
            pool: RwLock::new(pool),
            idle_of_tasks: AtomicUsize::new(0),
        }))
    }

    /// Returns the pool for the next statements. A task that runs for long gets it again for each.
    pub fn get(&self) -> PgPool {
        self.0
            .pool
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the idle connection count.
    pub fn idle(&self) -> usize {
        self.get().num_idle() + self.0.idle_of_tasks.load(Ordering::Relaxed)
    }

    pub(super) fn set_idle_of_tasks(&self, connections: usize) {
        self.0.idle_of_tasks.store(connections, Ordering::Relaxed);
    }

    /// Replaces the pool. Callers that wait for a connection from the former pool get an error, and
    /// its connections are closed when they are returned.
    pub(super) fn replace(&self, pool: PgPool) {
        let mut current = self.0.pool.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *current, pool);
        // This also marks the pool as closed. Nobody waits for the connections, which may be
        // without a response.
        drop(former.close());
    }
}
