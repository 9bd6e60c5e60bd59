//! Requests admitted, counted here and added to the database every second: a request does not write for being counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::store::{self, PgPool};
use assay_core::{CanFail as _, OrgId, Result};
use tokio::sync::watch;

/// How often what was counted is added up. A process that is killed takes at most this much with it.
const EVERY: Duration = Duration::from_secs(1);

/// What was counted since.
#[derive(Default)]
pub struct Requests {
    counted: Mutex<HashMap<OrgId, i64>>,
}

impl Requests {
    fn counted(&self) -> MutexGuard<'_, HashMap<OrgId, i64>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, org_id: &OrgId, requests: i64) {
        let mut counted = self.counted();
        match counted.get_mut(org_id) {
            Some(count) => *count += requests,
            None => drop(counted.insert(org_id.clone(), requests)),
        }
    }

    /// Counts one.
    pub fn count(&self, org_id: &OrgId) {
        self.add(org_id, 1);
    }

    /// What is not added up yet.
    pub fn pending(&self, org_id: &OrgId) -> i64 {
        self.counted().get(org_id).copied().unwrap_or(0)
    }

    /// Adds up what was counted; what cannot be written is kept for the next time.
    pub async fn add_up(&self, db: &PgPool) -> Result<()> {
        let counted = std::mem::take(&mut *self.counted());
        if counted.is_empty() {
            return Ok(());
        }
        let (org_ids, requests): (Vec<&str>, Vec<i64>) = counted.iter().map(|(org_id, requests)| (org_id.as_str(), *requests)).unzip();
        let written = store::within_response_timeout(store::usage::add_requests(db, &org_ids, &requests)).await;
        if written.is_err() {
            counted.iter().for_each(|(org_id, requests)| self.add(org_id, *requests));
        }
        written
    }

    /// Adds up again and again until `stopped` is set.
    pub async fn keep_adding(&self, db: &PgPool, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            // Whichever comes first: the end may come between two turns.
            let _ = tokio::time::timeout(EVERY, stopped.wait_for(|stopped| *stopped)).await;
            self.add_up(db).await.can_fail("adding up requests; they are kept for the next time");
        }
    }
}
