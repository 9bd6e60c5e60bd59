//! What is kept of each item of a succeeded job: as little as a comparison of two jobs over the same items needs.
//!
//! The form of an object (all numbers with the low byte first): a head of 64 bytes, the dictionary, the items' codes, a bit
//! an item that says whether it was predicted, and, with hits and confidences, a bit that says whether its label was right.
//! Bits begin with the lowest. The codes are of one width, so that some items are one read of a range.

use std::fmt;
use std::ops::Range;

use crate::error::Corrupt;

/// The length of the head, in bytes.
pub const HEADER_BYTES: u64 = 64;

const MAGIC: [u8; 8] = *b"ASSAYIS1";

/// Where in the head the checksum is, behind which it is empty.
const CHECKSUM: Range<usize> = 24..28;

/// More distinct values than this are kept as they are.
const DICTIONARY_MAX: usize = 1 << 14;

/// Beyond so many items, numbers that are not in a dictionary are kept with 32 bits.
const EXACT_MAX: usize = 1 << 22;

/// What the codes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The metric of each item alone.
    Scores,
    /// Of a metric of all items together, each item's part in it; and whether its label is right.
    Hits,
    /// Of a metric of all items together, each item's part in it. Their mean is the metric, and their spread is that of the
    /// metric (they are the metric and the item's influence on it, of F. R. Hampel 1974).
    Parts,
    /// The largest probability, or −1 where nothing was predicted; and whether its label is right.
    Confidences,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Scores, Self::Hits, Self::Parts, Self::Confidences];

    /// Whether a second bit is kept of each item.
    pub const fn has_right(self) -> bool {
        matches!(self, Self::Hits | Self::Confidences)
    }
}

/// A bit for each item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bits(Vec<u8>);

impl Bits {
    /// None of them set.
    pub fn new(n: usize) -> Self {
        Self(vec![0; n.div_ceil(8)])
    }

    /// The item's.
    #[inline]
    pub fn get(&self, at: usize) -> bool {
        self.0[at / 8] >> (at % 8) & 1 == 1
    }

    /// Sets the item's. Whether it was set before.
    #[inline]
    pub fn set(&mut self, at: usize) -> bool {
        let (byte, bit) = (&mut self.0[at / 8], 1 << (at % 8));
        let before = *byte & bit != 0;
        *byte |= bit;
        before
    }
}

/// One code for each item.
#[derive(Debug, Clone, PartialEq)]
enum Codes {
    Bit(Bits),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Codes {
    /// Sets the code of one of n items. Widens all where this one has no place.
    #[inline]
    fn set(&mut self, n: usize, item: usize, code: u32) {
        loop {
            *self = match self {
                Self::U8(codes) if code <= u32::from(u8::MAX) => return codes[item] = code as u8,
                Self::U16(codes) if code <= u32::from(u16::MAX) => {
                    return codes[item] = code as u16;
                }
                Self::U32(codes) => return codes[item] = code,
                Self::Bit(bits) => Self::U8((0..n).map(|item| u8::from(bits.get(item))).collect()),
                Self::U8(codes) => Self::U16(codes.iter().map(|code| u16::from(*code)).collect()),
                Self::U16(codes) => Self::U32(codes.iter().map(|code| u32::from(*code)).collect()),
                // Never coded.
                Self::F32(_) | Self::F64(_) => return,
            };
        }
    }
}

/// A number for each item, in as few bytes as the largest needs: labels while they are counted.
pub struct PackedU32(Codes);

impl PackedU32 {
    /// All 0.
    pub fn new(n: usize) -> Self {
        Self(Codes::U8(vec![0; n]))
    }

    /// The item's.
    #[inline]
    pub fn get(&self, item: usize) -> u32 {
        match &self.0 {
            Codes::U8(codes) => u32::from(codes[item]),
            Codes::U16(codes) => u32::from(codes[item]),
            Codes::U32(codes) => codes[item],
            Codes::Bit(_) | Codes::F32(_) | Codes::F64(_) => 0,
        }
    }

