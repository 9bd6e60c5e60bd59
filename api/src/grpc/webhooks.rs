//! The rpcs of `WebhookService`.

use assay_core::model::permissions::Owner;
use assay_proto::v1;
use assay_proto::v1::webhook_service_server::WebhookService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::webhooks::{self, DeliveryQuery, WebhookFields};

#[tonic::async_trait]
impl WebhookService for Service {
    async fn list_webhooks(
        &self,
        request: Request<v1::ListWebhooksRequest>,
    ) -> Result<Response<v1::ListWebhooksResponse>, Status> {
        self.respond(request, |app, owner: Owner, _| async move {
            Ok(webhooks::list(&app, &owner).await?.into())
        })
        .await
    }

    async fn create_webhook(
        &self,
        request: Request<v1::CreateWebhookRequest>,
    ) -> Result<Response<v1::CreateWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::CreateWebhookRequest {
                url,
                events,
                description,
            } = input.message;
            let fields = WebhookFields {
                url: Some(url),
                events: Some(events),
                description,
                enabled: None,
            };
            let created = webhooks::create(&app, &owner, fields).await?;
            Ok(v1::CreateWebhookResponse {
                webhook: Some(created.into()),
            })
        })
        .await
    }

    async fn get_webhook(
        &self,
        request: Request<v1::GetWebhookRequest>,
    ) -> Result<Response<v1::GetWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::GetWebhookRequest { webhook_id } = input.message;
            let webhook = webhooks::get(&app, &owner, &webhook_id).await?;
            Ok(v1::GetWebhookResponse {
                webhook: Some(webhook.into()),
            })
        })
        .await
    }

    async fn update_webhook(
        &self,
        request: Request<v1::UpdateWebhookRequest>,
    ) -> Result<Response<v1::UpdateWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::UpdateWebhookRequest {
                webhook_id,
                url,
                events,
                description,
                enabled,
            } = input.message;
            let fields = WebhookFields {
                url,
                // A message cannot distinguish an empty list from an absent one.
                events: Some(events).filter(|events| !events.is_empty()),
                description,
                enabled,
            };
            let webhook = webhooks::update(&app, &owner, &webhook_id, fields).await?;
            Ok(v1::UpdateWebhookResponse {
                webhook: Some(webhook.into()),
            })
        })
        .await
    }

    async fn delete_webhook(
        &self,
        request: Request<v1::DeleteWebhookRequest>,
    ) -> Result<Response<v1::DeleteWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::DeleteWebhookRequest { webhook_id } = input.message;
            webhooks::delete(&app, &owner, &webhook_id).await?;
            Ok(v1::DeleteWebhookResponse {})
        })
        .await
    }

    async fn rotate_webhook(
        &self,
        request: Request<v1::RotateWebhookRequest>,
    ) -> Result<Response<v1::RotateWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::RotateWebhookRequest {
                webhook_id,
                overlap_hours,
            } = input.message;
            let rotated = webhooks::rotate(&app, &owner, &webhook_id, overlap_hours).await?;
            Ok(v1::RotateWebhookResponse {
                webhook: Some(rotated.into()),
            })
        })
        .await
    }

    async fn test_webhook(
        &self,
        request: Request<v1::TestWebhookRequest>,
    ) -> Result<Response<v1::TestWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::TestWebhookRequest { webhook_id, r#type } = input.message;
            let delivery = webhooks::test(&app, &owner, &webhook_id, r#type).await?;
            Ok(v1::TestWebhookResponse {
                delivery: Some(delivery.into()),
            })
        })
        .await
    }

    async fn list_deliveries(
        &self,
        request: Request<v1::ListDeliveriesRequest>,
    ) -> Result<Response<v1::ListDeliveriesResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::ListDeliveriesRequest {
                webhook_id,
                status,
                limit,
                before,
            } = input.message;
            let query = DeliveryQuery {
                status,
                limit,
                before,
            };
            let page = webhooks::deliveries(&app, &owner, &webhook_id, query).await?;
            Ok(page.into())
        })
        .await
    }

    async fn retry_delivery(
        &self,
        request: Request<v1::RetryDeliveryRequest>,
    ) -> Result<Response<v1::RetryDeliveryResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::RetryDeliveryRequest {
                webhook_id,
                delivery_id,
            } = input.message;
            let delivery = webhooks::retry(&app, &owner, &webhook_id, &delivery_id).await?;
            Ok(v1::RetryDeliveryResponse {
                delivery: Some(delivery.into()),
            })
        })
        .await
    }

    async fn recover_webhook(
        &self,
        request: Request<v1::RecoverWebhookRequest>,
    ) -> Result<Response<v1::RecoverWebhookResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::RecoverWebhookRequest { webhook_id, since } = input.message;
            let since = since.map(|time| time.to_string()).unwrap_or_default();
            let webhook = webhooks::recover(&app, &owner, &webhook_id, &since).await?;
            Ok(v1::RecoverWebhookResponse {
                webhook: Some(webhook.into()),
            })
        })
        .await
    }
}
