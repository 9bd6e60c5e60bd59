//! `/v1/members`

use assay_core::UserId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::member::{Member, MemberUpdate, Members};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::members;

/// List members
///
/// Members of the organization, the longest membership first. Page on with `next_cursor` until it is null.
#[utoipa::path(get, path = "/v1/members", operation_id = "listMembers", tag = "members", security(("session" = [])),
    params(
        ("limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>), Query, description = "Size of the page."),
        ("cursor" = inline(Option<Cursor>), Query, description = "`next_cursor` of the page before; without it, the first page."),
    ),
    responses((status = 200, description = "A page of members.", body = Members)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(session): Permitted<Session>,
    uri: Uri,
) -> Result<Json<Members>, Failure> {
    Ok(Json(
        members::list(&app, &session, page_query(&uri)?).await?,
    ))
}

/// Change a member's role
///
/// The role applies from the member's next request on. The open invites of a member who is not an owner any more are revoked. The last
/// owner stays an owner.
#[utoipa::path(patch, path = "/v1/members/{user_id}", operation_id = "updateMember", tag = "members", security(("session" = ["owner"])),
    params(("user_id" = UserId, Path, description = "The member.")), request_body = MemberUpdate,
    responses(
        (status = 200, description = "The member in the new role.", body = Member),
        (status = 404, description = "No such member in the organization."),
        (status = 409, description = "The last owner must stay an owner."),
    ))]
pub(super) async fn set_role(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(user_id): Id,
    request: Request,
) -> Result<Json<Member>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let role = fields.text("role");
    fields.finish()?;
    Ok(Json(
        members::set_role(&app, &owner, &user_id, &role).await?,
    ))
}

/// Remove a member
///
/// The membership ends at once, and with it what the user's sessions may do here. The open invites that the member created are revoked.
/// Keys that the member created keep working: `live_keys` of the member lists them before the removal, and `created_by` of each key
/// after it. The last owner cannot be removed.
#[utoipa::path(delete, path = "/v1/members/{user_id}", operation_id = "removeMember", tag = "members", security(("session" = ["owner"])),
    params(("user_id" = UserId, Path, description = "The member.")),
    responses(
        (status = 204, description = "The membership has ended."),
        (status = 404, description = "No such member in the organization."),
        (status = 409, description = "The last owner must stay an owner."),
    ))]
pub(super) async fn remove(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(user_id): Id,
) -> Result<StatusCode, Failure> {
    members::remove(&app, &owner, &user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
