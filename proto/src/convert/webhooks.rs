//! Messages of `WebhookService`.

use assay_core::model::webhook::{Deliveries, Delivery, Webhook, WebhookWithSecret, Webhooks};

use super::timestamp;
use crate::v1;

impl From<Webhook> for v1::Webhook {
    fn from(webhook: Webhook) -> Self {
        let Webhook {
            id,
            org_id,
            url,
            events,
            description,
            enabled,
            disabled_reason,
            secret_hint,
            created_by,
            created_at,
            updated_at,
            last_delivered_at,
            failing_since,
        } = webhook;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            url,
            events: events.iter().map(ToString::to_string).collect(),
            description,
            enabled,
            disabled_reason: disabled_reason.map(|reason| reason.to_string()),
            secret_hint,
            created_by: created_by.into(),
            created_at: Some(timestamp(created_at)),
            updated_at: Some(timestamp(updated_at)),
            last_delivered_at: last_delivered_at.map(timestamp),
            failing_since: failing_since.map(timestamp),
        }
    }
}

impl From<WebhookWithSecret> for v1::WebhookWithSecret {
    fn from(created: WebhookWithSecret) -> Self {
        let WebhookWithSecret { webhook, secret } = created;
        let v1::Webhook {
            id,
            org_id,
            url,
            events,
            description,
            enabled,
            disabled_reason,
            secret_hint,
            created_by,
            created_at,
            updated_at,
            last_delivered_at,
            failing_since,
        } = webhook.into();
        Self {
            id,
            org_id,
            url,
            events,
            description,
            enabled,
            disabled_reason,
            secret_hint,
            created_by,
            created_at,
            updated_at,
            last_delivered_at,
            failing_since,
            secret,
        }
    }
}

impl From<Webhooks> for v1::ListWebhooksResponse {
    fn from(listing: Webhooks) -> Self {
        let Webhooks { webhooks } = listing;
        Self {
            webhooks: webhooks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Delivery> for v1::Delivery {
    fn from(delivery: Delivery) -> Self {
        let Delivery {
            id,
            event_id,
            webhook_id,
            attempt,
            status,
            response_status,
            error,
            duration_ms,
            created_at,
            attempted_at,
            next_attempt_at,
        } = delivery;
        Self {
            id: id.into(),
            event_id: event_id.into(),
            webhook_id: webhook_id.into(),
            attempt: attempt.into(),
            status: status.to_string(),
            response_status: response_status.map(Into::into),
            error: error.map(|reason| reason.to_string()),
            duration_ms,
            created_at: Some(timestamp(created_at)),
            attempted_at: attempted_at.map(timestamp),
            next_attempt_at: next_attempt_at.map(timestamp),
        }
    }
}

impl From<Deliveries> for v1::ListDeliveriesResponse {
    fn from(listing: Deliveries) -> Self {
        let Deliveries {
            deliveries,
            next_before,
        } = listing;
        Self {
            deliveries: deliveries.into_iter().map(Into::into).collect(),
            next_before: next_before.map(Into::into),
        }
    }
}