    /// Sets the item's.
    #[inline]
    pub fn set(&mut self, item: usize, number: u32) {
        self.0.set(0, item, number);
    }
}

/// The widths, as the head names them.
const BIT: u8 = 0;
const U8: u8 = 1;
const U16: u8 = 2;
const U32: u8 = 3;
const F32: u8 = 4;
const F64: u8 = 5;

/// What is kept of all items.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemScores {
    kind: Kind,
    n: usize,
    /// What the codes stand for, unless they stand for themselves.
    dictionary: Vec<f64>,
    codes: Codes,
    predicted: Bits,
    right: Bits,
    lookup: Lookup,
}

/// Codes of the values that were met of late.
#[derive(Clone, Default)]
struct Lookup(Vec<(u64, u16)>);

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

impl PartialEq for Lookup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Lookup {
    const SLOTS: usize = 1 << 15;

    /// Where a value is, or may be put: twice as many slots as values there are at most.
    fn slot(&self, bits: u64) -> usize {
        let mut at = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize;
        while self.0[at].1 != u16::MAX && self.0[at].0 != bits {
            at = (at + 1) % Self::SLOTS;
        }
        at
    }
}

impl ItemScores {
    /// Of items that were not predicted: their scores are `worst`.
    pub fn new(kind: Kind, n: usize, worst: f64, few_values: bool) -> Self {
        let right = Bits::new(if kind.has_right() { n } else { 0 });
        let dictionary = match kind {
            Kind::Scores if few_values && worst == 0.0 => vec![0.0, 1.0],
            _ => Vec::new(),
        };
        let codes = match kind {
            // All of them are set.
            Kind::Hits => Codes::U8(vec![0; n]),
            Kind::Scores if !dictionary.is_empty() => Codes::Bit(Bits::new(n)),
            // While they are counted parts are predictions. A shorter number would change their ranks, and a confidence's bin.
            Kind::Parts | Kind::Confidences => Codes::F64(vec![worst; n]),
            _ if n <= EXACT_MAX => Codes::F64(vec![worst; n]),
            _ => Codes::F32(vec![worst as f32; n]),
        };
        Self {
            kind,
            n,
            dictionary,
            codes,
            predicted: Bits::new(n),
            right,
            lookup: Lookup::default(),
        }
    }

    /// What the codes say.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Notes that an item is predicted. Whether it was before.
    #[inline]
    pub fn predict(&mut self, item: usize) -> bool {
        self.predicted.set(item)
    }

    /// Whether the item was predicted.
    pub fn is_predicted(&self, item: usize) -> bool {
        self.predicted.get(item)
    }

    /// Whether the item's label, or most probable label, is the right one.
    pub fn is_right(&self, item: usize) -> bool {
        self.kind.has_right() && self.right.get(item)
    }

    /// Notes that it is.
    pub fn set_right(&mut self, item: usize) {
        self.right.set(item);
    }

    /// The item's score, part or confidence.
    #[inline]
    pub fn value(&self, item: usize) -> f64 {
        let of = |code: usize| self.dictionary[code];
        match &self.codes {
            Codes::Bit(bits) => of(usize::from(bits.get(item))),
            Codes::U8(codes) => of(usize::from(codes[item])),
            Codes::U16(codes) => of(usize::from(codes[item])),
            Codes::U32(codes) => of(codes[item] as usize),
            Codes::F32(values) => f64::from(values[item]),
            Codes::F64(values) => values[item],
        }
    }

    /// Sets the item's score, part or confidence.
    #[inline]
    pub fn set(&mut self, item: usize, value: f64) {
        match &mut self.codes {
            Codes::F64(values) => values[item] = value,
            Codes::F32(values) if value.abs() <= f64::from(f32::MAX) => values[item] = value as f32,
            Codes::F32(_) => {
                self.codes = Codes::F64((0..self.n).map(|item| self.value(item)).collect());
                self.set(item, value);
            }
            Codes::Bit(bits) if value == 1.0 => _ = bits.set(item),
            Codes::Bit(_) if value == 0.0 => {}
            _ => self.set_coded(item, value),
        }
    }

