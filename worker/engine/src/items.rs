//! `items.ndjson`: a model's catalog items and their codes.

use std::borrow::Cow;
use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Deserialize;

use crate::code::read_code;
use crate::error::PackageError;
use crate::trie::Trie;

/// Largest item count.
const ITEMS_MAX: usize = 10_000_000;

/// Longest item id, in bytes.
const ITEM_ID_BYTES_MAX: usize = 512;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    #[serde(borrow)]
    code: Cow<'a, str>,
}

/// A model's catalog items. An item has a position: its rank in the codes' lexicographic
/// order.
#[derive(Debug)]
pub struct ItemTable {
    n_levels: usize,
    /// The item ids by position, without separators.
    ids: String,
    /// Each id's end in `ids`.
    ends: Vec<usize>,
    /// The codes by position.
    codes: Vec<u32>,
    by_id: HashTable<u32>,
    hasher: DefaultHashBuilder,
    trie: Trie,
}

/// Returns the largest memory that reading an `items.ndjson` with this size takes, in bytes: the
/// ids twice, and for each item the rest of the table and the parsed lines.
pub fn item_table_bytes_max(file_bytes: u64, n_levels: usize) -> u64 {
    let n_levels = n_levels as u64;
    // `{"item_id":"","code":"1-2"}` and the line end.
    let line_bytes = 25 + 2 * n_levels;
    // Numbers, ends and positions with 8 bytes, twice; the hash table; 4 bytes for each code in the
    // lines, the table, and three times in the trie.
    let item_bytes = 48 + 16 + 20 * n_levels;
    let n_items = file_bytes / line_bytes;
    file_bytes
        .saturating_mul(2)
        .saturating_add(n_items.saturating_mul(item_bytes))
}

impl ItemTable {
    /// Reads `items.ndjson`: lines of `{"item_id", "code": "12-4-9"}`. Empty lines are skipped. The
    /// level sizes are in [`crate::ModelSpec`].
    pub fn parse(ndjson: &[u8], level_sizes: &[usize]) -> Result<Self, PackageError> {
        let lines = Lines::read(ndjson, level_sizes)?;
        let n_levels = level_sizes.len();
        let mut order: Vec<u32> = (0..lines.numbers.len() as u32).collect();
        order.sort_unstable_by_key(|at| lines.code(*at));
        for pair in order.windows(2) {
            if lines.code(pair[0]) == lines.code(pair[1]) {
                let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                return Err(PackageError::item_line(
                    lines.numbers[second as usize],
                    format!(
                        "the item has the same code as the item in line {}; the last level must distinguish them.",
                        lines.numbers[first as usize]
                    ),
                ));
            }
        }
        let mut table = Self {
            n_levels,
            ids: String::with_capacity(lines.ids.len()),
            ends: Vec::with_capacity(order.len()),
            codes: Vec::with_capacity(lines.codes.len()),
            by_id: HashTable::with_capacity(order.len()),
            hasher: DefaultHashBuilder::default(),
            trie: Trie::new(&[], n_levels),
        };
        for at in &order {
            table.ids.push_str(lines.id(*at));
            table.ends.push(table.ids.len());
            table.codes.extend_from_slice(lines.code(*at));
        }
        table.trie = Trie::new(&table.codes, n_levels);
        for position in 0..order.len() {
            let item_id = id_at(&table.ids, &table.ends, position);
            let hash = table.hasher.hash_one(item_id);
            if let Some(other) = table.find(hash, item_id) {
                let (one, two) = (order[position], order[other]);
                return Err(PackageError::item_line(
                    lines.numbers[one.max(two) as usize],
                    format!(
                        "`item_id` is repeated; it is also in line {}.",
                        lines.numbers[one.min(two) as usize]
                    ),
                ));
            }
            let (ids, ends, hasher) = (&table.ids, &table.ends, &table.hasher);
            table
                .by_id
                .insert_unique(hash, position as u32, |position| {
                    hasher.hash_one(id_at(ids, ends, *position as usize))
                });
        }
        Ok(table)
    }

    /// Returns the item count.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if there are no items. A table that was read has at least one.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns an item's position.
    pub fn position_of(&self, item_id: &str) -> Option<usize> {
        self.find(self.hasher.hash_one(item_id), item_id)
    }

