//! The files of the log in the artifact store: tiles, bundles of entries, and the checkpoint.

use std::collections::{HashMap, HashSet};

use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::{PgConnection, receipt_log};
use assay_core::{Error, Result};
use assay_receipts::jws::log_entry;
use assay_receipts::log::{LogKeys, SignedCheckpoint};
use assay_receipts::tree::{CHECKPOINT, Entry, GrowingTree, bundle_paths, read_bundle};
use bytes::Bytes;

use super::signing::ReceiptKeys;

/// The start of the names of all objects of the log.
const FOLDER: &str = "log/";

/// Returns the name of the object of a file of the log.
pub fn object_key(path: &str) -> String {
    format!("{FOLDER}{path}")
}

/// Returns `true` for the name of an object of the log.
pub fn is_file(key: &str) -> bool {
    key.starts_with(FOLDER)
}

/// The keys and the name of the log.
pub struct LogIdentity {
    /// The origin of the log.
    pub origin: String,
    /// The private keys.
    pub keys: LogKeys,
}

/// The reason why the log must not be continued.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The database has fewer entries than the published checkpoint.
    #[error(
        "the database has {entries} entries, but the published checkpoint has {published}: it was restored from a backup; \
         `assay-api log recover` reads the missing entries from the tiles"
    )]
    Behind {
        /// Entries of the database.
        entries: u64,
        /// Entries of the checkpoint.
        published: u64,
    },
    /// The entries of the database are not those of the published checkpoint.
    #[error(
        "the entries of the database do not lead to the root of the published checkpoint: the artifact store belongs to another log"
    )]
    Fork,
    /// An entry that is not published yet has no statement that a key in this process has signed.
    #[error(
        "entry {0} of the database is no statement that a key in ASSAY_RECEIPT_KEYS has signed: put the key that has signed it behind \
         the first one, or, if there is none, somebody has written to the log; keep the database as evidence"
    )]
    Unsigned(u64),
    /// The published checkpoint has no signature by a key of this process.
    #[error("the published checkpoint is not one of this log: {0}")]
    Foreign(String),
}

/// The published log and its growing tree.
pub struct Publication<'a> {
    artifacts: &'a Artifacts,
    identity: &'a LogIdentity,
    keys: &'a ReceiptKeys,
    tree: GrowingTree,
    /// Entries of the last checkpoint.
    published: u64,
}

/// Reads the published checkpoint. `None` if the artifact store has none yet.
pub async fn read_checkpoint(
    artifacts: &Artifacts,
    identity: &LogIdentity,
) -> Result<Result<Option<SignedCheckpoint>, Refusal>> {
    let Some(bytes) = artifacts.get(&object_key(CHECKPOINT)).await? else {
        return Ok(Ok(None));
    };
    let parsed = std::str::from_utf8(&bytes)
        .map_err(|error| error.to_string())
        .and_then(SignedCheckpoint::parse)
        .and_then(|checkpoint| {
            let is_own = |key: &String| checkpoint.check_signature(key).is_ok();
            if identity.keys.verifier_keys().iter().any(is_own) {
                Ok(checkpoint)
            } else {
                Err("no key in ASSAY_LOG_KEY has signed it".into())
            }
        });
    Ok(parsed.map(Some).map_err(Refusal::Foreign))
}

