//! Distinct labels in compact memory.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::Corrupt;

/// Distinct labels, numbered by their first use.
#[derive(Debug, Default)]
pub(super) struct LabelSet {
    text: Vec<u8>,
    ends: Vec<u32>,
    index: HashTable<u32>,
}

impl LabelSet {
    pub(super) fn get(&self, label: u32) -> &[u8] {
        let at = label as usize;
        let start = at
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[at] as usize]
    }

    pub(super) fn find(&self, hash: &DefaultHashBuilder, label: &[u8]) -> Option<u32> {
        self.index
            .find(hash.hash_one(label), |at| self.get(*at) == label)
            .copied()
    }

    pub(super) fn get_or_insert(
        &mut self,
        hash: &DefaultHashBuilder,
        label: &[u8],
    ) -> Result<u32, Corrupt> {
        if let Some(known) = self.find(hash, label) {
            return Ok(known);
        }
        let new = offset(self.ends.len())?;
        self.text.extend_from_slice(label);
        self.ends.push(offset(self.text.len())?);
        let Self { text, ends, index } = self;
        let at = |label: u32| {
            let start = (label as usize)
                .checked_sub(1)
                .map_or(0, |before| ends[before] as usize);
            &text[start..ends[label as usize] as usize]
        };
        index.insert_unique(hash.hash_one(label), new, |label| hash.hash_one(at(*label)));
        Ok(new)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Frees the memory by which labels are found.
    pub(super) fn drop_index(&mut self) {
        self.index = HashTable::new();
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns the heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity()
            + size_of::<u32>() * self.ends.capacity()
            + self.index.allocation_size()
    }
}

pub(super) fn offset(at: usize) -> Result<u32, Corrupt> {
    u32::try_from(at).map_err(|_| too_large())
}

pub(super) fn too_large() -> Corrupt {
    Corrupt::new("the suite's ids take more than 4 GiB")
}
