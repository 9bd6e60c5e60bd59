//! Webhooks: URLs to which an organization's events are sent, and their deliveries.

use std::time::Duration;

use assay_eval::FieldError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::model::error::{Code, Error, Result};
use crate::model::error_details::Resource;
use crate::model::event::EventType;
use crate::model::ids::{DeliveryId, EventId, OrgId, UserId, WebhookId};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// Maximum webhook count per organization.
pub const WEBHOOKS_MAX: i64 = 10;

/// Time after which a webhook is disabled if all deliveries have failed since.
pub const FAILING_MAX: Duration = Duration::from_secs(5 * 24 * 60 * 60);

/// Delays before each further delivery attempt. A random share up to [`DELAY_JITTER`] is added
/// or subtracted.
pub const RETRY_DELAYS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(5 * 60 * 60),
    Duration::from_secs(10 * 60 * 60),
    Duration::from_secs(14 * 60 * 60),
    Duration::from_secs(20 * 60 * 60),
    Duration::from_secs(24 * 60 * 60),
];

/// Largest change in a delay, as its share.
pub const DELAY_JITTER: f64 = 0.2;

text_enum! {
    /// The reason why a webhook is disabled.
    pub enum DisabledReason {
        /// An owner disabled it.
        Owner = "owner",
        /// The receiver responded with 410.
        Gone = "gone",
        /// No delivery has succeeded for 5 days.
        Failing = "failing",
    }
}

text_enum! {
    /// A delivery's status.
    pub enum DeliveryStatus {
        /// The next attempt is due at `next_attempt_at`, or in progress.
        Pending = "pending",
        /// The receiver has responded with a 2xx status.
        Delivered = "delivered",
        /// All attempts have failed.
        Failed = "failed",
    }
}

text_enum! {
    /// The reason why a delivery attempt failed.
    pub enum DeliveryError {
        /// The name of the host has no address, or no name server responded.
        Dns = "dns",
        /// The address of the host is not on the public internet.
        Address = "address",
        /// The connection failed, or ended before the response.
        Connect = "connect",
        /// The certificate is not valid, or the TLS handshake failed.
        Tls = "tls",
        /// There was no response in 15 seconds.
        Timeout = "timeout",
        /// The response has a status other than 2xx. Redirects are not followed.
        Status = "status",
    }
}

/// A webhook without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Webhook {
    /// The id of the webhook.
    pub id: WebhookId,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The URL to which events are sent.
    #[schema(format = "uri", max_length = 6000)]
    pub url: String,
    /// The types of the events that are sent.
    #[schema(min_items = 1)]
    pub events: Vec<EventType>,
    /// A description for people. Null if there is none.
    #[schema(max_length = 200)]
    pub description: Option<String>,
    /// `true` if events are sent.
    pub enabled: bool,
    /// The reason why the webhook is disabled. Null while it is enabled.
    pub disabled_reason: Option<DisabledReason>,
    /// The last 4 characters of the secret, for recognition.
    #[schema(min_length = 4, max_length = 4)]
    pub secret_hint: String,
    /// The id of the user who created the webhook.
    pub created_by: UserId,
    /// The time at which the webhook was created.
    pub created_at: Timestamp,
    /// The time of the last change by an owner or by the platform.
    pub updated_at: Timestamp,
    /// The time of the last successful delivery, exact to about a second. Null if there was none.
    pub last_delivered_at: Option<Timestamp>,
    /// The time since which all attempts have failed. Null if the last one succeeded, or if there was
    /// none.
    pub failing_since: Option<Timestamp>,
}

/// A webhook with its secret. No other response contains the secret.
#[derive(Serialize, ToSchema)]
pub struct WebhookWithSecret {
    /// The webhook without its secret.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// The secret that signs the deliveries: `whsec_` and 44 characters of base64. No other response
    /// contains it.
    #[schema(pattern = "^whsec_[0-9A-Za-z+/]{43}=$", format = Password)]
    pub secret: String,
}

/// The webhooks of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Webhooks {
    /// The webhooks, the oldest first.
    #[schema(max_items = 10)]
    pub webhooks: Vec<Webhook>,
}

/// A delivery of an event to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Delivery {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// The id of the event, which is the header `webhook-id` of each attempt.
    pub event_id: EventId,
    /// The id of the webhook.
    pub webhook_id: WebhookId,
    /// The number of attempts so far.
    #[schema(minimum = 0)]
    pub attempt: i32,
    /// The status of the delivery.
    pub status: DeliveryStatus,
    /// The status of the last response. Null if there was none.
    #[schema(minimum = 100, maximum = 999)]
    pub response_status: Option<i32>,
    /// The reason why the last attempt failed. Null if it did not.
    pub error: Option<DeliveryError>,
    /// The duration of the last attempt in milliseconds. Null before its end.
    #[schema(minimum = 0)]
    pub duration_ms: Option<i64>,
    /// The time at which the delivery was created.
    pub created_at: Timestamp,
    /// The time at which the last attempt started. Null if there was none.
    pub attempted_at: Option<Timestamp>,
    /// The time of the next attempt. During an attempt, the time at which it is repeated if its result
    /// remains unknown. Null unless the delivery is pending.
    pub next_attempt_at: Option<Timestamp>,
}

