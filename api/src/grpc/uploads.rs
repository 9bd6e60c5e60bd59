//! The rpcs of `UploadService`.

use assay_core::model::permissions::{UploadReader, Uploader};
use assay_core::{Code, Error};
use assay_proto::v1;
use assay_proto::v1::upload_service_server::UploadService;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tonic::{Request, Response, Status, Streaming};

use super::service::Service;
use crate::ops::complete_upload;
use crate::ops::uploads::{self, NewUploadFields, UploadQuery};

#[tonic::async_trait]
impl UploadService for Service {
    async fn create_upload(
        &self,
        request: Request<v1::CreateUploadRequest>,
    ) -> Result<Response<v1::CreateUploadResponse>, Status> {
        self.respond(request, |app, submitter: Uploader, input| async move {
            let v1::CreateUploadRequest {
                kind,
                content_type,
                content_encoding,
                bytes,
                sha256,
            } = input.message;
            let fields = NewUploadFields {
                kind,
                content_type,
                content_encoding,
                bytes,
                sha256,
            };
            Ok(v1::CreateUploadResponse {
                upload: Some(uploads::create(&app, &submitter, fields).await?.into()),
            })
        })
        .await
    }

    async fn list_uploads(
        &self,
        request: Request<v1::ListUploadsRequest>,
    ) -> Result<Response<v1::ListUploadsResponse>, Status> {
        self.respond(request, |app, caller: UploadReader, input| async move {
            let v1::ListUploadsRequest {
                status,
                limit,
                before,
            } = input.message;
            let query = UploadQuery {
                status,
                limit,
                before,
            };
            Ok(uploads::list(&app, &caller, query).await?.into())
        })
        .await
    }

    async fn get_upload(
        &self,
        request: Request<v1::GetUploadRequest>,
    ) -> Result<Response<v1::GetUploadResponse>, Status> {
        self.respond(request, |app, caller: UploadReader, input| async move {
            Ok(v1::GetUploadResponse {
                upload: Some(
                    uploads::get(&app, &caller, &input.message.upload_id)
                        .await?
                        .into(),
                ),
            })
        })
        .await
    }

    async fn complete_upload(
        &self,
        request: Request<v1::CompleteUploadRequest>,
    ) -> Result<Response<v1::CompleteUploadResponse>, Status> {
        self.respond(request, |app, submitter: Uploader, input| async move {
            let upload =
                complete_upload::complete(&app, &submitter, &input.message.upload_id).await?;
            Ok(v1::CompleteUploadResponse {
                upload: Some(upload.into()),
            })
        })
        .await
    }

    async fn delete_upload(
        &self,
        request: Request<v1::DeleteUploadRequest>,
    ) -> Result<Response<v1::DeleteUploadResponse>, Status> {
        self.respond(request, |app, submitter: Uploader, input| async move {
            uploads::delete(&app, &submitter, &input.message.upload_id).await?;
            Ok(v1::DeleteUploadResponse {})
        })
        .await
    }

    async fn upload_predictions(
        &self,
        request: Request<Streaming<v1::UploadPredictionsRequest>>,
    ) -> Result<Response<v1::UploadPredictionsResponse>, Status> {
        self.respond(request, |app, submitter: Uploader, input| async move {
            let mut messages = input.message;
            let first = messages.message().await.map_err(stream_error)?;
            let v1::UploadPredictionsRequest {
                upload_id,
                number,
                data,
            } = first.unwrap_or_default();
            let rest = messages.map(|message| part_data(message.map_err(stream_error)?));
            let mut body = futures_util::stream::iter([Ok(Bytes::from(data))]).chain(rest);
            let part = uploads::put_part(
                &app,
                &submitter,
                &upload_id,
                number.into(),
                None,
                &input.room,
                &mut body,
            )
            .await?;
            Ok(v1::UploadPredictionsResponse {
                part: Some(part.into()),
            })
        })
        .await
    }
}

/// Returns the data of a message after the first.
///
/// # Errors
/// If the message names an upload or a part.
fn part_data(message: v1::UploadPredictionsRequest) -> assay_core::Result<Bytes> {
    let v1::UploadPredictionsRequest {
        upload_id,
        number,
        data,
    } = message;
    if !upload_id.is_empty() || number != 0 {
        return Err(Error::new(
            Code::InvalidRequest,
            "Only the first message may name the upload and the number: a stream is one part.",
        ));
    }
    Ok(data.into())
}

/// Translates the error of a request stream.
fn stream_error(status: Status) -> Error {
    match status.code() {
        tonic::Code::OutOfRange => Error::new(
            Code::PayloadTooLarge,
            "A message is larger than this operation accepts. Send smaller messages.",
        ),
        _ => Error::new(Code::InvalidRequest, "The stream is incomplete.").with_cause(status),
    }
}
