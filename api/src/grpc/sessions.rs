//! The rpcs of `SessionService`.

use assay_core::model::permissions::User;
use assay_proto::v1;
use assay_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::sessions;

#[tonic::async_trait]
impl SessionService for Service {
    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        self.respond(request, |app, user: User, _| async move {
            sessions::end_current(&app, &user).await?;
            Ok(v1::EndSessionResponse {})
        })
        .await
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        self.respond(request, |app, user: User, _| async move {
            Ok(sessions::list(&app, &user).await?.into())
        })
        .await
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::DeleteSessionResponse>, Status> {
        self.respond(request, |app, user: User, input| async move {
            sessions::end(&app, &user, &input.message.session_id).await?;
            Ok(v1::DeleteSessionResponse {})
        })
        .await
    }

    async fn delete_other_sessions(
        &self,
        request: Request<v1::DeleteOtherSessionsRequest>,
    ) -> Result<Response<v1::DeleteOtherSessionsResponse>, Status> {
        self.respond(request, |app, user: User, _| async move {
            sessions::end_others(&app, &user).await?;
            Ok(v1::DeleteOtherSessionsResponse {})
        })
        .await
    }
}
