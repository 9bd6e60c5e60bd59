//! A suite's hidden answers in memory. A table is built once and shared by every job that
//! needs it.

use std::borrow::Cow;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::OnceLock;

use hashbrown::DefaultHashBuilder;

use super::answer_shares::{AnswerShares, Distribution};
use super::catalog::Catalog;
use super::label_set::{LabelSet, offset, too_large};
use super::retest_scores::RetestScores;
use super::skill::SkillScores;
use crate::clusters::{Average, Clusters};
use crate::error::Corrupt;
use crate::metric::{Clip, Family, Metric};
use crate::prediction::PredictionRules;
use crate::quantile_levels::QuantileLevels;
use crate::slices::FieldSlices;
use crate::suite::answers::Answer;

/// An item set's answers, in the suite's order.
///
/// Each item is one record in a byte vector: its ordinal, its answer's code, its id's length, and
/// the id. For rankings with one right id, that id follows, so that one look-up reads adjacent
/// memory. Other labels are stored once per table.
///
/// Items are found by open addressing over slots. A slot holds a record's offset and 32 bits from
/// the id's hash, so a look-up reads memory twice. An item that follows the previous look-up's is
/// found without its slot: its record is the next one. The slots are built when they are first
/// needed, which is never if all predictions are in the suite's order. An item whose ids have ten
/// characters takes 42 bytes.
#[derive(Debug)]
pub struct AnswerTable {
    records: Vec<u8>,
    /// Built when an item is first looked up out of order.
    slots: OnceLock<Slots>,
    n: usize,
    labels: LabelSet,
    /// The ends in `listed` for answers with several ids.
    lists: Vec<u32>,
    /// These answers' labels, each answer by descending gain.
    listed: Vec<u32>,
    /// `listed`'s gains; empty if all gains are 1.
    gains: Vec<f64>,
    /// The answers by ordinal, if they are numbers.
    numbers: Vec<f64>,
    /// The shares of answers that are distributions.
    shares: AnswerShares,
    /// Set if an answer is a single label.
    has_labels: bool,
    clip: Option<Clip>,
    /// The levels of predicted quantiles; `None` if predictions are no quantiles.
    levels: Option<QuantileLevels>,
    /// The items' clusters; `None` if items are independent.
    clusters: Option<Clusters>,
    /// The slices that are scored, by field.
    slices: Vec<FieldSlices>,
    /// The scores of the retest; `None` without one.
    retest: Option<RetestScores>,
    /// The scores of the baseline whose skill is 0; `None` without a skill.
    skill: Option<SkillScores>,
    /// The ids that a ranking can show; `None` without a catalog.
    catalog: Option<Catalog>,
    /// A fast hash that does not resist chosen keys: only the operator's ids are inserted.
    hash: DefaultHashBuilder,
}

/// A record's length before its id, in bytes: ordinal, code and id length.
const RECORD_HEADER_BYTES: usize = 10;

/// Marks an answer's code with several ids or with shares. The other bits are the index of its list or
/// of its shares.
const LIST: u32 = 1 << 31;

/// Marks an answer's code that is stored in the record. The other bits are its length. A code
/// without a mark is a label.
const TEXT: u32 = 1 << 30;

/// The hash table's slots: a record's offset in the upper, 32 bits from its id's hash in the
/// lower half.
#[derive(Debug, Default)]
struct Slots(Vec<u64>);

impl Slots {
    const FREE: u64 = u64::MAX;

    /// Returns free slots for `n` items; at most 70 % will be used.
    fn for_items(n: usize) -> Self {
        Self(vec![Self::FREE; Self::count(n)])
    }

    fn count(n: usize) -> usize {
        (n * 10).div_ceil(7).max(8)
    }

    /// Returns the slot where the search for a hash starts.
    #[inline]
    fn first(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.0.len() as u128) >> 64) as usize
    }

    /// Returns the slot that the search visits next.
    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.0.len() {
            0
        } else {
            slot + 1
        }
    }
}

/// One table item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'t> {
    table: &'t AnswerTable,
    /// The place in the table, from 0.
    pub(super) ordinal: usize,
    code: u32,
    /// The next record's offset.
    next: usize,
}

/// The record offset where the next look-up searches first: many submissions keep the
/// suite's order.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NextRecord(usize);

