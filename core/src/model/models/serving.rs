//! A model's serving operations: their options, and their results as callers see them.

use std::time::Duration;

use assay_eval::FieldError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::schema::{Array, Object, OneOf, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::error_details::Endpoint;
use crate::model::openapi_schema;
use crate::model::org::Plan;
use crate::model::sequence::{ITEM_ID_MAX, Sequence};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

/// A synchronous request's maximum sequence count.
pub const SEQUENCES_MAX: usize = 64;

/// A synchronous request's maximum body or message size, in bytes.
pub const BODY_MAX: usize = 1024 * 1024;

/// Default and the most items that `predict` returns for a sequence.
pub const TOP_K: (u32, u32) = (10, 500);

/// A continuation's default and maximum event count.
pub const CONTINUATION_EVENTS: (u32, u32) = (5, 50);

/// A sequence's default and maximum continuation count.
pub const CONTINUATIONS: (u32, u32) = (1, 10);

/// `temperature`'s minimum and maximum.
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
    /// The encoding for a response's vectors.
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
    /// Returns the unit's limit name.
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

/// A unit count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    /// The unit.
    pub unit: Unit,
    /// The number, at least 1.
    pub n: i64,
}

/// The options that all operations have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryOptions {
    /// Long-sequence handling.
    pub on_long: OnLong,
    /// Unknown-item handling.
    pub on_unknown: OnUnknown,
}

/// The options of `predict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictOptions {
    /// The history's handling.
    #[serde(flatten)]
    pub history: HistoryOptions,
    /// The item count to return, at most 500. `None`: 10, and all options in a sequence.
    pub top_k: Option<u32>,
    /// Leaves out items that occur in the events of the sequence.
    pub exclude_seen: bool,
}

/// The `generate` options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// The history's handling.
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

/// The `embed` options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbedOptions {
    /// The history's handling.
    pub history: HistoryOptions,
    /// The positions that the vector summarizes.
    pub pooling: Pooling,
    /// Scales the vector to length 1.
    pub normalize: bool,
}

/// A sequence's event count, and what became of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCounts {
    /// Events that entered the model.
    pub n_used: u32,
    /// Events that were left out because the model does not know their item.
    pub n_unknown: u32,
}

/// The reason why one sequence has no result. A call's other sequences are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The sequence has more known events than the model's context.
    TooLong,
    /// The model does not know this event's item, counted from 0 in the sequence's order that
    /// was sent to the engine. `None` if the engine does not say which.
    UnknownItem {
        /// The event's position.
        event: Option<u32>,
    },
}

/// One sequence's ranked items, the most probable first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The events that were used, and those that were not.
    pub counts: EventCounts,
    /// The ids of the items.
    pub item_ids: Vec<String>,
    /// Each item's natural-log probability. Unknown options have none, and are at the end.
    pub scores: Vec<Option<f64>>,
    /// `true` if no item is missing that is more probable than these. `None` if the engine does
    /// not say so.
    pub is_exact: Option<bool>,
}

/// One sequence's continuations, the best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuations {
    /// The events that were used, and those that were not.
    pub counts: EventCounts,
    /// Each continuation's generated item ids, with their summed natural-log
    /// probabilities.
    pub continuations: Vec<(Vec<String>, f64)>,
}

/// The vector of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// The events that were used, and those that were not.
    pub counts: EventCounts,
    /// The vector, as long as the model's embedding dimension.
    pub embedding: Vec<f32>,
}

/// A request's result, and how it was obtained.
#[derive(Debug, Clone, PartialEq)]
pub struct Served<T> {
    /// The result.
    pub result: T,
    /// The time that the engine took.
    pub engine_time: Duration,
    /// `true` if an earlier request with the same idempotency key was charged.
    pub replayed: bool,
}

/// The result of `predict`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Predictions {
    /// The id of the model.
    pub model_id: String,
    /// The version of the model that computed the result.
    pub model_version: String,
    /// The operation: `predict`.
    pub operation: Endpoint,
    /// The ranking of each sequence, in the order of the request.
    #[schema(max_items = 64)]
    pub data: Vec<PredictData>,
    /// The units that were charged.
    pub usage: PredictUsage,
}

/// The ranking of one sequence.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PredictData {
    /// The id of the sequence, as in the request.
    pub sequence_id: String,
    /// The ids of the items, the most probable first. Unknown options are at the end, in the order
    /// of the request.
    #[schema(max_items = 1000)]
    pub prediction: Vec<String>,
    /// The natural-log probability of each item of `prediction`. Null for options that the model
    /// does not know.
    #[schema(max_items = 1000)]
    pub scores: Vec<Option<f64>>,
    /// `true` if no item is missing that is more probable than one of `prediction`: always with
    /// options, and in a catalog of up to 200,000 items. In a larger one, a beam search can miss
    /// items. Null if the model runs on an external engine that does not say so.
    pub exact: Option<bool>,
    /// The number of events in the request.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_events: i64,
    /// The number of events that entered the model: the most recent ones that it knows.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_used: i64,
    /// The number of events that were left out because the model does not know their item.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_unknown: i64,
    /// `true` if no event entered the model. The result is then that of an empty history.
    pub cold: bool,
}