    fn set_coded(&mut self, item: usize, value: f64) {
        if self.lookup.0.is_empty() {
            self.lookup.0 = vec![(0, u16::MAX); Lookup::SLOTS];
            for at in 0..self.dictionary.len() {
                let slot = self.lookup.slot(self.dictionary[at].to_bits());
                self.lookup.0[slot] = (self.dictionary[at].to_bits(), at as u16);
            }
        }
        let bits = value.to_bits();
        let slot = self.lookup.slot(bits);
        if self.lookup.0[slot].1 == u16::MAX {
            if self.dictionary.len() == DICTIONARY_MAX {
                self.drop_dictionary();
                return self.set(item, value);
            }
            self.lookup.0[slot] = (bits, self.dictionary.len() as u16);
            self.dictionary.push(value);
        }
        self.codes
            .set(self.n, item, u32::from(self.lookup.0[slot].1));
    }

    /// There are too many values for a dictionary.
    fn drop_dictionary(&mut self) {
        self.codes = if self.n <= EXACT_MAX || self.kind == Kind::Confidences {
            Codes::F64((0..self.n).map(|item| self.value(item)).collect())
        } else {
            Codes::F32((0..self.n).map(|item| self.value(item) as f32).collect())
        };
        self.dictionary = Vec::new();
        self.lookup = Lookup::default();
    }

    /// Nothing is set any more. Afterwards nothing tells in which order it was.
    pub fn finish(&mut self) {
        let mut order: Vec<usize> = (0..self.dictionary.len()).collect();
        order.sort_by(|one, other| self.dictionary[*one].total_cmp(&self.dictionary[*other]));
        let mut new = vec![0_u16; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(at, old)| new[*old] = at as u16);
        match &mut self.codes {
            // Of these the dictionary is in order.
            Codes::Bit(_) | Codes::U32(_) | Codes::F32(_) | Codes::F64(_) => return,
            Codes::U8(_) | Codes::U16(_) if order.is_empty() => return,
            Codes::U8(codes) => codes
                .iter_mut()
                .for_each(|code| *code = new[usize::from(*code)] as u8),
            Codes::U16(codes) => codes
                .iter_mut()
                .for_each(|code| *code = new[usize::from(*code)]),
        }
        self.dictionary = order.into_iter().map(|old| self.dictionary[old]).collect();
        self.lookup = Lookup::default();
    }