/// The prefetch buffer: the next items' record offsets. While the predictions are not
/// in the suite's order, up to 32 items' memory is requested together instead of one by one.
#[derive(Debug)]
pub(super) struct Prefetch {
    /// Set while the predictions are not in the suite's order.
    is_scattered: bool,
    /// Record offsets, filled from the end.
    offsets: [u32; Self::CAPACITY],
    /// The next offset's index; `CAPACITY` if none is left.
    next: usize,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            is_scattered: false,
            offsets: [0; Self::CAPACITY],
            next: Self::CAPACITY,
        }
    }
}

impl Prefetch {
    const CAPACITY: usize = 32;

    /// Prefetches the next look-ups' items, in this order. Does nothing while the look-ups
    /// are in the suite's order. Items after the 32nd are ignored.
    pub(super) fn load(&mut self, table: &AnswerTable, item_ids: &[&str]) {
        if self.is_scattered {
            let item_ids = &item_ids[..item_ids.len().min(Self::CAPACITY)];
            self.next = Self::CAPACITY - item_ids.len();
            table.prefetch(item_ids, &mut self.offsets[self.next..]);
        }
    }

    /// Returns the offset for the current look-up, if one is left.
    #[inline]
    fn next(&mut self) -> Option<usize> {
        let offset = *self.offsets.get(self.next)?;
        self.next += 1;
        Some(offset as usize)
    }
}

/// A table under construction. Items are added in the suite's order.
pub struct Builder {
    table: AnswerTable,
    metric: Metric,
    /// Set if labels are looked up after the table is built.
    keeps_label_index: bool,
    /// Set if a single right id is stored in the record.
    inlines_labels: bool,
    /// The place of the last id, if all ids so far are ascending: then no id is repeated.
    last_ascending: Option<Range<usize>>,
    /// The label of each item's cluster, if items are in clusters.
    cluster_labels: Vec<u32>,
    average: Average,
}

impl Builder {
    /// Creates a table without items for a metric. `n` is the expected item count; more are
    /// possible, but reallocate.
    pub fn new(metric: Metric, n: usize) -> Self {
        let table = AnswerTable {
            records: Vec::with_capacity(n * (RECORD_HEADER_BYTES + 16)),
            slots: OnceLock::new(),
            n: 0,
            labels: LabelSet::default(),
            lists: Vec::new(),
            listed: Vec::new(),
            gains: Vec::new(),
            numbers: Vec::with_capacity(if metric.has_number_answers() { n } else { 0 }),
            shares: AnswerShares::default(),
            has_labels: false,
            clip: None,
            levels: None,
            clusters: None,
            slices: Vec::new(),
            retest: None,
            skill: None,
            catalog: None,
            hash: DefaultHashBuilder::default(),
        };
        Self {
            table,
            metric,
            keeps_label_index: matches!(metric.family(), Family::Labels | Family::Probabilities),
            inlines_labels: metric.family() == Family::Rankings,
            last_ascending: Some(0..0),
            cluster_labels: Vec::new(),
            average: Average::Item,
        }
    }

