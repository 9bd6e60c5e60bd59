//! Messages of `EventService`.

use assay_core::model::event::{Event, Events};

use super::{object, timestamp};
use crate::v1;

impl From<Event> for v1::Event {
    fn from(event: Event) -> Self {
        let Event {
            id,
            r#type,
            timestamp: at,
            org_id,
            data,
        } = event;
        Self {
            id: id.into(),
            r#type: r#type.to_string(),
            timestamp: Some(timestamp(at)),
            org_id: org_id.into(),
            data: Some(object(data)),
        }
    }
}

impl From<Events> for v1::ListEventsResponse {
    fn from(listing: Events) -> Self {
        let Events {
            events,
            next_cursor,
        } = listing;
        Self {
            events: events.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.to_string(),
        }
    }
}