/// The units that `predict` has charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct PredictUsage {
    /// The number of sequences.
    #[schema(minimum = 1, maximum = 64)]
    pub predict_items: i64,
}

/// The result of `generate`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Generations {
    /// The id of the model.
    pub model_id: String,
    /// The version of the model that computed the result.
    pub model_version: String,
    /// The operation: `generate`.
    pub operation: Endpoint,
    /// The seed of the mode `sample`, an unsigned 64-bit integer, also if the server has drawn it.
    /// Null in the mode `beam`.
    pub seed: Option<Seed>,
    /// The continuations of each sequence, in the order of the request.
    #[schema(max_items = 64)]
    pub data: Vec<GenerateData>,
    /// The units that were charged.
    pub usage: GenerateUsage,
}

/// A seed, which is a string in JSON: many parsers read integers as floating-point numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

impl From<Seed> for u64 {
    fn from(Seed(seed): Seed) -> Self {
        seed
    }
}

impl PartialSchema for Seed {
    fn schema() -> RefOr<Schema> {
        openapi_schema::text(
            "An unsigned 64-bit integer in decimal.",
            "^[0-9]{1,20}$",
            20,
            "20261124",
        )
    }
}

impl ToSchema for Seed {}

impl Serialize for Seed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The continuations of one sequence.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct GenerateData {
    /// The id of the sequence, as in the request.
    pub sequence_id: String,
    /// The continuations, the best first in the mode `beam`. There are fewer than requested if the
    /// catalog has fewer.
    #[schema(max_items = 10)]
    pub continuations: Vec<Continuation>,
    /// The number of events in the request.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_events: i64,
    /// The number of events that entered the model: the most recent ones that it knows.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_used: i64,
    /// The number of events that were left out because the model does not know their item.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_unknown: i64,
    /// `true` if no event entered the model. The result is then that of an empty history.
    pub cold: bool,
}

/// A continuation of a sequence.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Continuation {
    /// The generated events, the oldest first. There are fewer than requested if no items are left.
    #[schema(max_items = 50)]
    pub events: Vec<GeneratedEvent>,
    /// The sum of the natural-log probabilities of the events.
    pub score: f64,
}

/// A generated event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct GeneratedEvent {
    /// The id of the item, which is an item of the catalog.
    #[schema(min_length = 1, max_length = 512)]
    pub item_id: String,
    /// The type of the event. Null unless the model generates types.
    pub r#type: Option<String>,
}

/// A part in `generate`'s stream.
#[derive(Debug, Clone, PartialEq)]
pub enum GeneratedPart {
    /// A generated event.
    Event(StreamedEvent),
    /// The stream's end: all continuations.
    Done(Served<Generations>),
}

/// A generated event in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamedEvent {
    /// The id of the sequence, as in the request.
    pub sequence_id: String,
    /// The continuation's index, from 0. Its events are sent in their order.
    pub continuation: u32,
    /// The event.
    pub event: GeneratedEvent,
}

/// The units that `generate` has charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct GenerateUsage {
    /// The number of requested events: those of all continuations of all sequences.
    #[schema(minimum = 1, maximum = 32000)]
    pub generated_events: i64,
}

/// The result of `embed`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Embeddings {
    /// The id of the model.
    pub model_id: String,
    /// The version of the model that computed the result.
    pub model_version: String,
    /// The operation: `embed`.
    pub operation: Endpoint,
    /// The number of dimensions of each vector.
    #[schema(minimum = 1)]
    pub dim: i64,
    /// The vector of each sequence, in the order of the request.
    #[schema(max_items = 64)]
    pub data: Vec<EmbedData>,
    /// The units that were charged.
    pub usage: EmbedUsage,
}

/// The vector of one sequence.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EmbedData {
    /// The id of the sequence, as in the request.
    pub sequence_id: String,
    /// The vector, in the encoding that `encoding_format` names.
    pub embedding: EncodedVector,
    /// The number of events in the request.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_events: i64,
    /// The number of events that entered the model: the most recent ones that it knows.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_used: i64,
    /// The number of events that were left out because the model does not know their item.
    #[schema(minimum = 0, maximum = 10000)]
    pub n_unknown: i64,
    /// `true` if no event entered the model. The result is then that of an empty history.
    pub cold: bool,
}

/// A vector, and its encoding in JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedVector {
    /// The vector.
    pub vector: Vec<f32>,
    /// The encoding in JSON.
    pub encoding: EncodingFormat,
}

impl Serialize for EncodedVector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.encoding {
            EncodingFormat::Float => self.vector.serialize(serializer),
            EncodingFormat::Base64 => {
                let numbers = self.vector.iter();
                let bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
                serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
            }
        }
    }
}

impl PartialSchema for EncodedVector {
    fn schema() -> RefOr<Schema> {
        let numbers = Array::builder()
            .title(Some("Numbers"))
            .description(Some("For `encoding_format: float`."))
            .items(Object::builder().schema_type(Type::Number).build());
        let text = Object::builder()
            .schema_type(Type::String)
            .title(Some("Base64"))
            .description(Some(
                "For `encoding_format: base64`: little-endian 32-bit floating-point numbers.",
            ))
            .pattern(Some("^[A-Za-z0-9+/]*={0,2}$"));
        OneOf::builder().item(numbers).item(text).into()
    }
}