    /// Sets the unit that has equal weights in a value over the items. [`Average::Cluster`] is for metrics that
    /// [can average clusters](Metric::can_average_clusters), and needs clusters.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.average = average;
        self
    }

    /// Sets the options that the suite names, in their order. Without them, each distribution has its own
    /// options, and an item whose answer is a label has all labels of the suite. Must be called before the
    /// first answer is added.
    #[must_use]
    pub fn options(mut self, labels: &[String]) -> Self {
        let AnswerTable {
            labels: known,
            hash,
            shares,
            ..
        } = &mut self.table;
        // The index of a label overflows with 4 GiB of text only; the options have been checked.
        let named = labels
            .iter()
            .filter(|label| known.get_or_insert(hash, label.as_bytes()).is_ok());
        shares.set_named(named.count());
        self
    }

    /// Sets the bounds of each item's loss.
    #[must_use]
    pub fn clip(mut self, clip: Option<Clip>) -> Self {
        self.table.clip = clip;
        self
    }

    /// Sets the levels of predicted quantiles. Metrics of the family [`Family::Quantiles`] need them; other
    /// metrics ignore them.
    #[must_use]
    pub fn quantiles(mut self, levels: Option<QuantileLevels>) -> Self {
        self.table.levels = levels.filter(|_| self.metric.family() == Family::Quantiles);
        self
    }

    /// Sets the group fields whose slices are scored.
    #[must_use]
    pub fn slices(mut self, fields: Vec<FieldSlices>) -> Self {
        self.table.slices = fields;
        self
    }

    /// Adds the next item. Fails with [`Corrupt`] if all ids together exceed 4 GiB: publishing has
    /// checked the suite.
    pub fn push(&mut self, item_id: &str, answer: &Answer<'_>) -> Result<(), Corrupt> {
        let table = &mut self.table;
        let mut text: &[u8] = &[];
        let code = match answer {
            Answer::Label(label) if self.inlines_labels && label.len() < TEXT as usize => {
                text = label.as_bytes();
                TEXT | offset(label.len())?
            }
            Answer::Label(label) => {
                table.has_labels = true;
                table.labels.get_or_insert(&table.hash, label.as_bytes())?
            }
            Answer::Shares(shares) => LIST | table.push_shares(shares)?,
            Answer::Set(_) | Answer::Gains(_) => table.push_list(answer)?,
            Answer::Number(number) => {
                table.numbers.push(*number);
                0
            }
        };
        let at = table.records.len();
        if u32::try_from(at + RECORD_HEADER_BYTES + item_id.len() + text.len()).is_err() {
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
        let id = at + RECORD_HEADER_BYTES..table.records.len();
        table.records.extend_from_slice(text);
        table.n += 1;
        self.last_ascending = self
            .last_ascending
            .take()
            .filter(|last| table.records[last.clone()] < table.records[id.clone()])
            .map(|_| id);
        Ok(())
    }

    /// Adds another table's labels, without its items. The largest number of options of an item is that
    /// of both tables.
    pub fn know_labels(&mut self, other: &AnswerTable) -> Result<(), Corrupt> {
        self.table.shares.know_most(other.n_options());
        let AnswerTable { labels, hash, .. } = &mut self.table;
        for label in 0..other.n_labels() as u32 {
            labels.get_or_insert(hash, other.label(label))?;
        }
        Ok(())
    }

    /// Adds the number of people behind the last answer. The noise floor needs it for
    /// every item.
    pub fn add_people(&mut self, n: u32) {
        self.table.shares.add_people(n);
    }

    /// Puts the last added item into a cluster: that of all items with this label. Every item needs
    /// one, or none has one.
    pub fn put_into_cluster(&mut self, label: u32) {
        self.cluster_labels.push(label);
    }

    /// Puts the last added item into a slice of each field, in the order of the fields.
    pub fn put_into_slices(&mut self, codes: &[u8]) {
        let fields = self.table.slices.iter_mut();
        fields
            .zip(codes)
            .for_each(|(field, code)| field.codes.push(*code));
    }

    /// Returns the table, without spare capacity. Fails with [`Corrupt`] if an item id is repeated,
    /// if some items only are in clusters or slices, if the value is an average over clusters and
    /// there are none, or if the metric needs other quantile levels.
    pub fn finish(self) -> Result<AnswerTable, Corrupt> {
        let Self {
            mut table,
            metric,
            keeps_label_index,
            inlines_labels: _,
            last_ascending,
            cluster_labels,
            average,
        } = self;
        PredictionRules::new(metric, table.levels.clone())?;
        if average == Average::Cluster && cluster_labels.is_empty() && table.n > 0 {
            return Err(Corrupt::new(
                "the suite averages clusters, but its items are in none",
            ));
        }
        if !cluster_labels.is_empty() {
            if cluster_labels.len() != table.n {
                return Err(Corrupt::new("some items of the suite only are in clusters"));
            }
            table.clusters = Some(Clusters::from_labels(cluster_labels).with_average(average));
        }
        if table
            .slices
            .iter()
            .any(|field| field.codes.len() != table.n)
        {
            return Err(Corrupt::new("some items of the suite only are in slices"));
        }
        let fields = table.slices.iter_mut();
        fields.for_each(|field| field.codes.shrink_to_fit());
        if last_ascending.is_none() {
            let (slots, repeated) = table.build_slots();
            if let Some(at) = repeated {
                let item_id = String::from_utf8_lossy(table.id(at));
                return Err(Corrupt::new(format!(
                    "the suite has the item {item_id:?} twice"
                )));
            }
            table.slots = OnceLock::from(slots);
        }
        if !keeps_label_index {
            table.labels.drop_index();
        }
        table.records.shrink_to_fit();
        table.labels.shrink_to_fit();
        table.lists.shrink_to_fit();
        table.listed.shrink_to_fit();
        table.gains.shrink_to_fit();
        table.numbers.shrink_to_fit();
        table.shares.finish(table.n);
        Ok(table)
    }
}

