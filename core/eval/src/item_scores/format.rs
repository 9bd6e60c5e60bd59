//! The object that stores all item values of a job.
//!
//! All numbers are little-endian. An object is, in this order:
//!
//! | section | content |
//! |---|---|
//! | header | 64 bytes: magic, kind, width, number of dictionary entries, number of items, CRC-32 of the object |
//! | dictionary | the distinct values as 64-bit floats; empty if the codes are the values themselves |
//! | codes | one code of the same width per item |
//! | predicted | one bit per item: the item has a prediction |
//! | right | one bit per item, only with [`Kind::Hits`] and [`Kind::Confidences`]: the predicted label is right |
//!
//! A byte's first item is its lowest bit. As all codes have one width, consecutive items' values
//! are one range in the object.

use std::ops::Range;

use crate::error::Corrupt;

/// Header length, in bytes.
pub const HEADER_BYTES: u64 = 64;

const MAGIC: [u8; 8] = *b"ASSAYIS1";

/// The checksum's place in the header. The checksum is computed with these bytes as 0; the bytes
/// after it are 0.
const CHECKSUM: Range<usize> = 24..28;

/// The meaning that an item's stored value has. The discriminants are written to disk and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The item's own score.
    Scores = 0,
    /// The item's contribution to a metric over all items, and whether the predicted label is
    /// right.
    Hits = 1,
    /// The item's contribution to a metric over all items. The contributions' mean is the metric,
    /// and their spread is the metric's: each is the metric plus the item's influence on it (F. R.
    /// Hampel 1974). If the metric is averaged over clusters, it is the metric within the item's
    /// cluster instead, or NaN if the cluster is left out.
    Parts = 2,
    /// The largest probability, or −1 without a prediction, and whether the most probable label is
    /// right.
    Confidences = 3,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Scores, Self::Hits, Self::Parts, Self::Confidences];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns `true` if the object has a "right" bit per item.
    pub const fn has_right(self) -> bool {
        matches!(self, Self::Hits | Self::Confidences)
    }
}

/// The codes' width. The discriminants are written to disk and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    /// One bit: an index into the dictionary.
    Bit = 0,
    /// One byte: an index into the dictionary.
    U8 = 1,
    /// Two bytes: an index into the dictionary.
    U16 = 2,
    /// Four bytes: an index into the dictionary. The builder never chooses it; it is read only.
    U32 = 3,
    /// A 32-bit float: the value itself, rounded.
    F32 = 4,
    /// A 64-bit float: the value itself.
    F64 = 5,
}

impl Width {
    pub(super) const ALL: [Self; 6] = [
        Self::Bit,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::F32,
        Self::F64,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|width| *width as u8 == byte)
    }

    const fn bits(self) -> u64 {
        match self {
            Self::Bit => 1,
            Self::U8 => 8,
            Self::U16 => 16,
            Self::U32 | Self::F32 => 32,
            Self::F64 => 64,
        }
    }
}

/// One bit per item.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bits(pub(super) Vec<u8>);

impl Bits {
    /// Returns bits for `n` items, none set.
    pub(crate) fn new(n: usize) -> Self {
        Self(vec![0; n.div_ceil(8)])
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> bool {
        self.0[at / 8] >> (at % 8) & 1 == 1
    }

    /// Returns the heap memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Sets a bit. Returns `true` if it was set before.
    #[inline]
    pub(crate) fn set(&mut self, at: usize) -> bool {
        let byte = &mut self.0[at / 8];
        let bit = 1 << (at % 8);
        let before = *byte & bit != 0;
        *byte |= bit;
        before
    }
}

/// One code per item, by width.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Codes {
    Bit(Bits),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Codes {
    pub(super) fn width(&self) -> Width {
        match self {
            Self::Bit(_) => Width::Bit,
            Self::U8(_) => Width::U8,
            Self::U16(_) => Width::U16,
            Self::U32(_) => Width::U32,
            Self::F32(_) => Width::F32,
            Self::F64(_) => Width::F64,
        }
    }
}

/// All stored item values of a job. They never change.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemScores {
    pub(super) kind: Kind,
    pub(super) n: usize,
    /// The values that the codes stand for; empty if the codes are the values themselves.
    pub(super) dictionary: Vec<f64>,
    pub(super) codes: Codes,
    pub(super) predicted: Bits,
    pub(super) right: Bits,
}

impl ItemScores {
    /// Returns the values' meaning.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the item count.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Returns `true` if there are no items.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Returns `true` if the item has a prediction.
    pub fn is_predicted(&self, item: usize) -> bool {
        self.predicted.get(item)
    }

    /// Returns `true` if the item's predicted or most probable label is right. Always `false` for a
    /// kind without "right" bits.
    pub fn is_right(&self, item: usize) -> bool {
        self.kind.has_right() && self.right.get(item)
    }

    /// Returns the item's value, whose meaning is [`ItemScores::kind`].
    #[inline]
    pub fn value(&self, item: usize) -> f64 {
        let entry = |code: usize| self.dictionary[code];
        match &self.codes {
            Codes::Bit(bits) => entry(usize::from(bits.get(item))),
            Codes::U8(codes) => entry(usize::from(codes[item])),
            Codes::U16(codes) => entry(usize::from(codes[item])),
            Codes::U32(codes) => entry(codes[item] as usize),
            Codes::F32(values) => f64::from(values[item]),
            Codes::F64(values) => values[item],
        }
    }

