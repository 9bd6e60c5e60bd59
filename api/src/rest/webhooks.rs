//! Handlers of `/v1/webhooks`.

use assay_core::model::cursor::PAGE;
use assay_core::model::permissions::Owner;
use assay_core::model::validation::PageSize;
use assay_core::model::webhook::{
    Deliveries, Delivery, DeliveryStatus, Webhook, WebhookCreate, WebhookRecover, WebhookRotate,
    WebhookTest, WebhookUpdate, WebhookWithSecret, Webhooks,
};
use assay_core::{DeliveryId, WebhookId};
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Ids, Permitted, SMALL_BODY_MAX, read_json_body, read_optional_json_body};
use super::input::{Fields, Query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::webhooks::{self, DeliveryQuery, WebhookFields};

/// List webhooks
///
/// Returns the webhooks of the organization, the oldest first. The list never contains secrets.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/webhooks",
    operation_id = "listWebhooks",
    tag = "webhooks",
    security(("session" = ["owner"])),
    responses(
        (status = 200, description = "All webhooks.", body = Webhooks),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
) -> Result<Json<Webhooks>, Failure> {
    Ok(Json(webhooks::list(&app, &owner).await?))
}

/// Create a webhook
///
/// Sends events of these types to the URL from now on, each as a POST request with the event as JSON,
/// signed as Standard Webhooks describes. The response is the only one that contains the secret.
///
/// The URL must begin with `https://` and lead to the public internet. A response with a 2xx status is
/// a success. Otherwise the event is sent again up to nine times, over about three days. An event can
/// be sent more than once, and events in another order than they happened.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/webhooks",
    operation_id = "createWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    request_body = WebhookCreate,
    responses(
        (status = 201, description = "The new webhook with its secret.", body = WebhookWithSecret),
        (
            status = 409,
            description = "The organization has 10 webhooks, or the installation sends none.",
        ),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<WebhookWithSecret>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let webhook = WebhookFields {
        url: Some(fields.string("url")),
        events: fields.optional_strings("events"),
        description: fields.optional_string("description"),
        enabled: None,
    };
    fields.finish()?;
    let created = webhooks::create(&app, &owner, webhook).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Get a webhook
///
/// Returns the webhook without its secret.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/webhooks/{webhook_id}",
    operation_id = "getWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    responses(
        (status = 200, description = "The webhook.", body = Webhook),
        (status = 404, description = "The organization has no such webhook."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
) -> Result<Json<Webhook>, Failure> {
    Ok(Json(webhooks::get(&app, &owner, &webhook_id).await?))
}

/// Update a webhook
///
/// Changes the URL, the types of events or the description, or disables or enables the webhook. At
/// least one field is required. Events that happen while the webhook is disabled are not sent; after
/// enabling it, use `recover` to send them.
///
/// Requires the session token of an owner.
#[utoipa::path(
    patch,
    path = "/v1/webhooks/{webhook_id}",
    operation_id = "updateWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    request_body = WebhookUpdate,
    responses(
        (status = 200, description = "The webhook after the update.", body = Webhook),
        (status = 404, description = "The organization has no such webhook."),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
    request: Request,
) -> Result<Json<Webhook>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let change = WebhookFields {
        url: fields.optional_string("url"),
        events: fields.optional_strings("events"),
        description: fields.optional_string("description"),
        enabled: fields.optional_boolean("enabled"),
    };
    fields.finish()?;
    let updated = webhooks::update(&app, &owner, &webhook_id, change).await?;
    Ok(Json(updated))
}

/// Delete a webhook
///
/// Deliveries that are pending are no longer attempted.
///
/// Requires the session token of an owner.
#[utoipa::path(
    delete,
    path = "/v1/webhooks/{webhook_id}",
    operation_id = "deleteWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    responses(
        (status = 204, description = "The webhook was deleted."),
        (status = 404, description = "The organization has no such webhook."),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
) -> Result<StatusCode, Failure> {
    webhooks::delete(&app, &owner, &webhook_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate the secret of a webhook
///
/// Creates a new secret. The response is the only one that contains it. For `overlap_hours`,
/// deliveries have two signatures, one with each secret, so that receivers can be changed one after
/// the other. A rotation during the overlap of another one ends that overlap.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{webhook_id}/rotate",
    operation_id = "rotateWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    request_body = Option<WebhookRotate>,
    responses(
        (status = 201, description = "The webhook with its new secret.", body = WebhookWithSecret),
        (status = 404, description = "The organization has no such webhook."),
        (status = 409, description = "The installation sends no webhooks."),
    ),
)]
pub(super) async fn rotate(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
    request: Request,
) -> Result<(StatusCode, Json<WebhookWithSecret>), Failure> {
    let body = read_optional_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let overlap_hours = fields.optional_integer("overlap_hours");
    fields.finish()?;
    let rotated = webhooks::rotate(&app, &owner, &webhook_id, overlap_hours).await?;
    Ok((StatusCode::CREATED, Json(rotated)))
}