impl AnswerTable {
    /// Adds the shares of an answer, and returns their index.
    fn push_shares(&mut self, shares: &[(Cow<'_, str>, f64)]) -> Result<u32, Corrupt> {
        let shares = shares.iter().map(|(label, share)| {
            let label = self.labels.get_or_insert(&self.hash, label.as_bytes());
            Ok((label?, *share))
        });
        let shares = shares.collect::<Result<Vec<_>, Corrupt>>()?;
        let index = self.shares.push(&shares)?;
        if index < TEXT {
            Ok(index)
        } else {
            Err(too_large())
        }
    }

    fn push_list(&mut self, answer: &Answer<'_>) -> Result<u32, Corrupt> {
        let mut relevant = answer.relevant();
        relevant.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (id, gain) in relevant {
            if gain != 1.0 && self.gains.is_empty() {
                self.gains.resize(self.listed.len(), 1.0);
            }
            self.listed
                .push(self.labels.get_or_insert(&self.hash, id.as_bytes())?);
            // `gains` is still empty if the very first gain is not 1.
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

    /// Returns the slots, and a repeated item's offset if there is one. Items are inserted in
    /// batches: a batch's slots are read first, so that their cache misses overlap.
    fn build_slots(&self) -> (Slots, Option<usize>) {
        const BATCH: usize = 16;

        let mut slots = Slots::for_items(self.n);
        let mut at = 0;
        let mut repeated = None;
        while at < self.records.len() {
            let mut batch = [(0, 0, 0); BATCH];
            let mut n = 0;
            while n < BATCH && at < self.records.len() {
                let id = self.id(at);
                let hash = self.hash.hash_one(id);
                let slot = slots.first(hash);
                batch[n] = (at, hash, slot);
                at = self.item(at).next;
                n += 1;
            }
            // Prefetches the slots: the reads do not depend on each other.
            std::hint::black_box(
                batch[..n]
                    .iter()
                    .fold(0, |seen, (_, _, slot)| seen ^ slots.0[*slot]),
            );
            for (at, hash, mut slot) in batch[..n].iter().copied() {
                while slots.0[slot] != Slots::FREE {
                    let content = slots.0[slot];
                    if content as u32 == hash as u32
                        && self.id((content >> 32) as usize) == self.id(at)
                    {
                        repeated = repeated.or(Some(at));
                    }
                    slot = slots.next(slot);
                }
                slots.0[slot] = (at as u64) << 32 | hash & 0xffff_ffff;
            }
        }
        (slots, repeated)
    }

    /// Returns the item count.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Returns the bounds of an item's loss.
    pub(super) fn clip(&self) -> Option<Clip> {
        self.clip
    }

    /// Returns the levels of predicted quantiles.
    pub(super) fn levels(&self) -> Option<&QuantileLevels> {
        self.levels.as_ref()
    }

    /// Returns the items' clusters; `None` if items are independent.
    pub fn clusters(&self) -> Option<&Clusters> {
        self.clusters.as_ref()
    }

    /// Returns `true` if the value is the mean over the clusters of the metric within the cluster.
    pub(super) fn averages_clusters(&self) -> bool {
        let clusters = self.clusters.as_ref();
        clusters.is_some_and(|clusters| clusters.average() == Average::Cluster)
    }

    /// Returns the slices that are scored, by field.
    pub(super) fn slices(&self) -> &[FieldSlices] {
        &self.slices
    }

    /// Puts the items into these clusters instead of their own.
    pub(crate) fn set_clusters(&mut self, clusters: Clusters) {
        self.clusters = Some(clusters);
    }

    /// Sets the scores of the retest, which a [`CeilingBuilder`](super::CeilingBuilder) has computed for
    /// this table. From then on, a score has the ceiling and its share of it.
    pub fn set_retest(&mut self, retest: RetestScores) {
        self.retest = Some(retest);
    }

    /// Returns the scores of the retest; `None` without one.
    pub fn retest(&self) -> Option<&RetestScores> {
        self.retest.as_ref()
    }

    /// Sets the scores of the baseline, which [`score_skill_baseline`](super::score_skill_baseline) has
    /// computed for this table. From then on, a score has a skill.
    pub fn set_skill(&mut self, skill: SkillScores) {
        self.skill = Some(skill);
    }

    /// Returns the scores of the baseline whose skill is 0; `None` without a skill.
    pub fn skill(&self) -> Option<&SkillScores> {
        self.skill.as_ref()
    }

    /// Sets the catalog of a suite of rankings. From then on, the figures of scored predictions have those
    /// of the ids that they show. Of a suite with sealed items, the table of the open ones has it.
    pub fn set_catalog(&mut self, catalog: Catalog) {
        self.catalog = Some(catalog);
    }

    /// Returns the ids that a ranking can show; `None` without a catalog.
    pub fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref()
    }

    /// Returns a loss, clamped to the suite's bounds.
    pub(super) fn clipped(&self, loss: f64) -> f64 {
        self.clip.map_or(loss, |clip| clip.apply(loss))
    }

    /// Returns `true` if there are no items.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Returns the heap memory in bytes, including the slots even if they are not built yet.
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
            shares,
            has_labels: _,
            clip: _,
            levels: _,
            clusters,
            slices,
            retest,
            skill,
            catalog,
            hash: _,
        } = self;
        let lists = size_of::<u32>() * (lists.capacity() + listed.capacity());
        records.capacity()
            + labels.bytes()
            + lists
            + shares.bytes()
            + clusters.as_ref().map_or(0, Clusters::bytes)
            + slices.iter().map(FieldSlices::bytes).sum::<usize>()
            + retest.as_ref().map_or(0, RetestScores::bytes)
            + skill.as_ref().map_or(0, SkillScores::bytes)
            + catalog.as_ref().map_or(0, Catalog::bytes)
            + size_of::<u64>() * (Slots::count(*n) + gains.capacity() + numbers.capacity())
    }

    /// Returns the item with this id.
    #[inline]
    pub(super) fn find(
        &self,
        item_id: &str,
        next_record: &mut NextRecord,
        prefetch: &mut Prefetch,
    ) -> Option<Item<'_>> {
        let item_id = item_id.as_bytes();
        let is_at = |at: &usize| *at < self.records.len() && self.id(*at) == item_id;
        let at = match prefetch.next().filter(is_at) {
            Some(at) => {
                prefetch.is_scattered = at != next_record.0;
                at
            }
            None if is_at(&next_record.0) => {
                prefetch.is_scattered = false;
                next_record.0
            }
            None => {
                prefetch.is_scattered = true;
                self.look_up(item_id, self.hash.hash_one(item_id))?
            }
        };
        let item = self.item(at);
        next_record.0 = item.next;
        Some(item)
    }

