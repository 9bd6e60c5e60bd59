//! Continuing a sequence: the most probable ones, or drawn ones.

use crate::beam::{BeamBuffers, Query, best_items};
use crate::encode::{EncodeBuffers, encode};
use crate::error::Refusal;
use crate::excluded::Excluded;
use crate::history::History;
use crate::items::ItemTable;
use crate::levels::{append_state, extended_score, score_codes};
use crate::network::Network;
use crate::random::Random;
use crate::request::Pooling;

/// Continuations that the beam keeps after each step, and of next items that it considers
/// for each.
const BEAM_WIDTH: usize = 10;

/// Items that continue a sequence, as positions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    pub(crate) positions: Vec<usize>,
    /// The items' total score.
    pub(crate) score: f32,
    excluded: Excluded,
}

impl Path {
    /// Returns the path with one more item. With `is_distinct`, it never contains the item again.
    fn continued(&self, position: usize, score: f32, is_distinct: bool) -> Self {
        let mut longer = self.clone();
        longer.positions.push(position);
        longer.score = score;
        if is_distinct {
            longer.excluded.insert(position);
        }
        longer
    }
}

/// The sequence to continue, and the buffers.
pub(crate) struct Generator<'g> {
    pub(crate) network: &'g Network,
    pub(crate) items: &'g ItemTable,
    pub(crate) history: &'g History,
    /// The items that no continuation contains.
    pub(crate) excluded: Excluded,
    /// Set if a continuation contains each item at most once.
    pub(crate) is_distinct: bool,
    pub(crate) n_events: usize,
    pub(crate) longer: &'g mut History,
    pub(crate) encode: &'g mut EncodeBuffers,
    pub(crate) beam: &'g mut BeamBuffers,
    pub(crate) should_stop: &'g dyn Fn() -> bool,
}

impl Generator<'_> {
    /// Returns the continuations that a beam search finds, at most `n`, the most probable first.
    pub(crate) fn most_probable(&mut self, n: usize) -> Result<Vec<Path>, Refusal> {
        let mut paths = vec![self.start()];
        for _ in 0..self.n_events {
            let mut longer = Vec::new();
            for path in &paths {
                let state = self.state_after(path)?.to_vec();
                let query = Query {
                    network: self.network,
                    items: self.items,
                    state: &state,
                    top_k: BEAM_WIDTH,
                    excluded: &path.excluded,
                };
                best_items(query, self.beam)?;
                let is_distinct = self.is_distinct;
                let found = self.beam.items().iter();
                longer.extend(
                    found.map(|item| {
                        path.continued(item.node, path.score + item.score, is_distinct)
                    }),
                );
            }
            // Without an allowed item the continuations stay as they are.
            if longer.is_empty() {
                break;
            }
            longer.sort_by(|one, other| {
                let by_score = other.score.total_cmp(&one.score);
                by_score.then_with(|| one.positions.cmp(&other.positions))
            });
            longer.truncate(BEAM_WIDTH);
            paths = longer;
        }
        paths.truncate(n);
        Ok(paths)
    }

    /// Draws one continuation.
    pub(crate) fn drawn(
        &mut self,
        random: &Random,
        continuation: usize,
        temperature: f32,
    ) -> Result<Path, Refusal> {
        let mut path = self.start();
        for step in 0..self.n_events {
            if path.excluded.len() == self.items.len() {
                break;
            }
            let state = self.state_after(&path)?.to_vec();
            let number = |level| random.uniform(continuation, step, level);
            let (position, score) = self.draw_item(state, &path.excluded, temperature, number)?;
            path = path.continued(position, path.score + score, self.is_distinct);
        }
        Ok(path)
    }

    fn start(&self) -> Path {
        Path {
            excluded: self.excluded.clone(),
            ..Path::default()
        }
    }

    /// Encodes the history with the generated events, as a new request with them would.
    fn state_after(&mut self, path: &Path) -> Result<&[f32], Refusal> {
        self.longer.copy_from(self.history);
        for position in &path.positions {
            if let Some(code) = self.items.code_at(*position) {
                self.longer.push(code);
            }
        }
        self.longer.truncate(self.network);
        encode(
            self.network,
            self.encode,
            self.longer,
            Pooling::Last,
            self.should_stop,
        )
    }

    /// Draws an item level by level among the codes that lead to an allowed item. Returns its position
    /// and its score, which does not depend on the temperature or on the excluded items.
    fn draw_item(
        &mut self,
        mut state: Vec<f32>,
        excluded: &Excluded,
        temperature: f32,
        number: impl Fn(usize) -> f64,
    ) -> Result<(usize, f32), Refusal> {
        let trie = self.items.trie();
        let mut nodes = trie.roots();
        let mut score = 0.0;
        let mut drawn = 0;
        let mut allowed: Vec<(usize, u32, f32)> = Vec::new();
        for level in 0..self.network.levels.len() {
            allowed.clear();
            let buffers = &mut self.beam.levels;
            score_codes(
                self.network,
                level,
                &state,
                buffers,
                |_, logits, normalizer| {
                    excluded.for_each_allowed(trie, level, nodes.clone(), |node, code| {
                        let score = extended_score(score, logits[code as usize], normalizer);
                        allowed.push((node, code, score));
                    });
                },
            )?;
            let scores = allowed.iter().map(|(_, _, score)| *score);
            let at = draw(scores, temperature, number(level)).ok_or(Refusal::NotFinite)?;
            let (node, code, extended) = allowed[at];
            (drawn, score) = (node, extended);
            if level + 1 < self.network.levels.len() {
                let mut next = Vec::with_capacity(state.len());
                append_state(self.network, level, &state, code, &mut next);
                state = next;
                nodes = trie.children(level, node);
            }
        }
        match score.is_finite() {
            true => Ok((drawn, score)),
            false => Err(Refusal::NotFinite),
        }
    }
}

/// Draws an index with a probability proportional to e^(score / temperature). `number` is uniform from
/// 0 to 1. Returns `None` without scores, or if a score is not finite.
pub fn draw(
    scores: impl Iterator<Item = f32> + Clone,
    temperature: f32,
    number: f64,
) -> Option<usize> {
    let max = scores.clone().reduce(f32::max)?;
    let weight = |score: f32| (f64::from(score - max) / f64::from(temperature)).exp();
    let total: f64 = scores.clone().map(weight).sum();
    if !total.is_finite() {
        return None;
    }
    let mut rest = number * total;
    let mut last = None;
    for (at, score) in scores.enumerate() {
        let weight = weight(score);
        if weight > 0.0 {
            last = Some(at);
        }
        rest -= weight;
        if rest < 0.0 {
            return Some(at);
        }
    }
    // Rounding: the number lies at the last interval's end.
    last
}
