//! Probable next items, by a beam search over the code trie.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::Refusal;
use crate::excluded::Excluded;
use crate::items::ItemTable;
use crate::levels::{LevelBuffers, append_state, extended_score, score_codes};
use crate::network::Network;

/// Narrowest beam.
const WIDTH_MIN: usize = 20;

/// The items that a search looks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'q> {
    pub(crate) network: &'q Network,
    pub(crate) items: &'q ItemTable,
    /// The sequence's state.
    pub(crate) state: &'q [f32],
    /// The number of items.
    pub(crate) top_k: usize,
    /// The items that are not found.
    pub(crate) excluded: &'q Excluded,
}

/// A code prefix with its score.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// The node in the trie. On the last level, the item's position.
    pub(crate) node: usize,
    /// The log-probability.
    pub(crate) score: f32,
    /// The shorter prefix's index on the previous level.
    parent: usize,
    code: u32,
}

impl Candidate {
    /// Returns a node's prefix.
    pub(crate) fn new(node: usize, score: f32, code: u32) -> Self {
        Self {
            node,
            score,
            parent: 0,
            code,
        }
    }
}

/// The result order: by descending score, equal scores by position in the trie.
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// The buffers of [`best_items`]. Their content has no effect on a result.
#[derive(Debug, Default)]
pub(crate) struct BeamBuffers {
    pub(crate) levels: LevelBuffers,
    states: Vec<f32>,
    next_states: Vec<f32>,
    best: Best,
    prefixes: Vec<Candidate>,
}

impl BeamBuffers {
    /// Returns the items that the last beam search has found, in order.
    pub(crate) fn items(&self) -> &[Candidate] {
        &self.prefixes
    }
}

/// The best candidates among many.
#[derive(Debug, Default)]
pub(crate) struct Best {
    /// The worst one is on top.
    candidates: BinaryHeap<Candidate>,
    capacity: usize,
    least_score: f32,
}

impl Best {
    /// Removes all candidates. At most `capacity` are held, and none with less than `least_score`.
    pub(crate) fn reset(&mut self, capacity: usize, least_score: f32) {
        self.candidates.clear();
        self.capacity = capacity;
        self.least_score = least_score;
    }

    /// Returns the score below which no candidate is held.
    pub(crate) fn least_score(&self) -> f32 {
        self.least_score
    }

    /// Adds a candidate that has at least [`Best::least_score`], if it is among the best.
    pub(crate) fn offer(&mut self, candidate: Candidate) {
        if self.candidates.len() < self.capacity {
            self.candidates.push(candidate);
        } else if let Some(mut worst) = self.candidates.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
        if self.candidates.len() == self.capacity {
            let worst = self.candidates.peek();
            self.least_score = worst.map_or(self.least_score, |worst| worst.score);
        }
    }

    /// Moves the candidates to `to`, in order.
    pub(crate) fn take(&mut self, to: &mut Vec<Candidate>) {
        to.clear();
        to.extend(self.candidates.drain());
        to.sort_unstable();
    }
}

/// Finds probable items, which [`BeamBuffers::items`] returns: as many as are wanted, unless fewer are
/// allowed. No other item has a higher score than the returned one.
///
/// Every prefix in the trie leads to an allowed item, so a beam with `top_k` prefixes never loses
/// the last item.
pub(crate) fn best_items(query: Query<'_>, buffers: &mut BeamBuffers) -> Result<f32, Refusal> {
    let Query {
        network,
        items,
        state,
        excluded,
        ..
    } = query;
    let trie = items.trie();
    let top_k = query.top_k.min(items.len());
    let width = (2 * top_k).max(WIDTH_MIN);
    let BeamBuffers {
        levels,
        states,
        next_states,
        best,
        prefixes,
    } = buffers;
    let mut missed_score = f32::NEG_INFINITY;
    states.clear();
    states.extend_from_slice(state);
    prefixes.clear();
    for level in 0..network.levels.len() {
        best.reset(width, f32::NEG_INFINITY);
        score_codes(network, level, states, levels, |row, logits, normalizer| {
            let (nodes, score) = match prefixes.get(row) {
                Some(prefix) if level > 0 => (trie.children(level - 1, prefix.node), prefix.score),
                _ => (trie.roots(), 0.0),
            };
            excluded.for_each_allowed(trie, level, nodes, |node, code| {
                let score = extended_score(score, logits[code as usize], normalizer);
                // Most candidates are worse than all of a full beam, and end at this comparison.
                if score >= best.least_score() {
                    best.offer(Candidate {
                        parent: row,
                        ..Candidate::new(node, score, code)
                    });
                }
            });
        })?;
        let dropped_score = best.least_score();
        best.take(prefixes);
        if level + 1 < network.levels.len() {
            // No item has a higher score than one of its prefixes, also after rounding: no logit is above
            // the normalizer.
            missed_score = missed_score.max(dropped_score);
            next_states.clear();
            for prefix in prefixes.iter() {
                let state = &states[prefix.parent * network.spec.dim..][..network.spec.dim];
                append_state(network, level, state, prefix.code, next_states);
            }
            std::mem::swap(states, next_states);
        }
    }
    prefixes.truncate(top_k);
    match prefixes.iter().all(|prefix| prefix.score.is_finite()) {
        true => Ok(missed_score),
        false => Err(Refusal::NotFinite),
    }
}