    /// Writes these items' probable record offsets, found by 32 bits from their hashes,
    /// and reads the records into the cache. Each step is done for all items before the next one,
    /// so that their cache misses overlap.
    fn prefetch(&self, item_ids: &[&str], offsets: &mut [u32]) {
        const CACHE_LINE: usize = 64;

        let slots = self.slots.get_or_init(|| self.build_slots().0);
        let mut searches = [(0, 0_u64); Prefetch::CAPACITY];
        for (search, item_id) in searches.iter_mut().zip(item_ids) {
            let hash = self.hash.hash_one(item_id.as_bytes());
            *search = (slots.first(hash), hash);
        }
        let searches = &searches[..item_ids.len()];
        // Prefetches the slots: the reads do not depend on each other, and `black_box` keeps them.
        std::hint::black_box(
            searches
                .iter()
                .fold(0, |read, (slot, _)| read ^ slots.0[*slot]),
        );
        let mut read = 0;
        for ((slot, hash), offset) in searches.iter().zip(offsets) {
            let (mut slot, mut content) = (*slot, slots.0[*slot]);
            while content != Slots::FREE && content as u32 != *hash as u32 {
                slot = slots.next(slot);
                content = slots.0[slot];
            }
            // For an unknown item this is `u32::MAX`, after all records' end.
            *offset = (content >> 32) as u32;
            // A record may cross a cache line.
            let byte = |at: usize| self.records.get(at).copied().unwrap_or(0);
            read ^=
                byte((content >> 32) as usize) ^ byte((content >> 32) as usize + CACHE_LINE / 2);
        }
        std::hint::black_box(read);
    }

