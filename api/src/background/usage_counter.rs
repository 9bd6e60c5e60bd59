//! Usage: counts admitted requests in memory and adds them to the database every second, so that
//! counting costs a request no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::store::{self, PgPool, Postgres, PrimaryPool, Transaction};
use assay_core::{BestEffort as _, Code, OrgId, Result};
use tokio::sync::{RwLock, watch};

/// Time between two flushes. A process that is killed loses the counts from at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The admitted requests that are not in the database yet.
#[derive(Default)]
pub struct UsageCounter {
    counted: Mutex<HashMap<OrgId, i64>>,
    /// Counts whose transaction may or may not have been committed, until the database reports
    /// which. Locked for writing during a flush.
    in_doubt: RwLock<Option<InDoubt>>,
}

/// The counts in a transaction whose commit has an unknown result.
struct InDoubt {
    transaction_id: String,
    counted: HashMap<OrgId, i64>,
}

impl UsageCounter {
    fn counted(&self) -> MutexGuard<'_, HashMap<OrgId, i64>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request.
    pub fn count(&self, org_id: &OrgId) {
        let mut counted = self.counted();
        match counted.get_mut(org_id) {
            Some(count) => *count += 1,
            None => drop(counted.insert(org_id.clone(), 1)),
        }
    }

    /// Executes `read`, which reads the organization's requests from the database. Returns its
    /// output and the request count that the database does not contain. Waits for a flush that is
    /// in progress, whose requests may be in both numbers or in none.
    pub async fn with_uncounted<T>(
        &self,
        org_id: &OrgId,
        read: impl Future<Output = Result<T>>,
    ) -> Result<(T, i64)> {
        let _no_flush = self.in_doubt.read().await;
        let requests = self.counted().get(org_id).copied().unwrap_or(0);
        Ok((read.await?, requests))
    }

    /// Adds the counts to the database, each request exactly once even if a commit's result is
    /// lost. Counts that cannot be written are retained.
    pub async fn flush(&self, db: &PgPool) -> Result<()> {
        let mut in_doubt = self.in_doubt.write().await;
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
        let counted = std::mem::take(&mut *self.counted());
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
            *counted.entry(org_id.clone()).or_default() += requests;
        }
    }

    /// Flushes every [`FLUSH_INTERVAL`] until `stopped` is set, and once more after it.
    pub async fn flush_periodically(&self, db: &PrimaryPool, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            // The timeout is the interval; shutdown ends it early.
            let _ =
                tokio::time::timeout(FLUSH_INTERVAL, stopped.wait_for(|stopped| *stopped)).await;
            self.flush(&db.get())
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
