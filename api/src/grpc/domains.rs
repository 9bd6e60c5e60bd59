//! The rpcs of `DomainService`.

use assay_core::model::cursor::PageQuery;
use assay_core::model::permissions::{Owner, Session};
use assay_proto::v1;
use assay_proto::v1::domain_service_server::DomainService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::domains;

#[tonic::async_trait]
impl DomainService for Service {
    async fn list_domains(
        &self,
        request: Request<v1::ListDomainsRequest>,
    ) -> Result<Response<v1::ListDomainsResponse>, Status> {
        self.respond(request, |app, session: Session, input| async move {
            let v1::ListDomainsRequest { limit, cursor } = input.message;
            Ok(domains::list(&app, &session, PageQuery { limit, cursor })
                .await?
                .into())
        })
        .await
    }

    async fn claim_domain(
        &self,
        request: Request<v1::ClaimDomainRequest>,
    ) -> Result<Response<v1::ClaimDomainResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            Ok(v1::ClaimDomainResponse {
                claim: Some(
                    domains::claim(&app, &owner, &input.message.domain)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }

    async fn verify_domain(
        &self,
        request: Request<v1::VerifyDomainRequest>,
    ) -> Result<Response<v1::VerifyDomainResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            Ok(domains::verify(&app, &owner, &input.message.domain)
                .await?
                .into())
        })
        .await
    }

    async fn update_domain(
        &self,
        request: Request<v1::UpdateDomainRequest>,
    ) -> Result<Response<v1::UpdateDomainResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::UpdateDomainRequest { domain, auto_join } = input.message;
            Ok(v1::UpdateDomainResponse {
                domain: Some(
                    domains::update(&app, &owner, &domain, auto_join)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }

    async fn release_domain(
        &self,
        request: Request<v1::ReleaseDomainRequest>,
    ) -> Result<Response<v1::ReleaseDomainResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            domains::release(&app, &owner, &input.message.domain).await?;
            Ok(v1::ReleaseDomainResponse {})
        })
        .await
    }
}