    /// Returns the record's offset with this id.
    fn look_up(&self, item_id: &[u8], hash: u64) -> Option<usize> {
        let slots = self.slots.get_or_init(|| self.build_slots().0);
        let mut slot = slots.first(hash);
        loop {
            let content = slots.0[slot];
            if content == Slots::FREE {
                return None;
            }
            let at = (content >> 32) as usize;
            if content as u32 == hash as u32 && self.id(at) == item_id {
                return Some(at);
            }
            slot = slots.next(slot);
        }
    }

    #[inline]
    fn id(&self, at: usize) -> &[u8] {
        let start = at + RECORD_HEADER_BYTES;
        let length = usize::from(u16::from_le_bytes([
            self.records[start - 2],
            self.records[start - 1],
        ]));
        &self.records[start..start + length]
    }

    #[inline]
    fn item(&self, at: usize) -> Item<'_> {
        let header = &self.records[at..at + RECORD_HEADER_BYTES];
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = usize::from(u16::from_le_bytes([header[8], header[9]]));
        let code = number(4);
        let text = if code & (LIST | TEXT) == TEXT {
            (code & !TEXT) as usize
        } else {
            0
        };
        Item {
            table: self,
            ordinal: number(0) as usize,
            code,
            next: at + RECORD_HEADER_BYTES + length + text,
        }
    }

    /// Returns all items, in the suite's order.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> + Clone {
        let mut at = 0;
        std::iter::from_fn(move || {
            (at < self.records.len()).then(|| {
                let item = self.item(at);
                at = item.next;
                item
            })
        })
    }

    /// Returns how many distinct labels the answers have.
    pub fn n_labels(&self) -> usize {
        self.labels.len()
    }

    /// Returns the largest number of options of an item. For answers that are labels, these are all labels
    /// of the answers, unless the suite names the options.
    pub fn n_options(&self) -> usize {
        match (self.shares.n_named(), self.has_labels) {
            (0, true) => self.shares.most().max(self.n_labels()),
            (0, false) => self.shares.most(),
            (n_named, _) => n_named,
        }
    }

    /// Returns the number of options that the suite names; 0 if it names none.
    pub(super) fn n_named_options(&self) -> usize {
        self.shares.n_named()
    }

    /// Returns `true` if an answer is a distribution.
    pub fn has_distributions(&self) -> bool {
        !self.shares.is_empty()
    }

    /// Returns `true` if a constant distribution makes sense for all items: the suite names the options, or
    /// the answers are labels.
    pub(super) fn has_common_options(&self) -> bool {
        self.n_named_options() > 0 || !self.has_distributions()
    }

    /// Returns the number of people behind each answer, by ordinal; empty unless all have one.
    pub(super) fn people(&self) -> &[u32] {
        self.shares.people()
    }

    /// Returns a label's bytes.
    pub(super) fn label(&self, label: u32) -> &[u8] {
        self.labels.get(label)
    }

    /// Returns a label's number. Only for labels and probabilities: ranking tables have no
    /// index.
    pub(super) fn find_label(&self, label: &str) -> Option<u32> {
        self.labels.find(&self.hash, label.as_bytes())
    }

    /// Returns the item ids, in the suite's order.
    pub(super) fn item_ids(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = (at < self.records.len()).then_some(at)?;
            at = self.item(start).next;
            Some(self.id(start))
        })
    }

    /// Returns the answers by ordinal; empty if they are not numbers.
    pub(super) fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Returns `true` if an answer has several ids.
    pub(super) fn has_lists(&self) -> bool {
        !self.lists.is_empty()
    }
}

