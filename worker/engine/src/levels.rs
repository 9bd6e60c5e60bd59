//! The code scores: one softmax per level, given the previous levels' codes.

use crate::encode::add;
use crate::error::Refusal;
use crate::kernels::activate::relu;
use crate::kernels::norm::log_sum_exp;
use crate::network::Network;

/// Logits that are computed before they are read, unless one prefix has more.
const LOGITS_MAX: usize = 1 << 16;

/// The buffers of [`score_codes`]. Their content has no effect on a result.
#[derive(Debug, Default)]
pub(crate) struct LevelBuffers {
    mixed: Vec<f32>,
    logits: Vec<f32>,
}

/// Computes a level's logits for each state, which belongs to one code prefix. Calls `visit`
/// with the index of the state, its logits, and the logarithm of their summed exponentials.
///
/// Each state is computed for itself: its logits have the same bits with any other states.
pub(crate) fn score_codes(
    network: &Network,
    level: usize,
    states: &[f32],
    buffers: &mut LevelBuffers,
    mut visit: impl FnMut(usize, &[f32], f32),
) -> Result<(), Refusal> {
    let dim = network.spec.dim;
    let n_codes = network.levels[level].head.n_out();
    let group = group_rows(network, level);
    for (states, first) in states.chunks(group * dim).zip((0..).step_by(group)) {
        let logits = level_logits(network, level, states, buffers);
        for (row, logits) in logits.chunks_exact(n_codes).enumerate() {
            let normalizer = log_sum_exp(logits);
            if !normalizer.is_finite() {
                return Err(Refusal::NotFinite);
            }
            visit(first + row, logits, normalizer);
        }
    }
    Ok(())
}

/// Returns how many states' logits are computed together.
pub(crate) fn group_rows(network: &Network, level: usize) -> usize {
    (LOGITS_MAX / network.levels[level].head.n_out()).max(1)
}

/// Returns a level's logits for each state.
pub(crate) fn level_logits<'b>(
    network: &Network,
    level: usize,
    states: &[f32],
    buffers: &'b mut LevelBuffers,
) -> &'b [f32] {
    let dim = network.spec.dim;
    let parameters = &network.levels[level];
    let n = states.len() / dim;
    buffers.mixed.resize(n * dim, 0.0);
    parameters.mixer.product(states, &mut buffers.mixed);
    let rows = buffers
        .mixed
        .chunks_exact_mut(dim)
        .zip(states.chunks_exact(dim));
    for (row, state) in rows {
        for ((mixed, state), bias) in row.iter_mut().zip(state).zip(&parameters.mixer_bias) {
            *mixed = state + relu(*mixed + bias);
        }
    }
    buffers.logits.resize(n * parameters.head.n_out(), 0.0);
    parameters.head.product(&buffers.mixed, &mut buffers.logits);
    &buffers.logits
}

/// Appends a prefix's state to `to`: the shorter prefix's state plus the embedding of the `level`
/// code that continues it.
pub(crate) fn append_state(
    network: &Network,
    level: usize,
    state: &[f32],
    code: u32,
    to: &mut Vec<f32>,
) {
    let start = to.len();
    to.extend_from_slice(state);
    add(&mut to[start..], network.code_embedding(level, code));
}

/// Returns a prefix's log-probability: the shorter prefix's plus the code's.
///
/// The only place that computes scores, so that an item has the same score however it was found.
pub(crate) fn extended_score(score: f32, logit: f32, normalizer: f32) -> f32 {
    score + (logit - normalizer)
}
