//! The serving operations of a model: their options, and their results as callers see them.

use crate::model::org::Plan;
use crate::model::text_enum::text_enum;

/// Maximum number of sequences of a synchronous request.
pub const SEQUENCES_MAX: usize = 64;

/// Maximum size of the body or message of a synchronous request, in bytes.
pub const BODY_MAX: usize = 1024 * 1024;

/// Default and maximum number of items that `predict` returns for a sequence.
pub const TOP_K: (u32, u32) = (10, 500);

/// Default and maximum number of events of a continuation.
pub const CONTINUATION_EVENTS: (u32, u32) = (5, 50);

/// Default and maximum number of continuations of a sequence.
pub const CONTINUATIONS: (u32, u32) = (1, 10);

/// Minimum and maximum of `temperature`.
pub const TEMPERATURE: (f64, f64) = (0.01, 5.0);

text_enum! {
    /// The handling of a sequence that is longer than the model's context.
    pub enum OnLong {
        /// The most recent events count.
        Truncate = "truncate",
        /// The sequence is refused.
        Refuse = "refuse",
    }
}

text_enum! {
    /// The handling of events whose item the model does not know.
    pub enum OnUnknown {
        /// The events are left out and counted.
        Skip = "skip",
        /// The sequence is refused.
        Refuse = "refuse",
    }
}

text_enum! {
    /// The method by which continuations are found.
    pub enum GenerateMode {
        /// The most probable continuations.
        Beam = "beam",
        /// Continuations that are drawn at random.
        Sample = "sample",
    }
}

text_enum! {
    /// The positions whose states an embedding summarizes.
    pub enum Pooling {
        /// The state of the last position.
        Last = "last",
        /// The mean of the states of all positions.
        Mean = "mean",
    }
}

text_enum! {
    /// The encoding of the vectors of a response.
    pub enum EncodingFormat {
        /// An array of numbers.
        Float = "float",
        /// Base64 of little-endian 32-bit floating-point numbers.
        Base64 = "base64",
    }
}

text_enum! {
    /// The unit that an operation is charged in, as `GET /v1/usage` names its total.
    pub enum Unit {
        /// Sequences for which `predict` returned a result.
        PredictItems = "predict_items",
        /// Generated events, over all continuations.
        GeneratedEvents = "generated_events",
        /// Embedded sequences.
        Embeddings = "embeddings",
    }
}

impl Unit {
    /// Returns the name of the limit of the unit.
    pub const fn limit(self) -> &'static str {
        match self {
            Self::PredictItems => "predict_items_per_month",
            Self::GeneratedEvents => "generated_events_per_month",
            Self::Embeddings => "embeddings_per_month",
        }
    }

    /// Returns the units that a plan allows in a calendar month.
    pub const fn max(self, plan: &Plan) -> i64 {
        match self {
            Self::PredictItems => plan.predict_items_per_month,
            Self::GeneratedEvents => plan.generated_events_per_month,
            Self::Embeddings => plan.embeddings_per_month,
        }
    }
}

/// A number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    /// The unit.
    pub unit: Unit,
    /// The number, at least 1.
    pub n: i64,
}

/// The options that all operations have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The handling of long sequences.
    pub on_long: OnLong,
    /// The handling of unknown items.
    pub on_unknown: OnUnknown,
}

/// The options of `predict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PredictOptions {
    /// The handling of the history.
    pub history: HistoryOptions,
    /// The number of items to return, at most 500. `None`: 10, and all of a sequence's options.
    pub top_k: Option<u32>,
    /// Leaves out items that occur in the events of the sequence.
    pub exclude_seen: bool,
}

/// The options of `generate`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// The handling of the history.
    pub history: HistoryOptions,
    /// The number of events of each continuation.
    pub n_events: u32,
    /// The number of continuations of each sequence.
    pub n_continuations: u32,
    /// The method by which continuations are found.
    pub mode: GenerateMode,
    /// The temperature of `sample`.
    pub temperature: f64,
    /// The seed of `sample`.
    pub seed: u64,
    /// Leaves out items of the history and items generated earlier in the same continuation.
    pub exclude_seen: bool,
}

/// The options of `embed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbedOptions {
    /// The handling of the history.
    pub history: HistoryOptions,
    /// The positions that the vector summarizes.
    pub pooling: Pooling,
    /// Scales the vector to length 1.
    pub normalize: bool,
}

/// The number of events of a sequence, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCounts {
    /// Events that entered the model.
    pub n_used: u32,
    /// Events that were left out because the model does not know their item.
    pub n_unknown: u32,
}

/// The reason why one sequence has no result. The other sequences of a call are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The sequence has more known events than the model's context.
    TooLong,
    /// The model does not know the item of this event, counted from 0 in the order of the sequence
    /// that was sent to the engine. `None` if the engine does not say which.
    UnknownItem {
        /// The position of the event.
        event: Option<u32>,
    },
}

/// The ranked items of one sequence, the most probable first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// What became of the events.
    pub counts: EventCounts,
    /// The ids of the items.
    pub item_ids: Vec<String>,
    /// The natural-log probability of each item. Unknown options have none, and are at the end.
    pub scores: Vec<Option<f64>>,
}

/// The continuations of one sequence, the best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuations {
    /// What became of the events.
    pub counts: EventCounts,
    /// The generated item ids of each continuation, with the sum of their natural-log
    /// probabilities.
    pub continuations: Vec<(Vec<String>, f64)>,
}

/// The vector of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// What became of the events.
    pub counts: EventCounts,
    /// The vector, as long as the model's embedding dimension.
    pub embedding: Vec<f32>,
}
