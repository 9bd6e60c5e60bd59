//! The rpcs of `QueueService`.

use assay_core::model::permissions::JobReader;
use assay_proto::v1;
use assay_proto::v1::queue_service_server::QueueService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::queue;

#[tonic::async_trait]
impl QueueService for Service {
    async fn get_queue(
        &self,
        request: Request<v1::GetQueueRequest>,
    ) -> Result<Response<v1::GetQueueResponse>, Status> {
        self.respond(request, |app, caller: JobReader, _| async move {
            Ok(v1::GetQueueResponse {
                queue: Some(queue::get(&app, &caller)?.into()),
            })
        })
        .await
    }
}
