//! The rpcs of `MeService`.

use assay_core::model::permissions::Caller;
use assay_proto::v1;
use assay_proto::v1::me_service_server::MeService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::me;

#[tonic::async_trait]
impl MeService for Service {
    async fn get_me(
        &self,
        request: Request<v1::GetMeRequest>,
    ) -> Result<Response<v1::GetMeResponse>, Status> {
        self.respond(request, |app, caller: Caller, _| async move {
            Ok(v1::GetMeResponse {
                me: Some(me::get(&app, &caller).await?.into()),
            })
        })
        .await
    }
}
