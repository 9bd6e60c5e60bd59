//! How many submissions of one organization may be under way in this process: they go one after the other in the
//! database anyway, and each that waits there holds a connection that others need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assay_core::{Error, OrgId, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// At once.
const TURNS: usize = 3;

/// How long one waits for one's turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose turn it is.
#[derive(Default)]
pub struct Turns {
    by_org: Mutex<HashMap<OrgId, Arc<Semaphore>>>,
}

impl Turns {
    /// Waits for a turn, which ends when it is dropped. 503 when it takes too long.
    pub async fn take(&self, org_id: &OrgId) -> Result<OwnedSemaphorePermit> {
        let turn = tokio::time::timeout(PATIENCE, self.of(org_id).acquire_owned()).await;
        let busy = || Error::unavailable("too many submissions of one organization at once");
        turn.map_err(|_| busy())?.map_err(|_| busy())
    }

    fn of(&self, org_id: &OrgId) -> Arc<Semaphore> {
        let mut by_org = self.by_org.lock().unwrap_or_else(PoisonError::into_inner);
        if by_org.len() > 1000 {
            // Whoever holds or awaits a turn holds the semaphore too.
            by_org.retain(|_, turns| Arc::strong_count(turns) > 1 || turns.available_permits() < TURNS);
        }
        Arc::clone(by_org.entry(org_id.clone()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))))
    }
}