    /// The object's bytes, handed on in pieces.
    pub fn write(&self, mut each: impl FnMut(&[u8])) {
        let mut head = [0; HEADER_BYTES as usize];
        head[..8].copy_from_slice(&MAGIC);
        head[8] = self.kind as u8;
        head[9] = self.width();
        head[12..16].copy_from_slice(&(self.dictionary.len() as u32).to_le_bytes());
        head[16..24].copy_from_slice(&(self.n as u64).to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        // Of the head without it.
        checksum.update(&head);
        self.body(|piece| checksum.update(piece));
        head[CHECKSUM].copy_from_slice(&checksum.finalize().to_le_bytes());
        each(&head);
        self.body(each);
    }

    fn width(&self) -> u8 {
        match self.codes {
            Codes::Bit(_) => BIT,
            Codes::U8(_) => U8,
            Codes::U16(_) => U16,
            Codes::U32(_) => U32,
            Codes::F32(_) => F32,
            Codes::F64(_) => F64,
        }
    }

    fn body(&self, mut each: impl FnMut(&[u8])) {
        const PIECE: usize = 1 << 16;

        fn pieces<T: Copy, const N: usize>(
            values: &[T],
            bytes: impl Fn(T) -> [u8; N],
            each: &mut impl FnMut(&[u8]),
        ) {
            let mut piece = Vec::with_capacity(PIECE);
            for values in values.chunks(PIECE / N) {
                piece.clear();
                values
                    .iter()
                    .for_each(|value| piece.extend_from_slice(&bytes(*value)));
                each(&piece);
            }
        }

        pieces(&self.dictionary, f64::to_le_bytes, &mut each);
        match &self.codes {
            Codes::Bit(bits) => each(&bits.0),
            Codes::U8(codes) => each(codes),
            Codes::U16(codes) => pieces(codes, u16::to_le_bytes, &mut each),
            Codes::U32(codes) => pieces(codes, u32::to_le_bytes, &mut each),
            Codes::F32(values) => pieces(values, f32::to_le_bytes, &mut each),
            Codes::F64(values) => pieces(values, f64::to_le_bytes, &mut each),
        }
        each(&self.predicted.0);
        each(&self.right.0);
    }

    /// Reads a whole object.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let head = Header::read(bytes)?;
        let body = bytes
            .get(HEADER_BYTES as usize..head.end() as usize)
            .ok_or_else(corrupt)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&bytes[..CHECKSUM.start]);
        checksum.update(&[0; HEADER_BYTES as usize - CHECKSUM.start]);
        checksum.update(body);
        if checksum.finalize() != head.checksum {
            return Err(corrupt());
        }
        let part = |range: Range<u64>| {
            bytes
                .get(range.start as usize..range.end as usize)
                .ok_or_else(corrupt)
        };
        let (codes, predicted, right) = (
            part(head.codes(0..head.n))?,
            part(head.predicted(0..head.n))?,
            part(head.right(0..head.n))?,
        );
        let codes = match head.width {
            BIT => Codes::Bit(Bits(codes.to_vec())),
            U8 => Codes::U8(codes.to_vec()),
            U16 => Codes::U16(
                codes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| u16::from_le_bytes(*bytes))
                    .collect(),
            ),
            U32 => Codes::U32(
                codes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| u32::from_le_bytes(*bytes))
                    .collect(),
            ),
            F32 => Codes::F32(
                codes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| f32::from_le_bytes(*bytes))
                    .collect(),
            ),
            _ => Codes::F64(
                codes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| f64::from_le_bytes(*bytes))
                    .collect(),
            ),
        };
        Ok(Self {
            kind: head.kind,
            n: head.n as usize,
            dictionary: head.dictionary(bytes)?,
            codes,
            predicted: Bits(predicted.to_vec()),
            right: Bits(right.to_vec()),
            lookup: Lookup::default(),
        })
    }
}

fn corrupt() -> Corrupt {
    Corrupt::new("the stored item scores of a job are corrupt")
}

/// How an object is laid out.
#[derive(Debug, Clone)]
pub struct Header {
    /// What the codes say.
    pub kind: Kind,
    /// How many items there are.
    pub n: u64,
    width: u8,
    entries: u64,
    checksum: u32,
}

