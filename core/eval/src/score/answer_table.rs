//! The hidden answers of a suite in memory: built once, shared by every job that needs them.

use std::array;
use std::cell::Cell;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::OnceLock;

use crate::error::Corrupt;
use crate::metric::{Clip, Family, Metric};
use crate::suite::answers::Answer;
use hashbrown::{DefaultHashBuilder, HashTable};

/// The answers of all items of a suite, in the suite's order.
///
/// Each item is a record in one run of bytes: its ordinal, its answer's code, the length of its id, the id, and, where
/// rankings are scored and one id is right, that: so what is needed of an item lies together. Items are found
/// by open addressing over the records' offsets, each beside 32 bits of the id's hash, so that a look-up goes to memory
/// twice; and an item whose predecessor was just asked for is found without looking, for it lies behind it. Where all are
/// asked for in the suite's order, as in most submissions, offsets are never needed, and so not made. Other labels are kept
/// once. An item with ids of ten characters takes 42 bytes.
#[derive(Debug)]
pub struct AnswerTable {
    records: Vec<u8>,
    /// Made when they are needed first.
    slots: OnceLock<Slots>,
    n: usize,
    labels: Labels,
    /// Where the lists end that are answers of several ids.
    lists: Vec<u32>,
    /// The labels in these lists, by falling gain.
    listed: Vec<u32>,
    /// Beside them: their gains. Empty where all gains are 1.
    gains: Vec<f64>,
    /// By ordinal, where answers are numbers.
    numbers: Vec<f64>,
    clip: Option<Clip>,
    /// Fast rather than proof against chosen keys: only the operator's ids are ever put in.
    hash: DefaultHashBuilder,
}

/// Before an item's id: ordinal, code and length.
const HEAD: usize = 10;

/// Marks the code of an answer of several ids, which is the number of a list.
const LIST: u32 = 1 << 31;

/// Marks the code of an answer that stands in the record, which is its length. All others are labels.
const TEXT: u32 = 1 << 30;

/// The distinct labels of a suite, in the order of their first use.
#[derive(Debug, Default)]
struct Labels {
    text: Vec<u8>,
    ends: Vec<u32>,
    index: HashTable<u32>,
}

impl Labels {
    fn get(&self, label: u32) -> &[u8] {
        let at = label as usize;
        let start = at
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[at] as usize]
    }

    fn find(&self, hash: &DefaultHashBuilder, label: &[u8]) -> Option<u32> {
        self.index
            .find(hash.hash_one(label), |at| self.get(*at) == label)
            .copied()
    }

    fn put(&mut self, hash: &DefaultHashBuilder, label: &[u8]) -> Result<u32, Corrupt> {
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
}

/// Offsets of records, each above 32 bits of a hash. A free slot is all ones.
#[derive(Debug, Default)]
struct Slots(Vec<u64>);

impl Slots {
    const FREE: u64 = u64::MAX;

    /// At most seven in ten are taken.
    fn for_items(n: usize) -> Self {
        Self(vec![Self::FREE; Self::count(n)])
    }

    fn count(n: usize) -> usize {
        (n * 10).div_ceil(7).max(8)
    }

    /// Where the search for a hash begins.
    #[inline]
    fn begin(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.0.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.0.len() {
            0
        } else {
            slot + 1
        }
    }
}

/// One item of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'t> {
    table: &'t AnswerTable,
    /// Its place in the suite, from 0.
    pub(super) ordinal: usize,
    code: u32,
    /// Where the next item's record begins.
    next: usize,
}

/// Where the next item is looked for first: many submissions keep the suite's order.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NextRecord(usize);

/// Where the items are that are asked for next. Where they come in another order than the suite's, what is looked up for
/// them is fetched from memory for all of them together.
#[derive(Debug)]
pub struct Prefetch {
    /// Whether they do.
    scattered: Cell<bool>,
    places: [Cell<u32>; Self::MOST],
    /// Which of these is the next one's.
    next: Cell<usize>,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            scattered: Cell::new(false),
            places: array::from_fn(|_| Cell::new(0)),
            next: Cell::new(Self::MOST),
        }
    }
}

