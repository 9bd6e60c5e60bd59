//! Reading what jobs keep of their items, some items at a time.

use std::ops::Range;

use assay_core::{Error, Result};
use assay_eval::item_scores::{self, Header};
use bytes::Bytes;

use crate::app::App;
use assay_eval::compare::StoredItems;

/// What one job keeps. Nothing of it is in memory but its head and its dictionary.
pub struct StoredItemScores<'a> {
    app: &'a App,
    key: &'a str,
    /// None: it is one number an item, and nothing else.
    head: Option<(Header, Bytes)>,
}

impl<'a> StoredItemScores<'a> {
    /// Finds out how it is laid out. The error is that it is not of so many items.
    pub async fn open(app: &'a App, key: &'a str, n_items: u64) -> Result<Self> {
        let mut kept = Self {
            app,
            key,
            head: None,
        };
        if !key.ends_with(".f64") {
            // The dictionary is mostly short.
            let mut first = kept.part(0..item_scores::HEADER_BYTES + 8 * 64).await?;
            let head = Header::read(&first)?;
            if head.dictionary_range().end > first.len() as u64 {
                first = kept.part(0..head.dictionary_range().end).await?;
            }
            if head.n != n_items {
                return Err(Error::internal(
                    "what a job kept of its items is not of its suite's",
                ));
            }
            kept.head = Some((head, first));
        }
        Ok(kept)
    }

    /// What is kept of these items, in at most two reads however many they are.
    pub async fn read(&self, items: Range<u64>) -> Result<StoredItems> {
        let Some((head, first)) = &self.head else {
            let bytes = self.part(8 * items.start..8 * items.end).await?;
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
        let (codes, right) = head.ranges(items.clone());
        let codes = self.part(codes).await?;
        let rights = match right {
            Some(range) => head.rights(items.clone(), &self.part(range).await?)?,
            None => Vec::new(),
        };
        Ok(StoredItems {
            values: head.values(items, first, &codes)?,
            rights,
        })
    }

    /// The items' own scores.
    pub async fn scores(&self, items: Range<u64>) -> Result<Vec<f64>> {
        let StoredItems { values, rights } = self.read(items).await?;
        Ok(match &self.head {
            Some((head, _)) => head.scores(values, &rights),
            None => values,
        })
    }

    async fn part(&self, range: Range<u64>) -> Result<Bytes> {
        let found = self.app.artifacts.get_range(self.key, range).await?;
        found.ok_or_else(|| Error::internal("what a job kept of its items is gone"))
    }
}
