//! Reading a stored object: as a whole, or some items' values from its ranges.

use std::ops::Range;

use super::format::{Bits, Codes, Header, ItemScores, Kind, Width, corrupt};
use crate::error::Corrupt;

impl ItemScores {
    /// Reads a whole object. Fails if it is truncated, or the checksum does not match.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let header = Header::read(bytes)?;
        header.check(bytes)?;
        let section = |range: Range<u64>| {
            bytes
                .get(range.start as usize..range.end as usize)
                .ok_or_else(corrupt)
        };
        let codes = section(header.codes_range(0..header.n))?;
        let predicted = section(header.predicted_range(0..header.n))?;
        let right = match header.right_range(0..header.n) {
            Some(range) => section(range)?,
            None => &[],
        };
        let codes = match header.width {
            Width::Bit => Codes::Bit(Bits(codes.to_vec())),
            Width::U8 => Codes::U8(codes.to_vec()),
            Width::U16 => Codes::U16(numbers(codes).map(u16::from_le_bytes).collect()),
            Width::U32 => Codes::U32(numbers(codes).map(u32::from_le_bytes).collect()),
            Width::F32 => Codes::F32(numbers(codes).map(f32::from_le_bytes).collect()),
            Width::F64 => Codes::F64(numbers(codes).map(f64::from_le_bytes).collect()),
        };
        Ok(Self {
            kind: header.kind,
            n: header.n as usize,
            dictionary: header.dictionary(bytes)?,
            codes,
            predicted: Bits(predicted.to_vec()),
            right: Bits(right.to_vec()),
        })
    }
}

impl Header {
    /// Returns the dictionary from the object's first bytes.
    fn dictionary(&self, bytes: &[u8]) -> Result<Vec<f64>, Corrupt> {
        let range = self.dictionary_range();
        let entries = bytes
            .get(range.start as usize..range.end as usize)
            .ok_or_else(corrupt)?;
        Ok(numbers(entries).map(f64::from_le_bytes).collect())
    }

    /// Returns these items' values, whose meaning is [`Header::kind`]. `first` is the object
    /// from its start to the dictionary's end; `codes` is the content of the first range in
    /// [`Header::ranges`].
    pub fn values(
        &self,
        items: Range<u64>,
        first: &[u8],
        codes: &[u8],
    ) -> Result<Vec<f64>, Corrupt> {
        let dictionary = self.dictionary(first)?;
        let entry = |code: usize| dictionary.get(code).copied().ok_or_else(corrupt);
        let n = (items.end - items.start) as usize;
        let range = self.codes_range(items.clone());
        if (codes.len() as u64) < range.end - range.start {
            return Err(corrupt());
        }
        match self.width {
            Width::Bit => bits(items, codes)
                .map(|bit| entry(usize::from(bit?)))
                .collect(),
            Width::U8 => codes[..n]
                .iter()
                .map(|code| entry(usize::from(*code)))
                .collect(),
            Width::U16 => numbers(codes)
                .take(n)
                .map(|code| entry(usize::from(u16::from_le_bytes(code))))
                .collect(),
            Width::U32 => numbers(codes)
                .take(n)
                .map(|code| entry(u32::from_le_bytes(code) as usize))
                .collect(),
            Width::F32 => Ok(numbers(codes)
                .take(n)
                .map(|value| f64::from(f32::from_le_bytes(value)))
                .collect()),
            Width::F64 => Ok(numbers(codes).take(n).map(f64::from_le_bytes).collect()),
        }
    }

    /// Returns for each item whether its label is right. `right` is the content of the second range
    /// in [`Header::ranges`].
    pub fn rights(&self, items: Range<u64>, right: &[u8]) -> Result<Vec<bool>, Corrupt> {
        bits(items, right).collect()
    }

    /// Returns the items' own scores from [`Header::values`] and [`Header::rights`]: with labels, 1
    /// if the label is right and 0 otherwise; with confidences, the distance between confidence and
    /// outcome, and 1 without a prediction.
    pub fn scores(&self, values: Vec<f64>, rights: &[bool]) -> Vec<f64> {
        match self.kind {
            Kind::Scores | Kind::Parts => values,
            Kind::Hits => rights.iter().map(|right| f64::from(*right)).collect(),
            Kind::Confidences => values
                .into_iter()
                .zip(rights)
                .map(|(value, right)| (f64::from(*right) - value).abs())
                .collect(),
        }
    }
}

/// Splits bytes into `N`-byte numbers. An incomplete last number is left out.
fn numbers<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks().0.iter().copied()
}

/// Returns these items' bits. The first item's bit is in the first byte.
fn bits(items: Range<u64>, bytes: &[u8]) -> impl Iterator<Item = Result<bool, Corrupt>> {
    let first = items.start / 8;
    items.map(move |item| {
        bytes
            .get((item / 8 - first) as usize)
            .map(|byte| byte >> (item % 8) & 1 == 1)
            .ok_or_else(corrupt)
    })
}
