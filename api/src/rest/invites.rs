//! `/v1/invites`

use assay_core::InviteId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::invite::{Invite, InviteCreate, Invites};
use assay_core::model::permissions::Owner;
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::invites;

/// List invites
///
/// Invites of the organization, newest first: open ones, and those that were accepted or revoked or have expired. Page on with
/// `next_cursor` until it is null.
#[utoipa::path(get, path = "/v1/invites", operation_id = "listInvites", tag = "invites", security(("session" = ["owner"])),
    params(
        ("limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>), Query, description = "Size of the page."),
        ("cursor" = inline(Option<Cursor>), Query, description = "`next_cursor` of the page before; without it, the first page."),
    ),
    responses((status = 200, description = "A page of invites.", body = Invites)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    uri: Uri,
) -> Result<Json<Invites>, Failure> {
    Ok(Json(invites::list(&app, &owner, page_query(&uri)?).await?))
}

/// Invite somebody
///
/// They get a mail, and become a member when they sign in with this address while the invite is open. The number of invites in 24 hours is
/// limited (`invites_per_day`).
#[utoipa::path(post, path = "/v1/invites", operation_id = "createInvite", tag = "invites", security(("session" = ["owner"])),
    request_body = InviteCreate,
    responses(
        (status = 201, description = "The invite.", body = Invite),
        (status = 409, description = "There is a member or an open invite with this address, or the organization has 200 open invites."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<Invite>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let (email, role) = (fields.text("email"), fields.optional_text("role"));
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(invites::create(&app, &owner, &email, role.as_deref()).await?),
    ))
}

/// Revoke an invite
///
/// Nobody can become a member by it any more. Doing it again changes nothing.
#[utoipa::path(delete, path = "/v1/invites/{invite_id}", operation_id = "revokeInvite", tag = "invites", security(("session" = ["owner"])),
    params(("invite_id" = InviteId, Path, description = "The invite.")),
    responses(
        (status = 200, description = "The invite, revoked.", body = Invite),
        (status = 404, description = "No such invite in the organization, or it was accepted."),
    ))]
pub(super) async fn revoke(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(invite_id): Id,
) -> Result<Json<Invite>, Failure> {
    Ok(Json(invites::revoke(&app, &owner, &invite_id).await?))
}
