//! Inference for the architecture `assay-seq-1`: a causal transformer over events, whose items are
//! codes with one or several levels.
//!
//! A [`Model`] is loaded from a package's files and has three operations. `predict` ranks items
//! by their probability of being next, `generate` continues a sequence, `embed` returns a vector.
//! Everything here depends on its arguments only: no I/O, no clock, no threads. The model
//! computes one sequence at a time in a fixed summation order, so a result has the same bits
//! whatever was computed before it.

mod beam;
mod code;
mod encode;
mod error;
mod exact;
mod excluded;
mod generate;
mod history;
mod items;
mod kernels;
mod levels;
mod model;
mod network;
mod random;
mod request;
mod spec;
mod top;
mod trie;
mod weights;

pub use code::read_code;
pub use error::{PackageError, PackageFile, Refusal};
pub use generate::draw;
pub use items::{ItemTable, item_table_bytes_max};
pub use model::{EXACT_ITEMS_MAX, Model, PackageFiles, Scratch};
pub use random::Random;
pub use request::{
    Continuation, Counts, EmbedOptions, Embedding, Event, GenerateMode, GenerateOptions,
    Generation, Logits, OnLong, OnUnknown, Pooling, PredictOptions, RankedItem, Ranking, Sequence,
};
pub use spec::{Activation, MODEL_BYTES_MAX, ModelSpec};
pub use weights::{check_weights_header, network_bytes, weights_bytes_max};