/// A page of the deliveries of a webhook, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Deliveries {
    /// The deliveries of the page.
    #[schema(max_items = 200)]
    pub deliveries: Vec<Delivery>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<DeliveryId>,
}

/// A new webhook that is not stored yet.
pub struct NewWebhook {
    /// The id of the webhook.
    pub id: WebhookId,
    /// The URL.
    pub url: String,
    /// The types of the events.
    pub events: Vec<EventType>,
    /// The description.
    pub description: Option<String>,
    /// The first secret's last characters.
    pub secret_hint: String,
    /// The user who creates the webhook.
    pub created_by: UserId,
}

/// A webhook change. Absent fields remain unchanged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WebhookChange {
    /// The new URL.
    pub url: Option<String>,
    /// The new types of the events.
    pub events: Option<Vec<EventType>>,
    /// The new description, or `Some(None)` to remove it.
    pub description: Option<Option<String>>,
    /// The reason for which it is disabled, or `Some(None)` to enable it.
    pub disabled_reason: Option<Option<DisabledReason>>,
}

impl Webhook {
    /// Returns an error if the webhook is disabled. `what` is the refused action: "tested".
    ///
    /// # Errors
    /// 409.
    pub fn ensure_enabled(&self, what: &str) -> Result<()> {
        if self.enabled {
            return Ok(());
        }
        let message = format!(
            "The webhook is disabled, and cannot be {what}. Enable it first: PATCH it with {{\"enabled\": true}}."
        );
        Err(Error::invalid_state(Resource::Webhook, message))
    }
}

/// Returns the error for an installation without a key for webhooks.
pub fn no_key() -> Error {
    let message = "This installation sends no webhooks: its operator has not set ASSAY_WEBHOOK_KEY. Read events with GET /v1/events.";
    Error::invalid_state(Resource::Webhook, message)
}

/// Returns an error unless an organization with this many webhooks may create another one.
///
/// # Errors
/// 409 with the maximum.
pub fn ensure_room(webhooks: i64) -> Result<()> {
    if webhooks < WEBHOOKS_MAX {
        return Ok(());
    }
    let message = format!(
        "The organization has {WEBHOOKS_MAX} webhooks, the maximum. Delete one that is not used."
    );
    Err(Error::new(Code::Conflict, message))
}

/// Validates the event types that a webhook sends, and returns each once.
///
/// # Errors
/// The errors for the field `events`: it is empty, or an element is unknown or repeated.
pub fn event_types(names: &[String]) -> Result<Vec<EventType>, Vec<FieldError>> {
    if names.is_empty() {
        let message = "must name at least one type of events";
        return Err(vec![FieldError::new("events", "required", message)]);
    }
    let mut types = Vec::new();
    let mut errors = Vec::new();
    // A list that names more is wrong in any case, and its response must not grow with it.
    for (index, name) in names.iter().enumerate().take(EventType::ALL.len() + 1) {
        let field = format!("events[{index}]");
        match validation::one_of(&field, name) {
            Ok(r#type) if types.contains(&r#type) => {
                errors.push(FieldError::new(field, "duplicate", "must be given once"));
            }
            Ok(r#type) => types.push(r#type),
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok(types),
        false => Err(errors),
    }
}

/// Returns the delay before a delivery's next attempt, or `None` if none is left.
///
/// `failures` is the failed attempt count, at least 1. `random` is from 0 to 1. A receiver can ask
/// for a longer delay, up to a day.
pub fn retry_delay(
    failures: usize,
    random: f64,
    retry_after: Option<Duration>,
) -> Option<Duration> {
    let delay = *RETRY_DELAYS.get(failures.checked_sub(1)?)?;
    let delay = delay.mul_f64(1.0 + DELAY_JITTER * (2.0 * random - 1.0));
    let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
    Some(delay.max(asked))
}

/// Longest delay that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_end_and_respect_the_receiver() {
        let seconds = |attempts, random, asked: Option<u64>| {
            let delay = retry_delay(attempts, random, asked.map(Duration::from_secs));
            delay.map(|delay| delay.as_secs_f64())
        };
        assert_eq!(seconds(1, 0.0, None), Some(4.0));
        assert_eq!(seconds(1, 0.5, None), Some(5.0));
        assert_eq!(seconds(1, 1.0, None), Some(6.0));
        assert_eq!(seconds(9, 0.5, None), Some(86_400.0));
        assert_eq!(seconds(10, 0.5, None), None);
        assert_eq!(seconds(1, 0.5, Some(60)), Some(60.0));
        assert_eq!(seconds(2, 0.5, Some(60)), Some(300.0));
        assert_eq!(seconds(1, 0.5, Some(u64::MAX)), Some(86_400.0));
        assert_eq!(seconds(10, 0.5, Some(60)), None);
    }

    #[test]
    fn event_types_are_checked() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let both = event_types(&names(&["job.failed", "ping"])).unwrap();
        assert_eq!(both, [EventType::JobFailed, EventType::Ping]);
        for bad in [&[][..], &["job"], &["ping", "ping"], &["a"; 1000]] {
            let errors = event_types(&names(bad)).unwrap_err();
            assert!(!errors.is_empty() && errors.len() <= EventType::ALL.len() + 1);
        }
    }
}
