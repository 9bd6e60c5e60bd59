//! Generated events that are sent before the result is complete.

use tokio::sync::mpsc::UnboundedSender;

/// A generated event, whose continuation may not be complete yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyEvent {
    /// The sequence's index in the call.
    pub sequence: usize,
    /// The continuation's index.
    pub continuation: usize,
    /// The generated item's id.
    pub item_id: String,
}

/// Receives events for all continuations, each continuation's in their order. A call has at
/// most 32,000.
pub type EarlyEvents = UnboundedSender<EarlyEvent>;
