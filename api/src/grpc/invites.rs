//! The rpcs of `InviteService`.

use assay_core::model::cursor::PageQuery;
use assay_core::model::permissions::Owner;
use assay_proto::v1;
use assay_proto::v1::invite_service_server::InviteService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::invites;

#[tonic::async_trait]
impl InviteService for Service {
    async fn list_invites(
        &self,
        request: Request<v1::ListInvitesRequest>,
    ) -> Result<Response<v1::ListInvitesResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::ListInvitesRequest { limit, cursor } = input.message;
            Ok(invites::list(&app, &owner, PageQuery { limit, cursor })
                .await?
                .into())
        })
        .await
    }

    async fn create_invite(
        &self,
        request: Request<v1::CreateInviteRequest>,
    ) -> Result<Response<v1::CreateInviteResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::CreateInviteRequest { email, role } = input.message;
            Ok(v1::CreateInviteResponse {
                invite: Some(
                    invites::create(&app, &owner, &email, role.as_deref())
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }

    async fn revoke_invite(
        &self,
        request: Request<v1::RevokeInviteRequest>,
    ) -> Result<Response<v1::RevokeInviteResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            Ok(v1::RevokeInviteResponse {
                invite: Some(
                    invites::revoke(&app, &owner, &input.message.invite_id)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }
}
