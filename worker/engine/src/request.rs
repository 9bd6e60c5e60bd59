//! The three operations' requests and results.

/// One history event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The item. Without an item table, its code, such as `12-4-9`.
    pub item_id: &'a str,
    /// The event's type, for models that have event types. A type that the model does not know
    /// has no effect.
    pub event_type: Option<&'a str>,
}

/// The rule for sequences with more events than the model looks back on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLong {
    /// The most recent events count.
    #[default]
    Truncate,
    /// The sequence is refused.
    Refuse,
}

/// The rule for events whose item the model does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnknown {
    /// They are left out and counted.
    #[default]
    Skip,
    /// The sequence is refused.
    Refuse,
}

/// The history of one user.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence<'a> {
    /// The events, oldest first. There may be none.
    pub events: &'a [Event<'a>],
    /// The distinct items that `predict` ranks. `None` ranks all catalog items. The other operations
    /// do not read it.
    pub options: Option<&'a [&'a str]>,
    /// The rule for sequences with more events than the model looks back on.
    pub on_long: OnLong,
    /// The rule for events whose item the model does not know.
    pub on_unknown: OnUnknown,
}

/// `predict` parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PredictOptions {
    /// The returned item count. `None` returns all options, or ten catalog items.
    pub top_k: Option<usize>,
    /// Leaves out all items that occur in the events, also in events that do not enter the model.
    pub exclude_seen: bool,
}

/// The way in which `generate` chooses continuations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GenerateMode {
    /// Returns the most probable continuations that a beam search finds.
    Beam,
    /// Draws continuations.
    Sample {
        /// Divides the log-probabilities: below 1, probable items are drawn more often.
        temperature: f32,
        /// The seed. The same seed and sequence id give the same continuations.
        seed: u64,
    },
}

/// `generate` parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// The number of events of each continuation.
    pub n_events: usize,
    /// The continuation count. A beam search returns at most ten.
    pub n_continuations: usize,
    /// The way in which continuations are chosen.
    pub mode: GenerateMode,
    /// Leaves out all items that occur in the events, and those generated earlier in the same
    /// continuation.
    pub exclude_seen: bool,
}

/// Which positions an embedding describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The last position.
    #[default]
    Last,
    /// The mean over all positions, including the start vector.
    Mean,
}

/// `embed` parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbedOptions {
    /// Which positions the embedding describes.
    pub pooling: Pooling,
    /// Scales the vector to length 1.
    pub normalize: bool,
}

/// The numbers of events that entered the model and that were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of events that entered the model.
    pub n_used: usize,
    /// The number of events that were left out because the model does not know their item.
    pub n_unknown: usize,
}

impl Counts {
    /// Returns `true` if no event entered the model, so that the result describes an empty history.
    pub fn is_cold(&self) -> bool {
        self.n_used == 0
    }
}

/// One ranked item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedItem<'a> {
    /// The item, as in the item table or in the options.
    pub item_id: &'a str,
    /// The natural log-probability that this item is next. `None` if the model does not
    /// know the item.
    pub score: Option<f32>,
}

/// The result of `predict`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking<'a> {
    /// The items by descending score; items with equal scores by their codes; unknown options last,
    /// in the request's order.
    pub items: Vec<RankedItem<'a>>,
    /// The sequence's event counts.
    pub counts: Counts,
    /// `true` if no item is missing that is more probable than these.
    pub is_exact: bool,
}

/// A sequence's continuation.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuation<'a> {
    /// The generated items. There are fewer than requested if no further item is allowed.
    pub item_ids: Vec<&'a str>,
    /// The sum of the items' natural log-probabilities.
    pub score: f32,
}

/// The result of `generate`.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation<'a> {
    /// The continuations: a beam's by descending score, samples in the order in which they
    /// were drawn.
    pub continuations: Vec<Continuation<'a>>,
    /// The sequence's event counts, without generated ones.
    pub counts: Counts,
}

/// The result of `embed`.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The vector, with the model's width.
    pub vector: Vec<f32>,
    /// The sequence's event counts.
    pub counts: Counts,
}

/// The `logits` result.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// The scores of the first level's codes, before the softmax.
    pub values: Vec<f32>,
    /// The sequence's event counts.
    pub counts: Counts,
}
