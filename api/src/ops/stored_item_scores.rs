//! The stored item scores of a job, read in ranges of items.

use std::ops::Range;

use assay_core::store::baselines::BaselinePlace;
use assay_core::store::item_scores::ItemScoresIn;
use assay_core::{Error, Result, store};
use assay_eval::item_scores::{self, Header};
use bytes::Bytes;

use crate::app::App;
use assay_eval::compare::StoredItems;

/// The item scores' place.
pub enum StoredIn {
    /// A job's item scores.
    Job(ItemScoresIn),
    /// A baseline's item scores.
    Baseline(BaselinePlace),
}

/// The stored item scores of one job, or of a baseline. Of an object, only the header and the dictionary are in
/// memory.
pub struct StoredItemScores<'a> {
    app: &'a App,
    place: &'a StoredIn,
    /// The header, and at least the bytes up to the end of the dictionary. `None` if an object has
    /// the older format `.f64`: one number per item.
    header: Option<(Header, Bytes)>,
}

impl<'a> StoredItemScores<'a> {
    /// Reads the header and the dictionary.
    ///
    /// # Errors
    /// If the object is missing, or the item scores are corrupt or not of `n_items` items.
    pub async fn open(app: &'a App, place: &'a StoredIn, n_items: u64) -> Result<Self> {
        let mut stored = Self {
            app,
            place,
            header: None,
        };
        if !matches!(place, StoredIn::Job(ItemScoresIn::Object(key)) if key.ends_with(".f64")) {
            // Most dictionaries have at most 64 entries, so that one read suffices.
            let mut prefix = stored
                .read_bytes(0..item_scores::HEADER_BYTES + 8 * 64)
                .await?;
            let header = Header::read(&prefix)?;
            if header.dictionary_range().end > prefix.len() as u64 {
                prefix = stored.read_bytes(0..header.dictionary_range().end).await?;
            }
            if header.n != n_items {
                return Err(Error::internal(
                    "the stored item scores are not of the items of the suite",
                ));
            }
            stored.header = Some((header, prefix));
        }
        Ok(stored)
    }

    /// Reads the stored values of these items, in at most two reads.
    pub async fn read(&self, items: Range<u64>) -> Result<StoredItems> {
        let Some((header, prefix)) = &self.header else {
            let bytes = self.read_bytes(8 * items.start..8 * items.end).await?;
            return Ok(StoredItems {
                values: bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|score| f64::from_le_bytes(*score))
                    .collect(),
                rights: Vec::new(),
            });
        };
        let (codes, right) = header.ranges(items.clone());
        let codes = self.read_bytes(codes).await?;
        let rights = match right {
            Some(range) => header.rights(items.clone(), &self.read_bytes(range).await?)?,
            None => Vec::new(),
        };
        Ok(StoredItems {
            values: header.values(items, prefix, &codes)?,
            rights,
        })
    }

    /// Returns the scores of these items, for a metric that has item scores.
    pub async fn scores(&self, items: Range<u64>) -> Result<Vec<f64>> {
        let StoredItems { values, rights } = self.read(items).await?;
        Ok(match &self.header {
            Some((header, _)) => header.scores(values, &rights),
            None => values,
        })
    }

    /// Reads a byte range, without the bytes after the end.
    async fn read_bytes(&self, range: Range<u64>) -> Result<Bytes> {
        let key = match self.place {
            StoredIn::Job(ItemScoresIn::Row(bytes)) => {
                let end = bytes.len() as u64;
                let range = range.start.min(end) as usize..range.end.min(end) as usize;
                return Ok(bytes.slice(range));
            }
            StoredIn::Job(ItemScoresIn::Object(key)) => key,
            StoredIn::Baseline(baseline) => {
                let db = self.app.db.get();
                let found = store::baselines::item_scores(&db, baseline, range);
                let found = found.await?.map(Bytes::from);
                return found.ok_or_else(|| {
                    Error::internal("the stored item scores of a baseline are missing")
                });
            }
        };
        let found = self.app.artifacts.get_range(key, range).await?;
        found.ok_or_else(|| {
            Error::internal("the stored item scores of a job are missing in the artifact store")
        })
    }
}
