//! The transformer: from a history's events to its last position's state.

use crate::error::Refusal;
use crate::history::History;
use crate::kernels::activate::activate;
use crate::kernels::norm::exponentials;
use crate::kernels::{Operand, multiply};
use crate::network::{Block, Network};
use crate::request::Pooling;

/// Rows that pass through a block together. It bounds the buffers for long histories.
const CHUNK_ROWS: usize = 128;

/// Queries whose attention is computed together. Keys after the last one are skipped.
const QUERY_ROWS: usize = 32;

/// The buffers of [`encode`]. Their content has no effect on a result.
#[derive(Debug, Default)]
pub(crate) struct EncodeBuffers {
    /// All positions' states.
    x: Vec<f32>,
    /// All positions' keys and values.
    key_value: Vec<f32>,
    // The other buffers hold one chunk's rows.
    normed: Vec<f32>,
    query: Vec<f32>,
    attended: Vec<f32>,
    hidden: Vec<f32>,
    /// Some queries' attention weights.
    weights: Vec<f32>,
    /// The result.
    state: Vec<f32>,
}

/// Returns a buffer slice, which grows if necessary.
fn sized(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    &mut buffer[..length]
}

/// Encodes a history and returns its last position's state, or the mean over all positions,
/// after the final layer norm.
pub(crate) fn encode<'b>(
    network: &Network,
    buffers: &'b mut EncodeBuffers,
    history: &History,
    pooling: Pooling,
    should_stop: &dyn Fn() -> bool,
) -> Result<&'b [f32], Refusal> {
    let dim = network.spec.dim;
    let n = history.types.len() + 1;
    embed_events(network, history, sized(&mut buffers.x, n * dim));
    for (at, block) in network.blocks.iter().enumerate() {
        // The last block needs all positions' keys and values, and the rest for the last position
        // only.
        let is_last = at + 1 == network.blocks.len();
        let first_query = if is_last && pooling == Pooling::Last {
            n - 1
        } else {
            0
        };
        for start in (0..n).step_by(CHUNK_ROWS) {
            if should_stop() {
                return Err(Refusal::Stopped);
            }
            let end = (start + CHUNK_ROWS).min(n);
            pass_block(network, block, buffers, start, end, first_query);
        }
    }
    pool(network, buffers, n, pooling);
    Ok(&buffers.state)
}

/// Writes the first block's input: the start vector, then one row per event.
fn embed_events(network: &Network, history: &History, x: &mut [f32]) {
    let dim = network.spec.dim;
    let n_levels = network.levels.len();
    let (start, events) = x.split_at_mut(dim);
    start.copy_from_slice(&network.start);
    let codes = history.codes.chunks_exact(n_levels).zip(&history.types);
    let positions = network.positions.chunks_exact(dim);
    for ((row, position), (code, event_type)) in
        events.chunks_exact_mut(dim).zip(positions).zip(codes)
    {
        row.copy_from_slice(network.code_embedding(0, code[0]));
        for (level, code) in code.iter().enumerate().skip(1) {
            add(row, network.code_embedding(level, *code));
        }
        add(row, position);
        if let Some(number) = event_type {
            add(row, &network.types[*number as usize * dim..][..dim]);
        }
    }
}

/// Adds a vector to another one.
pub(crate) fn add(to: &mut [f32], vector: &[f32]) {
    for (to, value) in to.iter_mut().zip(vector) {
        *to += value;
    }
}

/// Passes the rows from `start` to `end` through a block. Rows before `first_query` only get keys and
/// values.
fn pass_block(
    network: &Network,
    block: &Block,
    buffers: &mut EncodeBuffers,
    start: usize,
    end: usize,
    first_query: usize,
) {
    let dim = network.spec.dim;
    let rows = start * dim..end * dim;
    let normed = sized(&mut buffers.normed, rows.len());
    block.norm1.apply(&buffers.x[rows], normed);
    let key_value = sized(&mut buffers.key_value, end * 2 * dim);
    block
        .key_value
        .apply(normed, &mut key_value[start * 2 * dim..]);

    let first = start.max(first_query);
    if first >= end {
        return;
    }
    let normed = &mut normed[(first - start) * dim..];
    let query = sized(&mut buffers.query, normed.len());
    block.query.apply(normed, query);
    let attended = sized(&mut buffers.attended, normed.len());
    for block_start in (first..end).step_by(QUERY_ROWS) {
        let block_end = (block_start + QUERY_ROWS).min(end);
        let rows = (block_start - first) * dim..(block_end - first) * dim;
        attend(
            network,
            &query[rows.clone()],
            block_start,
            &key_value[..block_end * 2 * dim],
            &mut buffers.weights,
            &mut attended[rows],
        );
    }
    let x = &mut buffers.x[first * dim..end * dim];
    block.output.add(attended, x);
    block.norm2.apply(x, normed);
    let hidden = sized(&mut buffers.hidden, 4 * normed.len());
    block.up.product(normed, hidden);
    activate(hidden, &block.up.bias, network.spec.activation);
    block.down.add(hidden, x);
}

/// Writes the attention for consecutive queries from position `first` on.
fn attend(
    network: &Network,
    query: &[f32],
    first: usize,
    key_value: &[f32],
    weights: &mut Vec<f32>,
    attended: &mut [f32],
) {
    let dim = network.spec.dim;
    let head_dim = dim / network.spec.heads;
    let rows = query.len() / dim;
    let n_keys = key_value.len() / (2 * dim);
    let scale = 1.0 / (head_dim as f32).sqrt();
    let weights = sized(weights, rows * n_keys);
    for head in (0..dim).step_by(head_dim) {
        let queries = Operand {
            data: &query[head..],
            rows,
            columns: head_dim,
            row_stride: dim,
            column_stride: 1,
        };
        let keys = Operand {
            data: &key_value[head..],
            rows: head_dim,
            columns: n_keys,
            row_stride: 1,
            column_stride: 2 * dim,
        };
        multiply(scale, queries, keys, 0.0, weights, n_keys);
        let attended = &mut attended[head..];
        for (row, weights) in weights.chunks_exact_mut(n_keys).enumerate() {
            let (seen, later) = weights.split_at_mut(first + row + 1);
            let scale = 1.0 / exponentials(seen);
            for weight in seen {
                *weight *= scale;
            }
            later.fill(0.0);
        }
        let weights = Operand {
            data: weights,
            rows,
            columns: n_keys,
            row_stride: n_keys,
            column_stride: 1,
        };
        let values = Operand {
            data: &key_value[dim + head..],
            rows: n_keys,
            columns: head_dim,
            row_stride: 2 * dim,
            column_stride: 1,
        };
        multiply(1.0, weights, values, 0.0, attended, dim);
    }
}

/// Writes the last position's final layer norm, or its mean over all positions.
fn pool(network: &Network, buffers: &mut EncodeBuffers, n: usize, pooling: Pooling) {
    let dim = network.spec.dim;
    buffers.state.resize(dim, 0.0);
    let x = &buffers.x[..n * dim];
    match pooling {
        Pooling::Last => network.norm.apply(&x[(n - 1) * dim..], &mut buffers.state),
        Pooling::Mean => {
            let normed = sized(&mut buffers.normed, dim);
            buffers.state.fill(0.0);
            for row in x.chunks_exact(dim) {
                network.norm.apply(row, normed);
                add(&mut buffers.state, normed);
            }
            for value in &mut buffers.state {
                *value /= n as f32;
            }
        }
    }
}