impl Prefetch {
    const MOST: usize = 32;

    /// Looks for items that are asked for next, in this order. Those behind the 32nd are looked for when they are asked for.
    pub fn load(&self, table: &AnswerTable, item_ids: &[&str]) {
        if self.scattered.get() {
            let item_ids = &item_ids[..item_ids.len().min(Self::MOST)];
            // The last ones, so that behind them there is none.
            self.next.set(Self::MOST - item_ids.len());
            table.fetch(item_ids, &self.places[self.next.get()..]);
        }
    }

    /// Where the one is that is asked for now.
    #[inline]
    fn take(&self) -> Option<usize> {
        let place = self.places.get(self.next.get())?.get();
        self.next.set(self.next.get() + 1);
        Some(place as usize)
    }
}

/// A table that is being built.
pub struct Builder {
    table: AnswerTable,
    keeps_labels: bool,
    inlines: bool,
    /// Where the last item's id is, if each id so far comes after the one before: then none is there twice.
    rising: Option<Range<usize>>,
}

impl Builder {
    /// For a suite with this metric and about so many items: then nothing is moved while it grows.
    pub fn new(metric: Metric, n: usize) -> Self {
        let table = AnswerTable {
            records: Vec::with_capacity(n * (HEAD + 16)),
            slots: OnceLock::new(),
            n: 0,
            labels: Labels::default(),
            lists: Vec::new(),
            listed: Vec::new(),
            gains: Vec::new(),
            numbers: Vec::with_capacity(if metric.family() == Family::Numbers {
                n
            } else {
                0
            }),
            clip: None,
            hash: DefaultHashBuilder::default(),
        };
        let keeps_labels = matches!(metric.family(), Family::Labels | Family::Probabilities);
        Self {
            table,
            keeps_labels,
            inlines: metric.family() == Family::Rankings,
            rising: Some(0..0),
        }
    }

    /// PoolProfile the loss of each item.
    #[must_use]
    pub fn clip(mut self, clip: Option<Clip>) -> Self {
        self.table.clip = clip;
        self
    }

    /// Adds the next item. Item ids are distinct and all ids together take less than 4 GiB, else the error is `internal`:
    /// what is published has been checked.
    pub fn push(&mut self, item_id: &str, answer: &Answer<'_>) -> Result<(), Corrupt> {
        let table = &mut self.table;
        let mut text: &[u8] = &[];
        let code = match answer {
            Answer::Label(label) if self.inlines && label.len() < TEXT as usize => {
                text = label.as_bytes();
                TEXT | offset(label.len())?
            }
            Answer::Label(label) => table.labels.put(&table.hash, label.as_bytes())?,
            Answer::Set(_) | Answer::Gains(_) => table.push_list(answer)?,
            Answer::Number(number) => {
                table.numbers.push(*number);
                0
            }
        };
        let at = table.records.len();
        if u32::try_from(at + HEAD + item_id.len() + text.len()).is_err() {
            return Err(too_large());
        }
        table
            .records
            .extend_from_slice(&offset(table.n)?.to_le_bytes());
        table.records.extend_from_slice(&code.to_le_bytes());
        table.records.extend_from_slice(
            &u16::try_from(item_id.len())
                .map_err(|_| too_large())?
                .to_le_bytes(),
        );
        table.records.extend_from_slice(item_id.as_bytes());
        let id = at + HEAD..table.records.len();
        table.records.extend_from_slice(text);
        table.n += 1;
        self.rising = self
            .rising
            .take()
            .filter(|last| table.records[last.clone()] < table.records[id.clone()])
            .map(|_| id);
        Ok(())
    }

    /// The table, without what only building it needed. The error is that an item is there twice.
    pub fn finish(self) -> Result<AnswerTable, Corrupt> {
        let Self {
            mut table,
            keeps_labels,
            inlines: _,
            rising,
        } = self;
        if rising.is_none() {
            let (slots, twice) = table.make_slots();
            if let Some(at) = twice {
                let item_id = String::from_utf8_lossy(table.id(at));
                return Err(Corrupt::new(format!(
                    "the suite has the item {item_id:?} twice"
                )));
            }
            table.slots = OnceLock::from(slots);
        }
        if !keeps_labels {
            table.labels.index = HashTable::new();
        }
        table.records.shrink_to_fit();
        table.labels.text.shrink_to_fit();
        table.labels.ends.shrink_to_fit();
        table.lists.shrink_to_fit();
        table.listed.shrink_to_fit();
        table.gains.shrink_to_fit();
        table.numbers.shrink_to_fit();
        Ok(table)
    }
}

