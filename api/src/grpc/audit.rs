//! The rpcs of `AuditService`.

use assay_core::model::permissions::Owner;
use assay_proto::v1;
use assay_proto::v1::audit_service_server::AuditService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::audit::{self, AuditQuery};

#[tonic::async_trait]
impl AuditService for Service {
    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Result<Response<v1::ListAuditEntriesResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let v1::ListAuditEntriesRequest {
                r#type,
                actor_id,
                target_id,
                limit,
                before,
            } = input.message;
            let query = AuditQuery {
                r#type,
                actor_id,
                target_id,
                limit,
                before,
            };
            Ok(audit::list(&app, &owner, query).await?.into())
        })
        .await
    }
}
