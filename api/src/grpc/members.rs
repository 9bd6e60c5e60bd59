//! The rpcs of `MemberService`.

use assay_core::model::cursor::PageQuery;
use assay_core::model::permissions::{Owner, Session};
use assay_proto::v1;
use assay_proto::v1::member_service_server::MemberService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::members;

#[tonic::async_trait]
impl MemberService for Service {
    async fn list_members(
        &self,
        request: Request<v1::ListMembersRequest>,
    ) -> Result<Response<v1::ListMembersResponse>, Status> {
        self.respond(request, |app, session: Session, input| async move {
            let v1::ListMembersRequest { limit, cursor } = input.message;
            Ok(members::list(&app, &session, PageQuery { limit, cursor })
                .await?
                .into())
        })
        .await
    }

    async fn update_member(
        &self,
        request: Request<v1::UpdateMemberRequest>,
    ) -> Result<Response<v1::UpdateMemberResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::UpdateMemberRequest { user_id, role } = input.message;
            Ok(v1::UpdateMemberResponse {
                member: Some(
                    members::set_role(&app, &owner, &user_id, &role)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            members::remove(&app, &owner, &input.message.user_id).await?;
            Ok(v1::RemoveMemberResponse {})
        })
        .await
    }
}
