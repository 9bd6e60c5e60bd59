//! The rpcs of `ModelService`.

use assay_core::model::permissions::ModelReader;
use assay_proto::v1;
use assay_proto::v1::model_service_server::ModelService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::models;

#[tonic::async_trait]
impl ModelService for Service {
    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        self.respond(request, |app, caller: ModelReader, _| async move {
            Ok(models::list(&app, &caller).await?.into())
        })
        .await
    }

    async fn get_model(
        &self,
        request: Request<v1::GetModelRequest>,
    ) -> Result<Response<v1::GetModelResponse>, Status> {
        self.respond(request, |app, caller: ModelReader, input| async move {
            let v1::GetModelRequest { model_id } = input.message;
            Ok(v1::GetModelResponse {
                model: Some(models::get(&app, &caller, &model_id).await?.into()),
            })
        })
        .await
    }
}
