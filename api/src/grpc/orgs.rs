//! The rpcs of `OrgService`.

use assay_core::model::permissions::{Owner, User};
use assay_proto::v1;
use assay_proto::v1::org_service_server::OrgService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::orgs;

#[tonic::async_trait]
impl OrgService for Service {
    async fn create_org(
        &self,
        request: Request<v1::CreateOrgRequest>,
    ) -> Result<Response<v1::CreateOrgResponse>, Status> {
        self.respond(request, |app, user: User, input| async move {
            Ok(v1::CreateOrgResponse {
                org: Some(orgs::create(&app, &user, &input.message.name).await?.into()),
            })
        })
        .await
    }

    async fn update_org(
        &self,
        request: Request<v1::UpdateOrgRequest>,
    ) -> Result<Response<v1::UpdateOrgResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::UpdateOrgRequest {
                org_id,
                name,
                data_use,
            } = input.message;
            let org =
                orgs::update(&app, &owner, &org_id, name.as_deref(), data_use.as_deref()).await?;
            Ok(v1::UpdateOrgResponse {
                org: Some(org.into()),
            })
        })
        .await
    }
}
