//! Building the stored values while a job is scored.

use std::fmt;

use crate::compare::StoredItem;

use super::format::{Bits, Codes, ItemScores, Kind};

/// The most distinct values in a dictionary. With more, the codes are the values
/// themselves.
const DICTIONARY_MAX: usize = 1 << 14;

/// The most items whose values outside a dictionary are stored with 64 bits. With more
/// items, values of [`Kind::Scores`] and [`Kind::Hits`] are rounded to 32 bits.
pub(super) const EXACT_MAX: usize = 1 << 22;

/// All item values of a job, while they are set.
#[derive(Debug)]
pub struct ItemScoresBuilder {
    scores: ItemScores,
    lookup: Lookup,
}

/// A hash table from a value to its code in the dictionary. Empty until the first value that needs
/// it.
#[derive(Default)]
struct Lookup(Vec<(u64, u16)>);

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

impl Lookup {
    /// Slot count: at least twice [`DICTIONARY_MAX`], so that a free slot is near.
    const SLOTS: usize = 1 << 15;

    /// A free slot's code.
    const FREE: u16 = u16::MAX;

    fn of(dictionary: &[f64]) -> Self {
        let mut lookup = Self(vec![(0, Self::FREE); Self::SLOTS]);
        for (code, value) in dictionary.iter().enumerate() {
            let slot = lookup.slot(value.to_bits());
            lookup.0[slot] = (value.to_bits(), code as u16);
        }
        lookup
    }

    /// Returns a value's slot, or the free slot where it belongs.
    fn slot(&self, bits: u64) -> usize {
        let mut at = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize;
        while self.0[at].1 != Self::FREE && self.0[at].0 != bits {
            at = (at + 1) % Self::SLOTS;
        }
        at
    }
}

impl ItemScoresBuilder {
    /// Returns a builder for `n` items without predictions, whose value is `worst`. `few_values`
    /// says that the metric has few distinct values, so that a dictionary is worth trying.
    pub fn new(kind: Kind, n: usize, worst: f64, few_values: bool) -> Self {
        let right = Bits::new(if kind.has_right() { n } else { 0 });
        let dictionary = match kind {
            Kind::Scores if few_values && worst == 0.0 => vec![0.0, 1.0],
            _ => Vec::new(),
        };
        let codes = match kind {
            // The dictionary is empty, so every item must be set before it is read.
            Kind::Hits => Codes::U8(vec![0; n]),
            Kind::Scores if !dictionary.is_empty() => Codes::Bit(Bits::new(n)),
            // During scoring these are predictions: rounding would change their ranks, or a
            // confidence's bin.
            Kind::Parts | Kind::Confidences => Codes::F64(vec![worst; n]),
            Kind::Scores if n <= EXACT_MAX => Codes::F64(vec![worst; n]),
            Kind::Scores => Codes::F32(vec![worst as f32; n]),
        };
        Self {
            scores: ItemScores {
                kind,
                n,
                dictionary,
                codes,
                predicted: Bits::new(n),
                right,
            },
            lookup: Lookup::default(),
        }
    }

    /// Returns the values' meaning.
    pub fn kind(&self) -> Kind {
        self.scores.kind
    }

    /// Returns the item count.
    pub fn len(&self) -> usize {
        self.scores.n
    }

    /// Returns `true` if there are no items.
    pub fn is_empty(&self) -> bool {
        self.scores.n == 0
    }

    /// Marks an item as predicted. Returns `true` if it was predicted before.
    #[inline]
    pub fn mark_predicted(&mut self, item: usize) -> bool {
        self.scores.predicted.set(item)
    }

    /// Returns `true` if the item has a prediction.
    pub fn is_predicted(&self, item: usize) -> bool {
        self.scores.is_predicted(item)
    }

    /// Marks the item's predicted or most probable label as right.
    pub fn mark_right(&mut self, item: usize) {
        self.scores.right.set(item);
    }

    /// Returns `true` if the item's predicted or most probable label is right.
    pub fn is_right(&self, item: usize) -> bool {
        self.scores.is_right(item)
    }

    /// Returns the item's current value.
    #[inline]
    pub fn value(&self, item: usize) -> f64 {
        self.scores.value(item)
    }

    /// Returns the current values of all items, in their order.
    pub(crate) fn stored(&self) -> impl Iterator<Item = StoredItem> + Clone {
        (0..self.len()).map(|item| self.stored_item(item))
    }

