//! Webhooks of an organization and their deliveries: `/v1/webhooks`.

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::cursor::PAGE;
use assay_core::model::error::Errors;
use assay_core::model::event::{Event, EventType};
use assay_core::model::key::overlap_hours;
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation::{self, TEXT_MAX};
use assay_core::model::webhook::{
    Deliveries, Delivery, DisabledReason, NewWebhook, Webhook, WebhookChange, WebhookWithSecret,
    Webhooks, ensure_room, event_types, no_key,
};
use assay_core::model::webhook_secret::WebhookKey;
use assay_core::store::delivery::Payload;
use assay_core::store::event::RETENTION_DAYS;
use assay_core::store::{self, PgConnection};
use assay_core::{DeliveryId, Error, EventId, Resource, Result, WebhookId};
use assay_eval::FieldError;
use serde_json::{Map, Value};

use crate::app::App;
use crate::background::event_data::{object, render};
use crate::generated::inputs;

/// Maximum number of deliveries that a statement changes. Their attempts wait for it.
const DELIVERIES_MAX: i64 = 1_000;

impl inputs::UpdateWebhook {
    /// Validates the fields that are present. In a change, a blank description removes it.
    fn validate(self, app: &App, is_change: bool) -> Result<WebhookChange> {
        let Self {
            url,
            events,
            description,
            enabled,
        } = self;
        let mut errors = Errors::default();
        let targets = &app.settings.webhook_targets;
        let url = url.map(|url| targets.check_url(&url)).transpose();
        let url = errors.take(url);
        let events = events.map(|names| event_types(&names)).transpose();
        let events = events.unwrap_or_else(|found| {
            errors.extend(found);
            None
        });
        let description = description
            .map(|text| match is_blank(&text) {
                true if is_change => Ok(None),
                _ => validation::text("description", &text).map(Some),
            })
            .transpose();
        let description = errors.take(description);
        errors.finish()?;
        Ok(WebhookChange {
            url,
            events,
            description,
            disabled_reason: enabled.map(|enabled| match enabled {
                true => None,
                false => Some(DisabledReason::Owner),
            }),
        })
    }
}

/// Returns `true` if a text has only spaces, if anything.
fn is_blank(text: &str) -> bool {
    text.len() <= TEXT_MAX && text.bytes().all(|byte| byte == b' ')
}

/// Returns the webhooks of the organization, the oldest first.
pub async fn list(app: &App, owner: &Owner) -> Result<Webhooks> {
    let webhooks = store::webhook::list(&app.db.get(), owner.session().org_id()).await?;
    Ok(Webhooks { webhooks })
}

/// Returns a webhook.
pub async fn get(app: &App, owner: &Owner, webhook_id: &str) -> Result<Webhook> {
    let webhook_id = parse(webhook_id)?;
    store::webhook::find(&app.db.get(), owner.session().org_id(), &webhook_id)
        .await?
        .ok_or_else(not_found)
}

/// Creates a webhook. The response is the only one that contains its first secret.
pub async fn create(
    app: &App,
    owner: &Owner,
    input: inputs::CreateWebhook,
) -> Result<WebhookWithSecret> {
    let fields = inputs::UpdateWebhook {
        url: Some(input.url),
        events: Some(input.events.unwrap_or_default()),
        description: input.description,
        enabled: None,
    };
    let WebhookChange {
        url,
        events,
        description,
        disabled_reason: _,
    } = fields.validate(app, false)?;
    let id = WebhookId::random()?;
    let secret = key(app)?.secret(&id, 1)?;
    let session = owner.session();
    let new = NewWebhook {
        id,
        url: url.unwrap_or_default(),
        events: events.unwrap_or_default(),
        description: description.flatten(),
        secret_hint: secret.hint(),
        created_by: session.user_id().clone(),
    };
    let (org_id, actor) = (session.org_id(), session.actor());
    let mut transaction = app.db.get().begin().await?;
    ensure_room(store::webhook::lock_count(&mut transaction, org_id).await?)?;
    let webhook = store::webhook::insert(&mut *transaction, org_id, &new).await?;
    let created = Change::webhook(AuditType::WebhookCreated, &webhook.id)
        .field("url", (), &webhook.url)
        .field("events", (), &webhook.events)
        .field("description", (), &webhook.description);
    store::audit::record(&mut transaction, org_id, actor, &[created]).await?;
    transaction.commit().await?;
    Ok(WebhookWithSecret {
        webhook,
        secret: secret.text(),
    })
}