/// An item's right ids.
pub(super) enum Right<'t> {
    /// One label in the table, with gain 1.
    Label(u32),
    /// One id stored in the record, with gain 1.
    Text(&'t [u8]),
    /// Several ids with gains.
    List(List<'t>),
}

/// Several right labels, by descending gain. There is at least one.
#[derive(Clone, Copy)]
pub(super) struct List<'t> {
    table: &'t AnswerTable,
    labels: &'t [u32],
    /// Empty if all gains are 1.
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

    /// Returns the answer as a distribution. Only for probability tables.
    #[inline]
    pub(super) fn distribution(self) -> Distribution<'t> {
        let Self { table, code, .. } = self;
        if code & LIST == 0 {
            let n_named = table.n_named_options();
            let n = if n_named > 0 {
                n_named
            } else {
                table.n_labels()
            };
            Distribution::Label(code, n)
        } else {
            table.shares.get(code & !LIST)
        }
    }

    /// Returns the options, in their order. Only for probability tables.
    pub(super) fn options(self) -> impl Iterator<Item = &'t [u8]> {
        let answer = self.distribution();
        let table = self.table;
        (0..answer.len()).map(move |place| table.label(answer.option(place)))
    }

    /// Returns the right label. Only for label and probability tables whose answers are labels.
    pub(super) fn label(self) -> u32 {
        self.code
    }

    /// Returns the ordinal and the right label. Only for label tables.
    pub(super) fn place(self) -> (usize, u32) {
        (self.ordinal, self.code)
    }

    /// Returns the right number. Only for number tables.
    pub(super) fn number(self) -> f64 {
        self.table.numbers[self.ordinal]
    }

    /// Returns the absolute error of a predicted number, clamped to the suite's bounds.
    pub(super) fn error(self, predicted: f64) -> f64 {
        self.table.clipped((predicted - self.number()).abs())
    }
}

impl<'t> List<'t> {
    pub(super) fn len(self) -> usize {
        self.labels.len()
    }

    /// Returns the right ids with their gains.
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
            .find(
                item_id,
                &mut NextRecord::default(),
                &mut Prefetch::default(),
            )
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
    fn answers_are_sorted_by_gain() {
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
            for unknown in ["x", "", "aa"] {
                assert!(
                    table
                        .find(
                            unknown,
                            &mut NextRecord::default(),
                            &mut Prefetch::default()
                        )
                        .is_none()
                );
            }
        }
    }

    #[test]
    fn look_up_visits_few_slots() {
        let ids: Vec<String> = (0..100_000).map(|at| format!("q{at:09}")).collect();
        let table = build(
            Metric::Mae,
            ids.len(),
            ids.iter().map(|id| (id.as_str(), Answer::Number(0.0))),
        )
        .unwrap();
        let (slots, _) = table.build_slots();
        let visited = |id: &str| {
            let hash = table.hash.hash_one(id.as_bytes());
            let mut slot = slots.first(hash);
            let mut n = 1;
            while slots.0[slot] as u32 != hash as u32 {
                (slot, n) = (slots.next(slot), n + 1);
            }
            n
        };
        // D. E. Knuth: the expected number is (1 + 1/(1 - 0.7))/2, a little more than two.
        let all: usize = ids.iter().map(|id| visited(id)).sum();
        assert!(all < ids.len() * 3, "{all}");
    }

    #[test]
    fn repeated_item_is_rejected() {
        for ids in [
            ["a", "b", "a"],
            ["a", "a", "b"],
            ["b", "a", "a"],
            ["", "", "a"],
        ] {
            let items = ids.map(|id| (id, Answer::Label("x".into())));
            assert!(build(Metric::Accuracy, 3, items).is_err(), "{ids:?}");
        }
    }

    #[test]
    fn items_are_found_in_any_order() {
        let ascending = (0..5000).map(|at| format!("{at:04}")).collect::<Vec<_>>();
        let mixed = (0..5000)
            .map(|at| format!("{}", at * 7919 % 5000))
            .collect::<Vec<_>>();
        for (n, ids) in [
            (0, &ascending),
            (5000, &ascending),
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
                let mut next_record = NextRecord::default();
                let mut prefetch = Prefetch::default();
                let mut prefetched = 0;
                let order: Vec<_> = (0..5000).map(|at| at * step % 5000).collect();
                for batch in order.chunks(37) {
                    // Among the announced ids are unknown ones, and more than the buffer holds.
                    let announced: Vec<_> = batch
                        .iter()
                        .flat_map(|at| [ids[*at].as_str(), "unknown"])
                        .collect();
                    prefetch.load(&table, &announced);
                    for at in batch {
                        prefetched += usize::from(prefetch.next < Prefetch::CAPACITY);
                        let item = table
                            .find(&ids[*at], &mut next_record, &mut prefetch)
                            .unwrap();
                        assert_eq!((item.ordinal, item.number()), (*at, *at as f64));
                        assert!(
                            table
                                .find("unknown", &mut next_record, &mut prefetch)
                                .is_none()
                        );
                    }
                }
                assert!(prefetched > 1000, "{prefetched}");
            }
            assert!(table.items().map(|item| item.ordinal).eq(0..5000));
        }
    }

    #[test]
    fn memory_per_item_is_bounded() {
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
