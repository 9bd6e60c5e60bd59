//! `StreamSuiteOpening`: the response is a stream.

use assay_core::model::permissions::SuiteVisitor;
use assay_proto::v1;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::grpc::service::Service;
use crate::ops::receipts;

/// Streams a file of a retired suite.
pub async fn stream_suite_opening(
    service: &Service,
    request: Request<v1::StreamSuiteOpeningRequest>,
) -> Result<Response<BoxStream<'static, Result<v1::StreamSuiteOpeningResponse, Status>>>, Status> {
    let visitor = SuiteVisitor::of(request.extensions().get());
    service
        .stream_to_anyone(request, |app, input| async move {
            let visitor = visitor?;
            let v1::StreamSuiteOpeningRequest {
                suite_id,
                version,
                file,
            } = input.message;
            let (version, address) = (version.as_deref(), &input.context.address);
            let lines = receipts::opened_file(
                &app, &visitor, &suite_id, version, &file, address, input.room,
            )
            .await?;
            Ok(lines.map_ok(|lines| v1::StreamSuiteOpeningResponse { lines }))
        })
        .await
}
