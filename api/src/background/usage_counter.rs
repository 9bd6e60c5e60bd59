//! Usage: counts admitted requests in memory and adds them to the database every second, so that
//! counting costs a request no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::store::{self, PgPool, Postgres, Transaction};
use assay_core::{BestEffort as _, Code, OrgId, Result};
use tokio::sync::watch;

/// Time between two flushes. A process that is killed loses the counts of at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The admitted requests that are not in the database yet.
#[derive(Default)]
pub struct UsageCounter {
    counted: Mutex<Counted>,
    /// Counts whose transaction may or may not have been committed, until the database reports
    /// which.
    in_doubt: tokio::sync::Mutex<Option<InDoubt>>,
}

#[derive(Default)]
struct Counted {
    by_org: HashMap<OrgId, i64>,
    /// The number of flushes so far.
    flushes: u64,
}

/// The counts of a transaction whose commit has an unknown result.
struct InDoubt {
    transaction_id: String,
    counted: HashMap<OrgId, i64>,
}

/// The requests of an organization that no flush has taken yet.
pub struct PendingRequests {
    /// The number of requests.
    pub requests: i64,
    flushes: u64,
}

impl UsageCounter {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request.
    pub fn count(&self, org_id: &OrgId) {
        let mut counted = self.counted();
        match counted.by_org.get_mut(org_id) {
            Some(count) => *count += 1,
            None => drop(counted.by_org.insert(org_id.clone(), 1)),
        }
    }

    /// Returns the requests that no flush has taken yet. During a flush, its requests are for some
    /// milliseconds neither here nor in the database.
    pub fn pending(&self, org_id: &OrgId) -> PendingRequests {
        let counted = self.counted();
        PendingRequests {
            requests: counted.by_org.get(org_id).copied().unwrap_or(0),
            flushes: counted.flushes,
        }
    }

    /// Returns `true` if a count that was read from the database after `pending` contains none of
    /// its requests.
    pub fn is_disjoint(&self, pending: &PendingRequests) -> bool {
        self.counted().flushes == pending.flushes
    }

    /// Adds the counts to the database, each request exactly once even if the result of a commit is
    /// lost. Counts that cannot be written are retained.
    pub async fn flush(&self, db: &PgPool) -> Result<()> {
        let mut in_doubt = self.in_doubt.lock().await;
        if let Some(InDoubt {
            transaction_id,
            counted,
        }) = in_doubt.take()
        {
            match store::usage::is_committed(db, &transaction_id).await {
                Ok(Some(true)) => {}
                Ok(Some(false)) => self.restore(&counted),
                // The transaction is still in progress, or its state is not known yet.
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
                // A database that was restored from a backup does not know the transaction. The
                // counts are dropped: too few is better than twice.
                Err(error) => return Err(error),
            }
        }
        let counted = {
            let mut counted = self.counted();
            counted.flushes += 1;
            std::mem::take(&mut counted.by_org)
        };
        if counted.is_empty() {
            return Ok(());
        }
        let (transaction, transaction_id) =
            match store::within_response_timeout(write(db, &counted)).await {
                Ok(written) => written,
                Err(error) => {
                    self.restore(&counted);
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

    /// Adds counts back that were not written.
    fn restore(&self, unwritten: &HashMap<OrgId, i64>) {
        let mut counted = self.counted();
        for (org_id, requests) in unwritten {
            *counted.by_org.entry(org_id.clone()).or_default() += requests;
        }
    }

    /// Flushes every [`FLUSH_INTERVAL`] until `stopped` is set, and once more after it.
    pub async fn flush_periodically(&self, db: &PgPool, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            // The timeout is the interval; shutdown ends it early.
            let _ =
                tokio::time::timeout(FLUSH_INTERVAL, stopped.wait_for(|stopped| *stopped)).await;
            self.flush(db)
                .await
                .best_effort("flushing request counts; the next flush retries");
        }
    }
}

/// Returns a transaction that has added the counts, and its id, by which the database later reports
/// if it was committed.
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
