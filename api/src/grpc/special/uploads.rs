//! `UploadPredictions`: the request is a stream.

use assay_core::model::permissions::Uploader;
use assay_core::{Code, Error};
use assay_proto::v1;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tonic::{Request, Response, Status, Streaming};

use crate::grpc::service::{SMALL_MESSAGE_MAX, Service};
use crate::ops::uploads;

/// Maximum size of a message with a part of an upload: 1 MiB of the part, and the other fields.
pub const PART_MESSAGE_MAX: usize = 1024 * 1024 + SMALL_MESSAGE_MAX;

/// Receives an upload part.
pub async fn upload_predictions(
    service: &Service,
    request: Request<Streaming<v1::UploadPredictionsRequest>>,
) -> Result<Response<v1::UploadPredictionsResponse>, Status> {
    service
        .respond(request, |app, submitter: Uploader, input| async move {
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
pub(super) fn stream_error(status: Status) -> Error {
    match status.code() {
        tonic::Code::OutOfRange => Error::new(
            Code::PayloadTooLarge,
            "A message is larger than this operation accepts. Send smaller messages.",
        ),
        _ => Error::new(Code::InvalidRequest, "The stream is incomplete.").with_cause(status),
    }
}
