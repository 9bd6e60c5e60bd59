//! The catalog's most probable items, exactly.

use std::ops::Range;

use crate::beam::{BeamBuffers, Best, Candidate, Query, best_items};
use crate::encode::add;
use crate::error::Refusal;
use crate::levels::{LevelBuffers, extended_score, group_rows, score_codes};

/// The buffers of [`top_items`]. Their content has no effect on a result.
#[derive(Debug, Default)]
pub(crate) struct TopBuffers {
    states: Vec<f32>,
    prefixes: Vec<Candidate>,
    longer: Vec<Candidate>,
    best: Best,
}

/// Returns the most probable items in order: as many as are wanted, unless fewer are allowed.
///
/// A beam search finds this many items, mostly the right ones. A prefix's score is at least each
/// item's below it. If the beam has dropped a prefix that could lead to a better item, all prefixes
/// are visited whose score is not below the last found item's. One level's prefix probabilities add up
/// to 1 at most, so these are few.
pub(crate) fn top_items<'b>(
    query: Query<'_>,
    beam: &'b mut BeamBuffers,
    buffers: &'b mut TopBuffers,
    should_stop: &dyn Fn() -> bool,
) -> Result<&'b [Candidate], Refusal> {
    let missed_score = best_items(query, beam)?;
    let found = beam.items();
    let least_score = found.last().map_or(f32::INFINITY, |last| last.score);
    // A missed item with an equal score may have an earlier position.
    if missed_score < least_score {
        return Ok(beam.items());
    }
    let search = Search { query, should_stop };
    search.run(found.len(), least_score, &mut beam.levels, buffers)?;
    Ok(&buffers.prefixes)
}

/// A search for all items whose score is not below a bound.
struct Search<'s> {
    query: Query<'s>,
    should_stop: &'s dyn Fn() -> bool,
}

impl Search<'_> {
    /// Writes the best `n` items that have at least `least_score` to `buffers.prefixes`.
    fn run(
        &self,
        n: usize,
        least_score: f32,
        levels: &mut LevelBuffers,
        buffers: &mut TopBuffers,
    ) -> Result<(), Refusal> {
        let TopBuffers {
            states,
            prefixes,
            longer,
            best,
        } = buffers;
        best.reset(n, least_score);
        prefixes.clear();
        prefixes.push(Candidate::new(0, 0.0, 0));
        let last = self.query.network.levels.len() - 1;
        for level in 0..=last {
            longer.clear();
            // The best prefixes come first. On the last level, they raise the bound for the others.
            for group in prefixes.chunks(group_rows(self.query.network, level)) {
                if group[0].score < best.least_score() {
                    break;
                }
                if (self.should_stop)() {
                    return Err(Refusal::Stopped);
                }
                self.write_states(level, group, states);
                self.visit_longer(level, group, states, levels, |candidate| {
                    if candidate.score >= best.least_score() {
                        match level == last {
                            true => best.offer(candidate),
                            false => longer.push(candidate),
                        }
                    }
                })?;
            }
            longer.sort_unstable();
            std::mem::swap(prefixes, longer);
        }
        best.take(prefixes);
        Ok(())
    }

    /// Writes the states of prefixes with `level` codes. They have the same bits as a beam
    /// search's, which adds the embeddings in the same order.
    fn write_states(&self, level: usize, prefixes: &[Candidate], states: &mut Vec<f32>) {
        states.clear();
        for prefix in prefixes {
            let start = states.len();
            states.extend_from_slice(self.query.state);
            for (level, code) in self.codes(level, prefix.node).iter().enumerate() {
                add(
                    &mut states[start..],
                    self.query.network.code_embedding(level, *code),
                );
            }
        }
    }

    /// Returns a prefix's `level` codes.
    fn codes(&self, level: usize, node: usize) -> &[u32] {
        let Some(last) = level.checked_sub(1) else {
            return &[];
        };
        let position = self.query.items.trie().items(last, node).start;
        let code = self.query.items.code_at(position).unwrap_or_default();
        code.get(..level).unwrap_or_default()
    }

    /// Calls `visit` with each allowed prefix that has one more code.
    fn visit_longer(
        &self,
        level: usize,
        prefixes: &[Candidate],
        states: &[f32],
        levels: &mut LevelBuffers,
        mut visit: impl FnMut(Candidate),
    ) -> Result<(), Refusal> {
        let trie = self.query.items.trie();
        let visit_row = |row: usize, logits: &[f32], normalizer| {
            let prefix = prefixes[row];
            let nodes = self.nodes_below(level, prefix.node);
            self.query
                .excluded
                .for_each_allowed(trie, level, nodes, |node, code| {
                    let score = extended_score(prefix.score, logits[code as usize], normalizer);
                    visit(Candidate::new(node, score, code));
                });
        };
        score_codes(self.query.network, level, states, levels, visit_row)
    }

    /// Returns the `level` nodes below a node on the previous level.
    fn nodes_below(&self, level: usize, node: usize) -> Range<usize> {
        let trie = self.query.items.trie();
        match level.checked_sub(1) {
            Some(previous) => trie.children(previous, node),
            None => trie.roots(),
        }
    }
}