impl Header {
    /// From the object's first bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let head = bytes
            .first_chunk::<{ HEADER_BYTES as usize }>()
            .filter(|head| head[..8] == MAGIC && head[9] <= F64)
            .ok_or_else(corrupt)?;
        let four =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| *kind as u8 == head[8])
            .ok_or_else(corrupt)?;
        let n = u64::from(four(16)) | u64::from(four(20)) << 32;
        // No suite has more items.
        if n > i32::MAX as u64 {
            return Err(corrupt());
        }
        Ok(Self {
            kind,
            n,
            width: head[9],
            entries: u64::from(four(12)),
            checksum: four(24),
        })
    }

    /// Where the dictionary is.
    pub fn dictionary_range(&self) -> Range<u64> {
        HEADER_BYTES..HEADER_BYTES + 8 * self.entries
    }

    /// What the codes stand for, from the object's first bytes.
    fn dictionary(&self, bytes: &[u8]) -> Result<Vec<f64>, Corrupt> {
        let range = self.dictionary_range();
        let entries = bytes
            .get(range.start as usize..range.end as usize)
            .ok_or_else(corrupt)?;
        Ok(entries
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect())
    }

    fn bits_of_code(&self) -> u64 {
        [1, 8, 16, 32, 32, 64][usize::from(self.width)]
    }

    fn section(start: u64, bits: u64, items: Range<u64>) -> Range<u64> {
        start + items.start * bits / 8..start + (items.end * bits).div_ceil(8)
    }

    fn codes(&self, items: Range<u64>) -> Range<u64> {
        Self::section(self.dictionary_range().end, self.bits_of_code(), items)
    }

    fn predicted(&self, items: Range<u64>) -> Range<u64> {
        Self::section(self.codes(0..self.n).end, 1, items)
    }

    fn right(&self, items: Range<u64>) -> Range<u64> {
        let start = self.predicted(0..self.n).end;
        if self.kind.has_right() {
            Self::section(start, 1, items)
        } else {
            start..start
        }
    }

    fn end(&self) -> u64 {
        self.right(0..self.n).end
    }

    /// Where what is kept of these items is: the codes, and the bits, if there are any, that say what was right.
    pub fn ranges(&self, items: Range<u64>) -> (Range<u64>, Option<Range<u64>>) {
        (
            self.codes(items.clone()),
            self.kind.has_right().then(|| self.right(items)),
        )
    }

    /// The scores, parts or confidences of these items, from what is in the first of the ranges, and the object's first
    /// bytes, dictionary included.
    pub fn values(
        &self,
        items: Range<u64>,
        first: &[u8],
        codes: &[u8],
    ) -> Result<Vec<f64>, Corrupt> {
        let dictionary = self.dictionary(first)?;
        let of = |code: usize| dictionary.get(code).copied().ok_or_else(corrupt);
        let n = (items.end - items.start) as usize;
        let short = |have: usize| if have < n { Err(corrupt()) } else { Ok(()) };
        match self.width {
            BIT => bits(items, codes)
                .map(|bit| of(usize::from(bit?)))
                .collect(),
            U8 => short(codes.len()).and_then(|()| {
                codes[..n]
                    .iter()
                    .map(|code| of(usize::from(*code)))
                    .collect()
            }),
            U16 => {
                let codes = codes.as_chunks().0;
                short(codes.len())?;
                codes[..n]
                    .iter()
                    .map(|code| of(usize::from(u16::from_le_bytes(*code))))
                    .collect()
            }
            U32 => {
                let codes = codes.as_chunks().0;
                short(codes.len())?;
                codes[..n]
                    .iter()
                    .map(|code| of(u32::from_le_bytes(*code) as usize))
                    .collect()
            }
            F32 => {
                let values = codes.as_chunks().0;
                short(values.len())?;
                Ok(values[..n]
                    .iter()
                    .map(|value| f64::from(f32::from_le_bytes(*value)))
                    .collect())
            }
            _ => {
                let values = codes.as_chunks().0;
                short(values.len())?;
                Ok(values[..n]
                    .iter()
                    .map(|value| f64::from_le_bytes(*value))
                    .collect())
            }
        }
    }

    /// Whether the labels of these items are right, from what is in the second of the ranges.
    pub fn rights(&self, items: Range<u64>, right: &[u8]) -> Result<Vec<bool>, Corrupt> {
        bits(items, right).collect()
    }

    /// The items' own scores, from their values and what was right: for labels 1 or 0; of confidences how far they were from
    /// what was right; without a prediction 1.
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

