//! Generated events that are sent before the result is complete.

use tokio::sync::mpsc::UnboundedSender;

/// A generated event, whose continuation may not be complete yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyEvent {
    /// The index of the sequence in the call.
    pub sequence: usize,
    /// The index of the continuation.
    pub continuation: usize,
    /// The id of the generated item.
    pub item_id: String,
}

/// Receives events of all continuations, those of each continuation in their order. A call has at
/// most 32,000.
pub type EarlyEvents = UnboundedSender<EarlyEvent>;
