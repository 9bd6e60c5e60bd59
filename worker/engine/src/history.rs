//! The events of a sequence that enter the model.

use crate::code::read_code;
use crate::error::Refusal;
use crate::items::ItemTable;
use crate::network::Network;
use crate::request::{Counts, Event, OnLong, OnUnknown, Sequence};

/// The events that enter the model, as numbers: one code per level and an event type for each.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// All events' codes, one event after the other.
    pub(crate) codes: Vec<u32>,
    /// The number of each event's type, if the model knows it.
    pub(crate) types: Vec<Option<u32>>,
}

impl History {
    /// Replaces the history by a sequence's events: unknown events are left out first, then the
    /// oldest ones beyond the context length.
    pub(crate) fn read(
        &mut self,
        network: &Network,
        items: Option<&ItemTable>,
        sequence: &Sequence<'_>,
    ) -> Result<Counts, Refusal> {
        self.codes.clear();
        self.types.clear();
        let mut n_unknown = 0;
        for (at, event) in sequence.events.iter().enumerate() {
            if append_code(network, items, event.item_id, &mut self.codes) {
                self.types.push(type_number(network, event));
            } else if sequence.on_unknown == OnUnknown::Refuse {
                return Err(Refusal::UnknownItem { event: at });
            } else {
                n_unknown += 1;
            }
        }
        let n_events = self.types.len();
        let context_length = network.spec.context_length;
        if n_events > context_length && sequence.on_long == OnLong::Refuse {
            return Err(Refusal::TooLong {
                n_events,
                context_length,
            });
        }
        self.truncate(network);
        Ok(Counts {
            n_used: self.types.len(),
            n_unknown,
        })
    }

    /// Appends an event without a type.
    pub(crate) fn push(&mut self, code: &[u32]) {
        self.codes.extend_from_slice(code);
        self.types.push(None);
    }

    /// Leaves the oldest events beyond the context length out.
    pub(crate) fn truncate(&mut self, network: &Network) {
        let surplus = self.types.len().saturating_sub(network.spec.context_length);
        self.types.drain(..surplus);
        self.codes.drain(..surplus * network.levels.len());
    }

    /// Replaces the history by another one.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.codes.clone_from(&other.codes);
        self.types.clone_from(&other.types);
    }
}

/// Appends an item's code. Returns `false` if the model does not know the item. Without an item
/// table, items are named by their codes.
pub(crate) fn append_code(
    network: &Network,
    items: Option<&ItemTable>,
    item_id: &str,
    codes: &mut Vec<u32>,
) -> bool {
    match items {
        None => read_code(item_id, &network.spec.level_sizes, codes),
        Some(items) => match items.code_of(item_id) {
            Some(code) => {
                codes.extend_from_slice(code);
                true
            }
            None => false,
        },
    }
}

fn type_number(network: &Network, event: &Event<'_>) -> Option<u32> {
    let number = network.type_numbers.get(event.event_type?)?;
    u32::try_from(*number).ok()
}