    /// Returns an item's code, one component per level.
    pub fn code_of(&self, item_id: &str) -> Option<&[u32]> {
        self.code_at(self.position_of(item_id)?)
    }

    /// Returns the item at a position.
    pub fn item_at(&self, position: usize) -> Option<&str> {
        (position < self.len()).then(|| id_at(&self.ids, &self.ends, position))
    }

    /// Returns the item code at a position.
    pub fn code_at(&self, position: usize) -> Option<&[u32]> {
        let start = position.checked_mul(self.n_levels)?;
        self.codes.get(start..start.checked_add(self.n_levels)?)
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.ids.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.codes.capacity() * size_of::<u32>()
            + self.by_id.allocation_size()
            + self.trie.bytes()
    }

    pub(crate) fn trie(&self) -> &Trie {
        &self.trie
    }

    fn find(&self, hash: u64, item_id: &str) -> Option<usize> {
        self.by_id
            .find(hash, |position| {
                id_at(&self.ids, &self.ends, *position as usize) == item_id
            })
            .map(|position| *position as usize)
    }
}

fn id_at<'a>(ids: &'a str, ends: &[usize], position: usize) -> &'a str {
    let start = position.checked_sub(1).map_or(0, |before| ends[before]);
    &ids[start..ends[position]]
}

/// The file's lines, in its order.
struct Lines<'l> {
    level_sizes: &'l [usize],
    numbers: Vec<usize>,
    ids: String,
    ends: Vec<usize>,
    codes: Vec<u32>,
}

impl<'l> Lines<'l> {
    fn read(ndjson: &[u8], level_sizes: &'l [usize]) -> Result<Self, PackageError> {
        let mut lines = Self {
            level_sizes,
            numbers: Vec::new(),
            ids: String::new(),
            ends: Vec::new(),
            codes: Vec::new(),
        };
        for (at, line) in ndjson.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                lines
                    .push(at + 1, line)
                    .map_err(|reason| PackageError::item_line(at + 1, reason))?;
            }
        }
        if lines.numbers.is_empty() {
            return Err(PackageError::items(
                "the file has no items. Leave the file out if no tokenizer is fitted.",
            ));
        }
        Ok(lines)
    }

    /// Reads one line. Returns the reason if it is invalid.
    fn push(&mut self, number: usize, line: &[u8]) -> Result<(), String> {
        if self.numbers.len() == ITEMS_MAX {
            return Err(format!("the file may have at most {ITEMS_MAX} items."));
        }
        let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8.".to_owned())?;
        let Line { item_id, code } = serde_json::from_str(text)
            .map_err(|error| format!("{error}; expected {{\"item_id\": …, \"code\": …}}."))?;
        if !(1..=ITEM_ID_BYTES_MAX).contains(&item_id.len()) || item_id.contains('\0') {
            return Err(format!(
                "`item_id` must have 1 to {ITEM_ID_BYTES_MAX} bytes and no NUL character."
            ));
        }
        if !read_code(&code, self.level_sizes, &mut self.codes) {
            return Err(format!(
                "`code` must be {}, and is {:?}.",
                expected_code(self.level_sizes),
                code.chars().take(64).collect::<String>()
            ));
        }
        self.ids.push_str(&item_id);
        self.ends.push(self.ids.len());
        self.numbers.push(number);
        Ok(())
    }

    fn id(&self, at: u32) -> &str {
        id_at(&self.ids, &self.ends, at as usize)
    }

    fn code(&self, at: u32) -> &[u32] {
        let n_levels = self.level_sizes.len();
        &self.codes[at as usize * n_levels..][..n_levels]
    }
}

/// Describes a codebook's codes, for an error message.
fn expected_code(level_sizes: &[usize]) -> String {
    let largest = |size: &usize| size.saturating_sub(1).to_string();
    match level_sizes {
        [size] => format!("a number from 0 to {}", largest(size)),
        sizes => format!(
            "{} numbers from 0 to {}, joined by `-`, without leading zeros",
            sizes.len(),
            sizes.iter().map(largest).collect::<Vec<_>>().join(", ")
        ),
    }
}
