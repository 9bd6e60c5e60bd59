//! `PUT /v1/uploads/{upload_id}/parts/{number}`: the body is a stream of bytes.

use assay_core::model::permissions::Uploader;
use assay_core::{Code, Error};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use http::header::EXPECT;

use crate::app::App;
use crate::http::error_response::Failure;
use crate::layers::memory;
use crate::ops::uploads;
use crate::rest::extract::{content_length, drain};

/// Receives an upload part.
pub async fn upload_predictions(
    app: App,
    submitter: Uploader,
    [upload_id, number]: [String; 2],
    request: Request,
) -> Result<Response, Failure> {
    // 0 is out of range, so the operation rejects a number that cannot be parsed. `parse` alone
    // would accept a sign.
    let is_unsigned = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_unsigned).unwrap_or(0);
    let (head, body) = request.into_parts();
    let incomplete =
        |error| Error::new(Code::InvalidRequest, "The body is incomplete.").with_cause(error);
    let mut body = body
        .into_data_stream()
        .map(move |chunk| chunk.map_err(incomplete));
    let reservation = memory::reservation(&head.extensions)?;
    let received = uploads::put_part(
        &app,
        &submitter,
        &upload_id,
        number,
        content_length(&head.headers),
        &reservation,
        &mut body,
    )
    .await;
    if received.is_err() && !head.headers.contains_key(EXPECT) {
        app.request_tasks.spawn(drain(body, reservation));
    }
    Ok(Json(received?).into_response())
}
