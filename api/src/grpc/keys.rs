//! The rpcs of `KeyService`.

use assay_core::model::cursor::PageQuery;
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_proto::v1;
use assay_proto::v1::key_service_server::KeyService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::keys::{self, KeyFields};

/// Returns the fields of a key. A message cannot distinguish an empty list from an absent one.
fn key_fields(
    name: Option<String>,
    scopes: Vec<String>,
    expires_at: Option<prost_types::Timestamp>,
) -> KeyFields {
    KeyFields {
        name,
        scopes: Some(scopes).filter(|scopes| !scopes.is_empty()),
        expires_at: expires_at.map(|time| time.to_string()),
    }
}

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
                let v1::CreateKeyRequest {
                    name,
                    scopes,
                    expires_at,
                } = input.message;
                let fields = key_fields(Some(name), scopes, expires_at);
                Ok(v1::CreateKeyResponse {
                    api_key: Some(keys::create(&app, &member, fields).await?.into()),
                })
            },
        )
        .await
    }

    async fn update_key(
        &self,
        request: Request<v1::UpdateKeyRequest>,
    ) -> Result<Response<v1::UpdateKeyResponse>, Status> {
        self.respond(request, |app, member: Member, input| async move {
            let v1::UpdateKeyRequest {
                key_id,
                name,
                scopes,
                expires_at,
            } = input.message;
            let fields = key_fields(name, scopes, expires_at);
            Ok(v1::UpdateKeyResponse {
                api_key: Some(keys::update(&app, &member, &key_id, fields).await?.into()),
            })
        })
        .await
    }

    async fn rotate_key(
        &self,
        request: Request<v1::RotateKeyRequest>,
    ) -> Result<Response<v1::RotateKeyResponse>, Status> {
        self.respond(
            request,
            |app, member: TermsAccepted<Member>, input| async move {
                let v1::RotateKeyRequest {
                    key_id,
                    overlap_hours,
                } = input.message;
                let rotated = keys::rotate(&app, &member, &key_id, overlap_hours).await?;
                Ok(v1::RotateKeyResponse {
                    api_key: Some(rotated.into()),
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