impl AnswerTable {
    fn push_list(&mut self, answer: &Answer<'_>) -> Result<u32, Corrupt> {
        let mut relevant = answer.relevant();
        relevant.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (id, gain) in relevant {
            if gain != 1.0 && self.gains.is_empty() {
                self.gains.resize(self.listed.len(), 1.0);
            }
            self.listed
                .push(self.labels.put(&self.hash, id.as_bytes())?);
            // The first gain that is not 1 may come at the very beginning.
            if gain != 1.0 || !self.gains.is_empty() {
                self.gains.push(gain);
            }
        }
        let list = offset(self.lists.len())?;
        self.lists.push(offset(self.listed.len())?);
        if list < TEXT {
            Ok(list | LIST)
        } else {
            Err(too_large())
        }
    }

    /// The slots, and an item that is there twice. Items are put in by batches, of which first all places are looked at:
    /// so the memory's answers are waited for together, not one after the other.
    fn make_slots(&self) -> (Slots, Option<usize>) {
        const BATCH: usize = 16;

        let mut slots = Slots::for_items(self.n);
        let (mut at, mut twice) = (0, None);
        while at < self.records.len() {
            let mut batch = [(0, 0, 0); BATCH];
            let mut n = 0;
            while n < BATCH && at < self.records.len() {
                let id = self.id(at);
                let hash = self.hash.hash_one(id);
                let slot = slots.begin(hash);
                batch[n] = (at, hash, slot);
                at = self.item(at).next;
                n += 1;
            }
            std::hint::black_box(
                batch[..n]
                    .iter()
                    .fold(0, |seen, (_, _, slot)| seen ^ slots.0[*slot]),
            );
            for (at, hash, mut slot) in batch[..n].iter().copied() {
                while slots.0[slot] != Slots::FREE {
                    let taken = slots.0[slot];
                    if taken as u32 == hash as u32 && self.id((taken >> 32) as usize) == self.id(at)
                    {
                        twice = twice.or(Some(at));
                    }
                    slot = slots.after(slot);
                }
                slots.0[slot] = (at as u64) << 32 | hash & 0xffff_ffff;
            }
        }
        (slots, twice)
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// The bounds of the loss of an item.
    pub(super) fn clip(&self) -> Option<Clip> {
        self.clip
    }

    /// A loss within the suite's bounds.
    pub(super) fn clipped(&self, loss: f64) -> f64 {
        self.clip.map_or(loss, |clip| clip.apply(loss))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Bytes of memory, but for the few of the structure itself; with the slots, even if they are not made yet.
    pub fn bytes(&self) -> usize {
        let Self {
            records,
            slots: _,
            n,
            labels,
            lists,
            listed,
            gains,
            numbers,
            clip: _,
            hash: _,
        } = self;
        let labels = labels.text.capacity()
            + size_of::<u32>() * labels.ends.capacity()
            + labels.index.allocation_size();
        let lists = size_of::<u32>() * (lists.capacity() + listed.capacity());
        records.capacity()
            + labels
            + lists
            + size_of::<u64>() * (Slots::count(*n) + gains.capacity() + numbers.capacity())
    }

    /// The item with this id.
    #[inline]
    pub(super) fn find(
        &self,
        item_id: &str,
        hint: &mut NextRecord,
        prefetch: &Prefetch,
    ) -> Option<Item<'_>> {
        let item_id = item_id.as_bytes();
        let is_at = |at: &usize| *at < self.records.len() && self.id(*at) == item_id;
        let at = match prefetch.take().filter(is_at) {
            Some(at) => {
                prefetch.scattered.set(at != hint.0);
                at
            }
            None if is_at(&hint.0) => {
                prefetch.scattered.set(false);
                hint.0
            }
            None => {
                prefetch.scattered.set(true);
                self.look_up(item_id, self.hash.hash_one(item_id))?
            }
        };
        let item = self.item(at);
        hint.0 = item.next;
        Some(item)
    }

    /// Where these items are, as far as their hashes tell: each step is made for all of them before the next one, so that
    /// the memory's answers are waited for together.
    fn fetch(&self, item_ids: &[&str], places: &[Cell<u32>]) {
        const LINE: usize = 64;

        let slots = self.slots.get_or_init(|| self.make_slots().0);
        let mut begun = [(0, 0_u64); Prefetch::MOST];
        for (begun, item_id) in begun.iter_mut().zip(item_ids) {
            let hash = self.hash.hash_one(item_id.as_bytes());
            *begun = (slots.begin(hash), hash);
        }
        let begun = &begun[..item_ids.len()];
        std::hint::black_box(
            begun
                .iter()
                .fold(0, |seen, (slot, _)| seen ^ slots.0[*slot]),
        );
        let mut seen = 0;
        for ((slot, hash), place) in begun.iter().zip(places) {
            let (mut slot, mut taken) = (*slot, slots.0[*slot]);
            while taken != Slots::FREE && taken as u32 != *hash as u32 {
                slot = slots.after(slot);
                taken = slots.0[slot];
            }
            // Of an item that is not there it is the end of all.
            place.set((taken >> 32) as u32);
            // A record may lie in two lines of the memory.
            let byte = |at: usize| self.records.get(at).copied().unwrap_or(0);
            seen ^= byte((taken >> 32) as usize) ^ byte((taken >> 32) as usize + LINE / 2);
        }
        std::hint::black_box(seen);
    }

    fn look_up(&self, item_id: &[u8], hash: u64) -> Option<usize> {
        let slots = self.slots.get_or_init(|| self.make_slots().0);
        let mut slot = slots.begin(hash);
        loop {
            let taken = slots.0[slot];
            if taken == Slots::FREE {
                return None;
            }
            let at = (taken >> 32) as usize;
            if taken as u32 == hash as u32 && self.id(at) == item_id {
                return Some(at);
            }
            slot = slots.after(slot);
        }
    }

    #[inline]
    fn id(&self, at: usize) -> &[u8] {
        let start = at + HEAD;
        let length = usize::from(u16::from_le_bytes([
            self.records[start - 2],
            self.records[start - 1],
        ]));
        &self.records[start..start + length]
    }

    #[inline]
    fn item(&self, at: usize) -> Item<'_> {
        let record = &self.records[at..at + HEAD];
        let four = |at: usize| {
            u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        let length = usize::from(u16::from_le_bytes([record[8], record[9]]));
        let code = four(4);
        let text = if code & (LIST | TEXT) == TEXT {
            (code & !TEXT) as usize
        } else {
            0
        };
        Item {
            table: self,
            ordinal: four(0) as usize,
            code,
            next: at + HEAD + length + text,
        }
    }

    /// All items, in the suite's order.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            (at < self.records.len()).then(|| {
                let item = self.item(at);
                at = item.next;
                item
            })
        })
    }

    /// How many distinct labels the answers have.
    pub fn n_labels(&self) -> usize {
        self.labels.ends.len()
    }

    /// A label's text.
    pub(super) fn label(&self, label: u32) -> &[u8] {
        self.labels.get(label)
    }

    /// The number of the label with this text. Not for rankings.
    pub(super) fn find_label(&self, label: &str) -> Option<u32> {
        self.labels.find(&self.hash, label.as_bytes())
    }

    /// The ids of the items, in the suite's order.
    pub(super) fn item_ids(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = (at < self.records.len()).then_some(at)?;
            at = self.item(start).next;
            Some(self.id(start))
        })
    }

    /// The answers that are numbers, by ordinal.
    pub(super) fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Whether some answer is a list.
    pub(super) fn has_lists(&self) -> bool {
        !self.lists.is_empty()
    }
}