/// The bits of these items, the first of which is in the first byte.
fn bits(items: Range<u64>, bytes: &[u8]) -> impl Iterator<Item = Result<bool, Corrupt>> {
    let first = items.start / 8;
    items.map(move |item| {
        bytes
            .get((item / 8 - first) as usize)
            .map(|byte| byte >> (item % 8) & 1 == 1)
            .ok_or_else(corrupt)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(scores: &ItemScores) -> Vec<u8> {
        let mut bytes = Vec::new();
        scores.write(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// A page, read as the api reads it.
    fn page(bytes: &[u8], items: Range<u64>) -> Vec<f64> {
        let head = Header::read(bytes).unwrap();
        let (codes, right) = head.ranges(items.clone());
        let part = |range: Range<u64>| &bytes[range.start as usize..range.end as usize];
        let values = head
            .values(
                items.clone(),
                &bytes[..head.dictionary_range().end as usize],
                part(codes),
            )
            .unwrap();
        head.scores(
            values,
            &right.map_or_else(Vec::new, |right| head.rights(items, part(right)).unwrap()),
        )
    }

    #[test]
    fn scores_are_kept_exactly_whatever_their_number() {
        for (distinct, bits) in [
            (2, 1),
            (3, 8),
            (256, 8),
            (257, 16),
            (16_384, 16),
            (16_385, 64),
        ] {
            let n = 40_000;
            let value = |item: usize| {
                if item % distinct < 2 {
                    (item % distinct) as f64
                } else {
                    1.0 / (item % distinct) as f64
                }
            };
            let mut scores = ItemScores::new(Kind::Scores, n, 0.0, true);
            for item in (0..n).rev().filter(|item| item % 7 != 3) {
                assert!(!scores.predict(item));
                scores.set(item, value(item));
            }
            assert!(scores.predict(0));
            scores.finish();
            let wanted: Vec<f64> = (0..n)
                .map(|item| if item % 7 == 3 { 0.0 } else { value(item) })
                .collect();
            let bytes = bytes(&scores);
            let read = ItemScores::read(&bytes).unwrap();
            assert_eq!(read, scores);
            assert!((0..n).all(|item| read.value(item) == wanted[item]
                && read.is_predicted(item) == (item % 7 != 3)));
            let most = HEADER_BYTES as usize + 8 * scores.dictionary.len() + (bits + 1) * n / 8;
            assert_eq!(bytes.len(), most, "{distinct}");
            for items in [0..1, 0..9, 3..17, 7..8, 39_990..40_000, 0..n] {
                assert_eq!(
                    page(&bytes, items.start as u64..items.end as u64),
                    wanted[items],
                    "{distinct}"
                );
            }
            for at in [0, 8, 9, 13, 16, 20, 23, most - 1] {
                let mut corrupt = bytes.clone();
                corrupt[at] ^= 0x40;
                assert!(ItemScores::read(&corrupt).is_err(), "{at}");
            }
            assert!(ItemScores::read(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn of_many_items_a_number_may_still_be_larger_than_a_short_one_can_be() {
        let n = EXACT_MAX + 1;
        let mut scores = ItemScores::new(Kind::Scores, n, 5.0, false);
        scores.set(1, 0.1);
        assert_eq!(
            (scores.width(), scores.value(0), scores.value(1)),
            (F32, 5.0, f64::from(0.1_f32))
        );
        scores.set(2, 1e50);
        assert_eq!(
            (
                scores.width(),
                scores.value(0),
                scores.value(1),
                scores.value(2)
            ),
            (F64, 5.0, f64::from(0.1_f32), 1e50)
        );
        assert_eq!(
            ItemScores::new(Kind::Confidences, n, -1.0, false).width(),
            F64
        );
    }

    #[test]
    fn numbers_take_as_much_room_as_the_largest_needs() {
        let mut numbers = PackedU32::new(4);
        for (item, number) in [(0, 255), (1, 256), (2, 65_536), (3, u32::MAX), (1, 1)] {
            numbers.set(item, number);
            assert_eq!(numbers.get(item), number);
        }
        assert_eq!(
            [numbers.get(0), numbers.get(1), numbers.get(2)],
            [255, 1, 65_536]
        );
    }

    #[test]
    fn labels_and_confidences_keep_whether_they_were_right() {
        let n = 70_001;
        let mut labels = ItemScores::new(Kind::Hits, n, 0.0, true);
        let mut confidences = ItemScores::new(Kind::Confidences, n, -1.0, false);
        for item in (0..n).rev() {
            labels.set(item, 1.0 / (n - item) as f64);
        }
        for item in (0..n).rev().filter(|item| item % 3 != 0) {
            labels.predict(item);
            confidences.predict(item);
            confidences.set(item, 0.75);
            if item % 2 == 0 {
                labels.set_right(item);
                confidences.set_right(item);
            }
        }
        assert!((0..n).all(|item| labels.value(item) == 1.0 / (n - item) as f64));
        for scores in [&labels, &confidences] {
            assert_eq!(ItemScores::read(&bytes(scores)).unwrap(), *scores);
        }
        assert_eq!(page(&bytes(&labels), 1..6), [0.0, 1.0, 0.0, 1.0, 0.0]);
        assert_eq!(
            page(&bytes(&confidences), 1..6),
            [0.75, 0.25, 1.0, 0.25, 0.75]
        );
    }
}
