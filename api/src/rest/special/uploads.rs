//! `PUT /v1/uploads/{upload_id}/parts/{number}`: the body is a stream of bytes.

use assay_core::model::permissions::Uploader;
use assay_core::{Code, Error};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::EXPECT;

use crate::app::App;
use crate::http::error_response::Failure;
use crate::layers::memory;
use crate::limits::request_memory::SharedReservation;
use crate::ops::uploads;
use crate::rest::extract::{content_length, drain};

/// Receives an upload part.
pub async fn upload_predictions(
    app: App,
    submitter: Uploader,
    [upload_id, number]: [String; 2],
    request: Request,
) -> Result<Response, Failure> {
    let number = part_number(&number);
    let mut part = PartBody::from_request(request)?;
    let PartBody {
        length,
        reservation,
        bytes,
        ..
    } = &mut part;
    let received = uploads::put_part(
        &app,
        &submitter,
        &upload_id,
        number,
        *length,
        reservation,
        bytes,
    )
    .await;
    Ok(Json(part.drain_after(&app, received)?).into_response())
}

/// Returns the number in a path, or 0, which no part has and the operation rejects.
pub(super) fn part_number(text: &str) -> i64 {
    // `parse` alone would accept a sign.
    let is_unsigned = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_unsigned).unwrap_or(0)
}

/// A part body.
pub(super) struct PartBody {
    /// The announced size, if any.
    pub length: Option<u64>,
    /// The request memory.
    pub reservation: SharedReservation,
    /// The bytes as they arrive.
    pub bytes: BoxStream<'static, assay_core::Result<Bytes>>,
    waits_for_continue: bool,
}

impl PartBody {
    /// Takes a request body.
    pub fn from_request(request: Request) -> assay_core::Result<Self> {
        let (head, body) = request.into_parts();
        let incomplete =
            |error| Error::new(Code::InvalidRequest, "The body is incomplete.").with_cause(error);
        Ok(Self {
            length: content_length(&head.headers),
            reservation: memory::reservation(&head.extensions)?,
            bytes: body
                .into_data_stream()
                .map(move |chunk| chunk.map_err(incomplete))
                .boxed(),
            waits_for_continue: head.headers.contains_key(EXPECT),
        })
    }

    /// Returns the result. After an error, reads the rest, so that the client can read the response.
    pub fn drain_after<T>(
        self,
        app: &App,
        received: assay_core::Result<T>,
    ) -> assay_core::Result<T> {
        if received.is_err() && !self.waits_for_continue {
            app.request_tasks.spawn(drain(self.bytes, self.reservation));
        }
        received
    }
}
