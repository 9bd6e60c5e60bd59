//! The hidden answers of a suite in memory: built once, shared by every job that needs them.

use std::hash::BuildHasher as _;

use assay_core::{Answer, Error, Result};
use hashbrown::{DefaultHashBuilder, HashTable};

/// The answers of all items of a suite, in the suite's order.
///
/// All ids lie one behind the other in one text, an item's own and then those of its relevant answers by falling gain:
/// a suite of ten million items is told in five allocations, and an item with one answer takes 17 bytes beside its ids.
#[derive(Debug)]
pub struct AnswerTable {
    // Bytes, for a slice of a `str` looks at the text around its ends: a cache miss for ids that are only passed by.
    text: Vec<u8>,
    /// Where each id ends in `text`.
    ends: Vec<u32>,
    /// By ordinal: which of `ends` is the item's own id.
    heads: Vec<u32>,
    /// Beside `ends`: the gain of an answer (of an item's own id, nothing of meaning). Empty where all gains are 1.
    gains: Vec<f64>,
    /// Ordinals by item id.
    index: HashTable<u32>,
    /// Fast rather than proof against chosen keys: only the operator's ids are ever put in.
    hash: DefaultHashBuilder,
}

/// One item of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'t> {
    table: &'t AnswerTable,
    /// Its place in the suite, from 0.
    pub(super) ordinal: usize,
}

impl AnswerTable {
    /// Builds the table from item ids and answers in the suite's order.
    ///
    /// Item ids are distinct and all ids together take at most 4 GiB, else the error is `internal`: what is published
    /// has been checked.
    pub fn build<I: AsRef<str>>(items: impl IntoIterator<Item = (I, Answer)>) -> Result<Self> {
        let mut table = Self {
            text: Vec::new(),
            ends: Vec::new(),
            heads: Vec::new(),
            gains: Vec::new(),
            index: HashTable::new(),
            hash: DefaultHashBuilder::default(),
        };
        for (item_id, answer) in items {
            table.push(item_id.as_ref(), &answer)?;
        }
        table.text.shrink_to_fit();
        table.ends.shrink_to_fit();
        table.heads.shrink_to_fit();
        table.gains.shrink_to_fit();
        Ok(table)
    }

    fn push(&mut self, item_id: &str, answer: &Answer) -> Result<()> {
        if self.find(item_id).is_some() {
            return Err(Error::internal(format!("the suite has the item {item_id:?} twice")));
        }
        let ordinal = offset(self.heads.len())?;
        self.heads.push(offset(self.ends.len())?);
        self.push_id(item_id, 1.0)?;
        let mut relevant = answer.relevant();
        relevant.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (id, gain) in relevant {
            self.push_id(id, gain)?;
        }
        let Self { text, ends, heads, index, hash, .. } = self;
        let rehash = |ordinal: &u32| hash.hash_one(id_at(text, ends, heads[*ordinal as usize] as usize));
        index.insert_unique(hash.hash_one(item_id.as_bytes()), ordinal, rehash);
        Ok(())
    }

    fn push_id(&mut self, id: &str, gain: f64) -> Result<()> {
        if gain != 1.0 && self.gains.is_empty() {
            // An item's own id stands before its answers, so there is something to fill.
            self.gains.resize(self.ends.len(), 1.0);
        }
        if !self.gains.is_empty() {
            self.gains.push(gain);
        }
        self.text.extend(id.as_bytes());
        self.ends.push(offset(self.text.len())?);
        Ok(())
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of memory, but for the few of the structure itself.
    pub fn bytes(&self) -> usize {
        let offsets = size_of::<u32>() * (self.ends.capacity() + self.heads.capacity());
        self.text.capacity() + offsets + size_of::<f64>() * self.gains.capacity() + self.index.allocation_size()
    }

    /// The item with this id.
    pub(super) fn find(&self, item_id: &str) -> Option<Item<'_>> {
        let item_id = item_id.as_bytes();
        let is_it = |ordinal: &u32| self.id(self.heads[*ordinal as usize] as usize) == item_id;
        let ordinal = self.index.find(self.hash.hash_one(item_id), is_it)?;
        Some(Item { table: self, ordinal: *ordinal as usize })
    }

    fn id(&self, at: usize) -> &[u8] {
        id_at(&self.text, &self.ends, at)
    }
}

impl<'t> Item<'t> {
    /// The relevant ids with their gains, by falling gain. There is at least one.
    pub(super) fn answers(self) -> impl ExactSizeIterator<Item = (&'t [u8], f64)> {
        let Self { table, ordinal } = self;
        let head = table.heads[ordinal] as usize;
        let end = table.heads.get(ordinal + 1).map_or(table.ends.len(), |next| *next as usize);
        (head + 1..end).map(|at| (table.id(at), table.gains.get(at).copied().unwrap_or(1.0)))
    }
}

fn id_at<'t>(text: &'t [u8], ends: &[u32], at: usize) -> &'t [u8] {
    let start = at.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &text[start..ends[at] as usize]
}

fn offset(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(|_| Error::internal("the suite's ids take more than 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(gains: &[(&str, f64)]) -> Answer {
        Answer::Gains(gains.iter().map(|(id, gain)| (String::from(*id), *gain)).collect())
    }

    fn answers<'t>(table: &'t AnswerTable, item_id: &str) -> (usize, Vec<(&'t str, f64)>) {
        let item = table.find(item_id).unwrap();
        (item.ordinal, item.answers().map(|(id, gain)| (str::from_utf8(id).unwrap(), gain)).collect())
    }

    #[test]
    fn answers_are_found_by_falling_gain() {
        let items = [
            ("a", gains(&[("x", 0.5), ("zero", 0.0), ("y", 3.0)])),
            ("ä", Answer::Label(String::from("x"))),
            ("c", Answer::Set(vec![String::from("q"), String::new()])),
        ];
        for (order, n) in [([0, 1, 2], 3), ([1, 2, 0], 3)] {
            let table = AnswerTable::build(order.map(|at: usize| items[at].clone())).unwrap();
            assert_eq!(table.len(), n);
            let at = |item: usize| order.iter().position(|placed| *placed == item).unwrap();
            assert_eq!(answers(&table, "a"), (at(0), vec![("y", 3.0), ("x", 0.5)]));
            assert_eq!(answers(&table, "ä"), (at(1), vec![("x", 1.0)]));
            assert_eq!(answers(&table, "c"), (at(2), vec![("q", 1.0), ("", 1.0)]));
            assert!(table.find("x").is_none() && table.find("").is_none());
        }
    }

    #[test]
    fn an_item_that_is_there_twice_is_refused() {
        let twice = ["a", "b", "a"].map(|id| (id, Answer::Label(String::from("x"))));
        assert!(AnswerTable::build(twice).is_err());
    }

    #[test]
    fn an_item_with_ids_of_ten_characters_takes_at_most_48_bytes() {
        let items = (0..100_000).map(|at| (format!("{at:010}"), Answer::Label(format!("{:010}", at % 1000))));
        let table = AnswerTable::build(items).unwrap();
        assert!(table.bytes() <= 48 * table.len(), "{}", table.bytes() / table.len());
    }
}
