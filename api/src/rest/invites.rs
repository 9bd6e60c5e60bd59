//! Handlers of `/v1/invites`.

use assay_core::InviteId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::invite::{Invite, InviteCreate, Invites};
use assay_core::model::permissions::Owner;
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::invites;

/// List invites
///
/// Returns the invites of the organization, the newest first: open ones, and those that were
/// accepted or revoked or have expired. To get the next page, send `next_cursor` as `cursor`, until
/// it is null.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/invites",
    operation_id = "listInvites",
    tag = "invites",
    security(("session" = ["owner"])),
    params(
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of invites on the page.",
        ),
        (
            "cursor" = inline(Option<Cursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (status = 200, description = "A page of invites.", body = Invites),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    uri: Uri,
) -> Result<Json<Invites>, Failure> {
    Ok(Json(invites::list(&app, &owner, page_query(&uri)?).await?))
}

/// Invite a user by email
///
/// The user becomes a member when they sign in with this address while the invite is open. The
/// server sends an email, unless the address has received five emails of invites within an hour.
/// The number of invites in 24 hours is limited (`invites_per_day`).
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/invites",
    operation_id = "createInvite",
    tag = "invites",
    security(("session" = ["owner"])),
    request_body = InviteCreate,
    responses(
        (status = 201, description = "The new invite.", body = Invite),
        (
            status = 409,
            description =
                "The address belongs to a member or has an open invite, or the organization has \
                 200 open invites.",
        ),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<Invite>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let email = fields.string("email");
    let role = fields.optional_string("role");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(invites::create(&app, &owner, &email, role.as_deref()).await?),
    ))
}

/// Revoke an invite
///
/// The invite can no longer be accepted. Revoking it again changes nothing.
///
/// Requires the session token of an owner.
#[utoipa::path(
    delete,
    path = "/v1/invites/{invite_id}",
    operation_id = "revokeInvite",
    tag = "invites",
    security(("session" = ["owner"])),
    params(
        ("invite_id" = InviteId, Path, description = "The id of the invite."),
    ),
    responses(
        (status = 200, description = "The revoked invite.", body = Invite),
        (
            status = 404,
            description = "The organization has no such invite, or the invite was accepted.",
        ),
    ),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(invite_id): Id,
) -> Result<Json<Invite>, Failure> {
    Ok(Json(invites::revoke(&app, &owner, &invite_id).await?))
}
