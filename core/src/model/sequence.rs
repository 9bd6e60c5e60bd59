//! Sequences of events, which the serving operations read.

use std::borrow::Cow;

use crate::model::timestamp::Timestamp;

/// Maximum number of events of a sequence.
pub const EVENTS_MAX: usize = 10_000;

/// Maximum number of options of a sequence.
pub const OPTIONS_MAX: usize = 1_000;

/// The history of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The caller's id of the sequence, which the service does not interpret.
    pub sequence_id: Cow<'a, str>,
    /// The events, the oldest first.
    pub events: Vec<Event<'a>>,
    /// The items to rank. `None`: all catalog items.
    pub options: Option<Vec<Cow<'a, str>>>,
}

/// An event of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The id of the item.
    pub item_id: Cow<'a, str>,
    /// The type of the event, for models with event types.
    pub r#type: Option<Cow<'a, str>>,
    /// The time of the event.
    pub ts: Option<Timestamp>,
}
