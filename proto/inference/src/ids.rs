//! Names of the profile `ids`: items are named by their ids, and the engine tokenizes. All tensors
//! have the batch first. B is the number of rows, at most [`ROWS_MAX`]; rows are padded on the
//! right; T and O are at least 1.

/// Maximum number of rows in a call.
pub const ROWS_MAX: usize = 64;

/// Header of a call with the value [`PRIORITY_JOB`] if the call belongs to a job. Jobs use at most
/// half of the permits of the embedded engine.
pub const PRIORITY_HEADER: &str = "assay-priority";

/// See [`PRIORITY_HEADER`].
pub const PRIORITY_JOB: &str = "job";

/// Trailer of a call that ended with `RESOURCE_EXHAUSTED` because the engine has too many calls: the
/// milliseconds after which to send it again. An engine that sends it works.
///
/// Source: gRPC proposal A6, "Pushback".
pub const RETRY_PUSHBACK_HEADER: &str = "grpc-retry-pushback-ms";

/// The value of [`RETRY_PUSHBACK_HEADER`] that the embedded engine sends.
pub const RETRY_PUSHBACK: &str = "250";

/// Input `BYTES` [B, T]: the item ids of the events, from the oldest to the latest. Padding is
/// empty. Output: the item ids that were ranked (`BYTES` [B, K]) or generated (`BYTES` [B, S, N]).
pub const ITEM_IDS: &str = "item_ids";

/// Input `INT64` [B, 1]: the number of events of each row.
pub const LENGTHS: &str = "lengths";

/// Input `BYTES` [B, T]: the types of the events, empty for an event without a type. Absent if no
/// event has a type.
pub const TYPES: &str = "types";

/// Input `BYTES` [B, O]: the options of each row. Absent if no row has options.
pub const OPTIONS: &str = "options";

/// Input `INT64` [B, 1]: the number of options of each row, or [`NO_OPTIONS`].
pub const OPTION_COUNTS: &str = "option_counts";

/// The number of options of a row that ranks the catalog.
pub const NO_OPTIONS: i64 = -1;

/// Input `BYTES` [B, 1] of `generate`: the ids of the sequences, on which random numbers depend.
pub const SEQUENCE_IDS: &str = "sequence_ids";

/// Input `FP64` [B, 1] of `generate`: the temperature of samples.
pub const TEMPERATURE: &str = "temperature";

/// Output `FP32`: the scores of ranked items ([B, K]) or of continuations ([B, S]).
pub const SCORES: &str = "scores";

/// Output `INT64` [B, 1]: the number of ranked items or of continuations of each row.
pub const COUNTS: &str = "counts";

/// Output `INT64` [B, 1] of `predict`: the number of items with a score. The others are unknown
/// options at the end of the row.
pub const N_SCORED: &str = "n_scored";

/// Output `INT64` [B, 1] of `predict`: 1 if no item is missing that is more probable than a returned
/// one, otherwise 0. Engines may leave it out.
pub const EXACT: &str = "exact";

/// Output `INT64` [B, S] of `generate`: the number of items of each continuation.
pub const CONTINUATION_LENGTHS: &str = "continuation_lengths";

/// Output `FP32` [B, D] of `embed`.
pub const EMBEDDING: &str = "embedding";

/// Output `INT64` [B, 1]: the number of events that the model used.
pub const N_USED: &str = "n_used";

/// Output `INT64` [B, 1]: the number of events with an item that the model does not know.
pub const N_UNKNOWN: &str = "n_unknown";

/// Output `INT64` [B, 1]: [`NOT_REFUSED`], [`TOO_LONG`], or the position of the first event with an
/// unknown item, from 1, if `on_unknown` refuses it. All other outputs of a refused row are zeros
/// and empty strings.
pub const REFUSALS: &str = "refusals";

/// The value in [`REFUSALS`] of a row with a result.
pub const NOT_REFUSED: i64 = 0;

/// The value in [`REFUSALS`] of a row with more events than the model's context, if `on_long`
/// refuses it.
pub const TOO_LONG: i64 = -1;

/// String parameter: `predict`, `generate` or `embed`.
pub const OPERATION: &str = "operation";

/// String parameter: `truncate` or `refuse`.
pub const ON_LONG: &str = "on_long";

/// String parameter: `skip` or `refuse`.
pub const ON_UNKNOWN: &str = "on_unknown";

/// Boolean parameter: true if the items of events are left out of the results.
pub const EXCLUDE_SEEN: &str = "exclude_seen";

/// Integer parameter of `predict`: the number of items to return. Absent: all options.
pub const TOP_K: &str = "top_k";

/// Integer parameter of `generate`: the number of events of a continuation.
pub const N_EVENTS: &str = "n_events";

/// Integer parameter of `generate`: the number of continuations.
pub const N_CONTINUATIONS: &str = "n_continuations";

/// String parameter of `generate`: `beam` or `sample`.
pub const MODE: &str = "mode";

/// String parameter of `generate`: the seed of samples, a decimal 64-bit integer.
pub const SEED: &str = "seed";

/// String parameter of `embed`: `last` or `mean`.
pub const POOLING: &str = "pooling";

/// Boolean parameter of `embed`: true if embeddings have the length 1.
pub const NORMALIZE: &str = "normalize";