/// What is right for an item.
pub(super) enum Right<'t> {
    /// One label, with a gain of 1.
    Label(u32),
    /// One id, with a gain of 1.
    Text(&'t [u8]),
    /// Several.
    List(List<'t>),
}

/// Several labels that are right, by falling gain. There is at least one.
#[derive(Clone, Copy)]
pub(super) struct List<'t> {
    table: &'t AnswerTable,
    labels: &'t [u32],
    /// Empty where all are 1.
    gains: &'t [f64],
}

impl<'t> Item<'t> {
    #[inline]
    pub(super) fn right(self) -> Right<'t> {
        let Self {
            table, code, next, ..
        } = self;
        if code & LIST == 0 {
            let text = (code & !TEXT) as usize;
            return if code & TEXT == 0 {
                Right::Label(code)
            } else {
                Right::Text(&table.records[next - text..next])
            };
        }
        let list = (code & !LIST) as usize;
        let start = list
            .checked_sub(1)
            .map_or(0, |before| table.lists[before] as usize);
        let range = start..table.lists[list] as usize;
        Right::List(List {
            table,
            labels: &table.listed[range.clone()],
            gains: table.gains.get(range).unwrap_or_default(),
        })
    }

    /// The label that is right, where there is one.
    pub(super) fn label(self) -> u32 {
        self.code
    }

    /// The number that is right, where answers are numbers.
    pub(super) fn number(self) -> f64 {
        self.table.numbers[self.ordinal]
    }
}