impl ToSchema for EncodedVector {}

/// The units that `embed` has charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct EmbedUsage {
    /// The number of sequences.
    #[schema(minimum = 1, maximum = 64)]
    pub embeddings: i64,
}

/// A sequence's event count that a result reports: received, used, unknown, and whether
/// none was used.
fn reported(sequence: &Sequence<'_>, counts: EventCounts) -> (i64, i64, i64, bool) {
    let EventCounts { n_used, n_unknown } = counts;
    let n_events = i64::try_from(sequence.events.len()).unwrap_or(i64::MAX);
    (n_events, n_used.into(), n_unknown.into(), n_used == 0)
}

impl PredictData {
    /// Returns a sequence's result as callers see it.
    pub fn new(sequence: &Sequence<'_>, ranking: Ranking) -> Self {
        let Ranking {
            counts,
            item_ids,
            scores,
            is_exact,
        } = ranking;
        let (n_events, n_used, n_unknown, cold) = reported(sequence, counts);
        Self {
            sequence_id: sequence.sequence_id.to_string(),
            prediction: item_ids,
            scores,
            exact: is_exact,
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl GenerateData {
    /// Returns a sequence's result as callers see it.
    pub fn new(sequence: &Sequence<'_>, generated: Continuations) -> Self {
        let Continuations {
            counts,
            continuations,
        } = generated;
        let (n_events, n_used, n_unknown, cold) = reported(sequence, counts);
        let event = |item_id| GeneratedEvent {
            item_id,
            r#type: None,
        };
        let continuations = continuations
            .into_iter()
            .map(|(item_ids, score)| Continuation {
                events: item_ids.into_iter().map(event).collect(),
                score,
            })
            .collect();
        Self {
            sequence_id: sequence.sequence_id.to_string(),
            continuations,
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl EmbedData {
    /// Returns a sequence's result as callers see it.
    pub fn new(sequence: &Sequence<'_>, vector: Vector, encoding: EncodingFormat) -> Self {
        let Vector { counts, embedding } = vector;
        let (n_events, n_used, n_unknown, cold) = reported(sequence, counts);
        Self {
            sequence_id: sequence.sequence_id.to_string(),
            embedding: EncodedVector {
                vector: embedding,
                encoding,
            },
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl Refusal {
    /// Returns the field error for a refused sequence, whose fields begin with `path`. Events with
    /// timestamps may have been sorted, so the error names the item instead of a position.
    pub fn field_error(self, sequence: &Sequence<'_>, path: &str) -> FieldError {
        let event = match self {
            Self::TooLong => {
                return FieldError::new(
                    format!("{path}events"),
                    "too_long",
                    "has more events than the model looks back on; shorten it, or send on_long: truncate",
                );
            }
            Self::UnknownItem { event } => event,
        };
        let unknown = "the model does not know this item; leave it out, or send on_unknown: skip";
        let sorted = event
            .and_then(|event| sequence.events.get(event as usize))
            .filter(|event| event.ts.is_some());
        let (field, message) = match (sorted, event) {
            (Some(sorted), _) => ("events".into(), format!("{:?}: {unknown}", sorted.item_id)),
            (None, Some(event)) => (format!("events[{event}].item_id"), unknown.into()),
            (None, None) => ("events".into(), unknown.into()),
        };
        FieldError::new(format!("{path}{field}"), "unknown_item", message)
    }
}

/// The schema of an item id.
struct ItemId;

impl PartialSchema for ItemId {
    fn schema() -> RefOr<Schema> {
        openapi_schema::text(
            "1 to 512 bytes of UTF-8.",
            r"^[^\u0000]+$",
            ITEM_ID_MAX,
            "dish-03",
        )
    }
}

impl ToSchema for ItemId {}

/// The history of one user.
#[derive(ToSchema)]
#[schema(as = Sequence)]
pub struct SequenceCreate {
    /// The caller's id of the sequence, distinct within the request.
    #[schema(min_length = 1, max_length = 256, pattern = "^[^\\u0000]*$")]
    pub sequence_id: String,
    /// The events. Without timestamps, the oldest is first.
    #[schema(max_items = 10000)]
    pub events: Vec<SequenceEventCreate>,
    /// The items to rank, distinct. Without it, all items of the catalog are ranked. Only `predict`
    /// uses it.
    #[schema(min_items = 1, max_items = 1000, value_type = Option<Vec<ItemId>>)]
    pub options: Option<Vec<String>>,
}

/// An event of a sequence.
#[derive(ToSchema)]
#[schema(as = SequenceEvent)]
pub struct SequenceEventCreate {
    /// The id of the item.
    #[schema(value_type = ItemId)]
    pub item_id: String,
    /// The type of the event, for models with event types.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000]*$")]
    pub r#type: Option<String>,
    /// The time of the event. All events of a sequence have one, or none has it.
    pub ts: Option<Timestamp>,
}
