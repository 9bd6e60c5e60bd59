//! The rpcs of `HealthService`.

use assay_proto::v1;
use assay_proto::v1::health_service_server::HealthService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::health::{self, Health};

#[tonic::async_trait]
impl HealthService for Service {
    async fn get_health(
        &self,
        _: Request<v1::GetHealthRequest>,
    ) -> Result<Response<v1::GetHealthResponse>, Status> {
        let Health {
            git_sha,
            hfm_sha,
            env,
        } = health::get(&self.0);
        Ok(Response::new(v1::GetHealthResponse {
            health: Some(v1::Health {
                git_sha,
                hfm_sha,
                env,
            }),
        }))
    }
}
