//! Catalog items that a result must not contain.

use std::ops::Range;

use crate::items::ItemTable;
use crate::request::Event;
use crate::trie::Trie;

/// An item set, as positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Excluded {
    /// In ascending order, without duplicates.
    positions: Vec<usize>,
}

impl Excluded {
    /// Returns the events' items.
    pub(crate) fn seen(items: &ItemTable, events: &[Event<'_>]) -> Self {
        let mut positions: Vec<usize> = events
            .iter()
            .filter_map(|event| items.position_of(event.item_id))
            .collect();
        positions.sort_unstable();
        positions.dedup();
        Self { positions }
    }

    /// Adds an item.
    pub(crate) fn insert(&mut self, position: usize) {
        if let Err(at) = self.positions.binary_search(&position) {
            self.positions.insert(at, position);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Calls `visit` with the nodes that lead to an item outside the set, in ascending order,
    /// and their last codes.
    pub(crate) fn for_each_allowed(
        &self,
        trie: &Trie,
        level: usize,
        nodes: Range<usize>,
        mut visit: impl FnMut(usize, u32),
    ) {
        let codes = trie.codes(level, nodes.clone());
        if self.positions.is_empty() {
            nodes.zip(codes).for_each(|(node, code)| visit(node, *code));
            return;
        }
        let mut rest = match nodes.start < nodes.end {
            true => {
                let first = trie.items(level, nodes.start).start;
                &self.positions[self.positions.partition_point(|at| *at < first)..]
            }
            false => return,
        };
        for (node, code) in nodes.zip(codes) {
            let items = trie.items(level, node);
            let n_excluded = rest.iter().take_while(|at| **at < items.end).count();
            rest = &rest[n_excluded..];
            if n_excluded < items.len() {
                visit(node, *code);
            }
        }
    }
}
