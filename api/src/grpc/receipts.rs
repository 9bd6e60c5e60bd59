//! The rpcs of `ReceiptService`.

use assay_core::model::permissions::{Credential, JobReader, Owner, ReceiptCaller};
use assay_proto::v1;
use assay_proto::v1::receipt_service_server::ReceiptService;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::receipts;

#[tonic::async_trait]
impl ReceiptService for Service {
    async fn get_job_receipt(
        &self,
        request: Request<v1::GetJobReceiptRequest>,
    ) -> Result<Response<v1::GetJobReceiptResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::GetJobReceiptRequest { job_id, figures } = input.message;
            let receipt = receipts::of_job(&app, &caller, &job_id, figures.as_deref()).await?;
            Ok(v1::GetJobReceiptResponse {
                receipt: Some(receipt.into()),
            })
        })
        .await
    }

    async fn get_receipt(
        &self,
        request: Request<v1::GetReceiptRequest>,
    ) -> Result<Response<v1::GetReceiptResponse>, Status> {
        let caller = ReceiptCaller::of(request.extensions().get::<Credential>());
        self.respond_to_anyone(request, |app, input| async move {
            let receipt = receipts::get(&app, &caller?, &input.message.receipt_id).await?;
            Ok(v1::GetReceiptResponse {
                receipt: Some(receipt.into()),
            })
        })
        .await
    }

    async fn get_receipt_opening(
        &self,
        request: Request<v1::GetReceiptOpeningRequest>,
    ) -> Result<Response<v1::GetReceiptOpeningResponse>, Status> {
        self.respond(request, |app, owner: Owner, input| async move {
            let opening = receipts::opening(&app, &owner, &input.message.job_id).await?;
            Ok(opening.into())
        })
        .await
    }

    async fn get_suite_commitment(
        &self,
        request: Request<v1::GetSuiteCommitmentRequest>,
    ) -> Result<Response<v1::GetSuiteCommitmentResponse>, Status> {
        self.respond_to_anyone(request, |app, input| async move {
            let v1::GetSuiteCommitmentRequest { suite_id, version } = input.message;
            let commitment = receipts::commitment(&app, &suite_id, version.as_deref()).await?;
            Ok(v1::GetSuiteCommitmentResponse {
                commitment: Some(commitment.into()),
            })
        })
        .await
    }

    type StreamSuiteOpeningStream =
        BoxStream<'static, Result<v1::StreamSuiteOpeningResponse, Status>>;

    async fn stream_suite_opening(
        &self,
        request: Request<v1::StreamSuiteOpeningRequest>,
    ) -> Result<Response<Self::StreamSuiteOpeningStream>, Status> {
        self.stream_to_anyone(request, |app, input| async move {
            let v1::StreamSuiteOpeningRequest {
                suite_id,
                version,
                file,
            } = input.message;
            let (version, address) = (version.as_deref(), &input.context.address);
            let lines =
                receipts::opened_file(&app, &suite_id, version, &file, address, input.room).await?;
            Ok(lines.map_ok(|lines| v1::StreamSuiteOpeningResponse { lines }))
        })
        .await
    }
}
