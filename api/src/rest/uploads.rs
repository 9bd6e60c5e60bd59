//! `/v1/uploads`

use assay_core::principal::{Caller, Submitter};
use assay_core::upload::{Part, Upload};
use assay_core::{Code, Error, Result};
use axum::Json;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::EXPECT;
use http::request::Parts;

use super::extract::{Id, Permitted, SMALL, announced, discard, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::complete;
use crate::ops::uploads::{self, NewUploadFields};
use crate::render::Failure;

pub(super) async fn create(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    request: Request,
) -> Result<(StatusCode, Json<Upload>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let new = NewUploadFields {
        kind: fields.text("kind"),
        content_type: fields.optional_text("content_type"),
        content_encoding: fields.optional_text("content_encoding"),
        bytes: fields.optional_integer("bytes"),
        sha256: fields.optional_text("sha256"),
    };
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(uploads::create(&app, &submitter, new).await?)))
}

pub(super) async fn get(State(app): State<App>, Permitted(caller): Permitted<Caller>, Id(id): Id) -> Result<Json<Upload>, Failure> {
    Ok(Json(uploads::get(&app, &caller, &id).await?))
}

pub(super) async fn complete(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(id): Id,
) -> Result<Json<Upload>, Failure> {
    Ok(Json(complete::complete(&app, &submitter, &id).await?))
}

pub(super) async fn delete(State(app): State<App>, Permitted(submitter): Permitted<Submitter>, Id(id): Id) -> Result<StatusCode, Failure> {
    uploads::delete(&app, &submitter, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The upload and the number in the path of a part.
pub(super) struct PartPath {
    upload_id: String,
    number: i64,
}

impl<S: Send + Sync> FromRequestParts<S> for PartPath {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let parameters = RawPathParams::from_request_parts(parts, state).await;
        let parameters = parameters.map_err(|_| Error::new(Code::NotFound, "There is nothing at this path."))?;
        let value =
            |wanted: &str| parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned()).unwrap_or_default();
        // What is no number is none that a part may have.
        Ok(Self { upload_id: value("upload_id"), number: value("number").parse().unwrap_or(0) })
    }
}

pub(super) async fn put_part(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    PartPath { upload_id, number }: PartPath,
    request: Request,
) -> Result<Json<Part>, Failure> {
    let (head, body) = request.into_parts();
    let broke = |error| Error::new(Code::InvalidRequest, "The body broke off.").because(error);
    let mut body = body.into_data_stream().map(move |piece| piece.map_err(broke));
    let received = uploads::put_part(&app, &submitter, &upload_id, number, announced(&head.headers), &mut body).await;
    if received.is_err() && !head.headers.contains_key(EXPECT) {
        tokio::spawn(discard(body));
    }
    Ok(Json(received?))
}