    /// Returns the object's length that [`ItemScores::write`] writes, in bytes.
    pub fn encoded_len(&self) -> u64 {
        let codes = (self.n as u64 * self.codes.width().bits()).div_ceil(8);
        let bits = self.predicted.0.len() + self.right.0.len();
        HEADER_BYTES + 8 * self.dictionary.len() as u64 + codes + bits as u64
    }

    /// Writes the object: calls `write` with its bytes, in consecutive pieces.
    pub fn write(&self, mut write: impl FnMut(&[u8])) {
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8] = self.kind as u8;
        header[9] = self.codes.width() as u8;
        header[12..16].copy_from_slice(&(self.dictionary.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&(self.n as u64).to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&header);
        self.write_body(|piece| checksum.update(piece));
        header[CHECKSUM].copy_from_slice(&checksum.finalize().to_le_bytes());
        write(&header);
        self.write_body(write);
    }

    fn write_body(&self, mut write: impl FnMut(&[u8])) {
        const PIECE_BYTES: usize = 1 << 16;

        fn write_numbers<T: Copy, const N: usize>(
            numbers: &[T],
            to_bytes: impl Fn(T) -> [u8; N],
            write: &mut impl FnMut(&[u8]),
        ) {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            for numbers in numbers.chunks(PIECE_BYTES / N) {
                piece.clear();
                numbers
                    .iter()
                    .for_each(|number| piece.extend_from_slice(&to_bytes(*number)));
                write(&piece);
            }
        }

        write_numbers(&self.dictionary, f64::to_le_bytes, &mut write);
        match &self.codes {
            Codes::Bit(bits) => write(&bits.0),
            Codes::U8(codes) => write(codes),
            Codes::U16(codes) => write_numbers(codes, u16::to_le_bytes, &mut write),
            Codes::U32(codes) => write_numbers(codes, u32::to_le_bytes, &mut write),
            Codes::F32(values) => write_numbers(values, f32::to_le_bytes, &mut write),
            Codes::F64(values) => write_numbers(values, f64::to_le_bytes, &mut write),
        }
        write(&self.predicted.0);
        write(&self.right.0);
    }
}

/// The error for every object that cannot be read.
pub(super) fn corrupt() -> Corrupt {
    Corrupt::new("the stored item scores of a job are corrupt")
}

/// An object's header, which gives every section's place.
#[derive(Debug, Clone)]
pub struct Header {
    /// The values' meaning.
    pub kind: Kind,
    /// Item count, at most 2,147,483,647.
    pub n: u64,
    pub(super) width: Width,
    dictionary_entries: u64,
    checksum: u32,
}

impl Header {
    /// Reads the header from the object's first [`HEADER_BYTES`] bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let header = bytes
            .first_chunk::<{ HEADER_BYTES as usize }>()
            .filter(|header| header[..8] == MAGIC)
            .ok_or_else(corrupt)?;
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let n = u64::from(number(16)) | u64::from(number(20)) << 32;
        // No suite has more items.
        if n > i32::MAX as u64 {
            return Err(corrupt());
        }
        Ok(Self {
            kind: Kind::from_byte(header[8]).ok_or_else(corrupt)?,
            n,
            width: Width::from_byte(header[9]).ok_or_else(corrupt)?,
            dictionary_entries: u64::from(number(12)),
            checksum: number(CHECKSUM.start),
        })
    }

    /// Checks a whole object's checksum. Bytes after its end are ignored.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Corrupt> {
        let body = bytes
            .get(HEADER_BYTES as usize..self.end() as usize)
            .ok_or_else(corrupt)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&bytes[..CHECKSUM.start]);
        checksum.update(&[0; HEADER_BYTES as usize - CHECKSUM.start]);
        checksum.update(body);
        if checksum.finalize() == self.checksum {
            Ok(())
        } else {
            Err(corrupt())
        }
    }

    /// Returns the dictionary's byte range.
    pub fn dictionary_range(&self) -> Range<u64> {
        HEADER_BYTES..HEADER_BYTES + 8 * self.dictionary_entries
    }

    /// Returns the byte ranges for these items' codes, and for their "right" bits if the kind
    /// has them.
    pub fn ranges(&self, items: Range<u64>) -> (Range<u64>, Option<Range<u64>>) {
        (self.codes_range(items.clone()), self.right_range(items))
    }

    pub(super) fn codes_range(&self, items: Range<u64>) -> Range<u64> {
        section(self.dictionary_range().end, self.width.bits(), items)
    }

    pub(super) fn predicted_range(&self, items: Range<u64>) -> Range<u64> {
        section(self.codes_range(0..self.n).end, 1, items)
    }

    pub(super) fn right_range(&self, items: Range<u64>) -> Option<Range<u64>> {
        let start = self.predicted_range(0..self.n).end;
        self.kind.has_right().then(|| section(start, 1, items))
    }

    fn end(&self) -> u64 {
        self.right_range(0..self.n)
            .map_or_else(|| self.predicted_range(0..self.n).end, |right| right.end)
    }
}

/// Returns these items' byte range in a section that starts at `start` and has `bits` bits
/// per item.
fn section(start: u64, bits: u64, items: Range<u64>) -> Range<u64> {
    start + items.start * bits / 8..start + (items.end * bits).div_ceil(8)
}
