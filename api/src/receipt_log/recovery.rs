//! `assay-api log recover`: restores entries that the database has lost from the published log.

use std::time::Duration;

use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::{PgConnection, receipt_log};
use assay_core::{Error, Result};
use assay_receipts::tree::Entry;
use tokio::time::{Instant, sleep};

use super::publication::{LogIdentity, published_entries, read_checkpoint};

/// The longest wait until no other process leads the log.
const LEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why nothing was recovered.
#[derive(Debug, thiserror::Error)]
pub enum NotRecovered {
    /// Another process writes the log.
    #[error("another process leads the log; stop it first")]
    Leads,
    /// The artifact store has no checkpoint, or one of another log.
    #[error("{0}")]
    Checkpoint(String),
    /// The entries that the database has are not those of the published log.
    #[error("entry {0} of the database is not that of the published log")]
    Fork(usize),
}

/// Inserts the entries that the published log has and the database lacks. The checkpoint is verified
/// with the log key, and the entries with the checkpoint. Returns their number. Repeating it changes
/// nothing.
pub async fn recover(
    db: &mut PgConnection,
    artifacts: &Artifacts,
    identity: &LogIdentity,
) -> Result<Result<usize, NotRecovered>> {
    // A process that refuses to continue the log holds the lock for a short time every few seconds.
    let deadline = Instant::now() + LEAD_TIMEOUT;
    while !receipt_log::lead(db).await? {
        if Instant::now() >= deadline {
            return Ok(Err(NotRecovered::Leads));
        }
        sleep(Duration::from_millis(100)).await;
    }
    let checkpoint = match read_checkpoint(artifacts, identity).await? {
        Ok(Some(checkpoint)) => checkpoint,
        Ok(None) => {
            let reason = "the artifact store has no checkpoint".into();
            return Ok(Err(NotRecovered::Checkpoint(reason)));
        }
        Err(refusal) => return Ok(Err(NotRecovered::Checkpoint(refusal.to_string()))),
    };
    let published = published_entries(artifacts, &checkpoint).await?;
    let mut known: Vec<Entry> = Vec::new();
    receipt_log::entries_from(db, 0, |entry| {
        known.push(*entry);
        Ok(())
    })
    .await?;
    let differs = |(at, (one, other))| (one != other).then_some(at);
    if let Some(at) = published.iter().zip(&known).enumerate().find_map(differs) {
        return Ok(Err(NotRecovered::Fork(at)));
    }
    let missing = published.get(known.len()..).unwrap_or_default();
    let first = i64::try_from(known.len()).map_err(Error::internal)?;
    receipt_log::restore(db, first, missing).await?;
    Ok(Ok(missing.len()))
}
