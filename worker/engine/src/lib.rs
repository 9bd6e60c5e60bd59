//! Inference of the architecture `assay-seq-1`: a causal transformer over events, whose items are
//! codes of one or several levels.
//!
//! A [`Model`] is loaded from the files of a package and has three operations. `predict` ranks items
//! by their probability of being next, `generate` continues a sequence, `embed` returns a vector.
//! Everything here is a pure function of its arguments: no I/O, no clock, no threads. The model
//! computes one sequence at a time in a fixed order of summation, so a result has the same bits
//! whatever was computed before it.

mod code;
mod error;
mod items;
mod request;
mod spec;
mod trie;

pub use error::{PackageError, PackageFile, Refusal};
pub use items::ItemTable;
pub use request::{
    Continuation, Counts, EmbedOptions, Embedding, Event, GenerateMode, GenerateOptions,
    Generation, Logits, OnLong, OnUnknown, Pooling, PredictOptions, RankedItem, Ranking, Sequence,
};
pub use spec::{Activation, MODEL_BYTES_MAX, ModelSpec};
