//! The rpcs of `KeyService`.

use assay_core::model::cursor::PageQuery;
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_proto::v1;
use assay_proto::v1::key_service_server::KeyService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::keys;

#[tonic::async_trait]
impl KeyService for Service {
    async fn list_keys(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        self.respond(request, |app, session: Session, input| async move {
            let v1::ListKeysRequest { limit, cursor } = input.message;
            Ok(keys::list(&app, &session, PageQuery { limit, cursor })
                .await?
                .into())
        })
        .await
    }

    async fn create_key(
        &self,
        request: Request<v1::CreateKeyRequest>,
    ) -> Result<Response<v1::CreateKeyResponse>, Status> {
        self.respond(
            request,
            |app, member: TermsAccepted<Member>, input| async move {
                let v1::CreateKeyRequest { name } = input.message;
                Ok(v1::CreateKeyResponse {
                    api_key: Some(keys::create(&app, &member, &name).await?.into()),
                })
            },
        )
        .await
    }

    async fn revoke_key(
        &self,
        request: Request<v1::RevokeKeyRequest>,
    ) -> Result<Response<v1::RevokeKeyResponse>, Status> {
        self.respond(request, |app, member: Member, input| async move {
            let v1::RevokeKeyRequest { key_id } = input.message;
            Ok(v1::RevokeKeyResponse {
                api_key: Some(keys::revoke(&app, &member, &key_id).await?.into()),
            })
        })
        .await
    }
}
