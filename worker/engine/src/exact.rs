//! The exact scores for given items.

use crate::error::Refusal;
use crate::levels::{LevelBuffers, append_state, extended_score, score_codes};
use crate::network::Network;

/// Returns each code's score in `codes`, which must be in lexicographic order. `state` is the
/// sequence's. Codes that share a prefix share its computation.
pub(crate) fn score_items(
    network: &Network,
    codes: &[&[u32]],
    state: &[f32],
    buffers: &mut LevelBuffers,
) -> Result<Vec<f32>, Refusal> {
    let dim = network.spec.dim;
    let mut scores = vec![0.0; codes.len()];
    let mut states = state.to_vec();
    // The end in `codes` of each prefix's items.
    let mut ends = vec![codes.len()];
    for level in 0..network.levels.len() {
        score_codes(
            network,
            level,
            &states,
            buffers,
            |row, logits, normalizer| {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                for at in start..ends[row] {
                    let logit = logits[codes[at][level] as usize];
                    scores[at] = extended_score(scores[at], logit, normalizer);
                }
            },
        )?;
        let mut next_states = Vec::new();
        let mut next_ends = Vec::new();
        let mut start = 0;
        for (end, state) in ends.into_iter().zip(states.chunks_exact(dim)) {
            for same in codes[start..end].chunk_by(|one, other| one[level] == other[level]) {
                append_state(network, level, state, same[0][level], &mut next_states);
                start += same.len();
                next_ends.push(start);
            }
        }
        (states, ends) = (next_states, next_ends);
    }
    match scores.iter().all(|score| score.is_finite()) {
        true => Ok(scores),
        false => Err(Refusal::NotFinite),
    }
}
