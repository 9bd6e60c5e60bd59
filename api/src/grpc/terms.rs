//! The rpcs of `TermsService`.

use assay_core::model::permissions::{Caller, Owner};
use assay_proto::v1;
use assay_proto::v1::terms_service_server::TermsService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::terms;

#[tonic::async_trait]
impl TermsService for Service {
    async fn get_terms(
        &self,
        request: Request<v1::GetTermsRequest>,
    ) -> Result<Response<v1::GetTermsResponse>, Status> {
        self.respond(request, |app, caller: Caller, _| async move {
            Ok(v1::GetTermsResponse {
                terms: Some(terms::get(&app, &caller).await?.into()),
            })
        })
        .await
    }

    async fn accept_terms(
        &self,
        request: Request<v1::AcceptTermsRequest>,
    ) -> Result<Response<v1::AcceptTermsResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            Ok(v1::AcceptTermsResponse {
                terms: Some(
                    terms::accept(&app, &owner, &input.message.version)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }
}
