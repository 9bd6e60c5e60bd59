//! UsageCounter admitted, counted here and added to the database every second: a request does not write for being counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::store::{self, PgPool, Postgres, Transaction};
use assay_core::{BestEffort as _, Code, OrgId, Result};
use tokio::sync::watch;

/// How often what was counted is added up. A process that is killed takes at most this much with it.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// UsageCounter that are not in the database yet.
#[derive(Default)]
pub struct UsageCounter {
    counted: Mutex<Counted>,
    /// UsageCounter whose transaction may or may not have been committed. They are in doubt until the database says.
    in_doubt: tokio::sync::Mutex<Option<InDoubt>>,
}

#[derive(Default)]
struct Counted {
    by_org: HashMap<OrgId, i64>,
    /// How often what was counted was taken to be written.
    taken: u64,
}

struct InDoubt {
    transaction_id: String,
    counted: HashMap<OrgId, i64>,
}

/// UsageCounter of an organization that nobody has begun to write yet.
pub struct Pending {
    /// Their number.
    pub requests: i64,
    taken: u64,
}

impl UsageCounter {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one.
    pub fn count(&self, org_id: &OrgId) {
        let mut counted = self.counted();
        match counted.by_org.get_mut(org_id) {
            Some(count) => *count += 1,
            None => drop(counted.by_org.insert(org_id.clone(), 1)),
        }
    }

    /// What nobody has begun to write yet. What is being written is in neither this nor the database for some milliseconds.
    pub fn pending(&self, org_id: &OrgId) -> Pending {
        let counted = self.counted();
        Pending {
            requests: counted.by_org.get(org_id).copied().unwrap_or(0),
            taken: counted.taken,
        }
    }

    /// Whether a number that was read from the database after `pending` contains none of it.
    pub fn is_disjoint(&self, pending: &Pending) -> bool {
        self.counted().taken == pending.taken
    }

    /// Adds what was counted to the database, each request once, also when the result of a commit is lost. What cannot be
    /// written stays counted.
    pub async fn flush(&self, db: &PgPool) -> Result<()> {
        let mut in_doubt = self.in_doubt.lock().await;
        if let Some(InDoubt {
            transaction_id,
            counted,
        }) = in_doubt.take()
        {
            match store::usage::is_committed(db, &transaction_id).await {
                Ok(Some(true)) => {}
                Ok(Some(false)) => self.put_back(&counted),
                // Its connection still works on it, or nothing is known for now.
                Ok(None) => {
                    *in_doubt = Some(InDoubt {
                        transaction_id,
                        counted,
                    });
                    return Ok(());
                }
                Err(error) if error.code == Code::Unavailable => {
                    *in_doubt = Some(InDoubt {
                        transaction_id,
                        counted,
                    });
                    return Err(error);
                }
                // Another database, restored from a backup, knows nothing of it. Better too few than twice.
                Err(error) => return Err(error),
            }
        }
        let counted = {
            let mut counted = self.counted();
            counted.taken += 1;
            std::mem::take(&mut counted.by_org)
        };
        if counted.is_empty() {
            return Ok(());
        }
        let (transaction, transaction_id) =
            match store::within_response_timeout(write(db, &counted)).await {
                Ok(written) => written,
                Err(error) => {
                    self.put_back(&counted);
                    return Err(error);
                }
            };
        let committed =
            store::within_response_timeout(async { Ok(transaction.commit().await?) }).await;
        if committed.is_err() {
            *in_doubt = Some(InDoubt {
                transaction_id,
                counted,
            });
        }
        committed
    }

    fn put_back(&self, uncounted: &HashMap<OrgId, i64>) {
        let mut counted = self.counted();
        for (org_id, requests) in uncounted {
            *counted.by_org.entry(org_id.clone()).or_default() += requests;
        }
    }

    /// Adds up again and again until `stopped` is set.
    pub async fn flush_periodically(&self, db: &PgPool, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            // Whichever comes first: the end may come between two turns.
            let _ =
                tokio::time::timeout(FLUSH_INTERVAL, stopped.wait_for(|stopped| *stopped)).await;
            self.flush(db)
                .await
                .best_effort("adding up requests; they are kept for the next time");
        }
    }
}

/// A transaction with the requests, and its id, by which the database knows later whether it was committed.
async fn write(
    db: &PgPool,
    counted: &HashMap<OrgId, i64>,
) -> Result<(Transaction<'static, Postgres>, String)> {
    let (org_ids, requests): (Vec<&str>, Vec<i64>) = counted
        .iter()
        .map(|(org_id, requests)| (org_id.as_str(), *requests))
        .unzip();
    let mut transaction = db.begin().await?;
    let transaction_id = store::usage::add_requests(&mut transaction, &org_ids, &requests).await?;
    Ok((transaction, transaction_id))
}
