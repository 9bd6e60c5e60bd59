//! Handlers of `/v1/members`.

use assay_core::UserId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::member::{Member, MemberUpdate, Members};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::members;

/// List members
///
/// Returns the members of the organization, the longest membership first. To get the next page,
/// send `next_cursor` as `cursor`, until it is null.
///
/// Requires a session token.
#[utoipa::path(
    get,
    path = "/v1/members",
    operation_id = "listMembers",
    tag = "members",
    security(("session" = [])),
    params(
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of members on the page.",
        ),
        (
            "cursor" = inline(Option<Cursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (status = 200, description = "A page of members.", body = Members),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(session): Permitted<Session>,
    uri: Uri,
) -> Result<Json<Members>, Failure> {
    Ok(Json(
        members::list(&app, &session, page_query(&uri)?).await?,
    ))
}

/// Update the role of a member
///
/// The role applies from the member's next request on. A member who is no longer an owner cannot
/// invite: the open invites that they created, and those to their address, are revoked. The last
/// owner cannot be demoted.
///
/// Requires the session token of an owner.
#[utoipa::path(
    patch,
    path = "/v1/members/{user_id}",
    operation_id = "updateMember",
    tag = "members",
    security(("session" = ["owner"])),
    params(
        ("user_id" = UserId, Path, description = "The id of the user."),
    ),
    request_body = MemberUpdate,
    responses(
        (status = 200, description = "The member after the update.", body = Member),
        (status = 404, description = "The organization has no such member."),
        (status = 409, description = "The member is the last owner."),
    ),
)]
pub(super) async fn set_role(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(user_id): Id,
    request: Request,
) -> Result<Json<Member>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let role = fields.string("role");
    fields.finish()?;
    Ok(Json(
        members::set_role(&app, &owner, &user_id, &role).await?,
    ))
}

/// Remove a member
///
/// The membership ends at once, for every session of the user. The open invites that the member
/// created, and those to their address, are revoked. API keys that the member created keep working:
/// `live_keys` of the member lists them before the removal, and `created_by` of each key names the
/// member after it. The last owner cannot be removed.
///
/// Requires the session token of an owner.
#[utoipa::path(
    delete,
    path = "/v1/members/{user_id}",
    operation_id = "removeMember",
    tag = "members",
    security(("session" = ["owner"])),
    params(
        ("user_id" = UserId, Path, description = "The id of the user."),
    ),
    responses(
        (status = 204, description = "The membership has ended."),
        (status = 404, description = "The organization has no such member."),
        (status = 409, description = "The member is the last owner."),
    ),
)]
pub(super) async fn remove(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(user_id): Id,
) -> Result<StatusCode, Failure> {
    members::remove(&app, &owner, &user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
