//! The predictions for items that the suite does not have.

use std::hash::{DefaultHasher, Hasher as _};

use super::value::{Prediction, location};

/// The predictions for unknown items. There may be millions, so each takes only 16 bytes: 96 bits
/// from the item id's hash, and 32 bits from the line or index. Among ten million items, two share
/// a hash with probability 1e-15.
#[derive(Default)]
pub(crate) struct Unmatched {
    seen: Vec<u128>,
    has_lines: bool,
}

impl Unmatched {
    pub(crate) fn add(&mut self, prediction: &Prediction<'_, '_>) {
        self.has_lines = prediction.line.is_some();
        let position = prediction.line.unwrap_or(prediction.index) as u32;
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(prediction.item_id.as_bytes());
            u128::from(hasher.finish())
        };
        self.seen
            .push(((hash(0) << 64 | hash(1)) & !u128::from(u32::MAX)) | u128::from(position));
    }

    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Returns the first prediction's location whose item was predicted before.
    pub(crate) fn first_repeated(&mut self) -> Option<String> {
        self.seen.sort_unstable();
        let repeated = self
            .seen
            .windows(2)
            .filter(|pair| pair[0] >> 32 == pair[1] >> 32)
            .map(|pair| pair[1] as u32);
        let position = repeated.min()? as usize;
        Some(location(position, self.has_lines.then_some(position)))
    }
}