impl<'t> List<'t> {
    pub(super) fn len(self) -> usize {
        self.labels.len()
    }

    /// The right ids with their gains.
    pub(super) fn answers(self) -> impl ExactSizeIterator<Item = (&'t [u8], f64)> {
        let Self {
            table,
            labels,
            gains,
        } = self;
        labels
            .iter()
            .enumerate()
            .map(move |(at, label)| (table.label(*label), gains.get(at).copied().unwrap_or(1.0)))
    }
}

fn offset(at: usize) -> Result<u32, Corrupt> {
    u32::try_from(at).map_err(|_| too_large())
}

fn too_large() -> Corrupt {
    Corrupt::new("the suite's ids take more than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(gains: &[(&'static str, f64)]) -> Answer<'static> {
        Answer::Gains(
            gains
                .iter()
                .map(|(id, gain)| ((*id).into(), *gain))
                .collect(),
        )
    }

    fn build<'a>(
        metric: Metric,
        n: usize,
        items: impl IntoIterator<Item = (&'a str, Answer<'a>)>,
    ) -> Result<AnswerTable, Corrupt> {
        let mut builder = Builder::new(metric, n);
        items
            .into_iter()
            .try_for_each(|(item_id, answer)| builder.push(item_id, &answer))?;
        builder.finish()
    }

    fn answers<'t>(table: &'t AnswerTable, item_id: &str) -> (usize, Vec<(&'t str, f64)>) {
        let item = table
            .find(item_id, &mut NextRecord::default(), &Prefetch::default())
            .unwrap();
        let right = match item.right() {
            Right::Label(label) => vec![(table.label(label), 1.0)],
            Right::Text(id) => vec![(id, 1.0)],
            Right::List(list) => list.answers().collect(),
        };
        (
            item.ordinal,
            right
                .into_iter()
                .map(|(id, gain)| (str::from_utf8(id).unwrap(), gain))
                .collect(),
        )
    }

    #[test]
    fn answers_are_found_by_falling_gain() {
        let items = [
            ("a", gains(&[("x", 0.5), ("zero", 0.0), ("y", 3.0)])),
            ("ä", Answer::Label("x".into())),
            ("c", Answer::Set(vec!["q".into(), "".into()])),
        ];
        for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
            let table = build(
                Metric::Accuracy,
                0,
                order.map(|at: usize| items[at].clone()),
            )
            .unwrap();
            assert_eq!(table.len(), 3);
            let at = |item: usize| order.iter().position(|placed| *placed == item).unwrap();
            assert_eq!(answers(&table, "a"), (at(0), vec![("y", 3.0), ("x", 0.5)]));
            assert_eq!(answers(&table, "ä"), (at(1), vec![("x", 1.0)]));
            assert_eq!(answers(&table, "c"), (at(2), vec![("q", 1.0), ("", 1.0)]));
            for stranger in ["x", "", "aa"] {
                assert!(
                    table
                        .find(stranger, &mut NextRecord::default(), &Prefetch::default())
                        .is_none()
                );
            }
        }
    }

    #[test]
    fn a_look_up_looks_at_few_slots() {
        let ids: Vec<String> = (0..100_000).map(|at| format!("q{at:09}")).collect();
        let table = build(
            Metric::Mae,
            ids.len(),
            ids.iter().map(|id| (id.as_str(), Answer::Number(0.0))),
        )
        .unwrap();
        let (slots, _) = table.make_slots();
        let looked_at = |id: &str| {
            let hash = table.hash.hash_one(id.as_bytes());
            let (mut slot, mut n) = (slots.begin(hash), 1);
            while slots.0[slot] as u32 != hash as u32 {
                (slot, n) = (slots.after(slot), n + 1);
            }
            n
        };
        // Knuth: (1 + 1/(1 - 0.7))/2, a little more than two.
        let all: usize = ids.iter().map(|id| looked_at(id)).sum();
        assert!(all < ids.len() * 3, "{all}");
    }

    #[test]
    fn an_item_that_is_there_twice_is_refused() {
        for ids in [
            ["a", "b", "a"],
            ["a", "a", "b"],
            ["b", "a", "a"],
            ["", "", "a"],
        ] {
            let twice = ids.map(|id| (id, Answer::Label("x".into())));
            assert!(build(Metric::Accuracy, 3, twice).is_err(), "{ids:?}");
        }
    }

    #[test]
    fn items_are_found_in_every_order_however_the_table_grew() {
        let rising = (0..5000).map(|at| format!("{at:04}")).collect::<Vec<_>>();
        let mixed = (0..5000)
            .map(|at| format!("{}", at * 7919 % 5000))
            .collect::<Vec<_>>();
        for (n, ids) in [
            (0, &rising),
            (5000, &rising),
            (0, &mixed),
            (100, &mixed),
            (5000, &mixed),
        ] {
            let items = ids
                .iter()
                .enumerate()
                .map(|(at, id)| (id.as_str(), Answer::Number(at as f64)));
            let table = build(Metric::Mae, n, items).unwrap();
            for step in [1, 4999, 1234] {
                let (mut hint, prefetch, mut foreseen) =
                    (NextRecord::default(), Prefetch::default(), 0);
                let order: Vec<_> = (0..5000).map(|at| at * step % 5000).collect();
                for batch in order.chunks(37) {
                    // Strangers are among them, and some are told that are not asked for.
                    let told: Vec<_> = batch
                        .iter()
                        .flat_map(|at| [ids[*at].as_str(), "stranger"])
                        .collect();
                    prefetch.load(&table, &told);
                    for at in batch {
                        foreseen += usize::from(prefetch.next.get() < Prefetch::MOST);
                        let item = table.find(&ids[*at], &mut hint, &prefetch).unwrap();
                        assert_eq!((item.ordinal, item.number()), (*at, *at as f64));
                        assert!(table.find("stranger", &mut hint, &prefetch).is_none());
                    }
                }
                assert!(foreseen > 1000, "{foreseen}");
            }
            assert!(table.items().map(|item| item.ordinal).eq(0..5000));
        }
    }

    #[test]
    fn an_item_with_ids_of_ten_characters_takes_at_most_48_bytes() {
        for (metric, distinct, most) in [
            (Metric::Accuracy, 1, 42),
            (Metric::Accuracy, 100_000, 42),
            (Metric::ExactMatch, 1000, 33),
            (Metric::LogLoss, 100_000, 58),
        ] {
            let ids: Vec<_> = (0..100_000)
                .map(|at| (format!("{at:010}"), format!("{:010}", at % distinct)))
                .collect();
            let items = ids
                .iter()
                .map(|(id, answer)| (id.as_str(), Answer::Label(answer.as_str().into())));
            let table = build(metric, 100_000, items).unwrap();
            assert!(
                table.bytes() <= most * table.len(),
                "{}",
                table.bytes() / table.len()
            );
        }
    }
}
