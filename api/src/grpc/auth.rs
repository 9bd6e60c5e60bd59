//! The rpcs of `AuthService`.

use assay_proto::v1;
use assay_proto::v1::auth_service_server::AuthService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::{auth, device};

#[tonic::async_trait]
impl AuthService for Service {
    async fn request_sign_in(
        &self,
        request: Request<v1::RequestSignInRequest>,
    ) -> Result<Response<v1::RequestSignInResponse>, Status> {
        self.respond_to_anyone(request, |app, input| async move {
            Ok(
                auth::request(&app, input.context.origin(), &input.message.email)
                    .await?
                    .into(),
            )
        })
        .await
    }

    async fn verify_sign_in(
        &self,
        request: Request<v1::VerifySignInRequest>,
    ) -> Result<Response<v1::VerifySignInResponse>, Status> {
        self.respond_to_anyone(request, |app, input| async move {
            Ok(
                auth::verify(&app, input.context.origin(), &input.message.token)
                    .await?
                    .into(),
            )
        })
        .await
    }

    async fn create_device_login(
        &self,
        request: Request<v1::CreateDeviceLoginRequest>,
    ) -> Result<Response<v1::CreateDeviceLoginResponse>, Status> {
        self.respond_to_anyone(request, |app, input| async move {
            let v1::CreateDeviceLoginRequest { client_name } = input.message;
            let login = device::create(&app, input.context.origin(), &client_name).await?;
            Ok(login.into())
        })
        .await
    }

    async fn poll_device_login(
        &self,
        request: Request<v1::PollDeviceLoginRequest>,
    ) -> Result<Response<v1::PollDeviceLoginResponse>, Status> {
        self.respond_to_anyone(request, |app, input| async move {
            let v1::PollDeviceLoginRequest { device_code } = input.message;
            let result = device::poll(&app, input.context.origin(), &device_code).await?;
            Ok(result.into())
        })
        .await
    }
}
