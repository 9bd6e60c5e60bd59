//! The most probable next items, by a beam search over the trie of item codes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::Refusal;
use crate::excluded::Excluded;
use crate::items::ItemTable;
use crate::levels::{LevelBuffers, append_state, extended_score, score_codes};
use crate::network::Network;

/// Narrowest beam.
const WIDTH_MIN: usize = 20;

/// A prefix of codes with its score.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// The node in the trie. On the last level, the position of the item.
    pub(crate) node: usize,
    /// The logarithm of the probability.
    pub(crate) score: f32,
    /// The index of the shorter prefix among those of the previous level.
    parent: usize,
    code: u32,
}

/// The order of results: by descending score, equal scores by position in the trie.
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
    /// The best candidates so far; the worst of them is on top.
    best: BinaryHeap<Candidate>,
    prefixes: Vec<Candidate>,
}

/// Returns the `top_k` most probable items that the beam search finds, in order, and fewer only if
/// fewer are allowed. `state` is that of the sequence.
///
/// Every prefix in the trie leads to an allowed item, so a beam of `top_k` prefixes never loses the
/// last of `top_k` items.
pub(crate) fn best_items<'b>(
    network: &Network,
    items: &ItemTable,
    state: &[f32],
    top_k: usize,
    excluded: &Excluded,
    buffers: &'b mut BeamBuffers,
) -> Result<&'b [Candidate], Refusal> {
    let trie = items.trie();
    let top_k = top_k.min(items.len());
    let width = (2 * top_k).max(WIDTH_MIN);
    let BeamBuffers {
        levels,
        states,
        next_states,
        best,
        prefixes,
    } = buffers;
    states.clear();
    states.extend_from_slice(state);
    prefixes.clear();
    for level in 0..network.levels.len() {
        best.clear();
        score_codes(network, level, states, levels, |row, logits, normalizer| {
            let (nodes, score) = match prefixes.get(row) {
                Some(prefix) if level > 0 => (trie.children(level - 1, prefix.node), prefix.score),
                _ => (trie.roots(), 0.0),
            };
            // Most candidates are worse than all of a full beam, and end at the first comparison.
            let mut worst_score = match best.len() < width {
                true => f32::NEG_INFINITY,
                false => best.peek().map_or(f32::NEG_INFINITY, |worst| worst.score),
            };
            excluded.for_each_allowed(trie, level, nodes, |node, code| {
                let score = extended_score(score, logits[code as usize], normalizer);
                if score < worst_score {
                    return;
                }
                let candidate = Candidate {
                    node,
                    score,
                    parent: row,
                    code,
                };
                if best.len() < width {
                    best.push(candidate);
                } else if let Some(mut worst) = best.peek_mut()
                    && candidate < *worst
                {
                    *worst = candidate;
                }
                if best.len() == width {
                    worst_score = best.peek().map_or(worst_score, |worst| worst.score);
                }
            });
        })?;
        prefixes.clear();
        prefixes.extend(best.drain());
        prefixes.sort_unstable();
        if level + 1 < network.levels.len() {
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
        true => Ok(prefixes),
        false => Err(Refusal::NotFinite),
    }
}
