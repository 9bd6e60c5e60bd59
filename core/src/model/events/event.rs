//! Events: what happened in an organization, for its programs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::ids::{EventId, OrgId};
use crate::model::scope::Scope;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

text_enum! {
    /// An event's type.
    pub enum EventType {
        /// A job has succeeded. The data is the job.
        JobSucceeded = "job.succeeded",
        /// A job has failed. The data is the job.
        JobFailed = "job.failed",
        /// A job was cancelled. The data is the job.
        JobCancelled = "job.cancelled",
        /// The usage of the month has reached 80 or 100 % of a limit of the plan.
        UsageThreshold = "usage.threshold",
        /// A version of a suite was published. The data is the suite.
        SuitePublished = "suite.published",
        /// The operator has suspended a suite of the organization. The data is the suite.
        SuiteSuspended = "suite.suspended",
        /// A key was created, also by a rotation. The data is the key.
        KeyCreated = "key.created",
        /// A key was revoked. The data is the key.
        KeyRevoked = "key.revoked",
        /// A key expires in 14, 7 or 1 days. The data is the key.
        KeyExpiring = "key.expiring",
        /// A user became a member. The data is the member.
        MemberAdded = "member.added",
        /// A membership ended. The data is the member before.
        MemberRemoved = "member.removed",
        /// The role of a member was changed. The data is the member.
        MemberRoleChanged = "member.role_changed",
        /// A webhook was disabled, because its receiver is gone or has failed for days. The data is the
        /// webhook.
        WebhookDisabled = "webhook.disabled",
        /// A test of a webhook, which only that webhook receives. The data is the webhook.
        Ping = "ping",
    }
}

impl EventType {
    /// Returns the scope with which a key can read the event's data by other operations.
    /// `None` if only a key with all scopes may see the event, because the data is for sessions.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::JobSucceeded | Self::JobFailed | Self::JobCancelled => Some(Scope::JobsRead),
            Self::UsageThreshold => Some(Scope::UsageRead),
            Self::SuitePublished | Self::SuiteSuspended => Some(Scope::SuitesRead),
            Self::KeyCreated
            | Self::KeyRevoked
            | Self::KeyExpiring
            | Self::MemberAdded
            | Self::MemberRemoved
            | Self::MemberRoleChanged
            | Self::WebhookDisabled
            | Self::Ping => None,
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Event {
    /// The id of the event.
    pub id: EventId,
    /// The type of the event.
    pub r#type: EventType,
    /// The time of the event.
    pub timestamp: Timestamp,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The resource that the event is about, as its operation returns it: for example the job.
    #[schema(value_type = Object)]
    pub data: Map<String, Value>,
}

/// One page of events, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Events {
    /// The events of the page, the oldest first.
    #[schema(max_items = 200)]
    pub events: Vec<Event>,
    /// The `cursor` of the next page, which begins after the last event of this one. Never null:
    /// later events follow.
    pub next_cursor: EventCursor,
}

/// An event's data about a month's usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageThreshold {
    /// The limit's name, such as `eval_items_per_month`.
    pub limit: String,
    /// The percentage that was reached: 80 or 100.
    pub percent: i32,
    /// The usage.
    pub used: i64,
    /// The limit's value.
    pub max: i64,
    /// The month's start, UTC.
    pub period_start: Timestamp,
    /// The next month's start, UTC.
    pub period_end: Timestamp,
}

/// A position in an organization's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor {
    /// The transaction that stored the event before.
    pub xid: i64,
    /// The previous event's place.
    pub position: i64,
}

/// Maximum length of a cursor, in characters.
const CURSOR_MAX: usize = 64;

impl EventCursor {
    /// Parses a cursor. Returns `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let place = std::str::from_utf8(&bytes).ok()?.strip_prefix("events:")?;
        let (xid, position) = place.split_once(':')?;
        let cursor = Self {
            xid: xid.parse().ok().filter(|xid| *xid >= 0)?,
            position: position.parse().ok().filter(|position| *position >= 0)?,
        };
        // Formatting the cursor again must give the same text, so that a position has only one
        // cursor.
        (cursor.to_string() == text).then_some(cursor)
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = format!("events:{}:{}", self.xid, self.position);
        f.write_str(&URL_SAFE_NO_PAD.encode(place))
    }
}

impl From<EventCursor> for String {
    fn from(cursor: EventCursor) -> Self {
        cursor.to_string()
    }
}

impl Serialize for EventCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PartialSchema for EventCursor {
    fn schema() -> RefOr<Schema> {
        crate::model::openapi_schema::text(
            "A position in the events of the organization. Opaque.",
            "^[A-Za-z0-9_-]+$",
            CURSOR_MAX,
            "ZXZlbnRzOjgxMjozNA",
        )
    }
}

impl ToSchema for EventCursor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_has_one_spelling() {
        let cursor = EventCursor {
            xid: 812,
            position: 34,
        };
        assert_eq!(EventCursor::parse(&cursor.to_string()), Some(cursor));
        for bad in [
            "events:812:34",
            "events:+812:34",
            "events:-1:0",
            "keys:1:1",
            "events:1",
        ] {
            assert_eq!(EventCursor::parse(bad), None);
            assert_eq!(
                EventCursor::parse(&URL_SAFE_NO_PAD.encode(bad)).filter(|_| bad != "events:812:34"),
                None
            );
        }
    }
}