/// Changes a webhook. Absent fields remain unchanged.
pub async fn update(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    input: inputs::UpdateWebhook,
) -> Result<Webhook> {
    let mut change = input.validate(app, true)?;
    if change == WebhookChange::default() {
        return Err(Error::field(
            "body",
            "required",
            "give at least one of url, events, description and enabled",
        ));
    }
    let session = owner.session();
    let org_id = session.org_id();
    let webhook_id = parse(webhook_id)?;
    let mut transaction = app.db.get().begin().await?;
    let before = lock(&mut transaction, session, &webhook_id).await?;
    // Disabling it again must not change the reason, and enabling it again not the position in the feed.
    change
        .disabled_reason
        .take_if(|reason| reason.is_none() == before.enabled);
    let after = store::webhook::update(&mut transaction, org_id, &webhook_id, &change).await?;
    let updated = Change::webhook(AuditType::WebhookUpdated, &webhook_id)
        .field("url", &before.url, &after.url)
        .field("events", &before.events, &after.events)
        .field("description", &before.description, &after.description)
        .field("enabled", before.enabled, after.enabled);
    if updated.fields.is_empty() {
        return Ok(before);
    }
    store::audit::record(&mut transaction, org_id, session.actor(), &[updated]).await?;
    transaction.commit().await?;
    Ok(after)
}

/// Deletes a webhook. Its deliveries are no longer attempted.
pub async fn delete(app: &App, owner: &Owner, webhook_id: &str) -> Result<()> {
    let session = owner.session();
    let org_id = session.org_id();
    let webhook_id = parse(webhook_id)?;
    let mut transaction = app.db.get().begin().await?;
    let webhook = store::webhook::delete(&mut *transaction, org_id, &webhook_id)
        .await?
        .ok_or_else(not_found)?;
    let deleted =
        Change::webhook(AuditType::WebhookDeleted, &webhook_id).field("url", &webhook.url, ());
    store::audit::record(&mut transaction, org_id, session.actor(), &[deleted]).await?;
    transaction.commit().await?;
    // If this fails, they stay as long as their events, without being attempted.
    loop {
        let (db, limit) = (app.db.get(), DELIVERIES_MAX);
        let batch = store::delivery::delete_pending(&db, org_id, &webhook_id, limit);
        if batch.await? < limit.unsigned_abs() {
            return Ok(());
        }
    }
}

/// Replaces the secret of a webhook. Deliveries are signed with both secrets for the overlap.
pub async fn rotate(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    input: inputs::RotateWebhook,
) -> Result<WebhookWithSecret> {
    let hours = overlap_hours(input.overlap_hours)?;
    let session = owner.session();
    let org_id = session.org_id();
    let webhook_id = parse(webhook_id)?;
    let mut transaction = app.db.get().begin().await?;
    let before = lock(&mut transaction, session, &webhook_id).await?;
    let key = key(app)?;
    let db = &mut transaction;
    let generation = store::webhook::secret_generation(db, org_id, &webhook_id).await? + 1;
    let secret = key.secret(&webhook_id, generation)?;
    let hint = secret.hint();
    let webhook = store::webhook::rotate(db, org_id, &webhook_id, generation, &hint, hours).await?;
    let rotated = Change::webhook(AuditType::WebhookUpdated, &webhook_id)
        .field("secret_hint", &before.secret_hint, &webhook.secret_hint)
        .field("overlap_hours", (), hours);
    store::audit::record(&mut transaction, org_id, session.actor(), &[rotated]).await?;
    transaction.commit().await?;
    Ok(WebhookWithSecret {
        webhook,
        secret: secret.text(),
    })
}

/// Sends an event to a webhook only: a ping, or the newest event of a type with another id.
pub async fn test(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    input: inputs::TestWebhook,
) -> Result<Delivery> {
    let r#type: Option<EventType> = input
        .r#type
        .map(|text| validation::one_of("type", &text))
        .transpose()?;
    let r#type = r#type.unwrap_or(EventType::Ping);
    let session = owner.session();
    let org_id = session.org_id();
    let webhook_id = parse(webhook_id)?;
    let mut transaction = app.db.get().begin().await?;
    let webhook = lock_sending(app, &mut transaction, session, &webhook_id, "tested").await?;
    let data = match r#type {
        EventType::Ping => object(&webhook)?,
        r#type => newest_data(app, &mut transaction, session, r#type).await?,
    };
    let event = Event {
        id: EventId::random()?,
        r#type,
        timestamp: store::now(&mut *transaction).await?,
        org_id: org_id.clone(),
        data,
    };
    let payload = Payload {
        body: serde_json::to_string(&event).map_err(Error::internal)?,
        event_id: event.id,
    };
    let payloads = std::slice::from_ref(&payload);
    store::delivery::insert_all(&mut transaction, org_id, &webhook_id, payloads).await?;
    let event_id = &payload.event_id;
    let delivery =
        store::delivery::find_by_event(&mut *transaction, org_id, &webhook_id, event_id).await?;
    transaction.commit().await?;
    delivery.ok_or_else(|| Error::internal("the delivery of a test was not stored"))
}

