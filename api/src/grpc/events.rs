//! The rpcs of `EventService`.

use assay_core::model::permissions::Caller;
use assay_proto::v1;
use assay_proto::v1::event_service_server::EventService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::events::{self, EventQuery};

#[tonic::async_trait]
impl EventService for Service {
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        self.respond(request, |app, caller: Caller, input| async move {
            let v1::ListEventsRequest {
                r#type,
                limit,
                cursor,
                wait,
            } = input.message;
            let query = EventQuery {
                r#type,
                limit,
                cursor,
                wait,
            };
            Ok(events::list(&app, &caller, query, &input.room)
                .await?
                .into())
        })
        .await
    }
}
