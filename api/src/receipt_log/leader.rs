//! The process that writes the log: one at a time.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Result;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::store::receipt_log::LogState;
use assay_core::store::{self, PgConnection, PoolProfile, PrimaryPool, receipt_log};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::publication::{Publication, Refusal};
use super::signing::Signers;
use crate::settings::SigningSettings;

/// Time between two searches for statements that are not signed.
const SIGN_INTERVAL: Duration = Duration::from_millis(250);

/// Time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two attempts to become the leader, and after an error or a refusal.
const LEAD_INTERVAL: Duration = Duration::from_secs(2);

/// The database, the store and the keys of the log.
pub struct Log {
    /// The database, with the rights of `assay_log`.
    pub db: PrimaryPool,
    /// The store of tiles and checkpoints.
    pub artifacts: Artifacts,
    /// The keys.
    pub signing: Arc<SigningSettings>,
}

impl Log {
    /// Signs statements and writes the log whenever this process leads, until `stopped` is set.
    pub async fn run(&self, stopped: watch::Receiver<bool>) {
        metrics::gauge!(prometheus::LOG_LEADER).set(0.0);
        metrics::gauge!(prometheus::LOG_REFUSED).set(0.0);
        tokio::select! {
            () = self.lead_when_possible(stopped) => {}
            () = self.measure() => {}
        }
    }

    /// Measures the log, in every process that can write it.
    async fn measure(&self) {
        loop {
            let state = receipt_log::state(&self.db.get()).await;
            match state {
                Ok(state) => record(&state),
                Err(error) => {
                    tracing::warn!(error = error.log_text(), "measuring the receipt log failed");
                }
            }
            sleep(CHECKPOINT_INTERVAL).await;
        }
    }

    async fn lead_when_possible(&self, mut stopped: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.lead(stopped.clone()).await {
                tracing::error!(error = error.log_text(), "writing the receipt log failed");
            }
            metrics::gauge!(prometheus::LOG_LEADER).set(0.0);
            tokio::select! {
                () = sleep(LEAD_INTERVAL) => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Leads if no other process does. Returns when the log must not be continued, or without the
    /// lock.
    async fn lead(&self, stopped: watch::Receiver<bool>) -> Result<()> {
        let pool = self.db.get();
        let mut db = store::connect(&pool, "assay-log", PoolProfile::REQUESTS).await?;
        if receipt_log::lead(&mut db).await? {
            metrics::gauge!(prometheus::LOG_LEADER).set(1.0);
            self.write(&mut db, &stopped).await?;
        }
        store::disconnect(db).await;
        Ok(())
    }

    async fn write(&self, db: &mut PgConnection, stopped: &watch::Receiver<bool>) -> Result<()> {
        let SigningSettings {
            receipt_keys,
            identity,
        } = &*self.signing;
        let opened = Publication::open(db, &self.artifacts, identity, receipt_keys).await?;
        let mut log = match opened {
            Ok(log) => log,
            Err(refusal) => {
                refuse(&refusal);
                return Ok(());
            }
        };
        metrics::gauge!(prometheus::LOG_REFUSED).set(0.0);
        let mut signers = Signers::register(db, receipt_keys).await?;
        tracing::info!(entries = log.size(), "writing the receipt log");
        let mut checkpoint_at = Instant::now();
        while !*stopped.borrow() {
            signers.sign_pending(db).await?;
            if checkpoint_at <= Instant::now() {
                signers.revoke_requested(db).await?;
                if let Err(refusal) = log.follow(db, &signers.take_appended()).await? {
                    refuse(&refusal);
                    return Ok(());
                }
                if log.is_pending() {
                    log.publish(db).await?;
                }
                checkpoint_at = Instant::now() + CHECKPOINT_INTERVAL;
            }
            sleep(SIGN_INTERVAL).await;
        }
        Ok(())
    }
}

fn refuse(refusal: &Refusal) {
    tracing::error!(
        reason = refusal.to_string(),
        "refusing to sign and to continue the receipt log"
    );
    metrics::gauge!(prometheus::LOG_REFUSED).set(1.0);
}

fn record(state: &LogState) {
    metrics::gauge!(prometheus::LOG_WAITING).set(state.waiting as f64);
    metrics::gauge!(prometheus::LOG_OLDEST_WAITING).set(state.oldest_waiting_seconds);
    metrics::gauge!(prometheus::LOG_ENTRIES).set(state.entries as f64);
    let age = state.checkpoint_age_seconds.unwrap_or(0.0);
    metrics::gauge!(prometheus::LOG_CHECKPOINT_AGE).set(age);
}