/// Returns the data of the newest event of a type. The lock on the webhook excludes that a user whom
/// the event is about is erased meanwhile.
async fn newest_data(
    app: &App,
    db: &mut PgConnection,
    session: &Session,
    r#type: EventType,
) -> Result<Map<String, Value>> {
    let org_id = session.org_id();
    let mut newest = Vec::new();
    if let Some(cursor) = store::event::before_newest(&mut *db, org_id, r#type).await? {
        let page = store::event::list(db, org_id, &[r#type], cursor, 1).await?;
        newest = render(app, org_id, page.rows).await?;
    }
    newest.pop().map(|event| event.data).ok_or_else(|| {
        let message = format!(
            "The organization has no event of the type {type} that could be sent. Use the type ping."
        );
        Error::invalid_state(Resource::Webhook, message)
    })
}

/// Returns a page of the deliveries of a webhook, the newest first.
pub async fn deliveries(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    input: inputs::ListDeliveries,
) -> Result<Deliveries> {
    let inputs::ListDeliveries {
        status,
        limit,
        before,
    } = input;
    let mut errors = Errors::default();
    let status = status.map(|text| validation::one_of("status", &text));
    let status = errors.take(status.transpose());
    let limit = errors.take(validation::limit(limit, PAGE.0, PAGE.1));
    let before: Option<Result<DeliveryId, _>> = before.map(|text| {
        let malformed =
            || FieldError::new("before", "format", "must be the id of a delivery, dlv_…");
        text.parse().map_err(|_| malformed())
    });
    let before = errors.take(before.transpose());
    errors.finish()?;
    let webhook = get(app, owner, webhook_id).await?;
    let (db, org_id) = (app.db.get(), owner.session().org_id());
    let rows = i64::from(limit) + 1;
    let mut deliveries =
        store::delivery::list(&db, org_id, &webhook.id, status, before.as_ref(), rows).await?;
    let has_more = deliveries.len() > limit as usize;
    deliveries.truncate(limit as usize);
    let last = deliveries.last().filter(|_| has_more);
    Ok(Deliveries {
        next_before: last.map(|delivery| delivery.id.clone()),
        deliveries,
    })
}

/// Sends an event again, whether it was delivered or not.
pub async fn retry(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    delivery_id: &str,
) -> Result<Delivery> {
    let no_delivery = || Error::not_found(Resource::Delivery);
    let session = owner.session();
    let webhook_id = parse(webhook_id)?;
    let delivery_id: DeliveryId = delivery_id.parse().map_err(|_| no_delivery())?;
    let mut transaction = app.db.get().begin().await?;
    let webhook = lock(&mut transaction, session, &webhook_id).await?;
    let org_id = session.org_id();
    let delivery = store::delivery::retry(&mut transaction, org_id, &webhook_id, &delivery_id)
        .await?
        .ok_or_else(no_delivery)?;
    ensure_sending(app, &webhook, "retried")?;
    transaction.commit().await?;
    Ok(delivery)
}

/// Sends the events since a time that were not delivered.
pub async fn recover(
    app: &App,
    owner: &Owner,
    webhook_id: &str,
    input: inputs::RecoverWebhook,
) -> Result<Webhook> {
    let since = input.since.as_str();
    let since = match since.is_empty() {
        true => Err(FieldError::required("since")),
        false => validation::timestamp("since", since),
    }?;
    let now = store::now(&app.db.get()).await?;
    let earliest = now.plus_micros(-i64::from(RETENTION_DAYS) * 24 * 3_600_000_000);
    if since > now || since < earliest {
        let message =
            format!("must be from {earliest} to {now}: events are kept for {RETENTION_DAYS} days");
        return Err(Error::field("since", "range", message));
    }
    let session = owner.session();
    let org_id = session.org_id();
    let webhook_id = parse(webhook_id)?;
    let mut transaction = app.db.get().begin().await?;
    let webhook = lock_sending(app, &mut transaction, session, &webhook_id, "recovered").await?;
    store::webhook::move_back(&mut transaction, org_id, &webhook_id, since).await?;
    transaction.commit().await?;
    // Without the lock, which the attempts of the webhook would wait for.
    let mut db = app.db.get().acquire().await?;
    loop {
        let limit = DELIVERIES_MAX;
        let batch = store::delivery::retry_failed(&mut db, org_id, &webhook_id, since, limit);
        if batch.await? < limit.unsigned_abs() {
            break;
        }
    }
    app.jobs.updates.announce_events(org_id);
    Ok(webhook)
}

fn not_found() -> Error {
    Error::not_found(Resource::Webhook)
}

fn parse(webhook_id: &str) -> Result<WebhookId> {
    webhook_id.parse().map_err(|_| not_found())
}

fn key(app: &App) -> Result<&WebhookKey> {
    app.settings.webhook_key.as_ref().ok_or_else(no_key)
}

/// Locks a webhook until the transaction ends, and returns it.
async fn lock(db: &mut PgConnection, session: &Session, webhook_id: &WebhookId) -> Result<Webhook> {
    store::webhook::lock(db, session.org_id(), webhook_id)
        .await?
        .ok_or_else(not_found)
}

/// Locks a webhook until the transaction ends, and returns it if events can be sent to it. `what` is
/// the refused action in the error: "tested".
async fn lock_sending(
    app: &App,
    db: &mut PgConnection,
    session: &Session,
    webhook_id: &WebhookId,
    what: &str,
) -> Result<Webhook> {
    let webhook = lock(db, session, webhook_id).await?;
    ensure_sending(app, &webhook, what)?;
    Ok(webhook)
}

/// Returns an error unless events can be sent to a webhook.
fn ensure_sending(app: &App, webhook: &Webhook, what: &str) -> Result<()> {
    key(app)?;
    webhook.ensure_enabled(what)
}