    /// Returns the item's current value.
    pub(crate) fn stored_item(&self, item: usize) -> StoredItem {
        StoredItem {
            value: self.value(item),
            is_right: self.is_right(item),
        }
    }

    /// Sets the item's value.
    #[inline]
    pub fn set(&mut self, item: usize, value: f64) {
        match &mut self.scores.codes {
            Codes::F64(values) => values[item] = value,
            Codes::F32(values) if value.abs() <= f64::from(f32::MAX) => values[item] = value as f32,
            Codes::F32(_) => {
                self.scores.codes = self.to_f64();
                self.set(item, value);
            }
            Codes::Bit(bits) if value == 1.0 => _ = bits.set(item),
            Codes::Bit(_) if value == 0.0 => {}
            Codes::Bit(_) | Codes::U8(_) | Codes::U16(_) | Codes::U32(_) => {
                self.set_coded(item, value);
            }
        }
    }

    fn to_f64(&self) -> Codes {
        Codes::F64((0..self.len()).map(|item| self.value(item)).collect())
    }

    fn set_coded(&mut self, item: usize, value: f64) {
        if self.lookup.0.is_empty() {
            self.lookup = Lookup::of(&self.scores.dictionary);
        }
        let bits = value.to_bits();
        let slot = self.lookup.slot(bits);
        if self.lookup.0[slot].1 == Lookup::FREE {
            if self.scores.dictionary.len() == DICTIONARY_MAX {
                self.drop_dictionary();
                return self.set(item, value);
            }
            self.lookup.0[slot] = (bits, self.scores.dictionary.len() as u16);
            self.scores.dictionary.push(value);
        }
        self.set_code(item, self.lookup.0[slot].1);
    }

    /// Sets the item's code, and widens all codes if it does not fit.
    fn set_code(&mut self, item: usize, code: u16) {
        let n = self.len();
        let codes = &mut self.scores.codes;
        if let Codes::Bit(bits) = codes {
            *codes = Codes::U8((0..n).map(|item| u8::from(bits.get(item))).collect());
        }
        if let Codes::U8(narrow) = codes
            && code > u16::from(u8::MAX)
        {
            *codes = Codes::U16(narrow.iter().map(|code| u16::from(*code)).collect());
        }
        match codes {
            Codes::U8(codes) => codes[item] = code as u8,
            Codes::U16(codes) => codes[item] = code,
            Codes::U32(codes) => codes[item] = u32::from(code),
            // Widened above, or never coded.
            Codes::Bit(_) | Codes::F32(_) | Codes::F64(_) => {}
        }
    }

    /// Replaces the codes by the values themselves: a dictionary with more entries would not be
    /// shorter.
    fn drop_dictionary(&mut self) {
        self.scores.codes = if self.len() <= EXACT_MAX || self.kind() == Kind::Confidences {
            self.to_f64()
        } else {
            Codes::F32(
                (0..self.len())
                    .map(|item| self.value(item) as f32)
                    .collect(),
            )
        };
        self.scores.dictionary = Vec::new();
        self.lookup = Lookup::default();
    }

    /// Returns the finished values. Sorts the dictionary, so that the encoding does not depend on
    /// the order in which the values were set.
    pub fn finish(self) -> ItemScores {
        let mut scores = self.scores;
        let dictionary = &scores.dictionary;
        let mut order: Vec<usize> = (0..dictionary.len()).collect();
        order.sort_by(|one, other| dictionary[*one].total_cmp(&dictionary[*other]));
        let mut new_codes = vec![0_u16; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(new, old)| new_codes[*old] = new as u16);
        match &mut scores.codes {
            // The bit dictionary is 0, 1: it is sorted. The others have none.
            Codes::Bit(_) | Codes::U32(_) | Codes::F32(_) | Codes::F64(_) => return scores,
            Codes::U8(_) | Codes::U16(_) if order.is_empty() => return scores,
            Codes::U8(codes) => codes
                .iter_mut()
                .for_each(|code| *code = new_codes[usize::from(*code)] as u8),
            Codes::U16(codes) => codes
                .iter_mut()
                .for_each(|code| *code = new_codes[usize::from(*code)]),
        }
        scores.dictionary = order
            .into_iter()
            .map(|old| scores.dictionary[old])
            .collect();
        scores
    }
}