impl<'a> Publication<'a> {
    /// Reads the entries of the database, and compares them with the published checkpoint.
    pub async fn open(
        db: &mut PgConnection,
        artifacts: &'a Artifacts,
        identity: &'a LogIdentity,
        keys: &'a ReceiptKeys,
    ) -> Result<Result<Self, Refusal>> {
        let checkpoint = match read_checkpoint(artifacts, identity).await? {
            Ok(checkpoint) => checkpoint,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let published = checkpoint.as_ref().map_or(0, |signed| signed.tree.size());
        let mut tree = GrowingTree::default();
        let mut is_fork = false;
        let mut check = |tree: &GrowingTree| -> Result<()> {
            if let Some(signed) = &checkpoint
                && tree.size() == published
            {
                is_fork = tree.root().map_err(Error::internal)? != *signed.tree.hash();
            }
            Ok(())
        };
        let mut unpublished = Vec::new();
        receipt_log::entries_from(db, 0, |entry| {
            tree.push(entry).map_err(Error::internal)?;
            // The files after the published checkpoint are still to be written.
            if tree.size() <= published {
                tree.forget_complete();
            } else {
                unpublished.push(*entry);
            }
            check(&tree)
        })
        .await?;
        let entries = tree.size();
        if let Some(signed) = checkpoint
            .as_ref()
            .filter(|_| entries >= published && !is_fork)
        {
            // A restored database, and a process that was killed here, do not have it.
            record_checkpoint(db, signed).await?;
        }
        if entries < published {
            return Ok(Err(Refusal::Behind { entries, published }));
        }
        if is_fork {
            return Ok(Err(Refusal::Fork));
        }
        if let Some(index) = unsigned_entry(db, keys, published, &unpublished).await? {
            return Ok(Err(Refusal::Unsigned(index)));
        }
        Ok(Ok(Self {
            artifacts,
            identity,
            keys,
            tree,
            published,
        }))
    }

    /// Returns the number of entries in the tree.
    pub const fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Returns `true` if the tree has entries that are not published yet.
    pub const fn is_pending(&self) -> bool {
        self.tree.size() > self.published
    }

    /// Adds the entries that the database has in addition. This process must have `appended` each since
    /// the last call, or one of its keys must have signed its statement: the log vouches for statements,
    /// never for hashes that it finds.
    pub async fn follow(
        &mut self,
        db: &mut PgConnection,
        appended: &HashSet<Entry>,
    ) -> Result<Result<(), Refusal>> {
        let size = self.tree.size();
        let from = i64::try_from(size).map_err(Error::internal)?;
        let mut entries = Vec::new();
        receipt_log::entries_from(db, from, |entry| {
            entries.push(*entry);
            Ok(())
        })
        .await?;
        if !entries.iter().all(|entry| appended.contains(entry))
            && let Some(index) = unsigned_entry(db, self.keys, size, &entries).await?
        {
            return Ok(Err(Refusal::Unsigned(index)));
        }
        for entry in &entries {
            self.tree.push(entry).map_err(Error::internal)?;
        }
        Ok(Ok(()))
    }

    /// Writes the tiles and the bundles, then the checkpoint, and then records it in the database.
    /// A process that dies in between leaves no checkpoint without its tiles.
    pub async fn publish(&mut self, db: &mut PgConnection) -> Result<()> {
        let files = self
            .tree
            .files_since(self.published)
            .map_err(Error::internal)?;
        for file in files {
            let key = object_key(&file.path);
            self.artifacts.put(&key, Bytes::from(file.bytes)).await?;
        }
        let size = self.tree.size();
        let root = self.tree.root().map_err(Error::internal)?;
        let LogIdentity { origin, keys } = self.identity;
        let note = keys.sign(origin, size, root).map_err(Error::internal)?;
        let signed = SignedCheckpoint::parse(&note).map_err(Error::internal)?;
        // The lock is on this connection: a process that has lost it must not overwrite the
        // checkpoint of its successor.
        receipt_log::size(&mut *db).await?;
        let key = object_key(CHECKPOINT);
        self.artifacts.put(&key, Bytes::from(note)).await?;
        record_checkpoint(db, &signed).await?;
        self.published = size;
        self.tree.forget_complete();
        Ok(())
    }
}

/// Returns the index of the first entry without a statement that one of the keys has signed. The
/// first of `entries` has the index `from`.
async fn unsigned_entry(
    db: &mut PgConnection,
    keys: &ReceiptKeys,
    from: u64,
    entries: &[Entry],
) -> Result<Option<u64>> {
    if entries.is_empty() {
        return Ok(None);
    }
    let from_index = i64::try_from(from).map_err(Error::internal)?;
    let signed: HashMap<i64, Entry> = receipt_log::statements_from(db, from_index)
        .await?
        .into_iter()
        .filter(|statement| keys.have_signed(&statement.jws))
        .map(|statement| (statement.index, log_entry(&statement.jws)))
        .collect();
    let mut indexed = (from_index..).zip(from..).zip(entries);
    let unsigned = indexed.find(|((index, _), entry)| signed.get(index) != Some(*entry));
    Ok(unsigned.map(|((_, index), _)| index))
}

/// Records a published checkpoint in the database.
async fn record_checkpoint(db: &mut PgConnection, signed: &SignedCheckpoint) -> Result<()> {
    let size = i64::try_from(signed.tree.size()).map_err(Error::internal)?;
    receipt_log::insert_checkpoint(db, size, &signed.tree.hash().0, signed.text()).await
}

/// Reads the entries of the published checkpoint from its bundles, and checks that they lead to its
/// root.
pub async fn published_entries(
    artifacts: &Artifacts,
    checkpoint: &SignedCheckpoint,
) -> Result<Vec<Entry>> {
    let mut tree = GrowingTree::default();
    let mut entries = Vec::new();
    for path in bundle_paths(checkpoint.tree.size()) {
        let bundle = artifacts.get(&object_key(&path)).await?;
        let bundle = bundle.ok_or_else(|| Error::internal(format!("{path} is missing")))?;
        for entry in read_bundle(&bundle).map_err(Error::internal)? {
            tree.push(&entry).map_err(Error::internal)?;
            entries.push(entry);
        }
        tree.forget_complete();
    }
    let is_complete = tree.size() == checkpoint.tree.size()
        && tree.root().map_err(Error::internal)? == *checkpoint.tree.hash();
    if is_complete {
        Ok(entries)
    } else {
        Err(Error::internal(
            "the bundles of entries do not lead to the root of the published checkpoint",
        ))
    }
}
