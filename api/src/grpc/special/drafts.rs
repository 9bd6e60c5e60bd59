//! Drafts: messages with lists of files, parts as streams, and pages that are encoded without their messages.

use assay_core::model::draft::{FileToCheck, NewDraftFile};
use assay_core::model::permissions::Publisher;
use assay_core::{Code, Error};
use assay_proto::convert::encode_items_page;
use assay_proto::v1;
use axum::Router;
use axum::extract::State;
use axum::routing::any;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use prost::Message as _;
use tonic::server::UnaryService;
use tonic::{Request, Response, Status, Streaming};

use super::raw::encoded;
use super::uploads::stream_error;
use crate::app::App;
use crate::generated::inputs;
use crate::grpc::service::{Input, SMALL_MESSAGE_MAX, Service};
use crate::ops::drafts::{self, BODY_MAX, Submission};

/// Maximum size of a message with a new draft.
pub const DRAFT_MESSAGE_MAX: usize = BODY_MAX;

/// Creates a draft.
pub async fn create_draft(
    service: &Service,
    request: Request<v1::CreateDraftRequest>,
) -> Result<Response<v1::CreateDraftResponse>, Status> {
    service
        .respond(request, |app, publisher: Publisher, input| async move {
            let v1::CreateDraftRequest {
                idempotency_key,
                suite_toml,
                files,
                opening_key,
                check,
            } = input.message;
            let files = files.into_iter().map(|file| NewDraftFile {
                name: file.name,
                content: file.content,
            });
            let submission = Submission {
                suite_toml,
                files: files.collect(),
                opening_key,
                check: check.unwrap_or(false),
                idempotency_key,
            };
            let created = drafts::create(&app, &publisher, submission).await?;
            Ok(v1::CreateDraftResponse {
                draft: Some(created.draft.into()),
                idempotency_replayed: created.replayed,
            })
        })
        .await
}

/// Requests the check of a draft.
pub async fn check_draft(
    service: &Service,
    request: Request<v1::CheckDraftRequest>,
) -> Result<Response<v1::CheckDraftResponse>, Status> {
    service
        .respond(request, |app, publisher: Publisher, input| async move {
            let v1::CheckDraftRequest { draft_id, files } = input.message;
            let files: Vec<FileToCheck> = files
                .into_iter()
                .map(|file| FileToCheck {
                    name: file.name,
                    parts: file.parts,
                    sha256: file.sha256,
                })
                .collect();
            let files = (!files.is_empty()).then_some(files);
            let draft = drafts::check(&app, &publisher, &draft_id, files).await?;
            Ok(v1::CheckDraftResponse {
                draft: Some(draft.into()),
            })
        })
        .await
}

/// Receives a part of a file.
pub async fn upload_draft_part(
    service: &Service,
    request: Request<Streaming<v1::UploadDraftPartRequest>>,
) -> Result<Response<v1::UploadDraftPartResponse>, Status> {
    service
        .respond(request, |app, publisher: Publisher, input| async move {
            let mut messages = input.message;
            let first = messages.message().await.map_err(stream_error)?;
            let v1::UploadDraftPartRequest {
                draft_id,
                name,
                number,
                data,
            } = first.unwrap_or_default();
            let rest = messages.map(|message| part_data(message.map_err(stream_error)?));
            let mut body = futures_util::stream::iter([Ok(Bytes::from(data))]).chain(rest);
            let place = (draft_id.as_str(), name.as_str(), number.into());
            drafts::put_part(&app, &publisher, place, None, &input.room, &mut body).await?;
            Ok(v1::UploadDraftPartResponse {})
        })
        .await
}

/// Returns the data of a message after the first.
///
/// # Errors
/// If the message names a draft, a file or a part.
fn part_data(message: v1::UploadDraftPartRequest) -> assay_core::Result<Bytes> {
    let v1::UploadDraftPartRequest {
        draft_id,
        name,
        number,
        data,
    } = message;
    if !draft_id.is_empty() || !name.is_empty() || number != 0 {
        return Err(Error::new(
            Code::InvalidRequest,
            "Only the first message may name the draft, the file and the number: a stream is one part.",
        ));
    }
    Ok(data.into())
}

/// Lists items. The route of [`routes`] precedes this one, because it encodes the items without their
/// messages.
pub async fn list_draft_items(
    service: &Service,
    request: Request<v1::ListDraftItemsRequest>,
) -> Result<Response<v1::ListDraftItemsResponse>, Status> {
    let encoded = ListDraftItems(service.clone()).call(request).await?;
    let (metadata, page, extensions) = encoded.into_parts();
    let page = v1::ListDraftItemsResponse::decode(page)
        .map_err(|error| Status::internal(error.to_string()))?;
    Ok(Response::from_parts(metadata, page, extensions))
}

/// Returns the route for `ListDraftItems`. The router prefers it to the service's route.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/assay.v1.DraftService/ListDraftItems", any(respond))
}

async fn respond(
    State(app): State<App>,
    request: axum::extract::Request,
) -> axum::response::Response {
    encoded(ListDraftItems(Service(app)), request, SMALL_MESSAGE_MAX).await
}

struct ListDraftItems(Service);

impl UnaryService<v1::ListDraftItemsRequest> for ListDraftItems {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<v1::ListDraftItemsRequest>) -> Self::Future {
        let service = self.0.clone();
        async move {
            let operation = |app, publisher: Publisher, input: Input<_>| async move {
                let v1::ListDraftItemsRequest {
                    draft_id,
                    cursor,
                    limit,
                } = input.message;
                let fields = inputs::ListDraftItems { cursor, limit };
                let page =
                    drafts::message_items(&app, &publisher, &draft_id, fields, &input.room).await?;
                // Both responses have the same fields.
                Ok(encode_items_page(page)?.into())
            };
            service.respond(request, operation).await
        }
        .boxed()
    }
}
