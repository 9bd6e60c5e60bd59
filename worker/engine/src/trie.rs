//! The item code trie: which code prefixes lead to items.

use std::ops::Range;

/// The distinct prefixes with one length, in lexicographic order.
#[derive(Debug)]
struct Level {
    /// Each prefix's last code.
    codes: Vec<u32>,
    /// For each prefix, the index of the first one that continues it on the next level; then the
    /// next level's prefix count. On the last level, it is the item's position.
    first_child: Vec<u32>,
    /// The first item's position for each prefix, and the item count.
    first_item: Vec<u32>,
}

/// A code trie. Items have positions in their codes' lexicographic order; a node on the last level
/// has the same index as its item.
#[derive(Debug)]
pub(crate) struct Trie {
    levels: Vec<Level>,
}

impl Trie {
    /// Builds the trie from distinct codes with `n_levels` components, in lexicographic order.
    pub(crate) fn new(codes: &[u32], n_levels: usize) -> Self {
        let mut levels: Vec<Level> = (0..n_levels)
            .map(|_| Level {
                codes: Vec::new(),
                first_child: Vec::new(),
                first_item: Vec::new(),
            })
            .collect();
        let mut previous: &[u32] = &[];
        let mut n_items = 0;
        for code in codes.chunks_exact(n_levels) {
            let shared = code
                .iter()
                .zip(previous)
                .take_while(|(one, other)| one == other)
                .count();
            for at in shared..n_levels {
                let first_child = levels
                    .get(at + 1)
                    .map_or(n_items, |next| next.codes.len() as u32);
                let level = &mut levels[at];
                level.codes.push(code[at]);
                level.first_child.push(first_child);
                level.first_item.push(n_items);
            }
            previous = code;
            n_items += 1;
        }
        for at in 0..n_levels {
            let end = levels
                .get(at + 1)
                .map_or(n_items, |next| next.codes.len() as u32);
            let level = &mut levels[at];
            level.first_child.push(end);
            level.first_item.push(n_items);
            level.codes.shrink_to_fit();
            level.first_child.shrink_to_fit();
            level.first_item.shrink_to_fit();
        }
        Self { levels }
    }

    /// Returns the first level's nodes.
    pub(crate) fn roots(&self) -> Range<usize> {
        0..self.levels.first().map_or(0, |level| level.codes.len())
    }

    /// Returns the nodes on the next level below a node.
    pub(crate) fn children(&self, level: usize, node: usize) -> Range<usize> {
        let first = &self.levels[level].first_child;
        first[node] as usize..first[node + 1] as usize
    }

    /// Returns the nodes' last codes.
    pub(crate) fn codes(&self, level: usize, nodes: Range<usize>) -> &[u32] {
        &self.levels[level].codes[nodes]
    }

    /// Returns the item positions below a node.
    pub(crate) fn items(&self, level: usize, node: usize) -> Range<usize> {
        let first = &self.levels[level].first_item;
        first[node] as usize..first[node + 1] as usize
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.levels
            .iter()
            .map(|level| {
                4 * (level.codes.capacity()
                    + level.first_child.capacity()
                    + level.first_item.capacity())
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_lead_to_their_items() {
        let trie = Trie::new(&[0, 1, 0, 0, 1, 3, 0, 2, 1, 5, 0, 0], 3);
        assert_eq!(trie.roots(), 0..2);
        assert_eq!(trie.codes(0, 0..2), [0, 5]);
        assert_eq!(trie.children(0, 0), 0..2);
        assert_eq!(trie.children(0, 1), 2..3);
        assert_eq!(trie.codes(1, 0..3), [1, 2, 0]);
        assert_eq!(trie.children(1, 0), 0..2);
        assert_eq!(trie.codes(2, 0..4), [0, 3, 1, 0]);
        assert_eq!(trie.items(0, 0), 0..3);
        assert_eq!(trie.items(1, 1), 2..3);
        assert_eq!(trie.items(2, 3), 3..4);
    }
}
