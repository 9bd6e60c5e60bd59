//! `SessionService`

use assay_core::model::permissions::Person;
use assay_proto::v1;
use assay_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status};

use super::Service;
use crate::ops::sessions;

#[tonic::async_trait]
impl SessionService for Service {
    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        self.answer(request, |app, person: Person, _| async move {
            sessions::end_current(&app, &person).await?;
            Ok(v1::EndSessionResponse {})
        })
        .await
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        self.answer(request, |app, person: Person, _| async move {
            Ok(sessions::list(&app, &person).await?.into())
        })
        .await
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::DeleteSessionResponse>, Status> {
        self.answer(request, |app, person: Person, input| async move {
            sessions::end(&app, &person, &input.message.session_id).await?;
            Ok(v1::DeleteSessionResponse {})
        })
        .await
    }

    async fn delete_other_sessions(
        &self,
        request: Request<v1::DeleteOtherSessionsRequest>,
    ) -> Result<Response<v1::DeleteOtherSessionsResponse>, Status> {
        self.answer(request, |app, person: Person, _| async move {
            sessions::end_others(&app, &person).await?;
            Ok(v1::DeleteOtherSessionsResponse {})
        })
        .await
    }
}
