//! `SessionService`

use assay_core::principal::Person;
use assay_proto::v1;
use assay_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status};

use super::Service;
use crate::ops::sessions;

#[tonic::async_trait]
impl SessionService for Service {
    async fn end_session(&self, request: Request<v1::EndSessionRequest>) -> Result<Response<v1::EndSessionResponse>, Status> {
        self.answer(request, |app, person: Person, _| async move {
            sessions::end(&app, &person).await?;
            Ok(v1::EndSessionResponse {})
        })
        .await
    }
}