/// Test a webhook
///
/// Sends an event to this webhook only, whatever types of events it is sent: a `ping`, or an event of
/// another type with the data of the newest one and an id of its own. The response is the delivery,
/// whose status changes with the attempt.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{webhook_id}/test",
    operation_id = "testWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    request_body = Option<WebhookTest>,
    responses(
        (status = 202, description = "The delivery of the event.", body = Delivery),
        (status = 404, description = "The organization has no such webhook."),
        (
            status = 409,
            description = "The webhook is disabled, or there is no event of this type.",
        ),
    ),
)]
pub(super) async fn test(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
    request: Request,
) -> Result<(StatusCode, Json<Delivery>), Failure> {
    let body = read_optional_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let r#type = fields.optional_string("type");
    fields.finish()?;
    let delivery = webhooks::test(&app, &owner, &webhook_id, r#type).await?;
    Ok((StatusCode::ACCEPTED, Json(delivery)))
}

/// List the deliveries of a webhook
///
/// Returns the deliveries of the last 30 days, the newest first. To get the next page, send
/// `next_before` as `before`, until it is absent. The bodies of responses are never shown.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/webhooks/{webhook_id}/deliveries",
    operation_id = "listDeliveries",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
        (
            "status" = inline(Option<DeliveryStatus>),
            Query,
            description = "Return only deliveries with this status.",
        ),
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of deliveries on the page.",
        ),
        (
            "before" = Option<DeliveryId>,
            Query,
            description =
                "Return only deliveries before this one: the `next_before` of the previous page.",
        ),
    ),
    responses(
        (status = 200, description = "A page of deliveries.", body = Deliveries),
        (status = 404, description = "The organization has no such webhook."),
    ),
)]
pub(super) async fn deliveries(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
    uri: Uri,
) -> Result<Json<Deliveries>, Failure> {
    let mut query = Query::read(&uri);
    let filter = DeliveryQuery {
        status: query.string("status"),
        limit: query.integer("limit"),
        before: query.string("before"),
    };
    query.finish()?;
    let page = webhooks::deliveries(&app, &owner, &webhook_id, filter).await?;
    Ok(Json(page))
}

/// Retry a delivery
///
/// Sends the event again now, with the same `webhook-id`, whether it was delivered or not. If the
/// attempt fails, the delays between further attempts begin again.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
    operation_id = "retryDelivery",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
        ("delivery_id" = DeliveryId, Path, description = "The id of the delivery."),
    ),
    responses(
        (status = 202, description = "The delivery, which is pending.", body = Delivery),
        (status = 404, description = "The organization has no such webhook or delivery."),
        (status = 409, description = "The webhook is disabled."),
    ),
)]
pub(super) async fn retry(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Ids([webhook_id, delivery_id]): Ids<2>,
) -> Result<(StatusCode, Json<Delivery>), Failure> {
    let delivery = webhooks::retry(&app, &owner, &webhook_id, &delivery_id).await?;
    Ok((StatusCode::ACCEPTED, Json(delivery)))
}

/// Recover the events of a webhook
///
/// Sends the events since this time that were not delivered: those whose deliveries have failed, and
/// those that happened while the webhook was disabled or before it was created. Their deliveries
/// appear in the list within seconds.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{webhook_id}/recover",
    operation_id = "recoverWebhook",
    tag = "webhooks",
    security(("session" = ["owner"])),
    params(
        ("webhook_id" = WebhookId, Path, description = "The id of the webhook."),
    ),
    request_body = WebhookRecover,
    responses(
        (status = 202, description = "The webhook, to which the events are sent.", body = Webhook),
        (status = 404, description = "The organization has no such webhook."),
        (status = 409, description = "The webhook is disabled."),
    ),
)]
pub(super) async fn recover(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(webhook_id): Id,
    request: Request,
) -> Result<(StatusCode, Json<Webhook>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let since = fields.string("since");
    fields.finish()?;
    let webhook = webhooks::recover(&app, &owner, &webhook_id, &since).await?;
    Ok((StatusCode::ACCEPTED, Json(webhook)))
}
