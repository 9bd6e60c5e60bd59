//! How much of one kind may be under way in this process, in all and of one organization: nobody may hold the connections
//! or the memory that others need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assay_core::{Error, OrgId, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whose turn it is.
pub struct Turns {
    of_one: usize,
    patience: Duration,
    of_all: Arc<Semaphore>,
    by_org: Mutex<HashMap<OrgId, Arc<Semaphore>>>,
}

/// A turn, which ends when it is dropped.
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

impl Turns {
    /// So many of one organization and of all, each waiting no longer than `patience`.
    pub fn new(of_one: usize, of_all: usize, patience: Duration) -> Self {
        Self { of_one, patience, of_all: Arc::new(Semaphore::new(of_all)), by_org: Mutex::default() }
    }

    /// Waits for a turn. 503 when it takes too long.
    pub async fn take(&self, org_id: &OrgId) -> Result<Turn> {
        let turn = tokio::time::timeout(self.patience, self.wait(org_id)).await;
        turn.map_err(|_| Error::unavailable("too much at once, of one organization or of all"))?
    }

    async fn wait(&self, org_id: &OrgId) -> Result<Turn> {
        // One's own first: who waits for that must not keep others from theirs.
        let own = self.of(org_id).acquire_owned().await.map_err(Error::internal)?;
        let shared = Arc::clone(&self.of_all).acquire_owned().await.map_err(Error::internal)?;
        Ok(Turn { _own: own, _shared: shared })
    }

    fn of(&self, org_id: &OrgId) -> Arc<Semaphore> {
        let mut by_org = self.by_org.lock().unwrap_or_else(PoisonError::into_inner);
        if by_org.len() > 1000 {
            // Whoever holds or awaits a turn holds the semaphore too.
            by_org.retain(|_, turns| Arc::strong_count(turns) > 1 || turns.available_permits() < self.of_one);
        }
        Arc::clone(by_org.entry(org_id.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.of_one))))
    }
}
